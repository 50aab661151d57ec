/* A path that saw a block's file before other paths wrote into it looks anew (R42): before it names
 * the block, before others do, before a load. That costs nobody a commit, a byte, or his health. */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <unistd.h>

#include "ha.h"

static options_t paired(bool buffered)
{
    return (options_t){.shape = pair, .buffered = buffered, .timeout_ms = 20000, .window = 64,
                       .threshold = 64};
}

/* Shard 0 is written through 1, after 0 could not; shard 1 is to go through 0. */
static batch_t *half_a_block(rig_t *rig)
{
    batch_t *block = block_on(rig, 0, 0);
    batch_fill(block);
    fault(rig, 0, "create data/* count=1 fail EIO");
    CHECK_OK(dump_shard(rig, block, 0));
    return block;
}

/* The same, and 0 remembers the half block, cannot write the rest, and cannot look anew in time:
 * what is written through 1 is named by 1. */
static batch_t *half_remembered(rig_t *rig)
{
    batch_t *block = half_a_block(rig);
    fault(rig, 0, "lookup,getattr * always remember");
    fault(rig, 0, "write data/* count=1 fail EIO");
    fault(rig, 0, "setattr data/* count=1 fail EIO");
    return block;
}

static const char *file(rig_t *rig, const batch_t *block)
{
    return block_path(rig->storage, id_of(block), 0);
}

static long long size_of(const char *path)
{
    struct stat info;
    CHECK(stat(path, &info) == 0);
    return info.st_size;
}

/* R23: looking anew sets the length that a file has, and no other: a short file is none that is whole
 * with zeros in it. */
CASE(a_short_file_stays_short)
{
    rig_t rig;
    rig_start(&rig, 2, paired(true));
    batch_t *block = half_remembered(&rig);
    CHECK_OK(dump_shard(&rig, block, 1));
    CHECK_EQ(seen(&rig, 1, "rename", file_of(block)), 1);
    CHECK(truncate(file(&rig, block), 0) == 0); /* what a server lost */
    CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_NOT_FOUND);
    CHECK_EQ(size_of(file(&rig, block)), 0);
    rig_stop(&rig);
}

/* R42: a sync that failed after the look says as much as one that failed before: what it could not
 * write is lost, and no second one is believed. */
CASE(a_sync_after_a_look_is_not_tried_again)
{
    rig_t rig;
    rig_start(&rig, 2, paired(true));
    batch_t *block = half_a_block(&rig);
    fault(&rig, 0, "fsync data/* count=1 fail EIO");
    CHECK_STATUS(dump_shard(&rig, block, 1), KVPATH_OS_ERROR);
    CHECK_EQ(seen(&rig, 0, "fsync", files_of(block)), 1);
    CHECK(!exists(file(&rig, block)));
    rig_stop(&rig);
}

/* R42: there is nothing to see for others before a path has synced what only it holds. */
CASE(others_look_after_the_sync)
{
    rig_t rig;
    rig_start(&rig, 2, paired(true));
    batch_t *block = half_a_block(&rig);
    fault(&rig, 0, "fsync data/* count=1 hang");
    forget_counts(&rig);
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_dump(rig.store, block->shards + 1, 1, &task));
    wait_hung(&rig, 0, 1, "fsync");
    CHECK_EQ(seen(&rig, 1, "setattr", files_of(block)), 0);
    release(&rig, 0);
    CHECK_OK(finish(&rig, task));
    CHECK(seen(&rig, 1, "setattr", files_of(block)) > 0);
    CHECK_EQ(seen(&rig, 1, "setattr", file_of(block)), 0); /* before it had its name */
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R42: a load that began before the block had its name, and ends after it, has been given what the
 * path remembers: it is read again. No such block is set aside for its size, either (R23). */
static void load_under_way(const char *extra)
{
    rig_t rig;
    options_t options = paired(true);
    options.extra = extra;
    rig_start(&rig, 2, options);
    batch_t *block = half_remembered(&rig);
    fault(&rig, 0, "lookup %s count=1 delay 2000", file_of(block));
    batch_t *loaded = block_on(&rig, 0, 0);
    kvpath_task_t task = begin_load(&rig, loaded);
    wait_seen(&rig, 0, "lookup", file_of(block), 1);
    CHECK_OK(dump_shard(&rig, block, 1));
    CHECK_OK(finish(&rig, task)); /* which got its name when the delay was over */
    batch_check(loaded);
    wait_at_rest(&rig);
    load_right(&rig, block);
    CHECK_EQ(stats_of(rig.store).corrupt, 0);
    CHECK_EQ(stats_of(rig.store).quarantined_files, 0);
    rig_stop(&rig);
}

CASE(a_load_under_way_looks_anew)
{
    load_under_way(NULL);
    load_under_way(", \"quarantine\": true");
}

/* R42: the commit failed, its rename was given up, and done late. */
CASE(a_late_rename_leaves_paths_that_look_anew)
{
    rig_t rig;
    options_t options = paired(true);
    options.timeout_ms = 4000;
    rig_start(&rig, 2, options);
    batch_t *block = half_remembered(&rig);
    long long rename = fault(&rig, 1, "rename data/* count=1 hang");
    CHECK(dump_shard(&rig, block, 1) != KVPATH_OK);
    tell(&rig, 1, "release %lld", rename);
    wait_late_results(&rig, 1);
    wait_at_rest(&rig);
    CHECK(exists(file(&rig, block)));
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R42: a second dump of the block finds it there. The paths that had to look anew still have to. */
CASE(a_second_dump_forgets_no_path)
{
    rig_t rig;
    rig_start(&rig, 3, paired(true));
    batch_t *block = half_remembered(&rig);
    CHECK_OK(dump_shard(&rig, block, 1));
    CHECK_EQ(seen(&rig, 1, "rename", file_of(block)), 1);
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[0], KVPATH_BACKEND_SET_OUT));
    fault(&rig, 1, "create data/* count=1 fail EIO");
    CHECK_OK(dump_shard(&rig, block, 0)); /* again, through 2 */
    fault(&rig, 2, "setattr data/* count=1 fail EIO");
    CHECK_OK(dump_shard(&rig, block, 1));
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[0], KVPATH_BACKEND_SET_AUTO));
    load_right(&rig, block);
    rig_stop(&rig);
}

/* ---- what a look costs ---- */

/* A block that is written, shard 0 through 1 and shard 1 through 0, and has no name yet. */
static batch_t *written(rig_t *rig, options_t options)
{
    options.extra = ", \"commit_policy\": \"explicit\"";
    rig_start(rig, 2, options);
    batch_t *block = half_a_block(rig);
    CHECK_OK(dump_shard(rig, block, 1));
    return block;
}

/* R22: what this host is short of is not waited for. */
CASE(a_look_waits_for_no_descriptor)
{
    rig_t rig;
    batch_t *block = written(&rig, paired(false));
    fault(&rig, 1, "open data/* always fail EMFILE");
    CHECK_OK(kvpath_commit(rig.store, id_of(block), 1));
    CHECK_EQ(seen(&rig, 1, "open", files_of(block)) > 0, true);
    heal(&rig, 1);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R22, R24: a path that is full, or that fell off, has shown nothing by it. */
CASE(a_look_that_tells_nothing_is_no_outcome)
{
    for (int full = 0; full < 2; full++) {
        rig_t rig;
        batch_t *block = written(&rig, paired(false));
        const kvpath_backend_health_t before = health_of(&rig, 1);
        if (full)
            fault(&rig, 1, "setattr data/* always fail ENOSPC");
        else
            tell(&rig, 1, "vanish");
        CHECK_OK(kvpath_commit(rig.store, id_of(block), 1));
        const kvpath_backend_health_t after = health_of(&rig, 1);
        CHECK_EQ(after.samples - after.failures, before.samples - before.failures);
        if (!full) tell(&rig, 1, "return");
        heal(&rig, 1);
        load_right(&rig, block);
        rig_stop(&rig);
    }
}

/* A look that succeeds is an outcome, and neither a retry nor a fail-over. */
CASE(a_look_is_no_fail_over)
{
    rig_t rig;
    batch_t *block = written(&rig, paired(false));
    const kvpath_stats_t before = stats_of(rig.store);
    CHECK_OK(kvpath_commit(rig.store, id_of(block), 1));
    CHECK(seen(&rig, 1, "setattr", files_of(block)) > 0);
    CHECK_EQ(stats_of(rig.store).failovers, before.failovers);
    CHECK_EQ(stats_of(rig.store).retries, before.retries);
    CHECK_EQ(stats_of(rig.store).committed_blocks, before.committed_blocks + 1);
    rig_stop(&rig);
}

/* R27: a path whose look failed may still give the name. */
CASE(a_failed_look_takes_no_candidate)
{
    rig_t rig;
    options_t options = paired(false);
    options.timeout_ms = 6000;
    rig_start(&rig, 2, options);
    batch_t *block = half_a_block(&rig);
    fault(&rig, 1, "setattr data/* count=1 fail EIO");
    fault(&rig, 0, "rename data/* always fail EIO");
    CHECK_OK(dump_shard(&rig, block, 1));
    CHECK_EQ(seen(&rig, 1, "rename", file_of(block)), 1);
    heal(&rig, 0);
    heal(&rig, 1);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R28: what hangs without a limit would keep the block from its name. */
static void look_without_limits(unsigned timeout_ms, const char *extra)
{
    rig_t rig;
    options_t options = paired(false);
    options.timeout_ms = timeout_ms;
    options.extra = extra;
    rig_start(&rig, 2, options);
    batch_t *block = half_a_block(&rig);
    fault(&rig, 1, "setattr data/* always hang");
    CHECK_OK(dump_shard(&rig, block, 1));
    heal(&rig, 1);
    release(&rig, 1);
    wait_at_rest(&rig);
    load_right(&rig, block);
    rig_stop(&rig);
}

CASE(a_look_that_hangs_keeps_no_block_from_its_name)
{
    look_without_limits(0, NULL);
    look_without_limits(20000, ", \"metadata_time_limits\": false");
    look_without_limits(6000, NULL); /* there is one: it costs that */
}

/* A drop while a look hangs ends the commit; the file goes through the other path. */
CASE(a_drop_does_not_wait_for_a_look)
{
    rig_t rig;
    rig_start(&rig, 2, paired(false));
    batch_t *block = half_a_block(&rig);
    fault(&rig, 1, "setattr data/* always hang");
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_dump(rig.store, block->shards + 1, 1, &task));
    wait_hung(&rig, 1, 1, "setattr");
    CHECK_OK(kvpath_commit(rig.store, id_of(block), 0));
    CHECK(finish(&rig, task) != KVPATH_OK);
    wait_seen(&rig, 0, "unlink", files_of(block), 1);
    heal(&rig, 1);
    release(&rig, 1);
    wait_at_rest(&rig);
    dump_batch(rig.store, block);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R22: path 0 breaks while blocks are dumped, and 1 writes them whole. It has nothing to look anew
 * for, so that files which may not be changed any more are loaded as ever. */
CASE(who_wrote_all_of_it_needs_no_look)
{
    static const char *const errors[] = {"EACCES", "EROFS", "EPERM"};
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 4, .threshold = 2});
    fault(&rig, 0, "create,write,setattr,rename,open data/* always fail EIO");
    batch_t *block[3];
    for (unsigned nth = 0; nth < 3; nth++) dump_batch(rig.store, block[nth] = block_on(&rig, 0, nth));
    uint64_t failures = health_of(&rig, 1).failures;
    for (unsigned nth = 0; nth < 3; nth++) {
        fault(&rig, 1, "setattr %s always fail %s", file_of(block[nth]), errors[nth]);
        load_right(&rig, block[nth]);
    }
    check_health(&rig, 1, KVPATH_BACKEND_AVAILABLE, ANY, ANY);
    CHECK_EQ(health_of(&rig, 1).failures, failures);
    for (int at = 0; at < 2; at++) heal(&rig, at);
    rig_stop(&rig);
}
