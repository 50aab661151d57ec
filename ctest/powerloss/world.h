/* What a power loss may leave of a record: a conservative file system.
 *
 * Each 4 KiB of a file that no sync has covered may be there or not (then it is what was there
 * before, or rubbish), a file's length apart from its data, and each change of a name that no sync
 * of its directory has covered, apart from all others. A sync covers what had ended before it
 * began: bytes that went through the page cache only where it went through the same mount. A sync
 * that failed covers nothing, and no later one covers what it has lost. */
#ifndef KVPATH_POWERLOSS_WORLD_H
#define KVPATH_POWERLOSS_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"

/* Which of what is not synced is there. */
typedef enum { PICK_NONE, PICK_ALL, PICK_SOME, PICK_FIRST } pick_t;

typedef struct {
    const char *name;
    pick_t names;
    pick_t data;
    pick_t lengths; /* of files, beyond what their data needs */
} outcome_t;

enum { OUTCOMES = 10 };
extern const outcome_t outcomes[OUTCOMES];

enum { FILES_MAX = 128, NAMES_MAX = 512 };

/* A file after the power loss. */
typedef struct {
    const char *path;
    uint8_t *content;
    size_t bytes;
} left_t;

typedef struct {
    left_t files[FILES_MAX];
    size_t count;
    const char *dirs[16];
    size_t dir_count;
    uint64_t sum; /* the same for the same image */
} image_t;

/* The image when the power fails before event `moment`, with this outcome; the same seed, the same
 * choice. Its memory is used again by the next call. */
const image_t *world_after(const record_t *record, size_t moment, const outcome_t *outcome,
                           uint64_t seed);
/* Makes it so in an empty directory. */
void world_write(const image_t *image, const char *root);

#endif
