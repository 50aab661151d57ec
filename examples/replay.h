/* What the parts of the demo share: its options, its state, and what it prints. */
#ifndef EXAMPLES_REPLAY_H
#define EXAMPLES_REPLAY_H

#include <stddef.h>
#include <stdint.h>
#include <kvpath.h>

#include "ground.h"
#include "hang.h"
#include "workload.h"

enum { EXIT_FINE = 0, EXIT_WRONG = 1, EXIT_USAGE = 2 };
enum { RECOVERY_LIMIT_S = 30, PROGRESS_PARTS = 10 };
enum fault { FAULT_NONE, FAULT_ENOTDIR, FAULT_HANG, FAULT_COMMAND };

struct options {
    const char *dir;
    const char *trace;
    const char *backends; /* NULL: three paths of its own */
    const char *engine;
    const char *direct; /* "auto", "on", "off" */
    size_t block_bytes;
    size_t shards;
    size_t requests; /* 0: all */
    enum fault fault;
    int fault_given;
    const char *break_command, *mend_command; /* of FAULT_COMMAND */
    int keep;
};

/* Latencies in seconds. */
struct samples {
    double *values;
    size_t count, capacity;
    double sum;
};

struct counts {
    uint64_t requests, uses, hits, stored_blocks;
    uint64_t loaded_bytes, dumped_bytes;
    double dump_s; /* from the first submit to the last wait, summed over requests */
    uint64_t repeated_dumps;
    /* Each of these must be 0. */
    uint64_t wrong_bytes, lost_blocks, failed_loads, failed_dumps, failed_lookups, other;
};

struct replay {
    struct options options;
    struct workload workload;
    struct ground ground;
    struct hang hang; /* of the path that stops answering */
    kvpath_store_t store;
    size_t block_bytes, shard_bytes, shards;

    unsigned char *memory;    /* room for the longest request's blocks */
    kvpath_shard_t *list;     /* of the task that is being submitted */
    void **addresses;         /* what its shards' `addrs` point to */
    kvpath_block_id_t *asked; /* ids of the current request */
    uint8_t *found;
    uint8_t *stored;      /* by block: this run has dumped it */
    kvpath_task_t *tasks; /* by layer */
    double *begun;        /* by layer: when its task was submitted */

    size_t fault_path, break_at, mend_at;
    int broken; /* 0 not yet, 1 now, 2 mended */
    kvpath_backend_health_t health[GROUND_MAX_PATHS];
    unsigned exclusions; /* of the path that was broken */
    int terminal;        /* stdout is one: progress is one line that is rewritten */
    double shown;        /* when, or which part, progress was last shown */

    struct counts count;
    struct samples loads, dumps;
    struct samples phases[3]; /* of both, by `broken` when the task was submitted */
    kvpath_stats_t stats;
    double open_s, started, elapsed_s;
};

#define GIB(bytes) ((double)(bytes) / (1024.0 * 1024.0 * 1024.0))

double now_s(void);
void sample(struct samples *samples, double value);

/* Fills r->options and the sizes. -1 to go on, else the exit status. */
int read_options(int argc, char **argv, struct replay *r);

/* The store's configuration, from malloc(). NULL: out of memory. */
char *config_json(const struct replay *r);

/* Chooses the path that breaks and when, and makes it ready to. -1, said on stderr, where that is
 * not possible. */
int plan_fault(struct replay *r);

/* -1, said on stderr, where the storage has too little room for the run. */
int enough_space(const struct replay *r);

/* Prints a line with the time since the start. Any thread may. */
__attribute__((format(printf, 2, 3))) void event(const struct replay *r, const char *format, ...);

/* The library's log, as events; `user` is the struct replay. */
void on_log(int32_t level, const char *id, const char *text, void *user);

/* Takes the health of the paths into r->health. */
void watch_health(struct replay *r);

void say_hello(const struct replay *r);
void progress(struct replay *r);

/* Prints the table and the verdict; the exit status. */
int report(struct replay *r);

#endif
