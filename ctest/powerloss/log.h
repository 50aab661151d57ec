/* The record of what a store did to its storage, as faultfs writes it (ctest/faultfs/src/record.rs),
 * with what was reported to the caller in between. */
#ifndef KVPATH_POWERLOSS_LOG_H
#define KVPATH_POWERLOSS_LOG_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    EVENT_CREATE = 1,
    EVENT_WRITE = 2, /* begins; detail 1: direct */
    EVENT_END = 3,   /* of a write (detail: bytes written) or a sync (1); -1: it failed */
    EVENT_SYNC = 4,  /* begins */
    EVENT_RENAME = 5,
    EVENT_LINK = 6,
    EVENT_UNLINK = 7,
    EVENT_MKDIR = 8,
    EVENT_RMDIR = 9,
    EVENT_SYNC_DIR = 10, /* begins */
    EVENT_TRUNCATE = 11,
    EVENT_MARK = 12, /* the caller's: path is its text */
} event_kind_t;

typedef struct {
    event_kind_t kind;
    uint64_t source; /* the mount */
    uint64_t id;     /* joins the two halves of a write or sync */
    uint64_t ino, offset;
    int64_t detail;
    const char *path, *path_to;
    const uint8_t *data;
    size_t bytes;
    size_t begin; /* of an end: the event that began it */
} event_t;

typedef struct {
    event_t *events;
    size_t count;
} record_t;

/* Reads a record; its memory lives as long as the case. */
record_t record_read(const char *file);
/* Notes what was reported just now: "stored 7" and the like. */
void record_mark(const char *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
