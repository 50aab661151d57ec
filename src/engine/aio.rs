//! The engine of Linux AIO: direct transfers go to the kernel as requests, and no thread waits for
//! each of them.
//!
//! A worker opens a file, takes memory of the lane, fills it for a write, submits, and is free. The
//! reaper takes events in batches, copies what was read to the caller, closes, reports. What may
//! hang — opening, submitting, syncing, closing on a file system that is not local — is a worker's,
//! so a hang costs one of them. Buffered transfers would run inside their submission: workers run
//! them with blocking calls, as `psync.rs` does, and all metadata too. On a local file system few
//! workers do for metadata, and removals that hang may take them all: steps of the collector's
//! lease have a worker of their own (R36, R83), which is there while there are any.

mod desk;
mod flight;
mod hub;
mod quota;
mod reaper;
mod run;

use std::sync::Arc;
use std::time::Duration;

use super::buffers::{Buffer, Buffers};
use super::habits::{Habits, Kind};
use super::pool::{Pool, Spread, join_all};
use super::psync::Lane;
use super::{Engine, EngineKind, EngineParams, Op, Source, Tag};
use crate::error::Error;
use hub::{Hub, Intake, LeaseIntake};

/// Workers that open files on a local file system: their calls are quick, so more only cost memory.
const LOCAL_OPENERS: usize = 12;
/// How many workers are on their way at once for quick work.
const CHAIN: usize = 1;

/// How many transfers find a slot of so many: each takes up to [`run::SLOTS_MAX`] while there are
/// plenty, and one when half of them are taken.
#[must_use]
pub fn buffered(slots: usize) -> usize {
    let half = slots / 2;
    half.div_ceil(run::SLOTS_MAX) + slots.saturating_sub(half + run::SLOTS_MAX - 1).max(1)
}

/// What this engine needs beyond [`EngineParams`].
#[derive(Debug, Clone, Copy)]
pub struct Workers {
    /// Most workers that open and submit: `posix_open_concurrency`.
    pub openers: usize,
    /// Most workers for metadata on a local file system: `posix_commit_concurrency`.
    pub committers: usize,
}

/// The limits of one lane.
#[derive(Debug, Clone, Copy)]
struct SubmitLimits {
    /// Most transfers in flight.
    transfers: usize,
    /// Most metadata ops in flight.
    metadata: usize,
    workers: Workers,
}

impl SubmitLimits {
    /// The most workers for transfers and for metadata on a kind of file system.
    fn workers(&self, kind: Kind) -> (usize, usize) {
        let openers = self.workers.openers.min(self.transfers).max(1);
        match kind {
            Kind::Remote => (openers, self.metadata),
            // Nothing was transferred yet: what hangs may be anything.
            Kind::Unknown => (openers.min(LOCAL_OPENERS), self.metadata),
            Kind::Memory | Kind::Extent | Kind::Local => {
                let committers = self.workers.committers.max(1);
                (openers.min(LOCAL_OPENERS), self.metadata.min(committers))
            }
        }
    }
}

/// Workers of the collector's lease: one pass takes one step after the other.
const LEASE_WORKERS: usize = 1;

/// See the module's text.
pub struct AioEngine {
    pool: Arc<Pool>,
    lease: Arc<Pool>,
    hub: Arc<Hub>,
}

impl AioEngine {
    /// An engine without threads and without a context; the first [`Engine::wake`] asks for them.
    ///
    /// # Errors
    /// As [`AioEngine::check`].
    pub fn new(
        params: EngineParams,
        workers: Workers,
        source: Arc<dyn Source>,
    ) -> Result<Arc<AioEngine>, Error> {
        AioEngine::check(params.transfers)?;
        Ok(AioEngine::build(params, workers, source))
    }

    /// Whether this system has Linux AIO for an engine of so many transfers in flight.
    ///
    /// # Errors
    /// `Unsupported` where it has not; the text names cause and remedy.
    pub fn check(transfers: usize) -> Result<(), Error> {
        quota::check(quota::wanted(transfers))
    }

    /// As [`AioEngine::new`], after a check. Without room for a context it runs blocking calls.
    #[must_use]
    pub fn build(
        params: EngineParams,
        workers: Workers,
        source: Arc<dyn Source>,
    ) -> Arc<AioEngine> {
        AioEngine::with(params, workers, source, Habits::new())
    }

    /// As [`AioEngine::build`], with what is known of the file system.
    pub(super) fn with(
        params: EngineParams,
        workers: Workers,
        source: Arc<dyn Source>,
        habits: Habits,
    ) -> Arc<AioEngine> {
        let (transfers, metadata) = (params.transfers, params.metadata);
        let limits = SubmitLimits { transfers, metadata, workers };
        let buffers = Buffers::new(params.buffer_bytes, params.transfers, params.file_bytes);
        let lane = Lane::new(Arc::clone(&buffers));
        let (transfers, metadata) = limits.workers(habits.kind());
        let bell = Arc::clone(&params.bell);
        let hub = Arc::new(Hub::new(limits, params.index, bell, source, lane, habits));
        let intake = Arc::new(Intake(Arc::clone(&hub)));
        let runner = Arc::clone(&hub);
        let run = Box::new(move |op: Op, buffer: &mut Option<Buffer>| runner.run(op, buffer));
        let params = EngineParams { transfers, metadata, ..params };
        let few = EngineParams { transfers: 0, metadata: LEASE_WORKERS, ..params.clone() };
        let pool = Pool::new(params, intake, Some(buffers), run, Spread::Chain(CHAIN));
        let intake = Arc::new(LeaseIntake(Arc::clone(&hub)));
        let runner = Arc::clone(&hub);
        let run = Box::new(move |op: Op, buffer: &mut Option<Buffer>| runner.run(op, buffer));
        let lease = Pool::new(few, intake, None, run, Spread::Full);
        if hub.pool.set(Arc::downgrade(&pool)).is_err() {
            debug_assert!(false, "a hub has one pool");
        }
        Arc::new(AioEngine { pool, lease, hub })
    }
}

impl Engine for AioEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Aio
    }

    fn wake(&self, jobs: usize) {
        self.pool.wake(jobs);
    }

    fn wake_lease(&self, jobs: usize) {
        self.lease.wake(jobs);
    }

    fn make_threads(&self) -> Result<(), std::io::Error> {
        let reaper = self.hub.make_reaper();
        // Without a reaper they do the work alone.
        let lease = self.lease.make_threads();
        if lease.is_err() {
            self.pool.wake(1);
        }
        self.pool.make_threads()?;
        reaper.and(lease)
    }

    fn abandon(&self, tag: Tag) {
        let again = self.hub.desk.lock().abandon(tag);
        self.pool.abandon(tag);
        self.lease.abandon(tag);
        self.hub.call_workers(usize::from(again));
    }

    fn threads(&self) -> usize {
        self.pool.threads() + self.lease.threads() + self.hub.desk.lock().reapers
    }

    fn stop(&self) {
        self.pool.stop();
        self.lease.stop();
        self.hub.desk.lock().stopping = true;
        self.hub.kick();
    }

    fn join(&self, limit: Option<Duration>) -> bool {
        let clock = &self.hub.lane.clock;
        let end = limit.map(|limit| clock.now().plus(limit));
        let left = |end: crate::clock::Time| end.since(clock.now());
        if !self.pool.join(limit) || !self.lease.join(end.map(left)) {
            return false;
        }
        let mut desk = self.hub.desk.lock();
        while !desk.quiet() {
            match end {
                None => self.hub.left.wait(&mut desk),
                Some(end) => {
                    let left = left(end);
                    if left.is_zero() {
                        return false;
                    }
                    // Whether it was the limit or a thread that left shows above.
                    self.hub.left.wait_for(&mut desk, left);
                }
            }
        }
        let handles = std::mem::take(&mut desk.handles);
        drop(desk);
        join_all(handles);
        true
    }
}
