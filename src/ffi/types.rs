//! What crosses the C ABI by value or by layout. `ctest/layout_test.c` asserts the same offsets on
//! the C side.

use std::ffi::{c_char, c_void};

/// An open store. A number, not a pointer: using it after kvpath_close() is an error, not a crash.
/// 0 is never a store.
#[expect(non_camel_case_types, reason = "the name that C sees")]
pub type kvpath_store_t = u64;

/// A task: one kvpath_load() or kvpath_dump() call. Handles of one store only grow, are never used
/// again, and are never 0.
#[expect(non_camel_case_types, reason = "the name that C sees")]
pub type kvpath_task_t = u64;

/// A block's name: 16 bytes, any value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct kvpath_block_id_t {
    /// The bytes; a block's file is named by them in lowercase hex.
    pub bytes: [u8; 16],
}

/// One shard of a task. This struct never grows.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct kvpath_shard_t {
    /// The block it belongs to.
    pub block: kvpath_block_id_t,
    /// Which shard of the block: 0 … block_size / shard_size - 1.
    pub index: u32,
    /// Entries of `addrs`: must be shard_size / tensor_size.
    pub addr_count: u32,
    /// One address a tensor, each of tensor_size bytes, any alignment. The array is read during the
    /// call only; the memory it points to belongs to the task until the task has finished.
    pub addrs: *const *mut c_void,
}

/// State of a backend: it takes part in routing.
pub const KVPATH_BACKEND_AVAILABLE: i32 = 0;
/// State of a backend: its window excluded it; probes will bring it back.
pub const KVPATH_BACKEND_EXCLUDED: i32 = 1;
/// State of a backend: an operator took it out with kvpath_backend_set().
pub const KVPATH_BACKEND_OUT: i32 = 2;

/// For kvpath_backend_set(): take the backend out of routing.
pub const KVPATH_BACKEND_SET_OUT: i32 = 0;
/// For kvpath_backend_set(): force it in, whatever its window says.
pub const KVPATH_BACKEND_SET_IN: i32 = 1;
/// For kvpath_backend_set(): let its window decide again.
pub const KVPATH_BACKEND_SET_AUTO: i32 = 2;

/// The health of one backend, as kvpath_health() gives it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct kvpath_backend_health_t {
    /// Bytes of this struct that the library knows; set by the caller in the first element to
    /// sizeof(kvpath_backend_health_t), which is also the stride of the array.
    pub size: u32,
    /// KVPATH_BACKEND_AVAILABLE, _EXCLUDED or _OUT.
    pub state: i32,
    /// The path, normalised, cut to fit, always terminated.
    pub path: [c_char; 256],
    /// Milliseconds since the last change of state.
    pub since_ms: u64,
    /// Outcomes in the window, and failures among them.
    pub samples: u32,
    /// See `samples`.
    pub failures: u32,
    /// Operations running now, those of the collector and its sweeps included.
    pub in_flight: u64,
    /// Operations that were given up and are still in the kernel.
    pub abandoned: u64,
    /// 1: O_DIRECT, 0: buffered. Blocks whose shards are no multiples of the alignment are written
    /// buffered and synced all the same.
    pub direct: u32,
    /// Probe threads that have not returned.
    pub probe_threads: u32,
    /// Probes run, and failures among them.
    pub probes: u64,
    /// See `probes`.
    pub probe_failures: u64,
    /// Changes of state so far.
    pub transitions: u64,
    /// errno of the last failure, or 0.
    pub last_errno: i32,
    /// Always 0.
    pub reserved: i32,
    /// The last failure in words, cut to fit, always terminated.
    pub last_error: [c_char; 256],
}

/// Counters of a store since it was opened.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct kvpath_stats_t {
    /// Set by the caller to sizeof(kvpath_stats_t); the library fills no more than that.
    pub size: u32,
    /// Threads of the store alive now.
    pub threads: u32,
    /// Tasks accepted and finished.
    pub tasks: u64,
    /// See `tasks`.
    pub tasks_finished: u64,
    /// Shards loaded whole, and their bytes.
    pub loaded_shards: u64,
    /// See `loaded_shards`.
    pub loaded_bytes: u64,
    /// Shards written, and their bytes.
    pub dumped_shards: u64,
    /// See `dumped_shards`.
    pub dumped_bytes: u64,
    /// Blocks that became visible through this store.
    pub committed_blocks: u64,
    /// Ids asked and found by lookups.
    pub lookups: u64,
    /// See `lookups`.
    pub lookup_hits: u64,
    /// Transfers that ended with "not found".
    pub load_misses: u64,
    /// Attempts after the first of their chain.
    pub retries: u64,
    /// Chains that succeeded on another backend than their first.
    pub failovers: u64,
    /// Attempts that passed their time limit.
    pub timeouts: u64,
    /// Results that came after their attempt was given up.
    pub late_results: u64,
    /// Files found that are not whole blocks.
    pub corrupt: u64,
    /// Blocks removed through this store.
    pub removed_blocks: u64,
    /// Temporaries of dead writers removed.
    pub swept_temporaries: u64,
    /// Unfinished blocks dropped by age.
    pub expired_blocks: u64,
    /// Generations closed because a create or write was still in the kernel.
    pub closed_generations: u64,
    /// Finished results dropped because nobody asked for them.
    pub dropped_results: u64,
    /// Shards accepted and not ended, those that run included: what max_queued_shards limits.
    pub queued_shards: u64,
    /// Operations running now, those of the collector and its sweeps included.
    pub in_flight: u64,
    /// Operations given up and still in the kernel.
    pub abandoned: u64,
    /// Blocks begun and not committed now.
    pub unfinished_blocks: u64,
    /// Blocks whose mtime was refreshed because they were hit, and hits for which that was left
    /// out: another owner's file, one that is gone, no path, or too many at a time.
    pub hotness_refreshed: u64,
    /// See `hotness_refreshed`.
    pub hotness_left_out: u64,
    /// Ids that lookups did not find.
    pub lookup_misses: u64,
    /// Blocks removed because there were too many (posix_capacity_gb).
    pub collected_blocks: u64,
    /// Passes that looked whether there are too many, and passes that swept temporaries and
    /// quarantine.
    pub collector_passes: u64,
    /// See `collector_passes`.
    pub sweep_passes: u64,
    /// Passes of either kind that ended with an error.
    pub failed_passes: u64,
    /// Files moved to quarantine, and files removed from it by age.
    pub quarantined_files: u64,
    /// See `quarantined_files`.
    pub expired_quarantine: u64,
    /// Blocks of the whole storage, as the collector last counted or estimated them.
    pub estimated_blocks: u64,
    /// Names in data directories that are no blocks, in the last whole listing.
    pub foreign_names: u64,
}

/// Log levels: only errors.
pub const KVPATH_LOG_ERROR: i32 = 1;
/// Log levels: what an operator should look at.
pub const KVPATH_LOG_WARN: i32 = 2;
/// Log levels: changes of state.
pub const KVPATH_LOG_INFO: i32 = 3;
/// Log levels: for the developers of kvpath.
pub const KVPATH_LOG_DEBUG: i32 = 4;

/// Receives log messages: a level, a stable message id (for example "KV1001"), a text, and `user`
/// as it was given. Runs on a library thread of its own, never under a lock of kvpath; may not call
/// kvpath. The strings are valid during the call only.
#[expect(non_camel_case_types, reason = "the name that C sees")]
pub type kvpath_log_fn = Option<
    unsafe extern "C" fn(level: i32, id: *const c_char, text: *const c_char, user: *mut c_void),
>;
