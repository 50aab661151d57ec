/* soak.h: a thread that sleeps for a moment, again and again, and notes how much later than that it
 * ran. What it missed, others missed too: that much more time a call may take. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "soak.h"

enum {
    TICK_US = 10000,
    TICKS = 1 << 14, /* remembered: longer than any limit */
    SLACK_MS = 400,  /* where the machine is never late */
    LATE_TIMES = 3,  /* a call passes through several threads, each as late as this one */
    /* On a machine that is late at all, a judge may wake more than 100 ms late, and then gives
     * everybody half a second more (R28). */
    JUDGE_MS = 600,
};

static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ticked = PTHREAD_COND_INITIALIZER;
static struct {
    uint64_t at_us, late_us;
} ticks[TICKS];
static uint64_t count;
static bool stopped;
static _Atomic uint64_t most_over_ms;

uint64_t now_us(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void *meter(void *nothing)
{
    const struct timespec tick = {.tv_nsec = TICK_US * 1000L};
    uint64_t before = now_us();
    pthread_mutex_lock(&lock);
    while (!stopped) {
        pthread_mutex_unlock(&lock);
        nanosleep(&tick, NULL);
        uint64_t now = now_us();
        pthread_mutex_lock(&lock);
        ticks[count % TICKS].at_us = now;
        ticks[count++ % TICKS].late_us = now - before > TICK_US ? now - before - TICK_US : 0;
        before = now;
        pthread_cond_broadcast(&ticked);
    }
    pthread_mutex_unlock(&lock);
    return nothing;
}

void meter_start(void)
{
    stopped = false;
    CHECK(pthread_create(&thread, NULL, meter, NULL) == 0);
}

void meter_stop(void)
{
    pthread_mutex_lock(&lock);
    stopped = true;
    pthread_mutex_unlock(&lock);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* What the meter was late since `start_us`, the tick included that runs now. */
static uint64_t late_since(uint64_t start_us)
{
    uint64_t late = 0;
    pthread_mutex_lock(&lock);
    for (uint64_t seen = count; count == seen && !stopped;) pthread_cond_wait(&ticked, &lock);
    for (uint64_t at = count; at > 0 && count - at < TICKS; at--) {
        if (ticks[(at - 1) % TICKS].at_us < start_us) break;
        late += ticks[(at - 1) % TICKS].late_us;
    }
    pthread_mutex_unlock(&lock);
    return late;
}

void within(uint64_t start_us, uint64_t limit_ms, const char *what)
{
    const uint64_t took_us = now_us() - start_us;
    if (took_us <= limit_ms * 1000) return;
    const uint64_t over_ms = (took_us - limit_ms * 1000) / 1000;
    uint64_t most = atomic_load(&most_over_ms);
    while (over_ms > most && !atomic_compare_exchange_weak(&most_over_ms, &most, over_ms)) {
    }
    if (over_ms <= SLACK_MS) return;
    const uint64_t late_ms = late_since(start_us) / 1000;
    const uint64_t judge_ms = late_ms > 0 ? JUDGE_MS : 0;
    if (over_ms > SLACK_MS + LATE_TIMES * late_ms + judge_ms)
        FAIL("%s took %llu ms; its limit is %llu ms, and the machine was late by %llu ms", what,
             (unsigned long long)(took_us / 1000), (unsigned long long)limit_ms,
             (unsigned long long)late_ms);
}

uint64_t meter_most_over_ms(void) { return atomic_load(&most_over_ms); }

dice_t dice(uint64_t seed, uint64_t what)
{
    dice_t made = {seed * 0x9e3779b97f4a7c15u + what};
    dice_next(&made);
    return made;
}

uint64_t dice_next(dice_t *dice)
{
    uint64_t value = dice->state += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

unsigned dice_from(dice_t *dice, unsigned least, unsigned most)
{
    return least + (unsigned)(dice_next(dice) % (most - least + 1));
}

bool dice_one_in(dice_t *dice, unsigned many) { return dice_next(dice) % many == 0; }
