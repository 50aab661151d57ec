/* The block's name where more than one file may get it: a rename that was given up and is done
 * late, with shards lost, beside a later dump; and writes that hang on every path (R5, R40, R42). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ha.h"

/* A rename that hangs on 0, and a sync of 0 that fails: shards are lost, the file is given up. Its
 * removal through 1 takes longer than an attempt may, and is done all the same. */
static batch_t *given_up(rig_t *rig, long long *rename)
{
    rig_start(rig, 2, (options_t){.shape = pair, .buffered = true, .timeout_ms = 4000,
                                  .window = 64, .threshold = 64,
                                  .extra = ", \"commit_sync\": \"none\""});
    batch_t *block = block_on(rig, 0, 0);
    batch_fill(block);
    CHECK_OK(dump_shard(rig, block, 0));
    *rename = fault(rig, 0, "rename data/* count=1 hang");
    fault(rig, 0, "fsync data/* always fail EIO");
    fault(rig, 1, "unlink data/* count=1 delay 3500");
    CHECK(dump_shard(rig, block, 1) != KVPATH_OK);
    wait_seen(rig, 1, "unlink", files_of(block), 1);
    return block;
}

/* What is told to be stored is there, whatever an earlier file of its name still does. */
CASE(a_later_dump_is_not_removed_for_an_earlier_one)
{
    rig_t rig;
    long long rename;
    batch_t *block = given_up(&rig, &rename);
    const char *file = block_path(rig.storage, id_of(block), 0);
    wait_abandoned(&rig, 1, 1);
    wait_late_results(&rig, 1); /* the removal is done */
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[0], KVPATH_BACKEND_SET_OUT));
    dump_batch(rig.store, block);
    load_right(&rig, block);
    tell(&rig, 0, "release %lld", rename);
    heal(&rig, 0);
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[0], KVPATH_BACKEND_SET_AUTO));
    wait_late_results(&rig, 2);
    wait_at_rest(&rig);
    CHECK(exists(file));
    load_right(&rig, block);
    rig_stop(&rig);
}

/* The rename is done before the removal: what it has named is no block, and wins over none. */
CASE(what_was_lost_does_not_win_over_a_later_dump)
{
    rig_t rig;
    long long rename;
    batch_t *block = given_up(&rig, &rename);
    const char *file = block_path(rig.storage, id_of(block), 0);
    tell(&rig, 0, "release %lld", rename);
    wait_late_results(&rig, 1);
    if (exists(file)) { /* what the sync could not write is not there */
        int fd = open(file, O_WRONLY);
        static const char zeros[4096];
        CHECK(pwrite(fd, zeros, sizeof zeros, 0) == (ssize_t)sizeof zeros && close(fd) == 0);
    }
    heal(&rig, 0);
    dump_batch(rig.store, block);
    for (int round = 0; round < 2; round++) {
        batch_wipe(block);
        kvpath_status_t status = load(rig.store, block->shards, block->count);
        if (status == KVPATH_OK)
            for (size_t at = 0; at < block->count; at++) CHECK_EQ(shard_wrong(block, at), 0);
        else
            CHECK_STATUS(status, KVPATH_NOT_FOUND);
        wait_at_rest(&rig);
    }
    dump_batch(rig.store, block);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* A block whose first shard hangs on 0 and was written through 1. */
static batch_t *half_behind_a_hung_write(rig_t *rig)
{
    rig_start(rig, 2, (options_t){.shape = pair, .timeout_ms = 6000, .window = 64,
                                  .threshold = 64});
    batch_t *block = block_on(rig, 0, 0);
    batch_fill(block);
    fault(rig, 0, "write data/* count=1 hang");
    CHECK_OK(dump_shard(rig, block, 0));
    return block;
}

/* A name is not given behind a write that hangs, if there is a choice; where there is none it is. */
CASE(a_hung_write_on_each_path_keeps_no_block_from_its_name)
{
    rig_t rig;
    batch_t *block = half_behind_a_hung_write(&rig);
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[0], KVPATH_BACKEND_SET_OUT));
    fault(&rig, 1, "write data/* count=1 hang");
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_dump(rig.store, block->shards + 1, 1, &task));
    wait_hung(&rig, 1, 1, "write");
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[0], KVPATH_BACKEND_SET_AUTO));
    CHECK_OK(finish(&rig, task));
    CHECK(exists(block_path(rig.storage, id_of(block), 0)));
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    wait_at_rest(&rig);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* The same where the other path fails: the one where the write hangs is asked last, not never. */
CASE(the_path_of_a_hung_write_is_asked_last)
{
    rig_t rig;
    batch_t *block = half_behind_a_hung_write(&rig);
    fault(&rig, 1, "rename data/* always fail EIO");
    CHECK_OK(dump_shard(&rig, block, 1));
    CHECK_EQ(seen(&rig, 0, "rename", "data/*"), 1);
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    wait_at_rest(&rig);
    load_right(&rig, block);
    rig_stop(&rig);
}
