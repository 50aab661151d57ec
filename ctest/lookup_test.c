/* What is stored: R61, R62. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {512, 512, 512};
enum { MANY = 1024 };

/* A store with those blocks of 0 … MANY-1 whose number divides by `step`. */
static kvpath_store_t store_with(const char *root, size_t step, kvpath_block_id_t *ids)
{
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 0, MANY, 0);
    kvpath_shard_t some[MANY];
    size_t count = 0;
    batch_fill(blocks);
    for (size_t at = 0; at < MANY; at++) {
        ids[at] = blocks->shards[at].block;
        if (at % step == 0) some[count++] = blocks->shards[at];
    }
    CHECK_OK(dump(store, some, count));
    return store;
}

CASE(lookup_of_1024_ids)
{
    kvpath_block_id_t ids[MANY];
    uint8_t found[MANY];
    kvpath_store_t store = store_with(temp_dir(), 3, ids);
    memset(found, 9, sizeof found);
    CHECK_OK(kvpath_lookup(store, ids, MANY, found));
    size_t hits = 0;
    for (size_t at = 0; at < MANY; at++) {
        CHECK_EQ(found[at], at % 3 == 0);
        hits += found[at];
    }
    kvpath_stats_t stats = stats_of(store);
    CHECK_EQ(stats.lookups, MANY);
    CHECK_EQ(stats.lookup_hits, hits);
    CHECK_OK(kvpath_close(store));
}

CASE(lookup_of_nothing)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    int64_t index = 5;
    CHECK_OK(kvpath_lookup(store, NULL, 0, NULL));
    CHECK_OK(kvpath_lookup_prefix(store, NULL, 0, &index));
    CHECK_EQ(index, -1);
    index = 5;
    CHECK_OK(kvpath_lookup_last(store, NULL, 0, &index));
    CHECK_EQ(index, -1);
    CHECK_OK(kvpath_close(store));
}

CASE(lookup_of_the_same_id_twice)
{
    kvpath_block_id_t ids[MANY];
    kvpath_store_t store = store_with(temp_dir(), 2, ids);
    kvpath_block_id_t asked[4] = {ids[0], ids[1], ids[0], ids[1]};
    uint8_t found[4] = {9, 9, 9, 9};
    CHECK_OK(kvpath_lookup(store, asked, 4, found));
    CHECK(found[0] == 1 && found[1] == 0 && found[2] == 1 && found[3] == 0);
    CHECK_OK(kvpath_close(store));
}

static int64_t prefix(kvpath_store_t store, const kvpath_block_id_t *ids, size_t count)
{
    int64_t index = -7;
    CHECK_OK(kvpath_lookup_prefix(store, ids, count, &index));
    return index;
}

static int64_t last(kvpath_store_t store, const kvpath_block_id_t *ids, size_t count)
{
    int64_t index = -7;
    CHECK_OK(kvpath_lookup_last(store, ids, count, &index));
    return index;
}

CASE(lookup_prefix)
{
    kvpath_block_id_t ids[MANY];
    kvpath_store_t store = store_with(temp_dir(), 1, ids);
    CHECK_EQ(prefix(store, ids, MANY), MANY - 1);
    CHECK_EQ(prefix(store, ids, 1), 0);
    static const size_t absent[] = {0, 1, 2, 63, 64, 65, 511, MANY - 1};
    for (size_t at = sizeof absent / sizeof *absent; at-- > 0;) {
        CHECK_OK(kvpath_remove(store, &ids[absent[at]], 1)); /* those after it are absent too */
        CHECK_EQ(prefix(store, ids, MANY), (int64_t)absent[at] - 1);
    }
    CHECK_OK(kvpath_close(store));
}

CASE(lookup_last)
{
    kvpath_block_id_t ids[MANY];
    kvpath_store_t store = store_with(temp_dir(), 100, ids); /* 0, 100, … 1000 */
    CHECK_EQ(last(store, ids, MANY), 1000);
    CHECK_EQ(last(store, ids, 1000), 900);
    CHECK_EQ(last(store, ids, 100), 0);
    CHECK_EQ(last(store, ids + 1, 99), -1);
    CHECK_EQ(last(store, ids + 1, 100), 99);
    CHECK_OK(kvpath_remove(store, &ids[1000], 1));
    CHECK_EQ(last(store, ids, MANY), 900);
    CHECK_OK(kvpath_close(store));
}

/* R62: a scheduler knows no size: present is what is not empty, unless lookup_checks_size. */
CASE(lookup_without_transfers)
{
    const char *root = temp_dir();
    kvpath_block_id_t ids[MANY];
    CHECK_OK(kvpath_close(store_with(root, 2, ids)));
    const char *role = text("{\"storage_backends\": [\"%s\"], \"io_direct\": false, "
                            "\"data_dir_shard_bytes\": 0, \"device_id\": -1",
                            root);
    CHECK(truncate(block_path(root, &ids[0], 0), 0) == 0);
    CHECK(truncate(block_path(root, &ids[2], 0), 100) == 0);
    kvpath_store_t store = open_store(text("%s}", role));
    CHECK(!present(store, &ids[0])); /* empty */
    CHECK(!present(store, &ids[1]));
    CHECK(present(store, &ids[2])); /* short, but who knows */
    CHECK(present(store, &ids[4]));
    CHECK_EQ(last(store, ids, MANY), MANY - 2);
    CHECK_OK(kvpath_close(store));
    store = open_store(text("%s, \"block_size\": 512, \"lookup_checks_size\": true}", role));
    CHECK(!present(store, &ids[2]));
    CHECK(present(store, &ids[4]));
    CHECK_OK(kvpath_close(store));
}

/* A temporary is no block. */
CASE(lookup_of_an_unfinished_block)
{
    static const shape_t two = {512, 512, 1024};
    kvpath_store_t store = open_root(temp_dir(), two, "");
    batch_t *block = batch(two, 1, 1, 0);
    batch_fill(block);
    CHECK_OK(dump(store, block->shards, 1));
    CHECK(!present(store, &block->shards[0].block));
    CHECK_EQ(last(store, &block->shards[0].block, 1), -1);
    CHECK_OK(kvpath_close(store));
}

/* Blocks that somebody else stored or removed are seen at once. */
CASE(lookup_sees_other_writers)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, ""), other = open_root(root, shape, "");
    batch_t *block = batch(shape, 1, 1, 0);
    const kvpath_block_id_t *id = &block->shards[0].block;
    for (int round = 0; round < 3; round++) {
        CHECK(!present(store, id));
        dump_batch(other, block);
        CHECK(present(store, id));
        CHECK_OK(kvpath_remove(other, id, 1));
    }
    CHECK_OK(kvpath_close(store));
    CHECK_OK(kvpath_close(other));
}
