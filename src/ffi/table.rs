//! The same functions as one table, for users who `dlopen` the library and want to look up one
//! symbol only.

use std::ffi::{c_char, c_void};

use super::block::{
    kvpath_commit, kvpath_lookup, kvpath_lookup_last, kvpath_lookup_prefix, kvpath_remove,
};
use super::guard::{kvpath_last_detail, kvpath_last_error};
use super::observe::{
    kvpath_backend_set, kvpath_check_health, kvpath_health, kvpath_health_json, kvpath_metrics,
    kvpath_stats, kvpath_stats_json,
};
use super::status::kvpath_status_t;
use super::status::{kvpath_status_name, kvpath_status_text};
use super::store::KVPATH_ABI_VERSION;
use super::store::{
    kvpath_abi_version, kvpath_alloc, kvpath_close, kvpath_free, kvpath_open,
    kvpath_set_log_callback, kvpath_version,
};
use super::task::{
    kvpath_cancel, kvpath_check, kvpath_dump, kvpath_event_fd, kvpath_finished, kvpath_forget,
    kvpath_load, kvpath_wait, kvpath_wait_results,
};
use super::types::{
    kvpath_backend_health_t, kvpath_block_id_t, kvpath_log_fn, kvpath_shard_t, kvpath_stats_t,
    kvpath_store_t, kvpath_task_t,
};

/// Every function of this header by name without the prefix. New functions are added at the end;
/// `size` tells how far the table of the loaded library goes.
#[repr(C)]
pub struct kvpath_api_t {
    /// Bytes of the table that the loaded library has.
    pub size: u32,
    /// kvpath_abi_version() of the loaded library.
    pub table_version: u32,
    /// kvpath_open()
    pub open: unsafe extern "C" fn(
        config_json: *const c_char,
        store: *mut kvpath_store_t,
    ) -> kvpath_status_t,
    /// kvpath_close()
    pub close: extern "C" fn(store: kvpath_store_t) -> kvpath_status_t,
    /// kvpath_set_log_callback()
    pub set_log_callback: unsafe extern "C" fn(
        callback: kvpath_log_fn,
        level: i32,
        user: *mut c_void,
    ) -> kvpath_status_t,
    /// kvpath_alloc()
    pub alloc: extern "C" fn(bytes: usize) -> *mut c_void,
    /// kvpath_free()
    pub free: unsafe extern "C" fn(memory: *mut c_void),
    /// kvpath_version()
    pub version: extern "C" fn() -> *const c_char,
    /// kvpath_abi_version()
    pub abi_version: extern "C" fn() -> u32,
    /// kvpath_status_name()
    pub status_name: extern "C" fn(status: kvpath_status_t) -> *const c_char,
    /// kvpath_status_text()
    pub status_text: extern "C" fn(status: kvpath_status_t) -> *const c_char,
    /// kvpath_last_error()
    pub last_error: extern "C" fn() -> *const c_char,
    /// kvpath_last_detail()
    pub last_detail: extern "C" fn() -> kvpath_status_t,
    /// kvpath_load()
    pub load: unsafe extern "C" fn(
        store: kvpath_store_t,
        shards: *const kvpath_shard_t,
        count: usize,
        task: *mut kvpath_task_t,
    ) -> kvpath_status_t,
    /// kvpath_dump()
    pub dump: unsafe extern "C" fn(
        store: kvpath_store_t,
        shards: *const kvpath_shard_t,
        count: usize,
        task: *mut kvpath_task_t,
    ) -> kvpath_status_t,
    /// kvpath_check()
    pub check: unsafe extern "C" fn(
        store: kvpath_store_t,
        task: kvpath_task_t,
        finished: *mut u8,
    ) -> kvpath_status_t,
    /// kvpath_wait()
    pub wait:
        extern "C" fn(store: kvpath_store_t, task: kvpath_task_t, limit_ms: u64) -> kvpath_status_t,
    /// kvpath_wait_results()
    pub wait_results: unsafe extern "C" fn(
        store: kvpath_store_t,
        task: kvpath_task_t,
        limit_ms: u64,
        statuses: *mut kvpath_status_t,
        count: usize,
    ) -> kvpath_status_t,
    /// kvpath_cancel()
    pub cancel: extern "C" fn(store: kvpath_store_t, task: kvpath_task_t) -> kvpath_status_t,
    /// kvpath_forget()
    pub forget: extern "C" fn(store: kvpath_store_t, task: kvpath_task_t) -> kvpath_status_t,
    /// kvpath_finished()
    pub finished: unsafe extern "C" fn(
        store: kvpath_store_t,
        tasks: *mut kvpath_task_t,
        max: usize,
        count: *mut usize,
    ) -> kvpath_status_t,
    /// kvpath_event_fd()
    pub event_fd: unsafe extern "C" fn(store: kvpath_store_t, fd: *mut i32) -> kvpath_status_t,
    /// kvpath_lookup()
    pub lookup: unsafe extern "C" fn(
        store: kvpath_store_t,
        ids: *const kvpath_block_id_t,
        count: usize,
        found: *mut u8,
    ) -> kvpath_status_t,
    /// kvpath_lookup_prefix()
    pub lookup_prefix: unsafe extern "C" fn(
        store: kvpath_store_t,
        ids: *const kvpath_block_id_t,
        count: usize,
        index: *mut i64,
    ) -> kvpath_status_t,
    /// kvpath_lookup_last()
    pub lookup_last: unsafe extern "C" fn(
        store: kvpath_store_t,
        ids: *const kvpath_block_id_t,
        count: usize,
        index: *mut i64,
    ) -> kvpath_status_t,
    /// kvpath_commit()
    pub commit: unsafe extern "C" fn(
        store: kvpath_store_t,
        id: *const kvpath_block_id_t,
        success: u8,
    ) -> kvpath_status_t,
    /// kvpath_remove()
    pub remove: unsafe extern "C" fn(
        store: kvpath_store_t,
        ids: *const kvpath_block_id_t,
        count: usize,
    ) -> kvpath_status_t,
    /// kvpath_check_health()
    pub check_health: extern "C" fn(store: kvpath_store_t) -> kvpath_status_t,
    /// kvpath_health()
    pub health: unsafe extern "C" fn(
        store: kvpath_store_t,
        backends: *mut kvpath_backend_health_t,
        capacity: usize,
        count: *mut usize,
    ) -> kvpath_status_t,
    /// kvpath_health_json()
    pub health_json: unsafe extern "C" fn(
        store: kvpath_store_t,
        buffer: *mut c_char,
        capacity: usize,
        length: *mut usize,
    ) -> kvpath_status_t,
    /// kvpath_backend_set()
    pub backend_set: unsafe extern "C" fn(
        store: kvpath_store_t,
        path: *const c_char,
        setting: i32,
    ) -> kvpath_status_t,
    /// kvpath_stats()
    pub stats:
        unsafe extern "C" fn(store: kvpath_store_t, stats: *mut kvpath_stats_t) -> kvpath_status_t,
    /// kvpath_stats_json()
    pub stats_json: unsafe extern "C" fn(
        store: kvpath_store_t,
        buffer: *mut c_char,
        capacity: usize,
        length: *mut usize,
    ) -> kvpath_status_t,
    /// kvpath_metrics()
    pub metrics: unsafe extern "C" fn(
        store: kvpath_store_t,
        buffer: *mut c_char,
        capacity: usize,
        length: *mut usize,
    ) -> kvpath_status_t,
}

#[expect(clippy::cast_possible_truncation, reason = "a table of a few hundred bytes")]
const TABLE_BYTES: u32 = size_of::<kvpath_api_t>() as u32;

static TABLE: kvpath_api_t = kvpath_api_t {
    size: TABLE_BYTES,
    table_version: KVPATH_ABI_VERSION,
    open: kvpath_open,
    close: kvpath_close,
    set_log_callback: kvpath_set_log_callback,
    alloc: kvpath_alloc,
    free: kvpath_free,
    version: kvpath_version,
    abi_version: kvpath_abi_version,
    status_name: kvpath_status_name,
    status_text: kvpath_status_text,
    last_error: kvpath_last_error,
    last_detail: kvpath_last_detail,
    load: kvpath_load,
    dump: kvpath_dump,
    check: kvpath_check,
    wait: kvpath_wait,
    wait_results: kvpath_wait_results,
    cancel: kvpath_cancel,
    forget: kvpath_forget,
    finished: kvpath_finished,
    event_fd: kvpath_event_fd,
    lookup: kvpath_lookup,
    lookup_prefix: kvpath_lookup_prefix,
    lookup_last: kvpath_lookup_last,
    commit: kvpath_commit,
    remove: kvpath_remove,
    check_health: kvpath_check_health,
    health: kvpath_health,
    health_json: kvpath_health_json,
    backend_set: kvpath_backend_set,
    stats: kvpath_stats,
    stats_json: kvpath_stats_json,
    metrics: kvpath_metrics,
};

/// The function table, for users who dlopen() the library: look up "kvpath_api" and call it with
/// the KVPATH_ABI_VERSION of the header you compiled with. NULL where the library is older than
/// that.
///
/// Ownership: the table is static. Threads: any. Blocking: never. Errors: NULL; works after fork
/// too.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_api(version: u32) -> *const kvpath_api_t {
    if version == 0 || version > KVPATH_ABI_VERSION {
        return std::ptr::null();
    }
    &raw const TABLE
}
