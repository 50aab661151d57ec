/* gc-bench: what a pass of the collector costs, and what it does to lookups and loads meanwhile.
 *
 *   gcbench DIR BLOCKS ROUNDS
 *
 * Puts BLOCKS small blocks into 4096 directories below DIR, then measures a pass alone, with what
 * it looks at in the kernel's caches and, where they may be dropped, without; and lookups of 64 ids
 * and loads of single blocks, without a pass and during one, in turns, in one process. With 0
 * rounds it is one pass and nothing else, for whoever counts its system calls. */
#include <fcntl.h>
#include <kvpath.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, IDS = 64, SAMPLES_MAX = 1 << 20 };

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double cpu_s(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* What this process had the device read; names and ages of files, too. */
static double read_mib(void)
{
    char line[128];
    unsigned long long bytes = 0;
    FILE *io = fopen("/proc/self/io", "r");
    while (io != NULL && fgets(line, sizeof line, io) != NULL)
        if (sscanf(line, "read_bytes: %llu", &bytes) == 1) break;
    if (io != NULL) fclose(io);
    return (double)bytes / (1 << 20);
}

/* Whether the kernel has forgotten what it knew of files. */
static bool drop_caches(void)
{
    FILE *drop = fopen("/proc/sys/vm/drop_caches", "w");
    if (drop == NULL) return false;
    bool written = fputs("3", drop) >= 0;
    return fclose(drop) == 0 && written;
}

static void check(kvpath_status_t status, const char *what)
{
    if (status == KVPATH_OK) return;
    fprintf(stderr, "%s: %s\n", what, kvpath_last_error());
    exit(1);
}

static void id_of(uint64_t number, kvpath_block_id_t *id)
{
    uint64_t words[2] = {number, number ^ 0x9e3779b97f4a7c15u};
    for (int at = 0; at < 2; at++) {
        words[at] ^= words[at] >> 31;
        words[at] *= 0xbf58476d1ce4e5b9u;
        words[at] ^= words[at] >> 27;
        words[at] *= 0x94d049bb133111ebu;
        words[at] ^= words[at] >> 31;
    }
    memcpy(id->bytes, words, sizeof words);
}

static void path_of(char *path, const char *root, const kvpath_block_id_t *id)
{
    int end = sprintf(path, "%s/%02x%x/", root, id->bytes[0], id->bytes[1] >> 4);
    for (int at = 0; at < 16; at++) end += sprintf(path + end, "%02x", id->bytes[at]);
}

/* Blocks that are not there are written; their age is in order of their numbers. */
static void fill(const char *root, uint64_t blocks)
{
    static const char content[BYTES];
    char path[4096];
    for (int dir = 0; dir < 4096; dir++) {
        sprintf(path, "%s/%03x", root, dir);
        mkdir(path, 0774);
    }
    for (uint64_t number = 0; number < blocks; number++) {
        kvpath_block_id_t id;
        id_of(number, &id);
        path_of(path, root, &id);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0) continue;
        if (write(fd, content, sizeof content) != (ssize_t)sizeof content) exit(1);
        struct timespec times[2] = {{.tv_sec = 1000000000 + (time_t)number},
                                    {.tv_sec = 1000000000 + (time_t)number}};
        futimens(fd, times);
        close(fd);
    }
}

static kvpath_store_t open_store(const char *root, uint64_t trigger)
{
    char config[8192];
    kvpath_store_t store;
    snprintf(config, sizeof config,
             "{\"storage_backends\": \"%s\", \"device_id\": 0, \"tensor_size\": %d, "
             "\"shard_size\": %d, \"block_size\": %d, \"io_direct\": false, "
             "\"posix_capacity_gb\": %.17g, \"posix_gc_trigger_threshold_ratio\": 1}",
             root, BYTES, BYTES, BYTES, (double)trigger * BYTES / (1 << 30));
    check(kvpath_open(config, &store), "open");
    return store;
}

static kvpath_stats_t stats_of(kvpath_store_t store)
{
    kvpath_stats_t stats = {.size = sizeof stats};
    check(kvpath_stats(store, &stats), "stats");
    return stats;
}

struct times {
    double *us;
    size_t count;
};

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void report(const char *name, struct times *times)
{
    if (times->count == 0) return;
    qsort(times->us, times->count, sizeof(double), by_size);
    printf("%s: %zu calls, p50 %.0f us, p99 %.0f us, p99.9 %.0f us\n", name, times->count,
           times->us[times->count / 2], times->us[times->count * 99 / 100],
           times->us[times->count * 999 / 1000]);
}

/* Lookups and loads of young blocks until the pass is over, or for `seconds`. */
static void work(kvpath_store_t store, uint64_t blocks, uint64_t passes, double seconds,
                 struct times *lookups, struct times *loads)
{
    static uint8_t memory[BYTES];
    static uint64_t random = 1;
    double end = now_s() + seconds;
    while (passes > 0 ? stats_of(store).collector_passes < passes : now_s() < end) {
        kvpath_block_id_t ids[IDS];
        uint8_t found[IDS];
        for (int at = 0; at < IDS; at++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            id_of(blocks / 2 + (random >> 33) % (blocks / 2), &ids[at]);
        }
        double start = now_s();
        check(kvpath_lookup(store, ids, IDS, found), "lookup");
        if (lookups->count < SAMPLES_MAX) lookups->us[lookups->count++] = (now_s() - start) * 1e6;
        void *address = memory;
        kvpath_shard_t shard = {.block = ids[0], .addr_count = 1, .addrs = &address};
        kvpath_task_t task;
        start = now_s();
        check(kvpath_load(store, &shard, 1, &task), "load");
        check(kvpath_wait(store, task, 0), "wait");
        if (loads->count < SAMPLES_MAX) loads->us[loads->count++] = (now_s() - start) * 1e6;
    }
}

/* A pass alone. It takes a tenth: what is below the trigger stays. Gives the open store. */
static kvpath_store_t pass_alone(const char *root, uint64_t blocks, const char *how)
{
    double cpu = cpu_s(), mib = read_mib(), start = now_s();
    kvpath_store_t store = open_store(root, blocks - blocks / 10);
    while (stats_of(store).collector_passes == 0) usleep(2000);
    kvpath_stats_t stats = stats_of(store);
    printf("a pass alone, %s: %.2f s, %.2f s of CPU, %.1f MiB read from the device, "
           "%llu of %llu blocks removed\n",
           how, now_s() - start, cpu_s() - cpu, read_mib() - mib,
           (unsigned long long)stats.collected_blocks, (unsigned long long)blocks);
    return store;
}

static void one_round(const char *root, uint64_t blocks, struct times *times)
{
    fill(root, blocks);
    sync();
    if (drop_caches()) {
        check(kvpath_close(pass_alone(root, blocks, "nothing cached")), "close");
        fill(root, blocks);
        sync();
    }
    kvpath_store_t store = pass_alone(root, blocks, "all cached    ");
    /* Without a pass: the next one comes half a minute later. */
    work(store, blocks, 0, 5, &times[0], &times[1]);
    check(kvpath_close(store), "close");
    fill(root, blocks);
    sync();
    store = open_store(root, blocks - blocks / 10);
    work(store, blocks, 1, 0, &times[2], &times[3]);
    check(kvpath_close(store), "close");
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: gcbench DIR BLOCKS ROUNDS\n");
        return 2;
    }
    const char *root = argv[1];
    uint64_t blocks = strtoull(argv[2], NULL, 10);
    int rounds = atoi(argv[3]);
    if (rounds == 0) {
        check(kvpath_close(pass_alone(root, blocks, "traced        ")), "close");
        return 0;
    }
    struct times times[4];
    for (int at = 0; at < 4; at++) times[at] = (struct times){calloc(SAMPLES_MAX, 8), 0};
    for (int round = 0; round < rounds; round++) one_round(root, blocks, times);
    report("lookup of 64, without a pass", &times[0]);
    report("lookup of 64, during a pass ", &times[2]);
    report("load of one,  without a pass", &times[1]);
    report("load of one,  during a pass ", &times[3]);
    fill(root, blocks); /* for a pass that is counted */
    return 0;
}
