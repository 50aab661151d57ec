//! Floor 3: what a block store means. STUB: the public face that `ffi` calls.

use std::sync::Arc;

use crate::config::{Config, Shape};
use crate::engine::Segment;
use crate::error::Error;
use crate::stats::Snapshot;

/// A block's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub [u8; 16]);

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
    /// Shards of the task.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The error of shard `at` of the call.
    #[must_use]
    pub fn error(&self, at: usize) -> Option<&Error> {
        self.errors.iter().find(|(index, _)| *index == at).map(|(_, error)| error)
    }

    /// The first failing shard's error, in shard order.
    ///
    /// # Errors
    /// That error.
    pub fn first_error(&self) -> Result<(), Error> {
        match self.errors.iter().min_by_key(|(index, _)| *index) {
            Some((_, error)) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// The answer of `lookup`.
#[derive(Debug)]
pub struct Lookup {
    /// One an id.
    pub found: Vec<bool>,
    /// Why some could not be asked.
    pub error: Option<Error>,
}

/// The answer of `lookup_prefix` and `lookup_last`.
#[derive(Debug)]
pub struct LookupIndex {
    /// The index, or -1.
    pub index: i64,
    /// Why some could not be asked.
    pub error: Option<Error>,
}

/// State of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendState {
    /// Takes part in routing.
    Available,
    /// Excluded by its window.
    Excluded,
    /// Taken out by an operator.
    Out,
}

impl BackendState {
    /// The number that crosses the C ABI.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            BackendState::Available => 0,
            BackendState::Excluded => 1,
            BackendState::Out => 2,
        }
    }
}

/// What an operator wants of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Out of routing.
    Out,
    /// In, whatever the window says.
    In,
    /// The window decides.
    Auto,
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

/// An open store.
pub struct Store {}

#[expect(missing_docs, clippy::missing_errors_doc, reason = "stub")]
impl Store {
    pub fn open(_config: Config) -> Result<Arc<Store>, Error> {
        Err(Error::invalid("stub"))
    }
    pub fn close(&self) -> Result<(), Error> {
        todo!()
    }
    pub fn transfer_shape(&self) -> Result<Shape, Error> {
        todo!()
    }
    pub fn submit(&self, _kind: TaskKind, _shards: Vec<ShardRequest>) -> Result<u64, Error> {
        todo!()
    }
    pub fn task_shards(&self, _task: u64) -> Result<usize, Error> {
        todo!()
    }
    pub fn check(&self, _task: u64) -> Result<bool, Error> {
        todo!()
    }
    pub fn wait(&self, _task: u64, _limit_ms: u64) -> Result<TaskResult, Error> {
        todo!()
    }
    pub fn cancel(&self, _task: u64) -> Result<(), Error> {
        todo!()
    }
    pub fn forget(&self, _task: u64) -> Result<(), Error> {
        todo!()
    }
    pub fn finished(&self, _max: usize) -> Result<Vec<u64>, Error> {
        todo!()
    }
    pub fn event_fd(&self) -> Result<i32, Error> {
        todo!()
    }
    pub fn lookup(&self, _ids: &[BlockId]) -> Result<Lookup, Error> {
        todo!()
    }
    pub fn lookup_prefix(&self, _ids: &[BlockId]) -> Result<LookupIndex, Error> {
        todo!()
    }
    pub fn lookup_last(&self, _ids: &[BlockId]) -> Result<LookupIndex, Error> {
        todo!()
    }
    pub fn commit(&self, _id: BlockId, _success: bool) -> Result<(), Error> {
        todo!()
    }
    pub fn remove(&self, _ids: &[BlockId]) -> Result<(), Error> {
        todo!()
    }
    pub fn check_health(&self) -> Result<(), Error> {
        todo!()
    }
    pub fn health(&self) -> Vec<BackendReport> {
        todo!()
    }
    pub fn health_json(&self) -> String {
        todo!()
    }
    pub fn backend_set(&self, _path: &str, _setting: Setting) -> Result<(), Error> {
        todo!()
    }
    pub fn stats(&self) -> Snapshot {
        todo!()
    }
    pub fn stats_json(&self) -> String {
        todo!()
    }
    pub fn metrics(&self) -> String {
        todo!()
    }
}
