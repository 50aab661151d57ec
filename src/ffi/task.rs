//! Tasks over the C ABI: load, dump, and everything that is asked of a handle (R26).

use super::guard::{guard, list, out, slice, slice_mut};
use super::handle;
use super::status::kvpath_status_t;
use super::types::{kvpath_shard_t, kvpath_store_t, kvpath_task_t};
use crate::engine::Segment;
use crate::error::{Error, Status};
use crate::store::{BlockId, ShardRequest, TaskKind, TaskResult};

/// Copies the caller's shard list, so that nothing of it is needed after the call.
///
/// # Safety
/// `shards` is NULL or valid for reads of `count` elements, each `addrs` for `addr_count` reads.
unsafe fn requests(
    store: kvpath_store_t,
    shards: *const kvpath_shard_t,
    count: usize,
) -> Result<Vec<ShardRequest>, Error> {
    let found = handle::find(store)?;
    let shape = found.transfer_shape()?;
    // Before anything is as large as the count says.
    found.fits_queue(count)?;
    // SAFETY: this function's contract.
    let shards = unsafe { slice(shards, count, "shards") }?;
    let tensor_bytes = usize::try_from(shape.tensor_bytes)
        .map_err(|_| Error::invalid("tensor_size does not fit this machine's memory"))?;
    let mut requests = list(count, "shards")?;
    for (at, shard) in shards.iter().enumerate() {
        if u64::from(shard.index) >= shape.shards() {
            return Err(Error::invalid(format!(
                "shards[{at}].index is {}, a block has shards 0 to {}",
                shard.index,
                shape.shards() - 1
            )));
        }
        if u64::from(shard.addr_count) != shape.tensors() {
            return Err(Error::invalid(format!(
                "shards[{at}].addr_count is {}, a shard has {} tensors (shard_size / tensor_size)",
                shard.addr_count,
                shape.tensors()
            )));
        }
        let name = format!("shards[{at}].addrs");
        // SAFETY: this function's contract.
        let addrs = unsafe { slice(shard.addrs, shard.addr_count as usize, &name) }?;
        let mut memory = list(addrs.len(), &name)?;
        for (tensor, address) in addrs.iter().enumerate() {
            let start = *address as usize;
            if start == 0 {
                return Err(Error::invalid(format!("shards[{at}].addrs[{tensor}] is NULL")));
            }
            if start.checked_add(tensor_bytes).is_none() {
                return Err(Error::invalid(format!(
                    "shards[{at}].addrs[{tensor}] + tensor_size wraps around the address space"
                )));
            }
            memory.push(Segment::new(address.cast::<u8>(), tensor_bytes));
        }
        let block = BlockId(shard.block.bytes);
        requests.push(ShardRequest { block, index: shard.index, memory });
    }
    Ok(requests)
}

/// Shared by load and dump.
///
/// # Safety
/// As [`requests`]; `task` is NULL or valid for one write.
unsafe fn submit(
    kind: TaskKind,
    store: kvpath_store_t,
    shards: *const kvpath_shard_t,
    count: usize,
    task: *mut kvpath_task_t,
) -> Result<(), Error> {
    out(task, "task")?;
    // SAFETY: this function's contract.
    let requests = unsafe { requests(store, shards, count) }?;
    let handle = handle::find(store)?.submit(kind, requests)?;
    // SAFETY: checked by `out`; valid by this function's contract.
    unsafe { task.write(handle) };
    Ok(())
}

/// Starts to load shards into the caller's memory and gives a task handle at once. Zero shards are
/// a finished task.
///
/// Ownership: the list is copied; the tensors' memory belongs to the task until the task has
/// finished, and is neither read nor written after that (in `isolated` buffer mode whatever the
/// kernel still does).
/// Threads: any. Blocking: never on I/O.
/// Errors: KVPATH_INVALID_PARAM (nothing is started), KVPATH_RETRY (max_queued_shards reached),
/// KVPATH_STORE_UNHEALTHY, KVPATH_UNSUPPORTED (device_id is -1), KVPATH_CLOSED. What happens to a
/// shard is told by kvpath_wait(): KVPATH_NOT_FOUND (no such block; detail KVPATH_CORRUPT: not a
/// whole one), KVPATH_TIMEOUT, KVPATH_OS_ERROR, KVPATH_STORE_UNHEALTHY, KVPATH_CLOSED,
/// KVPATH_CANCELLED. A shard that did not succeed may have overwritten a part of its memory.
///
/// # Safety
/// The pointers are valid as described.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_load(
    store: kvpath_store_t,
    shards: *const kvpath_shard_t,
    count: usize,
    task: *mut kvpath_task_t,
) -> kvpath_status_t {
    // SAFETY: this function's contract.
    guard(|| unsafe { submit(TaskKind::Load, store, shards, count, task) })
}

/// Starts to dump shards from the caller's memory and gives a task handle at once. A block becomes
/// visible, whole, when commit_policy says so (default: when all its shards were written through
/// this store, by any number of tasks); the task whose shard completes a block finishes after the
/// block is visible.
///
/// Ownership: the list is copied; the tensors' memory belongs to the task and must not change until
/// it has finished.
/// Threads: any. Blocking: never on I/O.
/// Errors: as kvpath_load(); also KVPATH_RETRY (too many unfinished blocks), and
/// KVPATH_INVALID_PARAM for the same shard twice in one task. From kvpath_wait() also
/// KVPATH_NO_SPACE. A shard that failed leaves its block unfinished, unless nothing of it is
/// written: dump that shard again.
///
/// # Safety
/// The pointers are valid as described.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_dump(
    store: kvpath_store_t,
    shards: *const kvpath_shard_t,
    count: usize,
    task: *mut kvpath_task_t,
) -> kvpath_status_t {
    // SAFETY: this function's contract.
    guard(|| unsafe { submit(TaskKind::Dump, store, shards, count, task) })
}

/// Asks whether a task has finished: *finished becomes 1 or 0. The handle stays.
///
/// Ownership: none. Threads: any. Blocking: never.
/// Errors: KVPATH_NOT_FOUND (the handle was consumed, forgotten or never given), KVPATH_CLOSED.
///
/// # Safety
/// `finished` is NULL or valid for one write.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_check(
    store: kvpath_store_t,
    task: kvpath_task_t,
    finished: *mut u8,
) -> kvpath_status_t {
    guard(|| {
        out(finished, "finished")?;
        let done = handle::find(store)?.check(task)?;
        // SAFETY: checked by `out`; valid by this function's contract.
        unsafe { finished.write(u8::from(done)) };
        Ok(())
    })
}

/// Waits for a task at most limit_ms (0: no limit of its own; the task ends by timeout_ms) and
/// consumes its handle. The status is that of the first shard, in the order of the call, that did
/// not succeed.
///
/// Ownership: the task's memory is the caller's again. Threads: any; of two waiting, one gets the
/// result.
/// Blocking: yes. Errors: KVPATH_RETRY: not finished in limit_ms, the handle stays and the task
/// goes on; KVPATH_NOT_FOUND: no such handle, or the shard's status (see kvpath_last_error()); the
/// shard statuses of kvpath_load() and kvpath_dump().
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_wait(
    store: kvpath_store_t,
    task: kvpath_task_t,
    limit_ms: u64,
) -> kvpath_status_t {
    guard(|| handle::find(store)?.wait(task, limit_ms)?.first_error())
}

/// kvpath_wait(), which also gives one status per shard, in the order of the call. `statuses` is
/// filled whenever the handle is consumed, also when the returned status is an error.
///
/// Ownership: as kvpath_wait(). Threads: as kvpath_wait(). Blocking: as kvpath_wait().
/// Errors: as kvpath_wait(), and KVPATH_INVALID_PARAM where `count` is less than the task's shards
/// (the handle stays).
///
/// # Safety
/// `statuses` is valid for `count` writes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_wait_results(
    store: kvpath_store_t,
    task: kvpath_task_t,
    limit_ms: u64,
    statuses: *mut kvpath_status_t,
    count: usize,
) -> kvpath_status_t {
    guard(|| {
        // SAFETY: this function's contract.
        let statuses = unsafe { slice_mut(statuses, count, "statuses") }?;
        let store = handle::find(store)?;
        let shards = store.task_shards(task)?;
        if shards > count {
            return Err(Error::invalid(format!(
                "statuses has room for {count}, the task has {shards} shards"
            )));
        }
        let result: TaskResult = store.wait(task, limit_ms)?;
        for (at, status) in statuses.iter_mut().enumerate().take(result.shards()) {
            *status = result.status(at).code();
        }
        result.first_error()
    })
}

/// Ends what has not started of a task: those shards get KVPATH_CANCELLED, running ones go on. The
/// handle stays and is waited for as ever.
///
/// Ownership: unchanged; the memory is the task's until it has finished. Threads: any. Blocking:
/// never.
/// Errors: KVPATH_NOT_FOUND (no such handle), KVPATH_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_cancel(store: kvpath_store_t, task: kvpath_task_t) -> kvpath_status_t {
    guard(|| handle::find(store)?.cancel(task))
}

/// Drops a handle whose result nobody will ask for. The task itself goes on to its end, and its
/// memory must live until then: forget a running task only if its memory outlives the store.
///
/// Ownership: as above. Threads: any. Blocking: never.
/// Errors: KVPATH_NOT_FOUND (no such handle), KVPATH_CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_forget(store: kvpath_store_t, task: kvpath_task_t) -> kvpath_status_t {
    guard(|| handle::find(store)?.forget(task))
}

/// Lists tasks that have finished since they were last listed, each once, oldest first, at most
/// `max`; *count becomes their number. The handles stay until kvpath_wait() consumes them (it
/// returns at once) or kvpath_forget() drops them.
/// Tasks that failed are listed; those that were waited for or forgotten before are not.
///
/// Ownership: none. Threads: any. Blocking: never. Errors: KVPATH_INVALID_PARAM, KVPATH_CLOSED.
///
/// # Safety
/// `tasks` is valid for `max` writes, `count` for one.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_finished(
    store: kvpath_store_t,
    tasks: *mut kvpath_task_t,
    max: usize,
    count: *mut usize,
) -> kvpath_status_t {
    guard(|| {
        out(count, "count")?;
        // SAFETY: this function's contract.
        let tasks = unsafe { slice_mut(tasks, max, "tasks") }?;
        let finished = handle::find(store)?.finished(tasks.len())?;
        tasks[..finished.len()].copy_from_slice(&finished);
        // SAFETY: checked by `out`; valid by this function's contract.
        unsafe { count.write(finished.len()) };
        Ok(())
    })
}

/// A descriptor that poll(2) shows readable while kvpath_finished() has something to list. Do not
/// read, write or close it.
///
/// Ownership: the library's, closed by kvpath_close(). Threads: any. Blocking: never.
/// Errors: KVPATH_OS_ERROR (no descriptor left), KVPATH_CLOSED.
///
/// # Safety
/// `fd` is NULL or valid for one write.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_event_fd(store: kvpath_store_t, fd: *mut i32) -> kvpath_status_t {
    guard(|| {
        out(fd, "fd")?;
        let descriptor = handle::find(store)?.event_fd()?;
        // SAFETY: checked by `out`; valid by this function's contract.
        unsafe { fd.write(descriptor) };
        Ok(())
    })
}

impl TaskResult {
    fn status(&self, at: usize) -> Status {
        self.error(at).map_or(Status::Ok, |error| error.status)
    }
}
