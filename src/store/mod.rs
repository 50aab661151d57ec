//! Floor 3: what a block store means. [`Store`] is the face that `ffi` calls.
//!
//! Who shares what is listed in `shared.rs`; every table and decision is in `core.rs` and its
//! parts; pure modules are `routing`, `layout`, `chain`, `blocks`, `task`, `call`, `backend`, and
//! the core itself.

mod attempt;
mod backend;
mod blocks;
mod call;
mod chain;
mod chore;
mod close;
mod collector;
mod commit;
mod core;
mod counts;
mod detour;
mod dump;
mod effects;
mod excuse;
mod flow;
mod found;
mod generations;
mod hotness;
mod hung;
pub mod layout;
mod lookup;
mod metrics;
mod open;
mod outcome;
mod plan;
mod recovery;
mod report;
mod reserve;
pub mod routing;
mod rules;
mod shared;
#[cfg(test)]
mod sim;
mod space;
mod starved;
mod step;
mod submit;
mod supervisor;
mod suspects;
mod task;
mod timing;
mod transfer;
mod types;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{Config, Shape};
use crate::error::{Error, Status};
use crate::log::{self, Level};
use crate::stats::Snapshot;
use open::Threads;
use plan::Plan;
use shared::Shared;
use submit::{closed, unknown_task};
use task::Found;
pub use types::{
    BackendReport, BackendState, BlockId, Lookup, LookupIndex, Setting, ShardRequest, TaskKind,
    TaskResult,
};

/// An open store.
pub struct Store {
    config: Config,
    shared: Arc<Shared>,
    report: report::Facts,
    /// Taken by `close`.
    threads: Mutex<Option<Threads>>,
}

impl Store {
    /// Reads the configuration, checks every backend and opens the store (R2, R8, R10–R13).
    ///
    /// # Errors
    /// What failed, where and why; nothing is left behind (R12).
    pub fn open(config: &str) -> Result<Arc<Store>, Error> {
        open::open(config).map(Arc::new)
    }

    /// Closes the store (R54). `withdraw` takes it from those who look for it: when nothing is
    /// accepted or tried again, so that whoever finds it closed finds that too.
    ///
    /// # Errors
    /// `Closed` where another call closes it already; `Timeout` where threads still hang after
    /// close_timeout_ms.
    pub fn close(&self, withdraw: impl FnOnce()) -> Result<(), Error> {
        // Before anybody is told: a caller that wakes up for it may close the store once more.
        let Some(threads) = self.threads.lock().take() else {
            return Err(Error::new(Status::Closed, "the store is being closed already"));
        };
        self.shared.with(core::Core::begin_close);
        withdraw();
        threads.close(&self.shared, &self.config)
    }

    /// The sizes, where transfers are on.
    ///
    /// # Errors
    /// `Unsupported` in the lookup-only role.
    pub fn transfer_shape(&self) -> Result<Shape, Error> {
        let off = || {
            let text = "transfers are off: device_id is -1 (also where shard_size is absent)";
            Error::new(Status::Unsupported, text)
        };
        if self.config.transfers { self.config.shape.ok_or_else(off) } else { Err(off()) }
    }

    /// Whether a task of so many shards can ever be accepted: asked before any of it is copied.
    ///
    /// # Errors
    /// `InvalidParam`.
    pub fn fits_queue(&self, shards: usize) -> Result<(), Error> {
        submit::fits_queue(shards, self.config.max_queued_shards)
    }

    /// Accepts a task (R26).
    ///
    /// # Errors
    /// See `kvpath_load` and `kvpath_dump`.
    pub fn submit(&self, kind: TaskKind, shards: Vec<ShardRequest>) -> Result<u64, Error> {
        self.transfer_shape()?;
        self.check_breaker()?;
        let plan = Plan::new(kind, shards)?;
        self.shared.with(|core, now, fx| core.submit(kind, plan, now, fx))
    }

    /// The outer breaker refuses new work while it is open (R60).
    fn check_breaker(&self) -> Result<(), Error> {
        let open = self.report.breaker.get().is_some_and(|breaker| breaker.is_open());
        if open {
            let text = "the breaker is open: no backend was available (store_health.enabled)";
            return Err(Error::new(Status::StoreUnhealthy, text));
        }
        Ok(())
    }

    /// Shards of a task.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn task_shards(&self, task: u64) -> Result<usize, Error> {
        self.shared.read(|core| core.tasks.shards(task)).ok_or_else(|| unknown_task(task))
    }

    /// Whether a task has finished.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn check(&self, task: u64) -> Result<bool, Error> {
        match self.shared.read(|core| core.tasks.find(task)) {
            Found::Running(_) => Ok(false),
            Found::Finished => Ok(true),
            Found::Unknown => Err(unknown_task(task)),
        }
    }

    /// Waits for a task and consumes it.
    ///
    /// # Errors
    /// `Retry` where it has not finished in `limit_ms`; `NotFound`.
    pub fn wait(&self, task: u64, limit_ms: u64) -> Result<TaskResult, Error> {
        let found = self.shared.read(|core| match core.tasks.consume(task) {
            Some(result) => Ok(result),
            None => Err(core.tasks.find(task)),
        });
        let cell = match found {
            Ok(result) => {
                self.shared.consumed();
                return Ok(result);
            }
            Err(Found::Running(cell)) => cell,
            Err(Found::Finished | Found::Unknown) => return Err(unknown_task(task)),
        };
        let limit = (limit_ms > 0).then(|| Duration::from_millis(limit_ms));
        if !cell.wait(limit) {
            let text = format!("task {task} has not finished in {limit_ms} ms");
            return Err(Error::new(Status::Retry, text));
        }
        let result = self.shared.read(|core| core.tasks.consume(task));
        self.shared.consumed();
        result.ok_or_else(|| unknown_task(task))
    }

    /// Ends what has not started of a task.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn cancel(&self, task: u64) -> Result<(), Error> {
        self.shared.with(|core, now, fx| core.cancel(task, now, fx))
    }

    /// Drops a handle.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn forget(&self, task: u64) -> Result<(), Error> {
        let known = self.shared.read(|core| core.tasks.forget(task));
        self.shared.consumed();
        if known { Ok(()) } else { Err(unknown_task(task)) }
    }

    /// Lists tasks that have finished.
    ///
    /// # Errors
    /// None at present.
    pub fn finished(&self, max: usize) -> Result<Vec<u64>, Error> {
        Ok(self.shared.finished(max))
    }

    /// The descriptor to poll.
    ///
    /// # Errors
    /// `OsError`.
    pub fn event_fd(&self) -> Result<i32, Error> {
        self.shared.event_fd()
    }

    /// Asks for each block (R61).
    ///
    /// # Errors
    /// `Closed`. What could not be asked is in the answer.
    pub fn lookup(&self, ids: &[BlockId]) -> Result<Lookup, Error> {
        match self.check_breaker() {
            Ok(()) => lookup::each(&self.shared, ids),
            Err(error) => Ok(Lookup { found: vec![false; ids.len()], error: Some(error) }),
        }
    }

    /// The last index before the first absent block.
    ///
    /// # Errors
    /// As [`Store::lookup`].
    pub fn lookup_prefix(&self, ids: &[BlockId]) -> Result<LookupIndex, Error> {
        match self.check_breaker() {
            Ok(()) => lookup::prefix(&self.shared, ids),
            Err(error) => Ok(LookupIndex { index: -1, error: Some(error) }),
        }
    }

    /// The highest index that is present.
    ///
    /// # Errors
    /// As [`Store::lookup`].
    pub fn lookup_last(&self, ids: &[BlockId]) -> Result<LookupIndex, Error> {
        match self.check_breaker() {
            Ok(()) => lookup::last(&self.shared, ids),
            Err(error) => Ok(LookupIndex { index: -1, error: Some(error) }),
        }
    }

    /// Ends a block that was dumped.
    ///
    /// # Errors
    /// See `kvpath_commit`.
    pub fn commit(&self, id: BlockId, success: bool) -> Result<(), Error> {
        self.transfer_shape()?;
        let unknown = || {
            let text = format!("block {id}: not unfinished in this store, and not stored");
            Error::new(Status::NotFound, text)
        };
        if !success {
            let dropped = self.shared.with(|core, now, fx| core.drop_block(id, now, fx))?;
            return if dropped { Ok(()) } else { Err(unknown()) };
        }
        let begun = self.shared.with(|core, now, fx| core.begin_commit_call(id, now, fx))?;
        let Some((call, cell)) = begun else {
            // Committed before: nothing to do, and no error (R42).
            let answer = self.lookup(&[id])?;
            return match answer.error {
                Some(error) => Err(error),
                None if answer.found[0] => Ok(()),
                None => Err(unknown()),
            };
        };
        self.finish_call(call, &cell)
    }

    fn finish_call(&self, call: u64, cell: &task::Cell) -> Result<(), Error> {
        cell.wait(None);
        match self.shared.read(|core| core.take_call(call)) {
            Some(call) => call.first_error().map_or(Ok(()), Err),
            None => Err(closed()),
        }
    }

    /// Removes blocks (R44).
    ///
    /// # Errors
    /// The first block's error in the order of the call.
    pub fn remove(&self, ids: &[BlockId]) -> Result<(), Error> {
        let begun = self.shared.with(|core, now, fx| core.begin_remove(ids, now, fx));
        let (call, cell) = begun?;
        self.finish_call(call, &cell)
    }

    /// Reads the availability mask (R55).
    ///
    /// # Errors
    /// `StoreUnhealthy`.
    pub fn check_health(&self) -> Result<(), Error> {
        if self.shared.mask.load(Ordering::Acquire) == 0 {
            return Err(Error::new(Status::StoreUnhealthy, "no backend is available"));
        }
        Ok(())
    }

    /// The health of each backend (R56).
    #[must_use]
    pub fn health(&self) -> Vec<BackendReport> {
        report::health(&self.shared, &self.report)
    }

    /// The health report as JSON.
    #[must_use]
    pub fn health_json(&self) -> String {
        report::health_json(&self.shared, &self.config, &self.report)
    }

    /// An operator's word about a backend (R56).
    ///
    /// # Errors
    /// `InvalidParam` where no backend has this path.
    pub fn backend_set(&self, path: &str, setting: Setting) -> Result<(), Error> {
        let wanted = path.trim_end_matches('/');
        let lane = self.config.backends.iter().position(|b| b.trim_end_matches('/') == wanted);
        let Some(lane) = lane else {
            let known = self.config.backends.join(", ");
            return Err(Error::invalid(format!(
                "no backend has the path {path:?}; there are {known}"
            )));
        };
        self.shared.with(|core, now, fx| core.set_backend(lane, setting, now, fx));
        Ok(())
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> Snapshot {
        let threads = report::threads(&self.shared, &self.report);
        Snapshot { threads, ..self.shared.read(|core| core.snapshot()) }
    }

    /// Counters, effective configuration and engine as JSON (R92).
    #[must_use]
    pub fn stats_json(&self) -> String {
        report::stats_json(&self.shared, &self.stats(), &self.config, &self.report)
    }

    /// Counters, times and room as Prometheus text. Room that is not fresh is asked for, for the
    /// next reader.
    #[must_use]
    pub fn metrics(&self) -> String {
        let (paths, tasks) = self.shared.read(|core| core.figures());
        let (stats, health) = (self.stats(), self.health());
        let sources = metrics::Sources {
            stats: &stats,
            health: &health,
            paths: &paths,
            tasks: &tasks,
            facts: &self.report,
        };
        let text = metrics::text(&sources);
        self.shared.with(core::Core::ask_room);
        text
    }
}

#[cfg(feature = "fault")]
impl Store {
    /// The decorated engine of a backend, for tests only.
    ///
    /// # Errors
    /// `InvalidParam` where there is no such backend.
    pub fn faulty(&self, lane: usize) -> Result<Arc<crate::engine::fault::FaultEngine>, Error> {
        let found = self.shared.faults.lock().get(lane).map(Arc::clone);
        found.ok_or_else(|| Error::invalid(format!("there is no backend {lane}")))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.close(|| ())
            && error.status != Status::Closed
        {
            log::emit(Level::Error, "KV1004", &error.text);
        }
    }
}
