#include "kv.h"

#include <stdio.h>
#include <stdlib.h>

void kv_check(kvpath_status_t status, const char *what)
{
    if (status != KVPATH_OK) {
        die("%s: %s: %s", what, kvpath_status_name(status), kvpath_last_error());
    }
}

/* `"storage_backends": [...]` and what every store here has. */
static size_t common(char *text, size_t room, const struct options *options)
{
    size_t at = (size_t)snprintf(text, room, "{\"storage_backends\": [");
    for (size_t root = 0; root < options->root_count; root++) {
        at += (size_t)snprintf(text + at, room - at, "%s\"%s\"", root ? ", " : "",
                               options->roots[root]);
    }
    at += (size_t)snprintf(text + at, room - at,
                           "], \"data_dir_shard_bytes\": %zu, \"io_direct\": %s",
                           options->dir_digits, options->direct ? "true" : "false");
    return at;
}

static kvpath_store_t open_with(const char *text)
{
    kvpath_store_t store;
    kvpath_status_t status = kvpath_open(text, &store);
    if (status == KVPATH_UNSUPPORTED) {
        fprintf(stderr, "kvbench: %s\n", kvpath_last_error());
        exit(EXIT_UNSUPPORTED);
    }
    kv_check(status, "open");
    return store;
}

kvpath_store_t kv_open(const struct options *options)
{
    char text[8192];
    size_t at = common(text, sizeof text, options);
    size_t shard = options->block_bytes / options->shards;
    at += (size_t)snprintf(text + at, sizeof text - at,
                           ", \"device_id\": 0, \"tensor_size\": %zu, \"shard_size\": %zu, "
                           "\"block_size\": %zu, \"posix_io_engine\": \"%s\"%s%s}",
                           shard, shard, options->block_bytes, options->engine,
                           *options->extra ? ", " : "", options->extra);
    if (at >= sizeof text) die("the configuration is too long");
    return open_with(text);
}

kvpath_store_t kv_open_lookups(const struct options *options)
{
    char text[8192];
    size_t at = common(text, sizeof text, options);
    at += (size_t)snprintf(text + at, sizeof text - at, ", \"device_id\": -1%s%s}",
                           *options->extra ? ", " : "", options->extra);
    if (at >= sizeof text) die("the configuration is too long");
    return open_with(text);
}
