//! Outcomes into windows, and what a change of a backend's state asks for (R20–R22, R25, R36).

use super::chain::Place;
use super::core::Core;
use super::effects::Effects;
use super::types::BlockId;
use crate::clock::Time;
use crate::error::Failure;
use crate::health::class::Operation;
use crate::health::state::{self, BackendState, Blame, Transition, Why};
use crate::log::Level;

impl Core {
    pub(super) fn record_success(&mut self, lane: usize, now: Time, fx: &mut Effects) {
        self.record(lane, state::Outcome::Success, now, fx);
    }

    pub(super) fn record_failure(
        &mut self,
        lane: usize,
        block: BlockId,
        operation: Operation,
        failure: &Failure,
        now: Time,
        fx: &mut Effects,
    ) {
        let blame = Blame::new(operation, failure);
        // A sweep is about no block of anybody's.
        let block = (operation != Operation::Collect).then_some(block.0);
        self.record(lane, state::Outcome::Failure { block, blame }, now, fx);
    }

    /// Takes an outcome into a backend's window, and does what a change of state asks for (R21,
    /// R25, R36).
    pub(super) fn record(
        &mut self,
        lane: usize,
        outcome: state::Outcome,
        now: Time,
        fx: &mut Effects,
    ) {
        let transition = self.health.record(lane, outcome, now);
        if let Some(transition) = transition {
            self.changed(&transition, now, fx);
        }
    }

    /// A backend's state has changed.
    pub(super) fn changed(&mut self, transition: &Transition, now: Time, fx: &mut Effects) {
        let lane = transition.backend;
        self.mask.store(self.health.available_mask(), std::sync::atomic::Ordering::Release);
        let (level, id) = match (transition.to, &transition.why) {
            (_, Why::Operator(_)) => (Level::Warn, "KV2003"),
            (BackendState::Available, _) => (Level::Warn, "KV2002"),
            (BackendState::Excluded | BackendState::Out, _) => (Level::Error, "KV2001"),
        };
        fx.log(level, id, transition.describe(self.layout.root(lane)));
        // The monitor has work, or the breaker another health to look at.
        fx.health_changed = true;
        match transition.to {
            BackendState::Available => {
                self.lanes[lane].marker_seen = None;
                self.discard_leftovers(now, fx);
            }
            BackendState::Excluded | BackendState::Out => {
                // R36: what waits moves on at once; that is no attempt.
                for id in self.lanes[lane].drain() {
                    let waits = |place| place == Place::Queued(lane);
                    if self.chains.get(&id).is_some_and(|chain| waits(chain.place)) {
                        self.route(id, now, fx);
                    }
                }
            }
        }
    }
}
