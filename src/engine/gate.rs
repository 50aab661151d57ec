//! The gate of an attempt: the one-step claim that isolates the caller's memory (R30).
//!
//! A worker is *inside* while it touches the caller's memory (or, in `borrowed` mode, for the whole
//! op). Whoever ends the attempt revokes the gate: nobody enters after that. If a worker is inside
//! at that moment, the end is *pending*: the worker finds out when it leaves, stops, and reports
//! its op; only then is the attempt over. The gate knows nothing of time, tasks or health.

use crate::sync::{AtomicI32, AtomicU8, Ordering};

const OPEN: u8 = 0;
const INSIDE: u8 = 1;
/// A bit of its own: INSIDE | REVOKED is a revoke that waits for the visit to end.
const REVOKED: u8 = 2;

/// See the module's text. Starts open.
#[derive(Debug, Default)]
pub struct Gate {
    state: AtomicU8,
    /// errno of the local shortage that a worker is waiting out, else 0.
    local: AtomicI32,
}

impl Gate {
    /// An open gate.
    #[must_use]
    pub fn new() -> Gate {
        Gate::default()
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
        self.local.store(errno, Ordering::Release);
    }

    /// The errno of a local shortage that is being waited out, if any.
    #[must_use]
    pub fn local(&self) -> Option<i32> {
        match self.local.load(Ordering::Acquire) {
            0 => None,
            errno => Some(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_enters_a_revoked_gate() {
        let gate = Gate::new();
        assert!(gate.enter());
        assert!(gate.leave());
        assert!(gate.revoke());
        assert!(!gate.enter());
        assert!(gate.revoked());
    }

    #[test]
    fn a_revoke_during_a_visit_is_pending_until_it_ends() {
        let gate = Gate::new();
        assert!(gate.enter());
        assert!(!gate.revoke());
        assert!(gate.revoked());
        assert!(!gate.leave());
        assert!(gate.revoke());
        assert!(!gate.enter());
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
                gate: Gate::new(),
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
                gate: Gate::new(),
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
