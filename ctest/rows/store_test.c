/* The failure table (ctest/matrix/TABLE.md), one case a row by the row's name: tasks, paths, and
 * the store itself. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ha.h"

/* A load that takes the only slot of path 0 and hangs. */
static kvpath_task_t hang_one(rig_t *rig, options_t options)
{
    options.shape = whole;
    options.extra = text("%s, \"posix_data_trans_concurrency\": 1",
                         options.extra != NULL ? options.extra : "");
    rig_start(rig, 1, options);
    batch_t *block = block_on(rig, 0, 0), *second = block_on(rig, 0, 1);
    dump_batch(rig->store, block);
    dump_batch(rig->store, second);
    fault(rig, 0, "read data/* always hang");
    kvpath_task_t task = begin_load(rig, block);
    wait_hung(rig, 0, 1, "read");
    return task;
}

static void let_go(rig_t *rig) { heal(rig, 0), release(rig, 0); }

CASE(queue_full)
{
    rig_t rig;
    kvpath_task_t hangs = hang_one(&rig, (options_t){.extra = ", \"max_queued_shards\": 2"});
    batch_t *second = block_on(&rig, 0, 1), *third = block_on(&rig, 0, 2);
    kvpath_task_t queued = begin_load(&rig, second), task = 77, more = 0;
    kvpath_status_t status = kvpath_load(rig.store, third->shards, 1, &more);
    if (status == KVPATH_OK) status = kvpath_load(rig.store, third->shards, 1, &task);
    CHECK_STATUS(status, KVPATH_RETRY);
    CHECK_EQ(task, 77);
    CHECK_STATUS(kvpath_dump(rig.store, third->shards, 1, &task), KVPATH_RETRY);
    CHECK_EQ(task, 77);
    let_go(&rig);
    CHECK_OK(finish(&rig, hangs));
    CHECK_OK(finish(&rig, queued));
    if (more != 0) CHECK_STATUS(finish(&rig, more), KVPATH_NOT_FOUND);
    dump_batch(rig.store, third);
    rig_stop(&rig);
}

CASE(wait_limit)
{
    rig_t rig;
    kvpath_task_t task = hang_one(&rig, (options_t){0});
    CHECK_STATUS(kvpath_wait(rig.store, task, 50), KVPATH_RETRY);
    let_go(&rig);
    CHECK_OK(finish(&rig, task));
    rig_stop(&rig);
}

CASE(wait_consumed)
{
    rig_t rig;
    kvpath_task_t task = hang_one(&rig, (options_t){0});
    let_go(&rig);
    CHECK_OK(finish(&rig, task));
    CHECK_STATUS(finish(&rig, task), KVPATH_NOT_FOUND);
    rig_stop(&rig);
}

CASE(cancel_queued)
{
    rig_t rig;
    kvpath_task_t hangs = hang_one(&rig, (options_t){0});
    kvpath_task_t queued = begin_load(&rig, block_on(&rig, 0, 1));
    CHECK_OK(kvpath_cancel(rig.store, queued));
    CHECK_STATUS(finish(&rig, queued), KVPATH_CANCELLED);
    CHECK_OK(kvpath_cancel(rig.store, hangs));
    let_go(&rig);
    CHECK_OK(finish(&rig, hangs)); /* the running one went on */
    rig_stop(&rig);
}

/* ---- paths ---- */

/* The second of two different blocks that fail excludes; what waits for the path moves on. */
CASE(path_excluded)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .extra =
                                   ", \"posix_data_trans_concurrency\": 1"});
    batch_t *blocks[4];
    for (unsigned nth = 0; nth < 4; nth++)
        dump_batch(rig.store, blocks[nth] = block_on(&rig, 0, nth));
    forget_counts(&rig);
    fault(&rig, 0, "open data/* always hang");
    kvpath_task_t tasks[4];
    for (int at = 0; at < 4; at++) tasks[at] = begin_load(&rig, blocks[at]);
    for (int failures = 0; failures < 2; failures++) {
        wait_hung(&rig, 0, 1, "open");
        release_failing(&rig, 0, "EIO");
    }
    for (int at = 0; at < 4; at++) CHECK_OK(finish(&rig, tasks[at]));
    for (int at = 0; at < 4; at++) batch_check(blocks[at]);
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, ANY, 2);
    long long asked = seen(&rig, 0, "open", "data/*");
    CHECK(asked <= 3); /* two, and what the engine had taken already */
    let_go(&rig);
    load_right(&rig, blocks[0]);
    CHECK_EQ(seen(&rig, 0, "open", "data/*"), asked);
    rig_stop(&rig);
}

CASE(path_recovers)
{
    rig_t rig;
    enum { W = 3 };
    rig_start(&rig, 2, (options_t){.shape = whole, .window = W, .interval_s = 0.3,
                                   .probe_timeout_s = 0.25});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    exclude(&rig, 0);
    uint64_t before = health_of(&rig, 0).probes;
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    CHECK(health_of(&rig, 0).probes >= before + W);
    forget_counts(&rig);
    load_right(&rig, block);
    CHECK_EQ(seen(&rig, 0, "open", file_of(block)), 1);
    rig_stop(&rig);
}

/* ---- the store ---- */

CASE(close_busy)
{
    rig_t rig;
    hang_one(&rig, (options_t){0});
    batch_t *second = block_on(&rig, 0, 1);
    begin_load(&rig, second);
    aside_t closing = aside(close_aside, &rig);
    wait_for("the close", is_closing, &rig);
    let_go(&rig);
    join(closing);
    CHECK_EQ(seen(&rig, 0, "read", file_of(second)), 0); /* the queued one never ran */
    CHECK_EQ(faultfs_stop(&rig.fs[0]), 0);
}

CASE(close_hangs)
{
    rig_t rig;
    rig_mount(&rig, 1);
    CHECK(faultfs_stop(&rig.fs[0]) == 0);
    size_t threads = thread_count();
    hang_one(&rig, (options_t){.extra = ", \"close_timeout_ms\": 300"});
    batch_t *block = block_on(&rig, 0, 0);
    CHECK_STATUS(kvpath_close(rig.store), KVPATH_TIMEOUT);
    memset(block->memory, 0xee, block->memory_bytes);
    let_go(&rig);
    wait_threads(threads);
    CHECK_EQ(faultfs_stop(&rig.fs[0]), 0);
    /* Without a limit it waits. */
    hang_one(&rig, (options_t){0});
    aside_t closing = aside(close_aside, &rig);
    wait_for("the close", is_closing, &rig);
    CHECK_EQ(hung(&rig, 0), 1);
    let_go(&rig);
    join(closing);
    CHECK_EQ(faultfs_stop(&rig.fs[0]), 0);
}

static void check_every_call(kvpath_store_t store, kvpath_status_t wanted)
{
    batch_t *block = batch(whole, 1, 1, 0);
    kvpath_task_t task = 0;
    uint8_t found = 0;
    CHECK_STATUS(kvpath_load(store, block->shards, 1, &task), wanted);
    CHECK_STATUS(kvpath_dump(store, block->shards, 1, &task), wanted);
    CHECK_STATUS(kvpath_wait(store, 1, 0), wanted);
    CHECK_STATUS(kvpath_lookup(store, id_of(block), 1, &found), wanted);
    CHECK_STATUS(kvpath_remove(store, id_of(block), 1), wanted);
    CHECK_STATUS(kvpath_commit(store, id_of(block), true), wanted);
    CHECK_STATUS(kvpath_check_health(store), wanted);
    CHECK_STATUS(kvpath_close(store), wanted);
}

CASE(closed_store)
{
    rig_t rig;
    rig_start(&rig, 1, (options_t){.shape = whole});
    CHECK_OK(kvpath_close(rig.store));
    check_every_call(rig.store, KVPATH_CLOSED);
    CHECK_EQ(faultfs_stop(&rig.fs[0]), 0);
}

CASE(never_a_store)
{
    check_every_call(0, KVPATH_INVALID_PARAM);
    check_every_call(0x7fffffffffffffff, KVPATH_INVALID_PARAM);
}

CASE(forked_child)
{
    rig_t rig;
    rig_start(&rig, 1, (options_t){.shape = whole});
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_every_call(rig.store, KVPATH_FORKED);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    dump_batch(rig.store, block_on(&rig, 0, 0)); /* the parent goes on */
    rig_stop(&rig);
}

CASE(lookup_only_role)
{
    rig_t rig;
    rig_start(&rig, 1, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    kvpath_store_t scheduler = 0;
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_open(text("{\"storage_backends\": [\"%s\"], \"device_id\": -1, "
                              "\"data_dir_shard_bytes\": 0, \"posix_io_engine\": \"%s\"}",
                              rig.path[0], ha_engine()),
                         &scheduler));
    CHECK(present(scheduler, id_of(block)));
    CHECK_STATUS(kvpath_load(scheduler, block->shards, 1, &task), KVPATH_UNSUPPORTED);
    CHECK_STATUS(kvpath_dump(scheduler, block->shards, 1, &task), KVPATH_UNSUPPORTED);
    CHECK_STATUS(kvpath_commit(scheduler, id_of(block), true), KVPATH_UNSUPPORTED);
    CHECK_OK(kvpath_close(scheduler));
    rig_stop(&rig);
}
