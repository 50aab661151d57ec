/* Chaos: many threads use stores on three mounts that fail, hang and come back at random, while the
 * stores are closed and opened again.
 *
 * What must hold: a load gives the right bytes or an error, never wrong, never half; what was
 * reported as stored is there, what was removed is not, nor does it come back with a later dump;
 * every call returns within its limit; and afterwards descriptors, threads and memory are as before.
 *
 * KVPATH_SOAK_SECONDS (20: with three engines the minute of CI), KVPATH_SOAK_SEED (1),
 * KVPATH_SOAK_EPOCH (1: the first one). The faults, the configurations and what each thread asks for
 * come from the seed alone; how the threads interleave does not. */
#ifndef KVPATH_SOAK_H
#define KVPATH_SOAK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"

enum {
    MOUNTS = 3,
    ACTIVE_MAX = 3, /* faults at once */
    STORES = 2,  /* open at once: two writers of the common blocks */
    WORKERS = 8, /* the first six use the first store */
    OWN = 12,    /* blocks that one worker alone dumps and removes */
    COMMON = 8,  /* blocks of everybody */
    TENSOR_BYTES = 4096,
    SHARD_BYTES = 8192,
    BLOCK_BYTES = 16384,
    SHARDS = BLOCK_BYTES / SHARD_BYTES,
    TENSORS = SHARD_BYTES / TENSOR_BYTES,
    AT_ONCE = 4, /* blocks in one task, at most */
    STAMPS = 255,
};

/* ---- meter.c: how late this machine runs what is due ---- */

uint64_t now_us(void);
void meter_start(void);
void meter_stop(void);
/* Fails where more than `limit_ms` has passed since `start_us`, and a slack that grows with what
 * the machine was late meanwhile. */
void within(uint64_t start_us, uint64_t limit_ms, const char *what);
/* The most that a call was over its limit, slack left out. */
uint64_t meter_most_over_ms(void);

/* ---- random numbers: the same seed, the same numbers ---- */

typedef struct {
    uint64_t state;
} dice_t;

dice_t dice(uint64_t seed, uint64_t what);
uint64_t dice_next(dice_t *dice);
/* From `least` to `most`, both included. */
unsigned dice_from(dice_t *dice, unsigned least, unsigned most);
bool dice_one_in(dice_t *dice, unsigned many);

/* ---- storm.c: the faults of one epoch ---- */

typedef struct {
    bool active;
    int mount;
    long long kind; /* what the mounts make of it */
    unsigned life;  /* of the mount's server */
    uint64_t end_us;
    bool fails; /* what hangs then fails, instead of running */
} fault_t;

void storm_begin(uint64_t seed);
/* No more faults; those that are there stay. */
void storm_end(void);
/* Whether a path that had just fallen off may have been believed (R24: for 100 ms) by a call that
 * ran from `start_us` until now. */
bool storm_fell_off(uint64_t start_us);
/* Prints the faults of the epoch. */
void storm_story(void);
/* When that was, in seconds of the story. */
double storm_at(uint64_t us);
/* For the mounts: a line of the story (mount -1: of none); a mount is about to fall off, and has;
 * the faults. */
void storm_note(int mount, const char *what);
void storm_falls(int mount);
void storm_fell(int mount);
const fault_t *storm_faults(void);

/* ---- faults.c: mounts of faultfs; clients.c: mounts that were given ---- */

/* Why there can be none; NULL: there can. */
const char *mounts_cannot(void);
void mounts_make(unsigned seconds);
void mounts_end(void);
/* The directory behind the mounts, and where each is. */
const char *mounts_storage(void);
const char *mounts_path(int mount);
/* How many times longer than on faultfs everything may take. */
unsigned mounts_slower(void);
/* Whether a mount may still show what was removed through another one at that time, or take a block
 * that was replaced then for one that was removed. */
bool mounts_stale(uint64_t since_us);
/* Begins a fault on its mount; false: it cannot begin now. Ends it. */
bool mounts_break(fault_t *fault, dice_t *dice);
void mounts_mend(const fault_t *fault);
/* This mount hangs from now on. */
void mounts_freeze(int mount);
/* All mounts work, and everything that hung is let go. */
void mounts_calm(void);
/* Lets go what has begun to hang since: a rule may have had it wait for a while before that. */
void mounts_let_go(void);
/* The library's log, line by line; what was made of it. */
void mounts_heard(const char *id, const char *line);
void mounts_report(void);

/* ---- worker.c ---- */

/* What a worker knows of a block of its own. */
typedef enum { ABSENT, PRESENT, UNKNOWN } known_t;

enum { HISTORY = 32 };

typedef struct {
    known_t known;
    /* A dump or removal was given up and may still happen, until all is at rest. */
    bool late_dump, late_remove;
    uint64_t removed_us, dumped_us; /* when it was last */
    /* Whose content it may have: what was there when the epoch began, and what was dumped since
     * (an existing block keeps its content); 0: no such. None of it after a sure removal. */
    uint8_t settled, dumped;
    struct {
        char call; /* d, l or r */
        kvpath_status_t status;
        uint64_t start_us, end_us;
    } history[HISTORY];
    unsigned history_count;
} own_t;

/* ---- history.c ---- */

void history_add(own_t *own, char call, kvpath_status_t status, uint64_t start_us);
/* Also whether the file is there now. */
const char *history_text(const own_t *own, const char *storage, const kvpath_block_id_t *id);
/* Whether it may be found, or said to be absent, as far as its worker knows. */
bool may_be_shown(const own_t *own);
bool may_be_missed(const own_t *own);
/* Fails where its content, found at rest or not, is that of a dump which was removed since. */
void check_stamp(const own_t *own, uint8_t stamp, const char *storage, const kvpath_block_id_t *id);

/* What the workers of one epoch have in common. */
typedef struct {
    const char *storage; /* the directory behind the mounts */
    kvpath_store_t store[STORES];
    uint8_t stamp[STORES]; /* of the blocks that each dumps */
    uint64_t seed;
    unsigned timeout_ms, lookup_timeout_ms;
    bool borrowed;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;
} epoch_t;

/* Memory of a few blocks with their shard list. */
typedef struct {
    uint8_t *memory;
    void *addrs[AT_ONCE * SHARDS * TENSORS];
    kvpath_shard_t shards[AT_ONCE * SHARDS];
    uint64_t sum; /* of the memory when its task had ended; 0: no task has */
} blocks_t;

typedef struct {
    int number;
    epoch_t *epoch;
    pthread_t thread;
    dice_t dice;
    own_t own[OWN];
    blocks_t loads[2], dumps; /* loads take turns: the last one's memory must not change (R30) */
    unsigned turn;
    bool closed; /* the store under it */
    uint64_t calls, right, errors;
} worker_t;

void worker_make(worker_t *worker, int number);
void worker_begin(worker_t *worker, epoch_t *epoch);
void worker_join(worker_t *worker);
/* Nothing has changed memory that was given back. */
void worker_memory_check(worker_t *worker);
/* Loads every own block: what is known must be so, without an error. */
void worker_verify(worker_t *worker);
/* Compares with the files, and from then on everything is known. */
void worker_settle(worker_t *worker, const char *storage);
kvpath_block_id_t own_id(int worker, unsigned block);
kvpath_block_id_t common_id(unsigned block);

/* ---- content.c ---- */

/* Fails unless the bytes are one writer's block, whole; gives its stamp. */
uint8_t check_block(const kvpath_block_id_t *id, const uint8_t *bytes, const char *what);
/* Reads the file of a block; gives its stamp, 0 where it is not there. */
uint8_t check_block_file(const char *storage, const kvpath_block_id_t *id);

#endif
