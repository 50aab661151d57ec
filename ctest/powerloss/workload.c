/* powerloss.h: what is recorded. A child does it, so that its writer is dead when the storage is
 * opened again. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "powerloss.h"

const shape_t shape = {4096, 4096, 8192}; /* 2 shards */

enum { MOUNT_SECONDS = 240 };

static const char *config_of(const recording_t *of, const char *sync, unsigned timeout_ms)
{
    const char *roots = "";
    for (int at = 0; at < of->mounts; at++)
        roots = text("%s%s\"%s\"", roots, at > 0 ? ", " : "", of->fs[at].mount);
    return text("{\"storage_backends\": [%s], \"device_id\": 0, \"tensor_size\": %zu, "
                "\"shard_size\": %zu, \"block_size\": %zu, \"posix_io_engine\": \"%s\", "
                "\"io_direct\": %s, \"commit_sync\": \"%s\", \"data_dir_shard_bytes\": 0, "
                "\"timeout_ms\": %u, \"store_health\": {\"enabled\": false, "
                "\"health_window_size\": 64, \"failure_threshold\": 64, "
                "\"health_check_interval_s\": 3600}}",
                roots, shape.tensor, shape.shard, shape.block, engine(),
                of->direct ? "true" : "false", sync, timeout_ms);
}

static batch_t *filled(unsigned number)
{
    batch_t *block = batch(shape, number, 1, 0);
    batch_fill(block);
    return block;
}

static void stored(const recording_t *of, unsigned number)
{
    record_mark(of->record, "stored %u", number);
}

/* A whole block in one task. */
static void dump_whole(const recording_t *of, kvpath_store_t store, unsigned number)
{
    batch_t *block = filled(number);
    CHECK_OK(dump(store, block->shards, block->count));
    stored(of, number);
}

/* Shard by shard, both under way at once, in either order. */
static void dump_shards(const recording_t *of, kvpath_store_t store, unsigned number)
{
    batch_t *block = filled(number);
    kvpath_task_t tasks[2];
    for (unsigned at = 0; at < 2; at++)
        CHECK_OK(kvpath_dump(store, block->shards + (at + number) % 2, 1, &tasks[at]));
    for (unsigned at = 0; at < 2; at++) CHECK_OK(kvpath_wait(store, tasks[at], 0));
    stored(of, number);
}

static void all_is_well(const recording_t *of)
{
    kvpath_store_t store = open_store(config_of(of, of->sync, 0)), other;
    dump_whole(of, store, 0);
    dump_shards(of, store, 1);
    dump_shards(of, store, 2);
    record_mark(of->record, "removing %u", 0u);
    const kvpath_block_id_t id = block_id(0);
    CHECK_OK(kvpath_remove(store, &id, 1));
    dump_whole(of, store, 0);
    dump_whole(of, store, 2); /* it is there already */
    if (strcmp(of->sync, "full") == 0) {
        /* Another writer's block, synced by nobody until this store says that it has it. */
        record_mark(of->record, "foreign %u", 3u);
        other = open_store(config_of(of, "none", 0));
        batch_t *block = filled(3);
        CHECK_OK(dump(other, block->shards, block->count));
        CHECK_OK(kvpath_close(other));
        dump_whole(of, store, 3);
    }
    dump_whole(of, store, 4);
    CHECK_OK(kvpath_close(store));
}

static long long fault(const recording_t *of, int which, const char *rule)
{
    struct faultfs fs = of->fs[which];
    const long long added = faultfs_number(&fs, "rule add %s", rule);
    if (added < 0) FAIL("%s: %s", rule, fs.error);
    return added;
}

/* How often rules that were added have hit, on all paths. */
static long long fired(const recording_t *of, const long long *rules)
{
    long long all = 0;
    for (int which = 0; which < of->mounts; which++) {
        struct faultfs fs = of->fs[which];
        const long long count = faultfs_number(&fs, "rule fired %lld", rules[which]);
        if (count < 0) FAIL("%s", fs.error);
        all += count;
    }
    return all;
}

/* Dumps until it is done: a failed block whole, with all its shards. */
static void dump_at_last(const recording_t *of, kvpath_store_t store, unsigned number, bool whole)
{
    batch_t *block = filled(number);
    const kvpath_block_id_t *id = &block->shards[0].block;
    for (int try = 0; try < 20; try++) {
        kvpath_status_t status = KVPATH_OK;
        if (whole) {
            status = dump(store, block->shards, block->count);
        } else {
            for (unsigned at = 0; at < 2 && status == KVPATH_OK; at++)
                status = dump(store, block->shards + at, 1);
        }
        if (status == KVPATH_OK) {
            stored(of, number);
            return;
        }
        /* KVPATH_NOT_FOUND: what was begun is gone already. */
        status = kvpath_commit(store, id, 0);
        CHECK(status == KVPATH_OK || status == KVPATH_NOT_FOUND || status == KVPATH_TIMEOUT);
    }
    FAIL("block %u cannot be stored", number);
}

static void paths_fail(const recording_t *of)
{
    enum { TIMEOUT_MS = 1600 }; /* 800 an attempt */
    static const char *const rules[] = {
        "fsyncdir data count=1 fail EIO",    "fsync *.tmp count=1 fail EIO",
        "rename * count=1 delay 1000",       "write *.tmp count=1 delay 1000",
        "fsync *.tmp count=1 delay 1000",    "rename * count=1 fail EIO",
        "fsyncdir data count=1 delay 1000",  "write *.tmp count=1 fail EIO",
    };
    kvpath_store_t store = open_store(config_of(of, of->sync, TIMEOUT_MS));
    unsigned number = 0;
    for (size_t at = 0; at < sizeof rules / sizeof rules[0]; at++)
        for (int whole = 0; whole < 2; whole++) {
            /* Only `full` syncs directories. */
            const bool hits = strncmp(rules[at], "fsyncdir", 8) != 0 ||
                              strcmp(of->sync, "full") == 0;
            const long long added[2] = {fault(of, 0, rules[at]), fault(of, 1, rules[at])};
            dump_at_last(of, store, number++, whole == 1);
            if ((fired(of, added) > 0) != hits)
                FAIL("\"%s\" %s", rules[at], hits ? "has hit nothing" : "has hit something");
            for (int which = 0; which < of->mounts; which++) {
                struct faultfs fs = of->fs[which];
                CHECK_EQ(faultfs_command(&fs, NULL, 0, "rules clear"), 0);
            }
        }
    CHECK_OK(kvpath_close(store));
}

void record(recording_t *of)
{
    int status = 0;
    if (faultfs_cannot() != NULL) SKIP("%s", faultfs_cannot());
    const char *storage = temp_dir();
    of->record = text("%s/record", temp_dir());
    for (int at = 0; at < of->mounts; at++) {
        if (faultfs_start(&of->fs[at], storage, MOUNT_SECONDS) != 0)
            FAIL("faultfs: %s", of->fs[at].error);
        CHECK_EQ(faultfs_command(&of->fs[at], NULL, 0, "record %s", of->record), 0);
    }
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (of->failing)
            paths_fail(of);
        else
            all_is_well(of);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("the writer did");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("the writer ended with %#x", status);
    for (int at = 0; at < of->mounts; at++) CHECK_EQ(faultfs_stop(&of->fs[at]), 0);
}
