/* Stores a block, loads it again, compares. Usage: minimal /absolute/path[:/another/path…] */
#include <kvpath.h>
#include <stdio.h>
#include <string.h>
enum { BLOCK_BYTES = 1 << 20 };

static int failed(const char *what, kvpath_status_t status) {
    fprintf(stderr, "%s: %s: %s\n", what, kvpath_status_name(status), kvpath_last_error());
    return 1;
}

int main(int argc, char **argv) {
    char config[4096];
    snprintf(config, sizeof config,
             "{\"storage_backends\": \"%s\", \"io_direct_fallback\": true,"
             " \"tensor_size\": %d, \"shard_size\": %d, \"block_size\": %d}",
             argc > 1 ? argv[1] : "", BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES);
    kvpath_store_t store;
    kvpath_status_t status = kvpath_open(config, &store);
    if (status != KVPATH_OK) return failed("open", status);

    void *out = kvpath_alloc(BLOCK_BYTES), *in = kvpath_alloc(BLOCK_BYTES); /* any memory works */
    if (!out || !in) return failed("alloc", KVPATH_OUT_OF_MEMORY);
    memset(out, 'k', BLOCK_BYTES);
    kvpath_shard_t shard = {.block = {"block number one"}, .addr_count = 1, .addrs = &out};
    kvpath_task_t task;
    status = kvpath_dump(store, &shard, 1, &task);
    if (status == KVPATH_OK) status = kvpath_wait(store, task, 0);
    if (status != KVPATH_OK) return failed("dump", status);

    shard.addrs = &in;
    status = kvpath_load(store, &shard, 1, &task);
    if (status == KVPATH_OK) status = kvpath_wait(store, task, 0);
    if (status != KVPATH_OK) return failed("load", status);

    int same = memcmp(in, out, BLOCK_BYTES) == 0;
    puts(same ? "the block came back whole" : "WRONG BYTES");
    kvpath_free(in), kvpath_free(out);
    return kvpath_close(store) == KVPATH_OK && same ? 0 : 1;
}
