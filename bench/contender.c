/* kvpath itself: the same plan, by tasks. */
#include "kv.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLE_US 2000
#define SWEEP_S 30

struct runner {
    struct plan *plan;
    kvpath_store_t store;
    kvpath_shard_t *shards; /* of all transfers, in order */
    void **addresses;
    size_t *first_shard;    /* by task */
    bool dump;
    atomic_bool stop;
    unsigned descriptors_before;
    unsigned long resident_kib_before;
};

/* The calls' arguments are made before the clock runs. */
static void make_shards(struct runner *runner)
{
    struct plan *plan = runner->plan;
    const struct options *options = plan->options;
    size_t all = plan->all_blocks * options->shards;
    runner->shards = calloc(all, sizeof *runner->shards);
    runner->addresses = calloc(all, sizeof *runner->addresses);
    runner->first_shard = calloc(plan->task_count + 1, sizeof *runner->first_shard);
    if (!runner->shards || !runner->addresses || !runner->first_shard) die("no memory");
    size_t at = 0;
    for (size_t task = 0; task < plan->task_count; task++) {
        runner->first_shard[task] = at;
        for (size_t index = 0; index < plan->tasks[task].count; index++) {
            const struct transfer *transfer = &plan->transfers[plan->tasks[task].first + index];
            for (size_t shard = 0; shard < transfer->shards; shard++, at++) {
                kvpath_shard_t *entry = &runner->shards[at];
                block_id(options->first_id + transfer->block, entry->block.bytes);
                entry->index = (uint32_t)(transfer->first_shard + shard);
                entry->addr_count = 1;
                runner->addresses[at] = transfer->parts[shard].iov_base;
                entry->addrs = &runner->addresses[at];
            }
        }
    }
    runner->first_shard[plan->task_count] = at;
}

static kvpath_task_t submit(struct runner *runner, size_t task)
{
    kvpath_task_t handle;
    size_t first = runner->first_shard[task];
    size_t count = runner->first_shard[task + 1] - first;
    const kvpath_shard_t *shards = runner->shards + first;
    kv_check(runner->dump ? kvpath_dump(runner->store, shards, count, &handle)
                          : kvpath_load(runner->store, shards, count, &handle),
             "submit");
    return handle;
}

static void run_range(struct runner *runner, size_t from, size_t to, size_t queue)
{
    kvpath_task_t *running = calloc(queue, sizeof *running);
    if (!running) die("no memory");
    size_t begun = from;
    for (size_t done = from; done < to; done++) {
        while (begun < to && begun - done < queue) {
            running[begun % queue] = submit(runner, begun);
            begun++;
        }
        kv_check(kvpath_wait(runner->store, running[done % queue], 0), "wait");
    }
    free(running);
}

/* A store looks once for what dead writers left, soon after it was opened: half a second of
 * listings with 4096 directories. That is no part of moving a block. */
static void wait_swept(const struct runner *runner)
{
    kvpath_stats_t stats = {.size = sizeof stats};
    double start = now_s();
    do {
        kv_check(kvpath_stats(runner->store, &stats), "stats");
        if (stats.sweep_passes + stats.failed_passes > 0) return;
        usleep(SAMPLE_US);
    } while (now_s() - start < SWEEP_S);
    die("no sweep in %d s", SWEEP_S);
}

static void run_single(struct runner *runner)
{
    struct plan *plan = runner->plan;
    for (size_t at = plan->warm_tasks; at < plan->task_count; at++) {
        double start = now_s();
        kv_check(kvpath_wait(runner->store, submit(runner, at), 0), "wait");
        plan->latency_us[plan->latencies++] = (now_s() - start) * 1e6;
        if (plan->options->pause_us) usleep((useconds_t)plan->options->pause_us);
    }
}

/* One number of /proc/self/status; 0 where it is not there. */
static unsigned long status(const char *format)
{
    char line[256];
    unsigned long value = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, format, &value) == 1) break;
    }
    if (file) fclose(file);
    return value;
}

static unsigned long resident_kib(void)
{
    return status("VmRSS: %lu");
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

/* The most that is seen of what a store uses; the sampling thread and the caller are not counted,
 * nor what the process had before the store was opened. */
static void *sample(void *argument)
{
    struct runner *runner = argument;
    struct seen *seen = &runner->plan->seen;
    while (!atomic_load(&runner->stop)) {
        unsigned threads = (unsigned)status("Threads: %lu") - 2;
        unsigned descriptors = count_descriptors() - runner->descriptors_before;
        unsigned long now_kib = resident_kib(), before_kib = runner->resident_kib_before;
        unsigned long kib = now_kib > before_kib ? now_kib - before_kib : 0;
        kvpath_stats_t stats = {.size = sizeof stats};
        kv_check(kvpath_stats(runner->store, &stats), "stats");
        if (threads > seen->threads) seen->threads = threads;
        if (descriptors > seen->descriptors) seen->descriptors = descriptors;
        if (kib > seen->resident_kib) seen->resident_kib = kib;
        if (stats.in_flight > seen->in_flight) seen->in_flight = stats.in_flight;
        usleep(SAMPLE_US);
    }
    return NULL;
}

void run_kvpath(struct plan *plan, struct cost *cost)
{
    const struct options *options = plan->options;
    struct runner runner = {.plan = plan, .dump = strcmp(options->op, "dump") == 0};
    make_shards(&runner);
    runner.descriptors_before = count_descriptors();
    runner.resident_kib_before = resident_kib();
    runner.store = kv_open(options);
    wait_swept(&runner);
    run_range(&runner, 0, plan->warm_tasks, options->queue);
    pthread_t sampler;
    if (options->sample && pthread_create(&sampler, NULL, sample, &runner) != 0) die("no thread");
    cost_begin(cost);
    if (options->single) {
        run_single(&runner);
    } else {
        run_range(&runner, plan->warm_tasks, plan->task_count, options->queue);
    }
    cost_end(cost);
    atomic_store(&runner.stop, true);
    if (options->sample) pthread_join(sampler, NULL);
    kv_check(kvpath_close(runner.store), "close");
    free(runner.shards);
    free(runner.addresses);
    free(runner.first_shard);
}
