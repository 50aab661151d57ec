//! The gate of an attempt: the one-step claim that isolates the caller's memory (R30).
//!
//! A worker is *inside* while it touches the caller's memory (or, in `borrowed` mode, for the whole
//! op). Whoever ends the attempt revokes the gate: nobody enters after that. If a worker is inside
//! at that moment, the end is *pending*: the worker finds out when it leaves, stops, and reports
//! its op; only then is the attempt over. The gate knows nothing of limits, tasks or health.

use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::sync::{AtomicI32, AtomicU8, AtomicU64, Ordering, fence};

/// A call that is made again after a shortage is answered before, or it hangs on the path. Long
/// enough for a busy path; whoever waits for a resource is heard of sooner.
pub const HANGS_AFTER: Duration = Duration::from_secs(1);

const OPEN: u8 = 0;
const INSIDE: u8 = 1;
/// A bit of its own: INSIDE | REVOKED is a revoke that waits for the visit to end.
const REVOKED: u8 = 2;

/// See the module's text. Starts open.
#[derive(Debug)]
pub struct Gate {
    state: AtomicU8,
    /// errno of the local shortage that a worker is waiting out, else 0.
    local: AtomicI32,
    /// When the call that met the shortage was made again, in nanoseconds; 0: it waits.
    again_ns: AtomicU64,
    clock: Clock,
}

impl Gate {
    /// An open gate. `clock`: that of whoever judges the op.
    #[must_use]
    pub fn new(clock: Clock) -> Gate {
        Gate {
            state: AtomicU8::new(OPEN),
            local: AtomicI32::new(0),
            again_ns: AtomicU64::new(0),
            clock,
        }
    }

    /// Enters, unless the gate is revoked. One worker at a time: an op never runs on two.
    #[must_use]
    pub fn enter(&self) -> bool {
        self.state.compare_exchange(OPEN, INSIDE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Leaves; `false` means that the gate was revoked meanwhile and the op must stop.
    #[must_use]
    pub fn leave(&self) -> bool {
        if self.state.compare_exchange(INSIDE, OPEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return true;
        }
        self.state.store(REVOKED, Ordering::Release);
        false
    }

    /// Revokes. `true`: nobody is inside and nobody enters any more. `false`: a worker is inside;
    /// it will stop when it leaves and report its op. Calling it again gives the present answer.
    #[must_use]
    pub fn revoke(&self) -> bool {
        let seen = self.state.fetch_or(REVOKED, Ordering::AcqRel);
        seen & INSIDE == 0
    }

    /// Whether the op must not begin a further step.
    #[must_use]
    pub fn revoked(&self) -> bool {
        self.state.load(Ordering::Acquire) & REVOKED != 0
    }

    /// Notes the errno of the local shortage that is being waited out; 0 when it is over.
    pub fn set_local(&self, errno: i32) {
        self.again_ns.store(0, Ordering::Release);
        self.local.store(errno, Ordering::Release);
        // As in `call_again`: what follows looks whether it is revoked.
        fence(Ordering::SeqCst);
    }

    /// The call that met the shortage is about to be made again, unless the gate is revoked.
    pub fn call_again(&self) {
        let now = u64::try_from(self.clock.now().0.as_nanos()).unwrap_or(u64::MAX);
        self.again_ns.store(now.max(1), Ordering::Release);
        // Whoever revokes and then asks sees this, or the worker sees that it is revoked.
        fence(Ordering::SeqCst);
    }

    /// The errno of a local shortage that is being waited out, if any: not where the call was made
    /// again and has hung since, which is the path's fault.
    #[must_use]
    pub fn local(&self, now: Time) -> Option<i32> {
        let errno = self.local.load(Ordering::Acquire);
        let again = self.again_ns.load(Ordering::Acquire);
        let hangs = again > 0 && now.since(Time(Duration::from_nanos(again))) >= HANGS_AFTER;
        (errno != 0 && !hangs).then_some(errno)
    }

    /// Whether a revoked op may be in the call that met a shortage.
    #[must_use]
    pub fn is_in_call(&self) -> bool {
        fence(Ordering::SeqCst);
        self.again_ns.load(Ordering::Acquire) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_enters_a_revoked_gate() {
        let gate = Gate::new(Clock::monotonic());
        assert!(gate.enter());
        assert!(gate.leave());
        assert!(gate.revoke());
        assert!(!gate.enter());
        assert!(gate.revoked());
    }

    #[test]
    fn a_revoke_during_a_visit_is_pending_until_it_ends() {
        let gate = Gate::new(Clock::monotonic());
        assert!(gate.enter());
        assert!(!gate.revoke());
        assert!(gate.revoked());
        assert!(!gate.leave());
        assert!(gate.revoke());
        assert!(!gate.enter());
    }
}

#[cfg(all(test, not(loom)))]
mod shortage_tests {
    use super::*;

    #[test]
    fn r22_a_shortage_is_one_until_the_call_that_is_made_again_hangs() {
        let clock = Clock::manual();
        let gate = Gate::new(clock.clone());
        let local = || gate.local(clock.now());
        assert_eq!(local(), None);
        gate.set_local(libc::EMFILE);
        clock.advance(HANGS_AFTER);
        assert_eq!((local(), gate.is_in_call()), (Some(libc::EMFILE), false), "it waits");
        gate.call_again();
        assert_eq!((local(), gate.is_in_call()), (Some(libc::EMFILE), true));
        clock.advance(HANGS_AFTER);
        assert_eq!(local(), None, "it hangs");
        gate.set_local(libc::EMFILE);
        assert_eq!(local(), Some(libc::EMFILE), "it was refused again");
        gate.set_local(0);
        assert_eq!((local(), gate.is_in_call()), (None, false));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// The caller's memory, which loom watches: two at once is a failure.
    struct Shared {
        gate: Gate,
        memory: UnsafeCell<u32>,
        reported: crate::sync::AtomicBool,
    }

    /// A worker that copies piece after piece, as long as it may.
    fn work(shared: &Shared, pieces: u32) {
        for _ in 0..pieces {
            if !shared.gate.enter() {
                return;
            }
            // SAFETY: inside the gate; loom checks that nobody else has it.
            shared.memory.with_mut(|memory| unsafe { *memory += 1 });
            if !shared.gate.leave() {
                shared.reported.store(true, Ordering::Release);
                return;
            }
        }
    }

    #[test]
    fn loom_whoever_revoked_has_the_memory_alone() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                gate: Gate::new(Clock::monotonic()),
                memory: UnsafeCell::new(0),
                reported: crate::sync::AtomicBool::new(false),
            });
            let worker = Arc::clone(&shared);
            let worker = loom::thread::spawn(move || work(&worker, 2));
            let alone = shared.gate.revoke();
            if alone || shared.reported.load(Ordering::Acquire) {
                // SAFETY: nobody is inside, and nobody enters any more.
                shared.memory.with_mut(|memory| unsafe { *memory = 0 });
            }
            assert!(!shared.gate.enter() && shared.gate.revoked());
            worker.join().unwrap();
            assert!(alone || shared.reported.load(Ordering::Acquire), "the end was told");
            assert!(shared.gate.revoke());
        });
    }

    /// Revokes; whoever is told that nobody is inside looks at the memory.
    fn ended(shared: &Shared) -> bool {
        let alone = shared.gate.revoke();
        if alone {
            // SAFETY: nobody writes any more; loom checks that.
            shared.memory.with(|memory| assert!(unsafe { *memory } <= 1));
        }
        alone
    }

    /// The judge and the task's end revoke at once: each knows whether the worker will report.
    #[test]
    fn loom_two_who_revoke_agree() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                gate: Gate::new(Clock::monotonic()),
                memory: UnsafeCell::new(0),
                reported: crate::sync::AtomicBool::new(false),
            });
            let (worker, other) = (Arc::clone(&shared), Arc::clone(&shared));
            let worker = loom::thread::spawn(move || work(&worker, 1));
            let other = loom::thread::spawn(move || ended(&other));
            let mine = ended(&shared);
            let theirs = other.join().unwrap();
            worker.join().unwrap();
            let reported = shared.reported.load(Ordering::Acquire);
            // Who found the worker inside waits for its report.
            assert!(reported || (mine && theirs));
        });
    }
}
