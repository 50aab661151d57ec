/* dlopen() without the table: each function by its name, for loaders that need only a few of them.
 * The types are the header's, the library is not linked. examples/dlopen.c uses the table, which is
 * one symbol and says what version it is of.
 * Usage: dlsym /path/to/libkvpath.so /absolute/path[:/another/path…] */
#include <dlfcn.h>
#include <kvpath.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 16 };

/* The types of the functions, out of the header's table of them. */
static kvpath_api_t kv;

/* ISO C has no cast from an object to a function pointer; POSIX promises that this works. */
static int find(void *library, const char *name, void *pointer) {
    void *symbol = dlsym(library, name);
    if (!symbol) fprintf(stderr, "%s\n", dlerror());
    memcpy(pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int find_all(void *library) {
    return find(library, "kvpath_abi_version", &kv.abi_version) &&
           find(library, "kvpath_open", &kv.open) && find(library, "kvpath_dump", &kv.dump) &&
           find(library, "kvpath_load", &kv.load) && find(library, "kvpath_wait", &kv.wait) &&
           find(library, "kvpath_close", &kv.close) &&
           find(library, "kvpath_last_error", &kv.last_error);
}

static kvpath_status_t move(kvpath_store_t store, int dumps, void *memory) {
    kvpath_shard_t shard = {.block = {"block number 03"}, .addr_count = 1, .addrs = &memory};
    kvpath_task_t task;
    kvpath_status_t status =
        dumps ? kv.dump(store, &shard, 1, &task) : kv.load(store, &shard, 1, &task);
    return status == KVPATH_OK ? kv.wait(store, task, 0) : status;
}

static int store_and_load(const char *backends) {
    static unsigned char out[BLOCK_BYTES], in[BLOCK_BYTES];
    char config[4096];
    snprintf(config, sizeof config,
             "{\"storage_backends\": \"%s\", \"io_direct_fallback\": true,"
             " \"tensor_size\": %d, \"shard_size\": %d, \"block_size\": %d}",
             backends, BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES);
    for (size_t at = 0; at < sizeof out; at++) out[at] = (unsigned char)(at * 29 + at / 251);
    kvpath_store_t store;
    if (kv.open(config, &store) != KVPATH_OK || move(store, 1, out) != KVPATH_OK ||
        move(store, 0, in) != KVPATH_OK || kv.close(store) != KVPATH_OK) {
        fprintf(stderr, "%s\n", kv.last_error());
        return 1;
    }
    int same = memcmp(in, out, sizeof in) == 0;
    puts(same ? "the block came back whole" : "WRONG BYTES");
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
    if (!find_all(library)) return 1;
    if (kv.abi_version() != KVPATH_ABI_VERSION) {
        fprintf(stderr, "%s: ABI version %u, not %d\n", argv[1], (unsigned)kv.abi_version(),
                KVPATH_ABI_VERSION);
        return 1;
    }
    int result = store_and_load(argv[2]);
    dlclose(library);
    return result;
}
