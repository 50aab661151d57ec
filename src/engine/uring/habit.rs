//! Whether the lane's file system keeps its word that a call which must not wait does not.
//!
//! The kernel tries reads and writes at once on the submitting thread, and leaves to its workers
//! what would wait. FUSE waits there all the same (a direct write that extends its file), and a
//! ring's thread that hangs stops its whole lane. So every chain is left to the kernel's workers,
//! until a worker of the pool has run one transfer and seen that the file system is a local one.
//! What was seen holds until an op is given up. Until then, too, few of the kernel's workers do for
//! a ring, unless the file system is another one.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::posix::medium::{self, Medium};

/// Nobody has asked.
const UNKNOWN: u8 = 0;
/// A worker is asking.
const ASKING: u8 = 1;
/// It is a local one.
const LOCAL: u8 = 2;
/// It is a local one, in memory.
const MEMORY: u8 = 3;
/// It is another one.
const OTHER: u8 = 4;
/// It is FUSE.
const FUSE: u8 = 5;

/// For tests of what a ring does on a file system of the network: the one that fails on demand is
/// FUSE, to which rings do not write. (What FUSE does to a failing direct write that lengthens a
/// file does not matter where a write is the whole file.)
fn fuse_is_network() -> bool {
    cfg!(feature = "fault") && std::env::var_os("KVPATH_FAULT_FUSE_IS_NETWORK").is_some()
}

/// See the module's text. Shared by the lane's rings and workers.
#[derive(Debug, Default)]
pub(super) struct Habit {
    seen: AtomicU8,
    /// An op was given up here.
    doubted: AtomicBool,
}

impl Habit {
    /// Chains may begin on the ring's thread.
    pub(super) fn local(&self) -> bool {
        matches!(self.seen.load(Ordering::Relaxed), LOCAL | MEMORY)
    }

    /// Every transfer is a copy, made by whoever submits it.
    pub(super) fn memory(&self) -> bool {
        self.seen.load(Ordering::Relaxed) == MEMORY
    }

    /// A write is for a worker of the pool, as far as anybody knows: a direct one needs what only
    /// that does (`psync`'s `lengthen`), and on a file that bypasses the page cache by the server's
    /// wish any write of a ring is a direct one to the kernel.
    pub(super) fn lengthens(&self) -> bool {
        matches!(self.seen.load(Ordering::Relaxed), UNKNOWN | ASKING | FUSE)
    }

    /// Nothing has hung, and the file system is a local one as far as anybody knows: few of the
    /// kernel's workers are enough. Never again once an op was given up: it may have one for ever.
    pub(super) fn few(&self) -> bool {
        let seen = self.seen.load(Ordering::Relaxed);
        !self.doubted.load(Ordering::Acquire) && !matches!(seen, OTHER | FUSE)
    }

    /// Whether the caller's op is the one by which to learn.
    pub(super) fn asks(&self) -> bool {
        let success = Ordering::AcqRel;
        self.seen.load(Ordering::Relaxed) == UNKNOWN
            && self.seen.compare_exchange(UNKNOWN, ASKING, success, Ordering::Relaxed).is_ok()
    }

    /// The op by which to learn has moved the bytes of this file, or has failed.
    pub(super) fn learn(&self, path: &CStr, moved: bool) {
        let seen = match moved {
            false => UNKNOWN,
            true => match medium::medium(path) {
                Ok(Medium::Device) => LOCAL,
                Ok(Medium::Memory) => MEMORY,
                Ok(Medium::Fuse) if fuse_is_network() => OTHER,
                Ok(Medium::Fuse) => FUSE,
                Ok(Medium::Other) => OTHER,
                Err(_) => UNKNOWN,
            },
        };
        // An op that was given up meanwhile has the last word.
        let _forgotten =
            self.seen.compare_exchange(ASKING, seen, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// An op was given up: what is mounted there may be something else by now. Says whether it is
    /// the first.
    pub(super) fn forget(&self) -> bool {
        self.seen.store(UNKNOWN, Ordering::Release);
        !self.doubted.swap(true, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_op_asks_and_what_it_saw_holds_until_an_op_is_given_up() {
        let habit = Habit::default();
        assert!(habit.few());
        assert!(habit.asks() && !habit.asks() && !habit.local());
        habit.learn(c"/dev/shm", false);
        assert!(habit.asks(), "a failure tells nothing");
        habit.learn(c"/proc/self/status", true);
        assert!(!habit.asks() && !habit.local() && !habit.few());
        assert!(habit.forget() && !habit.forget(), "the first one is told");
        let path = std::ffi::CString::new(file!()).unwrap();
        assert!(habit.asks());
        habit.learn(&path, true);
        assert!(!habit.few(), "what was given up may still have a worker");
        habit.forget();
        assert!(!habit.local());
        assert!(habit.asks());
        habit.forget();
        habit.learn(&path, true);
        assert!(!habit.local(), "it was forgotten while somebody asked");
    }
}
