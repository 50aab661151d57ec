/* Few threads: an ordinary user with `ulimit -u`. What cannot be made is an error that says so, or
 * fewer workers; never a hang, and nothing of it counts against a path. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"

static const shape_t shape = {4096, 4096, 16384};
/* The supervisor, the log, and two for the health of paths. */
enum { BLOCKS = 30, MOST = 12, LIMIT_MS = 60000, IDLE_THREADS = 4 };

static rlim_t threads_allowed;

/* A store that was opened with so few threads works, or its tasks end with an error. */
static void try_open(const char *root)
{
    kvpath_store_t store = 0;
    become_ordinary();
    set_hard(RLIMIT_NPROC, threads_allowed);
    int timeout_ms = threads_allowed < MOST ? 2000 : LIMIT_MS;
    kvpath_status_t status =
        kvpath_open(direct_config(root, shape, text(", \"timeout_ms\": %d", timeout_ms)), &store);
    if (status != KVPATH_OK) {
        CHECK_STATUS(status, KVPATH_OS_ERROR);
        CHECK_HAS(kvpath_last_error(), "cannot be made");
        CHECK_HAS(kvpath_last_error(), "RLIMIT_NPROC");
        CHECK_EQ(count_files(root, ".tmp"), 0);
        printf("%d threads: %s\n", (int)threads_allowed, kvpath_last_error());
        return;
    }
    printf("%d threads: %s runs\n", (int)threads_allowed, engine_used(store));
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    batch_fill(blocks);
    status = dump(store, blocks->shards, blocks->count);
    if (status == KVPATH_OK) {
        load_batch(store, blocks);
        CHECK(present(store, &blocks->shards[0].block));
    } else {
        CHECK_STATUS(status, KVPATH_TIMEOUT);
        CHECK_HAS(kvpath_last_error(), "a worker thread cannot be made");
    }
    check_nothing_counted(store);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, ".tmp"), 0);
    if (status == KVPATH_OK) write_file(text("%s/worked", root), "w", 1);
    else CHECK(threads_allowed < MOST);
}

CASE(ulimit_u_from_one_thread_up)
{
    const char *root = temp_dir();
    for (threads_allowed = 1; threads_allowed <= MOST; threads_allowed++) in_child(try_open, root);
    CHECK(exists(text("%s/worked", root)));
}

/* Threads that are alive, without workers: an open store, idle. No worker can be made: tasks and
 * lookups end by their limits, with a text that says why; with room again they go on. */
static void no_worker(const char *root)
{
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    kvpath_block_id_t id = blocks->shards[0].block;
    uint8_t found = 9;
    become_ordinary();
    log_keep();
    kvpath_store_t store =
        open_shown(direct_config(root, shape, ", \"timeout_ms\": 700, \"lookup_timeout_ms\": 700"));
    batch_fill(blocks);
    set_soft(RLIMIT_NPROC, 1);
    kvpath_status_t status = dump(store, blocks->shards, blocks->count);
    if (status != KVPATH_OK) { /* workers of the sweep at open may be alive still */
        CHECK_STATUS(status, KVPATH_TIMEOUT);
        CHECK_HAS(kvpath_last_error(), "a worker thread cannot be made");
        CHECK_HAS(kvpath_last_error(), "RLIMIT_NPROC is 1");
        log_wait("KV1006");
        CHECK_HAS(log_text(), "RLIMIT_NPROC is 1");
        status = kvpath_lookup(store, &id, 1, &found);
        if (status != KVPATH_OK) CHECK_STATUS(status, KVPATH_TIMEOUT);
    }
    check_nothing_counted(store);
    set_soft(RLIMIT_NPROC, 4096);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    check_nothing_counted(store);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, ".tmp"), 0);
}

CASE(no_worker_can_be_made) { in_child(no_worker, temp_dir()); }

/* Workers that have nothing to do are gone after two seconds. */
static void wait_no_worker(kvpath_store_t store)
{
    struct timespec moment = {.tv_nsec = 50 * 1000 * 1000};
    int left = LIMIT_MS / 50;
    while (stats_of(store).threads > IDLE_THREADS && left-- > 0) nanosleep(&moment, NULL);
    CHECK_EQ(stats_of(store).threads, IDLE_THREADS);
}

/* A store closes without a worker, its queued work ends: what nobody has begun at once, and the
 * removal of what is unfinished after a while. */
static void close_without_workers(const char *root)
{
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    kvpath_task_t task = 0;
    become_ordinary();
    kvpath_store_t store = open_shown(direct_config(root, shape, ", \"timeout_ms\": 0"));
    batch_fill(blocks);
    CHECK_OK(dump(store, blocks->shards, 1));
    wait_no_worker(store);
    set_soft(RLIMIT_NPROC, 1);
    CHECK_OK(kvpath_dump(store, blocks->shards + blocks->per_block, blocks->per_block, &task));
    kvpath_status_t status = kvpath_wait(store, task, 100);
    CHECK(status == KVPATH_RETRY || status == KVPATH_OK);
    log_keep();
    CHECK_OK(kvpath_close(store));
    if (status == KVPATH_RETRY) {
        log_wait("KV1013");
        CHECK_HAS(log_text(), "RLIMIT_NPROC");
    }
}

CASE(close_without_workers) { in_child(close_without_workers, temp_dir()); }
