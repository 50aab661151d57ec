/* Faults on purpose: the further exports of libkvpath_fault.so, a second build of kvpath for tests
 * only. The shipped library has none of this. Rules are texts:
 *
 *     fail|delay|hang|short|flip OP [ERRNO | MS] [path=SUBSTRING] [count=N] [prob=P seed=S]
 *
 * with OP read, write, rename, sync, stat, unlink, mkdir, list, touch or any; see
 * src/engine/fault.rs. */

#ifndef KVPATH_FAULT_H
#define KVPATH_FAULT_H

#include "kvpath.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds a rule to the engine of backend number `backend`. */
kvpath_status_t kvpath_fault_add(kvpath_store_t store, size_t backend, const char *rule);
/* Removes all rules; what hangs goes on hanging. */
kvpath_status_t kvpath_fault_clear(kvpath_store_t store, size_t backend);
/* Lets everything go that hangs: it now runs for real. *count becomes how many. */
kvpath_status_t kvpath_fault_release(kvpath_store_t store, size_t backend, size_t *count);
/* Waits until `count` operations hang; KVPATH_TIMEOUT after limit_ms. */
kvpath_status_t kvpath_fault_wait_held(kvpath_store_t store, size_t backend, size_t count,
                                       uint64_t limit_ms);

#ifdef __cplusplus
}
#endif

#endif
