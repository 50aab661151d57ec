/* Files that are not whole blocks (R23): a load says NOT_FOUND with the detail CORRUPT and gives no
 * part of the data, the file stays, lookups do not count it, and the next dump replaces it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {4096, 4096, 16384};

/* Puts something in the place of a block's file; `content` is the whole block. */
typedef void (*spoil_fn)(const char *path, const uint8_t *content);

static void cut_in_half(const char *path, const uint8_t *content)
{
    write_file(path, content, shape.block / 2);
}

static void cut_by_one(const char *path, const uint8_t *content)
{
    write_file(path, content, shape.block - 1);
}

static void one_longer(const char *path, const uint8_t *content)
{
    write_file(path, content, shape.block);
    CHECK(truncate(path, (off_t)shape.block + 1) == 0);
}

static void twice_as_long(const char *path, const uint8_t *content)
{
    write_file(path, content, shape.block);
    CHECK(truncate(path, (off_t)shape.block * 2) == 0);
}

static void emptied(const char *path, const uint8_t *content) { write_file(path, content, 0); }

static void unusable(spoil_fn spoil)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 1, 2, 0);
    dump_batch(store, blocks);
    const kvpath_block_id_t *bad = &blocks->shards[0].block;
    const char *path = block_path(root, bad, 0);
    size_t bytes = 0;
    uint8_t *content = read_file(path, &bytes);
    CHECK(content != NULL);
    spoil(path, content);
    struct stat before, after;
    CHECK(stat(path, &before) == 0);

    /* Each shard alone: even one whose bytes are all there must not be given. */
    for (size_t at = 0; at < blocks->per_block; at++) {
        CHECK_STATUS(load(store, &blocks->shards[at], 1), KVPATH_NOT_FOUND);
        CHECK_EQ(kvpath_last_detail(), KVPATH_CORRUPT);
        CHECK_HAS(kvpath_last_error(), root);
        CHECK_HAS(kvpath_last_error(), block_name(bad));
    }
    CHECK(!present(store, bad));
    CHECK(present(store, &blocks->shards[blocks->per_block].block));
    CHECK(stats_of(store).corrupt >= 1);
    CHECK(stat(path, &after) == 0);
    CHECK_EQ(after.st_size, before.st_size);
    CHECK_EQ(after.st_ino, before.st_ino);
    CHECK_OK(kvpath_check_health(store));

    dump_batch(store, blocks); /* both: the whole one, and the one in the spoiled one's place */
    check_file(path, bad, shape.block);
    load_batch(store, blocks);
    CHECK(present(store, bad));
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, NULL), 2 + 1);
    free(content);
}

CASE(file_cut_in_half) { unusable(cut_in_half); }
CASE(file_cut_by_one_byte) { unusable(cut_by_one); }
CASE(file_one_byte_longer) { unusable(one_longer); }
CASE(file_twice_as_long) { unusable(twice_as_long); }
CASE(file_empty) { unusable(emptied); }

/* What is no regular file is never read, never followed and never counted as a block. */
typedef void (*place_fn)(const char *path);

static void foreign(place_fn place)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 1, 1, 0);
    const kvpath_block_id_t *id = &blocks->shards[0].block;
    const char *path = block_path(root, id, 0);
    place(path);
    struct stat before, after;
    CHECK(lstat(path, &before) == 0);
    CHECK_STATUS(load(store, blocks->shards, blocks->count), KVPATH_NOT_FOUND);
    CHECK_EQ(kvpath_last_detail(), KVPATH_CORRUPT);
    for (size_t at = 0; at < blocks->count; at++)
        CHECK(shard_wrong(blocks, at) > 0); /* nothing of it was given */
    CHECK(!present(store, id));
    CHECK_OK(kvpath_check_health(store));
    CHECK(lstat(path, &after) == 0);
    CHECK_EQ(after.st_ino, before.st_ino);
    CHECK_EQ(after.st_mode, before.st_mode);
    if (S_ISDIR(before.st_mode)) { /* in the way of a dump, and still no path's fault for ever */
        batch_fill(blocks);
        for (int round = 0; round < 3; round++)
            CHECK_STATUS(dump(store, blocks->shards, blocks->count), KVPATH_OS_ERROR);
        CHECK_OK(kvpath_check_health(store));
        CHECK(rmdir(path) == 0);
        CHECK_OK(dump(store, blocks->shards, blocks->count));
        check_file(path, id, shape.block);
    } else { /* a rename replaces anything else */
        dump_batch(store, blocks);
        check_file(path, id, shape.block);
        CHECK(lstat(path, &after) == 0);
        CHECK(S_ISREG(after.st_mode));
        load_batch(store, blocks);
    }
    CHECK_OK(kvpath_close(store));
}

static void place_directory(const char *path) { CHECK(mkdir(path, 0777) == 0); }

static void place_link(const char *path)
{
    /* To a file that would pass for the block. */
    kvpath_block_id_t id = block_id(1);
    uint8_t content[16384];
    for (size_t at = 0; at < sizeof content; at++) content[at] = content_at(&id, at);
    const char *target = text("%s-target", path);
    write_file(target, content, sizeof content);
    CHECK(symlink(target, path) == 0);
}

static void place_dangling_link(const char *path) { CHECK(symlink("/nowhere/at/all", path) == 0); }

CASE(directory_in_place_of_a_block) { foreign(place_directory); }
CASE(symbolic_link_in_place_of_a_block) { foreign(place_link); }
CASE(dangling_link_in_place_of_a_block) { foreign(place_dangling_link); }

/* A file of another configuration's size is a miss for this one, and stays for that one. */
CASE(file_of_another_configuration)
{
    static const shape_t larger = {4096, 4096, 32768};
    const char *root = temp_dir();
    kvpath_store_t other = open_root(root, larger, ""), store = open_root(root, shape, "");
    batch_t *theirs = batch(larger, 1, 1, 0), *ours = batch(shape, 1, 1, 0);
    dump_batch(other, theirs);
    CHECK_STATUS(load(store, ours->shards, ours->count), KVPATH_NOT_FOUND);
    CHECK_EQ(kvpath_last_detail(), KVPATH_CORRUPT);
    load_batch(other, theirs);
    CHECK_OK(kvpath_close(store));
    CHECK_OK(kvpath_close(other));
}

/* Names that are no blocks are left alone by everything. */
CASE(foreign_names_are_left_alone)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    const char *const names[] = {"README", "0123", "zz", ".hidden",
                                 "0123456789abcdef0123456789abcdef.part"};
    for (size_t at = 0; at < 5; at++) write_file(text("%s/data/%s", root, names[at]), "x", 1);
    batch_t *blocks = batch(shape, 1, 2, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
    CHECK_OK(kvpath_close(open_root(root, shape, "")));
    for (size_t at = 0; at < 5; at++) CHECK(exists(text("%s/data/%s", root, names[at])));
}
