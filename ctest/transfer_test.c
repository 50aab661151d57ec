/* Loads and dumps: every shape and order, buffered and direct (R26, R33, R38, R41). */
#include <stdlib.h>
#include <string.h>

#include "check.h"

static const shape_t layered = {4096, 8192, 65536};   /* 8 shards of 2 tensors */
static const shape_t odd = {38997, 116991, 467964};   /* 4 shards of 3 tensors, nothing aligned */
static const shape_t real = {116992, 116992, 935936}; /* 8 shards of 116,992 bytes */
static const shape_t whole = {1048576, 1048576, 1048576};

typedef void (*body_fn)(kvpath_store_t store, const char *root);

/* Both modes, each a case of its own. */
static void buffered(shape_t shape, body_fn body)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    body(store, root);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, ".tmp"), 0);
}

static void direct(shape_t shape, body_fn body)
{
    const char *root = temp_dir();
    if (!direct_works(root)) SKIP("no O_DIRECT on %s", root);
    kvpath_store_t store =
        open_store(text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, \"tensor_size\": %zu, "
                        "\"shard_size\": %zu, \"block_size\": %zu, \"posix_io_engine\": \"%s\", "
                        "\"data_dir_shard_bytes\": 0}",
                        root, shape.tensor, shape.shard, shape.block, engine()));
    kvpath_backend_health_t health = {0};
    size_t count = 0;
    health.size = sizeof health;
    CHECK_OK(kvpath_health(store, &health, 1, &count));
    CHECK_EQ(health.direct, 1);
    body(store, root);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, ".tmp"), 0);
}

#define BOTH_MODES(name, shape)                                                                    \
    static void body_##name(kvpath_store_t store, const char *root);                               \
    static void run_##name(bool is_direct)                                                         \
    {                                                                                              \
        (is_direct ? direct : buffered)(shape, body_##name);                                       \
    }                                                                                              \
    static void body_##name(kvpath_store_t store, const char *root)

static void check_files(const char *root, const batch_t *blocks)
{
    for (size_t at = 0; at < blocks->count; at += blocks->per_block)
        check_file(block_path(root, &blocks->shards[at].block, 0), &blocks->shards[at].block,
                   blocks->shape.block);
}

BOTH_MODES(one_shard, whole)
{
    batch_t *blocks = batch(whole, 1, 4, 0);
    dump_batch(store, blocks);
    check_files(root, blocks);
    load_batch(store, blocks);
}
CASE(one_shard_buffered) { run_one_shard(false); }
CASE(one_shard_direct) { run_one_shard(true); }

BOTH_MODES(all_shards_in_one_task, layered)
{
    batch_t *blocks = batch(layered, 10, 16, 0);
    dump_batch(store, blocks);
    check_files(root, blocks);
    load_batch(store, blocks);
    kvpath_stats_t stats = stats_of(store);
    CHECK_EQ(stats.tasks, 2);
    CHECK_EQ(stats.dumped_shards, 128);
    CHECK_EQ(stats.dumped_bytes, 128 * 8192);
    CHECK_EQ(stats.loaded_shards, 128);
    CHECK_EQ(stats.loaded_bytes, 128 * 8192);
    CHECK_EQ(stats.committed_blocks, 16);
}
CASE(all_shards_in_one_task_buffered) { run_all_shards_in_one_task(false); }
CASE(all_shards_in_one_task_direct) { run_all_shards_in_one_task(true); }

/* Shards of one layer of all blocks: what a pipeline gives when it works layer by layer. */
static size_t layer_of(const batch_t *blocks, uint32_t layer, kvpath_shard_t *shards)
{
    size_t count = 0;
    for (size_t at = 0; at < blocks->count; at++)
        if (blocks->shards[at].index == layer) shards[count++] = blocks->shards[at];
    return count;
}

BOTH_MODES(layer_by_layer, layered)
{
    kvpath_shard_t shards[6];
    batch_t *blocks = batch(layered, 20, 6, 0);
    batch_fill(blocks);
    for (uint32_t layer = 0; layer < 8; layer++) {
        CHECK_EQ(layer_of(blocks, layer, shards), 6);
        CHECK(!present(store, &shards[0].block)); /* absent or whole (R40) */
        CHECK_OK(dump(store, shards, 6));
    }
    check_files(root, blocks); /* visible when the last wait has returned (R41) */
    batch_wipe(blocks);
    for (uint32_t layer = 8; layer-- > 0;) {
        layer_of(blocks, layer, shards);
        CHECK_OK(load(store, shards, 6));
    }
    batch_check(blocks);
}
CASE(layer_by_layer_buffered) { run_layer_by_layer(false); }
CASE(layer_by_layer_direct) { run_layer_by_layer(true); }

/* All layers at once, waited for last to first. */
BOTH_MODES(layers_in_flight_together, layered)
{
    enum { LAYERS = 8, BLOCKS = 32 };
    kvpath_shard_t shards[BLOCKS];
    kvpath_task_t tasks[LAYERS];
    batch_t *blocks = batch(layered, 40, BLOCKS, 0);
    batch_fill(blocks);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        layer_of(blocks, layer, shards);
        CHECK_OK(kvpath_dump(store, shards, BLOCKS, &tasks[layer]));
    }
    for (size_t layer = LAYERS; layer-- > 0;) CHECK_OK(kvpath_wait(store, tasks[layer], 0));
    check_files(root, blocks);
    load_batch(store, blocks);
}
CASE(layers_in_flight_together_buffered) { run_layers_in_flight_together(false); }
CASE(layers_in_flight_together_direct) { run_layers_in_flight_together(true); }

static void shuffle(kvpath_shard_t *shards, size_t count, unsigned seed)
{
    for (size_t at = count; at-- > 1;) {
        seed = seed * 1103515245u + 12345u;
        size_t other = (seed >> 8) % (at + 1);
        kvpath_shard_t kept = shards[at];
        shards[at] = shards[other];
        shards[other] = kept;
    }
}

/* Shards of many blocks mixed, in tasks that cut across blocks. */
BOTH_MODES(random_order_mixed_blocks, layered)
{
    enum { TASK = 13 };
    batch_t *blocks = batch(layered, 90, 20, 0);
    batch_fill(blocks);
    shuffle(blocks->shards, blocks->count, 1);
    for (size_t at = 0; at < blocks->count; at += TASK) {
        size_t left = blocks->count - at;
        CHECK_OK(dump(store, blocks->shards + at, left < TASK ? left : TASK));
    }
    CHECK_EQ(count_files(text("%s/data", root), NULL), 20);
    shuffle(blocks->shards, blocks->count, 2);
    batch_wipe(blocks);
    for (size_t at = 0; at < blocks->count; at += TASK) {
        size_t left = blocks->count - at;
        CHECK_OK(load(store, blocks->shards + at, left < TASK ? left : TASK));
    }
    for (size_t at = 0; at < blocks->count; at++) CHECK_EQ(shard_wrong(blocks, at), 0);
}
CASE(random_order_mixed_blocks_buffered) { run_random_order_mixed_blocks(false); }
CASE(random_order_mixed_blocks_direct) { run_random_order_mixed_blocks(true); }

/* R33: any address and any size. */
BOTH_MODES(three_tensors_unaligned, odd)
{
    for (size_t misalign = 1; misalign < 64; misalign += 21) {
        batch_t *blocks = batch(odd, 100 + misalign, 3, misalign);
        dump_batch(store, blocks);
        check_files(root, blocks);
        load_batch(store, blocks);
    }
}
CASE(three_tensors_unaligned_buffered) { run_three_tensors_unaligned(false); }
CASE(three_tensors_unaligned_direct) { run_three_tensors_unaligned(true); }

/* Shards that share a sector with their neighbour, written in every order. */
BOTH_MODES(shard_of_116992_bytes, real)
{
    batch_t *blocks = batch(real, 200, 3, 0);
    batch_fill(blocks);
    shuffle(blocks->shards, blocks->count, 3);
    for (size_t at = 0; at < blocks->count; at++) CHECK_OK(dump(store, &blocks->shards[at], 1));
    for (size_t at = 0; at < blocks->count; at++)
        check_file(block_path(root, &blocks->shards[at].block, 0), &blocks->shards[at].block,
                   real.block);
    batch_wipe(blocks);
    for (size_t at = 0; at < blocks->count; at++) CHECK_OK(load(store, &blocks->shards[at], 1));
    for (size_t at = 0; at < blocks->count; at++) CHECK_EQ(shard_wrong(blocks, at), 0);
    batch_t *together = batch(real, 300, 3, 0);
    dump_batch(store, together);
    check_files(root, together);
    load_batch(store, together);
}
CASE(shard_of_116992_bytes_buffered) { run_shard_of_116992_bytes(false); }
CASE(shard_of_116992_bytes_direct) { run_shard_of_116992_bytes(true); }

/* One shard is loaded without touching the memory of the others. */
BOTH_MODES(single_shard_of_a_block, odd)
{
    (void)root;
    batch_t *blocks = batch(odd, 400, 1, 5);
    dump_batch(store, blocks);
    for (size_t only = 0; only < blocks->count; only++) {
        batch_wipe(blocks);
        CHECK_OK(load(store, &blocks->shards[only], 1));
        for (size_t at = 0; at < blocks->count; at++)
            CHECK((shard_wrong(blocks, at) == 0) == (at == only));
    }
}
CASE(single_shard_of_a_block_buffered) { run_single_shard_of_a_block(false); }
CASE(single_shard_of_a_block_direct) { run_single_shard_of_a_block(true); }

CASE(zero_shards)
{
    kvpath_store_t store = open_root(temp_dir(), layered, "");
    for (int is_dump = 0; is_dump < 2; is_dump++) {
        kvpath_task_t task = 0;
        uint8_t finished = 0;
        CHECK_OK((is_dump ? kvpath_dump : kvpath_load)(store, NULL, 0, &task));
        CHECK(task != 0);
        CHECK_OK(kvpath_check(store, task, &finished));
        CHECK_EQ(finished, 1);
        CHECK_OK(kvpath_wait_results(store, task, 0, NULL, 0));
        CHECK_STATUS(kvpath_wait(store, task, 0), KVPATH_NOT_FOUND);
    }
    CHECK_OK(kvpath_close(store));
}

CASE(same_shard_twice_in_a_dump)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, layered, "");
    batch_t *blocks = batch(layered, 1, 2, 0);
    batch_fill(blocks);
    blocks->shards[9] = blocks->shards[2];
    kvpath_task_t task = 77;
    CHECK_STATUS(kvpath_dump(store, blocks->shards, blocks->count, &task), KVPATH_INVALID_PARAM);
    CHECK_EQ(task, 77);
    CHECK_EQ(count_files(text("%s/data", root), NULL), 0); /* nothing was started */
    CHECK_OK(kvpath_close(store));
}

/* Loading one shard to two places in one task is no conflict. */
CASE(same_block_twice_in_loads)
{
    kvpath_store_t store = open_root(temp_dir(), layered, "");
    batch_t *once = batch(layered, 1, 1, 0), *again = batch(layered, 1, 1, 0);
    dump_batch(store, once);
    kvpath_task_t tasks[2];
    batch_wipe(once);
    CHECK_OK(kvpath_load(store, once->shards, once->count, &tasks[0]));
    CHECK_OK(kvpath_load(store, again->shards, again->count, &tasks[1]));
    CHECK_OK(kvpath_wait(store, tasks[1], 0));
    CHECK_OK(kvpath_wait(store, tasks[0], 0));
    batch_check(once);
    batch_check(again);
    CHECK_OK(kvpath_close(store));
}

/* R40: what is committed stays; a second dump of it is a success. */
CASE(dump_of_an_existing_block)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, layered, "");
    batch_t *blocks = batch(layered, 1, 3, 0);
    for (int round = 0; round < 3; round++) {
        dump_batch(store, blocks);
        check_files(root, blocks);
        load_batch(store, blocks);
    }
    CHECK_EQ(count_files(text("%s/data", root), NULL), 3);
    CHECK_OK(kvpath_close(store));
}

/* A load that misses: each shard has its own status, and the first in order is the task's. */
CASE(load_of_absent_blocks)
{
    kvpath_store_t store = open_root(temp_dir(), layered, "");
    batch_t *stored = batch(layered, 1, 1, 0), *absent = batch(layered, 2, 1, 0);
    dump_batch(store, stored);
    batch_wipe(stored);
    kvpath_shard_t shards[3] = {stored->shards[0], absent->shards[1], stored->shards[2]};
    kvpath_status_t statuses[3] = {1, 1, 1};
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_load(store, shards, 3, &task));
    CHECK_STATUS(kvpath_wait_results(store, task, 0, statuses, 3), KVPATH_NOT_FOUND);
    CHECK_EQ(kvpath_last_detail(), KVPATH_NOT_FOUND);
    CHECK_HAS(kvpath_last_error(), block_name(&absent->shards[0].block));
    CHECK_EQ(statuses[0], KVPATH_OK);
    CHECK_EQ(statuses[1], KVPATH_NOT_FOUND);
    CHECK_EQ(statuses[2], KVPATH_OK);
    CHECK_EQ(shard_wrong(stored, 0) + shard_wrong(stored, 2), 0);
    CHECK_EQ(stats_of(store).load_misses, 1);
    CHECK_EQ(stats_of(store).retries, 0); /* a miss is no reason to try another path (R22) */
    CHECK_OK(kvpath_close(store));
}

/* R1: lookups only. */
CASE(role_without_transfers)
{
    const char *root = temp_dir();
    batch_t *blocks = batch(layered, 1, 1, 0);
    kvpath_store_t store = open_store(text("{\"storage_backends\": [\"%s\"], \"device_id\": -1, "
                                           "\"data_dir_shard_bytes\": 0, \"io_direct\": false}",
                                           root));
    kvpath_task_t task = 0;
    CHECK_STATUS(kvpath_dump(store, blocks->shards, 1, &task), KVPATH_UNSUPPORTED);
    CHECK_HAS(kvpath_last_error(), "device_id");
    CHECK_STATUS(kvpath_load(store, blocks->shards, 1, &task), KVPATH_UNSUPPORTED);
    CHECK_OK(kvpath_close(store));
}

/* Bytes of two stores on one directory, read by each other. */
CASE(two_stores_on_one_directory)
{
    const char *root = temp_dir();
    kvpath_store_t one = open_root(root, layered, ""), other = open_root(root, layered, "");
    batch_t *of_one = batch(layered, 1, 4, 0), *of_other = batch(layered, 50, 4, 0);
    dump_batch(one, of_one);
    dump_batch(other, of_other);
    load_batch(other, of_one);
    load_batch(one, of_other);
    CHECK_OK(kvpath_close(one));
    load_batch(other, of_one);
    CHECK_OK(kvpath_close(other));
}
