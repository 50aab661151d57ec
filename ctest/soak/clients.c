/* soak.h: three mounts of one volume that are there already, and what happens to their clients: one
 * is killed (its mount then gives ENOTCONN) and its mount made again, or stopped (every call on it
 * hangs) and continued. Never all three at once.
 *
 * KVPATH_SOAK_PATHS: the mount points, A:B:C. KVPATH_SOAK_STORAGE: a directory that shows the same
 * files without a client in between. KVPATH_SOAK_CLIENT: a command, run as `COMMAND NUMBER stop`,
 * `cont`, `kill` or `mount`; NUMBER is 0 to 2, and `mount` first takes a dead mount away.
 * KVPATH_SOAK_SLOWER (4): how many times more time everything has than on faultfs.
 * KVPATH_SOAK_STALE_MS (2500): how long one client may show what was removed through another, or
 * not find what was replaced. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outside.h"
#include "soak.h"

enum {
    PATH_BYTES = 512,
    SLOWER = 4,
    STALE_MS = 2500,
    BROKEN_MAX = MOUNTS - 1,
    SAMPLES = 4096,
};

typedef enum { FINE, STOPPED, DEAD } client_t;

typedef struct {
    uint64_t us[SAMPLES];
    unsigned count;
} samples_t;

static struct {
    char paths[MOUNTS][PATH_BYTES];
    pthread_mutex_t lock;
    client_t client[MOUNTS];
    uint64_t broken_us[MOUNTS], mended_us[MOUNTS]; /* 0: it is not */
    unsigned out[MOUNTS]; /* stores that have taken it out meanwhile */
    unsigned kills, stops;
    samples_t excluded_after_kill, excluded_after_stop, back;
} mounts = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? strtoul(value, NULL, 10) : otherwise;
}

const char *mounts_cannot(void)
{
    static const char *const needed[] = {"KVPATH_SOAK_PATHS", "KVPATH_SOAK_STORAGE",
                                         "KVPATH_SOAK_CLIENT"};
    for (size_t at = 0; at < sizeof needed / sizeof *needed; at++)
        if (getenv(needed[at]) == NULL) return text("%s is not set", needed[at]);
    return NULL;
}

void mounts_make(unsigned seconds)
{
    (void)seconds;
    const char *rest = getenv("KVPATH_SOAK_PATHS");
    for (int at = 0; at < MOUNTS; at++) {
        const size_t bytes = strcspn(rest, ":");
        CHECK(bytes > 0 && bytes < PATH_BYTES);
        memcpy(mounts.paths[at], rest, bytes);
        rest += bytes + (rest[bytes] == ':');
    }
    CHECK(*rest == '\0');
    CHECK(outside_start() == 0);
}

void mounts_end(void) {}

const char *mounts_storage(void) { return getenv("KVPATH_SOAK_STORAGE"); }

const char *mounts_path(int mount) { return mounts.paths[mount]; }

unsigned mounts_slower(void) { return (unsigned)setting("KVPATH_SOAK_SLOWER", SLOWER); }

bool mounts_stale(uint64_t since_us)
{
    return now_us() - since_us < setting("KVPATH_SOAK_STALE_MS", STALE_MS) * 1000;
}

/* ---- the clients; the lock is held ---- */

static void tell(int mount, const char *what)
{
    char command[OUTSIDE_BYTES];
    storm_note(mount, what);
    snprintf(command, sizeof command, "%s %d %s", getenv("KVPATH_SOAK_CLIENT"), mount, what);
    if (outside_run(command) != 0) FAIL("%s: it failed", command);
}

static void begins(int mount)
{
    mounts.broken_us[mount] = now_us();
    mounts.mended_us[mount] = 0;
    mounts.out[mount] = 0;
}

static void stop(int mount)
{
    tell(mount, "stop");
    mounts.client[mount] = STOPPED;
    begins(mount);
    mounts.stops++;
}

static void kill_it(int mount)
{
    tell(mount, "kill");
    mounts.client[mount] = DEAD;
    begins(mount);
    mounts.kills++;
}

static void mend(int mount)
{
    if (mounts.client[mount] == FINE) return;
    if (mounts.client[mount] == STOPPED) {
        tell(mount, "cont");
    } else {
        /* Between the old mount and the new one its mount point shows an empty directory. */
        storm_falls(mount);
        tell(mount, "mount");
        storm_fell(mount);
    }
    mounts.client[mount] = FINE;
    mounts.broken_us[mount] = 0;
    mounts.mended_us[mount] = now_us();
}

bool mounts_break(fault_t *fault, dice_t *dice)
{
    const bool kills = dice_one_in(dice, 2);
    int broken = 0;
    pthread_mutex_lock(&mounts.lock);
    for (int at = 0; at < MOUNTS; at++) broken += mounts.client[at] != FINE;
    const bool can = mounts.client[fault->mount] == FINE && broken < BROKEN_MAX;
    if (can && kills)
        kill_it(fault->mount);
    else if (can)
        stop(fault->mount);
    pthread_mutex_unlock(&mounts.lock);
    return can;
}

void mounts_mend(const fault_t *fault)
{
    pthread_mutex_lock(&mounts.lock);
    mend(fault->mount);
    pthread_mutex_unlock(&mounts.lock);
}

void mounts_freeze(int mount)
{
    pthread_mutex_lock(&mounts.lock);
    if (mounts.client[mount] == FINE) stop(mount);
    pthread_mutex_unlock(&mounts.lock);
}

void mounts_calm(void)
{
    pthread_mutex_lock(&mounts.lock);
    for (int mount = 0; mount < MOUNTS; mount++) mend(mount);
    pthread_mutex_unlock(&mounts.lock);
}

void mounts_let_go(void) {}

/* ---- how long until a path is out, and until it is back ---- */

static void sample(samples_t *samples, uint64_t since_us)
{
    if (samples->count < SAMPLES) samples->us[samples->count++] = now_us() - since_us;
}

void mounts_heard(const char *id, const char *line)
{
    const bool out = strcmp(id, "KV2001") == 0, in = strcmp(id, "KV2002") == 0;
    if (!out && !in) return;
    pthread_mutex_lock(&mounts.lock);
    for (int at = 0; at < MOUNTS; at++) {
        if (strstr(line, mounts.paths[at]) == NULL) continue;
        if (out && mounts.broken_us[at] != 0) {
            mounts.out[at]++;
            sample(mounts.client[at] == DEAD ? &mounts.excluded_after_kill
                                             : &mounts.excluded_after_stop,
                   mounts.broken_us[at]);
        }
        if (in && mounts.mended_us[at] != 0 && mounts.out[at] > 0) {
            mounts.out[at]--;
            sample(&mounts.back, mounts.mended_us[at]);
        }
    }
    pthread_mutex_unlock(&mounts.lock);
}

static int ascending(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void tell_samples(const char *what, samples_t *samples)
{
    if (samples->count == 0) return;
    qsort(samples->us, samples->count, sizeof samples->us[0], ascending);
    printf("%s: %u times, after %.2f s (the median; at least %.2f, at most %.2f)\n", what,
           samples->count, (double)samples->us[samples->count / 2] / 1e6,
           (double)samples->us[0] / 1e6, (double)samples->us[samples->count - 1] / 1e6);
}

void mounts_report(void)
{
    pthread_mutex_lock(&mounts.lock);
    printf("clients killed %u times, stopped %u times\n", mounts.kills, mounts.stops);
    tell_samples("path out after its client was killed", &mounts.excluded_after_kill);
    tell_samples("path out after its client was stopped", &mounts.excluded_after_stop);
    tell_samples("path back after its client was", &mounts.back);
    pthread_mutex_unlock(&mounts.lock);
}
