/* Few descriptors: a shortage of this process says nothing about the paths (R22, local). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "limits.h"

static const shape_t shape = {4096, 4096, 16384}; /* 4 shards */
enum { FEW = 64, PATHS = 3, THREADS = 4, BLOCKS = 150, LIMIT_MS = 120000 };

static const char *paths_of(const char *storage)
{
    const char *parent = temp_dir(), *roots = "";
    for (int at = 0; at < PATHS; at++) {
        const char *path = text("%s/path%d", parent, at);
        CHECK(symlink(storage, path) == 0);
        roots = text("%s%s\"%s\"", roots, at > 0 ? ", " : "", path);
    }
    return text("[%s]", roots);
}

struct share {
    kvpath_store_t store;
    batch_t *blocks;
};

/* A task for each shard, all in flight; then the same for loads. */
static void *dump_and_load(void *argument)
{
    struct share *share = argument;
    batch_t *blocks = share->blocks;
    kvpath_task_t *tasks = calloc(blocks->count, sizeof *tasks);
    CHECK(tasks != NULL);
    batch_fill(blocks);
    for (size_t at = 0; at < blocks->count; at++)
        CHECK_OK(kvpath_dump(share->store, &blocks->shards[at], 1, &tasks[at]));
    for (size_t at = 0; at < blocks->count; at++)
        CHECK_OK(kvpath_wait(share->store, tasks[at], LIMIT_MS));
    batch_wipe(blocks);
    for (size_t at = 0; at < blocks->count; at++)
        CHECK_OK(kvpath_load(share->store, &blocks->shards[at], 1, &tasks[at]));
    for (size_t at = 0; at < blocks->count; at++)
        CHECK_OK(kvpath_wait(share->store, tasks[at], LIMIT_MS));
    free(tasks);
    return NULL;
}

/* `ulimit -n 64` with thousands of transfers in flight on three paths. */
static void under_64(const char *json, const char *storage)
{
    pthread_t threads[THREADS];
    struct share shares[THREADS];
    set_hard(RLIMIT_NOFILE, FEW);
    kvpath_store_t store = open_shown(json);
    for (size_t at = 0; at < THREADS; at++) {
        shares[at] = (struct share){store, batch(shape, 1 + at * 1000, BLOCKS, 0)};
        CHECK(pthread_create(&threads[at], NULL, dump_and_load, &shares[at]) == 0);
    }
    for (size_t at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    for (size_t at = 0; at < THREADS; at++) batch_check(shares[at].blocks);
    check_nothing_counted(store);
    CHECK_EQ(stats_of(store).failovers, 0);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(storage, ".tmp"), 0);
    CHECK_EQ(count_files(text("%s/data", storage), NULL), THREADS * BLOCKS);
}

CASE(ulimit_n_64_buffered)
{
    const char *storage = temp_dir();
    under_64(config(paths_of(storage), shape, ""), storage);
}

CASE(ulimit_n_64_direct)
{
    const char *storage = temp_dir();
    if (!direct_works(storage)) SKIP("the file system takes no O_DIRECT");
    const char *roots = paths_of(storage);
    under_64(text("{\"storage_backends\": %s, \"device_id\": 0, \"tensor_size\": 4096, "
                  "\"shard_size\": 4096, \"block_size\": 16384, \"posix_io_engine\": \"%s\", "
                  "\"data_dir_shard_bytes\": 0, \"timeout_ms\": 0}",
                  roots, engine()),
             storage);
}

/* The same with time limits that a shortage could be taken for. */
CASE(ulimit_n_64_with_time_limits)
{
    const char *storage = temp_dir();
    under_64(text("{\"storage_backends\": %s, \"device_id\": 0, \"tensor_size\": 4096, "
                  "\"shard_size\": 4096, \"block_size\": 16384, \"posix_io_engine\": \"%s\", "
                  "\"data_dir_shard_bytes\": 0, \"io_direct\": false, \"timeout_ms\": 300000}",
                  paths_of(storage), engine()),
             storage);
}

/* A ring has files of its own and may need no descriptor of the process. */
static void refused_or_done(kvpath_status_t status)
{
    if (strcmp(engine(), "io_uring") == 0 && status == KVPATH_OK) return;
    CHECK_STATUS(status, KVPATH_OS_ERROR);
    CHECK_HAS(kvpath_last_error(), "EMFILE");
}

/* No descriptor at all: the attempt waits as long as it may, ends with EMFILE, and nothing counts.
 * With a descriptor again, everything goes on. */
CASE(none_left_ends_with_emfile)
{
    const char *storage = temp_dir();
    const char *json = text("{\"storage_backends\": %s, \"device_id\": 0, \"tensor_size\": 4096, "
                            "\"shard_size\": 4096, \"block_size\": 16384, \"posix_io_engine\": "
                            "\"%s\", \"data_dir_shard_bytes\": 0, \"io_direct\": false, "
                            "\"timeout_ms\": 1500}",
                            paths_of(storage), engine());
    kvpath_store_t store = open_shown(json);
    batch_t *stored = batch(shape, 1, 2, 0), *more = batch(shape, 10, 2, 0);
    dump_batch(store, stored);
    batch_fill(more);
    take_descriptors(FEW);
    refused_or_done(load(store, stored->shards, 1));
    refused_or_done(dump(store, more->shards, more->count));
    check_nothing_counted(store);
    CHECK_OK(kvpath_check_health(store));
    give_back(FEW);
    load_batch(store, stored);
    dump_batch(store, more);
    load_batch(store, more);
    check_nothing_counted(store);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(storage, ".tmp"), 0);
}

/* A shortage that ends in time is only a wait. */
CASE(none_left_for_a_while)
{
    const char *storage = temp_dir();
    kvpath_store_t store = open_shown(config(paths_of(storage), shape, ""));
    batch_t *blocks = batch(shape, 1, 64, 0);
    kvpath_task_t task = 0;
    dump_batch(store, blocks);
    batch_wipe(blocks);
    take_descriptors(FEW);
    CHECK_OK(kvpath_load(store, blocks->shards, blocks->count, &task));
    kvpath_status_t status = kvpath_wait(store, task, 200);
    if (strcmp(engine(), "io_uring") == 0 && status == KVPATH_OK) SKIP("it needs none");
    CHECK_EQ(status, KVPATH_RETRY);
    give_back(1); /* one is enough */
    CHECK_OK(kvpath_wait(store, task, LIMIT_MS));
    give_back(FEW);
    batch_check(blocks);
    check_nothing_counted(store);
    CHECK_OK(kvpath_close(store));
}

/* Names are asked for by path: what needs no descriptor is not refused for want of one. */
CASE(lookups_need_no_descriptor)
{
    kvpath_store_t store = open_shown(config(paths_of(temp_dir()), shape, ""));
    batch_t *blocks = batch(shape, 1, 2, 0);
    kvpath_block_id_t absent = block_id(99);
    dump_batch(store, blocks);
    take_descriptors(FEW);
    CHECK(present(store, &blocks->shards[0].block));
    give_back(2); /* a miss is verified by reading the marker (R24) */
    CHECK(!present(store, &absent));
    give_back(FEW);
    CHECK_OK(kvpath_close(store));
}

CASE(open_says_what_it_lacks)
{
    const char *root = temp_dir();
    size_t threads = thread_count();
    const char *json = config(text("[\"%s\"]", root), shape, "");
    kvpath_store_t store = 77;
    take_descriptors(FEW);
    kvpath_status_t status = kvpath_open(json, &store);
    const char *why = text("%s", kvpath_last_error());
    give_back(FEW);
    CHECK(status != KVPATH_OK);
    CHECK_EQ(store, 77);
    CHECK_HAS(why, "EMFILE");
    CHECK_EQ(count_files(root, ".tmp"), 0);
    while (thread_count() > threads) usleep(1000); /* /proc forgets a joined thread late */
    store = open_shown(json);
    CHECK_OK(kvpath_close(store));
}

/* A store that lost its event descriptor to a shortage gets one when there is room again. */
CASE(event_descriptor)
{
    kvpath_store_t store = open_shown(config(text("[\"%s\"]", temp_dir()), shape, ""));
    int32_t fd = -5;
    take_descriptors(FEW);
    CHECK_STATUS(kvpath_event_fd(store, &fd), KVPATH_OS_ERROR);
    CHECK_EQ(fd, -5);
    CHECK_HAS(kvpath_last_error(), "eventfd");
    give_back(1);
    CHECK_OK(kvpath_event_fd(store, &fd));
    CHECK(fd >= 0);
    give_back(FEW);
    CHECK_OK(kvpath_close(store));
}
