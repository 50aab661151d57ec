/* When a block becomes visible, and how it goes: R40, R41, R42, R44, R45. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {4096, 4096, 16384}; /* 4 shards */

static size_t files_in(const char *root) { return count_files(text("%s/data", root), NULL); }

static kvpath_store_t open_policy(const char *root, const char *policy)
{
    return open_root(root, shape, text(", \"commit_policy\": \"%s\"", policy));
}

CASE(all_shards_in_any_order)
{
    static const size_t orders[][4] = {{3, 2, 1, 0}, {3, 0, 1, 2}, {1, 3, 0, 2}};
    const char *root = temp_dir();
    kvpath_store_t store = open_policy(root, "all_shards");
    for (size_t order = 0; order < 3; order++) {
        batch_t *block = batch(shape, order, 1, 0);
        batch_fill(block);
        for (size_t at = 0; at < 4; at++) {
            CHECK(!present(store, &block->shards[0].block));
            CHECK_EQ(stats_of(store).unfinished_blocks, at > 0);
            CHECK_OK(dump(store, &block->shards[orders[order][at]], 1));
        }
        CHECK(present(store, &block->shards[0].block));
        CHECK_EQ(stats_of(store).unfinished_blocks, 0);
        load_batch(store, block);
    }
    CHECK_EQ(stats_of(store).committed_blocks, 3);
    CHECK_OK(kvpath_close(store));
}

CASE(last_shard)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_policy(root, "last_shard");
    batch_t *block = batch(shape, 1, 1, 0);
    batch_fill(block);
    for (size_t at = 0; at < 3; at++) CHECK_OK(dump(store, &block->shards[at], 1));
    CHECK(!present(store, &block->shards[0].block));
    CHECK_OK(dump(store, &block->shards[3], 1));
    CHECK(present(store, &block->shards[0].block));
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

CASE(explicit_only)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_policy(root, "explicit");
    batch_t *block = batch(shape, 1, 1, 0);
    const kvpath_block_id_t *id = &block->shards[0].block;
    dump_batch(store, block);
    CHECK(!present(store, id));
    CHECK_OK(dump(store, &block->shards[0], 1)); /* R42: no commit by dumping again */
    CHECK(!present(store, id));
    CHECK_OK(kvpath_commit(store, id, 1));
    CHECK(present(store, id));
    check_file(block_path(root, id, 0), id, shape.block);
    CHECK_OK(kvpath_commit(store, id, 1)); /* it is visible: harmless */
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

CASE(commit_with_shards_missing)
{
    kvpath_store_t store = open_policy(temp_dir(), "explicit");
    batch_t *block = batch(shape, 1, 1, 0);
    batch_fill(block);
    CHECK_OK(dump(store, &block->shards[0], 1));
    CHECK_OK(dump(store, &block->shards[2], 1));
    CHECK_STATUS(kvpath_commit(store, &block->shards[0].block, 1), KVPATH_INVALID_PARAM);
    CHECK_HAS(kvpath_last_error(), "1");
    CHECK_HAS(kvpath_last_error(), "3");
    CHECK_OK(dump(store, &block->shards[3], 1));
    CHECK_OK(dump(store, &block->shards[1], 1));
    CHECK_OK(kvpath_commit(store, &block->shards[0].block, 1));
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

CASE(commit_true_is_harmless_under_all_shards)
{
    kvpath_store_t store = open_policy(temp_dir(), "all_shards");
    batch_t *block = batch(shape, 1, 1, 0);
    dump_batch(store, block);
    CHECK_OK(kvpath_commit(store, &block->shards[0].block, 1));
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

/* R42: dropping an unfinished block makes the next dump start from nothing. */
CASE(commit_false_drops_what_was_written)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_policy(root, "all_shards");
    batch_t *block = batch(shape, 1, 1, 0);
    const kvpath_block_id_t *id = &block->shards[0].block;
    batch_fill(block);
    CHECK_OK(dump(store, block->shards, 3));
    CHECK_EQ(count_files(root, ".tmp"), 1);
    CHECK_OK(kvpath_commit(store, id, 0));
    wait_gone(text("%s/data", root), ".tmp");
    CHECK_EQ(stats_of(store).unfinished_blocks, 0);
    CHECK_OK(dump(store, &block->shards[3], 1)); /* the other three are gone */
    CHECK(!present(store, id));
    CHECK_OK(dump(store, block->shards, 3));
    CHECK(present(store, id));
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

CASE(commit_of_an_unknown_block)
{
    kvpath_store_t store = open_policy(temp_dir(), "explicit");
    kvpath_block_id_t id = block_id(9);
    CHECK_STATUS(kvpath_commit(store, &id, 1), KVPATH_NOT_FOUND);
    CHECK_HAS(kvpath_last_error(), block_name(&id));
    CHECK_STATUS(kvpath_commit(store, &id, 0), KVPATH_NOT_FOUND);
    CHECK_OK(kvpath_close(store));
}

/* A shard that is written already costs no I/O (R42). */
CASE(shard_dumped_again_before_the_commit)
{
    kvpath_store_t store = open_policy(temp_dir(), "all_shards");
    batch_t *block = batch(shape, 1, 1, 0);
    batch_fill(block);
    for (int round = 0; round < 3; round++) CHECK_OK(dump(store, block->shards, 3));
    CHECK(!present(store, &block->shards[0].block));
    CHECK_OK(dump(store, &block->shards[3], 1));
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

/* R54: close removes the temporaries of unfinished blocks. */
CASE(close_drops_unfinished_blocks)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_policy(root, "all_shards");
    batch_t *blocks = batch(shape, 1, 5, 0);
    batch_fill(blocks);
    for (size_t at = 0; at < blocks->count; at += 4) CHECK_OK(dump(store, &blocks->shards[at], 2));
    CHECK_EQ(count_files(root, ".tmp"), 5);
    CHECK_EQ(stats_of(store).unfinished_blocks, 5);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(files_in(root), 0);
}

/* R5: a block in progress is named after the block, its writer and its generation. */
CASE(name_of_a_temporary)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_policy(root, "all_shards");
    batch_t *block = batch(shape, 1, 1, 0);
    batch_fill(block);
    CHECK_OK(dump(store, block->shards, 1));
    const char *start = text("/%s.", block_name(&block->shards[0].block));
    CHECK_EQ(count_files(root, start), 1);
    CHECK_EQ(count_files(root, ".tmp"), 1);
    CHECK_OK(kvpath_close(store));
}

CASE(every_commit_sync)
{
    static const char *const syncs[] = {"none", "data", "full", "auto"};
    for (size_t at = 0; at < 4; at++) {
        const char *root = temp_dir();
        const char *json = text("{\"storage_backends\": \"%s\", \"device_id\": 0, \"tensor_size\": "
                                "4096, \"shard_size\": 4096, \"block_size\": 16384, \"io_direct\": "
                                "false, \"data_dir_shard_bytes\": 0, \"commit_sync\": \"%s\"}",
                                root, syncs[at]);
        kvpath_store_t store = open_store(json);
        batch_t *blocks = batch(shape, 1, 4, 0);
        dump_batch(store, blocks);
        load_batch(store, blocks);
        CHECK_OK(kvpath_close(store));
        CHECK_EQ(files_in(root), 4);
    }
}

CASE(remove_blocks)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_policy(root, "all_shards");
    batch_t *blocks = batch(shape, 1, 3, 0);
    dump_batch(store, blocks);
    kvpath_block_id_t ids[3] = {blocks->shards[0].block, block_id(99), blocks->shards[8].block};
    CHECK_OK(kvpath_remove(store, ids, 3)); /* a missing one is no error */
    CHECK_OK(kvpath_remove(store, ids, 3));
    CHECK_OK(kvpath_remove(store, NULL, 0));
    CHECK(!present(store, &ids[0]) && !present(store, &ids[2]));
    CHECK(present(store, &blocks->shards[4].block));
    CHECK_STATUS(load(store, blocks->shards, 4), KVPATH_NOT_FOUND);
    CHECK_EQ(files_in(root), 1);
    CHECK_EQ(stats_of(store).removed_blocks, 2);
    dump_batch(store, blocks); /* a removed block can come back */
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
}

/* A block that is being dumped is not touched by a remove of its id. */
CASE(remove_of_an_unfinished_block)
{
    kvpath_store_t store = open_policy(temp_dir(), "all_shards");
    batch_t *block = batch(shape, 1, 1, 0);
    batch_fill(block);
    CHECK_OK(dump(store, block->shards, 3));
    CHECK_OK(kvpath_remove(store, &block->shards[0].block, 1));
    CHECK_OK(dump(store, &block->shards[3], 1));
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

struct writer {
    kvpath_store_t store;
    batch_t *blocks;
    pthread_barrier_t *start;
    int rounds;
};

static void *write_blocks(void *argument)
{
    struct writer *writer = argument;
    for (int round = 0; round < writer->rounds; round++) {
        pthread_barrier_wait(writer->start);
        CHECK_OK(dump(writer->store, writer->blocks->shards, writer->blocks->count));
    }
    return NULL;
}

/* R45: writers of the same blocks at once, in one store and in two, all succeed. */
static void writers_at_once(int stores)
{
    enum { WRITERS = 4, ROUNDS = 20 };
    const char *root = temp_dir();
    kvpath_store_t store[2];
    pthread_barrier_t start;
    pthread_t threads[WRITERS];
    struct writer writers[WRITERS];
    CHECK(pthread_barrier_init(&start, NULL, WRITERS + 1) == 0);
    for (int at = 0; at < stores; at++) store[at] = open_policy(root, "all_shards");
    for (int at = 0; at < WRITERS; at++) {
        writers[at] = (struct writer){store[at % stores], batch(shape, 1, 4, 0), &start, ROUNDS};
        batch_fill(writers[at].blocks);
        CHECK(pthread_create(&threads[at], NULL, write_blocks, &writers[at]) == 0);
    }
    kvpath_block_id_t ids[4];
    for (size_t at = 0; at < 4; at++) ids[at] = block_id(1 + at);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(kvpath_remove(store[0], ids, 4));
        pthread_barrier_wait(&start);
    }
    for (int at = 0; at < WRITERS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    batch_t *blocks = batch(shape, 1, 4, 0);
    dump_batch(store[0], blocks); /* the last round's remove may have come last */
    load_batch(store[stores - 1], blocks);
    for (int at = 0; at < stores; at++) CHECK_OK(kvpath_close(store[at]));
    CHECK_EQ(count_files(root, ".tmp"), 0);
    CHECK_EQ(files_in(root), 4);
}

CASE(writers_at_once_in_one_store) { writers_at_once(1); }
CASE(writers_at_once_in_two_stores) { writers_at_once(2); }
