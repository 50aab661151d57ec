//! What the threads of one lane share: the desk behind its lock, and the ways in and out.
//!
//! The pool's workers pull through the hub, which keeps count of transfers that no worker is busy
//! with. The desk's lock is a leaf: it is never held across a call on a file, the source, the pool
//! or the bell.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::desk::{Ask, Desk, KICK, Reaper};
use super::flight::{Flight, Leg, Todo, transfer};
use super::{SubmitLimits, quota};
use crate::clock::Time;
use crate::engine::habits::{Habits, Kind};
use crate::engine::pool::Pool;
use crate::engine::psync::{Job, Lane};
use crate::engine::{Bell, Op, OpKind, Outcome, Source, Tag, Want};
use crate::error::Failure;
use crate::log::{self, Level};
use crate::posix::aligned::{AlignedBuffer, PAGE_BYTES};
use crate::posix::linux_aio::Context;

/// How long a refused context is not asked for again.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// See the module's text. Owned by the engine, kept alive by its threads.
pub struct Hub {
    pub limits: SubmitLimits,
    pub index: usize,
    pub lane: Lane,
    pub habits: Habits,
    pub desk: Mutex<Desk>,
    /// Told when a reaper has ended.
    pub left: Condvar,
    pub bell: Bell,
    pub pool: OnceLock<Weak<Pool>>,
    /// Where reads of whole files would land what must not be there; none where there was no memory
    /// for it, and files are asked for their size.
    pub beyond: Option<Arc<AlignedBuffer>>,
    source: Arc<dyn Source>,
    /// No context is asked for before.
    refused_until: Mutex<Option<Time>>,
}

impl Hub {
    pub fn new(
        limits: SubmitLimits,
        index: usize,
        bell: Bell,
        source: Arc<dyn Source>,
        lane: Lane,
        habits: Habits,
    ) -> Hub {
        let desk = Mutex::new(Desk::new(limits.transfers));
        Hub {
            limits,
            index,
            lane,
            habits,
            desk,
            left: Condvar::new(),
            bell,
            pool: OnceLock::new(),
            beyond: AlignedBuffer::new(PAGE_BYTES)
                .ok()
                .map(|page| page.hidden_from_children().into()),
            source,
            refused_until: Mutex::new(None),
        }
    }

    /// Tells the pool that so many ops can be pulled.
    pub fn call_workers(&self, jobs: usize) {
        if jobs > 0
            && let Some(pool) = self.pool.get().and_then(Weak::upgrade)
        {
            pool.wake(jobs);
        }
    }

    /// A context is there, or is made, with room for one more. The reaper is asked for with it.
    /// What was given up may fill it for ever: the rest is for blocking calls then.
    pub fn has_context(&self) -> bool {
        self.desk.lock().reaper != Reaper::Refused
            && self.context().is_some_and(|context| self.desk.lock().has_room(context.holds()))
    }

    /// No context is made for some time.
    pub fn refuse_for_a_while(&self) {
        *self.refused_until.lock() = Some(self.lane.clock.now().plus(REFUSED_FOR));
    }

    fn context(&self) -> Option<Arc<Context>> {
        if let Some(context) = &self.desk.lock().context {
            return Some(Arc::clone(context));
        }
        // Held while one is made, so that it is the only one.
        let mut refused_until = self.refused_until.lock();
        if let Some(context) = &self.desk.lock().context {
            return Some(Arc::clone(context));
        }
        let now = self.lane.clock.now();
        if refused_until.is_some_and(|until| now < until) {
            return None;
        }
        match quota::make(quota::wanted(self.limits.transfers)) {
            Ok(context) => {
                *refused_until = None;
                let context = Arc::new(context);
                let mut desk = self.desk.lock();
                desk.context = Some(Arc::clone(&context));
                desk.reaper = Reaper::Wanted;
                drop(desk);
                (self.bell)();
                Some(context)
            }
            Err(error) => {
                if refused_until.is_none() {
                    let text = format!("blocking calls are used until there is room: {error}");
                    log::emit(Level::Warn, "KV1011", &text);
                }
                *refused_until = Some(now.plus(REFUSED_FOR));
                None
            }
        }
    }

    /// Submits the next request of a flight. `shortage`: the errno of one to wait out first. All
    /// those of one request, one after the other, have the op's limit for it together.
    ///
    /// # Errors
    /// The leg back, and why.
    pub fn fly(
        &self,
        op: &Arc<Op>,
        leg: Box<Leg>,
        fresh: bool,
        shortage: Option<i32>,
    ) -> Result<(), (Box<Leg>, Failure)> {
        let job = Job { lane: &self.lane, op };
        let step = leg.step();
        let Some(transfer) = transfer(op) else {
            return Err((leg, Failure::errno(step, libc::EINVAL)));
        };
        let mut pieces = Vec::new();
        let mut leg = leg;
        // The bytes are fetched before the desk is locked.
        let mut request = match leg.request(&job, transfer, 0, &mut pieces) {
            Ok(request) => request,
            Err(failure) => return Err((leg, failure)),
        };
        if shortage.is_some() {
            leg.short_until.get_or_insert_with(|| self.lane.clock.now().plus(op.local_limit));
        }
        let short_until = leg.short_until;
        let data = {
            let mut desk = self.desk.lock();
            desk.enter(Flight::new(Arc::clone(op), leg), fresh)
        };
        request.set_data(data);
        let mut shortage = shortage;
        let submitted = job.step_until(step, short_until, || {
            if let Some(errno) = shortage.take() {
                return Err(errno);
            }
            let context = self.context().ok_or(libc::EAGAIN)?;
            // SAFETY: the flight in its slot owns the memory, or is inside the gate of the
            // caller's, until its event has come; `pieces` live here.
            unsafe { context.submit(&request) }
        });
        let Err(failure) = submitted else { return Ok(()) };
        let mut desk = self.desk.lock();
        let back = desk.leave(data);
        // It will not come by an event, and whoever called ends it.
        let told = fresh && desk.landed();
        drop(desk);
        if told {
            self.kick();
        }
        match back {
            Some(flight) => Err((flight.leg, failure)),
            // Not submitted, so nobody else has taken it.
            None => unreachable!("a flight that was not submitted is in its slot"),
        }
    }

    /// A flight is over.
    pub fn landed(&self) {
        if self.desk.lock().landed() {
            self.kick();
        }
    }

    /// Wakes the reaper. A context that is full wakes it by itself.
    pub fn kick(&self) {
        let context = self.desk.lock().context.clone();
        if let Some(context) = context {
            let _full = context.kick(KICK);
        }
    }

    /// Reports the end of an op.
    pub fn end(&self, tag: Tag, outcome: Outcome) {
        self.source.complete(tag, outcome);
        // Not before, so that the source never sees more in flight than the limit.
        let again = self.desk.lock().ended(tag);
        self.call_workers(usize::from(again));
    }

    /// Hands flights to the workers.
    pub fn hand_over(&self, flights: impl IntoIterator<Item = (Flight, Todo)>) {
        let mut count = 0;
        let mut desk = self.desk.lock();
        for (flight, todo) in flights {
            desk.resume(flight, todo);
            count += 1;
        }
        drop(desk);
        self.call_workers(count);
    }

    /// Looks what the path's file system is, if that is due, and sets the number of workers by it.
    pub fn learn(&self, path: &std::ffi::CStr) {
        let Some(kind) = self.habits.learn(path, self.lane.clock.now()) else { return };
        if let Some(pool) = self.pool.get().and_then(Weak::upgrade) {
            let (transfers, metadata) = self.limits.workers(kind);
            pool.set_limits(transfers, metadata);
        }
    }

    /// Whether the op can use a context at all.
    pub fn flies(&self, op: &Op) -> bool {
        let kind: Kind = self.habits.kind();
        transfer(op).is_some_and(|transfer| {
            transfer.direct && kind.flies(matches!(op.kind, OpKind::Write(_)))
        })
    }
}

/// The hub as the worker of the collector's lease sees it.
pub struct LeaseIntake(pub Arc<Hub>);

impl Source for LeaseIntake {
    fn pull(&self, _: Want) -> Option<Op> {
        self.0.source.pull(Want::Lease)
    }

    fn complete(&self, tag: Tag, outcome: Outcome) {
        self.0.end(tag, outcome);
    }
}

/// The hub as the pool sees it.
pub struct Intake(pub Arc<Hub>);

impl Source for Intake {
    fn pull(&self, want: Want) -> Option<Op> {
        let hub = &self.0;
        let ask = hub.desk.lock().ask(want);
        let want = match ask {
            Ask::Resumed(stand_in) => return Some(stand_in),
            Ask::Nothing => return None,
            Ask::Source(want) => return hub.source.pull(want),
            Ask::Reserved(want) => want,
        };
        let op = hub.source.pull(want);
        let got = match &op {
            Some(op) if transfer(op).is_some() => Ok(op.tag),
            other => Err(other.is_some()),
        };
        let again = hub.desk.lock().answered(got);
        hub.call_workers(usize::from(again));
        op
    }

    fn complete(&self, tag: Tag, outcome: Outcome) {
        self.0.end(tag, outcome);
    }
}
