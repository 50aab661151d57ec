/* What is not a transfer at full speed: lookups, open and close, an idle store, a fail-over seen
 * from the caller, and the price of one copy. */
#include "kv.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How many calls of one kind run before the other kind has its turn. */
#define TURN 50

static void print_list(const char *name, const double *values, size_t count, const char *end)
{
    printf("\"%s\": [", name);
    for (size_t at = 0; at < count; at++) printf("%s%.2f", at ? ", " : "", values[at]);
    printf("]%s", end);
}

struct lookups {
    const struct options *options;
    kvpath_store_t store;
    kvpath_block_id_t *ids;
    char (*paths)[PATH_BYTES];
    uint8_t *found;
};

static double one_lookup(const struct lookups *lookups)
{
    if (lookups->options->pause_us) usleep((useconds_t)lookups->options->pause_us);
    double start = now_s();
    kv_check(kvpath_lookup(lookups->store, lookups->ids, lookups->options->ids, lookups->found),
             "lookup");
    double took = (now_s() - start) * 1e6;
    for (size_t at = 0; at < lookups->options->ids; at++) {
        if (!lookups->found[at]) die("block %zu: absent", at);
    }
    return took;
}

static double one_access(const struct lookups *lookups)
{
    if (lookups->options->pause_us) usleep((useconds_t)lookups->options->pause_us);
    double start = now_s();
    for (size_t at = 0; at < lookups->options->ids; at++) {
        if (access(lookups->paths[at], F_OK) != 0) die("%s: absent", lookups->paths[at]);
    }
    return (now_s() - start) * 1e6;
}

/* Lookups of `ids` blocks and `access` of the same files, in turns. */
void run_lookup(const struct options *options)
{
    size_t ids = options->ids, calls = options->calls;
    struct lookups lookups = {.options = options, .store = kv_open_lookups(options)};
    lookups.ids = calloc(ids, sizeof *lookups.ids);
    lookups.paths = calloc(ids, PATH_BYTES);
    lookups.found = calloc(ids, 1);
    double *kvpath_us = calloc(calls, sizeof(double)), *access_us = calloc(calls, sizeof(double));
    if (!lookups.ids || !lookups.paths || !lookups.found || !kvpath_us || !access_us) {
        die("no memory");
    }
    for (size_t at = 0; at < ids; at++) {
        block_id(options->first_id + at, lookups.ids[at].bytes);
        block_path(lookups.paths[at], options->roots[0], options->dir_digits,
                   options->first_id + at, "");
    }
    one_access(&lookups);
    one_lookup(&lookups);
    for (size_t start = 0; start < calls; start += TURN) {
        size_t end = start + TURN < calls ? start + TURN : calls;
        for (size_t at = start; at < end; at++) kvpath_us[at] = one_lookup(&lookups);
        for (size_t at = start; at < end; at++) access_us[at] = one_access(&lookups);
    }
    kv_check(kvpath_close(lookups.store), "close");
    qsort(kvpath_us, calls, sizeof(double), compare_doubles);
    qsort(access_us, calls, sizeof(double), compare_doubles);
    printf("{\"kvpath_p50_us\": %.2f, \"access_p50_us\": %.2f, \"kvpath_p99_us\": %.2f, "
           "\"access_p99_us\": %.2f}\n",
           percentile(kvpath_us, calls, 0.5), percentile(access_us, calls, 0.5),
           percentile(kvpath_us, calls, 0.99), percentile(access_us, calls, 0.99));
}

/* Opens and closes again and again. A call of getppid() before and after each open is the mark by
 * which a trace is cut. */
void run_open(const struct options *options)
{
    size_t calls = options->calls;
    double *open_ms = calloc(calls + 1, sizeof(double));
    double *close_ms = calloc(calls + 1, sizeof(double));
    if (!open_ms || !close_ms) die("no memory");
    for (size_t at = 0; at < calls; at++) {
        (void)getppid();
        double start = now_s();
        kvpath_store_t store = kv_open(options);
        open_ms[at] = (now_s() - start) * 1e3;
        (void)getppid();
        usleep((useconds_t)options->pause_us);
        start = now_s();
        kv_check(kvpath_close(store), "close");
        close_ms[at] = (now_s() - start) * 1e3;
    }
    printf("{");
    print_list("open_ms", open_ms, calls, ", ");
    print_list("close_ms", close_ms, calls, "}\n");
}

struct switches {
    unsigned long voluntary;
    unsigned threads;
};

/* Of every thread of this process but the calling one. */
static struct switches count_switches(void)
{
    struct switches sum = {0};
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) die("/proc/self/task");
    const struct dirent *entry;
    while ((entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid()) continue;
        char path[300], line[256];
        unsigned long value;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue; /* it has ended */
        sum.threads++;
        while (fgets(line, sizeof line, file)) {
            if (sscanf(line, "voluntary_ctxt_switches: %lu", &value) == 1) sum.voluntary += value;
        }
        fclose(file);
    }
    closedir(tasks);
    return sum;
}

/* Works, rests `seconds`, and watches for as long what the store still does. */
void run_idle(const struct options *options)
{
    struct plan plan;
    plan_make(&plan, options);
    plan_fill(&plan);
    kvpath_store_t store = kv_open(options);
    for (size_t task = 0; task < plan.task_count; task++) {
        for (size_t at = 0; at < plan.tasks[task].count; at++) {
            const struct transfer *transfer = &plan.transfers[plan.tasks[task].first + at];
            kvpath_shard_t shard = {.index = (uint32_t)transfer->first_shard, .addr_count = 1};
            void *address = transfer->parts[0].iov_base;
            kvpath_task_t handle;
            uint8_t found;
            shard.addrs = &address;
            block_id(options->first_id + transfer->block, shard.block.bytes);
            kv_check(kvpath_dump(store, &shard, 1, &handle), "dump");
            kv_check(kvpath_wait(store, handle, 0), "wait");
            kv_check(kvpath_load(store, &shard, 1, &handle), "load");
            kv_check(kvpath_wait(store, handle, 0), "wait");
            kv_check(kvpath_lookup(store, &shard.block, 1, &found), "lookup");
        }
    }
    sleep((unsigned)options->seconds);
    struct switches before = count_switches();
    sleep((unsigned)options->seconds);
    struct switches after = count_switches();
    double start = now_s();
    kv_check(kvpath_close(store), "close");
    double close_ms = (now_s() - start) * 1e3;
    printf("{\"switches\": %ld, \"threads\": %u, \"close_ms\": %.2f}\n",
           (long)after.voluntary - (long)before.voluntary, after.threads, close_ms);
}

/* Loads block after block for `seconds`, whatever happens to the paths: when each load ended, how
 * long it took, and whether it failed. */
void run_timeline(const struct options *options)
{
    struct plan plan;
    plan_make(&plan, options);
    kvpath_store_t store = kv_open(options);
    printf("{\"loads\": [");
    double begin = now_s();
    fprintf(stderr, "begun\n");
    for (size_t at = 0; now_s() - begin < (double)options->seconds; at++) {
        const struct transfer *transfer = &plan.transfers[at % plan.transfer_count];
        kvpath_shard_t shard = {.index = 0, .addr_count = 1};
        void *address = transfer->parts[0].iov_base;
        kvpath_task_t handle;
        shard.addrs = &address;
        block_id(options->first_id + transfer->block, shard.block.bytes);
        double start = now_s();
        kvpath_status_t status = kvpath_load(store, &shard, 1, &handle);
        if (status == KVPATH_OK) status = kvpath_wait(store, handle, 0);
        double end = now_s();
        printf("%s[%.4f, %.1f, %d]", at ? ", " : "", end - begin, (end - start) * 1e6,
               status == KVPATH_OK ? 0 : 1);
        if (options->pause_us) usleep((useconds_t)options->pause_us);
    }
    plan_check(&plan);
    kvpath_stats_t stats = {.size = sizeof stats};
    kv_check(kvpath_stats(store, &stats), "stats");
    kv_check(kvpath_close(store), "close");
    printf("], \"failovers\": %lu, \"retries\": %lu}\n", (unsigned long)stats.failovers,
           (unsigned long)stats.retries);
}

/* CPU time of copying every block once from memory to memory. */
void run_copy(const struct options *options)
{
    struct cost cost;
    size_t bytes = options->blocks * options->block_bytes;
    unsigned char *from = map_memory(bytes), *to = map_memory(bytes);
    cost_begin(&cost);
    for (size_t at = 0; at < options->blocks; at++) {
        memcpy(to + at * options->block_bytes, from + at * options->block_bytes,
               options->block_bytes);
        __asm__ volatile("" : : "r"(to) : "memory");
    }
    cost_end(&cost);
    printf("{\"bytes\": %zu, \"seconds\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f}\n", bytes,
           cost.seconds, cost.user_s, cost.system_s);
}
