/* R64: what was hit stays warm. The clock of the storage is moved back by hand, and a refreshed
 * mtime is waited for as the event that it is. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {4096, 4096, 8192}; /* 2 shards */
enum { OLD = 1000000000, WAIT_MS = 60000, IDLE_S = 10 };

static const kvpath_block_id_t *id_of(const batch_t *blocks, size_t at)
{
    return &blocks->shards[at * blocks->per_block].block;
}

static time_t mtime_of(const char *path)
{
    struct stat what;
    if (stat(path, &what) != 0) FAIL("no %s", path);
    return what.st_mtime;
}

static void make_old(const char *path)
{
    const struct timespec times[2] = {{.tv_sec = OLD}, {.tv_sec = OLD}};
    CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
}

/* A store with one block, whose file is old. */
typedef struct {
    const char *root, *path;
    kvpath_store_t store;
    batch_t *block;
} old_t;

static old_t old_block(void)
{
    old_t old = {.root = temp_dir(), .block = batch(shape, 1, 1, 0)};
    old.store = open_root(old.root, shape, "");
    old.path = block_path(old.root, id_of(old.block, 0), 0);
    dump_batch(old.store, old.block);
    make_old(old.path);
    return old;
}

static void wait_refreshed(const char *path)
{
    char events[4096];
    int watch = inotify_init1(IN_CLOEXEC);
    CHECK(watch >= 0);
    CHECK(inotify_add_watch(watch, path, IN_ATTRIB) >= 0);
    while (mtime_of(path) == OLD) {
        struct pollfd poll_of = {.fd = watch, .events = POLLIN};
        if (poll(&poll_of, 1, WAIT_MS) != 1) FAIL("%s is still old", path);
        CHECK(read(watch, events, sizeof events) > 0);
    }
    close(watch);
}

CASE(a_load_refreshes_its_block)
{
    old_t old = old_block();
    load_batch(old.store, old.block);
    wait_refreshed(old.path);
    CHECK_OK(kvpath_close(old.store));
}

/* Closing sends off what waits, so nothing has to be waited for. */
CASE(close_refreshes_what_waits)
{
    old_t old = old_block();
    load_batch(old.store, old.block);
    CHECK_OK(kvpath_close(old.store));
    CHECK(mtime_of(old.path) > OLD);
}

CASE(once_a_minute)
{
    old_t old = old_block();
    load_batch(old.store, old.block);
    wait_refreshed(old.path);
    make_old(old.path);
    for (int round = 0; round < 100; round++) load_batch(old.store, old.block);
    CHECK_OK(kvpath_close(old.store));
    CHECK_EQ(mtime_of(old.path), OLD);
}

/* As many as come in a second go in lists; each of them is refreshed. */
CASE(many_blocks)
{
    enum { BLOCKS = 1000 };
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    dump_batch(store, blocks);
    for (size_t at = 0; at < BLOCKS; at++) make_old(block_path(root, id_of(blocks, at), 0));
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
    for (size_t at = 0; at < BLOCKS; at++)
        CHECK(mtime_of(block_path(root, id_of(blocks, at), 0)) > OLD);
}

/* Only loads are hits where there are loads; a lookup of an absent block is none anywhere. */
CASE(a_lookup_is_no_hit_where_transfers_are_on)
{
    old_t old = old_block();
    CHECK(present(old.store, id_of(old.block, 0)));
    CHECK_OK(kvpath_close(old.store));
    CHECK_EQ(mtime_of(old.path), OLD);
}

CASE(a_lookup_is_a_hit_in_the_role_of_a_scheduler)
{
    old_t old = old_block();
    CHECK_OK(kvpath_close(old.store));
    old.store = open_store(text("{\"storage_backends\": \"%s\", \"device_id\": -1, "
                                "\"posix_io_engine\": \"%s\", \"data_dir_shard_bytes\": 0, "
                                "\"io_direct\": false}",
                                old.root, engine()));
    kvpath_block_id_t absent = block_id(99);
    CHECK(!present(old.store, &absent));
    CHECK(present(old.store, id_of(old.block, 0)));
    wait_refreshed(old.path);
    make_old(old.path);
    CHECK(present(old.store, id_of(old.block, 0)));
    CHECK_OK(kvpath_close(old.store));
    CHECK_EQ(mtime_of(old.path), OLD);
}

/* R40: who stores what is there already has asked for it. */
CASE(a_commit_that_finds_the_block_refreshes_it)
{
    old_t old = old_block();
    struct stat before, after;
    CHECK(stat(old.path, &before) == 0);
    dump_batch(old.store, old.block);
    wait_refreshed(old.path);
    CHECK(stat(old.path, &after) == 0);
    CHECK_EQ(before.st_ino, after.st_ino); /* the first file has stayed */
    CHECK_OK(kvpath_close(old.store));
}

/* R22: a file of another owner excludes no path. */
CASE(a_foreign_owner_excludes_nothing)
{
    enum { NOBODY = 65534, BLOCKS = 8 };
    if (geteuid() != 0) SKIP("needs root to give files away");
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    dump_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
    CHECK(chmod(root, 0777) == 0 && chmod(text("%s/data", root), 0777) == 0);
    CHECK(chmod(text("%s/.kvpath", root), 0644) == 0);
    for (size_t at = 0; at < BLOCKS; at++) make_old(block_path(root, id_of(blocks, at), 0));
    CHECK(setresgid(NOBODY, NOBODY, 0) == 0 && setresuid(NOBODY, NOBODY, 0) == 0);
    store = open_root(root, shape,
                      ", \"store_health\": {\"failure_threshold\": 1, \"health_window_size\": 4}");
    load_batch(store, blocks);
    while (stats_of(store).hotness_left_out < BLOCKS) usleep(1000);
    kvpath_backend_health_t health = {.size = sizeof health};
    size_t count = 0;
    CHECK_OK(kvpath_health(store, &health, 1, &count));
    CHECK_EQ(health.state, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(health.failures, 0);
    CHECK_EQ(stats_of(store).hotness_refreshed, 0);
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
    CHECK(setresuid(0, 0, 0) == 0 && setresgid(0, 0, 0) == 0);
    for (size_t at = 0; at < BLOCKS; at++)
        CHECK_EQ(mtime_of(block_path(root, id_of(blocks, at), 0)), OLD);
}

/* The voluntary switches of the thread that sends lists off; counts the workers that are there. */
static unsigned long switches_of_supervisor(size_t *workers)
{
    unsigned long switches = 0;
    *workers = 0;
    size_t found = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char status[8192] = "";
        FILE *file = fopen(text("/proc/self/task/%s/status", entry->d_name), "r");
        if (file == NULL) continue; /* it ended meanwhile, or is no task */
        size_t bytes = fread(status, 1, sizeof status - 1, file);
        fclose(file);
        *workers += strstr(status, "Name:\tucm_posix_0_") != NULL;
        if (bytes == 0 || strstr(status, "Name:\tucm_posix_sup\n") == NULL) continue;
        const char *line = strstr(status, "\nvoluntary_ctxt_switches:");
        CHECK(line != NULL && sscanf(line, "\nvoluntary_ctxt_switches: %lu", &switches) == 1);
        found++;
    }
    closedir(tasks);
    CHECK_EQ(found, 1);
    return switches;
}

/* Ten seconds are what the rule is about. */
CASE(nothing_wakes_while_nothing_is_hot)
{
    old_t old = old_block();
    load_batch(old.store, old.block);
    wait_refreshed(old.path);
    size_t workers = 1;
    unsigned long before = 0;
    while (workers > 0) { /* their end is the last thing that rings */
        usleep(10000);
        before = switches_of_supervisor(&workers);
    }
    usleep(100000); /* the ring itself */
    before = switches_of_supervisor(&workers);
    sleep(IDLE_S);
    CHECK_EQ(switches_of_supervisor(&workers), before);
    CHECK_OK(kvpath_close(old.store));
}
