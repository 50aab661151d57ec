/* What must be synced before a block counts as stored, on paths that fail meanwhile (R42, R43). */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ha.h"

/* Dumps the two shards of a block of shape `pair` in two tasks; gives the second one's status. */
static kvpath_status_t dump_in_two(rig_t *rig, batch_t *block)
{
    CHECK_OK(dump(rig->store, block->shards, 1));
    return dump(rig->store, block->shards + 1, 1);
}

/* The rename through one path is done, but late: the sync through that path, which the commit
 * through the other one asks for, finds no temporary. The block is stored then; it is not asked for
 * again and again. */
CASE(a_block_renamed_late_needs_no_sync)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.buffered = true, .timeout_ms = 10000, .extra =
                                   ", \"commit_sync\": \"none\""});
    batch_t *block = block_on(&rig, 0, 0);
    CHECK_OK(dump(rig.store, block->shards, 1));
    long long rename = fault(&rig, 0, "rename * count=1 hang");
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_dump(rig.store, block->shards + 1, 1, &task));
    wait_hung(&rig, 0, 1, "rename");
    fault(&rig, 0, "lookup *.tmp always hang");
    wait_hung(&rig, 0, 1, "lookup"); /* the rename was given up; it is the sync that looks */
    tell(&rig, 0, "release %lld", rename);
    heal(&rig, 0);
    release(&rig, 0);
    CHECK_OK(finish(&rig, task));
    load_right(&rig, block);
    wait_at_rest(&rig);
    rig_stop(&rig);
}

/* Where a sync fails, the kernel forgets what it could not write: another sync that succeeds says
 * nothing. The block is not committed before its bytes were written again. */
CASE(bytes_whose_sync_failed_are_written_again)
{
    for (int n = 1; n <= 2; n++) {
        rig_t rig;
        rig_start(&rig, n, (options_t){.buffered = true, .extra = ", \"commit_sync\": \"data\""});
        batch_t *block = block_on(&rig, 0, 0);
        fault(&rig, 0, "fsync data/* count=1 fail EIO");
        CHECK_STATUS(dump_in_two(&rig, block), KVPATH_OS_ERROR);
        CHECK_HAS(kvpath_last_error(), "dump all its shards again");
        CHECK(!exists(text("%s/%s", rig.storage, file_of(block))));
        forget_counts(&rig);
        CHECK_OK(dump_in_two(&rig, block));
        long long writes = 0, syncs = 0;
        for (int at = 0; at < n; at++) {
            writes += seen(&rig, at, "write", files_of(block));
            syncs += seen(&rig, at, "fsync", files_of(block));
        }
        CHECK_EQ(writes, 2);
        CHECK_EQ(syncs, 1);
        load_right(&rig, block);
        rig_stop(&rig);
    }
}

/* A whole block in one task is written, synced and closed in one go: that its sync failed is seen
 * there, too, and the block is written again through the next path. */
CASE(a_whole_block_whose_sync_fails_is_not_stored)
{
    for (int n = 1; n <= 2; n++)
        for (int direct = 0; direct < 2; direct++) {
            rig_t rig;
            rig_start(&rig, n, (options_t){.shape = whole, .buffered = direct == 0, .extra =
                                           ", \"commit_sync\": \"data\""});
            batch_t *block = block_on(&rig, 0, 0);
            dump_batch(rig.store, block_on(&rig, 0, 1)); /* the first one is not like the others */
            fault(&rig, 0, "fsync data/* always fail EIO");
            CHECK_STATUS(dump(rig.store, block->shards, block->count),
                         n == 1 ? KVPATH_OS_ERROR : KVPATH_OK);
            CHECK_EQ(exists(text("%s/%s", rig.storage, file_of(block))), n == 2);
            if (n == 2) CHECK_EQ(seen(&rig, 1, "fsync", files_of(block)), 1);
            heal(&rig, 0);
            rig_stop(&rig);
        }
}

/* The same where the sync hangs, and the task ends before it does. */
CASE(bytes_whose_sync_was_given_up_are_written_again)
{
    rig_t rig;
    rig_start(&rig, 1, (options_t){.buffered = true, .timeout_ms = 2000, .extra =
                                   ", \"commit_sync\": \"data\""});
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "fsync data/* count=1 hang");
    /* The sync's limit and the task's pass at the same moment: either may be told. */
    kvpath_status_t status = dump_in_two(&rig, block);
    if (status != KVPATH_OS_ERROR) CHECK_STATUS(status, KVPATH_TIMEOUT);
    release_failing(&rig, 0, "EIO");
    wait_at_rest(&rig);
    forget_counts(&rig);
    CHECK_OK(dump_in_two(&rig, block));
    CHECK_EQ(seen(&rig, 0, "write", files_of(block)), 2);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* io_direct_fallback: what a path writes through the cache is synced before it has its name, unless
 * the configuration says otherwise (R33, R43). */
CASE(a_path_that_runs_buffered_is_synced)
{
    const struct {
        shape_t shape;
        const char *extra;
        long long syncs;
    } ways[] = {{whole, "", 1}, {pair, "", 1}, {whole, ", \"commit_sync\": \"none\"", 0}};
    for (size_t at = 0; at < sizeof ways / sizeof ways[0]; at++) {
        rig_t rig;
        rig_mount(&rig, 1);
        fault(&rig, 0, "open-direct * always fail EINVAL");
        rig_open(&rig, (options_t){.shape = ways[at].shape, .extra =
                                   text(", \"io_direct_fallback\": true%s", ways[at].extra)});
        CHECK_EQ(health_of(&rig, 0).direct, 0);
        batch_t *block = block_on(&rig, 0, 0);
        forget_counts(&rig);
        dump_batch(rig.store, block);
        CHECK_EQ(seen(&rig, 0, "fsync", files_of(block)), ways[at].syncs);
        load_right(&rig, block);
        rig_stop(&rig);
    }
}

/* commit_sync "full": a block that was there already is as safe as one that this store named. Its
 * writer may have synced nothing. */
CASE(full_syncs_a_block_that_was_there)
{
    rig_t rig;
    rig_start(&rig, 1, (options_t){.extra = ", \"commit_sync\": \"none\""});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    CHECK_OK(kvpath_close(rig.store));
    rig_open(&rig, (options_t){.extra = ", \"commit_sync\": \"full\""});
    forget_counts(&rig);
    dump_batch(rig.store, block);
    CHECK(seen(&rig, 0, "fsync", file_of(block)) >= 1);
    CHECK(seen(&rig, 0, "fsyncdir", "data") >= 1);
    rig_stop(&rig);
}

/* The name was given through one path and could not be synced there: the next one does. */
CASE(full_syncs_a_name_given_through_another_path)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.extra = ", \"commit_sync\": \"full\""});
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "fsyncdir data always fail EIO");
    dump_batch(rig.store, block);
    CHECK(seen(&rig, 1, "fsyncdir", "data") >= 1);
    fault(&rig, 1, "fsyncdir data always fail EIO");
    batch_t *other = block_on(&rig, 1, 1);
    batch_fill(other);
    CHECK_STATUS(dump(rig.store, other->shards, other->count), KVPATH_OS_ERROR);
    heal(&rig, 0);
    heal(&rig, 1);
    rig_stop(&rig);
}

/* A directory of blocks is a name in the root, which must be safe, too: those that are there when
 * the store is opened, whoever made them, and one that is made while it runs (R7). */
CASE(full_syncs_the_names_of_directories)
{
    rig_t rig;
    rig_start(&rig, 1, (options_t){.extra = ", \"commit_sync\": \"none\""});
    CHECK_OK(kvpath_close(rig.store));
    forget_counts(&rig);
    rig_open(&rig, (options_t){.extra = ", \"commit_sync\": \"full\""});
    CHECK(seen(&rig, 0, "fsyncdir", ".") >= 1);
    wait_at_rest(&rig);
    CHECK(rmdir(text("%s/data", rig.storage)) == 0);
    forget_counts(&rig);
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    CHECK_EQ(seen(&rig, 0, "mkdir", "data"), 1);
    CHECK_EQ(seen(&rig, 0, "fsyncdir", "."), 1);
    load_right(&rig, block);
    rig_stop(&rig);
}

static options_t patient(void)
{
    return (options_t){.timeout_ms = 4000, .window = 64, .threshold = 64};
}

/* Lets the direct write that hangs on path 0, which was given up, fail late: on FUSE the kernel then
 * cuts a file that the write would have extended. */
static void fail_late(rig_t *rig)
{
    heal(rig, 0);
    release_failing(rig, 0, "EIO");
    wait_at_rest(rig);
}

/* The first blocks of a store are not like the others. */
static void warm_up(rig_t *rig)
{
    for (int at = 0; at < 3; at++) dump_batch(rig->store, block_on(rig, at % 2, 1 + (unsigned)at));
}

/* R5: the late end of a write that was given up harms nothing: not the block that was stored
 * through the next path meanwhile, */
CASE(a_write_that_fails_late_cuts_no_block)
{
    for (int buffered = 0; buffered < 2; buffered++) {
        rig_t rig;
        options_t options = patient();
        options.shape = whole;
        options.buffered = buffered == 1;
        rig_start(&rig, 2, options);
        warm_up(&rig);
        batch_t *block = block_on(&rig, 0, 0);
        fault(&rig, 0, "write * count=1 hang");
        CHECK_OK(dump(rig.store, block->shards, block->count));
        fail_late(&rig);
        load_right(&rig, block);
        rig_stop(&rig);
    }
}

/* and not the shards that were written before, when another one makes the file long again. */
CASE(a_write_that_fails_late_cuts_no_shard)
{
    for (int buffered = 0; buffered < 2; buffered++) {
        rig_t rig;
        options_t options = patient();
        options.buffered = buffered == 1;
        rig_start(&rig, 2, options);
        warm_up(&rig);
        batch_t *block = block_on(&rig, 0, 0);
        fault(&rig, 0, "write * count=1 hang");
        CHECK_OK(dump(rig.store, block->shards, 1));
        fail_late(&rig);
        CHECK_OK(dump(rig.store, block->shards + 1, 1));
        load_right(&rig, block);
        rig_stop(&rig);
    }
}
