//! The engine of blocking calls: one op, one worker, the system calls in order.
//!
//! It decides nothing about paths, blocks or health; what an op asks for is done as written, and
//! what came of it is reported. Local shortages are waited out here (R22), and a stale handle is
//! opened again once. How many transfers run at once is `most.rs`'s.

pub(super) mod local;
mod metadata;
mod most;
pub(super) mod plan;
pub(super) mod read;
mod upkeep;
pub(super) mod whole;
pub(super) mod write;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::buffers::{Buffer, Buffers};
use super::pool::{Pool, Ran, Spread};
use super::{Done, Engine, EngineKind, EngineParams, Op, OpKind, Outcome, Source, Tag};
use crate::clock::{Clock, Time};
use crate::error::{Cause, Failure, Step};
use crate::posix::medium::Medium;
use local::{Released, Wait};
use most::Most;

/// See the module's text.
pub struct PsyncEngine {
    pool: Arc<Pool>,
    most: Arc<Most>,
}

/// Runs ops with blocking calls: this engine's whole work, and what other engines do with an op
/// that their own way cannot do.
pub struct Blocking {
    lane: Lane,
}

/// What an op has behind it when it is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tried {
    /// The op has made its file.
    pub created: bool,
    /// A stale handle was met, so the op opens for the second and last time.
    pub stale: bool,
}

/// What the workers of one lane share.
pub(super) struct Lane {
    pub(super) buffers: Arc<Buffers>,
    released: Released,
    pub(super) clock: Clock,
    /// The file system refused to reserve space: it is not asked again.
    no_reserve: AtomicBool,
    /// What the lane's files are kept on, once a file was made.
    medium: OnceLock<Medium>,
    /// The file system is a local one, whose files end where they say.
    local: AtomicBool,
}

/// One op being run.
pub(super) struct Job<'a> {
    pub(super) lane: &'a Lane,
    pub(super) op: &'a Op,
}

impl PsyncEngine {
    /// An engine without threads; the first [`Engine::wake`] asks for them.
    #[must_use]
    pub fn new(params: EngineParams, source: Arc<dyn Source>) -> Arc<PsyncEngine> {
        let buffers = Buffers::new(params.buffer_bytes, params.transfers, params.file_bytes);
        let lane = Lane::new(Arc::clone(&buffers));
        let most = Arc::new(Most::new(&params));
        let learner = Arc::clone(&most);
        let run = Box::new(move |op: Op, buffer: &mut Option<Buffer>| {
            let outcome = Job { lane: &lane, op: &op }.run(buffer, Tried::default());
            if outcome.is_ok()
                && let OpKind::Read(transfer) | OpKind::Write(transfer) = &op.kind
            {
                let local = learner.learn(&transfer.path, lane.clock.now());
                lane.local.store(local, Ordering::Relaxed);
            }
            Ran::Ended(outcome)
        });
        let pool = Pool::new(params, source, Some(buffers), run, Spread::Full);
        most.set_pool(&pool);
        Arc::new(PsyncEngine { pool, most })
    }
}

impl Blocking {
    /// For the workers of one lane.
    #[must_use]
    pub fn new(buffers: Arc<Buffers>) -> Blocking {
        Blocking { lane: Lane::new(buffers) }
    }

    /// Runs an op to its end. A transfer that has no buffer takes one.
    pub fn run(&self, op: &Op, buffer: &mut Option<Buffer>, tried: Tried) -> Outcome {
        Job { lane: &self.lane, op }.run(buffer, tried)
    }
}

impl Engine for PsyncEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Psync
    }

    fn wake(&self, jobs: usize) {
        self.pool.wake_transfers(jobs);
    }

    fn wake_metadata(&self, jobs: usize) {
        self.pool.wake(jobs);
    }

    fn make_threads(&self) -> Result<(), std::io::Error> {
        self.pool.make_threads()
    }

    fn abandon(&self, tag: Tag) {
        self.most.forget();
        self.pool.abandon(tag);
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn stop(&self) {
        self.pool.stop();
    }

    fn join(&self, limit: Option<Duration>) -> bool {
        self.pool.join(limit)
    }
}

impl Lane {
    pub(super) fn new(buffers: Arc<Buffers>) -> Lane {
        Lane {
            buffers,
            released: Released::default(),
            clock: Clock::monotonic(),
            no_reserve: AtomicBool::new(false),
            medium: OnceLock::new(),
            local: AtomicBool::new(false),
        }
    }
}

impl Job<'_> {
    pub(super) fn run(&self, buffer: &mut Option<Buffer>, tried: Tried) -> Outcome {
        let mut created = tried.created;
        match self.run_once(buffer, &mut created) {
            Err(failure) if failure.os() == Some(libc::ESTALE) && self.may_reopen(tried) => {
                self.run_once(buffer, &mut created)
            }
            outcome => outcome,
        }
    }

    fn may_reopen(&self, tried: Tried) -> bool {
        !tried.stale && !self.op.gate.revoked()
    }

    pub(super) fn run_once(&self, buffer: &mut Option<Buffer>, created: &mut bool) -> Outcome {
        match &self.op.kind {
            OpKind::Read(transfer) => self.read(transfer, buffer),
            OpKind::Write(transfer) => self.write(transfer, buffer, created),
            OpKind::Rename { from, to, no_replace } => self.rename(from, to, *no_replace),
            OpKind::Sync { path, directory } => self.sync(path, *directory),
            OpKind::SetLength(path, bytes) => self.set_length(path, *bytes),
            OpKind::Stat { path } => self.stat(path),
            OpKind::StatMany(many) => Ok(self.stat_many(many)),
            OpKind::Unlink { path } => self.unlink(path),
            OpKind::MakeDir { path, mode } => self.make_directory(path, *mode),
            OpKind::ReadSmall { path } => self.read_small(path),
            OpKind::List { path, filter } => self.list(path, filter),
            OpKind::Touch { path } => self.touch(path),
            OpKind::TouchMany(many) => Ok(self.touch_many(many)),
            OpKind::Space { path } => self.space(path),
            OpKind::Survey { path, to } => self.survey(path, &**to),
            OpKind::Claim { path, mode } => self.claim(path, *mode),
            OpKind::RemoveDir { path } => self.remove_directory(path),
            OpKind::Stamp { path, create } => self.stamp(path, *create),
            OpKind::RemoveCold { path, mtime_ns } => self.remove_cold(path, *mtime_ns),
            OpKind::SetAside { from, dir, mode, to, bytes } => {
                self.set_aside(from, (dir, *mode), to, *bytes)
            }
        }
    }

    /// Begins one step, unless the op was given up; waits out local shortages until the op's limit.
    pub(super) fn step<T>(
        &self,
        step: Step,
        call: impl FnMut() -> Result<T, i32>,
    ) -> Result<T, Failure> {
        self.step_until(step, None, call)
    }

    /// The same. `short_until`: what this call begins has met a shortage before, which is waited
    /// out until then, and stays noted: whether it is over shows when what was begun has ended.
    pub(super) fn step_until<T>(
        &self,
        step: Step,
        short_until: Option<Time>,
        mut call: impl FnMut() -> Result<T, i32>,
    ) -> Result<T, Failure> {
        let mut wait = short_until.map(|end| Wait::until(self.lane, self.op, end));
        let result = loop {
            if self.op.gate.revoked() {
                break Err(Failure { step, cause: Cause::GivenUp });
            }
            match call() {
                Err(errno) if local::is_local(errno) => {
                    let wait = wait.get_or_insert_with(|| Wait::begin(self.lane, self.op));
                    if !wait.again(errno) {
                        // Stays noted for a moment: the judge may look before this end is reported.
                        // What hangs from here on, a close or what is done without it, hangs on
                        // the path.
                        self.op.gate.call_again();
                        return Err(Failure::errno(step, errno));
                    }
                    self.op.gate.call_again();
                }
                Err(errno) => break Err(Failure::errno(step, errno)),
                Ok(value) => break Ok(value),
            }
        };
        if wait.is_some() && (short_until.is_none() || result.is_err()) {
            self.op.gate.set_local(0);
        }
        result
    }
}

/// The outcome of an op that has nothing to tell.
pub(super) const UNIT: Outcome = Ok(Done::Unit);
