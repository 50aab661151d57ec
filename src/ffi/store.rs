//! Opening and closing a store, aligned memory, the log callback, and versions.

use std::ffi::{CStr, c_char, c_void};

use super::guard::{guard, out, text};
use super::handle;
use super::status::kvpath_status_t;
use super::types::{kvpath_log_fn, kvpath_store_t};
use crate::error::Error;
use crate::log;
use crate::posix::{aligned, fork};
use crate::store::Store;

/// The version of the C ABI. It grows when something is added. When something breaks, the soname
/// changes: it has the minor version while the major one is 0.
pub const KVPATH_ABI_VERSION: u32 = 1;

/// Opens a store from a JSON object (README, "Configuration"). All backends are checked with real
/// I/O, in order; the first failure ends the call, and its text names the backend, the operation,
/// and errno or what differed.
///
/// Ownership: the string is copied; the store is the caller's until kvpath_close(). On failure no
/// thread, descriptor or probe file stays behind; a storage that the call has made on the way (its
/// marker and data directories) stays.
/// Threads: any. Blocking: for the checks, at most open_timeout_ms (0, the default: as long as they
/// take).
/// Errors: KVPATH_INVALID_PARAM (the text names the key, its value and the rule),
/// KVPATH_UNSUPPORTED, KVPATH_STORE_UNHEALTHY (a check failed), KVPATH_TIMEOUT, KVPATH_OS_ERROR.
///
/// # Safety
/// `config_json` is NULL or a terminated string; `store` is NULL or valid for one write.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_open(
    config_json: *const c_char,
    store: *mut kvpath_store_t,
) -> kvpath_status_t {
    guard(|| {
        log::refuse_in_callback("kvpath_open")?;
        out(store, "store")?;
        // SAFETY: this function's contract.
        let config = unsafe { text(config_json, "config_json") }?;
        fork::arm()
            .map_err(|error| Error::new(crate::error::Status::OsError, error.to_string()))?;
        let id = handle::publish(Store::open(config)?);
        // SAFETY: checked by `out`; valid by this function's contract.
        unsafe { store.write(id) };
        Ok(())
    })
}

/// Closes a store: queued work ends with KVPATH_CLOSED, running attempts finish, temporaries of
/// this store are removed, and all its threads end. From the first moment every other call with
/// this store gets KVPATH_CLOSED. Calls that wait return: those for queued work at once, those for
/// a running attempt when it ends, at most when close_timeout_ms passes.
///
/// Ownership: the store is gone, whatever is returned; the descriptor of kvpath_event_fd() is
/// closed.
/// Threads: any, but not the log callback; the first call closes, others get KVPATH_CLOSED.
/// Blocking: until the last thread has returned from the kernel, at most close_timeout_ms (0, the
/// default: no limit). The last store of the process also waits for a log callback that runs: hold
/// no lock that it takes.
/// Errors: KVPATH_CLOSED, KVPATH_INVALID_PARAM (never a store), KVPATH_TIMEOUT: threads hang in the
/// kernel; they are harmless, and end when the kernel lets them go. Task memory is safe in
/// `isolated` buffer mode only.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_close(store: kvpath_store_t) -> kvpath_status_t {
    guard(|| {
        log::refuse_in_callback("kvpath_close")?;
        handle::find(store)?.close(|| handle::withdraw(store))
    })
}

/// Sets the one log callback of the process, or unsets it with NULL. After the call has returned,
/// the earlier callback does not run any more, so its `user` may be freed. Without one, lines go to
/// stderr by the environment variable KVPATH_LOG = error | warn | info | debug (default warn).
///
/// Ownership: `user` stays the caller's. Threads: any, but not the callback itself.
/// Blocking: until a running callback has returned: hold no lock that it takes.
/// Errors: KVPATH_INVALID_PARAM (level not 1 … 4, or called from the callback), KVPATH_OS_ERROR (no
/// thread).
///
/// # Safety
/// `callback` may be called from another thread with `user` until it is unset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_set_log_callback(
    callback: kvpath_log_fn,
    level: i32,
    user: *mut c_void,
) -> kvpath_status_t {
    guard(|| {
        let Some(callback) = callback else {
            return log::set_callback(None);
        };
        let level = log::Level::from_code(level)
            .ok_or_else(|| Error::invalid(format!("log level {level} is not 1, 2, 3 or 4")))?;
        let user = user as usize;
        log::set_callback(Some(log::Callback {
            level,
            call: Box::new(move |level: log::Level, id: &CStr, text: &CStr| {
                // SAFETY: the contract of kvpath_set_log_callback; the strings live during the
                // call.
                unsafe { callback(level.code(), id.as_ptr(), text.as_ptr(), user as *mut c_void) };
            }),
        }))
    })
}

/// Memory for tensors: aligned to 2 MiB and on huge pages where that is possible and `bytes` is
/// large, otherwise aligned to 4096. NULL when there is none, or `bytes` is 0. Any memory works
/// with kvpath; this is the fastest.
///
/// Ownership: the caller's, to be given back with kvpath_free() only.
/// Threads: any. Blocking: never on I/O. Errors: NULL, with kvpath_last_error().
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_alloc(bytes: usize) -> *mut c_void {
    let mut memory = std::ptr::null_mut();
    let status = guard(|| {
        memory = aligned::allocate(bytes)?.cast::<c_void>();
        Ok(())
    });
    if status == 0 { memory } else { std::ptr::null_mut() }
}

/// Gives back memory of kvpath_alloc(). NULL is fine. Anything else that is not from
/// kvpath_alloc(), or was given back already, is ignored and noted in kvpath_last_error().
///
/// Ownership: ends. The memory must not belong to an unfinished task.
/// Threads: any. Blocking: never on I/O. Errors: none returned.
///
/// # Safety
/// Nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_free(memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // The status has nowhere to go; the text is in kvpath_last_error().
    guard(|| {
        // SAFETY: this function's contract; unknown addresses are refused by the table inside.
        unsafe { aligned::release(memory.cast::<u8>()) }
    });
}

/// The version of the library, for example "0.1.0".
///
/// Ownership: static. Threads: any. Blocking: never. Errors: none; works after fork too.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version of the C ABI that the library has; compare with KVPATH_ABI_VERSION of the header you
/// compiled with.
///
/// Ownership: none. Threads: any. Blocking: never. Errors: none; works after fork too.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_abi_version() -> u32 {
    KVPATH_ABI_VERSION
}
