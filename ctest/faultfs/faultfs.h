/*
 * Client of faultfs, the file system of the tests that fails on demand. See README.md for the
 * commands.
 *
 *     struct faultfs fs;
 *     if (faultfs_cannot() != NULL) { puts(faultfs_cannot()); return FAULTFS_SKIP; }
 *     if (faultfs_start(&fs, NULL, 0) != 0) { puts(fs.error); return 1; }
 *     long long rule = faultfs_number(&fs, "rule add read * count=1 hang");
 *     ... something reads below fs.mount ...
 *     faultfs_command(&fs, NULL, 0, "wait-hung 1 5000 read");
 *     faultfs_command(&fs, NULL, 0, "release %lld", rule);
 *     faultfs_stop(&fs);
 *
 * Several mounts of one directory: start each with the same root.
 *
 * Threads: any function from any thread, but start and stop of one struct from one at a time. The
 * server ends when the *thread* that started it ends: start from the main thread.
 * Exit: whatever was not stopped is killed, detached and deleted when the process exits; when it is
 * killed, the server notices and ends by itself.
 */
#ifndef FAULTFS_H
#define FAULTFS_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exit status by which a test says "cannot run here". */
#define FAULTFS_SKIP 77

enum { FAULTFS_PATH_BYTES = 256, FAULTFS_TEXT_BYTES = 1024, FAULTFS_MOUNTS_MAX = 64 };

struct faultfs {
    pid_t pid;                       /* of the server; 0 when it is not running */
    char root[FAULTFS_PATH_BYTES];   /* the real directory */
    char mount[FAULTFS_PATH_BYTES];  /* the same through faultfs */
    char socket[FAULTFS_PATH_BYTES]; /* for `faultfs send` */
    char error[FAULTFS_TEXT_BYTES];  /* what went wrong last */
    int slot;
};

/* NULL where faultfs works, else why it does not (no /dev/fuse, not allowed to mount, no binary).
 * Tries once, then remembers. The binary: $FAULTFS_BIN, else the macro FAULTFS_BIN, else $PATH. */
const char *faultfs_cannot(void);

/* Mounts `root`, or a new temporary directory where it is NULL, and waits until the mount works.
 * The watchdog ends it after `max_seconds` (0: 300). Gives 0, or -1 with fs->error. */
int faultfs_start(struct faultfs *fs, const char *root, unsigned max_seconds);

/* Sends a command. Gives 0 for "ok", with the rest of the answer in `reply` (may be NULL), or -1
 * with the answer in fs->error. */
int faultfs_command(struct faultfs *fs, char *reply, size_t reply_bytes, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for commands that answer with a number: rule add, rule fired, release, thaw,
 * wait-count. -1 is an error. */
long long faultfs_number(struct faultfs *fs, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* How many operations `op` ("total" for all) were seen on paths that match; NULL: on all. */
long long faultfs_count(struct faultfs *fs, const char *op, const char *pattern);

/* Kills the server as a crash would: the mount stays and gives ENOTCONN until faultfs_again or
 * faultfs_stop. */
void faultfs_kill(struct faultfs *fs);

/* Mounts a killed one again at its old place, with no rule and nothing counted; in between the
 * mount point shows an empty directory. From a thread that stays, as faultfs_start. Gives 0, or -1
 * with fs->error; then it is gone. */
int faultfs_again(struct faultfs *fs, unsigned max_seconds);

/* Lets hung operations run, unmounts, deletes the temporary directories. Gives 0 where the server
 * ended in order; otherwise it was killed. Does nothing where it is stopped already. */
int faultfs_stop(struct faultfs *fs);

#ifdef __cplusplus
}
#endif

#endif
