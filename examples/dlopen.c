/* The same without linking the library: dlopen(), one symbol, one table of functions.
 * (examples/dlsym.c goes without the table.)
 * Usage: dlopen /path/to/libkvpath.so /absolute/path[:/another/path…] */
#include <dlfcn.h>
#include <kvpath.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16 };

typedef const kvpath_api_t *(*table_fn)(uint32_t version);

static int failed(const kvpath_api_t *kv, const char *what, kvpath_status_t status) {
    fprintf(stderr, "%s: %s: %s\n", what, kv->status_name(status), kv->last_error());
    return 1;
}

static int store_and_load(const kvpath_api_t *kv, const char *backends) {
    static unsigned char out[BLOCK_BYTES], in[BLOCK_BYTES];
    char config[4096];
    snprintf(config, sizeof config,
             "{\"storage_backends\": \"%s\", \"io_direct_fallback\": true,"
             " \"tensor_size\": %d, \"shard_size\": %d, \"block_size\": %d}",
             backends, BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES);
    kvpath_store_t store;
    kvpath_status_t status = kv->open(config, &store);
    if (status != KVPATH_OK) return failed(kv, "open", status);

    for (size_t at = 0; at < sizeof out; at++) out[at] = (unsigned char)(at * 31 + at / 257);
    void *address = out;
    kvpath_shard_t shard = {.block = {"block number two"}, .addr_count = 1, .addrs = &address};
    kvpath_task_t task;
    status = kv->dump(store, &shard, 1, &task);
    if (status == KVPATH_OK) status = kv->wait(store, task, 0);
    if (status != KVPATH_OK) return failed(kv, "dump", status);

    address = in;
    status = kv->load(store, &shard, 1, &task);
    if (status == KVPATH_OK) status = kv->wait(store, task, 0);
    if (status != KVPATH_OK) return failed(kv, "load", status);

    int same = memcmp(in, out, sizeof in) == 0;
    puts(same ? "the block came back whole" : "WRONG BYTES");
    status = kv->close(store);
    if (status != KVPATH_OK) return failed(kv, "close", status);
    return same ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s /path/to/libkvpath.so /absolute/path[:/another…]\n", argv[0]);
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    /* ISO C has no cast from an object to a function pointer; POSIX promises that this works. */
    void *symbol = dlsym(library, "kvpath_api");
    table_fn table;
    memcpy(&table, &symbol, sizeof table);
    const kvpath_api_t *kv = symbol ? table(KVPATH_ABI_VERSION) : NULL;
    if (!kv) {
        fprintf(stderr, "%s: no function table of version %d\n", argv[1], KVPATH_ABI_VERSION);
        return 1;
    }
    int result = store_and_load(kv, argv[2]);
    dlclose(library);
    return result;
}
