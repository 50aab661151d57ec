/* kvpath as the benchmark uses it. */
#ifndef KVBENCH_KV_H
#define KVBENCH_KV_H

#include "bench.h"

#include <kvpath.h>

/* Exit status where the library says that it cannot do what is asked: the row is left out. */
#define EXIT_UNSUPPORTED 77

void kv_check(kvpath_status_t status, const char *what);
kvpath_store_t kv_open(const struct options *options);
/* Without sizes: the scheduler's role. */
kvpath_store_t kv_open_lookups(const struct options *options);

#endif
