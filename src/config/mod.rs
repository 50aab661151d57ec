//! The configuration: one JSON object, checked whole before anything is touched (R1–R3).
//!
//! This file has the struct that the store reads and the order in which keys are taken; `reader`
//! takes one key, the others have the rules of keys that belong together. Limits and defaults have
//! names in `limits`.

mod collection;
mod health;
mod json;
pub mod limits;
mod paths;
mod reader;
mod role;
#[cfg(test)]
mod tests;
mod words;

use std::time::Duration;

use crate::error::Error;
pub use collection::Collection;
use limits::{
    BUFFER_MB, BUFFER_MB_MAX, COMMIT_CONCURRENCY, CONCURRENCY_MAX, DIR_DIGITS, DIR_DIGITS_MAX,
    DIR_MODE, FILE_MODE, LOOKUP_CONCURRENCY, OPEN_CONCURRENCY, QUEUED_SHARDS, QUEUED_SHARDS_MAX,
    TEMP_TTL_S, TIME_MS_MAX, TIME_S_MAX, TIMEOUT_MS, TRANS_CONCURRENCY,
};
use reader::Reader;

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

/// `commit_sync` (R43), with `auto` resolved as far as `io_direct` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitSync {
    /// No sync.
    None,
    /// `auto`, direct: `None`, and `Data` while a path runs buffered in spite of it (R33).
    AsPathsRun,
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
    /// See [`Collection`].
    pub collection: Collection,
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
    /// Reads and checks a whole configuration. Touches nothing but the environment variable of R57.
    ///
    /// # Errors
    /// `InvalidParam` with the key, its value and the rule.
    pub fn parse(text: &str) -> Result<Config, Error> {
        let mut read = Reader::new(text)?;
        let strict = read.flag("strict", false)?;
        let warnings = read.unknown(strict)?;
        let backends = paths::read(&mut read)?;
        let role::Role { device_id, shape, transfers } = role::read(&mut read)?;
        let io_direct = read.flag("io_direct", true)?;
        let timeout_ms = read.whole("timeout_ms", 0..=TIME_MS_MAX, TIMEOUT_MS)?;
        let mut config = Config {
            backends,
            device_id,
            shape,
            transfers,
            engine: words::engine(&mut read)?,
            io_direct,
            timeout_ms,
            lookup_timeout_ms: lookup_timeout(&mut read, timeout_ms)?,
            open_timeout_ms: read.whole("open_timeout_ms", 0..=TIME_MS_MAX, 0)?,
            data_dir_shard_bytes: read.whole(
                "data_dir_shard_bytes",
                0..=DIR_DIGITS_MAX,
                DIR_DIGITS,
            )?,
            trans_concurrency: concurrency(&mut read, "data_trans", TRANS_CONCURRENCY)?,
            lookup_concurrency: concurrency(&mut read, "lookup", LOOKUP_CONCURRENCY)?,
            open_concurrency: concurrency(&mut read, "open", OPEN_CONCURRENCY)?,
            commit_concurrency: concurrency(&mut read, "commit", COMMIT_CONCURRENCY)?,
            max_queued_shards: read.whole(
                "max_queued_shards",
                1..=QUEUED_SHARDS_MAX,
                QUEUED_SHARDS,
            )?,
            buffer_mb_max: read.whole("buffer_mb_max", 1..=BUFFER_MB_MAX, BUFFER_MB)?,
            cpu_affinity_cores: read.cores("cpu_affinity_cores")?,
            health_cores: read.cores("health_cores")?,
            health: health::read(&mut read)?,
            startup_policy: words::startup_policy(&mut read)?,
            require_same_storage: read.flag("require_same_storage", false)?,
            create_storage: read.flag("create_storage", true)?,
            commit_policy: words::commit_policy(&mut read)?,
            commit_sync: words::commit_sync(&mut read, io_direct)?,
            buffer_mode: words::buffer_mode(&mut read)?,
            failure_scope: words::failure_scope(&mut read)?,
            verify_mount: read.flag("verify_mount", true)?,
            metadata_time_limits: read.flag("metadata_time_limits", true)?,
            io_direct_fallback: read.flag("io_direct_fallback", false)?,
            quarantine: read.flag("quarantine", false)?,
            strict,
            temp_ttl_s: read.whole("temp_ttl_s", 1..=TIME_S_MAX, TEMP_TTL_S)?,
            close_timeout_ms: read.whole("close_timeout_ms", 0..=TIME_MS_MAX, 0)?,
            lookup_checks_size: read.flag("lookup_checks_size", false)?,
            collection: collection::read(&mut read, shape)?,
            dir_mode: read.mode("dir_mode", 0o700, 0o7777, DIR_MODE)?,
            file_mode: read.mode("file_mode", 0o600, 0o777, FILE_MODE)?,
            vllm_affinity: std::env::var_os("VLLM_CPU_AFFINITY").is_some_and(|on| on == "1"),
            effective: serde_json::Value::Null,
            warnings,
        };
        config.effective = read.into_effective();
        Ok(config)
    }
}

fn lookup_timeout(read: &mut Reader, timeout_ms: u64) -> Result<u64, Error> {
    let given = read.optional("lookup_timeout_ms", &(0..=TIME_MS_MAX))?;
    let origin = if given.is_some() { "config" } else { "derived from timeout_ms" };
    let limit = given.unwrap_or(timeout_ms);
    read.note("lookup_timeout_ms", limit, origin);
    Ok(limit)
}

fn concurrency(read: &mut Reader, of: &str, or: usize) -> Result<usize, Error> {
    read.whole(&format!("posix_{of}_concurrency"), 1..=CONCURRENCY_MAX, or)
}
