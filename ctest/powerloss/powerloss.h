/* Power losses: a store's changes are recorded, and after each of them, and any part of what was
 * not synced by then, the storage is opened again (R43).
 *
 * KVPATH_POWERLOSS_IMAGES: so many of the images of each recording are opened by a store; 0: all.
 * The model's own check is made on all of them. KVPATH_POWERLOSS_ROUNDS: random choices for each
 * outcome that has any. */
#ifndef KVPATH_POWERLOSS_H
#define KVPATH_POWERLOSS_H

#include "check.h"
#include "faultfs.h"

enum { BLOCKS = 24 };

extern const shape_t shape;

typedef struct {
    const char *sync; /* commit_sync */
    bool direct;
    bool failing; /* two paths that fail and hang, instead of one that works */
    int mounts;
    struct faultfs fs[2];
    const char *record; /* the file */
} recording_t;

/* Runs the workload in a child and records it. No store may be open before (R73). */
void record(recording_t *of);

#endif
