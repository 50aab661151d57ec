//! The engine of `io_uring`: a lane's rings carry its reads, writes and calls on single names as
//! hard-linked chains; a small pool of threads does what a chain cannot.
//!
//! One thread a ring, made by the supervisor and gone when idle, since the kernel's workers belong
//! to the thread that submits: a hang in one lane takes nothing from the others. The first ring
//! does all the work as long as its thread keeps up. Copies to and from the caller's memory are
//! made by the ring's thread, inside the gate (R30).
//!
//! `seat.rs` whether a ring's thread sleeps · `ledger.rs` who is in flight · `lane.rs` what rings
//! and pool share · `worker.rs` the thread of a ring · `pull.rs` what it takes on ·
//! `pressure.rs` whether it is too much for one · `read.rs`, `write.rs`, `names.rs` the chains ·
//! `landing.rs` what was read, on its way to the caller · `table.rs` ops by slot and generation ·
//! `habit.rs` what may begin on a ring's thread · `ring.rs` the ring itself · `handover.rs` what
//! the pool sees · `refusal.rs` why there is none.

mod habit;
mod handover;
mod landing;
mod lane;
mod ledger;
mod names;
mod pressure;
mod pull;
mod read;
mod refusal;
mod ring;
mod seat;
mod table;
mod worker;
mod write;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::buffers::Buffer;
use super::pool::{Pool, Ran, Spread};
use super::psync::Blocking;
use super::{Engine, EngineKind, EngineParams, Op, OpKind, Source, Tag, host};
use handover::PoolSource;
use lane::Lane;
pub use refusal::Refusal;
use ring::{Ring, Shape};

/// See the module's text.
pub struct UringEngine {
    lane: Arc<Lane>,
    pool: Arc<Pool>,
}

/// Whether this system gives rings.
///
/// # Errors
/// The refusal, with its remedy.
pub fn check() -> Result<(), Refusal> {
    Ring::new(Shape { ops: 1, slabs: 1 })?.try_enter()
}

impl UringEngine {
    /// An engine without threads; the first [`Engine::wake`] asks for them.
    ///
    /// # Errors
    /// The system's refusal of a ring, with its remedy.
    pub fn new(params: EngineParams, source: Arc<dyn Source>) -> Result<Arc<UringEngine>, Refusal> {
        check()?;
        Ok(UringEngine::build(params, source))
    }

    /// The same, on a system that was checked. Should it refuse a ring later all the same, the pool
    /// does the work until one can be made.
    #[must_use]
    pub fn build(params: EngineParams, source: Arc<dyn Source>) -> Arc<UringEngine> {
        let lane = Lane::new(params.clone(), source);
        let weak = Arc::downgrade(&lane);
        let blocking = Blocking::new(Arc::clone(&lane.buffers));
        let run = Box::new(move |op: Op, _: &mut Option<Buffer>| {
            let lane = weak.upgrade();
            let brought = lane
                .as_ref()
                .and_then(|lane| lane.with_handed(|handed| handed.take_baggage(op.tag)));
            let mut brought = brought.unwrap_or_default();
            let outcome = blocking.run(&op, &mut brought.buffer, brought.tried);
            if let (true, Some(lane), OpKind::Read(transfer) | OpKind::Write(transfer)) =
                (brought.learns, lane, &op.kind)
            {
                lane.habit.learn(&transfer.path, outcome.is_ok());
                // It may take on more now.
                lane.wake(1);
            }
            Ran::Ended(outcome)
        });
        let source = Arc::new(PoolSource(Arc::downgrade(&lane)));
        let pool = Pool::new(params, source, None, run, Spread::Full);
        lane.set_pool(&pool);
        Arc::new(UringEngine { lane, pool })
    }
}

impl Engine for UringEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::IoUring
    }

    fn wake(&self, jobs: usize) {
        self.lane.wake(jobs);
    }

    fn wake_metadata(&self, jobs: usize) {
        self.pool.wake(jobs);
    }

    fn make_threads(&self) -> Result<(), std::io::Error> {
        self.lane.reap();
        while let Some(number) = self.lane.begin_making() {
            let lane = Arc::clone(&self.lane);
            let name = format!("ucm_posix_{}_r{number}", self.lane.params.index % 100);
            match host::spawn(&name, move || worker::work(lane, number)) {
                Ok(handle) => self.lane.end_making(handle),
                Err(error) => self.lane.not_made(number, &error),
            }
        }
        let made = self.pool.make_threads();
        if made.is_err() && self.pool.threads() == 0 {
            self.lane.make_way();
        }
        made
    }

    fn abandon(&self, tag: Tag) {
        let first = self.lane.habit.forget();
        if self.lane.full.swap(false, Ordering::SeqCst) || first {
            // It may take on more now.
            self.lane.wake(1);
        }
        self.pool.abandon(tag);
        let missed = self.lane.ledger.abandon(tag);
        self.lane.tell(missed);
    }

    fn threads(&self) -> usize {
        self.lane.alive() + self.pool.threads()
    }

    fn stop(&self) {
        self.lane.stop();
    }

    fn join(&self, limit: Option<Duration>) -> bool {
        self.lane.join(limit)
    }
}
