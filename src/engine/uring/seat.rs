//! The place of one ring's thread: whether there is one, and whether it sleeps, so that whoever has
//! work for it makes no system call that it does not need, and no work is overlooked.
//!
//! A state machine in one atomic. It knows no thread, ring or descriptor; `lane.rs` does what its
//! answers ask for.

use crate::sync::{AtomicU8, Ordering};

/// No thread.
const ABSENT: u8 = 0;
/// The supervisor was asked for one.
const ASKED: u8 = 1;
/// It is being made.
const MAKING: u8 = 2;
/// It looks for work before it sleeps.
const AWAKE: u8 = 3;
/// It sleeps in the kernel.
const ASLEEP: u8 = 4;
/// It must look once more.
const TOLD: u8 = 5;

/// What whoever roused a seat does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// Nothing: the thread will look, or there is none and none is wanted.
    Nothing,
    /// Ring for the supervisor, which makes the thread.
    Ring,
    /// Wake the thread out of the kernel.
    Signal,
}

/// See the module's text. Begins absent.
#[derive(Debug, Default)]
pub(super) struct Seat(AtomicU8);

impl Seat {
    /// Makes the thread look for work; one is asked for where there is none, unless `stopping`.
    pub(super) fn rouse(&self, stopping: impl Fn() -> bool) -> Call {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let next = match seen {
                ABSENT if stopping() => return Call::Nothing,
                ABSENT => ASKED,
                AWAKE | ASLEEP => TOLD,
                _ => return Call::Nothing,
            };
            match self.0.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(ABSENT) => return Call::Ring,
                Ok(ASLEEP) => return Call::Signal,
                Ok(_) => return Call::Nothing,
                Err(other) => seen = other,
            }
        }
    }

    /// The supervisor begins to make the thread that was asked for. `false`: none was.
    pub(super) fn begin_making(&self) -> bool {
        self.swap(ASKED, MAKING)
    }

    /// The thread that was asked for is not wanted any more. `false`: none was asked for.
    pub(super) fn withdraw(&self) -> bool {
        self.swap(ASKED, ABSENT)
    }

    /// There is no thread, and none is coming.
    pub(super) fn vacate(&self) {
        self.0.store(ABSENT, Ordering::SeqCst);
    }

    /// The thread looks for work now; what is told from here on makes it look again.
    pub(super) fn begin_look(&self) {
        self.0.store(AWAKE, Ordering::SeqCst);
    }

    /// The thread is about to sleep. `false`: it was told to look again.
    pub(super) fn fall_asleep(&self) -> bool {
        self.swap(AWAKE, ASLEEP)
    }

    /// The thread has slept long enough for nothing, and leaves. `false`: it was just woken.
    pub(super) fn retire(&self) -> bool {
        self.swap(ASLEEP, ABSENT)
    }

    fn swap(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::{Condvar, Mutex};
    use std::sync::Arc;

    /// A lane with one ring: its queue, its event, its supervisor.
    #[derive(Default)]
    struct Lane {
        seat: Seat,
        queue: Mutex<u32>,
        done: Mutex<u32>,
        /// The thread's descriptor, and the bell.
        signalled: Mutex<bool>,
        signal: Condvar,
    }

    impl Lane {
        fn submit(self: &Arc<Lane>) -> Option<loom::thread::JoinHandle<()>> {
            *self.queue.lock() += 1;
            match self.seat.rouse(|| false) {
                Call::Nothing => None,
                Call::Ring => {
                    assert!(self.seat.begin_making(), "it was asked for");
                    let lane = Arc::clone(self);
                    Some(loom::thread::spawn(move || lane.live()))
                }
                Call::Signal => {
                    *self.signalled.lock() = true;
                    self.signal.notify_one();
                    None
                }
            }
        }

        /// The thread of a ring: it leaves where it would sleep for a second time.
        fn live(&self) {
            let mut sleeps = 0;
            loop {
                self.seat.begin_look();
                let found = std::mem::take(&mut *self.queue.lock());
                *self.done.lock() += found;
                if !self.seat.fall_asleep() {
                    continue;
                }
                sleeps += 1;
                if sleeps == 1 && self.seat.retire() {
                    return;
                }
                // Just woken: the signal is there or on its way.
                let mut signalled = self.signalled.lock();
                while !*signalled {
                    self.signal.wait(&mut signalled);
                }
                *signalled = false;
                sleeps = 0;
            }
        }
    }

    #[test]
    fn loom_no_work_is_overlooked_and_no_wake_is_lost() {
        loom::model(|| {
            let lane = Arc::new(Lane::default());
            let other = Arc::clone(&lane);
            let other = loom::thread::spawn(move || other.submit());
            let mut made = vec![lane.submit()];
            made.push(other.join().unwrap());
            for thread in made.into_iter().flatten() {
                thread.join().unwrap();
            }
            assert_eq!((*lane.done.lock(), *lane.queue.lock()), (2, 0));
        });
    }

    /// A seat that is asked to leave is not asked for a thread.
    #[test]
    fn loom_a_stopping_seat_is_left_alone() {
        loom::model(|| {
            let seat = Arc::new(Seat::default());
            let other = Arc::clone(&seat);
            let other = loom::thread::spawn(move || other.rouse(|| false));
            let withdrawn = seat.withdraw();
            let rung = other.join().unwrap();
            assert_eq!(rung, Call::Ring);
            assert_eq!(seat.begin_making(), !withdrawn);
        });
    }
}
