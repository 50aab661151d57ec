//! What the core was configured with: the configuration, brought to the form in which decisions
//! need it.

use std::time::Duration;

use crate::config::{BufferMode, CommitPolicy, CommitSync, Config, FailureScope, Shape};

/// What the core was configured with. Never changes.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Sizes; `None`: lookups only.
    pub shape: Option<Shape>,
    /// Limit of a task, and of commits and removals.
    pub task_limit: Option<Duration>,
    /// Limit of one attempt of a transfer (R28).
    pub attempt_limit: Option<Duration>,
    /// Limit of one attempt of a commit or removal.
    pub metadata_limit: Option<Duration>,
    /// Limit of a lookup call, and of one attempt of it (R63).
    pub lookup_limit: Option<(Duration, Duration)>,
    /// See [`CommitPolicy`].
    pub commit_policy: CommitPolicy,
    /// See [`CommitSync`].
    pub commit_sync: CommitSync,
    /// See [`FailureScope`].
    pub scope: FailureScope,
    /// R24.
    pub verify_mount: bool,
    /// Every path must show one storage, whenever it is first seen (R8).
    pub same_storage: bool,
    /// R30; `false`: R32.
    pub isolated: bool,
    /// A lookup that finds a block makes it hot; otherwise a load does (R64).
    pub hot_on_lookup: bool,
    /// A hit needs the block's size (R62).
    pub lookup_size: bool,
    /// Shards accepted at a time.
    pub max_queued_shards: usize,
    /// Lookups in flight on one backend.
    pub lookup_concurrency: usize,
    /// Mode of directories.
    pub dir_mode: u32,
    /// Mode of files, less the umask.
    pub file_mode: u32,
    /// Age at which unfinished blocks and foreign temporaries are dropped (R46).
    pub temp_ttl: Duration,
    /// Files that are no whole blocks are moved aside (R23). Only who knows the size does.
    pub quarantine: bool,
    /// Dumps are refused where less is free, percent; 0: off (R85).
    pub reserve_free_percent: f64,
    /// W of R20.
    pub window: usize,
    /// Failures that exclude (R21).
    pub threshold: usize,
}

impl Rules {
    /// The rules of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Rules {
        let n = u64::try_from(config.backends.len()).unwrap_or(1);
        let whole = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        let part = |ms: u64| (ms > 0).then(|| Duration::from_millis((ms / n).max(1)));
        let timed = config.metadata_time_limits;
        let lookup = whole(config.lookup_timeout_ms).zip(part(config.lookup_timeout_ms));
        Rules {
            shape: config.shape,
            task_limit: whole(config.timeout_ms),
            attempt_limit: part(config.timeout_ms),
            metadata_limit: part(config.timeout_ms).filter(|_| timed),
            lookup_limit: lookup.filter(|_| timed),
            commit_policy: config.commit_policy,
            commit_sync: config.commit_sync,
            scope: config.failure_scope,
            verify_mount: config.verify_mount,
            same_storage: config.require_same_storage,
            isolated: config.buffer_mode == BufferMode::Isolated,
            hot_on_lookup: !config.transfers,
            lookup_size: config.transfers || config.lookup_checks_size,
            max_queued_shards: config.max_queued_shards,
            lookup_concurrency: config.lookup_concurrency,
            dir_mode: config.dir_mode,
            file_mode: config.file_mode,
            temp_ttl: Duration::from_secs(config.temp_ttl_s),
            quarantine: config.quarantine && config.transfers,
            reserve_free_percent: config.collection.reserve_free_percent,
            window: config.health.window,
            threshold: config.health.threshold,
        }
    }
}
