/* What the demo (replay.c) prints: events, live progress, the table at the end. */
#define _XOPEN_SOURCE 700
#include "replay.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void event(const struct replay *r, const char *format, ...) {
    flockfile(stdout);
    if (r->terminal) fputs("\r\033[K", stdout);
    printf("[%6.2f s] ", now_s() - r->started);
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
    fflush(stdout);
    funlockfile(stdout);
}

/* Changes of state, with their causes: the library tells them on a thread of its own. */
void on_log(int32_t level, const char *id, const char *text, void *user) {
    static const char *const words[] = {"", "error", "warn", "info", "debug"};
    event(user, "%s %s: %s", words[level >= 1 && level <= 4 ? level : 0], id, text);
}

void sample(struct samples *samples, double value) {
    if (samples->count == samples->capacity) {
        size_t capacity = samples->capacity ? 2 * samples->capacity : 1024;
        double *grown = realloc(samples->values, capacity * sizeof *grown);
        if (!grown) return; /* a latency less in the table */
        samples->values = grown;
        samples->capacity = capacity;
    }
    samples->values[samples->count++] = value;
    samples->sum += value;
}

void watch_health(struct replay *r) {
    kvpath_backend_health_t fresh[GROUND_MAX_PATHS];
    size_t count = 0;
    fresh[0].size = sizeof fresh[0];
    kvpath_status_t status = kvpath_health(r->store, fresh, GROUND_MAX_PATHS, &count);
    if (status != KVPATH_OK || count != r->ground.count) {
        event(r, "health: %s: %s", kvpath_status_name(status), kvpath_last_error());
        r->count.other++;
        return;
    }
    for (size_t at = 0; at < count; at++) {
        const kvpath_backend_health_t *now = &fresh[at], *before = &r->health[at];
        if (now->state != before->state && now->state == KVPATH_BACKEND_EXCLUDED &&
            at == r->fault_path)
            r->exclusions++;
        r->health[at] = *now;
    }
}

void say_hello(const struct replay *r) {
    printf("kvpath %s: %zu requests, %zu different blocks of %zu KiB in %zu layers; "
           "opened in %.0f ms\n",
           kvpath_version(), r->workload.request_count, r->workload.block_count,
           r->block_bytes >> 10, r->shards, 1e3 * r->open_s);
    for (size_t at = 0; at < r->ground.count; at++)
        printf("  path%zu -> %s (%s)\n", at, r->ground.target[at],
               r->health[at].direct ? "direct" : "buffered");
    fflush(stdout);
}

static double per_second(uint64_t bytes, double seconds) {
    return seconds > 0 ? (double)bytes / seconds / 1e9 : 0;
}

static double percent(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

void progress(struct replay *r) {
    double part = (double)r->count.uses / (double)r->workload.use_count;
    double due = r->terminal ? r->shown + 0.1 : (r->shown + 1) / PROGRESS_PARTS;
    if ((r->terminal ? now_s() : part) < due) return;
    r->shown = r->terminal ? now_s() : (double)(int)(part * PROGRESS_PARTS);

    flockfile(stdout);
    if (r->terminal) fputs("\r\033[K", stdout);
    /* Less than 80 columns: a line that wraps cannot be rewritten. */
    printf("[%6.2f s] %3" PRIu64 "/%zu  hits %.1f %%  loaded %.2f GiB  dumped %.2f GiB ",
           now_s() - r->started, r->count.requests, r->workload.request_count,
           percent(r->count.hits, r->count.uses), GIB(r->count.loaded_bytes),
           GIB(r->count.dumped_bytes));
    size_t available = 0;
    for (size_t at = 0; at < r->ground.count; at++)
        available += r->health[at].state == KVPATH_BACKEND_AVAILABLE;
    printf(" paths %zu/%zu", available, r->ground.count);
    if (!r->terminal) putchar('\n');
    fflush(stdout);
    funlockfile(stdout);
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The latency that `share` of the (sorted) samples do not exceed, in ms. */
static double quantile_ms(const struct samples *samples, double share) {
    if (samples->count == 0) return 0;
    size_t at = (size_t)(share * (double)(samples->count - 1) + 0.5);
    return 1e3 * samples->values[at];
}

static void count_row(const char *name, uint64_t count) {
    printf("  %-18s %14" PRIu64 "\n", name, count);
}

static void transfer_rows(const char *name, uint64_t bytes, double seconds, struct samples *s) {
    qsort(s->values, s->count, sizeof *s->values, ascending);
    printf("  %-18s %10.2f GiB   %.2f GB/s\n", name, GIB(bytes), per_second(bytes, seconds));
    printf("    per task         p50 %.2f ms, p99 %.2f ms, %zu tasks\n", quantile_ms(s, 0.50),
           quantile_ms(s, 0.99), s->count);
}

/* What the broken path costs a task. */
static void phase_rows(struct replay *r) {
    static const char *const names[] = {"before the fault", "during it", "after it"};
    for (int phase = 0; phase < 3; phase++) {
        struct samples *s = &r->phases[phase];
        qsort(s->values, s->count, sizeof *s->values, ascending);
        printf("  %-18s p50 %.2f ms, p99 %.2f ms, slowest %.2f ms, %zu tasks\n", names[phase],
               quantile_ms(s, 0.50), quantile_ms(s, 0.99), quantile_ms(s, 1), s->count);
    }
}

/* A counter that must be 0; 1 if it is not. */
static int zero_row(const char *name, uint64_t count) {
    printf("  %-18s %14" PRIu64 "%s\n", name, count, count ? "   MUST BE 0" : "");
    return count != 0;
}

int report(struct replay *r) {
    const struct counts *c = &r->count;
    if (r->terminal) fputs("\r\033[K", stdout);
    printf("\n");
    count_row("requests", c->requests);
    count_row("block uses", c->uses);
    printf("  %-18s %12.1f %%\n", "hit rate", percent(c->hits, c->uses));
    transfer_rows("loaded", c->loaded_bytes, r->loads.sum, &r->loads);
    transfer_rows("dumped", c->dumped_bytes, c->dump_s, &r->dumps);
    count_row("retries", r->stats.retries);
    count_row("fail-overs", r->stats.failovers);
    count_row("time-outs", r->stats.timeouts);
    if (r->options.fault != FAULT_NONE) count_row("path taken out", r->exclusions);
    if (r->options.fault != FAULT_NONE) phase_rows(r);
    count_row("dumps repeated", c->repeated_dumps);
    printf("  %-18s %12.1f s\n", "whole run", r->elapsed_s);
    int wrong = zero_row("wrong bytes", c->wrong_bytes);
    wrong |= zero_row("failed loads", c->failed_loads);
    wrong |= zero_row("failed dumps", c->failed_dumps);
    wrong |= zero_row("failed lookups", c->failed_lookups);
    wrong |= zero_row("lost blocks", c->lost_blocks);
    wrong |= zero_row("other errors", c->other);
    printf("\n%s\n", wrong ? "FAILED: see above" : "all is well");
    return wrong ? EXIT_WRONG : EXIT_FINE;
}
