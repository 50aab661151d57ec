/* Closing a store that is in use: R54, R72. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {4096, 4096, 4096};

struct busy {
    kvpath_store_t store;
    batch_t *blocks;
    int index;
    long *done;
};

static void *be_busy(void *argument)
{
    struct busy *busy = argument;
    kvpath_status_t status = KVPATH_OK;
    for (long round = 0; status == KVPATH_OK; round++) {
        batch_t *blocks = busy->blocks;
        uint8_t found[4];
        kvpath_block_id_t ids[4];
        for (size_t at = 0; at < 4; at++) ids[at] = blocks->shards[at].block;
        if (round % 3 == 0) status = dump(busy->store, blocks->shards, 4);
        if (round % 3 == 1) status = load(busy->store, blocks->shards, 4);
        if (round % 3 == 2) status = kvpath_lookup(busy->store, ids, 4, found);
        __atomic_add_fetch(busy->done, 1, __ATOMIC_RELAXED);
    }
    if (status != KVPATH_CLOSED)
        FAIL("thread %d ended with %s: %s", busy->index, kvpath_status_name(status),
             kvpath_last_error());
    return NULL;
}

CASE(close_while_busy)
{
    enum { THREADS = 6, ROUNDS = 20 };
    const char *root = temp_dir();
    for (int round = 0; round < ROUNDS; round++) {
        kvpath_store_t store = open_root(root, shape, "");
        pthread_t threads[THREADS];
        struct busy busy[THREADS];
        long done = 0;
        for (int at = 0; at < THREADS; at++) {
            busy[at] = (struct busy){store, batch(shape, 10u * (unsigned)at, 4, 0), at, &done};
            batch_fill(busy[at].blocks);
            CHECK(pthread_create(&threads[at], NULL, be_busy, &busy[at]) == 0);
        }
        while (__atomic_load_n(&done, __ATOMIC_RELAXED) < 10 * round) sched_yield();
        CHECK_OK(kvpath_close(store));
        for (int at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
        CHECK_EQ(count_files(root, ".tmp"), 0);
        CHECK_EQ(thread_count(), 1);
    }
}

/* R54: lines of the log wait for a stderr that nobody reads; close does not, beyond its limit. */
CASE(r54_close_ends_in_time_where_stderr_takes_nothing)
{
    enum { FULL_READ = 1 << 16 };
    static uint8_t bytes[FULL_READ];
    const char *root = temp_dir();
    int full[2], kept = dup(STDERR_FILENO);
    CHECK(kept >= 0 && pipe2(full, O_NONBLOCK) == 0);
    for (size_t piece = sizeof bytes; piece > 0;)
        if (write(full[1], bytes, piece) < 0) piece /= 2;
    CHECK(fcntl(full[1], F_SETFL, 0) == 0);
    CHECK(setenv("KVPATH_LOG", "warn", 1) == 0);
    CHECK(dup2(full[1], STDERR_FILENO) >= 0);
    const char *extra = ", \"close_timeout_ms\": 500, \"no_such_key\": 1";
    kvpath_store_t store = open_root(root, shape, extra);
    kvpath_status_t status = kvpath_close(store);
    CHECK(dup2(kept, STDERR_FILENO) >= 0);
    CHECK_EQ(status, KVPATH_TIMEOUT);
    CHECK_HAS(kvpath_last_error(), "stderr");
    /* Read, it lets the thread end. */
    while (thread_count() > 1)
        if (read(full[0], bytes, sizeof bytes) < 0) sched_yield();
    CHECK_OK(kvpath_close(open_root(root, shape, "")));
}
