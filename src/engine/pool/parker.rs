//! Where one worker sleeps until it is woken or has been idle for long enough.
//!
//! Who sleeps is on the roster's idle stack; whoever takes a worker off it owes it exactly one
//! wake.

use std::time::Duration;

use crate::clock::Clock;
use crate::sync::{AtomicBool, Ordering, Thread, current, park, park_timeout};

/// See the module's text. Owned by its worker, shared with the roster.
#[derive(Debug)]
pub(super) struct Parker {
    /// The worker's number in the pool.
    pub(super) number: usize,
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    /// A place to sleep for the calling thread.
    pub(super) fn new(number: usize) -> Parker {
        Parker { number, thread: current(), woken: AtomicBool::new(false) }
    }

    /// Wakes it, once.
    pub(super) fn wake(&self) {
        // A swap, so that its order among the sleeper's own swaps is plain to a model checker, too.
        self.woken.swap(true, Ordering::AcqRel);
        self.thread.unpark();
    }

    /// Sleeps until woken, at most `limit`; then `retire` takes the worker off the stack. `false`:
    /// it did, and the worker ends.
    pub(super) fn rest(
        &self,
        clock: &Clock,
        limit: Duration,
        retire: impl FnOnce() -> bool,
    ) -> bool {
        if self.sleep(clock, limit) {
            return true;
        }
        if retire() {
            return false;
        }
        // Somebody took it off the stack meanwhile: the wake is there or on its way, and belongs to
        // this rest. Left over, it would end the next rest while the worker is still on the stack,
        // and the worker would be counted as seeking although nobody sent it.
        while !self.take_wake() {
            park();
        }
        true
    }

    fn sleep(&self, clock: &Clock, limit: Duration) -> bool {
        let end = clock.now().plus(limit);
        loop {
            if self.take_wake() {
                return true;
            }
            let left = end.since(clock.now());
            if left.is_zero() {
                return false;
            }
            park_timeout(left);
        }
    }

    fn take_wake(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_that_comes_at_the_end_of_a_rest_does_not_end_the_next_one() {
        let clock = Clock::monotonic();
        let parker = Parker::new(0);
        let woken_late = || {
            parker.wake();
            false
        };
        assert!(parker.rest(&clock, Duration::ZERO, woken_late));
        assert!(!parker.rest(&clock, Duration::ZERO, || true), "nobody woke it again");
    }

    #[test]
    fn a_rest_ends_by_a_wake_or_by_its_limit() {
        let clock = Clock::monotonic();
        let parker = Parker::new(0);
        parker.wake();
        assert!(parker.rest(&clock, Duration::from_secs(3600), || unreachable!()));
        assert!(!parker.rest(&clock, Duration::ZERO, || true));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::Mutex;
    use std::sync::Arc;

    /// The roster's idle stack, and what was woken for.
    #[derive(Default)]
    struct Stack {
        idle: Mutex<Option<Arc<Parker>>>,
        work: crate::sync::AtomicBool,
    }

    fn wake(stack: &Stack) -> bool {
        let parker = stack.idle.lock().take();
        if let Some(parker) = &parker {
            stack.work.store(true, Ordering::Release);
            parker.wake();
        }
        parker.is_some()
    }

    /// A worker rests twice; `limit` zero: its idle time is over at once.
    fn rests(limit: Duration) {
        loom::model(move || {
            let stack = Arc::new(Stack::default());
            let shared = Arc::clone(&stack);
            let worker = loom::thread::spawn(move || {
                let clock = Clock::monotonic();
                let parker = Arc::new(Parker::new(0));
                *shared.idle.lock() = Some(Arc::clone(&parker));
                let woken = parker.rest(&clock, limit, || shared.idle.lock().take().is_some());
                assert_eq!(woken, shared.work.load(Ordering::Acquire), "a wake is for work");
                // No wake is left over for the next rest.
                assert!(!parker.rest(&clock, Duration::ZERO, || true));
                woken
            });
            let mut sent = wake(&stack);
            if !limit.is_zero() {
                while !sent {
                    loom::thread::yield_now();
                    sent = wake(&stack);
                }
            }
            assert_eq!(worker.join().unwrap(), sent, "every wake ends a rest, and nothing else");
        });
    }

    #[test]
    fn loom_a_wake_ends_a_rest() {
        rests(Duration::from_secs(3600));
    }

    #[test]
    fn loom_a_wake_at_the_end_of_a_rest_is_taken_by_it() {
        rests(Duration::ZERO);
    }
}
