/* kvbench: one run of one contender, its figures as one line of JSON. `run.py` runs the rounds.
 *
 *   kvbench transfer|lookup|open|idle|timeline|copy --NAME VALUE ... */
#include "bench.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("kvbench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

void cost_begin(struct cost *cost)
{
    memset(cost, 0, sizeof *cost);
    getrusage(RUSAGE_SELF, &cost->start);
    cost->start_s = now_s();
}

void cost_end(struct cost *cost)
{
    struct rusage end;
    cost->seconds = now_s() - cost->start_s;
    getrusage(RUSAGE_SELF, &end);
    cost->user_s = seconds(end.ru_utime) - seconds(cost->start.ru_utime);
    cost->system_s = seconds(end.ru_stime) - seconds(cost->start.ru_stime);
    cost->voluntary = end.ru_nvcsw - cost->start.ru_nvcsw;
    cost->involuntary = end.ru_nivcsw - cost->start.ru_nivcsw;
}

int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double percentile(double *sorted, size_t count, double part)
{
    if (count == 0) return 0;
    size_t at = (size_t)(part * (double)(count - 1) + 0.5);
    return sorted[at < count ? at : count - 1];
}

static void run_transfer(const struct options *options)
{
    struct plan plan;
    struct cost cost;
    plan_make(&plan, options);
    bool dump = strcmp(options->op, "dump") == 0;
    if (dump) plan_fill(&plan);
    if (strcmp(options->contender, "kvpath") == 0) {
        run_kvpath(&plan, &cost);
    } else if (strcmp(options->contender, "sync") == 0) {
        run_sync(&plan, &cost);
    } else if (strcmp(options->contender, "uring") == 0) {
        run_uring(&plan, &cost);
    } else {
        die("no such contender: %s", options->contender);
    }
    if (!dump) plan_check(&plan);
    double bytes = (double)options->blocks * (double)options->block_bytes;
    printf("{\"bytes\": %.0f, \"blocks\": %zu, \"seconds\": %.6f, \"user_s\": %.6f, "
           "\"system_s\": %.6f, \"voluntary\": %ld, \"involuntary\": %ld, \"threads\": %u, "
           "\"descriptors\": %u, \"resident_kib\": %lu, \"in_flight\": %lu, \"latency_us\": [",
           bytes, options->blocks, cost.seconds, cost.user_s, cost.system_s, cost.voluntary,
           cost.involuntary, plan.seen.threads, plan.seen.descriptors, plan.seen.resident_kib,
           plan.seen.in_flight);
    for (size_t at = 0; at < plan.latencies; at++) {
        printf("%s%.1f", at ? ", " : "", plan.latency_us[at]);
    }
    printf("]}\n");
    plan_free(&plan);
}

static size_t number(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end) die("not a number: %s", text);
    return (size_t)value;
}

static enum shape shape_named(const char *name)
{
    static const char *const names[] = {"whole", "shards", "layers", "one"};
    for (int at = 0; at < 4; at++) {
        if (strcmp(name, names[at]) == 0) return (enum shape)at;
    }
    die("no such shape: %s", name);
}

static bool set_text(struct options *options, const char *name, const char *value)
{
    if (strcmp(name, "--contender") == 0) options->contender = value;
    else if (strcmp(name, "--engine") == 0) options->engine = value;
    else if (strcmp(name, "--op") == 0) options->op = value;
    else if (strcmp(name, "--extra") == 0) options->extra = value;
    else if (strcmp(name, "--shape") == 0) options->shape = shape_named(value);
    else if (strcmp(name, "--root") == 0) {
        if (options->root_count == BACKENDS_MAX) die("too many roots");
        options->roots[options->root_count++] = value;
    } else return false;
    return true;
}

static void set_number(struct options *options, const char *name, const char *value)
{
    const struct {
        const char *name;
        size_t *to;
    } numbers[] = {
        {"--block-bytes", &options->block_bytes}, {"--shards", &options->shards},
        {"--blocks", &options->blocks},           {"--warm", &options->warm},
        {"--task-blocks", &options->task_blocks}, {"--queue", &options->queue},
        {"--threads", &options->threads},         {"--depth", &options->depth},
        {"--dir-digits", &options->dir_digits},   {"--ids", &options->ids},
        {"--calls", &options->calls},             {"--pause-us", &options->pause_us},
        {"--seconds", &options->seconds},
    };
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) {
        if (strcmp(name, numbers[at].name) == 0) {
            *numbers[at].to = number(value);
            return;
        }
    }
    if (strcmp(name, "--direct") == 0) options->direct = number(value) != 0;
    else if (strcmp(name, "--single") == 0) options->single = number(value) != 0;
    else if (strcmp(name, "--sample") == 0) options->sample = number(value) != 0;
    else if (strcmp(name, "--first-id") == 0) options->first_id = number(value);
    else die("no such option: %s", name);
}

int main(int count, char **words)
{
    struct options options = {.contender = "kvpath", .engine = "psync", .op = "load",
                              .extra = "", .block_bytes = 1 << 20, .shards = 1, .blocks = 256,
                              .warm = 32, .task_blocks = 8, .queue = 4, .threads = 8, .depth = 32,
                              .dir_digits = 2, .direct = true, .ids = 1, .calls = 1000,
                              .seconds = 10};
    if (count < 2) die("what?");
    for (int at = 2; at < count; at += 2) {
        if (at + 1 == count) die("%s needs a value", words[at]);
        if (!set_text(&options, words[at], words[at + 1])) {
            set_number(&options, words[at], words[at + 1]);
        }
    }
    if (options.root_count == 0) options.roots[0] = "";
    const struct {
        const char *name;
        void (*run)(const struct options *options);
    } modes[] = {{"transfer", run_transfer}, {"lookup", run_lookup},     {"open", run_open},
                 {"idle", run_idle},         {"timeline", run_timeline}, {"copy", run_copy}};
    for (size_t at = 0; at < sizeof modes / sizeof *modes; at++) {
        if (strcmp(words[1], modes[at].name) == 0) {
            modes[at].run(&options);
            return 0;
        }
    }
    die("no such mode: %s", words[1]);
}
