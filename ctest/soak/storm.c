/* soak.h: the faults. A thread adds one after the other, each on one mount for a while. Which,
 * where and how long comes from the seed; at most a few at once, so that something is left to use. */
#define _GNU_SOURCE
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "soak.h"

enum {
    ACTIVE_MAX = 3,
    GAP_MAX_MS = 250,
    LIFE_MIN_MS = 50,
    LIFE_MAX_MS = 1200,
    LINES = 64,
    LINE_BYTES = 160,
    FALLEN = 32,
    /* A path that fell off is believed for 100 ms (R24); its last look may have been told late. */
    BELIEVED_US = 600000,
};

struct fault {
    bool active;
    int mount;
    long long rule; /* 0: freeze, -1: vanish */
    uint64_t end_us;
    bool fails; /* what hangs then fails, instead of running */
};

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct faultfs *mounts;
    dice_t dice;
    bool stopped;
    uint64_t start_us;
    struct fault faults[ACTIVE_MAX];
    char lines[LINES][LINE_BYTES];
    unsigned line_count;
    struct {
        uint64_t from_us, to_us;
    } fallen[FALLEN];
    unsigned fallen_count;
} storm = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void note(int mount, const char *what)
{
    const double at = (double)(now_us() - storm.start_us) / 1e6;
    pthread_mutex_lock(&storm.lock);
    snprintf(storm.lines[storm.line_count++ % LINES], LINE_BYTES, "%6.3f s, mount %d: %s", at,
             mount, what);
    pthread_mutex_unlock(&storm.lock);
}

void storm_story(void)
{
    unsigned from = storm.line_count > LINES ? storm.line_count - LINES : 0;
    for (; from < storm.line_count; from++) fprintf(stderr, "%s\n", storm.lines[from % LINES]);
}

static void tell(int mount, const char *command)
{
    note(mount, command);
    if (faultfs_command(&storm.mounts[mount], NULL, 0, "%s", command) != 0)
        FAIL("mount %d, %s: %s", mount, command, storm.mounts[mount].error);
}

static const char *pick(const char *const *words, size_t count)
{
    return words[dice_next(&storm.dice) % count];
}

#define PICK(...)                                                                                  \
    pick((const char *const[]){__VA_ARGS__},                                                       \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* The text of a rule. */
static void make_rule(char *rule, size_t bytes)
{
    dice_t *dice = &storm.dice;
    const char *ops = PICK("any", "read", "write", "open,create", "create", "rename",
                           "fsync,fsyncdir", "lookup,getattr", "unlink", "flush", "rename,unlink");
    const char *where = PICK("*", "*", "data/*", "data/*", "*.tmp", ".kvpath");
    const unsigned percent = dice_one_in(dice, 3) ? 100 : dice_from(dice, 2, 60);
    const unsigned seed = dice_from(dice, 1, 1000000);
    char action[64];
    switch (dice_from(dice, 0, 9)) {
    case 0:
    case 1:
    case 2:
        snprintf(action, sizeof action, "fail %s",
                 PICK("EIO", "EIO", "EACCES", "EROFS", "ENOTCONN", "ESTALE", "ETIMEDOUT"));
        break;
    case 3:
        ops = PICK("write", "create", "create,write", "fsync");
        snprintf(action, sizeof action, "fail %s", PICK("ENOSPC", "EDQUOT", "EFBIG"));
        break;
    case 4:
        ops = PICK("open", "create", "open,create");
        snprintf(action, sizeof action, "fail %s", PICK("EMFILE", "ENFILE", "ENOMEM"));
        break;
    case 5:
        ops = "read,write";
        snprintf(action, sizeof action, "short %s", PICK("1", "512", "4096", "5000"));
        break;
    case 6:
    case 7:
        snprintf(action, sizeof action, "delay %u", dice_from(dice, 1, 700));
        break;
    default:
        snprintf(action, sizeof action, "hang");
        break;
    }
    snprintf(rule, bytes, "rule add %s %s prob=0.%02u seed=%u %s", ops, where,
             percent == 100 ? 99 : percent, seed, action);
}

static void begin_fault(struct fault *fault)
{
    dice_t *dice = &storm.dice;
    char rule[LINE_BYTES - 32];
    fault->mount = (int)dice_from(dice, 0, MOUNTS - 1);
    fault->fails = dice_one_in(dice, 2);
    const unsigned life_ms = dice_from(dice, LIFE_MIN_MS, LIFE_MAX_MS);
    const unsigned kind = dice_from(dice, 0, 11);
    make_rule(rule, sizeof rule); /* always, so that the dice roll alike */
    if (kind == 0) {
        fault->rule = 0;
        tell(fault->mount, "freeze");
    } else if (kind == 1) {
        fault->rule = -1;
        const uint64_t from_us = now_us();
        pthread_mutex_lock(&storm.lock);
        const unsigned at = storm.fallen_count++ % FALLEN;
        storm.fallen[at].from_us = from_us;
        storm.fallen[at].to_us = UINT64_MAX;
        pthread_mutex_unlock(&storm.lock);
        tell(fault->mount, "vanish");
        pthread_mutex_lock(&storm.lock);
        storm.fallen[at].to_us = now_us() + BELIEVED_US;
        pthread_mutex_unlock(&storm.lock);
    } else {
        note(fault->mount, rule);
        fault->rule = faultfs_number(&storm.mounts[fault->mount], "%s", rule);
        if (fault->rule < 0) FAIL("%s: %s", rule, storm.mounts[fault->mount].error);
    }
    fault->end_us = now_us() + life_ms * 1000;
    fault->active = true;
}

static int stray(const char *path, const struct stat *what, int type, struct FTW *where)
{
    (void)what, (void)where;
    /* A create that was on its way when the path fell off is no harm; what is named is lost. Nor
     * is a claim that the marker was read for just before: the next step of the lease sees it. */
    if (type != FTW_D && strstr(path, ".tmp") == NULL && strstr(path, "/.ucm_gc.") == NULL)
        FAIL("%s was made below an empty mount point", path);
    return 0;
}

/* The path shows the storage again. Nothing was made below the empty mount point meanwhile. */
static void come_back(int mount)
{
    char place[FAULTFS_PATH_BYTES];
    struct faultfs *fs = &storm.mounts[mount];
    for (int at = 0; at < ACTIVE_MAX; at++) { /* it fell off a second time */
        const struct fault *fault = &storm.faults[at];
        if (fault->active && fault->mount == mount && fault->rule < 0) return;
    }
    /* Vanished already, it tells the place once more. */
    if (faultfs_command(fs, place, sizeof place, "vanish") != 0) FAIL("vanish: %s", fs->error);
    /* ENOENT: what a create on its way had made went while the walk looked. */
    while (nftw(place, stray, 16, FTW_PHYS) != 0)
        if (errno != ENOENT) FAIL("%s: %s", place, strerror(errno));
    tell(mount, "return");
}

static void end_fault(struct fault *fault)
{
    char command[64];
    fault->active = false;
    if (fault->rule == 0) {
        tell(fault->mount, "thaw");
    } else if (fault->rule < 0) {
        come_back(fault->mount);
    } else {
        snprintf(command, sizeof command, "rule del %lld", fault->rule);
        tell(fault->mount, command);
        snprintf(command, sizeof command, "release %lld%s", fault->rule,
                 fault->fails ? " fail EIO" : "");
        tell(fault->mount, command);
    }
}

/* Waits until then, or the end; says whether it is the end. */
static bool wait_until(uint64_t then_us)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const uint64_t now = now_us(), wait = then_us > now ? then_us - now : 0;
    const uint64_t ns = (uint64_t)until.tv_nsec + wait * 1000;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&storm.lock);
    while (!storm.stopped && now_us() < then_us)
        if (pthread_cond_timedwait(&storm.changed, &storm.lock, &until) == ETIMEDOUT) break;
    const bool stopped = storm.stopped;
    pthread_mutex_unlock(&storm.lock);
    return stopped;
}

static void *run(void *nothing)
{
    uint64_t next_us = now_us();
    while (true) {
        uint64_t until = next_us;
        struct fault *free_one = NULL;
        for (int at = 0; at < ACTIVE_MAX; at++) {
            struct fault *fault = &storm.faults[at];
            if (fault->active && fault->end_us <= now_us()) end_fault(fault);
            if (!fault->active)
                free_one = fault;
            else if (fault->end_us < until || free_one == NULL)
                until = fault->end_us;
        }
        if (free_one != NULL && next_us <= now_us()) {
            begin_fault(free_one);
            next_us = now_us() + dice_from(&storm.dice, 0, GAP_MAX_MS) * 1000;
            continue;
        }
        if (wait_until(until)) return nothing;
    }
}

void storm_begin(struct faultfs *mounts, uint64_t seed)
{
    storm.mounts = mounts;
    storm.dice = dice(seed, 0x5707);
    storm.stopped = false;
    storm.line_count = 0;
    storm.start_us = now_us();
    memset(storm.faults, 0, sizeof storm.faults);
    CHECK(pthread_create(&storm.thread, NULL, run, NULL) == 0);
}

void storm_end(void)
{
    pthread_mutex_lock(&storm.lock);
    storm.stopped = true;
    pthread_cond_broadcast(&storm.changed);
    pthread_mutex_unlock(&storm.lock);
    CHECK(pthread_join(storm.thread, NULL) == 0);
}

void storm_calm(struct faultfs *mounts)
{
    storm.mounts = mounts;
    for (int mount = 0; mount < MOUNTS; mount++) {
        tell(mount, "rules clear");
        tell(mount, "thaw");
        tell(mount, "release");
        tell(mount, "return");
    }
}

bool storm_fell_off(uint64_t start_us)
{
    bool found = false;
    pthread_mutex_lock(&storm.lock);
    for (unsigned at = 0; at < FALLEN && at < storm.fallen_count; at++)
        found |= start_us <= storm.fallen[at].to_us && now_us() >= storm.fallen[at].from_us;
    pthread_mutex_unlock(&storm.lock);
    return found;
}
