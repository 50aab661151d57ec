/* Types of the public header, for libabigail to read: the table of functions has the type of each
 * one, the structs are reached through their pointers. Never installed. */
#include <kvpath.h>

const kvpath_api_t kvpath_abi_table = {0};
const kvpath_backend_health_t kvpath_abi_backend_health = {0};
const kvpath_stats_t kvpath_abi_stats = {0};
const kvpath_shard_t kvpath_abi_shard = {0};
const kvpath_log_fn kvpath_abi_log_fn = NULL;
const kvpath_api_t *(*const kvpath_abi_api)(uint32_t version) = NULL;
