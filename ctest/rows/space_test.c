/* The failure table (ctest/matrix/TABLE.md), one case a row by the row's name: keeping within the
 * space. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ha.h"

static bool is_aside(void *argument)
{
    return stats_of(((rig_t *)argument)->store).quarantined_files > 0;
}

CASE(load_quarantine)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .extra = ", \"quarantine\": true"});
    batch_t *block = block_on(&rig, 1, 0);
    dump_batch(rig.store, block);
    const char *path = block_path(rig.storage, id_of(block), 0);
    CHECK(truncate(path, 100) == 0);
    CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_NOT_FOUND);
    CHECK_EQ(kvpath_last_detail(), KVPATH_CORRUPT);
    wait_for("quarantine", is_aside, &rig);
    CHECK(!exists(path));
    CHECK_EQ(count_files(text("%s/.quarantine", rig.storage), block_name(id_of(block))), 1);
    for (int at = 0; at < rig.n; at++) check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    dump_batch(rig.store, block);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* On a file system of four megabytes, of which somebody else takes three. */
CASE(dump_reserve)
{
    static const shape_t shape = {65536, 65536, 131072};
    static uint8_t filler[3 << 20];
    const char *root = own_tmpfs("size=4m,nr_inodes=1000");
    kvpath_store_t store = open_root(root, shape, ", \"reserve_free_percent\": 50");
    batch_t *stored = batch(shape, 1, 1, 0), *begun = batch(shape, 2, 1, 0);
    dump_batch(store, stored);
    batch_fill(begun);
    CHECK_OK(dump(store, begun->shards, 1));
    write_file(text("%s/filler", root), filler, sizeof filler);
    kvpath_status_t status = KVPATH_OK;
    /* An answer may be a second old, so the first dumps may still go through. */
    for (uint64_t number = 3; status == KVPATH_OK; number++) {
        batch_t *next = batch(shape, number, 1, 0);
        batch_fill(next);
        status = dump(store, next->shards, next->count);
        if (status == KVPATH_OK) CHECK_OK(kvpath_remove(store, id_of(next), 1));
    }
    CHECK_EQ(status, KVPATH_NO_SPACE);
    const char *said = text("%s", kvpath_last_error());
    CHECK_HAS(said, "of its bytes free");
    CHECK_HAS(said, "of its inodes");
    CHECK_OK(dump(store, &begun->shards[1], 1));
    check_file(block_path(root, id_of(begun), 0), id_of(begun), shape.block);
    load_batch(store, stored);
    load_batch(store, begun);
    kvpath_backend_health_t health = {.size = sizeof health};
    size_t count = 0;
    CHECK_OK(kvpath_health(store, &health, 1, &count));
    CHECK_EQ(health.failures, 0);
    CHECK_EQ(health.state, KVPATH_BACKEND_AVAILABLE);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, ".tmp"), 0);
}

enum { ALL = 40, TRIGGER = 20 };

/* Blocks that were there before the store; the first is the oldest. */
static void put_blocks(const char *storage)
{
    static const uint8_t content[8192];
    CHECK(mkdir(text("%s/data", storage), 0774) == 0);
    CHECK_EQ(whole.block, sizeof content);
    for (unsigned number = 0; number < ALL; number++) {
        kvpath_block_id_t id = block_id(number);
        const char *path = block_path(storage, &id, 0);
        write_file(path, content, sizeof content);
        struct timespec times[2] = {{.tv_sec = 1000 + number}, {.tv_sec = 1000 + number}};
        CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
    }
}

static bool failed_twice(void *argument)
{
    return stats_of(((rig_t *)argument)->store).failed_passes >= 2;
}

static bool is_below(void *argument)
{
    return count_files(text("%s/data", ((rig_t *)argument)->storage), NULL) < TRIGGER;
}

/* A pass is counted before it is told. */
static bool told_twice(void *nothing)
{
    (void)nothing;
    return log_count("collection: the pass ended: ") >= 2;
}

CASE(collect_all_paths_fail)
{
    rig_t rig;
    rig_mount(&rig, 2);
    put_blocks(rig.storage);
    for (int at = 0; at < rig.n; at++) fault(&rig, at, "opendir data always fail EIO");
    const char *extra = text(", \"posix_capacity_gb\": %.17g, \"posix_gc_check_interval_sec\": 1, "
                             "\"posix_gc_trigger_threshold_ratio\": 1",
                             (double)TRIGGER * (double)whole.block / (1 << 30));
    uint64_t begun = now_ms();
    rig_open(&rig, (options_t){.shape = whole, .threshold = 4, .extra = extra});
    wait_for("two passes that failed", failed_twice, &rig);
    CHECK(now_ms() - begun >= 1000); /* an interval lies between them */
    wait_for("both in the log", told_twice, NULL);
    CHECK_EQ(count_files(text("%s/data", rig.storage), NULL), ALL);
    CHECK_EQ(stats_of(rig.store).collected_blocks, 0);
    for (int at = 0; at < rig.n; at++) heal(&rig, at);
    for (int at = 0; at < rig.n; at++)
        CHECK_OK(kvpath_backend_set(rig.store, rig.path[at], KVPATH_BACKEND_SET_IN));
    wait_for("collection", is_below, &rig);
    rig_stop(&rig);
}
