//! One lane's worker threads for blocking work: made when needed, parked without wake-ups, gone
//! when idle.
//!
//! The pool pulls ops and runs each on one worker; what running means is its owner's (`psync.rs`).
//! It keeps the limits of transfers and metadata in flight, and replaces workers whose op was
//! abandoned (R36). A worker that has completed an op pulls the next one without parking, and
//! nobody is woken for work that somebody is already on his way to. The pool makes no thread by
//! itself: the supervisor does, in [`Pool::make_threads`] (R57).

mod parker;
mod roster;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::buffers::{Buffer, Buffers, Take};
use super::{EngineParams, Op, OpKind, Outcome, Source, Tag, Want, host};
use crate::clock::Clock;
use crate::error::{Cause, Failure, Step};
use parker::Parker;
use roster::{After, Calls, Kind, Next, Roster};

/// A worker that had nothing to do for this long ends.
pub const IDLE_LIMIT: Duration = Duration::from_secs(2);

/// What became of an op that a worker ran.
pub enum Ran {
    /// It ended.
    Ended(Outcome),
    /// It goes on without a worker; whoever ends it reports it.
    Detached,
}

/// Runs one op. The buffer is the worker's; it is there for every transfer unless the system
/// refused one.
pub type Run = Box<dyn Fn(Op, &mut Option<Buffer>) -> Ran + Send + Sync>;

/// How many workers are sent for work that arrives all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// One for each op: the ops block.
    Full,
    /// So many, and each that takes an op sends for the next while more waits: the ops are quick.
    Chain(usize),
}

/// For what workers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// As many as there are places of either kind: all of it may be metadata.
    Both,
    /// As many as there are places for transfers, or one who sees whether metadata waits.
    Scout,
    /// As many as there are places for transfers.
    Places,
}

/// See the module's text. Owned by an engine, kept alive by its workers.
pub struct Pool {
    params: EngineParams,
    source: Arc<dyn Source>,
    /// Where a worker takes a buffer before it pulls a transfer; `None`: ops bring their own.
    buffers: Option<Arc<Buffers>>,
    run: Run,
    spread: Spread,
    clock: Clock,
    idle_limit: Duration,
    roster: Mutex<Roster>,
    /// Told when a thread has left.
    left: Condvar,
}

impl Pool {
    /// A pool without threads.
    #[must_use]
    pub fn new(
        params: EngineParams,
        source: Arc<dyn Source>,
        buffers: Option<Arc<Buffers>>,
        run: Run,
        spread: Spread,
    ) -> Arc<Pool> {
        let roster = Roster::new(params.transfers, params.metadata).with_spread(spread);
        let roster = Mutex::new(roster);
        Arc::new(Pool {
            params,
            source,
            buffers,
            run,
            spread,
            clock: Clock::monotonic(),
            idle_limit: IDLE_LIMIT,
            roster,
            left: Condvar::new(),
        })
    }

    fn available(&self) -> bool {
        self.buffers.as_ref().is_none_or(|buffers| buffers.available())
    }

    /// Up to `jobs` more ops can be pulled, of whatever kind.
    pub fn wake(&self, jobs: usize) {
        self.arrived(jobs, Look::Both);
    }

    /// Up to `jobs` more ops can be pulled, nearly all of them transfers.
    pub fn wake_transfers(&self, jobs: usize) {
        self.arrived(jobs, Look::Scout);
    }

    fn arrived(&self, jobs: usize, look: Look) {
        let mut roster = self.roster.lock();
        let calls = roster.arrived(jobs, self.available(), look);
        drop(roster);
        self.carry_out(calls);
    }

    /// Changes how many ops may run; those that run already stay.
    pub fn set_limits(&self, transfers: usize, metadata: usize) {
        let mut roster = self.roster.lock();
        let calls = roster.set_limits(transfers, metadata, self.available());
        drop(roster);
        self.carry_out(calls);
    }

    /// See [`super::Engine::make_threads`].
    ///
    /// # Errors
    /// The system's refusal to make a thread.
    pub fn make_threads(self: &Arc<Pool>) -> Result<(), std::io::Error> {
        let ended = self.roster.lock().take_ended();
        join_all(ended);
        loop {
            let Some(number) = self.roster.lock().begin_making() else { return Ok(()) };
            let pool = Arc::clone(self);
            match host::spawn(&self.thread_name(number), move || pool.work(number)) {
                Ok(handle) => self.roster.lock().end_making(number, handle),
                Err(refusal) => {
                    let mut roster = self.roster.lock();
                    let calls = roster.not_made(number, self.available());
                    drop(roster);
                    self.carry_out(calls);
                    self.left.notify_all();
                    return Err(refusal);
                }
            }
            self.left.notify_all();
        }
    }

    /// See [`super::Engine::abandon`].
    pub fn abandon(&self, tag: Tag) {
        let mut roster = self.roster.lock();
        let calls = roster.abandon(tag, self.available());
        drop(roster);
        self.carry_out(calls);
    }

    /// See [`super::Engine::threads`].
    #[must_use]
    pub fn threads(&self) -> usize {
        self.roster.lock().threads()
    }

    /// See [`super::Engine::stop`].
    pub fn stop(&self) {
        let idle = self.roster.lock().stop();
        for parker in idle {
            parker.wake();
        }
    }

    /// See [`super::Engine::join`].
    #[must_use]
    pub fn join(&self, limit: Option<Duration>) -> bool {
        let end = limit.map(|limit| self.clock.now().plus(limit));
        let mut roster = self.roster.lock();
        while !roster.empty() {
            match end {
                None => self.left.wait(&mut roster),
                Some(end) => {
                    let left = end.since(self.clock.now());
                    if left.is_zero() {
                        return false;
                    }
                    // Whether it was the limit or a thread that left shows above.
                    self.left.wait_for(&mut roster, left);
                }
            }
        }
        let ended = roster.take_ended();
        drop(roster);
        join_all(ended);
        true
    }

    /// `ucm_posix_<index>_<n>`, cut to what the kernel keeps by counting from 0 again.
    fn thread_name(&self, number: usize) -> String {
        let shown = if self.params.index < 10 { number % 1000 } else { number % 100 };
        format!("ucm_posix_{}_{shown}", self.params.index % 100)
    }

    fn carry_out(&self, calls: Calls) {
        for parker in calls.wake {
            parker.wake();
        }
        if calls.ring {
            (self.params.bell)();
        }
    }

    /// A worker's life.
    fn work(&self, number: usize) {
        let parker = Arc::new(Parker::new(number));
        let mut buffer = None;
        loop {
            match self.seek(&parker, &mut buffer) {
                Sought::Found(op) => {
                    let tag = op.tag;
                    let ran = guarded(|| (self.run)(op, &mut buffer));
                    self.roster.lock().reporting();
                    if let Ran::Ended(outcome) = ran.unwrap_or_else(|bug| Ran::Ended(Err(bug))) {
                        self.source.complete(tag, outcome);
                    }
                    if self.finish(number) == After::Leave {
                        break;
                    }
                }
                Sought::Nothing => {
                    if !self.rest(&parker) {
                        break;
                    }
                }
                Sought::Stop => break,
            }
        }
        drop(buffer);
        self.leave(number);
    }

    fn finish(&self, number: usize) -> After {
        let mut roster = self.roster.lock();
        let (after, calls) = roster.finished(number, self.available());
        drop(roster);
        self.carry_out(calls);
        after
    }

    /// Parks. `false`: the worker retires.
    fn rest(&self, parker: &Arc<Parker>) -> bool {
        parker.rest(&self.clock, self.idle_limit, || self.roster.lock().retire(parker))
    }

    /// Pulls until there is an op or the worker is on the idle stack.
    fn seek(&self, parker: &Arc<Parker>, buffer: &mut Option<Buffer>) -> Sought {
        loop {
            let Some(claim) = self.roster.lock().claim() else { return Sought::Stop };
            let armed = claim.transfer && self.arm(buffer);
            let op = claim.want(armed).and_then(|want| self.source.pull(want));
            let kind = op.as_ref().map(|op| match claim.want(armed) {
                // A detached transfer that comes back takes the place that there is.
                Some(Want::Metadata) => Kind::Metadata,
                Some(Want::Transfers) => Kind::Transfer,
                _ => self.kind_of(&op.kind),
            });
            if kind != Some(Kind::Transfer) {
                // Before the roster is asked, so that whoever misses a buffer is seen there.
                *buffer = None;
            }
            let record = op.as_ref().map(|op| op.tag).zip(kind);
            let mut roster = self.roster.lock();
            // Read under the lock: a buffer that another worker gave back before it parked is seen.
            let available = self.available();
            let (next, calls) = roster.settle(parker, &claim, record, armed, available);
            drop(roster);
            self.carry_out(calls);
            match (next, op) {
                (Next::Run, Some(op)) => return Sought::Found(op),
                (Next::Park, _) => return Sought::Nothing,
                (Next::Again | Next::Run, _) => {}
            }
        }
    }

    /// Takes a buffer before a transfer is pulled. Where the system refuses one the transfer is
    /// pulled all the same: it waits the shortage out within its own limit and then fails with the
    /// errno (R22).
    fn arm(&self, buffer: &mut Option<Buffer>) -> bool {
        if buffer.is_some() {
            return true;
        }
        let Some(buffers) = &self.buffers else { return true };
        match buffers.take() {
            Take::Got(got) => {
                *buffer = Some(got);
                true
            }
            Take::Exhausted => false,
            Take::Refused(_) => true,
        }
    }

    /// The last steps of a dump keep the place of its write where each op has a worker: given up
    /// for them, it would be somebody else's, and whoever has done them would find none.
    fn kind_of(&self, kind: &OpKind) -> Kind {
        match kind {
            OpKind::Read(_) | OpKind::Write(_) => Kind::Transfer,
            OpKind::Rename { .. } | OpKind::Sync { .. } if self.spread == Spread::Full => {
                Kind::Transfer
            }
            _ => Kind::Metadata,
        }
    }

    fn leave(&self, number: usize) {
        let mut roster = self.roster.lock();
        let before = roster.leave(number);
        let empty = roster.empty();
        // The buffer that it gave back may be what work waits for.
        let calls = roster.rouse(self.available(), Look::Places);
        drop(roster);
        self.carry_out(calls);
        if let Some(buffers) = &self.buffers {
            buffers.trim(empty);
        }
        join_all(before);
        if empty {
            (self.params.bell)();
        }
        self.left.notify_all();
    }
}

/// What [`Pool::seek`] came back with.
enum Sought {
    Found(Op),
    Nothing,
    Stop,
}

/// A panic is a bug, and still every op ends exactly once.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        // Dropping a payload may panic again; leaking it cannot.
        std::mem::forget(panic);
        let cause = Cause::Differs("bug in kvpath: a worker panicked".into());
        Failure { step: Step::Verify, cause }
    })
}

/// Joins threads that have ended, or are in their last instructions.
pub(super) fn join_all(ended: Vec<std::thread::JoinHandle<()>>) {
    for thread in ended {
        // A worker that panicked has ended as well, which is all that is asked here.
        let _panic = thread.join();
    }
}
