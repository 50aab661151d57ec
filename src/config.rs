//! The configuration: one JSON object, checked whole before anything is touched (R1–R3).

use std::time::Duration;

/// `posix_io_engine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineChoice {
    /// The best that this system gives.
    Auto,
    /// Blocking calls on a pool of threads.
    Psync,
    /// Linux AIO.
    Aio,
    /// `io_uring`.
    IoUring,
}

/// `startup_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartupPolicy {
    /// Every backend must pass (R10).
    All,
    /// One is enough (R13).
    Any,
}

/// `commit_policy` (R41).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitPolicy {
    /// When every shard was written.
    AllShards,
    /// When the shard with the highest index was written and none is in flight or failed.
    LastShard,
    /// Only by `kvpath_commit`.
    Explicit,
}

/// `commit_sync` (R43), with `auto` already resolved by `io_direct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitSync {
    /// No sync.
    None,
    /// `fdatasync` before the rename.
    Data,
    /// `Data`, and the directory after the rename.
    Full,
}

/// `buffer_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferMode {
    /// I/O runs on memory that the store owns (R30).
    Isolated,
    /// I/O runs on the caller's memory (R32).
    Borrowed,
}

/// `failure_scope` (R22).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureScope {
    /// Only errors that say something about the path exclude it.
    Path,
    /// Every error but not-found does.
    Any,
}

/// Sizes of a block; present where transfers are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of one tensor.
    pub tensor_bytes: u64,
    /// Bytes of one shard: a multiple of `tensor_bytes`.
    pub shard_bytes: u64,
    /// Bytes of one block: a multiple of `shard_bytes`.
    pub block_bytes: u64,
}

impl Shape {
    /// Shards in a block.
    #[must_use]
    pub fn shards(&self) -> u64 {
        self.block_bytes / self.shard_bytes
    }

    /// Tensors in a shard.
    #[must_use]
    pub fn tensors(&self) -> u64 {
        self.shard_bytes / self.tensor_bytes
    }
}

/// `store_health`.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthConfig {
    /// The outer breaker of R60.
    pub enabled: bool,
    /// Between the beginnings of two probe rounds.
    pub interval: Duration,
    /// Limit of one probe; less than `interval`.
    pub timeout: Duration,
    /// W of R20.
    pub window: usize,
    /// Failures in a window that exclude (R21).
    pub threshold: usize,
}

/// Everything `kvpath_open` was told, valid and normalised.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Roots: absolute, normalised, one trailing `/`, no duplicates (R3). 1 to 64.
    pub backends: Vec<String>,
    /// -1: lookups only.
    pub device_id: i64,
    /// `None` in the lookup-only role where sizes were not given.
    pub shape: Option<Shape>,
    /// Transfers are on.
    pub transfers: bool,
    /// The engine asked for.
    pub engine: EngineChoice,
    /// `O_DIRECT`.
    pub io_direct: bool,
    /// 0 = no limit.
    pub timeout_ms: u64,
    /// 0 = no limit.
    pub lookup_timeout_ms: u64,
    /// 0 = no limit.
    pub open_timeout_ms: u64,
    /// Hex digits of a block's directory, 0 to 5.
    pub data_dir_shard_bytes: usize,
    /// Most transfers in flight on one backend.
    pub trans_concurrency: usize,
    /// Most lookups in flight on one backend.
    pub lookup_concurrency: usize,
    /// Openers of the `aio` engine.
    pub open_concurrency: usize,
    /// Committers of the `aio` engine.
    pub commit_concurrency: usize,
    /// Shards queued or in flight before load and dump give RETRY.
    pub max_queued_shards: usize,
    /// Bound of store-owned buffers, MiB, all backends together.
    pub buffer_mb_max: u64,
    /// Cores of the store's threads; empty: not pinned.
    pub cpu_affinity_cores: Vec<usize>,
    /// Cores of the `ucm_health_*` threads; empty: see R57.
    pub health_cores: Vec<usize>,
    /// Path health, recovery and the outer breaker.
    pub health: HealthConfig,
    /// See [`StartupPolicy`].
    pub startup_policy: StartupPolicy,
    /// Different storage UUIDs fail open (R8).
    pub require_same_storage: bool,
    /// A storage without a marker may be made (R8).
    pub create_storage: bool,
    /// See [`CommitPolicy`].
    pub commit_policy: CommitPolicy,
    /// See [`CommitSync`].
    pub commit_sync: CommitSync,
    /// See [`BufferMode`].
    pub buffer_mode: BufferMode,
    /// See [`FailureScope`].
    pub failure_scope: FailureScope,
    /// R24.
    pub verify_mount: bool,
    /// Time limits of commit, remove and lookup (R28, R63).
    pub metadata_time_limits: bool,
    /// A file system that refuses `O_DIRECT` is used buffered (R33).
    pub io_direct_fallback: bool,
    /// Unusable files are moved aside (R23).
    pub quarantine: bool,
    /// An unknown key is an error (R2).
    pub strict: bool,
    /// Age of temporaries that no live writer owns (R46), seconds.
    pub temp_ttl_s: u64,
    /// 0 = for ever (R54).
    pub close_timeout_ms: u64,
    /// Lookups check the size in the lookup-only role too (R62).
    pub lookup_checks_size: bool,
    /// Mode of data directories, default 0o774 (R9).
    pub dir_mode: u32,
    /// Mode of block files, less the umask, default 0o644 (R9).
    pub file_mode: u32,
    /// The environment had `VLLM_CPU_AFFINITY=1` at open (R57).
    pub vllm_affinity: bool,
    /// The effective configuration with the origin of each value, for `stats` (R92):
    /// `{"timeout_ms": {"value": 30000, "origin": "default"}, …}`.
    pub effective: serde_json::Value,
    /// Unknown keys, each with its warning text (R2).
    pub warnings: Vec<String>,
}

impl Config {
    /// STUB.
    ///
    /// # Errors
    /// `InvalidParam` or `Unsupported`.
    pub fn parse(_text: &str) -> Result<Config, crate::error::Error> {
        Err(crate::error::Error::invalid("stub"))
    }
}
