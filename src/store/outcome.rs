//! Outcomes into windows, and what a change of a backend's state asks for (R20–R22, R25, R36).

use super::attempt::Attempt;
use super::chain::{ChainId, LastError, Place};
use super::core::Core;
use super::effects::Effects;
use super::types::BlockId;
use crate::clock::Time;
use crate::engine::{Done, Outcome, Tag};
use crate::error::{Cause, Error, Failure, Status};
use crate::health::class::{self, Class, Context, Operation};
use crate::health::state::{self, BackendHealth, BackendState, Blame, Transition, Why};
use crate::log::Level;

impl Core {
    pub(super) fn record_success(&mut self, lane: usize, now: Time, fx: &mut Effects) {
        self.record(lane, state::Outcome::Success, now, fx);
    }

    pub(super) fn record_failure(
        &mut self,
        lane: usize,
        block: Option<BlockId>,
        operation: Operation,
        failure: &Failure,
        now: Time,
        fx: &mut Effects,
    ) {
        if operation == Operation::Space {
            return;
        }
        let blame = Blame::new(operation, failure);
        let block = block.map(|block| block.0);
        self.record(lane, state::Outcome::Failure { block, blame }, now, fx);
    }

    /// An attempt has failed: what that says of the path, and where the chain goes.
    pub(super) fn failed(
        &mut self,
        id: ChainId,
        attempt: &Attempt,
        failure: Failure,
        now: Time,
        fx: &mut Effects,
    ) {
        let Some(chain) = self.chains.get_mut(&id) else { return };
        let (lane, block) = (attempt.lane, attempt.block);
        let context = Context::new(attempt.judged_as(), self.rules.scope);
        let class = class::classify(&failure, context);
        self.lanes[lane].stats.error(class.word(), failure.error_word());
        chain.tried |= 1 << lane;
        let status = class::status(&failure, class);
        chain.last = Some(LastError { lane, failure: failure.clone(), status });
        if class.counts() {
            self.record_failure(lane, attempt.blames(), attempt.work, &failure, now, fx);
        }
        if class.fails_over() {
            return self.retry(id, now, fx);
        }
        if class == Class::WrongSize {
            self.stats.corrupt += 1;
            self.lanes[lane].stats.corrupt += 1;
            self.count_miss(id, lane);
            self.set_aside(block, now, fx);
        }
        let Some(chain) = self.chains.get(&id) else { return };
        let what = self.describe(&chain.work, &chain.block);
        let path = self.layout.root(lane);
        let mut error = class::caller_error(path, &failure, class);
        let prefix = if class == Class::WrongSize { "CORRUPT: " } else { "" };
        error.text = format!("{prefix}{what}: {}", error.text);
        self.end(id, Err(error), now, fx);
    }

    /// Why a chain ends that no backend is left for.
    pub(super) fn no_candidate(&self, id: ChainId) -> Error {
        let Some(chain) = self.chains.get(&id) else {
            return Error::new(Status::Error, "no such chain");
        };
        let what = self.describe(&chain.work, &chain.block);
        match &chain.last {
            Some(last) => {
                let why = self.failure_text(last.lane, &last.failure);
                let tried = chain.tried.count_ones();
                Error::new(last.status, format!("{what}: {why} (backends tried: {tried})"))
            }
            None => Error::new(Status::StoreUnhealthy, format!("{what}: no backend is available")),
        }
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
                self.lanes[lane].told_clogged = false;
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

    /// The excluded backends that have answered, be it with an error, and keep nothing hanging:
    /// what close may still use to remove its own temporaries (R54).
    pub(super) fn answering(&self) -> u64 {
        let answers = |backend: &BackendHealth| {
            let errno = backend.last_failure().is_some_and(|blame| blame.errno.is_some());
            backend.state() == BackendState::Excluded && errno
        };
        let lanes = std::iter::zip(self.health.backends(), &self.lanes).enumerate();
        lanes
            .filter(|(_, (backend, lane))| answers(backend) && lane.hung.total() == 0)
            .fold(0, |mask, (at, _)| mask | 1 << at)
    }

    /// An abandoned op has returned (R29): its outcome changes no data and no task.
    pub(super) fn late(
        &mut self,
        tag: Tag,
        attempt: Attempt,
        outcome: &Outcome,
        now: Time,
        fx: &mut Effects,
    ) {
        self.stats.late_results += 1;
        self.lanes[attempt.lane].stats.late_results += 1;
        self.free_slot(&attempt);
        fx.wake_class(attempt.lane, attempt.class);
        if let Some(chain) = attempt.chain.and_then(|id| self.chains.get_mut(&id)) {
            chain.in_kernel.remove(&tag);
        }
        let Some(epoch) = attempt.abandoned else { return };
        let recorded = match self.counted(&attempt, outcome) {
            _ if attempt.work == Operation::Space => None,
            None => Some(state::Outcome::LateSuccess),
            Some(Some(failure)) => Some(state::Outcome::LateFailure {
                block: attempt.blames().map(|block| block.0),
                timed_out_at: epoch,
                blame: state::Blame::new(attempt.work, &failure),
            }),
            Some(None) => None,
        };
        if let Some(outcome) = recorded {
            self.record(attempt.lane, outcome, now, fx);
        }
        self.after_creation(&attempt, now, fx);
    }

    /// `None`: a success. `Some(None)`: says nothing about the path.
    fn counted(&self, attempt: &Attempt, outcome: &Outcome) -> Option<Option<Failure>> {
        let failure = match outcome {
            Ok(Done::Infos(_, Some(failure)) | Done::Touched(_, Some(failure))) | Err(failure) => {
                failure
            }
            Ok(_) => return None,
        };
        if attempt.expects(failure) {
            return Some(None);
        }
        let context = Context::new(attempt.judged_as(), self.rules.scope);
        Some(class::classify(failure, context).counts().then(|| failure.clone()))
    }

    /// An attempt whose chain ended without it has come back within its limit: recorded as what it
    /// was (R28).
    pub(super) fn watched(
        &mut self,
        attempt: &Attempt,
        outcome: &Outcome,
        now: Time,
        fx: &mut Effects,
    ) {
        self.free_slot(attempt);
        self.count_attempt(attempt, now);
        fx.wake_class(attempt.lane, attempt.class);
        match self.counted(attempt, outcome) {
            // R20: what follows from work that was an outcome is none.
            None if attempt.is_chore => {}
            None => self.record_success(attempt.lane, now, fx),
            Some(Some(failure)) => {
                let (lane, block) = (attempt.lane, attempt.blames());
                self.count_error(lane, Class::Path, &failure);
                self.record_failure(lane, block, attempt.work, &failure, now, fx);
            }
            Some(None) => {}
        }
        self.after_creation(attempt, now, fx);
    }
}

/// ENOENT of the file itself.
pub(super) fn is_missing(failure: &Failure) -> bool {
    failure.os() == Some(libc::ENOENT)
}

/// The file may not be changed, by this user or by anybody: that says nothing about the path.
pub(super) fn is_refused(failure: &Failure) -> bool {
    matches!(failure.os(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
}

/// A size that may be an old view of the file. What is no regular file is none, and opening it a
/// second time may hang (a FIFO).
pub(super) fn may_be_stale(failure: &Failure) -> bool {
    matches!(failure.cause, Cause::WrongSize { found: Some(_), .. })
}
