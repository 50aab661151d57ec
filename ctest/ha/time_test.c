/* Time (R26, R28, R63, R54, R56): a hang costs one attempt's limit, no call outlasts its own, and
 * what only looks never waits. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ha.h"

enum { LIMIT_MS = 900, FAR_BELOW_MS = 600, ROUNDS = 5 };

static void check_one_time_out(rig_t *rig, const kvpath_stats_t *stats)
{
    CHECK_EQ(stats->timeouts, 1);
    CHECK_EQ(stats->retries, 1);
    CHECK_EQ(stats->failovers, 1);
    CHECK_EQ(stats->abandoned, 1);
    CHECK_EQ(hung(rig, 2), 1);
    check_health(rig, 2, KVPATH_BACKEND_AVAILABLE, ANY, 1);
    /* A third; what its steps waited for an engine in between is not held against it. */
    const kvpath_backend_health_t health = health_of(rig, 2);
    const char *after = strstr(health.last_error, "timed out after ");
    if (after == NULL) FAIL("no time-out in: %s", health.last_error);
    const int limit_ms = atoi(after + strlen("timed out after "));
    CHECK(limit_ms >= LIMIT_MS / 3 && limit_ms < FAR_BELOW_MS);
}

/* R28: n = 3 and 900 ms: the hanging attempt is given 300 ms, and the next one answers at once. Gives
 * how long it took; FAR_BELOW_MS and more where the machine was too busy to say. */
static uint64_t fail_over(const char *rule, bool dumps)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .timeout_ms = LIMIT_MS});
    batch_t *block = block_on(&rig, 2, 0);
    if (!dumps) dump_batch(rig.store, block);
    fault(&rig, 2, rule, files_of(block));
    uint64_t start = now_ms();
    kvpath_task_t task = dumps ? begin_dump(&rig, block) : begin_load(&rig, block);
    kvpath_status_t status = finish(&rig, task);
    uint64_t took = now_ms() - start;
    printf("%llu ms\n", (unsigned long long)took);
    CHECK(took >= LIMIT_MS / 3);
    kvpath_stats_t stats = stats_of(rig.store);
    /* Even a healthy backend may have been too slow, or for the removal of what a dump leaves. */
    bool busy = took >= FAR_BELOW_MS || stats.timeouts > 1;
    if (!busy) {
        CHECK_STATUS(status, KVPATH_OK);
        batch_check(block);
        check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
        check_one_time_out(&rig, &stats);
    }
    heal(&rig, 2);
    release(&rig, 2);
    wait_late_results(&rig, 1);
    rig_stop(&rig);
    return busy ? FAR_BELOW_MS : took;
}

/* A busy machine may make it late once, not each time. */
static void fails_over_in_time(const char *rule, bool dumps)
{
    for (int round = 0; round < ROUNDS; round++)
        if (fail_over(rule, dumps) < FAR_BELOW_MS) return;
    FAIL("a fail-over took over %d ms %d times running", FAR_BELOW_MS, ROUNDS);
}

CASE(a_hung_open_costs_a_third) { fails_over_in_time("open %s always hang", false); }
CASE(a_hung_read_costs_a_third) { fails_over_in_time("read %s always hang", false); }
CASE(a_hung_create_costs_a_third) { fails_over_in_time("create %s count=1 hang", true); }
CASE(a_hung_write_costs_a_third) { fails_over_in_time("write %s count=1 hang", true); }
CASE(a_hung_rename_costs_a_third) { fails_over_in_time("rename %s count=1 hang", true); }

/* R27, R28: of two backends one hangs altogether. Half of the time is gone when the dump goes on to
 * the other; its commit must not go back and lose the rest. */
CASE(a_dump_has_time_for_its_commit)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 3000});
    batch_t *block = block_on(&rig, 0, 0);
    tell(&rig, 0, "freeze");
    uint64_t start = now_ms();
    CHECK_OK(dump(rig.store, block->shards, block->count));
    CHECK(now_ms() - start >= 1500);
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
    CHECK_EQ(stats_of(rig.store).timeouts, 1);
    tell(&rig, 0, "thaw");
    wait_late_results(&rig, 1);
    rig_stop(&rig);
}

/* R28: with everything hanging the task ends at its own limit, queued shards without being run. */
CASE(the_task_ends_when_everything_hangs)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 2000, .window = 64,
                                   .threshold = 64,
                                   .extra = ", \"posix_data_trans_concurrency\": 1"});
    enum { BLOCKS = 6 };
    batch_t *blocks = batch(whole, 0, BLOCKS, 0);
    dump_batch(rig.store, blocks);
    forget_counts(&rig);
    for (int at = 0; at < 2; at++) fault(&rig, at, "read data/* always hang");
    kvpath_status_t statuses[BLOCKS];
    kvpath_task_t task = 0;
    uint64_t start = now_ms();
    CHECK_OK(kvpath_load(rig.store, blocks->shards, BLOCKS, &task));
    CHECK_STATUS(kvpath_wait_results(rig.store, task, 0, statuses, BLOCKS), KVPATH_TIMEOUT);
    uint64_t took = now_ms() - start;
    CHECK(took >= 2000 && took < 2000 + SLACK_MS);
    for (int at = 0; at < BLOCKS; at++) CHECK_EQ(statuses[at], KVPATH_TIMEOUT);
    /* Per backend one at a time, 1000 ms each: at most two were begun. */
    CHECK(seen(&rig, 0, "open", "data/*") <= 3);
    CHECK(seen(&rig, 1, "open", "data/*") <= 3);
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    rig_stop(&rig);
}

/* R26: a wait has a limit of its own; the handle stays, and the task goes on. */
CASE(a_wait_has_its_own_limit)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "read data/* always hang");
    kvpath_task_t task = begin_load(&rig, block);
    uint8_t finished = 9;
    uint64_t start = now_ms();
    CHECK_STATUS(kvpath_wait(rig.store, task, 100), KVPATH_RETRY);
    uint64_t took = now_ms() - start;
    CHECK(took >= 100 && took < 100 + SLACK_MS);
    CHECK_OK(kvpath_check(rig.store, task, &finished));
    CHECK_EQ(finished, 0);
    heal(&rig, 0);
    release(&rig, 0);
    CHECK_OK(finish(&rig, task));
    batch_check(block);
    CHECK_STATUS(finish(&rig, task), KVPATH_NOT_FOUND);
    rig_stop(&rig);
}

/* R1, R28: timeout_ms 0 is no limit anywhere. */
CASE(zero_is_no_limit)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "read data/* always hang");
    kvpath_task_t task = begin_load(&rig, block);
    wait_hung(&rig, 0, 1, "read");
    CHECK_STATUS(kvpath_wait(rig.store, task, 2000), KVPATH_RETRY);
    CHECK_EQ(seen(&rig, 1, "open", file_of(block)), 0);
    CHECK_EQ(stats_of(rig.store).timeouts, 0);
    release(&rig, 0);
    CHECK_OK(finish(&rig, task));
    CHECK_EQ(stats_of(rig.store).retries, 0);
    rig_stop(&rig);
}

/* R28: waiting in kvpath's own queue is never held against a backend. */
CASE(waiting_in_the_queue_is_no_time_out)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 20000,
                                   .extra = ", \"posix_data_trans_concurrency\": 1"});
    batch_t *first = block_on(&rig, 0, 0), *second = block_on(&rig, 0, 1);
    dump_batch(rig.store, first);
    dump_batch(rig.store, second);
    CHECK_OK(kvpath_close(rig.store));
    rig_open(&rig, (options_t){.shape = whole, .timeout_ms = 12000,
                               .extra = ", \"posix_data_trans_concurrency\": 1"});
    /* The second waits 3.5 s and takes 3.5 s: more than an attempt's 6 s together. */
    fault(&rig, 0, "read data/* always delay 3500");
    kvpath_task_t one = begin_load(&rig, first), two = begin_load(&rig, second);
    CHECK_OK(finish(&rig, one));
    CHECK_OK(finish(&rig, two));
    batch_check(first);
    batch_check(second);
    CHECK_EQ(stats_of(rig.store).timeouts, 0);
    CHECK_EQ(seen(&rig, 1, "open", files_of(second)), 0);
    rig_stop(&rig);
}

/* R63: a lookup gives a hung backend its part of the time and is answered by the next. */
CASE(a_lookup_with_a_hung_backend_is_in_time)
{
    enum { ATTEMPT_MS = 1000, TWO_ATTEMPTS_MS = 2000 };
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .extra = ", \"lookup_timeout_ms\": 3000"});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "lookup,getattr data/* always hang");
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < ROUNDS && best >= TWO_ATTEMPTS_MS; round++) {
        uint64_t start = now_ms();
        CHECK(present(rig.store, id_of(block)));
        uint64_t took = now_ms() - start;
        printf("%llu ms\n", (unsigned long long)took);
        CHECK(took >= ATTEMPT_MS);
        if (took < best) best = took;
    }
    CHECK(best < TWO_ATTEMPTS_MS);
    CHECK(hung(&rig, 0) >= 1);
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, ANY, 1); /* one block */
    heal(&rig, 0);
    release(&rig, 0);
    rig_stop(&rig);
}

/* R62, R63: where all hang the call ends in time, with an error that is not "absent". */
CASE(a_lookup_ends_when_everything_hangs)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .extra = ", \"lookup_timeout_ms\": 2000"});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    for (int at = 0; at < 2; at++) fault(&rig, at, "lookup,getattr data/* always hang");
    uint8_t found = 9;
    int64_t index = 9;
    uint64_t start = now_ms();
    CHECK_STATUS(kvpath_lookup(rig.store, id_of(block), 1, &found), KVPATH_TIMEOUT);
    CHECK_EQ(found, 0);
    CHECK_STATUS(kvpath_lookup_prefix(rig.store, id_of(block), 1, &index), KVPATH_TIMEOUT);
    CHECK_EQ(index, -1);
    CHECK(now_ms() - start < 2 * 2000 + SLACK_MS);
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    CHECK(present(rig.store, id_of(block)));
    rig_stop(&rig);
}

/* R28: however many tasks are over their limit at one moment, they end in time. */
CASE(many_tasks_end_at_one_limit)
{
    enum { LIMIT_MS = 8000, TASKS = 60000 };
    rig_t rig;
    rig_start(&rig, 1, (options_t){.shape = whole, .timeout_ms = LIMIT_MS, .window = 64,
                                   .threshold = 64});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "open data/* always hang");
    kvpath_task_t task = 0;
    for (int at = 0; at < TASKS; at++) task = begin_load(&rig, block);
    uint64_t start = now_ms();
    CHECK_STATUS(finish(&rig, task), KVPATH_TIMEOUT);
    uint64_t took = now_ms() - start;
    printf("%llu ms\n", (unsigned long long)took);
    CHECK(took < LIMIT_MS + SLACK_MS);
    heal(&rig, 0);
    release(&rig, 0);
    wait_at_rest(&rig);
    rig_stop(&rig);
}

/* R63: a prefix or last lookup asks slice after slice, all of them within the one limit. */
CASE(a_lookup_of_many_slices_ends_within_its_limit)
{
    enum { LIMIT_MS = 4000, IDS = 3000 }; /* the slices: 4, 32, 256, 1024, 1024, 660 */
    rig_t rig;
    rig_start(&rig, 1, (options_t){.shape = whole, .window = 64, .threshold = 64,
                                   .extra = ", \"lookup_timeout_ms\": 4000"});
    static kvpath_block_id_t ids[IDS];
    for (unsigned at = 0; at < IDS; at++) ids[at] = block_id(at);
    fault(&rig, 0, "lookup,getattr data/* always hang");
    int64_t index = 9;
    uint64_t start = now_ms();
    CHECK_STATUS(kvpath_lookup_last(rig.store, ids, IDS, &index), KVPATH_TIMEOUT);
    uint64_t took = now_ms() - start;
    CHECK_EQ(index, -1);
    printf("%llu ms\n", (unsigned long long)took);
    CHECK(took < LIMIT_MS + SLACK_MS);
    heal(&rig, 0);
    release(&rig, 0);
    wait_at_rest(&rig);
    rig_stop(&rig);
}

/* Calls on metadata: a hung one, with a limit and without (R28, R63, R100). */
enum call { LOOKUP, COMMIT, REMOVE };

typedef struct {
    rig_t *rig;
    batch_t *block;
    enum call call;
    kvpath_status_t status;
} metadata_t;

static void *run_metadata(void *argument)
{
    metadata_t *work = argument;
    const kvpath_block_id_t *id = id_of(work->block);
    uint8_t found = 0;
    if (work->call == LOOKUP) work->status = kvpath_lookup(work->rig->store, id, 1, &found);
    if (work->call == COMMIT) work->status = kvpath_commit(work->rig->store, id, 1);
    if (work->call == REMOVE) work->status = kvpath_remove(work->rig->store, id, 1);
    if (work->call == LOOKUP && work->status == KVPATH_OK) CHECK_EQ(found, 1);
    return NULL;
}

static const char *operation_of(enum call call)
{
    return call == LOOKUP ? "getattr" : call == COMMIT ? "rename" : "unlink";
}

static const char *pattern_of(const metadata_t *work)
{
    return work->call == COMMIT ? "data/*" : file_of(work->block);
}

/* A block on the first path that is ready for the call, whose operation hangs. */
static metadata_t begin_metadata(rig_t *rig, enum call call)
{
    metadata_t work = {rig, block_on(rig, 0, 0), call, KVPATH_OK};
    dump_batch(rig->store, work.block);
    if (call != COMMIT) CHECK_OK(kvpath_commit(rig->store, id_of(work.block), 1));
    fault(rig, 0, "%s %s always hang", operation_of(call), pattern_of(&work));
    return work;
}

/* R28, R63: commits, removals and lookups have limits as well. */
static void metadata_has_a_limit(enum call call)
{
    rig_t rig;
    rig_start(&rig, 1, (options_t){.shape = whole, .timeout_ms = 2000,
                                   .extra = ", \"commit_policy\": \"explicit\""});
    metadata_t work = begin_metadata(&rig, call);
    uint64_t start = now_ms();
    run_metadata(&work);
    uint64_t took = now_ms() - start;
    CHECK_STATUS(work.status, KVPATH_TIMEOUT);
    CHECK(took >= 2000 && took < 2000 + SLACK_MS);
    heal(&rig, 0), release(&rig, 0);
    rig_stop(&rig);
}

CASE(a_lookup_has_a_limit) { metadata_has_a_limit(LOOKUP); }
CASE(a_commit_has_a_limit) { metadata_has_a_limit(COMMIT); }
CASE(a_remove_has_a_limit) { metadata_has_a_limit(REMOVE); }

/* R100: metadata_time_limits: false; the call waits, and nothing is tried elsewhere. */
static void metadata_without_a_limit_waits(enum call call)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 2000,
                                   .extra = ", \"commit_policy\": \"explicit\""
                                            ", \"metadata_time_limits\": false"});
    batch_t *other = block_on(&rig, 0, 1);
    dump_batch(rig.store, other);
    CHECK_OK(kvpath_commit(rig.store, id_of(other), 1));
    metadata_t work = begin_metadata(&rig, call);
    uint64_t before = seen(&rig, 1, operation_of(call), pattern_of(&work));
    aside_t running = aside(run_metadata, &work);
    wait_hung(&rig, 0, 1, operation_of(call));
    /* Time goes by, told by a transfer that runs into its limit twice over. */
    fault(&rig, 0, "read %s always hang", file_of(other));
    fault(&rig, 1, "read %s always hang", file_of(other));
    CHECK_STATUS(load(rig.store, other->shards, other->count), KVPATH_TIMEOUT);
    CHECK_STATUS(load(rig.store, other->shards, other->count), KVPATH_TIMEOUT);
    CHECK_EQ(seen(&rig, 1, operation_of(call), pattern_of(&work)), before);
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    join(running);
    CHECK_OK(work.status);
    rig_stop(&rig);
}

CASE(a_lookup_without_a_limit_waits) { metadata_without_a_limit_waits(LOOKUP); }
CASE(a_commit_without_a_limit_waits) { metadata_without_a_limit_waits(COMMIT); }
CASE(a_remove_without_a_limit_waits) { metadata_without_a_limit_waits(REMOVE); }

/* R55, R56, R90: what only looks does not wait for anything, even with all paths frozen and work
 * hanging on them; nor does the start of a task. */
CASE(looking_never_blocks)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .breaker = true});
    batch_t *blocks = batch(whole, 0, 12, 0);
    dump_batch(rig.store, blocks);
    for (int at = 0; at < 3; at++) tell(&rig, at, "freeze");
    kvpath_task_t task = 0;
    uint64_t start = now_ms();
    CHECK_OK(kvpath_load(rig.store, blocks->shards, blocks->count, &task));
    for (int at = 0; at < 3; at++) wait_hung(&rig, at, 1, "any");
    for (int round = 0; round < 100; round++) {
        uint8_t finished = 9;
        kvpath_task_t listed[4];
        size_t count = 0;
        CHECK_OK(kvpath_check_health(rig.store));
        (void)health_of(&rig, 0);
        (void)stats_of(rig.store);
        CHECK_OK(kvpath_check(rig.store, task, &finished));
        CHECK_EQ(finished, 0);
        CHECK_OK(kvpath_finished(rig.store, listed, 4, &count));
    }
    CHECK_HAS(report(kvpath_health_json, rig.store), "in_flight");
    CHECK_HAS(report(kvpath_stats_json, rig.store), "engine");
    CHECK_HAS(report(kvpath_metrics, rig.store), "kvpath_in_flight");
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[0], KVPATH_BACKEND_SET_IN));
    CHECK_OK(kvpath_cancel(rig.store, task));
    CHECK(now_ms() - start < SLACK_MS);
    for (int at = 0; at < 3; at++) tell(&rig, at, "thaw");
    (void)finish(&rig, task);
    rig_stop(&rig);
}
