/* What goes by itself: temporaries of dead writers (R46, R86), quarantine (R23, R86). */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { LIMIT_S = 120 };
static const shape_t shape = {4096, 4096, 8192};
static const char quick_lease[] =
    ", \"posix_gc_heartbeat_interval_sec\": 1, \"posix_gc_stale_threshold_sec\": 2";

static void look_again(int *left, const char *what)
{
    if ((*left)-- == 0) FAIL("%s does not come", what);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void age(const char *path, time_t mtime)
{
    struct timespec times[2] = {{.tv_sec = mtime}, {.tv_sec = mtime}};
    CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
}

static const char *put(const char *path, time_t mtime)
{
    write_file(path, "x", 1);
    age(path, mtime);
    return path;
}

/* The one temporary below `dir`. */
static const char *temporary_in(const char *dir)
{
    const char *found = NULL;
    DIR *open = opendir(dir);
    CHECK(open != NULL);
    for (struct dirent *entry; (entry = readdir(open)) != NULL;)
        if (strstr(entry->d_name, ".tmp") != NULL) found = text("%s/%s", dir, entry->d_name);
    closedir(open);
    CHECK(found != NULL);
    return found;
}

/* A child that dumps half a block and is killed. */
static void die_dumping(const char *root)
{
    int out[2];
    CHECK(pipe(out) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        kvpath_store_t store = open_root(root, shape, "");
        batch_t *block = batch(shape, 1, 1, 0);
        batch_fill(block);
        wait_sweeps(store, 1); /* it does not die with the lease in its hand */
        CHECK_OK(dump(store, block->shards, 1));
        CHECK(write(out[1], "h", 1) == 1);
        for (;;) pause();
    }
    char word = 0;
    close(out[1]);
    bool told = read(out[0], &word, 1) == 1;
    close(out[0]);
    int status = 0;
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("a child did");
    CHECK(told);
}

/* R46: the next store on this host sees that the process is gone, and soon. */
CASE(r86_a_dead_process_leaves_nothing_for_long)
{
    const char *root = temp_dir();
    die_dumping(root);
    CHECK_EQ(count_files(root, ".tmp"), 1);
    kvpath_store_t store = open_root(root, shape, "");
    wait_gone(text("%s/data", root), ".tmp");
    wait_sweeps(store, 1);
    CHECK_EQ(stats_of(store).swept_temporaries, 1);
    CHECK_OK(kvpath_close(store));
    CHECK(!exists(text("%s/.ucm_gc.lock", root)));
}

/* R46: pids mean nothing in another namespace; only the age decides. */
CASE(r86_another_pid_namespace_is_left_alone_until_it_is_old)
{
    const char *root = temp_dir();
    pid_t namespace = fork();
    CHECK(namespace >= 0);
    if (namespace == 0) {
        if (unshare(CLONE_NEWPID) != 0) _exit(77);
        die_dumping(root);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(namespace, &status, 0) == namespace);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("no pid namespace here");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const char *temporary = temporary_in(text("%s/data", root));
    kvpath_store_t store = open_root(root, shape, "");
    wait_sweeps(store, 1);
    CHECK(exists(temporary));
    CHECK_EQ(stats_of(store).swept_temporaries, 0);
    CHECK_OK(kvpath_close(store));
    age(temporary, time(NULL) - 2 * 3600); /* temp_ttl_s is one hour */
    store = open_root(root, shape, "");
    wait_gone(text("%s/data", root), ".tmp");
    CHECK_OK(kvpath_close(store));
}

/* R86: again and again while a store is open; by age, foreign ones too; unknown names never. */
CASE(r86_an_open_store_sweeps_again_and_again)
{
    const char *root = temp_dir(), *data = text("%s/data", root);
    kvpath_store_t store = open_root(root, shape, ", \"temp_ttl_s\": 2");
    for (int round = 0; round < 2; round++) {
        wait_sweeps(store, stats_of(store).sweep_passes + 1);
        const char *name = block_name(&(kvpath_block_id_t){{(uint8_t)round}});
        put(text("%s/%s.tmp", data, name), 1000);
        put(text("%s/%s.1_2_3_4_5-0.tmp", data, name), 1000);
        wait_gone(data, ".tmp");
    }
    const char *fresh = put(text("%s/%s.tmp", data, block_name(&(kvpath_block_id_t){{9}})),
                            time(NULL) + 1000); /* a clock that is ahead */
    const char *unknown = put(text("%s/notes.tmp", data), 1000);
    wait_sweeps(store, stats_of(store).sweep_passes + 2);
    CHECK(exists(fresh) && exists(unknown));
    CHECK_EQ(stats_of(store).swept_temporaries, 4);
    CHECK_OK(kvpath_close(store));
}

/* R46: of another host, or of this one before it was started again, only what is old goes. */
CASE(r86_only_what_is_old_of_another_host_goes)
{
    const char *root = temp_dir(), *data = text("%s/data", root);
    CHECK(mkdir(data, 0774) == 0);
    time_t now = time(NULL);
    const char *kept[2], *old[2];
    for (uint8_t which = 0; which < 2; which++) {
        const char *young = block_name(&(kvpath_block_id_t){{1, which}});
        const char *aged = block_name(&(kvpath_block_id_t){{2, which}});
        const char *writer = which == 0 ? "" : ".1_2_3_4_5-0"; /* another boot's of ours */
        kept[which] = put(text("%s/%s%s.tmp", data, young, writer), now);
        old[which] = put(text("%s/%s%s.tmp", data, aged, writer), now - 2 * 3600);
    }
    kvpath_store_t store = open_root(root, shape, ""); /* temp_ttl_s is one hour */
    wait_sweeps(store, 1);
    for (int which = 0; which < 2; which++) CHECK(exists(kept[which]) && !exists(old[which]));
    CHECK_EQ(stats_of(store).swept_temporaries, 2);
    CHECK_OK(kvpath_close(store));
    for (int which = 0; which < 2; which++) CHECK(exists(kept[which]));
}

/* The pass that collects does not sweep at each interval, but it sweeps. */
CASE(r86_a_store_that_collects_sweeps_too)
{
    const char *root = temp_dir(), *data = text("%s/data", root);
    CHECK(mkdir(data, 0774) == 0);
    put(text("%s/%s.tmp", data, block_name(&(kvpath_block_id_t){{1}})), 1000);
    kvpath_store_t store = open_root(root, shape, ", \"posix_capacity_gb\": 1");
    wait_gone(data, ".tmp");
    wait_sweeps(store, 1);
    CHECK_OK(kvpath_close(store));
}

/* R83: a lease that nobody gives back goes stale, and the sweep takes place all the same. */
CASE(r86_a_dead_holder_of_the_lease_stops_no_sweep_for_ever)
{
    const char *root = temp_dir(), *data = text("%s/data", root);
    CHECK(mkdir(data, 0774) == 0 && mkdir(text("%s/.ucm_gc.lock", root), 0774) == 0);
    put(text("%s/.ucm_gc.lock/hb.elsewhere.7.00000001", root), time(NULL) - 100);
    put(text("%s/%s.tmp", data, block_name(&(kvpath_block_id_t){{1}})), 1000);
    kvpath_store_t store =
        open_root(root, shape, text(", \"temp_ttl_s\": 2%s", quick_lease));
    wait_gone(data, ".tmp");
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, "ucm_gc.lock"), 0);
    CHECK_EQ(count_files(root, "ucm_gc.stale"), 0);
}

/* ---- quarantine (R23) ---- */

static size_t set_aside(const char *root)
{
    const char *dir = text("%s/.quarantine", root);
    return access(dir, F_OK) == 0 ? count_files(dir, NULL) : 0;
}

static void wait_aside(kvpath_store_t store, uint64_t count)
{
    int left = LIMIT_S * 100;
    while (stats_of(store).quarantined_files < count) look_again(&left, "quarantine");
}

static void damage(const char *root, uint64_t number, off_t bytes)
{
    kvpath_block_id_t id = block_id(number);
    CHECK(truncate(block_path(root, &id, 0), bytes) == 0);
}

CASE(r23_a_short_file_goes_to_quarantine_and_the_block_can_be_dumped_again)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, ", \"quarantine\": true");
    batch_t *blocks = batch(shape, 1, 3, 0);
    dump_batch(store, blocks);
    damage(root, 1, 100); /* a load sees it */
    CHECK_STATUS(load(store, blocks->shards, 2), KVPATH_NOT_FOUND);
    wait_aside(store, 1);
    damage(root, 2, 10000); /* and a lookup */
    kvpath_block_id_t second = block_id(2);
    CHECK(!present(store, &second));
    wait_aside(store, 2);
    CHECK_EQ(set_aside(root), 2);
    for (uint64_t number = 1; number <= 2; number++) {
        kvpath_block_id_t id = block_id(number);
        CHECK(!exists(block_path(root, &id, 0)));
    }
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK_EQ(stats_of(store).quarantined_files, 2);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(set_aside(root), 2);
}

/* Nothing is moved unless it is asked for. */
CASE(r23_without_quarantine_a_short_file_stays)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 1, 1, 0);
    dump_batch(store, blocks);
    damage(root, 1, 100);
    CHECK_STATUS(load(store, blocks->shards, 2), KVPATH_NOT_FOUND);
    CHECK_OK(kvpath_close(store));
    kvpath_block_id_t id = block_id(1);
    CHECK(exists(block_path(root, &id, 0)));
    CHECK_EQ(set_aside(root), 0);
}

/* R86: what is long enough in quarantine goes, by the time it was put there; other names stay. */
CASE(r86_quarantine_expires)
{
    const char *root = temp_dir();
    CHECK(mkdir(text("%s/.quarantine", root), 0774) == 0);
    const char *name = block_name(&(kvpath_block_id_t){{1}});
    time_t now = time(NULL);
    const char *old = put(text("%s/.quarantine/%s.%lld.a-1", root, name, (long long)now - 100), now);
    const char *young = put(text("%s/.quarantine/%s.%lld.a-2", root, name, (long long)now), 1000);
    const char *foreign = put(text("%s/.quarantine/notes", root), 1000);
    kvpath_store_t store =
        open_root(root, shape, ", \"quarantine\": true, \"quarantine_ttl_s\": 50");
    wait_sweeps(store, 1);
    CHECK(!exists(old));
    CHECK(exists(young) && exists(foreign));
    CHECK_EQ(stats_of(store).expired_quarantine, 1);
    CHECK_OK(kvpath_close(store));
}

/* ---- at rest ---- */

static unsigned long switches(void)
{
    unsigned long sum = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.' || atoi(task->d_name) == (int)getpid()) continue;
        FILE *status = fopen(text("/proc/self/task/%s/status", task->d_name), "r");
        char line[256];
        unsigned long value;
        while (status != NULL && fgets(line, sizeof line, status) != NULL)
            if (sscanf(line, "voluntary_ctxt_switches: %lu", &value) == 1) sum += value;
        if (status != NULL) fclose(status);
    }
    closedir(tasks);
    return sum;
}

/* R74, R86: between sweeps nothing wakes and no thread stays for them. */
CASE(r74_between_sweeps_a_store_is_at_rest)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    wait_sweeps(store, 1);
    int left = LIMIT_S * 100;
    /* Supervisor, log, two of health, and this one. */
    while (thread_count() > 5) look_again(&left, "the end of workers");
    /* At rest: two looks a second apart find the same, before long. */
    unsigned long before;
    do {
        before = switches();
        sleep(1);
        look_again(&left, "rest");
    } while (switches() != before);
    sleep(2);
    CHECK_EQ(switches(), before);
    CHECK_OK(kvpath_close(store));
}
