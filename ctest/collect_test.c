/* Keeping within the space: R80-R82. Files are put there by hand, with ages of their own. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { BYTES = 4096, LIMIT_S = 120 };

/* A store that collects from `trigger` blocks on, looking each second at every directory. */
static kvpath_store_t collecting(const char *root, unsigned digits, unsigned trigger,
                                 const char *extra)
{
    double gb = (double)trigger * BYTES / (1 << 30);
    return open_store(text("{\"storage_backends\": \"%s\", \"device_id\": 0, \"tensor_size\": %d, "
                           "\"shard_size\": %d, \"block_size\": %d, \"io_direct\": false, "
                           "\"posix_io_engine\": \"%s\", \"data_dir_shard_bytes\": %u, "
                           "\"posix_capacity_gb\": %.17g, \"posix_gc_trigger_threshold_ratio\": 1, "
                           "\"posix_gc_check_interval_sec\": 1, \"posix_gc_shard_sample_ratio\": 1"
                           "%s}",
                           root, BYTES, BYTES, BYTES, engine(), digits, gb, extra));
}

/* Until so many passes have looked for space; each begins after the one before has ended. */
static void wait_passes(kvpath_store_t store, uint64_t count)
{
    uint64_t until = stats_of(store).collector_passes + count;
    for (int left = LIMIT_S * 100; stats_of(store).collector_passes < until; left--) {
        if (left == 0) FAIL("no pass");
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static const char *put(const char *path, time_t mtime)
{
    static const uint8_t content[BYTES];
    write_file(path, content, sizeof content);
    struct timespec times[2] = {{.tv_sec = mtime}, {.tv_sec = mtime}};
    CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
    return path;
}

/* Block `number`, its first hex digit given. */
static kvpath_block_id_t id_in(unsigned digit, unsigned number)
{
    kvpath_block_id_t id = block_id(number);
    id.bytes[0] = (uint8_t)(digit << 4 | (id.bytes[0] & 15));
    return id;
}

static const char *make_dirs(const char *root)
{
    for (int digit = 0; digit < 16; digit++) CHECK(mkdir(text("%s/%x", root, digit), 0774) == 0);
    return root;
}

/* R81: sixteen directories of very different size and age; the oldest of all of them go, wherever
 * they are, and as many as it takes. */
CASE(r81_the_coldest_of_the_whole_store_go_from_skewed_directories)
{
    enum { ALL = 500, TRIGGER = 400 };
    const char *root = make_dirs(temp_dir()), *paths[ALL];
    time_t now = time(NULL);
    for (unsigned at = 0; at < ALL; at++) {
        /* Age in order of `at`: most of the old ones are in one directory, which has most blocks. */
        unsigned digit = at < 60 ? 3 : at < 120 ? at % 16 : at < 350 ? 3 : 5 + at % 7;
        kvpath_block_id_t id = id_in(digit, at);
        paths[at] = put(block_path(root, &id, 1), now - 10 * (ALL - (time_t)at) - 1000);
    }
    kvpath_store_t store = collecting(root, 1, TRIGGER, "");
    wait_passes(store, 2);
    enum { GONE = ALL - TRIGGER + 1 };
    for (unsigned at = 0; at < ALL; at++)
        if (exists(paths[at]) != (at >= GONE)) FAIL("block %u of %d", at, ALL);
    CHECK_EQ(stats_of(store).collected_blocks, GONE);
    CHECK_EQ(stats_of(store).estimated_blocks, ALL - GONE);
    CHECK_OK(kvpath_close(store));
}

/* R81: a round takes a share at least; below the trigger nothing goes. */
CASE(r81_a_share_goes_at_the_trigger_and_nothing_below_it)
{
    enum { TRIGGER = 100 };
    const char *root = make_dirs(temp_dir());
    time_t now = time(NULL);
    for (unsigned at = 0; at < TRIGGER - 1; at++) {
        kvpath_block_id_t id = id_in(at % 16, at);
        put(block_path(root, &id, 1), now - 1000 + (time_t)at);
    }
    kvpath_store_t store = collecting(root, 1, TRIGGER, ", \"posix_gc_recycle_percent\": 0.25");
    wait_passes(store, 2);
    CHECK_EQ(stats_of(store).collected_blocks, 0);
    kvpath_block_id_t id = id_in(4, TRIGGER);
    put(block_path(root, &id, 1), now);
    wait_passes(store, 2);
    CHECK_EQ(stats_of(store).collected_blocks, 25);
    for (unsigned at = 0; at < TRIGGER - 1; at++) {
        id = id_in(at % 16, at);
        CHECK_EQ(exists(block_path(root, &id, 1)), at >= 25);
    }
    CHECK_OK(kvpath_close(store));
}

/* posix_gc_max_recycle_count_per_shard: a directory gives few at a time, still the oldest of all
 * first. */
CASE(r80_a_directory_gives_few_at_a_time_and_the_order_stays)
{
    enum { ALL = 200, TRIGGER = 120 };
    const char *root = make_dirs(temp_dir()), *paths[ALL];
    time_t now = time(NULL);
    for (unsigned at = 0; at < ALL; at++) {
        kvpath_block_id_t id = id_in(at < 100 ? 7 : at % 16, at);
        paths[at] = put(block_path(root, &id, 1), now - 5000 + (time_t)at);
    }
    kvpath_store_t store =
        collecting(root, 1, TRIGGER, ", \"posix_gc_max_recycle_count_per_shard\": 9");
    wait_passes(store, 2);
    size_t left = 0;
    while (left < ALL && !exists(paths[left])) left++;
    for (size_t at = left; at < ALL; at++) CHECK(exists(paths[at]));
    CHECK(ALL - left < TRIGGER);
    CHECK_EQ(stats_of(store).collected_blocks, left);
    CHECK_OK(kvpath_close(store));
}

/* posix_gc_precise_mode false: each directory gives its own coldest share. */
CASE(r80_without_precise_mode_each_directory_gives_its_share)
{
    enum { EACH = 20, TRIGGER = 290 };
    const char *root = make_dirs(temp_dir());
    time_t now = time(NULL);
    for (unsigned digit = 0; digit < 16; digit++)
        for (unsigned at = 0; at < EACH; at++) {
            kvpath_block_id_t id = id_in(digit, digit * EACH + at);
            put(block_path(root, &id, 1), now - 9000 + (time_t)(digit * EACH + at));
        }
    kvpath_store_t store = collecting(root, 1, TRIGGER, ", \"posix_gc_precise_mode\": false");
    wait_passes(store, 2);
    size_t taken = 0;
    for (unsigned digit = 0; digit < 16; digit++)
        for (unsigned at = 0; at < EACH; at++) {
            kvpath_block_id_t id = id_in(digit, digit * EACH + at);
            bool gone = !exists(block_path(root, &id, 1));
            if (gone && at >= 2) FAIL("directory %x gave block %u, not its coldest", digit, at);
            taken += gone;
        }
    CHECK(16 * EACH - taken < TRIGGER);
    CHECK_EQ(stats_of(store).collected_blocks, taken);
    CHECK_OK(kvpath_close(store));
}

/* R82: what is no block is never taken for one, stops nothing, and is counted. */
CASE(r82_only_blocks_are_collected)
{
    enum { BLOCKS = 40, TRIGGER = 11 };
    const char *root = temp_dir(), *data = text("%s/data", root);
    CHECK(mkdir(data, 0774) == 0 && mkdir(text("%s/.quarantine", root), 0774) == 0);
    const char *name = block_name(&(kvpath_block_id_t){{1}});
    const char *keeps[] = {
        put(text("%s/notes", data), 1),
        put(text("%s/%s.old", data, name), 1),
        put(text("%s/%.31s", data, name), 1),
        put(text("%s/ABCDEFABCDEFABCDEFABCDEFABCDEFAB", data), 1),
        put(text("%s/.hidden", data), 1),
        put(text("%s/unknown.tmp", data), 1),
        put(text("%s/.quarantine/%s", root, name), 1),
        put(text("%s/0123456789abcdef0123456789abcdef", root), 1),
    };
    CHECK(mkdir(text("%s/00000000000000000000000000000000", data), 0774) == 0);
    CHECK(symlink(keeps[0], text("%s/11111111111111111111111111111111", data)) == 0);
    for (unsigned at = 0; at < BLOCKS; at++) {
        kvpath_block_id_t id = block_id(at);
        put(block_path(root, &id, 0), 1000 + (time_t)at);
    }
    kvpath_store_t store = collecting(root, 0, TRIGGER, "");
    wait_passes(store, 2);
    CHECK_EQ(stats_of(store).collected_blocks, BLOCKS - TRIGGER + 1);
    CHECK_EQ(stats_of(store).foreign_names, 6);
    for (size_t at = 0; at < sizeof keeps / sizeof *keeps; at++)
        if (!exists(keeps[at])) FAIL("%s is gone", keeps[at]);
    CHECK(access(text("%s/00000000000000000000000000000000", data), F_OK) == 0);
    CHECK(access(text("%s/11111111111111111111111111111111", data), F_OK) == 0);
    CHECK_EQ(stats_of(store).failed_passes, 0);
    CHECK_OK(kvpath_close(store));
}

/* R81: no age floor, and a time in the future is now: such blocks are the youngest, not for ever. */
CASE(r81_times_in_the_future_count_as_now)
{
    enum { ALL = 30, TRIGGER = 21 };
    const char *root = temp_dir();
    CHECK(mkdir(text("%s/data", root), 0774) == 0);
    time_t now = time(NULL);
    for (unsigned at = 0; at < ALL; at++) {
        kvpath_block_id_t id = block_id(at);
        put(block_path(root, &id, 0), at < 5 ? now - 5 : now + 100000 + (time_t)at);
    }
    kvpath_store_t store = collecting(root, 0, TRIGGER, "");
    wait_passes(store, 2);
    for (unsigned at = 0; at < 5; at++) {
        kvpath_block_id_t id = block_id(at);
        CHECK(!exists(block_path(root, &id, 0)));
    }
    CHECK_EQ(count_files(text("%s/data", root), NULL), TRIGGER - 1);
    CHECK_OK(kvpath_close(store));
}

/* Blocks that the store itself writes are kept within the space, and can be written again. */
CASE(r81_a_store_that_dumps_stays_within_its_space)
{
    enum { TRIGGER = 20, ALL = 100 };
    const char *root = temp_dir();
    const shape_t shape = {BYTES, BYTES, BYTES};
    kvpath_store_t store = collecting(root, 0, TRIGGER, "");
    for (unsigned round = 0; round < 2; round++) {
        batch_t *blocks = batch(shape, 1, ALL, 0);
        dump_batch(store, blocks);
        wait_passes(store, 2);
        CHECK(count_files(text("%s/data", root), NULL) < TRIGGER);
    }
    CHECK(stats_of(store).collected_blocks >= 2 * (ALL - TRIGGER));
    CHECK_OK(kvpath_close(store));
    CHECK(!exists(text("%s/.ucm_gc.lock", root)));
}

/* The scheduler of a pipeline, which only looks up, is who collects. */
CASE(r80_a_store_for_lookups_collects)
{
    enum { ALL = 30, TRIGGER = 21 };
    const char *root = temp_dir();
    CHECK(mkdir(text("%s/data", root), 0774) == 0);
    for (unsigned at = 0; at < ALL; at++) {
        kvpath_block_id_t id = block_id(at);
        put(block_path(root, &id, 0), 1000 + (time_t)at);
    }
    kvpath_store_t store = open_store(
        text("{\"storage_backends\": \"%s\", \"device_id\": -1, \"block_size\": %d, "
             "\"io_direct\": false, \"data_dir_shard_bytes\": 0, \"posix_capacity_gb\": %.17g, "
             "\"posix_gc_trigger_threshold_ratio\": 1, \"posix_gc_check_interval_sec\": 1, "
             "\"posix_gc_cross_instance_lock\": false}",
             root, BYTES, (double)TRIGGER * BYTES / (1 << 30)));
    wait_passes(store, 2);
    CHECK_EQ(count_files(text("%s/data", root), NULL), TRIGGER - 1);
    CHECK_OK(kvpath_close(store));
}

/* posix_gc_enable false: the capacity is no order. */
CASE(r80_switched_off_nothing_is_collected)
{
    const char *root = temp_dir();
    kvpath_store_t store = collecting(root, 0, 20, ", \"posix_gc_enable\": false");
    batch_t *blocks = batch((shape_t){BYTES, BYTES, BYTES}, 1, 40, 0);
    dump_batch(store, blocks);
    wait_sweeps(store, 1);
    CHECK_EQ(stats_of(store).collector_passes, 0);
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
}
