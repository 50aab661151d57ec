/* The failure table (ctest/matrix/TABLE.md), one case a row by the row's name: loads. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ha.h"

enum { N = 3 };

/* Three paths, and a stored block whose first candidate is path 1. */
static batch_t *stored(rig_t *rig, options_t options)
{
    options.shape = whole;
    rig_start(rig, N, options);
    batch_t *block = block_on(rig, 1, 0);
    dump_batch(rig->store, block);
    forget_counts(rig);
    return block;
}

static void on_all(rig_t *rig, const char *rule)
{
    for (int at = 0; at < rig->n; at++) fault(rig, at, "%s", rule);
}

static void check_not_counted(rig_t *rig)
{
    for (int at = 0; at < rig->n; at++) check_health(rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
}

CASE(load_present)
{
    rig_t rig;
    load_right(&rig, stored(&rig, (options_t){0}));
    CHECK_EQ(stats_of(rig.store).retries, 0);
    check_not_counted(&rig);
    rig_stop(&rig);
}

CASE(load_absent)
{
    rig_t rig;
    stored(&rig, (options_t){0});
    batch_t *block = block_on(&rig, 1, 1);
    CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_NOT_FOUND);
    CHECK_EQ(kvpath_last_detail(), KVPATH_NOT_FOUND);
    CHECK(seen(&rig, 1, "lookup", file_of(block)) > 0);
    CHECK_EQ(seen(&rig, 2, "total", file_of(block)) + seen(&rig, 0, "total", file_of(block)), 0);
    check_not_counted(&rig);
    rig_stop(&rig);
}

CASE(load_wrong_size)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){0});
    const char *path = block_path(rig.storage, id_of(block), 0);
    CHECK(truncate(path, 100) == 0);
    CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_NOT_FOUND);
    CHECK_EQ(kvpath_last_detail(), KVPATH_CORRUPT);
    check_not_counted(&rig);
    CHECK(exists(path));
    dump_batch(rig.store, block);
    load_right(&rig, block);
    rig_stop(&rig);
}

CASE(load_path_error)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){0});
    fault(&rig, 1, "read data/* always fail EIO");
    load_right(&rig, block);
    check_health(&rig, 1, ANY, ANY, 1);
    check_health(&rig, 2, ANY, ANY, 0);
    rig_stop(&rig);
}

CASE(load_all_paths_error)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){0});
    fault(&rig, 1, "read data/* always fail EIO");
    fault(&rig, 2, "read data/* always fail EACCES");
    fault(&rig, 0, "read data/* always fail ENOTCONN");
    CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_OS_ERROR);
    CHECK_HAS(kvpath_last_error(), "ENOTCONN");
    for (int at = 0; at < N; at++) check_health(&rig, at, ANY, ANY, 1);
    for (int at = 0; at < N; at++) heal(&rig, at);
    load_right(&rig, block);
    rig_stop(&rig);
}

CASE(load_path_hangs)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){.timeout_ms = 1500});
    fault(&rig, 1, "read data/* always hang");
    uint64_t start = now_ms();
    load_right(&rig, block);
    CHECK(now_ms() - start >= 500);
    check_health(&rig, 1, ANY, ANY, 1);
    memset(block->memory, 0xee, block->memory_bytes); /* R30: the memory is ours again */
    heal(&rig, 1);
    release(&rig, 1);
    wait_at_rest(&rig);
    for (size_t at = 0; at < block->memory_bytes; at++) CHECK_EQ(block->memory[at], 0xee);
    rig_stop(&rig);
}

CASE(load_all_paths_hang)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){.timeout_ms = 900});
    on_all(&rig, "read data/* always hang");
    uint64_t start = now_ms();
    CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_TIMEOUT);
    CHECK(now_ms() - start >= 900 - 1 && now_ms() - start < 900 + SLACK_MS);
    for (int at = 0; at < N; at++) heal(&rig, at), release(&rig, at);
    rig_stop(&rig);
}

/* R24: that the path is the storage may be believed for 100 ms. */
CASE(load_path_fell_off)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){0});
    tell(&rig, 1, "vanish");
    kvpath_status_t status;
    while ((status = load(rig.store, block->shards, block->count)) == KVPATH_NOT_FOUND) {
    }
    CHECK_OK(status);
    load_right(&rig, block);
    CHECK(health_of(&rig, 1).failures >= 1);
    CHECK_HAS(health_of(&rig, 1).last_error, "not the storage");
    tell(&rig, 1, "return");
    rig_stop(&rig);
}

CASE(load_bad_block)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){0});
    for (int at = 0; at < N; at++) fault(&rig, at, "read %s always fail EIO", file_of(block));
    for (int round = 0; round < 5; round++)
        CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_OS_ERROR);
    for (int at = 0; at < N; at++) check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 1);
    rig_stop(&rig);
}

CASE(load_storage_full)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){0}), *more = block_on(&rig, 1, 1);
    on_all(&rig, "create,write,fallocate * always fail ENOSPC");
    batch_fill(more);
    CHECK_STATUS(dump(rig.store, more->shards, more->count), KVPATH_NO_SPACE);
    load_right(&rig, block);
    check_not_counted(&rig);
    rig_stop(&rig);
}

CASE(load_no_descriptors)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){.timeout_ms = 1500});
    fault(&rig, 1, "open data/* count=2 fail EMFILE");
    load_right(&rig, block);
    fault(&rig, 1, "open data/* always fail EMFILE");
    uint64_t start = now_ms();
    CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_OS_ERROR);
    CHECK(now_ms() - start >= 500 - 1);
    CHECK_HAS(kvpath_last_error(), "EMFILE");
    check_not_counted(&rig);
    CHECK_EQ(seen(&rig, 2, "open", "data/*"), 0);
    rig_stop(&rig);
}

CASE(load_none_available)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){.threshold = 1});
    for (int at = 0; at < N; at++) exclude(&rig, at);
    forget_counts(&rig);
    kvpath_task_t task = 0;
    CHECK_STATUS(kvpath_load(rig.store, block->shards, block->count, &task),
                 KVPATH_STORE_UNHEALTHY);
    for (int at = 0; at < N; at++) CHECK_EQ(seen(&rig, at, "total", "*"), 0);
    rig_stop(&rig);
}

/* ---- lookups and removals ---- */

CASE(lookup_present)
{
    rig_t rig;
    CHECK(present(rig.store, id_of(stored(&rig, (options_t){0}))));
    rig_stop(&rig);
}

CASE(lookup_absent)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){0});
    CHECK(!present(rig.store, id_of(block_on(&rig, 1, 1))));
    CHECK(truncate(block_path(rig.storage, id_of(block), 0), 100) == 0);
    CHECK(!present(rig.store, id_of(block)));
    CHECK_EQ(seen(&rig, 2, "total", "data/*") + seen(&rig, 0, "total", "data/*"), 0);
    check_not_counted(&rig);
    rig_stop(&rig);
}

CASE(lookup_path_error)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){0});
    fault(&rig, 1, "lookup data/* always fail EIO");
    CHECK(present(rig.store, id_of(block)));
    check_health(&rig, 1, ANY, ANY, 1);
    rig_stop(&rig);
}

CASE(lookup_path_hangs)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){.extra = ", \"lookup_timeout_ms\": 1500"});
    fault(&rig, 1, "lookup data/* always hang");
    uint64_t start = now_ms();
    CHECK(present(rig.store, id_of(block)));
    CHECK(now_ms() - start >= 500 - 1);
    check_health(&rig, 1, ANY, ANY, 1);
    heal(&rig, 1), release(&rig, 1);
    rig_stop(&rig);
}

CASE(lookup_all_paths_error)
{
    rig_t rig;
    uint8_t found = 9;
    batch_t *block = stored(&rig, (options_t){.extra = ", \"lookup_timeout_ms\": 900"});
    on_all(&rig, "lookup data/* always fail EIO");
    CHECK_STATUS(kvpath_lookup(rig.store, id_of(block), 1, &found), KVPATH_OS_ERROR);
    CHECK_EQ(found, 0);
    for (int at = 0; at < N; at++) heal(&rig, at);
    on_all(&rig, "lookup data/* always hang");
    found = 9;
    CHECK_STATUS(kvpath_lookup(rig.store, id_of(block), 1, &found), KVPATH_TIMEOUT);
    CHECK_EQ(found, 0);
    for (int at = 0; at < N; at++) heal(&rig, at), release(&rig, at);
    rig_stop(&rig);
}

CASE(lookup_none_available)
{
    rig_t rig;
    uint8_t found[2] = {9, 9};
    batch_t *block = stored(&rig, (options_t){.threshold = 1});
    for (int at = 0; at < N; at++) exclude(&rig, at);
    kvpath_block_id_t ids[2] = {*id_of(block), *id_of(block_on(&rig, 0, 0))};
    CHECK_STATUS(kvpath_lookup(rig.store, ids, 2, found), KVPATH_STORE_UNHEALTHY);
    CHECK_EQ(found[0] + found[1], 0);
    rig_stop(&rig);
}

CASE(remove_absent)
{
    rig_t rig;
    stored(&rig, (options_t){0});
    CHECK_OK(kvpath_remove(rig.store, id_of(block_on(&rig, 1, 1)), 1));
    check_not_counted(&rig);
    rig_stop(&rig);
}

CASE(remove_unfinished)
{
    rig_t rig;
    rig_start(&rig, N, (options_t){0});
    batch_t *block = block_on(&rig, 1, 0);
    batch_fill(block);
    CHECK_OK(dump(rig.store, block->shards, 1));
    CHECK_OK(kvpath_remove(rig.store, id_of(block), 1));
    CHECK_EQ(stats_of(rig.store).unfinished_blocks, 1);
    CHECK_OK(dump(rig.store, &block->shards[1], 1));
    load_right(&rig, block);
    rig_stop(&rig);
}

CASE(remove_path_error)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){0});
    fault(&rig, 1, "unlink data/* always fail EROFS");
    CHECK_OK(kvpath_remove(rig.store, id_of(block), 1));
    CHECK(!exists(block_path(rig.storage, id_of(block), 0)));
    check_health(&rig, 1, ANY, ANY, 1);
    rig_stop(&rig);
}

CASE(remove_path_hangs)
{
    rig_t rig;
    batch_t *block = stored(&rig, (options_t){.timeout_ms = 1500});
    fault(&rig, 1, "unlink data/* always hang");
    uint64_t start = now_ms();
    CHECK_OK(kvpath_remove(rig.store, id_of(block), 1));
    CHECK(now_ms() - start >= 500 - 1);
    CHECK(!exists(block_path(rig.storage, id_of(block), 0)));
    check_health(&rig, 1, ANY, ANY, 1);
    heal(&rig, 1), release(&rig, 1);
    rig_stop(&rig);
}
