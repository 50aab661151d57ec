//! Faults on purpose, over C: only in the second build of the library, `libkvpath_fault.so`. The
//! header is `ctest/kvpath_fault.h`; the words of rules are those of `engine/fault.rs`.

use std::ffi::c_char;
use std::time::Duration;

use super::guard::{guard, out, text};
use super::handle;
use super::status::kvpath_status_t;
use super::types::kvpath_store_t;
use crate::error::{Error, Status};

/// Adds a rule to a backend's engine, for example "fail write EIO path=abc count=3" or "hang read".
///
/// Ownership: none. Threads: any. Blocking: never. Errors: KVPATH_INVALID_PARAM (the rule's text).
///
/// # Safety
/// `rule` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_fault_add(
    store: kvpath_store_t,
    backend: usize,
    rule: *const c_char,
) -> kvpath_status_t {
    guard(|| {
        // SAFETY: this function's contract.
        let rule = unsafe { text(rule, "rule") }?;
        let engine = handle::find(store)?.faulty(backend)?;
        engine.faults().add(rule).map(drop).map_err(Error::invalid)
    })
}

/// Removes all rules of a backend's engine. What hangs goes on hanging.
///
/// Ownership: none. Threads: any. Blocking: never. Errors: KVPATH_INVALID_PARAM.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_fault_clear(store: kvpath_store_t, backend: usize) -> kvpath_status_t {
    guard(|| {
        handle::find(store)?.faulty(backend)?.faults().clear();
        Ok(())
    })
}

/// Lets go of everything that hangs in a backend's engine: it now runs for real.
///
/// Ownership: none. Threads: any. Blocking: never. Errors: KVPATH_INVALID_PARAM.
///
/// # Safety
/// `count` is NULL or valid for one write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_fault_release(
    store: kvpath_store_t,
    backend: usize,
    count: *mut usize,
) -> kvpath_status_t {
    guard(|| {
        out(count, "count")?;
        let released = handle::find(store)?.faulty(backend)?.release();
        // SAFETY: checked by `out`; valid by this function's contract.
        unsafe { count.write(released) };
        Ok(())
    })
}

/// Waits until `count` operations hang in a backend's engine.
///
/// Ownership: none. Threads: any. Blocking: at most `limit_ms`. Errors: KVPATH_TIMEOUT.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_fault_wait_held(
    store: kvpath_store_t,
    backend: usize,
    count: usize,
    limit_ms: u64,
) -> kvpath_status_t {
    guard(|| {
        let engine = handle::find(store)?.faulty(backend)?;
        if engine.faults().wait_held(count, Duration::from_millis(limit_ms)) {
            return Ok(());
        }
        let held = engine.faults().held();
        Err(Error::new(Status::Timeout, format!("{held} operations hang, not {count}")))
    })
}
