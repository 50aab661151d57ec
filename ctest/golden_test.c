/* What is on disk, against a directory that is committed (golden/): blocks in it are found and
 * loaded, and a dump makes the same files byte for byte. It fixes the format for every later
 * version and for the C++ store, whose format it is. golden/N has data_dir_shard_bytes N. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"

enum { BLOCKS = 3 };
static const shape_t shape = {1024, 2048, 4096}; /* 2 shards of 2 tensors */
static const unsigned digits[] = {0, 1, 3};

/* A block that golden/0 has only as a temporary file, as the C++ store names them. */
static const uint64_t unfinished = 99;

static const char *golden(unsigned digits) { return text("%s/%u", KVPATH_TEST_GOLDEN, digits); }

static void copy_file(const char *from, const char *to)
{
    size_t bytes = 0;
    uint8_t *content = read_file(from, &bytes);
    if (content == NULL) FAIL("cannot read %s", from);
    write_file(to, content, bytes);
    free(content);
}

/* The directories and files of one level, and of the next. */
static void copy_tree(const char *from, const char *to)
{
    DIR *list = opendir(from);
    if (list == NULL) FAIL("cannot read %s", from);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        struct stat about;
        if (entry->d_name[0] == '.') continue;
        const char *source = text("%s/%s", from, entry->d_name);
        const char *target = text("%s/%s", to, entry->d_name);
        CHECK(stat(source, &about) == 0);
        if (S_ISDIR(about.st_mode)) {
            CHECK(mkdir(target, 0774) == 0);
            copy_tree(source, target);
        } else {
            copy_file(source, target);
        }
    }
    closedir(list);
}

static kvpath_store_t open_golden(const char *root, unsigned digits)
{
    const char *extra = text(",\"data_dir_shard_bytes\": %u}", digits);
    const char *json = config(text("[\"%s\"]", root), shape, "");
    const char *default_digits = strstr(json, ", \"data_dir_shard_bytes\": 0");
    CHECK(default_digits != NULL);
    return open_store(text("%.*s%s", (int)(default_digits - json), json, extra));
}

/* 4096 directories take their time, and have nothing to do with the engine. */
static size_t widths(void)
{
    return sizeof digits / sizeof *digits - (strcmp(engine(), "psync") != 0);
}

CASE(golden_blocks_are_loaded)
{
    for (size_t at = 0; at < widths(); at++) {
        const char *root = temp_dir();
        copy_tree(golden(digits[at]), root);
        kvpath_store_t store = open_golden(root, digits[at]);
        batch_t *blocks = batch(shape, 1, BLOCKS, 0);
        for (uint64_t number = 1; number <= BLOCKS; number++) {
            kvpath_block_id_t id = block_id(number);
            CHECK(present(store, &id));
        }
        kvpath_block_id_t absent = block_id(unfinished);
        CHECK(!present(store, &absent));
        load_batch(store, blocks);
        CHECK_OK(kvpath_close(store));
    }
}

CASE(dumps_make_the_golden_files)
{
    for (size_t at = 0; at < widths(); at++) {
        const char *root = temp_dir();
        kvpath_store_t store = open_golden(root, digits[at]);
        dump_batch(store, batch(shape, 1, BLOCKS, 0));
        CHECK_OK(kvpath_close(store));
        CHECK_EQ(count_files(root, NULL), BLOCKS + 1); /* and the marker */
        CHECK(exists(text("%s/.kvpath", root)));
        for (uint64_t number = 1; number <= BLOCKS; number++) {
            kvpath_block_id_t id = block_id(number);
            size_t want_bytes = 0, got_bytes = 0;
            uint8_t *want = read_file(block_path(golden(digits[at]), &id, digits[at]), &want_bytes);
            uint8_t *got = read_file(block_path(root, &id, digits[at]), &got_bytes);
            CHECK(want != NULL && got != NULL);
            CHECK_EQ(want_bytes, shape.block);
            CHECK_EQ(got_bytes, want_bytes);
            CHECK(memcmp(want, got, want_bytes) == 0);
            free(want);
            free(got);
        }
    }
}
