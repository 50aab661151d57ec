//! Whole blocks over the C ABI: lookups, commit, remove (R44, R61, R62).

use super::guard::{guard, list, out, slice, slice_mut};
use super::handle;
use super::status::kvpath_status_t;
use super::types::{kvpath_block_id_t, kvpath_store_t};
use crate::error::Error;
use crate::store::BlockId;

/// The most ids of one call: each is an operation that takes some hundred bytes while it is asked.
const IDS_MAX: usize = 1 << 20;

/// # Safety
/// `ids` is NULL or valid for reads of `count` elements.
unsafe fn block_ids(
    ids: *const kvpath_block_id_t,
    count: usize,
    name: &str,
) -> Result<Vec<BlockId>, Error> {
    if count > IDS_MAX {
        return Err(Error::invalid(format!("{count} ids in one call, the most are {IDS_MAX}")));
    }
    // SAFETY: this function's contract.
    let ids = unsafe { slice(ids, count, name) }?;
    let mut blocks = list(count, name)?;
    blocks.extend(ids.iter().map(|id| BlockId(id.bytes)));
    Ok(blocks)
}

/// Asks for each block whether it is stored: found[i] becomes 1 or 0. count = 0 is fine. When the
/// status is KVPATH_STORE_UNHEALTHY, KVPATH_TIMEOUT or KVPATH_OS_ERROR, `found` is filled too: the
/// ids that could not be asked are marked absent, so that "store down" and "absent" can be told
/// apart. At most 1,048,576 ids in one call.
///
/// Ownership: none. Threads: any; the calling thread itself never enters the file system.
/// Blocking: yes, at most lookup_timeout_ms (0: no limit).
/// Errors: as above, KVPATH_INVALID_PARAM, KVPATH_CLOSED.
///
/// # Safety
/// `ids` is valid for `count` reads, `found` for `count` writes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_lookup(
    store: kvpath_store_t,
    ids: *const kvpath_block_id_t,
    count: usize,
    found: *mut u8,
) -> kvpath_status_t {
    guard(|| {
        // SAFETY: this function's contract.
        let ids = unsafe { block_ids(ids, count, "ids") }?;
        // SAFETY: this function's contract.
        let found = unsafe { slice_mut(found, count, "found") }?;
        let answer = handle::find(store)?.lookup(&ids)?;
        for (target, present) in found.iter_mut().zip(&answer.found) {
            *target = u8::from(*present);
        }
        answer.error.map_or(Ok(()), Err)
    })
}

/// The index of the last block before the first absent one: how much of a prefix is stored. -1 if
/// none. On KVPATH_STORE_UNHEALTHY, KVPATH_TIMEOUT and KVPATH_OS_ERROR, *index is set too: an id
/// that could not be asked counts as absent.
///
/// Ownership: none. Threads: any; the calling thread itself never enters the file system.
/// Blocking: as kvpath_lookup(). Errors: as kvpath_lookup().
///
/// # Safety
/// `ids` is valid for `count` reads, `index` for one write.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_lookup_prefix(
    store: kvpath_store_t,
    ids: *const kvpath_block_id_t,
    count: usize,
    index: *mut i64,
) -> kvpath_status_t {
    guard(|| {
        out(index, "index")?;
        // SAFETY: this function's contract.
        let ids = unsafe { block_ids(ids, count, "ids") }?;
        let answer = handle::find(store)?.lookup_prefix(&ids)?;
        // SAFETY: checked by `out`; valid by this function's contract.
        unsafe { index.write(answer.index) };
        answer.error.map_or(Ok(()), Err)
    })
}

/// The highest index whose block is stored, whatever is before it; -1 if none. On errors as
/// kvpath_lookup_prefix().
///
/// Ownership: none. Threads: any; the calling thread itself never enters the file system.
/// Blocking: as kvpath_lookup(). Errors: as kvpath_lookup().
///
/// # Safety
/// `ids` is valid for `count` reads, `index` for one write.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_lookup_last(
    store: kvpath_store_t,
    ids: *const kvpath_block_id_t,
    count: usize,
    index: *mut i64,
) -> kvpath_status_t {
    guard(|| {
        out(index, "index")?;
        // SAFETY: this function's contract.
        let ids = unsafe { block_ids(ids, count, "ids") }?;
        let answer = handle::find(store)?.lookup_last(&ids)?;
        // SAFETY: checked by `out`; valid by this function's contract.
        unsafe { index.write(answer.index) };
        answer.error.map_or(Ok(()), Err)
    })
}

/// Ends a block that was dumped: `success` = 1 makes it visible (needed under commit_policy
/// "explicit", harmless otherwise), 0 drops what was written of it.
///
/// Ownership: none. Threads: any. Blocking: yes, at most timeout_ms (0: no limit).
/// Errors: KVPATH_INVALID_PARAM: shards are missing (the text names them); KVPATH_NOT_FOUND: this
/// store has no such unfinished block (one of which nothing was written is none), and it is not
/// visible either; KVPATH_TIMEOUT,
/// KVPATH_OS_ERROR, KVPATH_NO_SPACE, KVPATH_STORE_UNHEALTHY, KVPATH_UNSUPPORTED (device_id is -1),
/// KVPATH_CLOSED.
///
/// # Safety
/// `id` is NULL or valid for one read.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_commit(
    store: kvpath_store_t,
    id: *const kvpath_block_id_t,
    success: u8,
) -> kvpath_status_t {
    guard(|| {
        // SAFETY: this function's contract.
        let ids = unsafe { block_ids(id, 1, "id") }?;
        handle::find(store)?.commit(ids[0], success != 0)
    })
}

/// Removes blocks. Missing ones are not an error. A block that is being dumped through this store
/// is not touched, and that is no error either: kvpath_commit() with 0 drops it.
///
/// Ownership: none. Threads: any. Blocking: yes, at most timeout_ms (0: no limit).
/// Errors: the first block's error in the order of the call; the others were tried. KVPATH_TIMEOUT,
/// KVPATH_OS_ERROR, KVPATH_STORE_UNHEALTHY, KVPATH_INVALID_PARAM, KVPATH_CLOSED.
///
/// # Safety
/// `ids` is valid for `count` reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_remove(
    store: kvpath_store_t,
    ids: *const kvpath_block_id_t,
    count: usize,
) -> kvpath_status_t {
    guard(|| {
        // SAFETY: this function's contract.
        let ids = unsafe { block_ids(ids, count, "ids") }?;
        handle::find(store)?.remove(&ids)
    })
}
