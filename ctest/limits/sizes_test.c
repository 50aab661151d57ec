/* Many: shards, tasks, backends, small blocks, the same id (R3, R26, R38, R54, R74). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"

enum { MANY = 100000, THREADS = 4, LIMIT_MS = 240000 };

/* ---- 100,000 shards ---- */

static const shape_t small = {512, 512, 51200}; /* 100 shards */

CASE(shards_100000_in_one_task)
{
    kvpath_store_t store = open_shown(config(text("[\"%s\"]", temp_dir()), small, ""));
    batch_t *blocks = batch(small, 1, MANY / 100, 0);
    CHECK_EQ(blocks->count, MANY);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK_EQ(stats_of(store).loaded_shards, MANY);
    CHECK_EQ(stats_of(store).queued_shards, 0);
    CHECK_OK(kvpath_close(store));
}

struct many {
    kvpath_store_t store;
    batch_t *blocks;
    kvpath_task_t *tasks;
    size_t from, to;
};

static void *wait_for_many(void *argument)
{
    struct many *many = argument;
    for (size_t at = many->from; at < many->to; at++) {
        kvpath_task_t task;
        while ((task = __atomic_load_n(&many->tasks[at], __ATOMIC_ACQUIRE)) == 0) usleep(100);
        CHECK_OK(kvpath_wait(many->store, task, LIMIT_MS));
    }
    return NULL;
}

/* All are submitted before the last is waited for; whoever waits keeps the results few. */
CASE(tasks_100000_of_one_shard)
{
    kvpath_store_t store = open_shown(config(text("[\"%s\"]", temp_dir()), small, ""));
    batch_t *blocks = batch(small, 1, MANY / 100, 0);
    kvpath_task_t *tasks = calloc(MANY, sizeof *tasks);
    pthread_t threads[THREADS];
    struct many many[THREADS];
    CHECK(tasks != NULL);
    dump_batch(store, blocks);
    batch_wipe(blocks);
    for (size_t at = 0; at < THREADS; at++) {
        size_t share = MANY / THREADS;
        many[at] = (struct many){store, blocks, tasks, at * share, (at + 1) * share};
        CHECK(pthread_create(&threads[at], NULL, wait_for_many, &many[at]) == 0);
    }
    for (size_t at = 0; at < MANY; at++) {
        kvpath_task_t task = 0;
        CHECK_OK(kvpath_load(store, &blocks->shards[at], 1, &task));
        __atomic_store_n(&tasks[at], task, __ATOMIC_RELEASE);
    }
    for (size_t at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    batch_check(blocks);
    CHECK_EQ(stats_of(store).tasks_finished, MANY + 1);
    CHECK_OK(kvpath_close(store));
    free(tasks);
}

/* A call in a thread of its own. */
struct call {
    kvpath_store_t store;
    kvpath_task_t task;
    kvpath_status_t status, *statuses;
    pid_t thread;
};

enum { NO_STATUS = 9, END_LIMIT_S = 60 };

static void *wait_for_results(void *argument)
{
    struct call *call = argument;
    __atomic_store_n(&call->thread, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    call->status = kvpath_wait_results(call->store, call->task, END_LIMIT_S * 1000,
                                       call->statuses, MANY);
    return NULL;
}

static void *close_store(void *argument)
{
    struct call *call = argument;
    __atomic_store_n(&call->status, kvpath_close(call->store), __ATOMIC_RELEASE);
    return NULL;
}

/* Whether the thread has come to where it waits. */
static bool is_waiting(struct call *call)
{
    char state = 0;
    const pid_t thread = __atomic_load_n(&call->thread, __ATOMIC_ACQUIRE);
    if (thread == 0) return false;
    FILE *file = fopen(text("/proc/self/task/%d/stat", (int)thread), "r");
    CHECK(file != NULL);
    CHECK(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
    fclose(file);
    return state == 'S';
}

/* Opens the FIFO that a load waits for; a load that close still found in a queue never comes. */
static void let_go(const char *fifo, struct call *closing)
{
    int writer = -1;
    while (writer < 0 && __atomic_load_n(&closing->status, __ATOMIC_ACQUIRE) == NO_STATUS) {
        writer = open(fifo, O_WRONLY | O_NONBLOCK);
        if (writer < 0) usleep(1000);
    }
    CHECK(unlink(fifo) == 0);
    if (writer >= 0) close(writer);
}

/* Nothing of it runs: all are queued behind one that hangs, one more is refused, and close ends
 * them all, before what hangs and soon. */
CASE(shards_100000_queued_and_closed)
{
    const char *root = temp_dir();
    kvpath_store_t store =
        open_shown(config(text("[\"%s\"]", root), small,
                          ", \"max_queued_shards\": 100001, \"posix_data_trans_concurrency\": 1"));
    batch_t *blocks = batch(small, 1, MANY / 100 + 1, 0), *first = batch(small, 5000, 1, 0);
    const char *fifo = block_path(root, &first->shards[0].block, 0);
    struct call waiting = {store, 0, NO_STATUS, calloc(MANY, sizeof(kvpath_status_t)), 0};
    struct call closing = {.store = store, .status = NO_STATUS};
    pthread_t waiter, closer;
    kvpath_task_t task = 0, other = 0;
    CHECK(waiting.statuses != NULL);
    batch_fill(blocks);
    CHECK_STATUS(kvpath_dump(store, blocks->shards, MANY + 2, &task), KVPATH_INVALID_PARAM);
    CHECK_HAS(kvpath_last_error(), "max_queued_shards");
    CHECK_EQ(task, 0);
    CHECK(mkfifo(fifo, 0600) == 0);
    CHECK_OK(kvpath_load(store, first->shards, 1, &task));
    while (stats_of(store).in_flight == 0) usleep(1000);
    CHECK_OK(kvpath_dump(store, blocks->shards, MANY, &waiting.task));
    CHECK_STATUS(kvpath_dump(store, blocks->shards + MANY, 1, &other), KVPATH_RETRY);
    CHECK_HAS(kvpath_last_error(), "max_queued_shards");
    CHECK_EQ(stats_of(store).in_flight, 1);
    CHECK_EQ(stats_of(store).queued_shards, MANY + 1); /* accepted and not ended */
    CHECK(pthread_create(&waiter, NULL, wait_for_results, &waiting) == 0);
    while (!is_waiting(&waiting)) usleep(1000);
    const time_t begin = time(NULL);
    CHECK(pthread_create(&closer, NULL, close_store, &closing) == 0);
    CHECK(pthread_join(waiter, NULL) == 0);
    CHECK_EQ(waiting.status, KVPATH_CLOSED);
    for (size_t at = 0; at < MANY; at++) CHECK_EQ(waiting.statuses[at], KVPATH_CLOSED);
    /* What runs is let finish (R54): it is waited for. */
    CHECK_EQ(__atomic_load_n(&closing.status, __ATOMIC_ACQUIRE), NO_STATUS);
    let_go(fifo, &closing);
    CHECK(pthread_join(closer, NULL) == 0);
    CHECK_OK(closing.status);
    CHECK(time(NULL) - begin <= END_LIMIT_S);
    CHECK_EQ(count_files(text("%s/data", root), NULL), 0);
    free(waiting.statuses);
}

/* ---- 64 backends ---- */

/* At rest it has few threads whatever n (R74), and few descriptors: workers end after some seconds
 * without work, and so does what they had open. */
static void wait_idle(size_t threads, size_t descriptors)
{
    enum { IDLE_THREADS = 6, IDLE_DESCRIPTORS = 8, IDLE_LIMIT_S = 60 };
    const time_t begin = time(NULL);
    for (;;) {
        const size_t now = thread_count() - threads, open = descriptor_count() - descriptors;
        if (now <= IDLE_THREADS && open <= IDLE_DESCRIPTORS) return;
        if (time(NULL) - begin > IDLE_LIMIT_S)
            FAIL("at rest it has %zu threads and %zu descriptors", now, open);
        usleep(10000);
    }
}

CASE(backends_64)
{
    enum { PATHS = 64, BLOCKS = 1024 };
    static const shape_t shape = {4096, 4096, 4096};
    const char *storage = temp_dir(), *parent = temp_dir(), *roots = "";
    size_t threads = thread_count(), descriptors = descriptor_count(), used = 0;
    for (int at = 0; at < PATHS; at++) {
        const char *path = text("%s/path%02d", parent, at);
        CHECK(symlink(storage, path) == 0);
        roots = text("%s%s\"%s\"", roots, at > 0 ? ", " : "", path);
    }
    kvpath_store_t store = open_shown(config(text("[%s]", roots), shape, ""));
    wait_idle(threads, descriptors);
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    for (size_t at = 0; at < blocks->count; at++)
        used += present(store, &blocks->shards[at].block);
    CHECK_EQ(used, BLOCKS);
    printf("%zu threads busy, %zu descriptors\n", thread_count() - threads,
           descriptor_count() - descriptors);
    check_nothing_counted(store);
    wait_idle(threads, descriptors);
    /* Every path but the last is taken out: its blocks come through that one. */
    for (int at = 0; at < PATHS - 1; at++)
        CHECK_OK(kvpath_backend_set(store, text("%s/path%02d", parent, at),
                                    KVPATH_BACKEND_SET_OUT));
    load_batch(store, blocks);
    wait_idle(threads, descriptors);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(descriptor_count(), descriptors);
    CHECK_EQ(count_files(text("%s/data", storage), NULL), BLOCKS);
}

/* ---- small blocks ---- */

CASE(blocks_of_4_kib_direct)
{
    static const shape_t shape = {4096, 4096, 4096};
    kvpath_store_t store = open_shown(direct_config(temp_dir(), shape, ", \"timeout_ms\": 0"));
    batch_t *blocks = batch(shape, 1, 2000, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
}

/* ---- nothing, and one id over and over ---- */

CASE(nothing_is_a_finished_task)
{
    static const shape_t shape = {4096, 4096, 4096};
    kvpath_store_t store = open_shown(config(text("[\"%s\"]", temp_dir()), shape, ""));
    enum { TASKS = 1000 };
    kvpath_task_t tasks[TASKS], listed[TASKS];
    size_t count = 0;
    for (size_t at = 0; at < TASKS; at++) {
        uint8_t finished = 0;
        if (at % 2 == 0) CHECK_OK(kvpath_load(store, NULL, 0, &tasks[at]));
        else CHECK_OK(kvpath_dump(store, NULL, 0, &tasks[at]));
        CHECK_OK(kvpath_check(store, tasks[at], &finished));
        CHECK_EQ(finished, 1);
    }
    CHECK_OK(kvpath_finished(store, listed, TASKS, &count));
    CHECK_EQ(count, TASKS);
    for (size_t at = 0; at < TASKS; at++) {
        CHECK_EQ(listed[at], tasks[at]);
        CHECK_OK(kvpath_wait_results(store, tasks[at], 0, NULL, 0));
    }
    CHECK_OK(kvpath_close(store));
}

enum { TIMES = 1000 };
static const shape_t one_block = {4096, 16384, 65536};

struct over {
    kvpath_store_t store;
    batch_t *blocks; /* TIMES / THREADS copies of one block's memory */
    bool dumps;
};

/* Every shard of one id, in a task of its own each time, all in flight. */
static void *over_and_over(void *argument)
{
    struct over *over = argument;
    batch_t *blocks = over->blocks;
    kvpath_task_t tasks[TIMES / THREADS];
    for (size_t at = 0; at < blocks->blocks; at++) {
        kvpath_shard_t *shards = &blocks->shards[at * blocks->per_block];
        if (over->dumps) CHECK_OK(kvpath_dump(over->store, shards, blocks->per_block, &tasks[at]));
        else CHECK_OK(kvpath_load(over->store, shards, blocks->per_block, &tasks[at]));
    }
    for (size_t at = 0; at < blocks->blocks; at++)
        CHECK_OK(kvpath_wait(over->store, tasks[at], LIMIT_MS));
    return NULL;
}

static void one_id(bool dumps)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_shown(config(text("[\"%s\"]", root), one_block, ""));
    kvpath_block_id_t id = block_id(7);
    pthread_t threads[THREADS];
    struct over over[THREADS];
    if (!dumps) dump_batch(store, batch(one_block, 7, 1, 0));
    for (size_t at = 0; at < THREADS; at++) {
        batch_t *blocks = batch(one_block, 7, TIMES / THREADS, 0);
        for (size_t shard = 0; shard < blocks->count; shard++) blocks->shards[shard].block = id;
        if (dumps) batch_fill(blocks);
        over[at] = (struct over){store, blocks, dumps};
        CHECK(pthread_create(&threads[at], NULL, over_and_over, &over[at]) == 0);
    }
    for (size_t at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    for (size_t at = 0; at < THREADS; at++) batch_check(over[at].blocks);
    check_nothing_counted(store);
    CHECK_EQ(stats_of(store).unfinished_blocks, 0);
    CHECK_OK(kvpath_close(store));
    check_file(block_path(root, &id, 0), &id, one_block.block);
    CHECK_EQ(count_files(root, ".tmp"), 0);
}

CASE(one_id_loaded_by_1000_tasks) { one_id(false); }
CASE(one_id_dumped_by_1000_tasks) { one_id(true); }
