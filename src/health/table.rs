//! The health of all backends of a store, and the last transitions (R18, R25, R55).
//!
//! Pure; the store's core owns it and publishes [`HealthTable::available_mask`] to the readers that
//! take no lock.

use std::collections::VecDeque;

use super::state::{BackendHealth, BackendState, Outcome, Setting, Transition};
use crate::clock::Time;

/// Transitions that the health report shows.
pub const TRANSITIONS_KEPT: usize = 64;

/// Most backends of a store (R3); one bit each in the mask.
pub const MAX_BACKENDS: usize = 64;

/// All backends, in the order of the configuration.
#[derive(Debug)]
pub struct HealthTable {
    backends: Vec<BackendHealth>,
    transitions: VecDeque<Transition>,
}

impl HealthTable {
    /// Takes the backends over, in order; at most [`MAX_BACKENDS`].
    #[must_use]
    pub fn new(backends: Vec<BackendHealth>) -> HealthTable {
        debug_assert!(backends.len() <= MAX_BACKENDS);
        HealthTable { backends, transitions: VecDeque::with_capacity(TRANSITIONS_KEPT) }
    }

    /// Takes an outcome of a backend in. The transition, where there is one, is kept and given.
    pub fn record(&mut self, backend: usize, outcome: Outcome, now: Time) -> Option<Transition> {
        let transition = self.backends.get_mut(backend)?.record(outcome, now)?;
        Some(self.keep(transition))
    }

    /// An operator's word about a backend.
    pub fn set(&mut self, backend: usize, setting: Setting, now: Time) -> Option<Transition> {
        let transition = self.backends.get_mut(backend)?.set(setting, now)?;
        Some(self.keep(transition))
    }

    fn keep(&mut self, transition: Transition) -> Transition {
        if self.transitions.len() == TRANSITIONS_KEPT {
            self.transitions.pop_front();
        }
        self.transitions.push_back(transition.clone());
        transition
    }

    /// One bit a backend: set where it is available.
    #[must_use]
    pub fn available_mask(&self) -> u64 {
        let is_available = |backend: &BackendHealth| backend.state() == BackendState::Available;
        self.backends
            .iter()
            .take(MAX_BACKENDS)
            .enumerate()
            .filter(|(_, backend)| is_available(backend))
            .fold(0, |mask, (index, _)| mask | 1 << index)
    }

    /// What a recovery round probes: the excluded backends, in order (R51).
    #[must_use]
    pub fn excluded(&self) -> Vec<usize> {
        let is_excluded = |index: &usize| self.backends[*index].state() == BackendState::Excluded;
        (0..self.backends.len()).filter(is_excluded).collect()
    }

    /// The backends, in order.
    #[must_use]
    pub fn backends(&self) -> &[BackendHealth] {
        &self.backends
    }

    /// The last transitions of all backends, oldest first.
    pub fn transitions(&self) -> impl ExactSizeIterator<Item = &Transition> {
        self.transitions.iter()
    }
}
