/* soak.h: the faults of an epoch. A thread adds one after the other, each on one mount for a while.
 * Which, where and how long comes from the seed; at most a few at once, so that something is left
 * to use. What can break is the mounts' (faults.c, clients.c). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "soak.h"

enum {
    GAP_MAX_MS = 250,
    LIFE_MIN_MS = 50,
    LIFE_MAX_MS = 1200,
    LINES = 256,
    LINE_BYTES = 240,
    FALLEN = 32,
    /* A path that fell off is believed for 100 ms (R24); its last look may have been told late. */
    BELIEVED_US = 600000,
};

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    dice_t dice;
    bool stopped;
    uint64_t start_us;
    fault_t faults[ACTIVE_MAX];
    char lines[LINES][LINE_BYTES];
    unsigned line_count;
    struct {
        int mount;
        uint64_t from_us, to_us;
    } fallen[FALLEN];
    unsigned fallen_count;
} storm = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

double storm_at(uint64_t us) { return ((double)us - (double)storm.start_us) / 1e6; }

void storm_note(int mount, const char *what)
{
    const double at = storm_at(now_us());
    pthread_mutex_lock(&storm.lock);
    char *line = storm.lines[storm.line_count++ % LINES];
    if (mount < 0)
        snprintf(line, LINE_BYTES, "%6.3f s, %s", at, what);
    else
        snprintf(line, LINE_BYTES, "%6.3f s, mount %d: %s", at, mount, what);
    pthread_mutex_unlock(&storm.lock);
}

void storm_story(void)
{
    unsigned from = storm.line_count > LINES ? storm.line_count - LINES : 0;
    for (; from < storm.line_count; from++) fprintf(stderr, "%s\n", storm.lines[from % LINES]);
}

void storm_falls(int mount)
{
    pthread_mutex_lock(&storm.lock);
    const unsigned at = storm.fallen_count++ % FALLEN;
    storm.fallen[at].mount = mount;
    storm.fallen[at].from_us = now_us();
    storm.fallen[at].to_us = UINT64_MAX;
    pthread_mutex_unlock(&storm.lock);
}

void storm_fell(int mount)
{
    pthread_mutex_lock(&storm.lock);
    for (unsigned at = 0; at < FALLEN && at < storm.fallen_count; at++)
        if (storm.fallen[at].mount == mount && storm.fallen[at].to_us == UINT64_MAX)
            storm.fallen[at].to_us = now_us() + BELIEVED_US;
    pthread_mutex_unlock(&storm.lock);
}

const fault_t *storm_faults(void) { return storm.faults; }

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

static void begin_fault(fault_t *fault)
{
    dice_t *dice = &storm.dice;
    fault->mount = (int)dice_from(dice, 0, MOUNTS - 1);
    fault->fails = dice_one_in(dice, 2);
    const uint64_t life_ms = dice_from(dice, LIFE_MIN_MS, LIFE_MAX_MS);
    fault->active = mounts_break(fault, dice);
    fault->end_us = now_us() + life_ms * 1000 * mounts_slower();
}

static void *run(void *nothing)
{
    uint64_t next_us = now_us();
    while (true) {
        uint64_t until = next_us;
        fault_t *free_one = NULL;
        for (int at = 0; at < ACTIVE_MAX; at++) {
            fault_t *fault = &storm.faults[at];
            if (fault->active && fault->end_us <= now_us()) {
                fault->active = false;
                mounts_mend(fault);
            }
            if (!fault->active)
                free_one = fault;
            else if (fault->end_us < until || free_one == NULL)
                until = fault->end_us;
        }
        if (free_one != NULL && next_us <= now_us()) {
            begin_fault(free_one);
            next_us = now_us() + dice_from(&storm.dice, 0, GAP_MAX_MS) * 1000 * mounts_slower();
            continue;
        }
        if (wait_until(until)) return nothing;
    }
}

void storm_begin(uint64_t seed)
{
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

bool storm_fell_off(uint64_t start_us)
{
    bool found = false;
    pthread_mutex_lock(&storm.lock);
    for (unsigned at = 0; at < FALLEN && at < storm.fallen_count; at++)
        found |= start_us <= storm.fallen[at].to_us && now_us() >= storm.fallen[at].from_us;
    pthread_mutex_unlock(&storm.lock);
    return found;
}
