/* Faults on purpose: the further exports of libkvpath_fault.so, a second build of kvpath for tests
 * only. The shipped library has none of this. A rule is a text, one of
 *
 *     fail  OP ERRNO [FILTER...]      ERRNO by name or number
 *     delay OP MS    [FILTER...]
 *     hang  OP       [FILTER...]      until kvpath_fault_release()
 *     short OP       [FILTER...]      OP is read or write
 *     flip  OP       [FILTER...]      OP is read or write
 *
 * with OP open, read, write, rename, fsync, getattr, unlink, mkdir, readdir, setattr or any, and
 * FILTER path=SUBSTRING, after=N, count=N, prob=P or seed=N. The words are those of faultfs
 * (ctest/faultfs/README.md), the order is not; see src/engine/fault/rule.rs. */

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
