/* The process that starts, kills and starts again the servers of the mounts. It is not the one that
 * uses the mounts: while a mount hangs, a process that has files open on it can start no other,
 * since the new one closes its copies of them and each close asks the mount. */
#ifndef KVPATH_SOAK_KEEPER_H
#define KVPATH_SOAK_KEEPER_H

#include "faultfs.h"

/* Begins it, and mounts `storage` `count` times. Call before there are threads or stores. Ends the
 * test where that fails, as do all others. Whatever is mounted is gone with this process. */
void keeper_start(struct faultfs *mounts, int count, const char *storage, unsigned max_seconds);
/* See faultfs.h. One caller at a time. */
void keeper_kill(struct faultfs *mounts, int at);
void keeper_again(struct faultfs *mounts, int at);
/* Ends it with all servers, in order. */
void keeper_end(void);

#endif
