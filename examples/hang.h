/* A path that stops answering, for `--fault hang`: a mount of the storage whose server process is
 * stopped (bindfs, where it is installed and may mount), or else a build of the library that can
 * hold back what it does (libkvpath_fault.so, which `replay_fault` is linked with). */
#ifndef EXAMPLES_HANG_H
#define EXAMPLES_HANG_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>
#include <kvpath.h>

struct hang {
    char mount[PATH_MAX]; /* where bindfs is mounted; empty: it is not */
    pid_t server;
    int in_library; /* the fault build does it */
};

/* Makes the path ready: mounts `storage` at `mount` and puts `mount` into hang->mount, or finds the
 * fault build. 0, or -1 where neither can be had, said on stderr. */
int hang_make(struct hang *hang, const char *storage, const char *mount);

/* In words, what hangs. */
const char *hang_means(const struct hang *hang);

/* From now on every operation on the path hangs; and back: what hung runs. 0, or -1. */
int hang_stop(struct hang *hang, kvpath_store_t store, size_t path);
int hang_go(struct hang *hang, kvpath_store_t store, size_t path);

/* Unmounts. Safe to call twice, and at any time after hang_make(). 0, or -1. */
int hang_remove(struct hang *hang);

#endif
