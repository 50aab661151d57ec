/* What the tests of high availability share: a store on several mounts of one directory, each of
 * which can be broken by itself (faultfs), and events to wait for.
 *
 * The engine comes from $KVPATH_TEST_ENGINE (psync where it is not set). A case prints the engine
 * that really runs; where that is another one, it is skipped, and so it is where a backend got no
 * ring or no context of it and ran blocking calls instead. Nothing here waits by the clock: what
 * has no event is looked at again and again until it is so, at most wait_ms(). */
#ifndef KVPATH_HA_H
#define KVPATH_HA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "faultfs.h"

enum {
    MOUNTS_MAX = 4,
    SLACK_MS = 10000, /* how much later than its limit a call may return on a busy machine */
    ANY = -1,
};

/* Two shards of a page. */
extern const shape_t pair;
/* One shard of two pages: the whole block is one transfer. */
extern const shape_t whole;

/* How a store is opened. What is 0 is the default given here. */
typedef struct {
    shape_t shape;          /* pair */
    bool buffered;          /* io_direct: true */
    unsigned timeout_ms;    /* 0: no limits */
    unsigned window;        /* 4 */
    unsigned threshold;     /* 2 */
    double interval_s;      /* 3600: no round of probes comes during a test */
    double probe_timeout_s; /* 3 */
    bool breaker;           /* store_health.enabled: false */
    bool cold;              /* a dump through each path comes first, where 2 s are enough for it */
    const char *extra;      /* more keys, beginning with a comma */
} options_t;

typedef struct {
    int n;
    const char *storage; /* the directory behind all mounts */
    const char *path[MOUNTS_MAX];
    struct faultfs fs[MOUNTS_MAX];
    options_t options;
    kvpath_store_t store;
    int swept[MOUNTS_MAX];
} rig_t;

/* ---- the rig ---- */

/* `n` mounts of one new directory; skips where faultfs cannot run. */
void rig_mount(rig_t *rig, int n);
/* The configuration of a store on the rig's paths. */
const char *rig_config(const rig_t *rig, options_t options);
/* Opens; skips where the engine is not the one asked for. Starts to collect the log. */
void rig_open(rig_t *rig, options_t options);
/* Opens on what is mounted, waits for the end of the first sweep (R86), whose steps are outcomes in
 * the windows as well, and makes all counts 0. */
void rig_begin(rig_t *rig, options_t options);
/* The same on new mounts. */
void rig_start(rig_t *rig, int n, options_t options);
/* Closes, ends the mounts, and finds nothing left behind in the storage but blocks. */
void rig_stop(rig_t *rig);
/* How long to wait for what must happen: as good as for ever. $KVPATH_TEST_WAIT_MS makes a run that
 * is meant to fail a short one. */
int wait_ms(void);
/* The engine of the test. */
const char *ha_engine(void);
/* Skips where `store` runs on another engine than ha_engine(). */
void check_engine(kvpath_store_t store);

/* ---- faults: `which` is a backend ---- */

long long fault(rig_t *rig, int which, const char *rule, ...)
    __attribute__((format(printf, 3, 4)));
void heal(rig_t *rig, int which);
void tell(rig_t *rig, int which, const char *command, ...) __attribute__((format(printf, 3, 4)));
/* Waits until `count` operations `op` ("any") hang. */
void wait_hung(rig_t *rig, int which, int count, const char *op);
int hung(rig_t *rig, int which);
void release(rig_t *rig, int which);
void release_failing(rig_t *rig, int which, const char *errno_name);
/* Operations seen; `op` may be "total". */
long long seen(rig_t *rig, int which, const char *op, const char *pattern);
/* Waits until so many were seen. */
void wait_seen(rig_t *rig, int which, const char *op, const char *pattern, int count);
void forget_counts(rig_t *rig);

/* ---- blocks ---- */

/* R14: H of an id. */
uint64_t hash_of(const kvpath_block_id_t *id);
/* The number of a block whose primary of `n` is `primary`; the `nth` such, from 0 on. */
uint64_t block_for(int n, int primary, unsigned nth);
/* One such block in memory; of the rig's shape and number of backends. */
batch_t *block_on(rig_t *rig, int primary, unsigned nth);
const kvpath_block_id_t *id_of(const batch_t *block);
/* "data/NAME", and with everything that begins so "data/NAME*". */
const char *file_of(const batch_t *block);
const char *files_of(const batch_t *block);
/* Starts a task that must be accepted. */
kvpath_task_t begin_load(rig_t *rig, batch_t *block);
kvpath_task_t begin_dump(rig_t *rig, batch_t *block);
/* What became of it, without a limit of its own. */
kvpath_status_t finish(rig_t *rig, kvpath_task_t task);
/* Loads and compares; must succeed. */
void load_right(rig_t *rig, batch_t *block);
/* Dumps one shard of the block alone, to its end. */
kvpath_status_t dump_shard(rig_t *rig, batch_t *block, unsigned shard);

/* ---- what the store says ---- */

kvpath_backend_health_t health_of(rig_t *rig, int which);
int32_t state_of(rig_t *rig, int which);
/* Waits for the transition. */
void wait_state(rig_t *rig, int which, int32_t state);
/* Checks state, samples and failures; ANY leaves one out. */
void check_health(rig_t *rig, int which, int32_t state, int samples, int failures);
/* Successes that the first sweep has put into this backend's window. */
int swept(const rig_t *rig, int which);
/* Waits until so many probes of this backend have ended. */
void wait_probes(rig_t *rig, int which, uint64_t count);
/* Two different blocks of this primary fail: excluded with threshold 2. Heals it again. */
void exclude(rig_t *rig, int which);

/* Collects the log from now on; at the end of the case it is looked through for what
 * check_no_fallback() looks for. Waits for a message that holds `part`; counts those there are. */
void log_collect(void);
void wait_log(const char *part);
size_t log_count(const char *part);
/* Skips where the log says that some of the work was not done by the engine of the test: it then
 * proves nothing about that engine. */
void check_no_fallback(void);

/* ---- events and threads ---- */

/* Looks until `is_so` holds; fails with `what` after wait_ms(). */
typedef bool (*is_so_fn)(void *argument);
void wait_for(const char *what, is_so_fn is_so, void *argument);
/* Waits until no more than `count` threads are left. */
void wait_threads(size_t count);
/* Waits until so many operations on a backend were given up. With one backend a task may end a moment
 * before its attempt has had its time; what comes back in between is not late. */
void wait_abandoned(rig_t *rig, int which, uint64_t count);
void wait_late_results(rig_t *rig, uint64_t count);
/* Until nothing runs and nothing that was given up is in the kernel. */
void wait_at_rest(rig_t *rig);
/* For aside(): closes the rig's store. */
void *close_aside(void *rig);
/* For wait_for(): the close of the rig's store has begun. */
bool is_closing(void *rig);
uint64_t now_ms(void);

/* Threads of this process by name; `names` ending in `*` stand for all that begin so. */
size_t threads_named(const char *name);
/* The id of the one thread of this name; fails where there is another number of them. */
int thread_named(const char *name);
/* The line "Cpus_allowed_list" of a thread. */
const char *cores_of(int thread);

/* Runs `work` on a thread of its own; joined by join(). */
typedef struct {
    pthread_t thread;
} aside_t;
aside_t aside(void *(*work)(void *), void *argument);
void *join(aside_t work);

#endif
