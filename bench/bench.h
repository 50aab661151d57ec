/* The benchmark's shared words: what a run is asked to do, its memory and its clock.
 *
 * Every contender is one process of the same program (`kvbench`): the same memory, the same files,
 * the same clock and the same accounting, so that wall time and CPU time can be compared. Only the
 * function that moves the bytes differs. */
#ifndef KVBENCH_H
#define KVBENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define ID_HEX 32
#define PATH_BYTES 512
#define BACKENDS_MAX 8

/* How tasks are cut. */
enum shape {
    SHAPE_WHOLE,  /* a shard is a block; a task holds `task_blocks` of them */
    SHAPE_SHARDS, /* a task holds every shard of its blocks */
    SHAPE_LAYERS, /* a task holds one shard of each of `task_blocks` blocks */
    SHAPE_ONE,    /* a task holds one shard */
};

struct options {
    const char *contender; /* kvpath | sync | uring */
    const char *engine;    /* kvpath's engine */
    const char *op;        /* load | dump */
    const char *extra;     /* more members of kvpath's configuration: "\"key\": value, ..." */
    const char *roots[BACKENDS_MAX];
    size_t root_count;
    enum shape shape;
    size_t block_bytes;
    size_t shards;      /* of a block */
    size_t blocks;      /* timed */
    size_t warm;        /* blocks before those, not timed */
    size_t task_blocks;
    size_t queue;       /* tasks outstanding (kvpath) */
    size_t threads;     /* of floor sync */
    size_t depth;       /* of floor uring */
    size_t dir_digits;  /* as data_dir_shard_bytes */
    bool direct;
    bool single;        /* one task at a time, each one timed */
    bool sample;        /* watch the number of threads */
    uint64_t first_id;
    size_t ids;         /* of one lookup */
    size_t calls;
    size_t pause_us;
    size_t seconds;
};

/* One transfer of one file; shards that are adjacent are one. */
struct transfer {
    size_t block;
    size_t first_shard;
    size_t shards;
    struct iovec *parts; /* one a shard */
};

/* Consecutive transfers. */
struct task {
    size_t first;
    size_t count;
};

/* The most that a store was seen to use (`sample`). */
struct seen {
    unsigned threads;
    unsigned descriptors;
    unsigned long resident_kib;
    unsigned long in_flight;
};

struct plan {
    const struct options *options;
    unsigned char *memory;
    size_t memory_bytes;
    size_t all_blocks; /* warm ones included */
    struct iovec *parts;
    struct transfer *transfers;
    size_t transfer_count;
    size_t warm_transfers;
    struct task *tasks;
    size_t task_count;
    size_t warm_tasks;
    double *latency_us; /* `single`: of each timed task */
    size_t latencies;
    struct seen seen;
};

/* What a run cost. */
struct cost {
    double start_s;
    struct rusage start;
    double seconds;
    double user_s;
    double system_s;
    long voluntary;
    long involuntary;
};

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
double now_s(void);
void cost_begin(struct cost *cost);
void cost_end(struct cost *cost);
unsigned char *map_memory(size_t bytes);
void block_id(uint64_t number, unsigned char id[16]);
void block_path(char path[PATH_BYTES], const char *root, size_t dir_digits, uint64_t number,
                const char *suffix);
int compare_doubles(const void *a, const void *b);
double percentile(double *sorted, size_t count, double part);

void plan_make(struct plan *plan, const struct options *options);
void plan_fill(struct plan *plan);
void plan_check(const struct plan *plan);
void plan_free(struct plan *plan);

/* The contenders: run the plan, time what is not warm-up. */
void run_kvpath(struct plan *plan, struct cost *cost);
void run_sync(struct plan *plan, struct cost *cost);
void run_uring(struct plan *plan, struct cost *cost);

/* Everything that is not a transfer at full speed. */
void run_lookup(const struct options *options);
void run_open(const struct options *options);
void run_idle(const struct options *options);
void run_timeline(const struct options *options);
void run_copy(const struct options *options);

#endif
