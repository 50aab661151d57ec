/* Real mounts for tests, in a mount namespace of the process's own, and what makes sure that none
 * of them outlives it or hangs the machine: an exit handler, and a watchdog process that does the
 * same when the test is killed or takes too long: stopped servers die, what is frozen is thawed,
 * and what is mounted is detached. */
#ifndef KVPATH_GROUND_H
#define KVPATH_GROUND_H

#include "ha.h"

enum { SERVERS_MAX = 4 };

/* Begins: own mounts, and the watchdog. Skips where this process may not mount. */
void ground_begin(void);
/* A command of the shell that must succeed. */
void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Skips where a program is not installed. */
void need_program(const char *name);

/* `where` shows `what` as well. */
void bind_at(const char *what, const char *where);
void detach(const char *where);
/* A fresh ext4 with `options` for mkfs on a loop device, mounted on a new directory; skips where
 * there are no loop devices. The loop device goes with the mount. */
const char *ext4_new(unsigned mib, const char *options);
/* Everything that writes to it hangs, until it is thawed. */
void freeze(const char *where);
void thaw(const char *where);

/* A bindfs mount of `what` at `where`; its number. Skips where there is none. */
int bindfs_at(const char *what, const char *where);
void bindfs_signal(int server, int signal_number);
/* Killed, and reaped: the mount gives ENOTCONN. */
void bindfs_kill(int server);

#endif
