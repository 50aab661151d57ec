/* The failure matrix: the table (TABLE.md), its cells, and how one is run. */
#ifndef KVPATH_MATRIX_H
#define KVPATH_MATRIX_H

#include "ha.h"

enum { PATHS = 3, PLACES = 3, FAULTS_MAX = 16, WORD_BYTES = 32 };
enum place { FIRST, MIDDLE, ALL };

/* ---- the table ---- */

/* What is expected at one place. */
typedef struct {
    bool makes_sense;
    char status[WORD_BYTES];
    int retries;            /* ANY: not looked at */
    char counted[PATHS + 1]; /* for each candidate: x, . or ? */
} want_t;

typedef struct {
    char fault[WORD_BYTES], word[WORD_BYTES];
    want_t places[PLACES];
} entry_t;

/* The row of an operation; fails where the table has none. Gives how many faults there are. */
int table_row(const char *operation, entry_t entries[FAULTS_MAX]);
const char *place_name(int place);

/* ---- operations ---- */

typedef struct cell cell_t;

/* What the storage must hold, read past the store, when the call has ended. */
enum kept {
    BLOCK_STAYS,  /* the call only reads, or tries to remove */
    BLOCK_MADE,   /* whole after OK, otherwise not there */
    BLOCK_MAYBE,  /* whole after OK, otherwise whole or not there: the rename was made */
    BLOCK_GONE,   /* not there after OK, otherwise it stays */
    NOTHING_MADE, /* no block, whatever happens */
};

typedef struct {
    const char *ops;     /* of faultfs */
    const char *pattern; /* %s stands for the block's name */
    enum kept kept;
    options_t options;
    /* Before the fault: what must be there. */
    void (*prepare)(cell_t *cell);
    /* The call, and its status. */
    kvpath_status_t (*act)(cell_t *cell);
    kvpath_status_t right;  /* the right answer, where it is not OK */
    kvpath_status_t absent; /* the answer where the file system says that there is no such file */
    bool at_open;           /* the call is the opening of the store */
    /* The call that puts right what the fault left, when it is over; NULL: the same call. */
    kvpath_status_t (*again)(cell_t *cell);
    /* Waits for what is done behind the caller's back. */
    void (*settle)(cell_t *cell);
    /* The engine that does not make this request, so that nothing can be met; NULL: all do. */
    const char *without;
} operation_t;

struct cell {
    const operation_t *operation;
    const char *fault;
    int place;
    const want_t *want;
    bool slow, flips;
    rig_t *rig;
    batch_t *block;
    long long rules[PATHS];
    kvpath_stats_t before;
    kvpath_status_t status;
    char error[512];
};

/* The call that loads only the first shard of the cell's block. */
kvpath_status_t load_first(cell_t *cell);

/* Runs the row of `name`, and fails where a cell is not as the table says. */
void run_row(const char *name, const operation_t *operation);

/* How many requests the cell's rule on this candidate has hit. */
long long fired(const cell_t *cell, int nth);

/* Which path is the candidate number `nth` of the cell's block. */
int candidate(const cell_t *cell, int nth);

#endif
