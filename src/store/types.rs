//! What the store's public face takes and gives. Plain data.

use std::fmt;

use crate::engine::Segment;
use crate::error::Error;
pub use crate::health::state::{BackendState, Setting};

/// A block's name (R4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub [u8; 16]);

impl BlockId {
    /// Its name in lowercase hex digits. By table: a lookup makes a thousand of these, under a
    /// lock.
    #[must_use]
    pub fn hex(&self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        hex
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Load or dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// From the storage into the caller's memory.
    Load,
    /// From the caller's memory to the storage.
    Dump,
}

/// One shard of a task, checked against the shape.
#[derive(Debug, Clone)]
pub struct ShardRequest {
    /// Its block.
    pub block: BlockId,
    /// Its index in the block.
    pub index: u32,
    /// Its tensors.
    pub memory: Vec<Segment>,
}

/// How a task ended.
#[derive(Debug, Clone, Default)]
pub struct TaskResult {
    shards: usize,
    errors: Vec<(usize, Error)>,
}

impl TaskResult {
    /// The result of a task of `shards` shards with these errors by position.
    #[must_use]
    pub fn new(shards: usize, mut errors: Vec<(usize, Error)>) -> TaskResult {
        errors.sort_by_key(|(at, _)| *at);
        TaskResult { shards, errors }
    }

    /// Shards of the task.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The error of shard `at` of the call.
    #[must_use]
    pub fn error(&self, at: usize) -> Option<&Error> {
        let found = self.errors.binary_search_by_key(&at, |(index, _)| *index).ok()?;
        Some(&self.errors[found].1)
    }

    /// The first failing shard's error, in shard order (R26).
    ///
    /// # Errors
    /// That error.
    pub fn first_error(&self) -> Result<(), Error> {
        self.errors.first().map_or(Ok(()), |(_, error)| Err(error.clone()))
    }
}

/// The answer of `lookup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// One an id.
    pub found: Vec<bool>,
    /// Why some could not be asked.
    pub error: Option<Error>,
}

/// The answer of `lookup_prefix` and `lookup_last`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupIndex {
    /// The index, or -1.
    pub index: i64,
    /// Why some could not be asked.
    pub error: Option<Error>,
}

/// The health of one backend (fields: `kvpath_backend_health_t`).
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "described once, at kvpath_backend_health_t")]
pub struct BackendReport {
    pub path: String,
    pub state: BackendState,
    pub since_ms: u64,
    pub samples: u32,
    pub failures: u32,
    pub in_flight: u64,
    pub abandoned: u64,
    pub direct: bool,
    pub probe_threads: u32,
    pub probes: u64,
    pub probe_failures: u64,
    pub transitions: u64,
    pub last_errno: i32,
    pub last_error: String,
}
