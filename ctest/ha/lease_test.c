/* The lease by which one instance collects (R83): processes that hold it, die, stop and go on, and
 * hosts whose clocks differ. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ha.h"

/* Block files; a probe's file has a longer name. */
#define BLOCK_FILES "data/" "????????????????????????????????"

enum { BYTES = 4096, BATCH = 64, BEAT_S = 1 };

/* Seconds by which this process's wall clock is wrong, as on another host. */
static long skew_s;

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += skew_s;
    return (int)result;
}

struct instance {
    pid_t pid;
    int to, from;
};

/* A process with a store that collects from `trigger` blocks on. */
static struct instance start(const char *path, unsigned trigger, unsigned stale_s, long skew)
{
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    struct instance instance = {fork(), to[1], from[0]};
    CHECK(instance.pid >= 0);
    if (instance.pid != 0) {
        close(to[0]);
        close(from[1]);
        return instance;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(to[1]);
    close(from[0]);
    skew_s = skew;
    int (*seen)(clockid_t, struct timespec *) = clock_gettime;
    void *used = dlsym(RTLD_DEFAULT, "clock_gettime");
    CHECK(memcmp(&used, &seen, sizeof used) == 0); /* the library reads this clock, too */
    log_collect();
    kvpath_store_t store = open_store(
        text("{\"storage_backends\": \"%s\", \"device_id\": 0, \"tensor_size\": %d, "
             "\"shard_size\": %d, \"block_size\": %d, \"io_direct\": false, \"timeout_ms\": 0, "
             "\"posix_io_engine\": \"%s\", \"data_dir_shard_bytes\": 0, "
             "\"posix_capacity_gb\": %.17g, \"posix_gc_trigger_threshold_ratio\": 1, "
             "\"posix_gc_check_interval_sec\": 1, \"posix_gc_heartbeat_interval_sec\": %d, "
             "\"posix_gc_stale_threshold_sec\": %u}",
             path, BYTES, BYTES, BYTES, ha_engine(), (double)trigger * BYTES / (1 << 30), BEAT_S,
             stale_s));
    check_engine(store);
    for (char word; read(to[0], &word, 1) == 1 && word == 's';) {
        check_no_fallback();
        uint64_t collected = stats_of(store).collected_blocks;
        CHECK(write(from[1], &collected, sizeof collected) == sizeof collected);
    }
    CHECK_OK(kvpath_close(store));
    check_no_fallback();
    fflush(NULL);
    _exit(0);
}

static uint64_t collected_by(struct instance instance)
{
    uint64_t collected = 0;
    CHECK(write(instance.to, "s", 1) == 1);
    if (read(instance.from, &collected, sizeof collected) != sizeof collected) {
        int status = 0;
        waitpid(instance.pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("a child did");
        FAIL("a child ended with %#x", status);
    }
    return collected;
}

static void end(struct instance instance)
{
    int status = 0;
    CHECK(write(instance.to, "q", 1) == 1);
    CHECK(waitpid(instance.pid, &status, 0) == instance.pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("a child did");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static const char *block_file(const char *storage, unsigned number)
{
    kvpath_block_id_t id = block_id(number);
    return block_path(storage, &id, 0);
}

/* Blocks `from` to `to`; their age is in that order. */
static void put_blocks(const char *storage, unsigned from, unsigned to)
{
    static const uint8_t content[BYTES];
    mkdir(text("%s/data", storage), 0774);
    for (unsigned number = from; number < to; number++) {
        const char *path = block_file(storage, number);
        write_file(path, content, sizeof content);
        struct timespec times[2] = {{.tv_sec = 1000 + number}, {.tv_sec = 1000 + number}};
        CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
    }
}

static size_t blocks_in(const char *storage) { return count_files(text("%s/data", storage), NULL); }

static bool below_trigger(void *argument)
{
    struct { const char *storage; size_t trigger; } *what = argument;
    return blocks_in(what->storage) < what->trigger;
}

static void wait_below(const char *storage, size_t trigger)
{
    struct { const char *storage; size_t trigger; } what = {storage, trigger};
    wait_for("collection", below_trigger, &what);
}

struct checks {
    const char *file;
    struct timespec last;
    int left;
};

static bool was_asked(void *argument)
{
    struct checks *checks = argument;
    struct stat now;
    if (stat(checks->file, &now) != 0) return false;
    if (now.st_mtim.tv_sec != checks->last.tv_sec || now.st_mtim.tv_nsec != checks->last.tv_nsec)
        checks->left--;
    checks->last = now.st_mtim;
    return checks->left <= 0;
}

/* Waits until instances without the lease have asked the storage's clock so often. */
static void wait_checks(const char *storage, int count)
{
    struct checks checks = {.file = text("%s/.ucm_gc.checktime", storage), .left = count + 1};
    wait_for("checks of the holder", was_asked, &checks);
}

/* When the holder has last shown that it lives. Since it is dead, nothing moves that any more; but
 * what it had begun may have, after this look. */
static struct timespec last_beat(const char *storage)
{
    const char *lock = text("%s/.ucm_gc.lock", storage);
    struct stat beat;
    DIR *dir = opendir(lock);
    CHECK(dir != NULL);
    beat.st_mtim.tv_sec = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strncmp(entry->d_name, "hb.", 3) == 0)
            CHECK(stat(text("%s/%s", lock, entry->d_name), &beat) == 0);
    closedir(dir);
    CHECK(beat.st_mtim.tv_sec > 0);
    return beat.st_mtim;
}

static long long ms_since(struct timespec then)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (now.tv_sec - then.tv_sec) * 1000LL + (now.tv_nsec - then.tv_nsec) / 1000000;
}

/* One holds the lease in the middle of a removal that hangs, and shows that it lives; two others
 * wait. It is killed: one of them collects everything, after the threshold. That is measured from
 * the holder's last beat, which the storage tells (the parent's clock is right): the first check
 * that finds it old compares whole seconds, so more than STALE_S - 1 have passed, and the second
 * one comes a beat later. Who took the lease without a threshold, but with both checks, would have
 * it within about three seconds. */
static void one_of_three(long first_skew, long second_skew, long third_skew)
{
    enum { ALL = 300, TRIGGER = 100, STALE_S = 6, SLEW_MS = 10 };
    rig_t rig;
    rig_mount(&rig, 1);
    put_blocks(rig.storage, 0, ALL);
    fault(&rig, 0, "unlink " BLOCK_FILES " always hang");
    struct instance first = start(rig.path[0], TRIGGER, STALE_S, first_skew);
    collected_by(first); /* it is open, or skipped */
    wait_hung(&rig, 0, 1, "unlink");
    struct instance second = start(rig.storage, TRIGGER, STALE_S, second_skew);
    struct instance third = start(rig.storage, TRIGGER, STALE_S, third_skew);
    CHECK_EQ(collected_by(second) + collected_by(third), 0);
    wait_checks(rig.storage, 8);
    CHECK_EQ(blocks_in(rig.storage), ALL);
    CHECK(kill(first.pid, SIGKILL) == 0);
    const struct timespec beat = last_beat(rig.storage);
    wait_below(rig.storage, ALL); /* the first one is gone */
    long long silent_ms = ms_since(beat);
    printf("silent for %lld ms\n", silent_ms);
    CHECK(silent_ms >= (STALE_S - 1 + BEAT_S) * 1000 - SLEW_MS);
    wait_below(rig.storage, TRIGGER);
    heal(&rig, 0);
    release_failing(&rig, 0, "EIO"); /* the dead one's calls are still in the kernel */
    CHECK(waitpid(first.pid, NULL, 0) == first.pid);
    uint64_t by_second = collected_by(second), by_third = collected_by(third);
    /* One of them, oldest first. Where both found it dead in one moment, the quicker one may have
     * begun a batch before it learned that the other took the lease from it (R83). */
    uint64_t removed = by_second + by_third;
    bool both = by_second > 0 && by_third > 0;
    CHECK(removed >= ALL - TRIGGER + 1 && removed <= ALL - TRIGGER + 1 + (both ? BATCH : 0));
    CHECK(by_second <= BATCH || by_third <= BATCH);
    for (unsigned number = 0; number < ALL; number++)
        CHECK_EQ(exists(block_file(rig.storage, number)), number >= removed);
    end(second);
    end(third);
    CHECK(!exists(text("%s/.ucm_gc.lock", rig.storage)));
    CHECK_EQ(count_files(rig.storage, ".ucm_gc.stale"), 0);
    CHECK(faultfs_stop(&rig.fs[0]) == 0);
}

CASE(r83_one_of_three_collects_and_another_takes_over_from_the_dead) { one_of_three(0, 0, 0); }

CASE(r83_clocks_of_hosts_that_differ_change_nothing) { one_of_three(86400, -86400, 3600); }

/* The holder is stopped in the middle of a batch, another takes over, and it goes on: it removes no
 * more than that batch. */
CASE(r83_a_holder_that_was_stopped_removes_no_more_than_its_batch)
{
    enum { ALL = 600, TRIGGER = 100 };
    rig_t rig;
    rig_mount(&rig, 1);
    put_blocks(rig.storage, 0, ALL);
    fault(&rig, 0, "unlink " BLOCK_FILES " always hang");
    /* It takes nobody for dead itself, so that the last look finds it waiting. */
    struct instance first = start(rig.path[0], TRIGGER, 3600, 0);
    collected_by(first);
    wait_hung(&rig, 0, 1, "unlink");
    CHECK(kill(first.pid, SIGSTOP) == 0);
    struct instance second = start(rig.storage, TRIGGER, 2, 0);
    CHECK(collected_by(second) <= ALL);
    wait_below(rig.storage, TRIGGER);
    end(second);
    /* Yet another holds the lease now; and what the first one meant to remove is there again. */
    CHECK(mkdir(text("%s/.ucm_gc.lock", rig.storage), 0774) == 0);
    write_file(text("%s/.ucm_gc.lock/hb.elsewhere.1.00000001", rig.storage), "", 0);
    put_blocks(rig.storage, 0, ALL - TRIGGER + 1);
    CHECK_EQ(blocks_in(rig.storage), ALL);
    heal(&rig, 0);
    release(&rig, 0);
    CHECK(kill(first.pid, SIGCONT) == 0);
    wait_checks(rig.storage, 2); /* it stands in the queue again */
    size_t removed = ALL - blocks_in(rig.storage);
    printf("removed after it went on: %zu\n", removed);
    CHECK(removed >= 1 && removed <= BATCH);
    end(first);
    removed = ALL - blocks_in(rig.storage); /* nor when it is told to end */
    CHECK(removed >= 1 && removed <= BATCH);
    CHECK(exists(text("%s/.ucm_gc.lock/hb.elsewhere.1.00000001", rig.storage)));
    CHECK(faultfs_stop(&rig.fs[0]) == 0);
}

/* The existing C++ store's protocol by hand: its live lease is respected, its dead one taken over. */
CASE(r83_the_lease_is_that_of_the_existing_store)
{
    enum { ALL = 60, TRIGGER = 30 };
    const char *storage = temp_dir();
    const char *lock = text("%s/.ucm_gc.lock", storage);
    const char *beat = text("%s/hb.node_1.4711.0badcafe", lock);
    put_blocks(storage, 0, ALL);
    CHECK(mkdir(lock, 0755) == 0);
    write_file(beat, "", 0);
    /* A lease that was taken over and not deleted. */
    const char *parked = text("%s/.ucm_gc.stale.hb.node_2.1.00000001.00000002", storage);
    CHECK(mkdir(parked, 0755) == 0);
    write_file(text("%s/hb.node_3.1.00000003", parked), "", 0);
    struct instance instance = start(storage, TRIGGER, 2, 0);
    collected_by(instance);
    for (int beats = 0; beats < 6; beats++) {
        CHECK(utimensat(AT_FDCWD, beat, NULL, 0) == 0);
        wait_checks(storage, 1);
    }
    CHECK_EQ(blocks_in(storage), ALL);
    wait_below(storage, TRIGGER);
    end(instance);
    CHECK(!exists(lock) && !exists(parked));
}
