/* The ground that the demo runs on: a directory of its own, the storage, and several paths to it
 * that are symbolic links: one can be broken and mended without root, and no mount is touched. */
#ifndef EXAMPLES_GROUND_H
#define EXAMPLES_GROUND_H

#include <limits.h>
#include <stddef.h>

enum { GROUND_MAX_PATHS = 64, GROUND_OWN_PATHS = 3 };

struct ground {
    char dir[PATH_MAX];                      /* made by ground_make(): <where>/kvpath-demo-XXXXXX */
    char storage[PATH_MAX];                  /* the real storage directory, by the first path */
    char paths[GROUND_MAX_PATHS][PATH_MAX];  /* the links: what the store is opened with */
    char target[GROUND_MAX_PATHS][PATH_MAX]; /* where they lead */
    size_t count;
};

/* Makes it below `where`. `backends` is NULL (three paths to one directory here) or "a:b:c":
 * directories of the user that are paths to one storage; then only a directory of the demo's own
 * inside it is used. Returns 0, or -1, said on stderr; then nothing stays behind. */
int ground_make(struct ground *ground, const char *where, const char *backends);

/* Removes all that ground_make() and the store made. Returns 0, or -1 (said on stderr). */
int ground_remove(struct ground *ground);

/* Turns a path into a regular file, so that everything below it is ENOTDIR; and back. 0, or -1. */
int ground_break(struct ground *ground, size_t path);
int ground_mend(struct ground *ground, size_t path);

/* Looks at the storage with plain readdir(): block files that are `block_bytes` long, and all other
 * files in data directories (temporaries above all). 0, or -1. */
int ground_count(struct ground *ground, size_t block_bytes, size_t *blocks, size_t *others);

/* Bytes that are free where the storage is. 0 when unknown. */
unsigned long long ground_free_bytes(const struct ground *ground);

#endif
