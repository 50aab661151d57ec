/* Bulkheads (R36, R28): what hangs on one backend takes nothing from the others, and not for ever
 * from its own. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "ha.h"

enum { SLOTS = 4, MANY = 40 };

static const char *const few = ", \"posix_data_trans_concurrency\": 4, "
                               "\"posix_lookup_concurrency\": 4";

/* R36: one backend hangs with all its slots and more queued; everything of the others ends. */
CASE(a_hung_backend_takes_nothing_from_the_others)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .extra = few});
    kvpath_task_t stuck[3 * SLOTS];
    batch_t *behind[3 * SLOTS];
    for (unsigned nth = 0; nth < 3 * SLOTS; nth++)
        dump_batch(rig.store, behind[nth] = block_on(&rig, 0, nth));
    fault(&rig, 0, "read data/* always hang");
    for (int at = 0; at < 3 * SLOTS; at++) stuck[at] = begin_load(&rig, behind[at]);
    wait_hung(&rig, 0, SLOTS, "read");
    for (unsigned nth = 0; nth < MANY; nth++) {
        batch_t *block = block_on(&rig, 1 + (int)nth % 2, nth);
        dump_batch(rig.store, block);
        load_right(&rig, block);
        CHECK(present(rig.store, id_of(block)));
        CHECK_OK(kvpath_remove(rig.store, id_of(block), 1));
    }
    CHECK_EQ(hung(&rig, 0), SLOTS); /* not more than its slots */
    CHECK_EQ(health_of(&rig, 0).in_flight, SLOTS);
    CHECK_EQ(seen(&rig, 0, "open", "data/*"), SLOTS);
    heal(&rig, 0);
    release(&rig, 0);
    for (int at = 0; at < 3 * SLOTS; at++) {
        CHECK_OK(finish(&rig, stuck[at]));
        batch_check(behind[at]);
    }
    rig_stop(&rig);
}

/* Lookups of a backend whose transfers all hang have workers of their own. */
CASE(lookups_pass_hung_transfers)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .extra = few});
    batch_t *blocks[SLOTS];
    kvpath_task_t tasks[SLOTS];
    for (unsigned nth = 0; nth < SLOTS; nth++)
        dump_batch(rig.store, blocks[nth] = block_on(&rig, 0, nth));
    fault(&rig, 0, "read data/* always hang");
    for (int at = 0; at < SLOTS; at++) tasks[at] = begin_load(&rig, blocks[at]);
    wait_hung(&rig, 0, SLOTS, "read");
    for (int at = 0; at < SLOTS; at++) CHECK(present(rig.store, id_of(blocks[at])));
    heal(&rig, 0);
    release(&rig, 0);
    for (int at = 0; at < SLOTS; at++) CHECK_OK(finish(&rig, tasks[at]));
    rig_stop(&rig);
}

/* R36: hung workers are replaced: what was given up does not count as in flight, so that a path on
 * which single files hang goes on with all its slots. */
CASE(hung_workers_are_replaced)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 4000, .window = 64, .threshold = 64,
                                   .extra = few});
    batch_t *blocks[SLOTS], *good = block_on(&rig, 0, 50);
    kvpath_task_t tasks[SLOTS];
    dump_batch(rig.store, good);
    for (unsigned nth = 0; nth < SLOTS; nth++) {
        dump_batch(rig.store, blocks[nth] = block_on(&rig, 0, nth));
        fault(&rig, 0, "read %s always hang", file_of(blocks[nth]));
    }
    for (int at = 0; at < SLOTS; at++) tasks[at] = begin_load(&rig, blocks[at]);
    for (int at = 0; at < SLOTS; at++) CHECK_OK(finish(&rig, tasks[at]));
    CHECK_EQ(hung(&rig, 0), SLOTS);
    CHECK_EQ(health_of(&rig, 0).abandoned, SLOTS);
    CHECK_EQ(health_of(&rig, 0).in_flight, 0);
    forget_counts(&rig);
    load_right(&rig, good);
    CHECK_EQ(seen(&rig, 0, "open", file_of(good)), 1);
    heal(&rig, 0);
    release(&rig, 0);
    wait_late_results(&rig, SLOTS);
    CHECK_EQ(health_of(&rig, 0).abandoned, 0);
    rig_stop(&rig);
}

/* R36: beyond twice its slots business I/O fails at once, without touching the path. */
CASE(too_many_abandoned_fail_at_once)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 4000, .window = 64, .threshold = 64,
                                   .extra = ", \"posix_data_trans_concurrency\": 2"});
    enum { ENOUGH = 5 };
    batch_t *blocks[ENOUGH + 1];
    for (unsigned nth = 0; nth <= ENOUGH; nth++)
        dump_batch(rig.store, blocks[nth] = block_on(&rig, 0, nth));
    fault(&rig, 0, "read data/* always hang");
    for (int at = 0; at < ENOUGH; at++) load_right(&rig, blocks[at]);
    CHECK_EQ(health_of(&rig, 0).abandoned, ENOUGH);
    forget_counts(&rig);
    load_right(&rig, blocks[ENOUGH]);
    CHECK_EQ(seen(&rig, 0, "total", file_of(blocks[ENOUGH])), 0);
    CHECK_HAS(health_of(&rig, 0).last_error, "too many abandoned");
    heal(&rig, 0);
    release(&rig, 0);
    wait_late_results(&rig, ENOUGH);
    forget_counts(&rig);
    load_right(&rig, blocks[ENOUGH]);
    CHECK_EQ(seen(&rig, 0, "open", file_of(blocks[ENOUGH])), 1);
    rig_stop(&rig);
}

/* R36, R21: what hung before a path came back is not held against it, however long it hangs: it
 * serves, and stays. */
CASE(a_path_comes_back_while_what_hung_there_stays)
{
    rig_t rig;
    enum { HUNG = 3, AFTER = 10 };
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 4000, .window = HUNG,
                                   .threshold = HUNG, .interval_s = 1.6, .probe_timeout_s = 1.5,
                                   .extra = ", \"posix_data_trans_concurrency\": 1"});
    batch_t *blocks[AFTER];
    for (unsigned nth = 0; nth < AFTER; nth++)
        dump_batch(rig.store, blocks[nth] = block_on(&rig, 0, nth));
    for (int at = 0; at < HUNG; at++) fault(&rig, 0, "read %s always hang", file_of(blocks[at]));
    for (int at = 0; at < HUNG; at++) load_right(&rig, blocks[at]);
    CHECK_EQ(health_of(&rig, 0).abandoned, HUNG);
    heal(&rig, 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    size_t changes = log_count("KV2001");
    forget_counts(&rig);
    for (int at = 0; at < AFTER; at++) {
        load_right(&rig, blocks[at]);
        CHECK_EQ(seen(&rig, 0, "open", file_of(blocks[at])), 1);
        CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_AVAILABLE);
    }
    CHECK_EQ(log_count("KV2001"), changes);
    CHECK_EQ(hung(&rig, 0), HUNG);
    CHECK_EQ(health_of(&rig, 0).abandoned, HUNG);
    release(&rig, 0);
    wait_late_results(&rig, HUNG);
    CHECK_EQ(health_of(&rig, 0).abandoned, 0);
    load_right(&rig, blocks[0]);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_AVAILABLE);
    rig_stop(&rig);
}

/* R36: a path that answers, but whose buffers are all with transfers that hang, stays out and says
 * so: transfers would only wait there. */
CASE(a_path_without_buffers_stays_out)
{
    static const shape_t large = {8 << 20, 8 << 20, 8 << 20};
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = large, .timeout_ms = 4000, .window = 2, .threshold = 1,
                                   .interval_s = 0.5, .probe_timeout_s = 0.4,
                                   .extra = ", \"posix_data_trans_concurrency\": 1, "
                                            "\"buffer_mb_max\": 1"});
    /* Half a MiB for each path: a buffer for its one transfer, and one for the next. */
    batch_t *block = block_on(&rig, 0, 0), *other = block_on(&rig, 0, 1);
    dump_batch(rig.store, block);
    dump_batch(rig.store, other);
    fault(&rig, 0, "read %s always hang", file_of(block));
    fault(&rig, 0, "read %s always hang", file_of(other));
    load_right(&rig, block);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(log_count("KV2007"), 0);
    load_right(&rig, other);
    heal(&rig, 0);
    wait_log("KV2007");
    wait_probes(&rig, 0, health_of(&rig, 0).probes + 4);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    CHECK_HAS(health_of(&rig, 0).last_error, "too many abandoned");
    CHECK_EQ(log_count("KV2007"), 1);
    load_right(&rig, block);
    release(&rig, 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    forget_counts(&rig);
    load_right(&rig, block);
    CHECK_EQ(seen(&rig, 0, "open", file_of(block)), 1);
    rig_stop(&rig);
}

/* R36: what is queued on a backend that is excluded goes on at once; that is no attempt. */
CASE(the_queue_of_an_excluded_backend_moves)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .threshold = 1, .extra =
                                   ", \"posix_data_trans_concurrency\": 1"});
    enum { QUEUED = 5 };
    batch_t *blocks[QUEUED + 1], *bad = block_on(&rig, 0, 50);
    kvpath_task_t tasks[QUEUED + 1];
    for (unsigned nth = 0; nth <= QUEUED; nth++)
        dump_batch(rig.store, blocks[nth] = block_on(&rig, 0, nth));
    fault(&rig, 0, "read data/* always hang");
    for (int at = 0; at <= QUEUED; at++) tasks[at] = begin_load(&rig, blocks[at]);
    wait_hung(&rig, 0, 1, "read");
    fault(&rig, 0, "lookup %s always fail EIO", file_of(bad));
    uint8_t found = 9;
    CHECK_OK(kvpath_lookup(rig.store, id_of(bad), 1, &found)); /* fails there, and excludes it */
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    uint64_t retries = stats_of(rig.store).retries;
    for (int at = 1; at <= QUEUED; at++) {
        CHECK_OK(finish(&rig, tasks[at]));
        batch_check(blocks[at]);
    }
    CHECK_EQ(stats_of(rig.store).retries, retries);
    CHECK_EQ(hung(&rig, 0), 1);
    heal(&rig, 0);
    release(&rig, 0);
    CHECK_OK(finish(&rig, tasks[0]));
    rig_stop(&rig);
}

static void *wait_task(void *argument)
{
    struct {
        rig_t *rig;
        kvpath_task_t task;
    } *work = argument;
    CHECK_OK(kvpath_wait(work->rig->store, work->task, 0));
    return NULL;
}

/* Threads that wait for tasks keep nobody from submitting, waiting for and finishing others. */
CASE(waiting_tasks_do_not_block_others)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole});
    enum { WAITING = 8 };
    struct {
        rig_t *rig;
        kvpath_task_t task;
    } work[WAITING];
    aside_t waiting[WAITING];
    batch_t *blocks[WAITING];
    for (unsigned nth = 0; nth < WAITING; nth++)
        dump_batch(rig.store, blocks[nth] = block_on(&rig, 0, nth));
    fault(&rig, 0, "read data/* always hang");
    for (int at = 0; at < WAITING; at++) {
        work[at].rig = &rig;
        work[at].task = begin_load(&rig, blocks[at]);
        waiting[at] = aside(wait_task, &work[at]);
    }
    wait_hung(&rig, 0, WAITING, "read");
    for (unsigned nth = 0; nth < MANY; nth++) {
        batch_t *block = block_on(&rig, 1, nth);
        dump_batch(rig.store, block);
        load_right(&rig, block);
    }
    CHECK_EQ(hung(&rig, 0), WAITING);
    heal(&rig, 0);
    release(&rig, 0);
    for (int at = 0; at < WAITING; at++) join(waiting[at]), batch_check(blocks[at]);
    rig_stop(&rig);
}
