/* Paths that go while the store works: R15, R16, R22, R24, R27. Three paths to one directory, each
 * a symbolic link (R3 allows that); a path dies when something else takes the link's place. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {4096, 4096, 32768}; /* 8 shards */
enum { PATHS = 3, BLOCKS = 30 };

struct paths {
    const char *storage, *parent, *path[PATHS];
    kvpath_store_t store;
};

/* Direct I/O, so that shards of one block may go through several paths (R42). */
static struct paths open_paths(void)
{
    struct paths paths = {.storage = temp_dir(), .parent = temp_dir()};
    if (!direct_works(paths.storage)) SKIP("no O_DIRECT on %s", paths.storage);
    const char *roots = "";
    for (int at = 0; at < PATHS; at++) {
        paths.path[at] = text("%s/path%d", paths.parent, at);
        CHECK(symlink(paths.storage, paths.path[at]) == 0);
        roots = text("%s%s\"%s\"", roots, at > 0 ? ", " : "", paths.path[at]);
    }
    paths.store = open_store(text("{\"storage_backends\": [%s], \"device_id\": 0, "
                                  "\"tensor_size\": %zu, \"shard_size\": %zu, \"block_size\": %zu, "
                                  "\"data_dir_shard_bytes\": 0, \"posix_io_engine\": \"%s\"}",
                                  roots, shape.tensor, shape.shard, shape.block, engine()));
    return paths;
}

/* What takes a path's place, at once: there is no moment without it. */
typedef void (*break_fn)(const struct paths *paths, int which);

static void put_in_place(const struct paths *paths, int which, const char *made)
{
    CHECK(rename(made, paths->path[which]) == 0);
}

static void becomes_a_file(const struct paths *paths, int which)
{
    const char *made = text("%s/new", paths->parent);
    write_file(made, "", 0);
    put_in_place(paths, which, made);
}

static void becomes_dangling(const struct paths *paths, int which)
{
    const char *made = text("%s/new", paths->parent);
    CHECK(symlink("/nowhere/at/all", made) == 0);
    put_in_place(paths, which, made);
}

/* A mount that fell off: an empty directory, in which every block "does not exist" (R24). */
static void becomes_empty(const struct paths *paths, int which)
{
    const char *made = text("%s/new", paths->parent);
    CHECK(symlink(text("%s", temp_dir()), made) == 0);
    put_in_place(paths, which, made);
}

/* The same, with data directories but no marker. */
static void becomes_a_stranger(const struct paths *paths, int which)
{
    const char *stranger = temp_dir(), *made = text("%s/new", paths->parent);
    CHECK(mkdir(text("%s/data", stranger), 0777) == 0);
    CHECK(symlink(stranger, made) == 0);
    put_in_place(paths, which, made);
}

static void mend(const struct paths *paths, int which)
{
    const char *made = text("%s/new", paths->parent);
    CHECK(symlink(paths->storage, made) == 0);
    put_in_place(paths, which, made);
}

static void check_all_there(const struct paths *paths, const batch_t *blocks)
{
    for (size_t at = 0; at < blocks->count; at += blocks->per_block)
        check_file(block_path(paths->storage, &blocks->shards[at].block, 0),
                   &blocks->shards[at].block, shape.block);
}

/* R24: that the path is the storage was seen less than 100 ms ago, and may be believed so long;
 * then no load may miss any more. */
static void load_after_verdict(kvpath_store_t store, batch_t *blocks)
{
    kvpath_status_t status;
    while ((status = load(store, blocks->shards, blocks->count)) == KVPATH_NOT_FOUND)
        CHECK_EQ(kvpath_last_detail(), KVPATH_NOT_FOUND);
    CHECK_OK(status);
    for (int round = 0; round < 20; round++) load_batch(store, blocks);
}

/* Stored before, during and after: nothing is lost, nothing fails. */
static void one_path_dies(break_fn break_path)
{
    struct paths paths = open_paths();
    batch_t *before = batch(shape, 0, BLOCKS, 0), *during = batch(shape, 100, BLOCKS, 0);
    batch_t *after = batch(shape, 200, BLOCKS, 0);
    dump_batch(paths.store, before);
    CHECK_EQ(stats_of(paths.store).retries, 0);
    CHECK_EQ(stats_of(paths.store).failovers, 0);
    break_path(&paths, 1);
    load_after_verdict(paths.store, before);
    dump_batch(paths.store, during);
    load_batch(paths.store, during);
    kvpath_stats_t stats = stats_of(paths.store);
    CHECK(stats.retries > 0);
    CHECK(stats.failovers > 0);
    CHECK_OK(kvpath_check_health(paths.store)); /* two of three are enough (R55) */
    kvpath_backend_health_t health[PATHS] = {{.size = sizeof health[0]}};
    size_t count = 0;
    CHECK_OK(kvpath_health(paths.store, health, PATHS, &count));
    CHECK(health[1].last_error[0] != '\0');
    CHECK(health[0].last_error[0] == '\0' && health[2].last_error[0] == '\0');
    mend(&paths, 1);
    dump_batch(paths.store, after);
    load_batch(paths.store, before);
    load_batch(paths.store, after);
    CHECK_OK(kvpath_close(paths.store));
    check_all_there(&paths, before);
    check_all_there(&paths, during);
    check_all_there(&paths, after);
    CHECK_EQ(count_files(paths.storage, ".tmp"), 0);
}

CASE(path_becomes_a_file) { one_path_dies(becomes_a_file); }
CASE(path_becomes_dangling) { one_path_dies(becomes_dangling); }
CASE(path_becomes_an_empty_directory) { one_path_dies(becomes_empty); }
CASE(path_becomes_another_directory) { one_path_dies(becomes_a_stranger); }

/* The path dies between the layers of its blocks, and their commit goes another way. */
CASE(path_dies_between_layers)
{
    struct paths paths = open_paths();
    batch_t *blocks = batch(shape, 300, BLOCKS, 0);
    kvpath_shard_t layer[BLOCKS];
    batch_fill(blocks);
    for (uint32_t index = 0; index < 8; index++) {
        if (index == 3) becomes_a_file(&paths, 0);
        if (index == 5) mend(&paths, 0), becomes_dangling(&paths, 2);
        for (size_t at = 0; at < BLOCKS; at++) layer[at] = blocks->shards[at * 8 + index];
        CHECK_OK(dump(paths.store, layer, BLOCKS));
    }
    load_batch(paths.store, blocks);
    CHECK(stats_of(paths.store).failovers > 0);
    CHECK_OK(kvpath_close(paths.store));
    check_all_there(&paths, blocks);
    CHECK_EQ(count_files(paths.storage, ".tmp"), 0);
}

/* Lookups and removes go on through the others (R17, R62). */
CASE(lookups_and_removes_go_on)
{
    struct paths paths = open_paths();
    batch_t *blocks = batch(shape, 400, BLOCKS, 0);
    kvpath_block_id_t ids[BLOCKS];
    uint8_t found[BLOCKS];
    int64_t index = -7;
    dump_batch(paths.store, blocks);
    for (size_t at = 0; at < BLOCKS; at++) ids[at] = blocks->shards[at * 8].block;
    becomes_empty(&paths, 0);
    becomes_a_file(&paths, 2);
    load_after_verdict(paths.store, blocks);
    CHECK_OK(kvpath_lookup(paths.store, ids, BLOCKS, found));
    for (size_t at = 0; at < BLOCKS; at++) CHECK_EQ(found[at], 1);
    CHECK_OK(kvpath_lookup_prefix(paths.store, ids, BLOCKS, &index));
    CHECK_EQ(index, BLOCKS - 1);
    CHECK_OK(kvpath_remove(paths.store, ids, BLOCKS));
    CHECK_EQ(count_files(text("%s/data", paths.storage), NULL), 0);
    CHECK_OK(kvpath_lookup_last(paths.store, ids, BLOCKS, &index));
    CHECK_EQ(index, -1);
    CHECK_OK(kvpath_close(paths.store));
}

/* With no path left everything fails, quickly and by name, and nothing is said to be absent for
 * sure; when a path is back, so are the blocks. */
CASE(all_paths_die)
{
    struct paths paths = open_paths();
    batch_t *blocks = batch(shape, 500, BLOCKS, 0);
    dump_batch(paths.store, blocks);
    for (int at = 0; at < PATHS; at++) becomes_a_file(&paths, at);
    kvpath_status_t status = load(paths.store, blocks->shards, blocks->count);
    CHECK(status == KVPATH_OS_ERROR || status == KVPATH_STORE_UNHEALTHY);
    CHECK(kvpath_last_error()[0] != '\0');
    status = dump(paths.store, batch(shape, 600, 1, 0)->shards, 8);
    CHECK(status == KVPATH_OS_ERROR || status == KVPATH_STORE_UNHEALTHY);
    uint8_t found = 9;
    status = kvpath_lookup(paths.store, &blocks->shards[0].block, 1, &found);
    CHECK(status == KVPATH_OS_ERROR || status == KVPATH_STORE_UNHEALTHY);
    CHECK_EQ(found, 0);
    CHECK_EQ(stats_of(paths.store).load_misses, 0);
    for (int at = 0; at < PATHS; at++) mend(&paths, at);
    CHECK_OK(kvpath_close(paths.store));
    kvpath_store_t again = open_root(paths.storage, shape, "");
    load_batch(again, blocks);
    CHECK_OK(kvpath_close(again));
}
