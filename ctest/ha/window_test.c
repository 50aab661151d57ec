/* The window of a backend (R20-R22, R25, R29, R100): what excludes a path, what brings it back, and
 * what does neither. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ha.h"

/* Loads that fail on backend `which` and are answered by the other. */
static void fail_loads(rig_t *rig, int which, unsigned from, unsigned count)
{
    fault(rig, which, "open,lookup data/* always fail EIO");
    for (unsigned nth = from; nth < from + count; nth++) {
        batch_t *block = block_on(rig, which, nth);
        CHECK_STATUS(load(rig->store, block->shards, block->count), KVPATH_NOT_FOUND);
    }
    heal(rig, which);
}

static void succeed_loads(rig_t *rig, batch_t *block, unsigned count)
{
    while (count-- > 0) load_right(rig, block);
}

/* R21, R25: the threshold counts, however few samples there are; the change has its cause. */
CASE(trips_before_it_is_full)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 32, .threshold = 2});
    int before = swept(&rig, 0);
    fail_loads(&rig, 0, 0, 1);
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, before + 1, 1);
    fail_loads(&rig, 0, 1, 1);
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, before + 2, 2);
    CHECK(before + 2 < 32);
    check_health(&rig, 1, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    wait_log(text("%s/: available -> excluded: 2 failures in %d samples; cause: load: ",
                  rig.path[0], before + 2));
    const char *json = report(kvpath_health_json, rig.store);
    CHECK_HAS(json, "\"to\":\"excluded\"");
    CHECK_HAS(json, "\"errno\":5");
    CHECK_HAS(json, "\"operation\":\"load\"");
    CHECK_EQ(health_of(&rig, 0).transitions, 1);
    rig_stop(&rig);
}

/* R20: by outcomes: as many successes as the window holds push a failure out. */
CASE(successes_slide_failures_out)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 4, .threshold = 2});
    batch_t *good = block_on(&rig, 0, 0);
    dump_batch(rig.store, good); /* two outcomes: dump and commit */
    succeed_loads(&rig, good, 4);
    for (unsigned round = 0; round < 3; round++) {
        fail_loads(&rig, 0, 100 + round, 1);
        check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, 4, 1);
        succeed_loads(&rig, good, 3);
        check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, 4, 1);
        succeed_loads(&rig, good, 1);
        check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, 4, 0);
    }
    fail_loads(&rig, 0, 200, 1);
    succeed_loads(&rig, good, 2);
    fail_loads(&rig, 0, 201, 1);
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, 4, 2);
    rig_stop(&rig);
}

/* R21: a change does not clear the window; a full one without failures brings the path back, and
 * stays as it is then, too. */
CASE(it_is_not_cleared_by_a_change)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 6, .interval_s = 0.8,
                                   .probe_timeout_s = 0.75});
    batch_t *good = block_on(&rig, 0, 0);
    dump_batch(rig.store, good);
    succeed_loads(&rig, good, 6);
    fault(&rig, 0, "any data/probe-* always hang"); /* the first probe waits for the test */
    fault(&rig, 0, "open,lookup data/* always fail EIO");
    for (unsigned nth = 100; nth < 102; nth++) {
        batch_t *block = block_on(&rig, 0, nth);
        CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_NOT_FOUND);
    }
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, 6, ANY);
    CHECK(health_of(&rig, 0).failures >= 2);
    heal(&rig, 0);
    release(&rig, 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, 6, 0);
    wait_log("excluded -> available: 0 failures in 6 samples; cause: the window is full and clean");
    fail_loads(&rig, 0, 300, 1);
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, 6, 1);
    rig_stop(&rig);
}

/* One load of backend 0 hangs until its limit has passed, and excludes the backend. */
static batch_t *excluded_by_a_hang(rig_t *rig)
{
    batch_t *block = block_on(rig, 0, 0);
    dump_batch(rig->store, block);
    fault(rig, 0, "read %s always hang", file_of(block));
    load_right(rig, block);
    wait_state(rig, 0, KVPATH_BACKEND_EXCLUDED);
    heal(rig, 0);
    return block;
}

/* R22, R29: a late success changes nothing. A lookup: a load that was given up has nothing to succeed
 * with. */
CASE(a_late_success_restores_nothing)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 1, .threshold = 1,
                                   .extra = ", \"lookup_timeout_ms\": 2000"});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "lookup,getattr %s always hang", file_of(block));
    CHECK(present(rig.store, id_of(block)));
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, 1, 1);
    heal(&rig, 0);
    release(&rig, 0);
    wait_late_results(&rig, 1);
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, 1, 1);
    rig_stop(&rig);
}

/* R22, R42: a rename or removal that another path has done meanwhile finds nothing any more, late;
 * that is no failure of its own path. */
CASE(a_late_twin_is_no_failure)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 8, .threshold = 1,
                                   .timeout_ms = 8000});
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "rename data/* count=1 hang");
    CHECK_OK(dump(rig.store, block->shards, block->count));
    wait_state(&rig, 0, KVPATH_BACKEND_EXCLUDED);
    kvpath_backend_health_t before = health_of(&rig, 0);
    release(&rig, 0);
    wait_late_results(&rig, 1);
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, (int)before.samples, 1);
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[0], KVPATH_BACKEND_SET_IN));
    fault(&rig, 0, "unlink data/* count=1 hang");
    CHECK_OK(kvpath_remove(rig.store, id_of(block), 1));
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[0], KVPATH_BACKEND_SET_AUTO));
    before = health_of(&rig, 0);
    CHECK_EQ(before.state, KVPATH_BACKEND_EXCLUDED);
    release(&rig, 0);
    wait_late_results(&rig, 2);
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, (int)before.samples, (int)before.failures);
    rig_stop(&rig);
}

/* A success that was begun before the exclusion and is not late comes too late to count. */
CASE(a_success_while_excluded_is_ignored)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 1, .threshold = 1});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "read %s always hang", file_of(block));
    kvpath_task_t task = begin_load(&rig, block);
    wait_hung(&rig, 0, 1, "read");
    fault(&rig, 0, "lookup %s always fail EIO", file_of(block_on(&rig, 0, 1)));
    (void)load(rig.store, block_on(&rig, 0, 1)->shards, 1);
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, 1, 1);
    release(&rig, 0);
    CHECK_OK(finish(&rig, task));
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, 1, 1);
    rig_stop(&rig);
}

/* R29: a late failure counts, once, while the exclusion lasts in which it timed out. */
CASE(a_late_failure_counts_once)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 32, .threshold = 1,
                                   .timeout_ms = 2000});
    excluded_by_a_hang(&rig);
    kvpath_backend_health_t before = health_of(&rig, 0);
    CHECK_EQ(before.failures, 1);
    release_failing(&rig, 0, "EIO");
    wait_late_results(&rig, 1);
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, (int)before.samples + 1, 2);
    rig_stop(&rig);
}

/* R29: after the path was available again it is only a counter, also in the next exclusion. */
CASE(a_late_failure_of_an_earlier_exclusion_does_not_count)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 3, .threshold = 1,
                                   .timeout_ms = 8000, .interval_s = 0.8, .probe_timeout_s = 0.75});
    excluded_by_a_hang(&rig);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(hung(&rig, 0), 1);
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, 3, 0);
    release_failing(&rig, 0, "EIO");
    wait_late_results(&rig, 1);
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, 3, 0);

    /* Again, and the failure comes when the backend is excluded anew. */
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "read %s count=1 hang", file_of(block));
    load_right(&rig, block);
    CHECK_EQ(health_of(&rig, 0).state, KVPATH_BACKEND_EXCLUDED);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    fault(&rig, 0, "create data/probe-* always hang"); /* no probe changes the window meanwhile */
    batch_t *other = block_on(&rig, 0, 1);
    long long rule = fault(&rig, 0, "lookup %s always fail EIO", file_of(other));
    (void)load(rig.store, other->shards, other->count);
    wait_hung(&rig, 0, 2, "any");
    kvpath_backend_health_t before = health_of(&rig, 0);
    CHECK_EQ(before.state, KVPATH_BACKEND_EXCLUDED);
    tell(&rig, 0, "rule del %lld", rule);
    release_failing(&rig, 0, "EIO");
    wait_late_results(&rig, 2);
    /* What was added are outcomes of probes, which are counted as such. */
    kvpath_backend_health_t after = health_of(&rig, 0);
    CHECK_EQ(after.transitions, before.transitions);
    CHECK(after.failures <= before.failures + (after.probe_failures - before.probe_failures));
    rig_stop(&rig);
}

/* ---- R22: what says nothing about the path ---- */

/* A block that cannot be read anywhere. */
static batch_t *unreadable(rig_t *rig)
{
    batch_t *block = block_on(rig, 0, 0);
    dump_batch(rig->store, block);
    for (int at = 0; at < rig->n; at++) fault(rig, at, "read %s always fail EIO", file_of(block));
    return block;
}

CASE(one_unreadable_block_excludes_nothing)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 8, .threshold = 2});
    batch_t *bad = unreadable(&rig);
    for (int round = 0; round < 10; round++)
        CHECK_STATUS(load(rig.store, bad->shards, bad->count), KVPATH_OS_ERROR);
    for (int at = 0; at < 2; at++) check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 1);
    fail_loads(&rig, 0, 10, 1); /* another block, and the path is what they have in common */
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, ANY, 2);
    rig_stop(&rig);
}

/* R100: with the other setting it does. */
CASE(one_unreadable_block_excludes_with_scope_any)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 8, .threshold = 2,
                                   .extra = ", \"failure_scope\": \"any\""});
    batch_t *bad = unreadable(&rig);
    CHECK_STATUS(load(rig.store, bad->shards, bad->count), KVPATH_OS_ERROR);
    CHECK_STATUS(load(rig.store, bad->shards, bad->count), KVPATH_OS_ERROR);
    for (int at = 0; at < 2; at++) check_health(&rig, at, KVPATH_BACKEND_EXCLUDED, ANY, 2);
    rig_stop(&rig);
}

/* A full disk refuses dumps and goes on serving loads. */
CASE(a_full_disk_excludes_nothing)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 8, .threshold = 1});
    batch_t *there = block_on(&rig, 0, 50);
    dump_batch(rig.store, there);
    for (int at = 0; at < 2; at++) fault(&rig, at, "write,create data/* always fail ENOSPC");
    for (unsigned nth = 0; nth < 10; nth++) {
        batch_t *block = block_on(&rig, (int)nth % 2, nth);
        CHECK_STATUS(dump(rig.store, block->shards, block->count), KVPATH_NO_SPACE);
        CHECK_HAS(kvpath_last_error(), "ENOSPC");
        load_right(&rig, there);
    }
    for (int at = 0; at < 2; at++) check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    heal(&rig, 1); /* one of the paths has room (quota by path): the dump finds it */
    dump_batch(rig.store, block_on(&rig, 0, 60));
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    rig_stop(&rig);
}

CASE(a_full_disk_excludes_with_scope_any)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 8, .threshold = 1,
                                   .extra = ", \"failure_scope\": \"any\""});
    for (int at = 0; at < 2; at++) fault(&rig, at, "write,create data/* always fail ENOSPC");
    batch_t *block = block_on(&rig, 0, 0);
    CHECK_STATUS(dump(rig.store, block->shards, block->count), KVPATH_NO_SPACE);
    for (int at = 0; at < 2; at++) check_health(&rig, at, KVPATH_BACKEND_EXCLUDED, ANY, ANY);
    rig_stop(&rig);
}

/* A shortage of this host is waited out and is no outcome; with scope any it is a path's failure. */
CASE(a_local_shortage_excludes_nothing)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 8, .threshold = 1});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    forget_counts(&rig);
    fault(&rig, 0, "open %s count=3 fail ENFILE", file_of(block));
    load_right(&rig, block);
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    CHECK_EQ(seen(&rig, 0, "open", file_of(block)), 4);
    CHECK_EQ(seen(&rig, 1, "open", file_of(block)), 0);
    rig_stop(&rig);
}

CASE(a_local_shortage_excludes_with_scope_any)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .window = 8, .threshold = 1, .timeout_ms = 2000,
                                   .extra = ", \"failure_scope\": \"any\""});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "open %s always fail ENFILE", file_of(block));
    load_right(&rig, block);
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, ANY, ANY);
    rig_stop(&rig);
}
