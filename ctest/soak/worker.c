/* soak.h: a thread that dumps, loads, asks for and removes blocks, and knows what it must get. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "soak.h"

enum {
    PAUSE_MAX_MS = 12, /* between calls: many threads, little load */
    FIRST_STORE_WORKERS = 6,
    VERIFY_TRIES = 600,
    VERIFY_PAUSE_MS = 100,
};

kvpath_block_id_t own_id(int worker, unsigned block)
{
    return block_id(1000 * (uint64_t)(worker + 1) + block);
}

kvpath_block_id_t common_id(unsigned block) { return block_id(block); }

static void make_blocks(blocks_t *blocks)
{
    blocks->memory = malloc(AT_ONCE * BLOCK_BYTES);
    CHECK(blocks->memory != NULL);
    for (unsigned at = 0; at < AT_ONCE * SHARDS * TENSORS; at++)
        blocks->addrs[at] = blocks->memory + at * TENSOR_BYTES;
}

/* Block number `at` of the task is `id`. */
static void name_block(blocks_t *blocks, unsigned at, const kvpath_block_id_t *id)
{
    for (unsigned index = 0; index < SHARDS; index++) {
        kvpath_shard_t *shard = &blocks->shards[at * SHARDS + index];
        shard->block = *id;
        shard->index = index;
        shard->addr_count = TENSORS;
        shard->addrs = blocks->addrs + (at * SHARDS + index) * TENSORS;
    }
}

static uint64_t sum_of(const blocks_t *blocks)
{
    uint64_t sum = 1;
    const uint64_t *words = (const uint64_t *)(const void *)blocks->memory;
    for (size_t at = 0; at < AT_ONCE * BLOCK_BYTES / 8; at++) sum = sum * 31 + words[at];
    return sum | 1;
}

static void memory_check(worker_t *worker, blocks_t *blocks)
{
    if (blocks->sum != 0 && !worker->epoch->borrowed && sum_of(blocks) != blocks->sum)
        FAIL("worker %d: memory changed after its task had ended", worker->number);
    blocks->sum = 0;
}

void worker_memory_check(worker_t *worker)
{
    memory_check(worker, &worker->loads[0]);
    memory_check(worker, &worker->loads[1]);
}

/* ---- calls ---- */

static int store_of(const worker_t *worker) { return worker->number >= FIRST_STORE_WORKERS; }

static kvpath_store_t handle(const worker_t *worker)
{
    return worker->epoch->store[store_of(worker)];
}

static bool is_error(kvpath_status_t status)
{
    return status == KVPATH_TIMEOUT || status == KVPATH_OS_ERROR || status == KVPATH_CLOSED ||
           status == KVPATH_STORE_UNHEALTHY;
}

static void expect(worker_t *worker, kvpath_status_t status, bool allowed, const char *what)
{
    worker->calls++;
    /* What a task of a closed store does with its memory ends with kvpath_close() only. */
    worker->closed |= status == KVPATH_CLOSED;
    if (status == KVPATH_OK)
        worker->right++;
    else
        worker->errors++;
    if (!allowed)
        FAIL("worker %d: %s gave %s: %s", worker->number, what, kvpath_status_name(status),
             status != KVPATH_OK ? kvpath_last_error() : "");
}

/* Waits for a task, in one call or several; each within its limit. */
static kvpath_status_t wait_task(worker_t *worker, kvpath_task_t task, uint64_t start_us,
                                 kvpath_status_t *statuses, size_t count)
{
    kvpath_status_t status = KVPATH_RETRY;
    const epoch_t *epoch = worker->epoch;
    while (dice_one_in(&worker->dice, 2)) {
        const uint64_t from_us = now_us();
        const unsigned limit_ms = dice_from(&worker->dice, 1, 300);
        status = kvpath_wait_results(handle(worker), task, limit_ms, statuses, count);
        within(from_us, limit_ms, "a wait with a limit");
        if (status != KVPATH_RETRY) break;
    }
    if (status == KVPATH_RETRY)
        status = kvpath_wait_results(handle(worker), task, 0, statuses, count);
    /* What runs on the caller's memory lasts until the kernel lets go (R32). */
    if (!epoch->borrowed) within(start_us, epoch->timeout_ms, "a task");
    return status;
}

static void load_blocks(worker_t *worker, const kvpath_block_id_t *ids, own_t *const *own,
                        unsigned count, bool cancel)
{
    kvpath_task_t task = 0;
    kvpath_status_t statuses[AT_ONCE * SHARDS];
    blocks_t *blocks = &worker->loads[worker->turn++ % 2];
    memory_check(worker, blocks);
    for (unsigned at = 0; at < count; at++) name_block(blocks, at, &ids[at]);
    const uint64_t start_us = now_us();
    kvpath_status_t status = kvpath_load(handle(worker), blocks->shards, count * SHARDS, &task);
    within(start_us, 0, "a load call");
    if (status != KVPATH_OK) {
        expect(worker, status, is_error(status), "a load call");
        return;
    }
    if (cancel) {
        status = kvpath_cancel(handle(worker), task);
        expect(worker, status, status == KVPATH_OK || status == KVPATH_CLOSED, "cancel");
    }
    for (unsigned at = 0; at < count * SHARDS; at++) statuses[at] = KVPATH_CLOSED;
    status = wait_task(worker, task, start_us, statuses, count * SHARDS);
    if (status == KVPATH_CLOSED) {
        expect(worker, status, true, "a wait");
        return;
    }
    blocks->sum = sum_of(blocks);
    for (unsigned at = 0; at < count; at++) {
        const kvpath_status_t *of = &statuses[at * SHARDS];
        status = of[0] != KVPATH_OK ? of[0] : of[1];
        if (own != NULL) history_add(own[at], 'l', status, start_us);
        if (status == KVPATH_OK) {
            const uint8_t stamp =
                check_block(&ids[at], blocks->memory + at * BLOCK_BYTES, "a load");
            const bool may = own == NULL || may_be_shown(own[at]);
            expect(worker, status, may, "a load of a removed block");
            if (own != NULL) check_stamp(own[at], stamp, worker->epoch->storage, &ids[at]);
        } else if (status == KVPATH_NOT_FOUND) {
            const bool may = own == NULL || may_be_missed(own[at]) || storm_fell_off(start_us);
            const char *lost = may ? "" : history_text(own[at], worker->epoch->storage, &ids[at]);
            expect(worker, status, may, may ? "a load" : text("a load of a stored block%s", lost));
        } else {
            const bool may = is_error(status) || (cancel && status == KVPATH_CANCELLED);
            expect(worker, status, may, "a load");
        }
    }
}

static bool dump_error(kvpath_status_t status)
{
    return is_error(status) || status == KVPATH_NO_SPACE || status == KVPATH_ERROR;
}

/* One block, in one task or shard by shard. */
static void dump_block(worker_t *worker, const kvpath_block_id_t *id, own_t *own)
{
    blocks_t *blocks = &worker->dumps;
    const epoch_t *epoch = worker->epoch;
    const bool whole = dice_one_in(&worker->dice, 2), backwards = dice_one_in(&worker->dice, 2);
    const uint8_t stamp = epoch->stamp[store_of(worker)];
    bool stored = true;
    for (unsigned at = 0; at < BLOCK_BYTES; at++) blocks->memory[at] = content_at(id, at) ^ stamp;
    name_block(blocks, 0, id);
    if (own != NULL) own->dumped = stamp; /* whatever comes of it */
    for (unsigned part = 0; part < (whole ? 1 : SHARDS); part++) {
        kvpath_task_t task = 0;
        kvpath_status_t statuses[SHARDS];
        const unsigned first = whole || !backwards ? part : SHARDS - 1 - part;
        const size_t count = whole ? SHARDS : 1;
        const uint64_t start_us = now_us();
        kvpath_status_t status = kvpath_dump(handle(worker), blocks->shards + first, count, &task);
        within(start_us, 0, "a dump call");
        if (status == KVPATH_OK) status = wait_task(worker, task, start_us, statuses, count);
        expect(worker, status, status == KVPATH_OK || dump_error(status), "a dump");
        stored &= status == KVPATH_OK;
        history_add(own, 'd', status, start_us);
    }
    if (own == NULL) return;
    own->dumped_us = now_us();
    if (!stored) {
        own->late_dump = true;
        if (own->known == ABSENT) own->known = UNKNOWN;
    } else {
        own->known = own->late_remove ? UNKNOWN : PRESENT;
    }
}

static void remove_block(worker_t *worker, const kvpath_block_id_t *id, own_t *own)
{
    const uint64_t start_us = now_us();
    kvpath_status_t status = kvpath_remove(handle(worker), id, 1);
    within(start_us, worker->epoch->timeout_ms, "remove");
    expect(worker, status, status == KVPATH_OK || is_error(status), "remove");
    history_add(own, 'r', status, start_us);
    if (own == NULL) return;
    /* What was given up on one path may still happen, whatever the next one said. An attempt takes
     * a third of the limit; half of that leaves room for rounding. */
    const uint64_t long_us = worker->epoch->timeout_ms * 1000 / MOUNTS / 2;
    const bool late = status != KVPATH_OK || now_us() - start_us >= long_us;
    const bool sure = !late && !own->late_dump && !storm_fell_off(start_us);
    own->late_remove |= late;
    own->known = sure ? ABSENT : UNKNOWN;
    if (sure) own->settled = own->dumped = 0;
    own->removed_us = now_us();
}

static void look_up(worker_t *worker)
{
    kvpath_block_id_t ids[OWN];
    uint8_t found[OWN];
    for (unsigned at = 0; at < OWN; at++) ids[at] = own_id(worker->number, at);
    const uint64_t start_us = now_us();
    kvpath_status_t status = kvpath_lookup(handle(worker), ids, OWN, found);
    within(start_us, worker->epoch->lookup_timeout_ms, "lookup");
    expect(worker, status, status == KVPATH_OK || is_error(status), "lookup");
    for (unsigned at = 0; at < OWN && status == KVPATH_OK; at++) {
        const own_t *own = &worker->own[at];
        if (found[at] && !may_be_shown(own))
            FAIL("lookup found block %s", block_name(&ids[at]));
        if (!found[at] && !may_be_missed(own) && !storm_fell_off(start_us))
            FAIL("lookup did not find block %s%s", block_name(&ids[at]),
                 history_text(own, worker->epoch->storage, &ids[at]));
    }
}

static void look_at_health(worker_t *worker)
{
    kvpath_stats_t stats = {.size = sizeof stats};
    kvpath_backend_health_t health[MOUNTS] = {{.size = sizeof health[0]}};
    size_t count = 0;
    const uint64_t start_us = now_us();
    kvpath_status_t status = kvpath_check_health(handle(worker));
    expect(worker, status, status == KVPATH_OK || is_error(status), "check_health");
    status = kvpath_stats(handle(worker), &stats);
    expect(worker, status, status == KVPATH_OK || is_error(status), "stats");
    status = kvpath_health(handle(worker), health, MOUNTS, &count);
    expect(worker, status, status == KVPATH_OK || is_error(status), "health");
    within(start_us, 0, "calls that never wait");
}

/* ---- the thread ---- */

static void load_own(worker_t *worker, unsigned count, bool cancel)
{
    kvpath_block_id_t ids[AT_ONCE];
    own_t *own[AT_ONCE];
    const unsigned first = dice_from(&worker->dice, 0, OWN - 1);
    for (unsigned at = 0; at < count; at++) {
        ids[at] = own_id(worker->number, (first + at) % OWN);
        own[at] = &worker->own[(first + at) % OWN];
    }
    load_blocks(worker, ids, own, count, cancel);
}

static void one_call(worker_t *worker)
{
    dice_t *dice = &worker->dice;
    const unsigned mine = dice_from(dice, 0, OWN - 1), any = dice_from(dice, 0, COMMON - 1);
    const kvpath_block_id_t own = own_id(worker->number, mine), common = common_id(any);
    const unsigned kind = dice_from(dice, 0, 99);
    if (kind < 35)
        load_own(worker, dice_from(dice, 1, AT_ONCE), false);
    else if (kind < 60)
        dump_block(worker, &own, &worker->own[mine]);
    else if (kind < 70)
        load_blocks(worker, &common, NULL, 1, false);
    else if (kind < 80)
        dump_block(worker, &common, NULL);
    else if (kind < 88)
        look_up(worker);
    else if (kind < 92)
        remove_block(worker, &own, &worker->own[mine]);
    else if (kind < 94)
        remove_block(worker, &common, NULL);
    else if (kind < 97)
        load_own(worker, AT_ONCE, true);
    else
        look_at_health(worker);
}

/* A moment between calls; says whether the epoch is over. */
static bool pause_or_over(worker_t *worker)
{
    epoch_t *epoch = worker->epoch;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)dice_from(&worker->dice, 0, PAUSE_MAX_MS) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&epoch->lock);
    while (!epoch->over)
        if (pthread_cond_timedwait(&epoch->changed, &epoch->lock, &until) == ETIMEDOUT) break;
    const bool over = epoch->over;
    pthread_mutex_unlock(&epoch->lock);
    return over;
}

static void *run(void *argument)
{
    worker_t *worker = argument;
    while (!worker->closed && !pause_or_over(worker)) one_call(worker);
    return NULL;
}

void worker_make(worker_t *worker, int number)
{
    memset(worker, 0, sizeof *worker);
    worker->number = number;
    make_blocks(&worker->loads[0]);
    make_blocks(&worker->loads[1]);
    make_blocks(&worker->dumps);
}

void worker_begin(worker_t *worker, epoch_t *epoch)
{
    worker->epoch = epoch;
    worker->closed = false;
    worker->dice = dice(epoch->seed, 100 + (uint64_t)worker->number);
    CHECK(pthread_create(&worker->thread, NULL, run, worker) == 0);
}

void worker_join(worker_t *worker) { CHECK(pthread_join(worker->thread, NULL) == 0); }

/* On a very busy machine even a healthy path may pass its limit, and the outer breaker closes later
 * than the paths come back: it is asked again. */
static void verify_block(worker_t *worker, unsigned at)
{
    const struct timespec moment = {.tv_nsec = VERIFY_PAUSE_MS * 1000000L};
    const kvpath_block_id_t id = own_id(worker->number, at);
    own_t *own = &worker->own[at];
    for (int try = 0; try < VERIFY_TRIES; try++) {
        const uint64_t errors = worker->errors;
        load_blocks(worker, &id, &own, 1, false);
        if (own->known != PRESENT || worker->errors == errors) return;
        nanosleep(&moment, NULL);
    }
    FAIL("all is well, and block %s cannot be loaded: %s", block_name(&id), kvpath_last_error());
}

void worker_verify(worker_t *worker)
{
    for (unsigned at = 0; at < OWN; at++) verify_block(worker, at);
}

void worker_settle(worker_t *worker, const char *storage)
{
    for (unsigned at = 0; at < OWN; at++) {
        const kvpath_block_id_t id = own_id(worker->number, at);
        const uint8_t stamp = check_block_file(storage, &id);
        const bool there = stamp != 0;
        own_t *own = &worker->own[at];
        if (there && own->known == ABSENT) FAIL("removed block %s is there", block_name(&id));
        if (!there && own->known == PRESENT)
            FAIL("stored block %s is lost%s", block_name(&id), history_text(own, storage, &id));
        if (there) check_stamp(own, stamp, storage, &id);
        own->known = there ? PRESENT : ABSENT;
        own->settled = stamp;
        own->dumped = 0;
        own->late_dump = own->late_remove = false;
    }
}
