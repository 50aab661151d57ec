/* Closing a store that is in use: R54, R72. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

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
