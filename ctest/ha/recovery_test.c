/* Recovery (R50-R53): who is probed, how often, in which order, by which thread, and what a probe
 * that hangs does to the others: nothing. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "ha.h"

enum { W = 4 };

#define PROBE "data/probe-*"

static options_t quick(void)
{
    return (options_t){.shape = whole, .window = W, .interval_s = 1.6, .probe_timeout_s = 1.5};
}

static size_t io_threads(void) { return threads_named("ucm_health_io"); }

static bool is_one_io_thread(void *unused)
{
    (void)unused;
    return io_threads() == 1;
}

static bool has_no_probe_thread(void *rig) { return health_of(rig, 0).probe_threads == 0; }

/* R20, R51: while others are probed nothing at all is done on the healthy ones. */
CASE(healthy_backends_get_no_probes)
{
    rig_t rig;
    rig_start(&rig, 3, quick());
    exclude(&rig, 1);
    forget_counts(&rig);
    wait_state(&rig, 1, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(seen(&rig, 0, "total", "*"), 0);
    CHECK_EQ(seen(&rig, 2, "total", "*"), 0);
    CHECK_EQ(seen(&rig, 1, "create", PROBE), W);
    rig_stop(&rig);
}

/* R21, R53: W clean probes bring a path back, and then they end: when another path has had its W,
 * this one has still the same. Each has a name of its own (R52). */
CASE(exactly_a_window_of_probes)
{
    rig_t rig;
    rig_start(&rig, 3, quick());
    fault(&rig, 1, "any data/* always fail EIO");
    exclude(&rig, 1); /* and no probe passes */
    fault(&rig, 1, "any data/* always fail EIO");
    wait_seen(&rig, 1, "lookup", PROBE, 2);
    heal(&rig, 1);
    uint64_t failed = health_of(&rig, 1).probe_failures;
    wait_state(&rig, 1, KVPATH_BACKEND_AVAILABLE);
    kvpath_backend_health_t back = health_of(&rig, 1);
    CHECK(back.probe_failures <= failed + 1); /* one may have been under way */
    CHECK_EQ(back.probes - back.probe_failures, W);
    CHECK_EQ(seen(&rig, 1, "unlink", PROBE), W);
    check_health(&rig, 1, KVPATH_BACKEND_AVAILABLE, W, 0);
    exclude(&rig, 2);
    wait_state(&rig, 2, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(health_of(&rig, 1).probes, back.probes);
    CHECK_EQ(count_files(rig.storage, "probe"), 0);
    rig_stop(&rig);
}

/* The recovered path is used again (R15). */
CASE(a_recovered_primary_is_used_again)
{
    rig_t rig;
    rig_start(&rig, 2, quick());
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    exclude(&rig, 0);
    forget_counts(&rig);
    load_right(&rig, block);
    CHECK_EQ(seen(&rig, 0, "total", file_of(block)), 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    forget_counts(&rig);
    load_right(&rig, block);
    CHECK_EQ(seen(&rig, 0, "open", file_of(block)), 1);
    CHECK_EQ(seen(&rig, 1, "total", file_of(block)), 0);
    rig_stop(&rig);
}

/* R51, R52: one monitor and one worker, whatever is excluded; the same worker for all backends and
 * rounds. */
CASE(one_monitor_and_one_worker)
{
    rig_t rig;
    options_t options = quick();
    options.probe_timeout_s = 2.9; /* the test holds the probes up to look at them */
    options.interval_s = 3;
    rig_start(&rig, 3, options);
    CHECK_EQ(threads_named("ucm_health_pmon"), 1);
    CHECK_EQ(io_threads(), 0); /* made when there is something to probe */
    for (int at = 0; at < 3; at++) fault(&rig, at, "create " PROBE " always hang");
    for (int at = 0; at < 3; at++) {
        batch_t *block = block_on(&rig, at, 0);
        fault(&rig, at, "lookup %s always fail EIO", file_of(block));
        fault(&rig, at, "lookup %s always fail EIO", file_of(block_on(&rig, at, 1)));
        (void)load(rig.store, block->shards, 1);
        (void)load(rig.store, block_on(&rig, at, 1)->shards, 1);
    }
    int worker = 0;
    for (int round = 0; round < 2; round++) {
        for (int at = 0; at < 3; at++) { /* in order */
            wait_hung(&rig, at, 1, "create");
            for (int other = 0; other < 3; other++)
                CHECK_EQ(hung(&rig, other), other == at ? 1 : 0);
            if (worker == 0) worker = thread_named("ucm_health_io");
            CHECK_EQ(thread_named("ucm_health_io"), worker);
            CHECK_EQ(threads_named("ucm_health_pmon"), 1);
            release(&rig, at);
        }
    }
    for (int at = 0; at < 3; at++) heal(&rig, at);
    rig_stop(&rig);
}

/* R52: a probe that passes its limit is a failure and keeps its thread; the next one, of the next
 * backend in order, gets a new one. When it returns its thread is joined and its result is nothing.
 */
CASE(a_timed_out_probe_is_replaced)
{
    rig_t rig;
    options_t options = quick();
    options.interval_s = 2;
    options.probe_timeout_s = 1;
    rig_start(&rig, 3, options);
    /* Writes: behind a hung create the kernel would hold the next probe's create as well. */
    fault(&rig, 0, "write " PROBE " count=1 hang");
    fault(&rig, 1, "write " PROBE " count=1 hang");
    exclude(&rig, 0);
    exclude(&rig, 1);
    wait_hung(&rig, 0, 1, "write");
    int first = thread_named("ucm_health_io");
    CHECK_EQ(seen(&rig, 1, "create", PROBE), 0); /* it is not its turn yet */
    wait_hung(&rig, 1, 1, "write");
    kvpath_backend_health_t late = health_of(&rig, 0);
    CHECK_EQ(io_threads(), 2);
    CHECK_EQ(late.probes, 1);
    CHECK_EQ(late.probe_failures, 1);
    CHECK_EQ(late.probe_threads, 1);
    CHECK_HAS(late.last_error, "timed out");
    release(&rig, 1); /* within its limit: its thread goes on working */
    wait_state(&rig, 1, KVPATH_BACKEND_AVAILABLE);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE); /* while its old probe still hangs */
    CHECK_EQ(hung(&rig, 0), 1);
    CHECK_EQ(health_of(&rig, 0).probe_threads, 1);
    CHECK_EQ(io_threads(), 2);
    release(&rig, 0);
    wait_for("the end of the late probe", has_no_probe_thread, &rig);
    wait_for("the end of its thread", is_one_io_thread, NULL);
    int second = thread_named("ucm_health_io");
    CHECK(second != first);
    rig_stop(&rig);
}

static bool has_probed(void *rig) { return health_of(rig, 0).probes > 0; }

/* R52: the late result of a probe is no outcome, neither a success nor a failure. */
static void late_probe(const char *errno_name)
{
    rig_t rig;
    options_t options = quick();
    options.interval_s = 6;
    options.probe_timeout_s = 0.3;
    rig_start(&rig, 2, options);
    fault(&rig, 0, "create " PROBE " always hang");
    exclude(&rig, 0);
    wait_hung(&rig, 0, 1, "create");
    wait_for("the time-out", has_probed, &rig);
    heal(&rig, 0);
    kvpath_backend_health_t before = health_of(&rig, 0);
    CHECK_EQ(before.probe_failures, 1);
    if (errno_name != NULL)
        release_failing(&rig, 0, errno_name);
    else
        release(&rig, 0);
    wait_for("the end of the late probe", has_no_probe_thread, &rig);
    kvpath_backend_health_t after = health_of(&rig, 0);
    CHECK_EQ(after.probes, before.probes);
    CHECK_EQ(after.samples, before.samples);
    CHECK_EQ(after.failures, before.failures);
    CHECK_EQ(after.state, KVPATH_BACKEND_EXCLUDED);
    rig_stop(&rig);
}

CASE(a_late_probe_changes_nothing)
{
    late_probe(NULL);
    late_probe("EIO");
}

/* R52: a path that hangs for good delays the others by its limit, no more; its probes go on, each
 * on a thread of its own, and all of them are gone when it answers again. */
CASE(a_stalled_path_does_not_keep_others_out)
{
    rig_t rig;
    rig_start(&rig, 3, quick());
    size_t before = thread_count();
    fault(&rig, 0, "any " PROBE " always hang");
    exclude(&rig, 0);
    exclude(&rig, 1);
    exclude(&rig, 2);
    fault(&rig, 0, "any .kvpath always hang");
    wait_state(&rig, 1, KVPATH_BACKEND_AVAILABLE);
    wait_state(&rig, 2, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    CHECK(health_of(&rig, 0).probe_threads >= W - 1);
    CHECK(hung(&rig, 0) >= W - 1);
    heal(&rig, 0);
    release(&rig, 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    wait_for("the end of the late probes", is_one_io_thread, NULL);
    wait_threads(before + 1); /* the worker that is there from now on */
    CHECK_EQ(count_files(rig.storage, "probe"), 0);
    rig_stop(&rig);
}

/* R50: in recovery a full disk with the marker readable is a success: it serves loads. With scope
 * any it is a failure (R100). */
CASE(a_full_disk_recovers)
{
    rig_t rig;
    rig_start(&rig, 2, quick());
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    exclude(&rig, 0);
    fault(&rig, 0, "write,create data/* always fail ENOSPC");
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(health_of(&rig, 0).probe_failures, 0);
    forget_counts(&rig);
    load_right(&rig, block);
    CHECK_EQ(seen(&rig, 0, "open", file_of(block)), 1);
    rig_stop(&rig);
}

static bool has_failed_probes(void *rig) { return health_of(rig, 0).probe_failures >= W + 1; }

CASE(a_full_disk_stays_out_with_scope_any)
{
    rig_t rig;
    options_t options = quick();
    options.extra = ", \"failure_scope\": \"any\"";
    rig_start(&rig, 2, options);
    fault(&rig, 0, "write,create data/* always fail ENOSPC");
    batch_t *block = block_on(&rig, 0, 0);
    CHECK_OK(dump(rig.store, block->shards, 1));
    CHECK_OK(dump(rig.store, block_on(&rig, 0, 1)->shards, 1));
    wait_state(&rig, 0, KVPATH_BACKEND_EXCLUDED);
    wait_for("failing probes", has_failed_probes, &rig);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    heal(&rig, 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    rig_stop(&rig);
}

/* R7, R53: a `dir` that was lost is made again by the probe, which is no failure. */
CASE(a_lost_directory_is_made_again_by_the_probe)
{
    rig_t rig;
    rig_start(&rig, 2, quick());
    exclude(&rig, 0);
    CHECK(remove(text("%s/data", rig.storage)) == 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(health_of(&rig, 0).probe_failures, 0);
    CHECK(exists(text("%s/data", rig.storage)));
    rig_stop(&rig);
}
