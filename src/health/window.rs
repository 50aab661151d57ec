//! The window (R20): the last W outcomes of one backend, and what they add up to.
//!
//! Pure arithmetic: it knows nothing of time, of states or of where an outcome came from. Owned by
//! the state of one backend, or by the breaker.

/// Names the block that a failure happened on.
pub type BlockKey = [u8; 16];

/// One outcome in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Success,
    Failure(Option<BlockKey>),
}

/// What the health rules are counted by (R21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// W: outcomes in a window, at least 1.
    pub window: usize,
    /// Failures that exclude, from 1 to `window`.
    pub threshold: usize,
}

/// A ring of the last W outcomes. Counted by outcomes, never by time.
#[derive(Debug, Clone)]
pub struct Window {
    slots: Vec<Slot>,
    capacity: usize,
    /// The oldest slot, which the next outcome replaces; meaningful once the ring is full.
    oldest: usize,
    failures: usize,
}

impl Window {
    /// An empty window for `capacity` outcomes (at least one).
    #[must_use]
    pub fn new(capacity: usize) -> Window {
        let capacity = capacity.max(1);
        Window { slots: Vec::with_capacity(capacity), capacity, oldest: 0, failures: 0 }
    }

    /// Outcomes held.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.slots.len()
    }

    /// Failures held.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.failures
    }

    /// The next outcome pushes an older one out.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.slots.len() == self.capacity
    }

    /// Full, and without a failure: what a backend needs to come back (R21).
    #[must_use]
    pub fn is_full_and_clean(&self) -> bool {
        self.is_full() && self.failures == 0
    }

    /// Holds a failure on this block (the one-bad-block rule of R22).
    #[must_use]
    pub fn holds_failure_of(&self, block: &BlockKey) -> bool {
        // Nearly always there is none, and the caller is on the path of every transfer.
        self.failures > 0
            && self.slots.iter().any(|slot| matches!(slot, Slot::Failure(Some(b)) if b == block))
    }

    /// Adds a success.
    pub fn push_success(&mut self) {
        self.push(Slot::Success);
    }

    /// Adds a failure, with the block that it happened on where there is one.
    pub fn push_failure(&mut self, block: Option<BlockKey>) {
        self.push(Slot::Failure(block));
    }

    fn push(&mut self, slot: Slot) {
        if matches!(slot, Slot::Failure(_)) {
            self.failures += 1;
        }
        if !self.is_full() {
            self.slots.push(slot);
            return;
        }
        let pushed_out = std::mem::replace(&mut self.slots[self.oldest], slot);
        if matches!(pushed_out, Slot::Failure(_)) {
            self.failures -= 1;
        }
        self.oldest = (self.oldest + 1) % self.capacity;
    }

    /// Whether the window's owner is excluded after this, having been `excluded` before (R21).
    #[must_use]
    pub fn excludes(&self, excluded: bool, threshold: usize) -> bool {
        if excluded { !self.is_full_and_clean() } else { self.failures >= threshold }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r20_counts_the_last_outcomes_only() {
        let mut window = Window::new(3);
        assert_eq!((window.samples(), window.failures()), (0, 0));
        assert!(!window.is_full_and_clean(), "an empty window proves nothing");
        window.push_failure(None);
        window.push_success();
        window.push_success();
        assert_eq!((window.samples(), window.failures()), (3, 1));
        assert!(window.is_full() && !window.is_full_and_clean());
        window.push_success();
        assert_eq!((window.samples(), window.failures()), (3, 0));
        assert!(window.is_full_and_clean());
        window.push_failure(None);
        window.push_failure(None);
        window.push_failure(None);
        window.push_failure(None);
        assert_eq!((window.samples(), window.failures()), (3, 3));
    }

    #[test]
    fn r22_a_block_is_forgotten_with_its_failure() {
        let (a, b) = ([1; 16], [2; 16]);
        let mut window = Window::new(2);
        window.push_failure(Some(a));
        assert!(window.holds_failure_of(&a));
        assert!(!window.holds_failure_of(&b));
        window.push_success();
        assert!(window.holds_failure_of(&a));
        window.push_success();
        assert!(!window.holds_failure_of(&a));
        window.push_failure(None);
        assert!(!window.holds_failure_of(&a), "a failure without a block is of no block");
    }

    #[test]
    fn r21_threshold_needs_no_full_window_and_return_needs_one() {
        let mut window = Window::new(8);
        window.push_failure(None);
        assert!(!window.excludes(false, 2));
        window.push_failure(None);
        assert!(window.excludes(false, 2));
        for _ in 0..7 {
            window.push_success();
            assert!(window.excludes(true, 2));
        }
        window.push_success();
        assert!(!window.excludes(true, 2));
        assert!(!window.excludes(false, 2));
    }

    #[test]
    fn the_smallest_window_holds_one() {
        let mut window = Window::new(1);
        window.push_failure(None);
        assert!(window.excludes(false, 1));
        window.push_success();
        assert!(!window.excludes(true, 1));
        assert_eq!(window.samples(), 1);
    }
}
