/* What the tests of limits share: giving up privileges and resources, refusing system calls,
 * settings of the kernel that are put back whatever happens, and what the log said.
 *
 * A case that takes something from its process runs it in a child: the process that CTest watches
 * keeps its rights and can clean up. */
#ifndef KVPATH_LIMITS_H
#define KVPATH_LIMITS_H

#include <sys/resource.h>
#include <sys/types.h>

#include "check.h"

/* Runs `body` in a child made before any store is opened (R73), and fails where it fails or hangs.
 * A child that skips makes the case skip. */
void in_child(void (*body)(const char *root), const char *root);

/* From now on this process is an ordinary user nobody else is: RLIMIT_NPROC counts its threads
 * alone, RLIMIT_MEMLOCK holds. It may still use every file. Skips where it is not root. */
void become_ordinary(void);

/* The soft limit of a resource; the hard one stays. */
void set_soft(int resource, rlim_t value);
/* Both limits. */
void set_hard(int resource, rlim_t value);

/* Takes every descriptor that the process may still have, at a limit of `most`; gives their
 * number. give_back() closes them, or `count` of them. */
size_t take_descriptors(rlim_t most);
void give_back(size_t count);

/* Refuses a system call with `code`, from now on, in every thread of the process. */
void refuse_call(long number, int code);

/* A number in /proc/sys; -1 where there is none. */
long long sysctl_of(const char *name);
/* Writes it. A guardian process puts the old value back when this process is gone, killed or not.
 * Skips where it may not be written. */
void sysctl_set(const char *name, long long value);

/* A configuration like config(), direct where the file system of `root` takes it. */
const char *direct_config(const char *root, shape_t shape, const char *extra);
/* As open_store(), and prints the engine that runs. */
kvpath_store_t open_shown(const char *json);
/* Its name, a copy. */
const char *engine_used(kvpath_store_t store);

/* Keeps the log from now on; log_text() is what came so far, log_wait() waits for a part of it. */
void log_keep(void);
const char *log_text(void);
void log_wait(const char *part);

/* No path was excluded, none has a failure in its window. */
void check_nothing_counted(kvpath_store_t store);

#endif
