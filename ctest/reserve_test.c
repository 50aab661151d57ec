/* The reserve of free space (R85), on a small memory file system. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {65536, 65536, 65536};

CASE(r85_bytes_run_short)
{
    const char *root = own_tmpfs("size=4m,nr_inodes=1000");
    kvpath_store_t store = open_root(root, shape, ", \"reserve_free_percent\": 50");
    batch_t *first = batch(shape, 1, 1, 0);
    dump_batch(store, first);
    static uint8_t filler[3 << 20];
    write_file(text("%s/filler", root), filler, sizeof filler);
    kvpath_status_t status;
    /* An answer may be a second old, so the first dumps may still go through. */
    for (uint64_t number = 2;; number++) {
        batch_t *next = batch(shape, number, 1, 0);
        batch_fill(next);
        status = dump(store, next->shards, 1);
        if (status != KVPATH_OK) break;
        CHECK_OK(kvpath_remove(store, &next->shards->block, 1));
    }
    CHECK_EQ(status, KVPATH_NO_SPACE);
    const char *said = text("%s", kvpath_last_error());
    CHECK_HAS(said, "% of its bytes free");
    CHECK_HAS(said, "% of its inodes");
    CHECK_HAS(said, "reserve_free_percent is 50");
    load_batch(store, first);
    CHECK_OK(kvpath_check_health(store));
    kvpath_backend_health_t health = {.size = sizeof health};
    size_t count = 0;
    CHECK_OK(kvpath_health(store, &health, 1, &count));
    CHECK_EQ(health.failures, 0);
    CHECK(unlink(text("%s/filler", root)) == 0);
    batch_t *again = batch(shape, 1000, 1, 0);
    dump_batch(store, again); /* a refusal is asked again each time */
    load_batch(store, again);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, ".tmp"), 0);
}

CASE(r85_inodes_run_short)
{
    const char *root = own_tmpfs("size=64m,nr_inodes=100");
    for (int at = 0; at < 60; at++) write_file(text("%s/file%d", root, at), "", 0);
    kvpath_store_t store = open_root(root, shape, ", \"reserve_free_percent\": 50");
    batch_t *block = batch(shape, 1, 1, 0);
    batch_fill(block);
    CHECK_STATUS(dump(store, block->shards, 1), KVPATH_NO_SPACE);
    CHECK_HAS(kvpath_last_error(), "% of its inodes");
    for (int at = 0; at < 40; at++) CHECK(unlink(text("%s/file%d", root, at)) == 0);
    dump_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

CASE(r85_off_by_default)
{
    const char *root = own_tmpfs("size=1m,nr_inodes=20");
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 1, 8, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
}
