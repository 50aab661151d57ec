/* Task handles: R26, R54, R72. A task that hangs is a load of a block whose file is a FIFO: the
 * worker's open waits for a writer, and the test is that writer when it wants to be. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {4096, 4096, 4096};
enum { LIMIT_MS = 60000 };

/* One transfer at a time. */
static const char *const one_at_a_time = ", \"posix_data_trans_concurrency\": 1";

struct hang {
    kvpath_store_t store;
    batch_t *block;
    kvpath_task_t task;
    const char *path;
};

static struct hang hang_on(kvpath_store_t store, const char *root)
{
    struct hang hang = {.store = store, .block = batch(shape, 1000, 1, 0)};
    hang.path = block_path(root, &hang.block->shards[0].block, 0);
    CHECK(mkfifo(hang.path, 0600) == 0);
    CHECK_OK(kvpath_load(store, hang.block->shards, 1, &hang.task));
    return hang;
}

/* Returns when the worker is in its open, and lets it go on. */
static void let_go(const struct hang *hang)
{
    int writer = open(hang->path, O_WRONLY);
    CHECK(writer >= 0);
    CHECK(unlink(hang->path) == 0);
    close(writer);
}

CASE(handles_grow_and_are_never_zero)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    batch_t *blocks = batch(shape, 1, 4, 0);
    kvpath_task_t last = 0;
    batch_fill(blocks);
    for (int round = 0; round < 200; round++) {
        kvpath_task_t task = 0;
        if (round % 3 == 0) {
            CHECK_OK(kvpath_load(store, NULL, 0, &task));
        } else {
            CHECK_OK(kvpath_dump(store, &blocks->shards[round % 4], 1, &task));
        }
        CHECK(task > last);
        last = task;
        if (round % 2 == 0) CHECK_OK(kvpath_wait(store, task, 0));
    }
    CHECK_OK(kvpath_close(store));
}

CASE(unknown_handles)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    static const kvpath_task_t unknown[] = {0, 1, 12345, UINT64_MAX};
    for (size_t at = 0; at < 4; at++) {
        uint8_t finished = 9;
        kvpath_status_t status = 9;
        CHECK_STATUS(kvpath_check(store, unknown[at], &finished), KVPATH_NOT_FOUND);
        CHECK_EQ(finished, 9);
        CHECK_STATUS(kvpath_wait(store, unknown[at], 0), KVPATH_NOT_FOUND);
        CHECK_STATUS(kvpath_wait(store, unknown[at], 10), KVPATH_NOT_FOUND);
        CHECK_STATUS(kvpath_wait_results(store, unknown[at], 0, &status, 1), KVPATH_NOT_FOUND);
        CHECK_EQ(status, 9);
        CHECK_STATUS(kvpath_cancel(store, unknown[at]), KVPATH_NOT_FOUND);
        CHECK_STATUS(kvpath_forget(store, unknown[at]), KVPATH_NOT_FOUND);
    }
    CHECK_OK(kvpath_close(store));
}

CASE(wait_consumes_the_handle)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    batch_t *block = batch(shape, 1, 1, 0);
    kvpath_task_t task = 0;
    uint8_t finished = 9;
    batch_fill(block);
    CHECK_OK(kvpath_dump(store, block->shards, 1, &task));
    CHECK_OK(kvpath_wait(store, task, LIMIT_MS));
    CHECK_STATUS(kvpath_wait(store, task, 0), KVPATH_NOT_FOUND);
    CHECK_STATUS(kvpath_check(store, task, &finished), KVPATH_NOT_FOUND);
    CHECK_OK(kvpath_close(store));
}

CASE(wait_limit_gives_retry)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, one_at_a_time);
    struct hang hang = hang_on(store, root);
    uint8_t finished = 9;
    kvpath_status_t status = 9;
    for (int round = 0; round < 3; round++)
        CHECK_STATUS(kvpath_wait(store, hang.task, 1), KVPATH_RETRY);
    CHECK_STATUS(kvpath_wait_results(store, hang.task, 1, &status, 1), KVPATH_RETRY);
    CHECK_EQ(status, 9);
    CHECK_OK(kvpath_check(store, hang.task, &finished));
    CHECK_EQ(finished, 0);
    let_go(&hang);
    CHECK_STATUS(kvpath_wait_results(store, hang.task, 0, &status, 1), KVPATH_NOT_FOUND);
    CHECK_EQ(status, KVPATH_NOT_FOUND);
    CHECK_OK(kvpath_close(store));
}

CASE(wait_results_with_too_little_room)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    batch_t *blocks = batch(shape, 1, 3, 0);
    kvpath_status_t statuses[4] = {9, 9, 9, 9};
    kvpath_task_t task = 0;
    batch_fill(blocks);
    CHECK_OK(kvpath_dump(store, blocks->shards, 3, &task));
    CHECK_STATUS(kvpath_wait_results(store, task, 0, statuses, 2), KVPATH_INVALID_PARAM);
    CHECK_EQ(statuses[0], 9);
    CHECK_OK(kvpath_wait_results(store, task, 0, statuses, 4)); /* the handle stayed */
    CHECK(statuses[0] == 0 && statuses[1] == 0 && statuses[2] == 0);
    CHECK_EQ(statuses[3], 9);
    CHECK_OK(kvpath_close(store));
}

CASE(cancel_ends_what_is_queued)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, one_at_a_time);
    batch_t *blocks = batch(shape, 1, 8, 0);
    dump_batch(store, blocks);
    batch_wipe(blocks);
    struct hang hang = hang_on(store, root); /* takes the only slot */
    kvpath_task_t task = 0;
    kvpath_status_t statuses[8];
    CHECK_OK(kvpath_load(store, blocks->shards, 8, &task));
    CHECK_OK(kvpath_cancel(store, task));
    CHECK_STATUS(kvpath_wait_results(store, task, 0, statuses, 8), KVPATH_CANCELLED);
    for (size_t at = 0; at < 8; at++) {
        CHECK_EQ(statuses[at], KVPATH_CANCELLED);
        CHECK(shard_wrong(blocks, at) > 0);
    }
    let_go(&hang);
    CHECK_STATUS(kvpath_wait(store, hang.task, 0), KVPATH_NOT_FOUND);
    load_batch(store, blocks); /* the store goes on */
    CHECK_OK(kvpath_close(store));
}

CASE(cancel_of_a_finished_task_changes_nothing)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    batch_t *block = batch(shape, 1, 1, 0);
    int32_t fd = -1;
    kvpath_task_t task = 0;
    batch_fill(block);
    CHECK_OK(kvpath_event_fd(store, &fd));
    CHECK_OK(kvpath_dump(store, block->shards, 1, &task));
    struct pollfd event = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&event, 1, LIMIT_MS), 1);
    CHECK_OK(kvpath_cancel(store, task));
    CHECK_OK(kvpath_wait(store, task, 0));
    CHECK_OK(kvpath_close(store));
}

CASE(forget_drops_a_result)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, one_at_a_time);
    struct hang hang = hang_on(store, root);
    kvpath_task_t task = 0;
    size_t count = 9;
    CHECK_OK(kvpath_load(store, NULL, 0, &task));
    CHECK_OK(kvpath_forget(store, task));
    CHECK_STATUS(kvpath_wait(store, task, 0), KVPATH_NOT_FOUND);
    CHECK_STATUS(kvpath_forget(store, task), KVPATH_NOT_FOUND);
    CHECK_OK(kvpath_forget(store, hang.task)); /* a running one */
    CHECK_STATUS(kvpath_wait(store, hang.task, 1), KVPATH_NOT_FOUND);
    let_go(&hang);
    CHECK_OK(kvpath_finished(store, &task, 1, &count));
    CHECK_EQ(count, 0);
    CHECK_OK(kvpath_close(store));
}

CASE(finished_and_event_descriptor)
{
    enum { TASKS = 10 };
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    batch_t *blocks = batch(shape, 1, TASKS, 0);
    kvpath_task_t tasks[TASKS], listed[TASKS] = {0};
    size_t count = 9, known = 0;
    int32_t fd = -1, again = -1;
    batch_fill(blocks);
    CHECK_OK(kvpath_event_fd(store, &fd));
    CHECK_OK(kvpath_event_fd(store, &again));
    CHECK(fd >= 0 && fd == again);
    struct pollfd event = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&event, 1, 0), 0);
    CHECK_OK(kvpath_finished(store, listed, TASKS, &count));
    CHECK_EQ(count, 0);
    for (size_t at = 0; at < TASKS; at++)
        CHECK_OK(kvpath_dump(store, &blocks->shards[at], 1, &tasks[at]));
    while (known < TASKS) {
        CHECK_EQ(poll(&event, 1, LIMIT_MS), 1);
        size_t room = TASKS - known < 3 ? TASKS - known : 3;
        CHECK_OK(kvpath_finished(store, listed + known, room, &count));
        CHECK(count >= 1 && count <= room); /* readable means that there is something */
        known += count;
    }
    CHECK_EQ(poll(&event, 1, 0), 0);
    for (size_t at = 0; at < TASKS; at++) {
        size_t times = 0;
        for (size_t other = 0; other < TASKS; other++) times += listed[other] == tasks[at];
        CHECK_EQ(times, 1);                         /* each once */
        CHECK_OK(kvpath_wait(store, tasks[at], 1)); /* the handles stayed */
    }
    CHECK_OK(kvpath_close(store));
    CHECK(fcntl(fd, F_GETFD) == -1); /* closed by the library */
}

/* A result that was waited for is not listed any more. */
CASE(waited_for_before_listed)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    int32_t fd = -1;
    kvpath_task_t task = 0, listed = 77;
    size_t count = 9;
    CHECK_OK(kvpath_event_fd(store, &fd));
    CHECK_OK(kvpath_load(store, NULL, 0, &task));
    struct pollfd event = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&event, 1, LIMIT_MS), 1);
    CHECK_OK(kvpath_wait(store, task, 0));
    CHECK_OK(kvpath_finished(store, &listed, 1, &count));
    CHECK_EQ(count, 0);
    CHECK_EQ(listed, 77);
    CHECK_EQ(poll(&event, 1, 0), 0);
    CHECK_OK(kvpath_close(store));
}

/* R26: results that nobody asks for are kept up to 65,536; then the oldest go, and are counted. */
CASE(results_are_kept_up_to_65536)
{
    enum { KEPT = 65536, MORE = 1000 };
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    kvpath_task_t first = 0, task = 0;
    for (int at = 0; at < KEPT + MORE; at++) {
        CHECK_OK(kvpath_load(store, NULL, 0, &task));
        if (at == 0) first = task;
    }
    CHECK_EQ(stats_of(store).dropped_results, MORE);
    CHECK_STATUS(kvpath_wait(store, first, 0), KVPATH_NOT_FOUND);
    CHECK_OK(kvpath_wait(store, task, 0));
    CHECK_OK(kvpath_close(store));
}

CASE(too_many_queued_shards)
{
    const char *root = temp_dir();
    kvpath_store_t store =
        open_root(root, shape, text("%s, \"max_queued_shards\": 6", one_at_a_time));
    batch_t *blocks = batch(shape, 1, 8, 0);
    kvpath_task_t task = 77;
    batch_fill(blocks);
    /* What never fits is no matter of trying again. */
    CHECK_STATUS(kvpath_dump(store, blocks->shards, 8, &task), KVPATH_INVALID_PARAM);
    CHECK_HAS(kvpath_last_error(), "max_queued_shards");
    CHECK_EQ(task, 77);
    struct hang hang = hang_on(store, root);
    kvpath_task_t waiting = 0;
    CHECK_OK(kvpath_dump(store, blocks->shards, 5, &waiting));
    CHECK_STATUS(kvpath_dump(store, blocks->shards + 5, 3, &task), KVPATH_RETRY);
    CHECK_HAS(kvpath_last_error(), "max_queued_shards");
    CHECK_EQ(task, 77);
    let_go(&hang);
    CHECK_OK(kvpath_wait(store, waiting, 0));
    CHECK_STATUS(kvpath_wait(store, hang.task, 0), KVPATH_NOT_FOUND);
    CHECK_OK(dump(store, blocks->shards + 5, 3)); /* there is room again */
    CHECK_OK(kvpath_close(store));
}

struct caller {
    kvpath_store_t store;
    kvpath_task_t task;
    kvpath_status_t status;
    pthread_barrier_t *start;
};

static void *wait_for_task(void *argument)
{
    struct caller *caller = argument;
    if (caller->start != NULL) pthread_barrier_wait(caller->start);
    caller->status = kvpath_wait(caller->store, caller->task, 0);
    return NULL;
}

static void *close_store(void *argument)
{
    struct caller *caller = argument;
    kvpath_status_t status = kvpath_close(caller->store);
    __atomic_store_n(&caller->status, status, __ATOMIC_RELEASE);
    return NULL;
}

CASE(two_threads_wait_for_one_task)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, one_at_a_time);
    struct hang hang = hang_on(store, root);
    pthread_barrier_t start;
    pthread_t threads[2];
    CHECK(pthread_barrier_init(&start, NULL, 3) == 0);
    struct caller callers[2] = {{store, hang.task, 9, &start}, {store, hang.task, 9, &start}};
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, wait_for_task, &callers[at]) == 0);
    pthread_barrier_wait(&start);
    let_go(&hang);
    for (int at = 0; at < 2; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
        CHECK_EQ(callers[at].status, KVPATH_NOT_FOUND); /* the miss, and the consumed handle */
    }
    CHECK_OK(kvpath_close(store));
}

/* R54, R72: close ends what is queued, and those who wait for it, though a transfer still hangs. */
CASE(close_ends_waiting_calls)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, one_at_a_time);
    struct hang hang = hang_on(store, root);
    while (stats_of(store).in_flight == 0) sched_yield();
    batch_t *queued = batch(shape, 1, 4, 0);
    kvpath_task_t second = 0;
    CHECK_OK(kvpath_load(store, queued->shards, 4, &second));
    struct caller waiting = {store, hang.task, 9, NULL}, other = {store, second, 9, NULL};
    struct caller closing = {store, 0, 9, NULL};
    pthread_t waiter, other_waiter, closer;
    CHECK(pthread_create(&waiter, NULL, wait_for_task, &waiting) == 0);
    CHECK(pthread_create(&other_waiter, NULL, wait_for_task, &other) == 0);
    CHECK(pthread_create(&closer, NULL, close_store, &closing) == 0);
    CHECK(pthread_join(other_waiter, NULL) == 0);
    CHECK_EQ(other.status, KVPATH_CLOSED);
    CHECK_STATUS(kvpath_close(store), KVPATH_CLOSED); /* only the first call closes */
    /* Let go what hangs; a transfer that close still found in a queue never opens its file. */
    int writer = -1;
    while (writer < 0 && __atomic_load_n(&closing.status, __ATOMIC_ACQUIRE) == 9) {
        writer = open(hang.path, O_WRONLY | O_NONBLOCK);
        if (writer < 0) sched_yield();
    }
    CHECK(unlink(hang.path) == 0); /* a fresh look must not hang again */
    if (writer >= 0) close(writer);
    CHECK(pthread_join(closer, NULL) == 0);
    CHECK_EQ(closing.status, KVPATH_OK);
    /* The running attempt was let finish, with its own result. */
    CHECK(pthread_join(waiter, NULL) == 0);
    CHECK(waiting.status == KVPATH_CLOSED || waiting.status == KVPATH_NOT_FOUND);
    CHECK_EQ(thread_count(), 1);
}
