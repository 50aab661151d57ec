//! Chains from backend to backend: route, record, go on, end (R15, R16, R20–R22, R27–R29, R36).

use std::sync::atomic::Ordering;

use super::attempt::{Attempt, Pending};
use super::chain::{Chain, ChainId, Class, LastError, Place, Shards, Work};
use super::core::Core;
use super::effects::Effects;
use super::generations::Leftover;
use super::layout::QUARANTINE;
use super::routing;
use super::step::Verdict;
use super::submit;
use crate::clock::Time;
use crate::engine::{Done, Outcome, Tag};
use crate::error::{Cause, Error, Failure, Status, Step};
use crate::health::class::Operation;
use crate::log::Level;

/// What the store was doing, for texts and classes.
pub(super) fn operation(work: &Work) -> Operation {
    match work {
        Work::Load(_) => Operation::Load,
        Work::Dump { .. } => Operation::Dump,
        Work::Commit { .. } => Operation::Commit,
        Work::Lookup { .. } => Operation::Lookup,
        Work::Remove { .. } => Operation::Remove,
        Work::Discard { .. } | Work::Chore { .. } | Work::SetAside => Operation::Collect,
        Work::Refresh { .. } => Operation::Hotness,
        Work::Space { .. } => Operation::Space,
    }
}

impl Core {
    /// Sends a chain to its next candidate, or ends it where none is left (R15, R16).
    pub(super) fn route(&mut self, id: ChainId, now: Time, fx: &mut Effects) {
        if self.over {
            return self.end(id, Err(submit::closed()), now, fx);
        }
        loop {
            let Some(chain) = self.chains.get(&id) else { return };
            let n = self.lanes.len();
            let last_resort = self.closing && matches!(chain.work, Work::Discard { .. });
            let (primary, tried) = (chain.primary, chain.tried);
            let next = |mask| routing::next(primary, n, mask, tried);
            // R18: what everybody reads; the table behind it is not gone through for each chain.
            let lane = next(self.mask.load(Ordering::Acquire))
                .or_else(|| next(if last_resort { self.answering() } else { 0 }));
            let Some(chain) = self.chains.get_mut(&id) else { return };
            let Some(lane) = lane else {
                if chain.spared != 0 {
                    chain.tried &= !std::mem::take(&mut chain.spared);
                    continue;
                }
                let error = self.no_candidate(id);
                return self.end(id, Err(error), now, fx);
            };
            let chain_class = chain.work.class();
            let operation = operation(&chain.work);
            let epoch = self.health.backends()[lane].epoch();
            if self.lanes[lane].too_many_abandoned(epoch) {
                let cause = Cause::TooManyAbandoned(self.lanes[lane].hung.total());
                let failure = Failure { step: Step::Open, cause };
                chain.tried |= 1 << lane;
                chain.last =
                    Some(LastError { lane, failure: failure.clone(), status: Status::OsError });
                let block = chain.work.is_of_one_file().then_some(chain.block);
                self.record_failure(lane, block, operation, &failure, now, fx);
                continue;
            }
            if self.takes_detour(id, lane, now, fx) {
                return;
            }
            if let Some(chain) = self.chains.get_mut(&id) {
                chain.place = Place::Queued(lane);
            }
            self.lanes[lane].push(chain_class, id);
            return match chain_class {
                Class::Idle => fx.wake_idle(lane, self.lanes[lane].idle_max()),
                class => fx.wake_class(lane, class),
            };
        }
    }

    /// A running attempt's op has come back.
    pub(super) fn advance(
        &mut self,
        tag: Tag,
        mut attempt: Attempt,
        outcome: Outcome,
        now: Time,
        fx: &mut Effects,
    ) {
        let Some(id) = attempt.chain else { return };
        let verdict = self.verdict(&mut attempt, id, outcome, now, fx);
        let pending = attempt.pending.take();
        // A time-out was counted when it was one.
        let counts = !matches!(pending, Some(Pending::TimedOut));
        let verdict = match (verdict, pending) {
            (verdict, None) => verdict,
            (Verdict::Success(done), Some(_)) => Verdict::Success(done),
            (Verdict::NotFound, Some(_)) => Verdict::NotFound,
            (_, Some(Pending::TimedOut)) => {
                // The window knows already; only the chain has to go on.
                let failure = self.timed_out(&attempt);
                self.free_slot(&attempt);
                self.go_on(id, attempt.lane, failure, Status::Timeout, now, fx);
                return self.after_creation(&attempt, now, fx);
            }
            (_, Some(Pending::End(error))) => {
                // Nothing was learned about the path: the attempt was cut short.
                self.free_slot(&attempt);
                self.chain_left(id, tag);
                self.end(id, Err(error), now, fx);
                return self.after_creation(&attempt, now, fx);
            }
        };
        match verdict {
            Verdict::Next(step) => {
                let next = self.new_tag();
                self.step_begins(id, attempt.lane, &step);
                attempt.step = step;
                attempt.waiting = Some(now);
                if let Some(chain) = self.chains.get_mut(&id) {
                    chain.place = Place::Running(next);
                }
                let (lane, class) = (attempt.lane, attempt.class);
                self.lanes[lane].continuations.push_back((next, class));
                self.attempts.insert(next, attempt);
                fx.wake_class(lane, class);
            }
            other => {
                self.free_slot(&attempt);
                if attempt.class == Class::Idle && self.lanes[attempt.lane].waits(Class::Idle) {
                    // Not told of while there was no slot (`wake_idle`).
                    fx.wake_class(attempt.lane, Class::Idle);
                }
                if counts {
                    self.count_attempt(&attempt, now);
                }
                let block = attempt.block;
                let mut live = |generation| self.blocks.live(&block, generation).is_some();
                let was_live = attempt.creates.is_some_and(&mut live);
                self.settle(id, &attempt, other, now, fx);
                if !was_live {
                    // What ends here has removed its temporary itself.
                    self.after_creation(&attempt, now, fx);
                }
            }
        }
    }

    fn chain_left(&mut self, id: ChainId, tag: Tag) {
        if let Some(chain) = self.chains.get_mut(&id) {
            chain.in_kernel.remove(&tag);
            chain.place = Place::Parked;
        }
    }

    /// The attempt of a chain is over; the chain goes on or ends.
    fn settle(
        &mut self,
        id: ChainId,
        attempt: &Attempt,
        verdict: Verdict,
        now: Time,
        fx: &mut Effects,
    ) {
        let lane = attempt.lane;
        let Some(chain) = self.chains.get_mut(&id) else { return };
        chain.place = Place::Parked;
        match verdict {
            Verdict::Next(_) => {}
            Verdict::Success(done) => {
                if !attempt.is_chore {
                    self.record_success(lane, now, fx);
                }
                self.count_success(id, lane);
                if self.chains.get(&id).is_some_and(|chain| chain.went_from(lane)) {
                    self.stats.failovers += 1;
                }
                self.succeed(id, lane, done, now, fx);
            }
            Verdict::NotFound => {
                self.count_miss(id, lane);
                let what = self.chains.get(&id).map(|chain| {
                    let what = self.describe(&chain.work, &chain.block);
                    Error::new(Status::NotFound, format!("{what}: no such block"))
                });
                let error = what.unwrap_or_else(|| Error::new(Status::NotFound, "not found"));
                self.end(id, Err(error), now, fx);
            }
            Verdict::Vanished(failure) => {
                chain.vanished = true;
                self.go_on(id, lane, failure, Status::OsError, now, fx);
            }
            Verdict::Looked(outcome) => self.look_settled(id, attempt, outcome, now, fx),
            Verdict::Fail(failure) => self.failed(id, attempt, failure, now, fx),
        }
    }

    /// The chain leaves a backend that failed it.
    pub(super) fn go_on(
        &mut self,
        id: ChainId,
        lane: usize,
        failure: Failure,
        status: Status,
        now: Time,
        fx: &mut Effects,
    ) {
        if self.look_ended(id, Some(lane)) {
            return self.route(id, now, fx);
        }
        let Some(chain) = self.chains.get_mut(&id) else { return };
        chain.place = Place::Parked;
        chain.tried |= 1 << lane;
        chain.last = Some(LastError { lane, failure, status });
        self.retry(id, now, fx);
    }

    /// Goes on to the next candidate, unless the store closes (R54: without retry, but its own
    /// temporaries go, and so does its lease).
    pub(super) fn retry(&mut self, id: ChainId, now: Time, fx: &mut Effects) {
        let goes_on =
            |chain: &Chain| matches!(chain.work, Work::Discard { .. } | Work::Chore { .. });
        if self.closing && !self.chains.get(&id).is_some_and(goes_on) {
            let error = self.no_candidate(id);
            return self.end(id, Err(error), now, fx);
        }
        if self.sync_failed(id, now, fx) {
            return;
        }
        self.route(id, now, fx);
    }

    fn succeed(&mut self, id: ChainId, lane: usize, done: Done, now: Time, fx: &mut Effects) {
        let Some(chain) = self.chains.get(&id) else { return };
        match &chain.work {
            Work::Dump { .. } => {
                let direct = matches!(done, Done::Written { durable: true });
                self.dump_succeeded(id, lane, direct, now, fx);
            }
            Work::Commit { detour: Some(_), .. } => self.detour_done(id, now, fx),
            Work::Chore { .. } => {
                self.chore_done(id, done);
                self.end(id, Ok(()), now, fx);
            }
            Work::SetAside => {
                if done != Done::Left {
                    self.stats.quarantined_files += 1;
                    let (root, block) = (self.layout.root(lane), chain.block);
                    let text = format!(
                        "backend {root}: the file of block {block}, not a whole \
                                        block, was moved to {QUARANTINE}"
                    );
                    fx.log(Level::Warn, "KV4007", text);
                }
                self.end(id, Ok(()), now, fx);
            }
            Work::Space { lane } => {
                if let Done::Space(space) = done {
                    self.learn_room(*lane, Some(space), now);
                }
                self.end(id, Ok(()), now, fx);
            }
            _ => self.end(id, Ok(()), now, fx),
        }
    }

    /// Ends a chain and tells whoever waits for it.
    pub(super) fn end(
        &mut self,
        id: ChainId,
        result: Result<(), Error>,
        now: Time,
        fx: &mut Effects,
    ) {
        let Some(chain) = self.chains.remove(&id) else { return };
        // R5: bytes may still arrive in this file, or it is gone: it is never committed.
        let close = chain.vanished || !chain.in_kernel.is_empty();
        match chain.work {
            Work::Load(shards) => {
                if result.is_ok() {
                    self.hit(chain.block, now, fx);
                }
                self.load_ended(&shards, &result, now, fx);
            }
            Work::Dump { shards, generation, also, .. } => {
                // Success came through dump_succeeded.
                let generation = (chain.block, generation);
                self.dump_failed(id, generation, &shards, &result, close, now, fx);
                self.tell(also, &result, now, fx);
            }
            Work::Commit { generation, waiters, syncing, .. } => {
                if let Some(lane) = syncing
                    && let Some(progress) = self.blocks.live(&chain.block, generation)
                {
                    // Given up with its chain: what it left unsynced is not trusted again.
                    progress.lose(lane);
                }
                let generation = (chain.block, generation);
                self.commit_ended(generation, waiters, &result, chain.vanished, now, fx);
            }
            Work::Remove { call, position } => {
                let errors = self.removed(position, result);
                self.end_part(call, errors, fx);
            }
            Work::Lookup { call, open, .. } => {
                let errors = result.err().filter(|error| error.status != Status::NotFound);
                let errors = errors.map_or_else(Vec::new, |error| {
                    open.iter().map(|(at, _)| (*at, error.clone())).collect()
                });
                self.end_part(call, errors, fx);
            }
            Work::Discard { generation, named } => match result {
                Err(error) if error.status != Status::NotFound => {
                    self.keep_leftover(Leftover { block: chain.block, generation, named });
                }
                _ if named && self.discarded(&chain.block, generation) => {}
                // A path works: whatever was left behind goes too.
                _ if !self.leftovers.is_empty() => self.discard_leftovers(now, fx),
                _ => {}
            },
            Work::Refresh { blocks, hits, .. } => self.refreshed(hits, blocks.len(), &result),
            Work::Space { lane } => self.room_ended(lane, result.is_ok()),
            Work::Chore { call, position, .. } => {
                let errors = result.err().map(|error| (position, error));
                self.end_part(call, errors.into_iter().collect(), fx);
            }
            Work::SetAside => self.set_aside_ended(chain.block, &result, fx),
        }
        self.note_quiet(fx);
    }

    fn removed(&mut self, at: usize, result: Result<(), Error>) -> Vec<(usize, Error)> {
        match result {
            Ok(()) => self.stats.removed_blocks += 1,
            Err(error) if error.status == Status::NotFound => {}
            Err(error) => return vec![(at, error)],
        }
        Vec::new()
    }

    fn load_ended(
        &mut self,
        shards: &Shards,
        result: &Result<(), Error>,
        now: Time,
        fx: &mut Effects,
    ) {
        match result {
            Ok(()) => {
                self.stats.loaded_shards += shards.count() as u64;
                self.stats.loaded_bytes += shards.memory.bytes();
            }
            Err(error) => self.stats.load_misses += u64::from(error.status == Status::NotFound),
        }
        self.end_positions(shards.task, &shards.positions, result, now, fx);
    }

    /// Ends positions of a task.
    pub(super) fn end_positions(
        &mut self,
        task: u64,
        positions: &[usize],
        result: &Result<(), Error>,
        now: Time,
        fx: &mut Effects,
    ) {
        if let Some(ended) = self.tasks.end(task, positions, result) {
            self.stats.tasks_finished += 1;
            self.count_task(ended.kind, ended.began, now);
            fx.finished.push(ended.cell);
            fx.listed = true;
        }
    }

    /// Ends one part of a call.
    pub(super) fn end_part(&mut self, call: u64, errors: Vec<(usize, Error)>, fx: &mut Effects) {
        fx.finished.extend(self.calls.end_part(call, errors));
    }

    pub(super) fn timed_out(&self, attempt: &Attempt) -> Failure {
        let limit = attempt.limit.map_or(0, |limit| {
            u64::try_from(limit.since(attempt.started).as_millis()).unwrap_or(u64::MAX)
        });
        Failure { step: attempt.word(), cause: Cause::TimedOut(limit) }
    }
}
