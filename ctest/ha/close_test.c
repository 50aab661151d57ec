/* Closing while paths hang (R54, R74): with a limit the call returns and leaves harmless threads;
 * without one it waits for them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "ha.h"

typedef struct {
    rig_t *rig;
    volatile bool done;
} closing_t;

static void *close_store(void *argument)
{
    closing_t *closing = argument;
    CHECK_OK(kvpath_close(closing->rig->store));
    __atomic_store_n(&closing->done, true, __ATOMIC_RELEASE);
    return NULL;
}

static bool is_giving_back(void *rig)
{
    const char *entries = ".ucm_gc.lock/*";
    return seen(rig, 0, "unlink", entries) + seen(rig, 1, "unlink", entries) > 0;
}

static void end_mounts(rig_t *rig)
{
    for (int at = 0; at < rig->n; at++) CHECK_EQ(faultfs_stop(&rig->fs[at]), 0);
    CHECK_EQ(count_files(rig->storage, ".tmp"), 0);
}

static void close_in_time(const char *rule, bool dumps)
{
    rig_t rig;
    rig_mount(&rig, 2);
    log_collect();
    size_t threads = thread_count(), descriptors = descriptor_count();
    rig_open(&rig, (options_t){.shape = whole, .extra = ", \"close_timeout_ms\": 400"});
    batch_t *block = block_on(&rig, 0, 0);
    if (!dumps) dump_batch(rig.store, block);
    fault(&rig, 0, "%s", rule);
    if (dumps)
        begin_dump(&rig, block);
    else
        begin_load(&rig, block);
    wait_hung(&rig, 0, 1, "any");
    uint64_t start = now_ms();
    CHECK_STATUS(kvpath_close(rig.store), KVPATH_TIMEOUT);
    uint64_t took = now_ms() - start;
    CHECK(took >= 400 && took < 400 + SLACK_MS);
    memset(block->memory, 0xee, block->memory_bytes); /* the memory is ours again (R30) */
    heal(&rig, 0);
    release(&rig, 0);
    wait_threads(threads);
    CHECK_EQ(descriptor_count(), descriptors);
    for (size_t at = 0; at < block->memory_bytes; at++) CHECK_EQ(block->memory[at], 0xee);
    end_mounts(&rig);
}

CASE(a_limit_ends_the_wait_for_a_hung_read) { close_in_time("read data/* always hang", false); }
CASE(a_limit_ends_the_wait_for_a_hung_open) { close_in_time("open data/* always hang", false); }
CASE(a_limit_ends_the_wait_for_a_hung_rename) { close_in_time("rename data/* always hang", true); }

/* Without a limit: until the last thread is back, and then nothing is left. */
CASE(without_a_limit_it_waits)
{
    rig_t rig;
    rig_mount(&rig, 2);
    log_collect();
    size_t threads = thread_count(), descriptors = descriptor_count();
    rig_open(&rig, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "read data/* always hang");
    kvpath_task_t task = begin_load(&rig, block);
    wait_hung(&rig, 0, 1, "read");
    closing_t closing = {.rig = &rig};
    aside_t work = aside(close_store, &closing);
    wait_for("the close", is_closing, &rig);
    CHECK_STATUS(kvpath_wait(rig.store, task, 500), KVPATH_CLOSED);
    CHECK(!__atomic_load_n(&closing.done, __ATOMIC_ACQUIRE));
    CHECK_EQ(hung(&rig, 0), 1);
    release(&rig, 0);
    join(work);
    CHECK(closing.done);
    CHECK_EQ(thread_count(), threads);
    CHECK_EQ(descriptor_count(), descriptors);
    end_mounts(&rig);
}

/* A hung probe is waited for as well. */
CASE(a_hung_probe_is_waited_for)
{
    rig_t rig;
    rig_mount(&rig, 2);
    log_collect();
    size_t threads = thread_count(), descriptors = descriptor_count();
    rig_open(&rig, (options_t){.interval_s = 0.3, .probe_timeout_s = 0.1});
    fault(&rig, 1, "create data/probe-* count=1 hang");
    exclude(&rig, 1);
    wait_hung(&rig, 1, 1, "create");
    closing_t closing = {.rig = &rig};
    aside_t work = aside(close_store, &closing);
    wait_for("the close", is_closing, &rig);
    CHECK_EQ(hung(&rig, 1), 1);
    release(&rig, 1);
    join(work);
    CHECK_EQ(thread_count(), threads);
    CHECK_EQ(descriptor_count(), descriptors);
    end_mounts(&rig);
}

/* Queued work ends with CLOSED, what runs may finish, and the commit with it. */
CASE(running_work_finishes_and_queued_work_ends)
{
    rig_t rig;
    rig_mount(&rig, 1);
    rig_open(&rig, (options_t){.shape = whole,
                               .extra = ", \"posix_data_trans_concurrency\": 1"});
    batch_t *running = block_on(&rig, 0, 0), *queued = block_on(&rig, 0, 1);
    fault(&rig, 0, "write data/* count=1 hang");
    begin_dump(&rig, running);
    wait_hung(&rig, 0, 1, "write");
    begin_dump(&rig, queued);
    closing_t closing = {.rig = &rig};
    aside_t work = aside(close_store, &closing);
    wait_for("the close", is_closing, &rig);
    release(&rig, 0);
    join(work);
    check_file(block_path(rig.storage, id_of(running), 0), id_of(running), whole.block);
    CHECK(!exists(block_path(rig.storage, id_of(queued), 0)));
    end_mounts(&rig);
}

/* R54: what this store has begun and not finished goes with it, through an excluded path too, as
 * long as that path works. */
CASE(an_excluded_path_that_works_keeps_no_temporary)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.threshold = 1});
    batch_t *block = block_on(&rig, 0, 0);
    batch_fill(block);
    CHECK_OK(dump(rig.store, block->shards, 1));
    CHECK_EQ(count_files(rig.storage, ".tmp"), 1);
    for (int at = 0; at < 2; at++) exclude(&rig, at);
    CHECK_STATUS(kvpath_check_health(rig.store), KVPATH_STORE_UNHEALTHY);
    rig_stop(&rig); /* finds no temporary */
}

/* Requests that hang, but for closed files, which the kernel gives back when it likes. */
static int hung_calls(rig_t *rig, int which)
{
    char reply[FAULTFS_TEXT_BYTES];
    int released = 0, total = hung(rig, which);
    CHECK(faultfs_command(&rig->fs[which], reply, sizeof reply, "hung") == 0);
    const char *at = strstr(reply, " release=");
    if (at != NULL) CHECK(sscanf(at, " release=%d", &released) == 1);
    return total - released;
}

/* But one that hangs is not waited for. */
CASE(an_excluded_path_that_hangs_keeps_its_temporary)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.threshold = 1, .timeout_ms = 1000});
    batch_t *block = block_on(&rig, 0, 0);
    batch_fill(block);
    CHECK_OK(dump(rig.store, block->shards, 1));
    for (int at = 0; at < 2; at++) fault(&rig, at, "write,open data/* always hang");
    kvpath_status_t status = dump(rig.store, &block->shards[1], 1);
    CHECK_STATUS(status, KVPATH_TIMEOUT);
    for (int at = 0; at < 2; at++) wait_state(&rig, at, KVPATH_BACKEND_EXCLUDED);
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    wait_at_rest(&rig);
    for (int at = 0; at < 2; at++) tell(&rig, at, "freeze");
    CHECK_OK(kvpath_close(rig.store)); /* no request of it hangs: it returns */
    for (int at = 0; at < 2; at++) CHECK_EQ(hung_calls(&rig, at), 0);
    for (int at = 0; at < 2; at++) CHECK_EQ(faultfs_stop(&rig.fs[at]), 0);
}

/* R54: an unfinished file goes through whichever path can remove it. */
CASE(temporaries_go_through_another_path)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = pair, .window = 64, .threshold = 64});
    batch_t *block = block_on(&rig, 0, 0);
    batch_fill(block);
    CHECK_OK(dump_shard(&rig, block, 0));
    fault(&rig, 0, "unlink data/* always fail EIO");
    rig_stop(&rig); /* which finds none */
}

/* The lease of the sweep after open cannot be given back at once: what tasks do ends all the same
 * as soon as the store is closed, and is not tried again through another path. */
CASE(nothing_is_tried_again_while_the_lease_is_given_back)
{
    rig_t rig;
    rig_mount(&rig, 2);
    for (int at = 0; at < 2; at++) fault(&rig, at, "unlink .ucm_gc.lock/* always hang");
    rig_open(&rig, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    wait_for("the end of the sweep", is_giving_back, &rig);
    forget_counts(&rig);
    fault(&rig, 0, "read data/* always hang");
    begin_load(&rig, block);
    wait_hung(&rig, 0, 1, "read");
    closing_t closing = {.rig = &rig};
    aside_t work = aside(close_store, &closing);
    wait_for("the close", is_closing, &rig);
    release_failing(&rig, 0, "EIO");
    for (int at = 0; at < 2; at++) heal(&rig, at);
    while (!__atomic_load_n(&closing.done, __ATOMIC_ACQUIRE))
        for (int at = 0; at < 2; at++) release(&rig, at);
    join(work);
    CHECK_EQ(seen(&rig, 1, "total", files_of(block)), 0);
    end_mounts(&rig);
}
