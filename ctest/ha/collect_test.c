/* Collecting and sweeping through paths that hang or fail (R84, R86), and closing meanwhile (R54). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ha.h"

/* Block files; a probe's file has a longer name. */
#define BLOCK_FILES "data/" "????????????????????????????????"

enum { ALL = 60, TRIGGER = 30 };

static bool has_swept_again(void *argument)
{
    rig_t *rig = argument;
    return stats_of(rig->store).sweep_passes >= (uint64_t)rig->swept[0] + 3;
}

/* Collects from TRIGGER blocks of `whole` on; a call may hang for a second. */
static const char *collecting(void)
{
    return text(", \"posix_capacity_gb\": %.17g, \"posix_gc_trigger_threshold_ratio\": 1, "
                "\"posix_gc_check_interval_sec\": 1, \"posix_gc_task_timeout_ms\": 1000",
                (double)TRIGGER * (double)whole.block / (1 << 30));
}

static void put_blocks(const char *storage)
{
    mkdir(text("%s/data", storage), 0774);
    uint8_t *content = calloc(1, whole.block);
    CHECK(content != NULL);
    for (unsigned number = 0; number < ALL; number++) {
        kvpath_block_id_t id = block_id(number);
        const char *path = block_path(storage, &id, 0);
        write_file(path, content, whole.block);
        struct timespec times[2] = {{.tv_sec = 1000 + number}, {.tv_sec = 1000 + number}};
        CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
    }
    free(content);
}

static bool is_below(void *argument)
{
    return count_files(text("%s/data", ((rig_t *)argument)->storage), NULL) < TRIGGER;
}

static bool has_counted(void *argument)
{
    return stats_of(((rig_t *)argument)->store).collected_blocks >= ALL - TRIGGER + 1;
}

static void check_the_oldest_went(rig_t *rig)
{
    for (unsigned number = 0; number < ALL; number++) {
        kvpath_block_id_t id = block_id(number);
        bool there = exists(block_path(rig->storage, &id, 0));
        if (there != (number > ALL - TRIGGER)) FAIL("block %u", number);
    }
}

/* R84: removals that hang on one path are done through the other. */
CASE(r84_removals_on_a_hung_path_move_on)
{
    rig_t rig;
    rig_mount(&rig, 2);
    put_blocks(rig.storage);
    fault(&rig, 0, "unlink " BLOCK_FILES " always hang");
    rig_open(&rig, (options_t){.shape = whole, .extra = collecting()});
    wait_hung(&rig, 0, 1, "unlink");
    wait_for("collection", is_below, &rig);
    wait_state(&rig, 0, KVPATH_BACKEND_EXCLUDED);
    CHECK(hung(&rig, 0) > 0);
    check_the_oldest_went(&rig);
    wait_for("the count of what went", has_counted, &rig);
    heal(&rig, 0);
    release(&rig, 0);
    rig_stop(&rig);
}

/* R84: listings that hang on one path are done through the other. */
CASE(r84_listings_on_a_hung_path_move_on)
{
    for (int which = 0; which < 2; which++) {
        rig_t rig;
        rig_mount(&rig, 2);
        put_blocks(rig.storage);
        fault(&rig, which, "opendir data always hang");
        rig_open(&rig, (options_t){.shape = whole, .extra = collecting()});
        wait_for("collection", is_below, &rig);
        check_the_oldest_went(&rig);
        heal(&rig, which);
        release(&rig, which);
        rig_stop(&rig);
    }
}

/* R84: a path that fails is passed by. */
CASE(r84_a_failing_path_is_passed_by)
{
    for (int which = 0; which < 2; which++) {
        rig_t rig;
        rig_mount(&rig, 2);
        put_blocks(rig.storage);
        fault(&rig, which, "unlink " BLOCK_FILES " always fail EIO");
        fault(&rig, which, "opendir data count=1 fail EIO");
        rig_open(&rig, (options_t){.shape = whole, .extra = collecting()});
        wait_for("collection", is_below, &rig);
        check_the_oldest_went(&rig);
        heal(&rig, which);
        rig_stop(&rig);
    }
}

/* R22: files that may not be removed say nothing about the path, and the next ones go instead. */
CASE(r22_files_of_another_owner_exclude_no_path)
{
    rig_t rig;
    rig_mount(&rig, 1);
    put_blocks(rig.storage);
    kvpath_block_id_t oldest = block_id(0);
    fault(&rig, 0, "unlink data/%s always fail EPERM", block_name(&oldest));
    rig_open(&rig, (options_t){.shape = whole, .extra = collecting()});
    wait_for("collection", is_below, &rig);
    CHECK(exists(block_path(rig.storage, &oldest, 0)));
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    CHECK_EQ(stats_of(rig.store).failed_passes, 0);
    heal(&rig, 0);
    rig_stop(&rig);
}

static bool has_passed_twice(void *argument)
{
    return stats_of(((rig_t *)argument)->store).collector_passes >= 2;
}

/* R22: files that no path can remove are no fault of the paths: all of them serve on. */
CASE(r22_files_that_cannot_be_removed_exclude_no_path)
{
    rig_t rig;
    rig_mount(&rig, 2);
    put_blocks(rig.storage);
    kvpath_block_id_t stays[] = {block_id(0), block_id(1), block_id(2)};
    for (int path = 0; path < 2; path++)
        for (int at = 0; at < 3; at++)
            fault(&rig, path, "unlink data/%s always fail EIO", block_name(&stays[at]));
    rig_open(&rig, (options_t){.shape = whole, .extra = collecting()});
    wait_for("collection", is_below, &rig);
    wait_for("two passes", has_passed_twice, &rig);
    for (int at = 0; at < 3; at++) CHECK(exists(block_path(rig.storage, &stays[at], 0)));
    for (int path = 0; path < 2; path++) {
        CHECK(seen(&rig, path, "unlink", BLOCK_FILES) >= 3);
        check_health(&rig, path, KVPATH_BACKEND_AVAILABLE, ANY, 0);
        heal(&rig, path);
    }
    CHECK_EQ(log_count("KV2001"), 0);
    CHECK_EQ(stats_of(rig.store).failed_passes, 0);
    rig_stop(&rig);
}

static bool has_failed_again(void *argument)
{
    rig_t *rig = argument;
    return stats_of(rig->store).failed_passes >= (uint64_t)rig->swept[1] + 3;
}

/* The same of what a dead writer left, and of a directory that cannot be listed. */
CASE(r22_a_sweep_that_fails_excludes_no_path)
{
    rig_t rig;
    rig_mount(&rig, 2);
    mkdir(text("%s/data", rig.storage), 0774);
    enum { LEFT = 4 };
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    for (unsigned number = 0; number < LEFT; number++) {
        kvpath_block_id_t id = block_id(number);
        const char *left = text("%s/data/%s.tmp", rig.storage, block_name(&id));
        write_file(left, "", 0);
        CHECK(utimensat(AT_FDCWD, left, times, 0) == 0);
    }
    for (int path = 0; path < 2; path++) fault(&rig, path, "unlink " BLOCK_FILES ".tmp always fail EIO");
    rig_open(&rig, (options_t){.shape = whole, .extra = ", \"temp_ttl_s\": 1"});
    rig.swept[0] = 0;
    wait_for("three sweeps", has_swept_again, &rig);
    for (int path = 0; path < 2; path++) {
        CHECK(seen(&rig, path, "unlink", BLOCK_FILES ".tmp") >= LEFT);
        check_health(&rig, path, KVPATH_BACKEND_AVAILABLE, ANY, 0);
        fault(&rig, path, "opendir data always fail EIO");
    }
    rig.swept[1] = (int)stats_of(rig.store).failed_passes;
    wait_for("three passes that fail", has_failed_again, &rig);
    for (int path = 0; path < 2; path++) {
        check_health(&rig, path, KVPATH_BACKEND_AVAILABLE, ANY, 0);
        heal(&rig, path);
    }
    CHECK_EQ(log_count("KV2001"), 0);
    wait_gone(text("%s/data", rig.storage), ".tmp");
    rig_stop(&rig);
}

/* R24, R81: an empty mount point is no empty store, and nothing is made below it. */
CASE(r24_a_path_that_fell_off_is_no_empty_store)
{
    rig_t rig;
    rig_mount(&rig, 2);
    rig_open(&rig, (options_t){.shape = whole, .extra = collecting()});
    char stray[FAULTFS_TEXT_BYTES];
    CHECK(faultfs_command(&rig.fs[0], stray, sizeof stray, "vanish") == 0);
    /* All at once: a pass that begins amid them takes others than the oldest of all. */
    const char *aside = temp_dir();
    put_blocks(aside);
    CHECK(rename(text("%s/data", aside), text("%s/data", rig.storage)) == 0);
    wait_for("collection", is_below, &rig);
    check_the_oldest_went(&rig);
    CHECK_EQ(count_files(stray, NULL), 0);
    tell(&rig, 0, "return");
    rig_stop(&rig);
}

/* R54: close ends a pass that hangs, and gives the lease back through the path that works. */
CASE(r54_close_while_a_pass_hangs)
{
    rig_t rig;
    rig_mount(&rig, 2);
    put_blocks(rig.storage);
    fault(&rig, 0, "unlink " BLOCK_FILES " always hang");
    rig_open(&rig, (options_t){.shape = whole,
                               .extra = text("%s, \"close_timeout_ms\": 500", collecting())});
    wait_hung(&rig, 0, 1, "unlink");
    uint64_t begun = now_ms();
    CHECK_STATUS(kvpath_close(rig.store), KVPATH_TIMEOUT); /* its thread is in the kernel */
    CHECK(now_ms() - begun < 500 + SLACK_MS);
    release(&rig, 0);
    for (int at = 0; at < 2; at++) CHECK(faultfs_stop(&rig.fs[at]) == 0);
}

/* R54: close while a pass waits for nothing but a slow path is quick, and leaves no lease. */
CASE(r54_close_during_a_pass_leaves_no_lease)
{
    rig_t rig;
    rig_mount(&rig, 1);
    put_blocks(rig.storage);
    fault(&rig, 0, "unlink " BLOCK_FILES " always delay 200");
    rig_open(&rig, (options_t){.shape = whole, .extra = collecting()});
    wait_seen(&rig, 0, "unlink", BLOCK_FILES, 1);
    CHECK_OK(kvpath_close(rig.store));
    CHECK(!exists(text("%s/.ucm_gc.lock", rig.storage)));
    CHECK(faultfs_stop(&rig.fs[0]) == 0);
}

/* R54: a step of the lease that hangs takes no more than its part of the limit of close: what the
 * store has begun is still cleaned up. */
CASE(r54_close_while_a_step_of_the_lease_hangs)
{
    rig_t rig;
    rig_mount(&rig, 2);
    kvpath_block_id_t root = {{0}}; /* decides the route of the lease */
    int leased = (int)(hash_of(&root) % 2);
    fault(&rig, leased, "mkdir .ucm_gc.lock always hang");
    rig_open(&rig, (options_t){.extra = ", \"posix_capacity_gb\": 1, "
                                        "\"posix_gc_check_interval_sec\": 30, "
                                        "\"posix_gc_heartbeat_interval_sec\": 29, "
                                        "\"close_timeout_ms\": 4000"});
    wait_hung(&rig, leased, 1, "mkdir");
    batch_t *block = block_on(&rig, 1 - leased, 0);
    CHECK_OK(dump(rig.store, block->shards, 1)); /* one of two */
    CHECK_EQ(count_files(rig.storage, ".tmp"), 1);
    uint64_t begun = now_ms();
    CHECK_STATUS(kvpath_close(rig.store), KVPATH_TIMEOUT); /* its thread is in the kernel */
    CHECK(now_ms() - begun < 4000 + SLACK_MS);
    CHECK_EQ(count_files(rig.storage, ".tmp"), 0);
    release(&rig, leased);
    for (int at = 0; at < 2; at++) CHECK(faultfs_stop(&rig.fs[at]) == 0);
}

/* R46, R86: a live writer whose path is slow keeps its own, however old it gets. */
CASE(r86_a_live_writer_on_a_slow_path_keeps_its_own)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .extra = ", \"temp_ttl_s\": 1"});
    batch_t *block = block_on(&rig, 0, 0);
    long long rule = fault(&rig, 0, "write %s count=1 hang", files_of(block));
    kvpath_task_t task = begin_dump(&rig, block);
    wait_hung(&rig, 0, 1, "write");
    rig.swept[0] = (int)stats_of(rig.store).sweep_passes;
    wait_for("three sweeps", has_swept_again, &rig);
    CHECK_EQ(count_files(rig.storage, ".tmp"), 1);
    CHECK_EQ(stats_of(rig.store).swept_temporaries, 0);
    tell(&rig, 0, "release %lld", rule);
    CHECK_OK(finish(&rig, task));
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R86, R84: a sweep on a hung path gives up in time, and goes on through the other. */
CASE(r86_a_sweep_on_a_hung_path_moves_on)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole,
                                   .extra = ", \"temp_ttl_s\": 1, "
                                            "\"posix_gc_task_timeout_ms\": 1000"});
    fault(&rig, 0, "opendir * always hang");
    fault(&rig, 0, "unlink *.tmp always hang");
    kvpath_block_id_t id = {{7}};
    const char *left = text("%s/data/%s.tmp", rig.storage, block_name(&id));
    write_file(left, "", 0);
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    CHECK(utimensat(AT_FDCWD, left, times, 0) == 0);
    wait_gone(text("%s/data", rig.storage), ".tmp");
    heal(&rig, 0);
    release(&rig, 0);
    rig_stop(&rig);
}
