/* What is on disk: R4, R5, R6, R8, R9. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const shape_t two_shards = {4096, 8192, 16384};

static unsigned mode_of(const char *path)
{
    struct stat what;
    if (lstat(path, &what) != 0) FAIL("no %s", path);
    return what.st_mode & 07777;
}

/* The other settings of config() come first; a key twice would be an error. */
static kvpath_store_t open_digits(const char *root, unsigned digits)
{
    return open_store(
        text("{\"storage_backends\": \"%s\", \"device_id\": 0, \"tensor_size\": 4096, "
             "\"shard_size\": 8192, \"block_size\": 16384, \"io_direct\": false, "
             "\"data_dir_shard_bytes\": %u}",
             root, digits));
}

static void file_names(unsigned digits)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_digits(root, digits);
    batch_t *blocks = batch(two_shards, 1, 8, 0);
    dump_batch(store, blocks);
    for (size_t at = 0; at < blocks->count; at += blocks->per_block) {
        const kvpath_block_id_t *id = &blocks->shards[at].block;
        check_file(block_path(root, id, digits), id, two_shards.block);
    }
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, ".tmp"), 0);
    CHECK_EQ(count_files(root, NULL), 8 + 1); /* and the marker */
}

CASE(file_names_0_digits) { file_names(0); }
CASE(file_names_1_digit) { file_names(1); }
CASE(file_names_2_digits) { file_names(2); }
CASE(file_names_3_digits) { file_names(3); }
CASE(file_names_4_digits) { file_names(4); }
CASE(file_names_5_digits) { file_names(5); }

/* A block is the raw bytes of its shards in order of index, tensors in order: a plain cat reads it.
 */
CASE(readable_by_cat)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, two_shards, "");
    batch_t *blocks = batch(two_shards, 1, 1, 3);
    dump_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
    const char *path = block_path(root, &blocks->shards[0].block, 0);
    const char *copy = text("%s/copy", root);
    CHECK(system(text("cat '%s' > '%s'", path, copy)) == 0);
    check_file(copy, &blocks->shards[0].block, two_shards.block);
}

CASE(modes_with_umask_022)
{
    umask(022);
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, two_shards, "");
    batch_t *blocks = batch(two_shards, 1, 1, 0);
    dump_batch(store, blocks);
    CHECK_EQ(mode_of(text("%s/data", root)), 0774);
    CHECK_EQ(mode_of(block_path(root, &blocks->shards[0].block, 0)), 0644);
    CHECK_OK(kvpath_close(store));
}

/* The umask takes from files, never from directories: other users of a fleet must get in. */
CASE(modes_with_umask_077)
{
    umask(077);
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, two_shards, "");
    batch_t *blocks = batch(two_shards, 1, 1, 0);
    dump_batch(store, blocks);
    CHECK_EQ(mode_of(text("%s/data", root)), 0774);
    CHECK_EQ(mode_of(block_path(root, &blocks->shards[0].block, 0)), 0600);
    CHECK_OK(kvpath_close(store));
}

CASE(setgid_is_kept)
{
    const char *root = temp_dir();
    CHECK(chmod(root, 02775) == 0);
    kvpath_store_t store = open_root(root, two_shards, "");
    CHECK_EQ(mode_of(text("%s/data", root)), 02774);
    CHECK_OK(kvpath_close(store));
}

CASE(marker_is_made_once)
{
    const char *root = temp_dir();
    size_t first_bytes = 0, second_bytes = 0;
    CHECK_OK(kvpath_close(open_root(root, two_shards, "")));
    uint8_t *first = read_file(text("%s/.kvpath", root), &first_bytes);
    CHECK(first != NULL && first_bytes > 0);
    CHECK_OK(kvpath_close(open_root(root, two_shards, "")));
    uint8_t *second = read_file(text("%s/.kvpath", root), &second_bytes);
    CHECK(second != NULL && first_bytes == second_bytes);
    CHECK(memcmp(first, second, first_bytes) == 0);
    CHECK_EQ(count_files(root, NULL), 1);
    free(first);
    free(second);
}

CASE(marker_with_other_digits_is_refused)
{
    const char *root = temp_dir();
    CHECK_OK(kvpath_close(open_digits(root, 2)));
    const char *told =
        open_fails(config(text("\"%s\"", root), two_shards, ""), KVPATH_INVALID_PARAM);
    CHECK_HAS(told, "data_dir_shard_bytes");
    CHECK_HAS(told, "2");
    CHECK_HAS(told, "0");
}

CASE(create_storage_false_needs_a_marker)
{
    const char *root = temp_dir();
    const char *json = config(text("\"%s\"", root), two_shards, ", \"create_storage\": false");
    open_fails(json, KVPATH_STORE_UNHEALTHY);
    CHECK_EQ(count_files(root, NULL), 0);
    CHECK_OK(kvpath_close(open_root(root, two_shards, "")));
    CHECK_OK(kvpath_close(open_store(json)));
}

/* R8: a path without the marker that another path shows is not the storage. */
CASE(one_root_without_the_marker)
{
    const char *storage = temp_dir(), *stranger = temp_dir();
    CHECK_OK(kvpath_close(open_root(storage, two_shards, "")));
    const char *told =
        open_fails(config(text("[\"%s\", \"%s\"]", storage, stranger), two_shards, ""),
                   KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(told, stranger);
    CHECK_HAS(told, "verify");
    CHECK_HAS(told, "not the storage");
    CHECK_EQ(count_files(stranger, NULL), 0);
}

CASE(require_same_storage)
{
    const char *one = temp_dir(), *other = temp_dir();
    CHECK_OK(kvpath_close(open_root(one, two_shards, "")));
    CHECK_OK(kvpath_close(open_root(other, two_shards, "")));
    const char *roots = text("[\"%s\", \"%s\"]", one, other);
    const char *told = open_fails(config(roots, two_shards, ", \"require_same_storage\": true"),
                                  KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(told, one);
    CHECK_HAS(told, other);
    kvpath_store_t store = open_store(config(roots, two_shards, ""));
    CHECK_HAS(report(kvpath_health_json, store), "\"same_storage\":false");
    CHECK_OK(kvpath_close(store));
}

/* R9: a data directory that is a symbolic link fails the start-up check. */
CASE(data_directory_is_a_symbolic_link)
{
    const char *root = temp_dir(), *elsewhere = temp_dir();
    CHECK(symlink(elsewhere, text("%s/data", root)) == 0);
    const char *told =
        open_fails(config(text("\"%s\"", root), two_shards, ""), KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(told, root);
    CHECK_EQ(count_files(elsewhere, NULL), 0);
}

/* R7: a data directory that is lost while the store runs is made again. */
CASE(lost_data_directory_is_made_again)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, two_shards, "");
    CHECK(rmdir(text("%s/data", root)) == 0);
    batch_t *blocks = batch(two_shards, 1, 4, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK_EQ(mode_of(text("%s/data", root)), 0774);
    CHECK_OK(kvpath_close(store));
}
