//! Every limit and default of the configuration, by name.
//!
//! A limit that the specification does not give exists because something behind it counts in a
//! fixed width or reserves memory; its comment says what.

/// Bytes of the whole JSON text.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Characters of a key or a value that an error text shows.
pub const SHOWN_CHARS_MAX: usize = 80;
/// Unknown keys that are told one by one; the rest is told as a number.
pub const UNKNOWN_KEYS_TOLD_MAX: usize = 32;

/// Backends after normalisation (R3); one word holds the availability mask (R18).
pub const BACKENDS_MAX: usize = 64;
/// Bytes of a root: PATH_MAX less room for directory, block and temporary names.
pub const PATH_BYTES_MAX: usize = 4096 - 256;

/// Bytes of a tensor, shard or block: a file offset.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// Shards of a block: each unfinished block keeps a mark for each of its shards.
pub const SHARDS_MAX: u64 = 1 << 20;
/// Devices are numbered in 32 bits by the runtimes that number them.
pub const DEVICE_MAX: i64 = i32::MAX as i64;

/// Milliseconds of any time limit: as nanoseconds it fits into 63 bits (285 years).
pub const TIME_MS_MAX: u64 = 9_000_000_000_000;
/// Seconds of any time.
pub const TIME_S_MAX: u64 = TIME_MS_MAX / 1000;
/// The same for times that may have fractions.
pub const TIME_S_MAX_F: f64 = 9e9;
/// `timeout_ms`.
pub const TIMEOUT_MS: u64 = 30_000;

/// `data_dir_shard_bytes`: hex digits of a directory name.
pub const DIR_DIGITS_MAX: usize = 5;
/// Its default.
pub const DIR_DIGITS: usize = 3;

/// Any concurrency: the entries of the largest `io_uring`.
pub const CONCURRENCY_MAX: usize = 32_768;
/// `posix_data_trans_concurrency`.
pub const TRANS_CONCURRENCY: usize = 128;
/// `posix_lookup_concurrency`.
pub const LOOKUP_CONCURRENCY: usize = 16;
/// `posix_open_concurrency`.
pub const OPEN_CONCURRENCY: usize = 32;
/// `posix_commit_concurrency`.
pub const COMMIT_CONCURRENCY: usize = 4;
/// `max_queued_shards`.
pub const QUEUED_SHARDS: usize = 1 << 20;
/// Its limit: a queued shard costs some hundred bytes of memory.
pub const QUEUED_SHARDS_MAX: usize = 1 << 30;
/// `buffer_mb_max`, MiB.
pub const BUFFER_MB: u64 = 1024;
/// Its limit: as bytes it fits into 44 bits, less than an address.
pub const BUFFER_MB_MAX: u64 = 1 << 24;
/// Numbers of cores are below this, and a list has no more (CPU_SETSIZE).
pub const CORES: usize = libc::CPU_SETSIZE.cast_unsigned() as usize;

/// `store_health.health_check_interval_s`.
pub const HEALTH_INTERVAL_S: f64 = 10.0;
/// `store_health.health_check_timeout_s`.
pub const HEALTH_TIMEOUT_S: f64 = 3.0;
/// `store_health.health_window_size`.
pub const HEALTH_WINDOW: usize = 8;
/// Its limit: each backend keeps so many outcomes.
pub const HEALTH_WINDOW_MAX: usize = 65_536;
/// `store_health.failure_threshold`.
pub const HEALTH_THRESHOLD: usize = 2;

/// `temp_ttl_s`.
pub const TEMP_TTL_S: u64 = 3600;
/// `quarantine_ttl_s`: seven days.
pub const QUARANTINE_TTL_S: u64 = 7 * 24 * 3600;
/// `dir_mode` (R9).
pub const DIR_MODE: u32 = 0o774;
/// `file_mode` (R9).
pub const FILE_MODE: u32 = 0o644;

/// `posix_capacity_gb`: as bytes it fits into 63 bits.
pub const CAPACITY_GB_MAX: f64 = 8e9;
/// `posix_gc_concurrency`.
pub const GC_CONCURRENCY: usize = 16;
/// `posix_gc_check_interval_sec`.
pub const GC_INTERVAL_S: u64 = 30;
/// `posix_gc_max_recycle_count_per_shard`.
pub const GC_RECYCLE_COUNT: u64 = 50_000;
/// Its limit: so many names of one directory are held in memory.
pub const GC_RECYCLE_COUNT_MAX: u64 = 1 << 30;
/// `posix_gc_task_timeout_ms`.
pub const GC_TASK_TIMEOUT_MS: u64 = 300_000;
/// The least that is not 0.
pub const GC_TASK_TIMEOUT_MS_MIN: u64 = 1000;
/// The least stale threshold that is derived.
pub const GC_STALE_S_MIN: u64 = 60;

/// All keys, as texts name them.
pub const KEYS: &[&str] = &[
    "storage_backends",
    "device_id",
    "tensor_size",
    "shard_size",
    "block_size",
    "posix_io_engine",
    "io_direct",
    "timeout_ms",
    "lookup_timeout_ms",
    "open_timeout_ms",
    "data_dir_shard_bytes",
    "posix_data_trans_concurrency",
    "posix_lookup_concurrency",
    "posix_open_concurrency",
    "posix_commit_concurrency",
    "max_queued_shards",
    "buffer_mb_max",
    "cpu_affinity_cores",
    "health_cores",
    "store_health.enabled",
    "store_health.health_check_interval_s",
    "store_health.health_check_timeout_s",
    "store_health.health_window_size",
    "store_health.failure_threshold",
    "posix_gc_enable",
    "posix_capacity_gb",
    "posix_gc_recycle_percent",
    "posix_gc_precise_mode",
    "posix_gc_candidate_extra_percent",
    "posix_gc_concurrency",
    "posix_gc_check_interval_sec",
    "posix_gc_trigger_threshold_ratio",
    "posix_gc_max_recycle_count_per_shard",
    "posix_gc_shard_sample_ratio",
    "posix_gc_task_timeout_ms",
    "posix_gc_cross_instance_lock",
    "posix_gc_heartbeat_interval_sec",
    "posix_gc_stale_threshold_sec",
    "reserve_free_percent",
    "quarantine_ttl_s",
    "startup_policy",
    "require_same_storage",
    "create_storage",
    "commit_policy",
    "commit_sync",
    "buffer_mode",
    "failure_scope",
    "verify_mount",
    "metadata_time_limits",
    "io_direct_fallback",
    "quarantine",
    "strict",
    "temp_ttl_s",
    "close_timeout_ms",
    "lookup_checks_size",
    "dir_mode",
    "file_mode",
];
