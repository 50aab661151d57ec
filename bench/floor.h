/* What both floors share: names made before the clock runs, open, and the end of a block. */
#ifndef KVBENCH_FLOOR_H
#define KVBENCH_FLOOR_H

#include "bench.h"

#include <stdatomic.h>

struct floor_files {
    const struct plan *plan;
    bool dump;
    int flags;
    char (*final)[PATH_BYTES];
    char (*temporary)[PATH_BYTES]; /* dumps only */
    atomic_uint *written;          /* shards, by block */
};

void floor_prepare(struct floor_files *files, const struct plan *plan);
int floor_open(struct floor_files *files, size_t block);
void floor_done(struct floor_files *files, const struct transfer *transfer);
void floor_free(struct floor_files *files);

#endif
