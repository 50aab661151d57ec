//! Status numbers, names and texts of the C ABI (R71).

use std::ffi::c_char;

use crate::error::{ALL_STATUSES, Status};

/// A status code. 0 is success, everything else is negative. Numbers never change.
#[expect(non_camel_case_types, reason = "the name that C sees")]
pub type kvpath_status_t = i32;

/// Success.
pub const KVPATH_OK: i32 = 0;
/// An error that fits no other code.
pub const KVPATH_ERROR: i32 = -1;
/// An argument or the configuration is wrong.
pub const KVPATH_INVALID_PARAM: i32 = -50000;
/// Memory could not be had.
pub const KVPATH_OUT_OF_MEMORY: i32 = -50001;
/// The operating system refused; the text names the operation and errno.
pub const KVPATH_OS_ERROR: i32 = -50002;
/// The key exists already. Never given by kvpath itself; kept for the pipeline.
pub const KVPATH_DUPLICATE_KEY: i32 = -50003;
/// Not now: not finished yet, or a table is full. Try again.
pub const KVPATH_RETRY: i32 = -50004;
/// No such block, or no such task handle (it was consumed, forgotten, or never given).
pub const KVPATH_NOT_FOUND: i32 = -50005;
/// Not possible in this role, on this system, or in this version.
pub const KVPATH_UNSUPPORTED: i32 = -50008;
/// The storage is full.
pub const KVPATH_NO_SPACE: i32 = -50009;
/// A time limit passed.
pub const KVPATH_TIMEOUT: i32 = -50010;
/// No backend is available.
pub const KVPATH_STORE_UNHEALTHY: i32 = -50011;
/// Detail of KVPATH_NOT_FOUND: a file is there, but it is not a whole block.
pub const KVPATH_CORRUPT: i32 = -51000;
/// The calling process is a fork of the one that opened stores; it may only exit or exec.
pub const KVPATH_FORKED: i32 = -51001;
/// The store is closed or closing.
pub const KVPATH_CLOSED: i32 = -51002;
/// The caller cancelled the task before this shard was started.
pub const KVPATH_CANCELLED: i32 = -51003;

const fn name_and_text(status: Status) -> (&'static [u8], &'static [u8]) {
    match status {
        Status::Ok => (b"KVPATH_OK\0", b"success\0"),
        Status::Error => (b"KVPATH_ERROR\0", b"error\0"),
        Status::InvalidParam => {
            (b"KVPATH_INVALID_PARAM\0", b"an argument or the configuration is wrong\0")
        }
        Status::OutOfMemory => (b"KVPATH_OUT_OF_MEMORY\0", b"out of memory\0"),
        Status::OsError => (b"KVPATH_OS_ERROR\0", b"the operating system refused\0"),
        Status::DuplicateKey => (b"KVPATH_DUPLICATE_KEY\0", b"the key exists already\0"),
        Status::Retry => (b"KVPATH_RETRY\0", b"not now, try again\0"),
        Status::NotFound => (b"KVPATH_NOT_FOUND\0", b"no such block or task\0"),
        Status::Unsupported => (b"KVPATH_UNSUPPORTED\0", b"not supported here\0"),
        Status::NoSpace => (b"KVPATH_NO_SPACE\0", b"the storage is full\0"),
        Status::Timeout => (b"KVPATH_TIMEOUT\0", b"a time limit passed\0"),
        Status::StoreUnhealthy => (b"KVPATH_STORE_UNHEALTHY\0", b"no backend is available\0"),
        Status::Corrupt => (b"KVPATH_CORRUPT\0", b"a block's file is not what was committed\0"),
        Status::Forked => (b"KVPATH_FORKED\0", b"kvpath cannot be used after fork\0"),
        Status::Closed => (b"KVPATH_CLOSED\0", b"the store is closed\0"),
        Status::Cancelled => (b"KVPATH_CANCELLED\0", b"the task was cancelled\0"),
    }
}

fn find(status: i32) -> Option<Status> {
    ALL_STATUSES.into_iter().find(|known| known.code() == status)
}

/// The name of a status, as in this header, for example "KVPATH_NOT_FOUND"; "KVPATH_UNKNOWN" for a
/// number that is none.
///
/// Ownership: the string is static. Threads: any. Blocking: never. Errors: none; works after fork
/// too.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_status_name(status: kvpath_status_t) -> *const c_char {
    find(status).map_or(c"KVPATH_UNKNOWN".as_ptr(), |known| name_and_text(known).0.as_ptr().cast())
}

/// A short text for a status, for example "no such block or task". The whole story of the last
/// error of a thread is in kvpath_last_error().
///
/// Ownership: the string is static. Threads: any. Blocking: never. Errors: none; works after fork
/// too.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_status_text(status: kvpath_status_t) -> *const c_char {
    find(status).map_or(c"unknown status".as_ptr(), |known| name_and_text(known).1.as_ptr().cast())
}
