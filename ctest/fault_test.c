/* Faults on purpose, through the second build of the library (libkvpath_fault.so): R22, R27, R34,
 * R40. What hangs is waited for, and let go, by call; nothing here depends on time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "kvpath_fault.h"

static const shape_t shape = {4096, 4096, 16384}; /* 4 shards */
enum { PATHS = 3, BLOCKS = 12, LIMIT_MS = 60000, LONG_AGO_S = 1000 };

/* One storage through three paths. */
static kvpath_store_t open_paths(const char *storage, const char *extra)
{
    const char *parent = temp_dir(), *roots = "";
    for (int at = 0; at < PATHS; at++) {
        const char *path = text("%s/path%d", parent, at);
        CHECK(symlink(storage, path) == 0);
        roots = text("%s%s\"%s\"", roots, at > 0 ? ", " : "", path);
    }
    return open_store(config(text("[%s]", roots), shape, extra));
}

static void on_all(kvpath_store_t store, const char *rule)
{
    for (size_t at = 0; at < PATHS; at++) CHECK_OK(kvpath_fault_add(store, at, rule));
}

/* Every block is whole and right, and no temporary is left. */
static void check_all(const char *storage, const batch_t *blocks)
{
    for (size_t at = 0; at < blocks->count; at += blocks->per_block)
        check_file(block_path(storage, &blocks->shards[at].block, 0), &blocks->shards[at].block,
                   shape.block);
    CHECK_EQ(count_files(storage, ".tmp"), 0);
}

/* A rule on one path: everything succeeds all the same, through another. */
static void one_path(const char *rule)
{
    const char *storage = temp_dir();
    kvpath_store_t store = open_paths(storage, "");
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    CHECK_OK(kvpath_fault_add(store, 1, rule));
    dump_batch(store, blocks);
    load_batch(store, blocks);
    kvpath_stats_t stats = stats_of(store);
    CHECK(stats.retries > 0);
    CHECK(stats.failovers > 0);
    CHECK_OK(kvpath_check_health(store));
    CHECK_OK(kvpath_fault_clear(store, 1));
    CHECK_OK(kvpath_close(store));
    check_all(storage, blocks);
}

CASE(write_fails_on_one_path) { one_path("fail write EIO"); }
CASE(read_fails_on_one_path) { one_path("fail read EIO"); }
CASE(rename_fails_on_one_path) { one_path("fail rename EIO"); }
CASE(write_makes_no_progress_on_one_path) { one_path("short write"); }
CASE(write_finds_one_path_read_only) { one_path("fail write EROFS"); }

/* R22: a full disk is an error of dumps by its own name, and must still serve loads. */
CASE(full_storage)
{
    const char *storage = temp_dir();
    kvpath_store_t store = open_paths(storage, "");
    batch_t *stored = batch(shape, 1, BLOCKS, 0), *refused = batch(shape, 100, 1, 0);
    dump_batch(store, stored);
    on_all(store, "fail write ENOSPC");
    batch_fill(refused);
    for (int round = 0; round < 10; round++)
        CHECK_STATUS(dump(store, refused->shards, 4), KVPATH_NO_SPACE);
    CHECK_HAS(kvpath_last_error(), "ENOSPC");
    CHECK_OK(kvpath_check_health(store)); /* capacity excludes no path */
    load_batch(store, stored);
    CHECK(!present(store, &refused->shards[0].block));
    for (size_t at = 0; at < PATHS; at++) CHECK_OK(kvpath_fault_clear(store, at));
    dump_batch(store, refused); /* R42: dumping again completes the block */
    load_batch(store, refused);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(storage, ".tmp"), 0);
}

/* R40: on a local file system a block that is there already wins. What fails on the way there, on
 * one path, costs nothing. */
static void there_already(const char *rule)
{
    const char *storage = temp_dir();
    kvpath_store_t store = open_paths(storage, "");
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    dump_batch(store, blocks);
    CHECK_OK(kvpath_fault_add(store, 1, rule));
    dump_batch(store, blocks);
    CHECK_OK(kvpath_fault_clear(store, 1));
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
    check_all(storage, blocks);
}

CASE(block_that_is_there_is_looked_at_in_vain) { there_already("fail getattr EIO"); }
CASE(block_that_is_there_is_gone_at_a_second_look) { there_already("fail getattr ENOENT"); }
CASE(block_that_is_there_and_the_temporary_stays) { there_already("fail unlink EIO count=1"); }
CASE(block_that_is_there_on_a_full_disk) { there_already("fail unlink EDQUOT count=1"); }

static kvpath_store_t open_full(const char *root)
{
    return open_store(text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, "
                           "\"tensor_size\": %zu, \"shard_size\": %zu, \"block_size\": %zu, "
                           "\"posix_io_engine\": \"%s\", \"io_direct\": false, "
                           "\"data_dir_shard_bytes\": 0, \"timeout_ms\": 0, "
                           "\"commit_sync\": \"full\"}",
                           root, shape.tensor, shape.shard, shape.block, engine()));
}

/* The same, and `commit_sync` "full": its writer may have synced nothing. */
CASE(block_that_is_there_is_synced)
{
    const char *storage = temp_dir();
    batch_t *block = batch(shape, 1, 1, 0);
    kvpath_store_t store = open_root(storage, shape, "");
    kvpath_task_t task = 0;
    size_t released = 0;
    dump_batch(store, block);
    CHECK_OK(kvpath_close(store));
    const char *path = block_path(storage, &block->shards[0].block, 0);
    store = open_full(storage);
    CHECK_OK(kvpath_fault_add(store, 0, text("hang fsync path=%s", path)));
    batch_fill(block);
    CHECK_OK(kvpath_dump(store, block->shards, 4, &task));
    CHECK_OK(kvpath_fault_wait_held(store, 0, 1, LIMIT_MS));
    CHECK_STATUS(kvpath_wait(store, task, 1), KVPATH_RETRY);
    CHECK_OK(kvpath_fault_clear(store, 0));
    CHECK_OK(kvpath_fault_release(store, 0, &released));
    CHECK_EQ(released, 1);
    CHECK_OK(kvpath_wait(store, task, 0));
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(storage, ".tmp"), 0);
}

/* R41: a task whose shard completes a block has not finished before the block is visible. */
CASE(wait_returns_after_the_rename)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    batch_t *block = batch(shape, 1, 1, 0);
    kvpath_task_t task = 0;
    uint8_t finished = 9;
    size_t released = 0;
    CHECK_OK(kvpath_fault_add(store, 0, "hang rename"));
    batch_fill(block);
    CHECK_OK(kvpath_dump(store, block->shards, 4, &task));
    CHECK_OK(kvpath_fault_wait_held(store, 0, 1, LIMIT_MS));
    CHECK_STATUS(kvpath_wait(store, task, 1), KVPATH_RETRY);
    CHECK_OK(kvpath_check(store, task, &finished));
    CHECK_EQ(finished, 0);
    CHECK(!present(store, &block->shards[0].block));
    CHECK_OK(kvpath_fault_clear(store, 0));
    CHECK_OK(kvpath_fault_release(store, 0, &released));
    CHECK_EQ(released, 1);
    CHECK_OK(kvpath_wait(store, task, 0));
    CHECK(present(store, &block->shards[0].block));
    CHECK_OK(kvpath_close(store));
}

static void look_again(int *left, const char *what)
{
    if ((*left)-- == 0) FAIL("%s is not refreshed", what);
    usleep(1000);
}

static void wait_touched(const char *path)
{
    struct stat now;
    CHECK(stat(path, &now) == 0);
    for (int left = LIMIT_MS; now.st_mtim.tv_sec == LONG_AGO_S;) {
        look_again(&left, path);
        CHECK(stat(path, &now) == 0);
    }
}

static void wait_refreshed(kvpath_store_t store, uint64_t count)
{
    for (int left = LIMIT_MS; stats_of(store).hotness_refreshed < count;)
        look_again(&left, "a block");
}

/* R64, R17: what the first path does not refresh, the next one does; nobody notices. */
CASE(hotness_fails_on_one_path)
{
    const char *storage = temp_dir();
    kvpath_store_t store = open_paths(storage, "");
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    dump_batch(store, blocks);
    const struct timespec long_ago[2] = {{.tv_sec = LONG_AGO_S}, {.tv_sec = LONG_AGO_S}};
    for (size_t at = 0; at < blocks->count; at += blocks->per_block)
        CHECK(utimensat(AT_FDCWD, block_path(storage, &blocks->shards[at].block, 0), long_ago,
                        0) == 0);
    CHECK_OK(kvpath_fault_add(store, 1, "fail setattr EIO"));
    load_batch(store, blocks);
    for (size_t at = 0; at < blocks->count; at += blocks->per_block)
        wait_touched(block_path(storage, &blocks->shards[at].block, 0));
    wait_refreshed(store, BLOCKS);
    CHECK_EQ(stats_of(store).hotness_left_out, 0);
    CHECK(stats_of(store).failovers > 0);
    CHECK_OK(kvpath_close(store));
}

/* R63, R64: a hotness call that hangs holds up no load. */
CASE(hotness_hangs_on_one_path)
{
    kvpath_store_t store = open_paths(temp_dir(), "");
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    size_t released = 0;
    dump_batch(store, blocks);
    CHECK_OK(kvpath_fault_add(store, 1, "hang setattr"));
    load_batch(store, blocks);
    CHECK_OK(kvpath_fault_wait_held(store, 1, 1, LIMIT_MS));
    for (int round = 0; round < 10; round++) load_batch(store, blocks);
    CHECK_OK(kvpath_fault_clear(store, 1));
    CHECK_OK(kvpath_fault_release(store, 1, &released));
    CHECK_EQ(released, 1);
    CHECK_OK(kvpath_close(store));
}

/* R42: a shard that is in flight is queued behind by a second dump of it, never written twice. */
CASE(second_dump_of_a_shard_in_flight)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    batch_t *block = batch(shape, 1, 1, 0);
    kvpath_task_t first = 0, second = 0;
    size_t released = 0;
    CHECK_OK(kvpath_fault_add(store, 0, "hang write count=1"));
    batch_fill(block);
    CHECK_OK(kvpath_dump(store, block->shards, 4, &first));
    CHECK_OK(kvpath_fault_wait_held(store, 0, 1, LIMIT_MS));
    CHECK_OK(kvpath_dump(store, block->shards, 4, &second));
    CHECK_STATUS(kvpath_wait(store, second, 1), KVPATH_RETRY);
    CHECK_OK(kvpath_fault_release(store, 0, &released));
    CHECK_OK(kvpath_wait(store, second, 0));
    CHECK_OK(kvpath_wait(store, first, 0));
    CHECK_EQ(stats_of(store).committed_blocks, 1);
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

/* R26: cancel ends what has not started and nothing else. */
CASE(cancel_of_a_running_task)
{
    kvpath_store_t store = open_root(temp_dir(), shape, ", \"posix_data_trans_concurrency\": 1");
    batch_t *blocks = batch(shape, 1, 3, 0);
    kvpath_status_t statuses[12];
    kvpath_task_t task = 0;
    size_t released = 0;
    dump_batch(store, blocks);
    batch_wipe(blocks);
    CHECK_OK(kvpath_fault_add(store, 0, "hang read count=1"));
    CHECK_OK(kvpath_load(store, blocks->shards, blocks->count, &task));
    CHECK_OK(kvpath_fault_wait_held(store, 0, 1, LIMIT_MS));
    CHECK_OK(kvpath_cancel(store, task));
    CHECK_STATUS(kvpath_wait(store, task, 1), KVPATH_RETRY); /* the running one goes on */
    CHECK_OK(kvpath_fault_release(store, 0, &released));
    CHECK_STATUS(kvpath_wait_results(store, task, 0, statuses, 12), KVPATH_CANCELLED);
    size_t whole = 0;
    for (size_t at = 0; at < 12; at++) {
        CHECK(statuses[at] == KVPATH_OK || statuses[at] == KVPATH_CANCELLED);
        if (statuses[at] == KVPATH_OK) CHECK_EQ(shard_wrong(blocks, at), 0);
        whole += statuses[at] == KVPATH_OK;
    }
    CHECK_EQ(whole, 4); /* one transfer: the adjacent shards of one block (R38) */
    CHECK_OK(kvpath_close(store));
}
