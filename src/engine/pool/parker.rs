//! Where one worker sleeps until it is woken or has been idle for long enough.
//!
//! Who sleeps is on the roster's idle stack; whoever takes a worker off it owes it exactly one
//! wake.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

use crate::clock::Clock;

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
        Parker { number, thread: std::thread::current(), woken: AtomicBool::new(false) }
    }

    /// Wakes it, once.
    pub(super) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
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
            std::thread::park();
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
            std::thread::park_timeout(left);
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
