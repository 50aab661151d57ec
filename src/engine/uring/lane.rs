//! What the rings and the pool of one lane share: limits, buffers, who sleeps, which threads there
//! are, and the ops on their way from a ring to the pool.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::habit::Habit;
use super::handover::{Baggage, Handed};
use super::ledger::{Ledger, Missed};
use super::refusal::Refusal;
use super::seat::{Call, Seat};
use crate::clock::{Clock, Time};
use crate::engine::buffers::Buffers;
use crate::engine::pool::{Pool, join_all};
use crate::engine::{EngineParams, Op, Source, Tag};
use crate::log::{self, Level};
use crate::posix::eventfd;

/// Most rings of one lane. The first one does the work; the others come when it is too much for
/// one thread.
const RINGS_MAX: usize = 4;
/// How long the pool does a lane's work alone where no ring could be made, until one is tried
/// again.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Workers that begin then at once.
const WORKERS_WITHOUT_RING: usize = 8;

thread_local! {
    /// Which ring of which lane this thread is: the lane's address and the number.
    static OWN: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// One ring's place in the lane.
#[derive(Debug, Default)]
struct Ring {
    seat: Seat,
    /// Wakes the thread out of the kernel. There while the thread is.
    event: Mutex<Option<Arc<OwnedFd>>>,
}

#[derive(Debug, Default)]
struct Threads {
    /// Rings' threads that exist or are being made.
    alive: usize,
    /// Those of whom the supervisor may still bring a handle, even if they have left meanwhile.
    making: usize,
    handles: Vec<JoinHandle<()>>,
    handed: Handed,
}

/// See the module's text.
pub(super) struct Lane {
    pub(super) params: EngineParams,
    pub(super) source: Arc<dyn Source>,
    pub(super) buffers: Arc<Buffers>,
    pub(super) ledger: Ledger,
    pub(super) clock: Clock,
    /// The file system refused to reserve space: it is not asked again.
    pub(super) no_reserve: AtomicBool,
    pub(super) habit: Habit,
    /// A ring could not pull for want of a buffer.
    pub(super) starved: AtomicBool,
    /// A ring did not pull since the pool has enough.
    pub(super) crowded: AtomicBool,
    /// A ring did not pull since its table is full.
    pub(super) full: AtomicBool,
    /// See [`Handed::crowd`]. Written under the lock of `threads`.
    crowd: AtomicUsize,
    pool: OnceLock<Arc<Pool>>,
    rings: Vec<Ring>,
    stopping: AtomicBool,
    /// The rings leave as soon as they have nothing in the kernel.
    aside: AtomicBool,
    /// Until when no ring is tried, in nanoseconds of the clock; 0: rings can be made.
    refused_until: AtomicU64,
    threads: Mutex<Threads>,
    /// Told when a thread has left or a handed op has ended.
    changed: Condvar,
}

impl Lane {
    pub(super) fn new(params: EngineParams, source: Arc<dyn Source>) -> Arc<Lane> {
        let buffers = Buffers::new(params.buffer_bytes, params.transfers, params.file_bytes);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Arc::new(Lane {
            ledger: Ledger::new(params.transfers, params.metadata),
            source,
            buffers,
            clock: Clock::monotonic(),
            no_reserve: AtomicBool::new(false),
            habit: Habit::default(),
            starved: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            full: AtomicBool::new(false),
            crowd: AtomicUsize::new(0),
            pool: OnceLock::new(),
            rings: (0..cores.min(RINGS_MAX)).map(|_| Ring::default()).collect(),
            stopping: AtomicBool::new(false),
            aside: AtomicBool::new(false),
            refused_until: AtomicU64::new(0),
            threads: Mutex::default(),
            changed: Condvar::new(),
            params,
        })
    }

    /// Gives the pool. Called once.
    pub(super) fn set_pool(&self, pool: &Arc<Pool>) {
        if self.pool.set(Arc::clone(pool)).is_err() {
            debug_assert!(false, "the pool is made once");
        }
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The pool does this lane's transfers, since no ring can be made.
    pub(super) fn without_ring(&self) -> bool {
        let until = self.refused_until.load(Ordering::Acquire);
        until != 0 && self.clock.now() < Time(Duration::from_nanos(until))
    }

    /// Up to `jobs` more ops can be pulled.
    pub(super) fn wake(&self, jobs: usize) {
        if self.without_ring() {
            self.wake_pool(jobs);
        } else {
            self.rouse(self.own_number().unwrap_or(0));
        }
    }

    /// The calling thread's ring, if it is one of this lane: it looks for work itself after what it
    /// is doing, and need wake nobody for what comes of that.
    fn own_number(&self) -> Option<usize> {
        let (lane, number) = OWN.get();
        (lane == std::ptr::from_ref(self).addr()).then_some(number)
    }

    pub(super) fn wake_pool(&self, jobs: usize) {
        if let Some(pool) = self.pool.get() {
            pool.wake(jobs);
        }
    }

    /// Whoever missed a place looks again.
    pub(super) fn tell(&self, missed: Missed) {
        if missed.ring {
            self.wake(1);
        }
        if missed.pool {
            self.wake_pool(1);
        }
    }

    /// Makes a ring look for work. Costs a system call only where its thread sleeps.
    pub(super) fn rouse(&self, number: usize) {
        let Some(ring) = self.rings.get(number) else { return };
        match ring.seat.rouse(|| self.stopping()) {
            Call::Nothing => {}
            Call::Ring => (self.params.bell)(),
            Call::Signal => self.signal(ring),
        }
    }

    fn signal(&self, ring: &Ring) {
        if let Some(event) = &*ring.event.lock() {
            eventfd::signal(event);
        }
    }

    /// A ring's thread begins.
    pub(super) fn take_seat(&self, number: usize, event: Arc<OwnedFd>) {
        OWN.set((std::ptr::from_ref(self).addr(), number));
        *self.rings[number].event.lock() = Some(event);
        self.rings[number].seat.begin_look();
    }

    /// The thread looks for work now; what is told from here on makes it look again.
    pub(super) fn begin_look(&self, number: usize) {
        self.rings[number].seat.begin_look();
    }

    /// The thread is about to sleep. `false`: it was told to look again.
    pub(super) fn fall_asleep(&self, number: usize) -> bool {
        self.rings[number].seat.fall_asleep()
    }

    /// The thread has slept long enough for nothing, and leaves. `false`: it was just woken.
    pub(super) fn retire(&self, number: usize) -> bool {
        self.rings[number].seat.retire()
    }

    fn refuse_for_a_while(&self) {
        let until = self.clock.now().plus(REFUSED_FOR);
        let nanos = u64::try_from(until.0.as_nanos()).unwrap_or(u64::MAX);
        self.refused_until.store(nanos, Ordering::Release);
    }

    /// No ring could be made: the pool takes over for a while.
    pub(super) fn refused(&self, number: usize, refusal: &Refusal) {
        self.refuse_for_a_while();
        let text = format!("no ring for backend {}: {refusal}", self.params.index);
        log::emit(Level::Warn, "KV1010", &text);
        self.rings[number].seat.vacate();
        self.wake_pool(WORKERS_WITHOUT_RING);
    }

    /// Gives an op to the pool, with what it has behind it.
    pub(super) fn hand_over(&self, op: Op, baggage: Baggage) {
        self.with_handed(|handed| handed.add(op, baggage));
        self.wake_pool(1);
    }

    /// What the pool has been handed, under the lock; how much of it crowds is told behind it.
    pub(super) fn with_handed<T>(&self, act: impl FnOnce(&mut Handed) -> T) -> T {
        let mut threads = self.threads.lock();
        let result = act(&mut threads.handed);
        self.crowd.store(threads.handed.crowd(), Ordering::SeqCst);
        result
    }

    /// How many ops of the pool keep a ring from taking more.
    pub(super) fn crowd(&self) -> usize {
        self.crowd.load(Ordering::SeqCst)
    }

    /// A worker has reported an op, one that was handed to it or another.
    pub(super) fn reported(&self, tag: Tag) {
        if self.with_handed(|handed| handed.ended(tag)) && self.stopping() {
            self.changed.notify_all();
            self.stop_pool_in_time();
        }
    }

    /// The numbers of rings that the supervisor was asked for.
    pub(super) fn begin_making(&self) -> Option<usize> {
        let number = self.rings.iter().position(|ring| ring.seat.begin_making())?;
        if self.stopping() {
            self.rings[number].seat.vacate();
            return None;
        }
        self.aside.store(false, Ordering::SeqCst);
        let mut threads = self.threads.lock();
        threads.alive += 1;
        threads.making += 1;
        Some(number)
    }

    /// The thread was made.
    pub(super) fn end_making(&self, handle: JoinHandle<()>) {
        let mut threads = self.threads.lock();
        threads.making -= 1;
        threads.handles.push(handle);
        drop(threads);
        self.changed.notify_all();
    }

    /// The thread could not be made.
    pub(super) fn not_made(&self, number: usize, error: &std::io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
        let asked = "the thread of a ring".to_owned();
        self.refused(number, &Refusal { call: "clone", errno, asked });
        self.threads.lock().making -= 1;
        self.left();
    }

    /// The pool has no thread and gets none, and the rings need it: they leave, so that it gets one
    /// of theirs and does the work.
    pub(super) fn make_way(&self) {
        if self.alive() > 0 {
            self.refuse_for_a_while();
            self.aside.store(true, Ordering::SeqCst);
            // Only those that there are.
            for ring in &self.rings {
                if ring.seat.rouse(|| true) == Call::Signal {
                    self.signal(ring);
                }
            }
        }
    }

    /// Whether the ring, which has nothing in the kernel, leaves.
    pub(super) fn steps_aside(&self, number: usize) -> bool {
        let leaves = self.aside.load(Ordering::SeqCst);
        if leaves {
            self.rings[number].seat.vacate();
            self.wake_pool(WORKERS_WITHOUT_RING);
        }
        leaves
    }

    /// A ring's thread ends now. Its seat may have another one already.
    pub(super) fn leave(&self, number: usize, event: &Arc<OwnedFd>) {
        let mut slot = self.rings[number].event.lock();
        if slot.as_ref().is_some_and(|other| Arc::ptr_eq(other, event)) {
            *slot = None;
        }
        drop(slot);
        self.left();
    }

    /// A ring's thread has ended, or never had a ring.
    pub(super) fn left(&self) {
        self.threads.lock().alive -= 1;
        self.changed.notify_all();
        self.stop_pool_in_time();
        (self.params.bell)();
    }

    /// Joins threads that have ended.
    pub(super) fn reap(&self) {
        let mut threads = self.threads.lock();
        let (ended, running) =
            std::mem::take(&mut threads.handles).into_iter().partition(JoinHandle::is_finished);
        threads.handles = running;
        drop(threads);
        join_all(ended);
    }

    pub(super) fn alive(&self) -> usize {
        self.threads.lock().alive
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for (number, ring) in self.rings.iter().enumerate() {
            if !ring.seat.withdraw() {
                self.rouse(number);
            }
        }
        self.stop_pool_in_time();
    }

    /// The pool stops once no ring can hand it anything any more.
    fn stop_pool_in_time(&self) {
        let threads = self.threads.lock();
        let over = self.stopping() && threads.alive == 0 && threads.handed.is_empty();
        drop(threads);
        if let (true, Some(pool)) = (over, self.pool.get()) {
            pool.stop();
        }
    }

    /// Waits until every thread has ended, to its last instruction: it drops its descriptor after
    /// it has told that it leaves.
    pub(super) fn join(&self, limit: Option<Duration>) -> bool {
        let end = limit.map(|limit| self.clock.now().plus(limit));
        let left = |end: Time| end.since(self.clock.now());
        let mut threads = self.threads.lock();
        while threads.alive > 0 || threads.making > 0 || !threads.handed.is_empty() {
            match end.map(left) {
                None => self.changed.wait(&mut threads),
                Some(left) if left.is_zero() => return false,
                Some(left) => {
                    // Whether it was the limit or a change shows above.
                    self.changed.wait_for(&mut threads, left);
                }
            }
        }
        let handles = std::mem::take(&mut threads.handles);
        drop(threads);
        join_all(handles);
        self.pool.get().is_none_or(|pool| pool.join(end.map(left)))
    }
}

#[cfg(test)]
mod tests;
