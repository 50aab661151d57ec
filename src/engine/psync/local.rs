//! Waiting out a local shortage: the process has no descriptor or memory to spare, which says
//! nothing about the storage (R22). The wait ends when a worker of this lane releases a descriptor,
//! or after a short time, since others may have released one.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Lane;
use crate::clock::Time;
use crate::engine::Op;
use crate::posix::file;

/// The longest that one try waits for the next (R22).
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The errors that say something about this process alone.
pub(in crate::engine) fn is_local(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN)
}

/// Tells waiting workers that a descriptor was released. Costs nothing while nobody waits.
#[derive(Debug, Default)]
pub(in crate::engine) struct Released {
    waiting: AtomicUsize,
    count: Mutex<u64>,
    told: Condvar,
}

impl Released {
    fn tell(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            *self.count.lock() += 1;
            self.told.notify_one();
        }
    }

    fn wait(&self, limit: Duration) {
        let mut count = self.count.lock();
        let before = *count;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if *count == before {
            // Released, timed out or woken for nothing: the caller tries again in any case.
            self.told.wait_for(&mut count, limit);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Lane {
    /// Closes a descriptor and tells those that wait for one.
    pub(in crate::engine) fn close(&self, fd: OwnedFd) -> Result<(), i32> {
        let closed = file::close(fd);
        self.released.tell();
        closed
    }
}

/// One step's waits.
pub(in crate::engine) struct Wait<'a> {
    lane: &'a Lane,
    op: &'a Op,
    end: Time,
}

impl<'a> Wait<'a> {
    /// The first refusal: the op's limit runs from here.
    pub(in crate::engine) fn begin(lane: &'a Lane, op: &'a Op) -> Wait<'a> {
        Wait::until(lane, op, lane.clock.now().plus(op.local_limit))
    }

    /// One that began before.
    pub(in crate::engine) fn until(lane: &'a Lane, op: &'a Op, end: Time) -> Wait<'a> {
        Wait { lane, op, end }
    }

    /// Waits for a chance. `false`: the limit has passed.
    pub(in crate::engine) fn again(&self, errno: i32) -> bool {
        self.op.gate.set_local(errno);
        let left = self.end.since(self.lane.clock.now());
        if left.is_zero() {
            return false;
        }
        self.lane.released.wait(left.min(AGAIN_AFTER));
        true
    }
}
