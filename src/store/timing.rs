//! Limits: what the judge does when time has passed, and what happens to attempts that outlive
//! their chain (R28, R29, R32). The judge never touches the file system; it only moves tables.

use std::time::Duration;

use super::attempt::{Attempt, Pending};
use super::chain::{ChainId, Class, Place, Waiter, Work};
use super::core::Core;
use super::effects::Effects;
use crate::clock::Time;
use crate::engine::Tag;
use crate::error::{Error, Failure, Status, Step};
use crate::log::Level;

/// A judge that wakes this much later than armed has slept (SIGSTOP, a paused VM), and so have the
/// workers (R28).
pub const OVERSLEPT: Duration = Duration::from_millis(100);
/// After such a sleep the workers get this long to report what came back meanwhile (R28: harvest
/// first). What was due when the judge woke would be due again at that same moment otherwise.
pub const HARVEST: Duration = Duration::from_millis(500);

impl Attempt {
    /// The step, in the words of texts.
    pub(super) fn word(&self) -> Step {
        use super::step::Step as S;
        match (&self.step, self.class) {
            (S::Main, Class::Load) | (S::Marker(_), _) => Step::Read,
            (S::Main, Class::Dump) | (S::LookAnew, _) => Step::Write,
            (S::Main, Class::Lookup) | (S::StatFinal { .. } | S::Room, _) => Step::Stat,
            (S::Main, Class::Idle) => Step::List,
            (S::Main, Class::Lease) => Step::Touch,
            (S::Main, Class::Metadata) | (S::DropTemporary | S::DropFinal, _) => Step::Remove,
            (S::MakeDir, _) => Step::Mkdir,
            (S::SyncTemporary | S::SyncFinal | S::SyncDir | S::SyncRoot, _) => Step::Fsync,
            (S::Rename { .. }, _) => Step::Rename,
            (S::Refresh | S::TouchFinal { .. }, _) => Step::Touch,
            (S::Space, _) => Step::Stat,
        }
    }

    /// An answer that a path in good order gives too: the name is taken, or gone, or a call that a
    /// file system need not have is refused. A running attempt goes on to its next step then.
    pub(super) fn expects(&self, failure: &Failure) -> bool {
        use super::step::Step as S;
        let Some(errno) = failure.os() else { return false };
        match (&self.step, errno) {
            (S::Marker(_), _) => false,
            (_, libc::ENOENT | libc::EEXIST) => true,
            (S::Rename { replace: false }, libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => true,
            _ => false,
        }
    }
}

impl Core {
    /// How long an attempt of this may take.
    pub(super) fn limit_of(&self, work: &Work) -> Option<Duration> {
        match (work, work.class()) {
            (Work::Chore { limit, .. }, _) => *limit,
            (_, Class::Load | Class::Dump) => self.rules.attempt_limit,
            (_, Class::Lookup) => self.rules.lookup_limit.map(|(_, attempt)| attempt),
            (_, Class::Metadata | Class::Lease | Class::Idle) => self.rules.metadata_limit,
        }
    }

    /// Time has passed: ends what is over its limit, and says when to look again. `armed` is when
    /// the judge meant to wake.
    pub fn judge(&mut self, now: Time, fx: &mut Effects) -> Option<Time> {
        if let Some(armed) = self.armed {
            let slept = now.since(armed);
            if slept > OVERSLEPT {
                let next = self.overslept(slept.saturating_add(HARVEST), now);
                return Some(self.hotness.due.map_or(next, |due| due.min(next)));
            }
        }
        self.judge_attempts(now, fx);
        self.judge_waiters(now, fx);
        self.judge_blocks(now, fx);
        let hotness = self.judge_hotness(now, fx);
        let next = self.next_limit();
        debug_assert!(next.is_none_or(|next| next > now), "what is due was not ended");
        // A moment that has passed already says nothing about how long anybody slept.
        self.armed = next.map(|next| next.max(now));
        self.note_quiet(fx);
        self.armed.into_iter().chain(hotness).min()
    }

    /// Everybody slept: nothing is judged before the workers had the time they were promised.
    fn overslept(&mut self, slept: Duration, now: Time) -> Time {
        for attempt in self.attempts.values_mut() {
            attempt.limit = attempt.limit.map(|limit| limit.plus(slept));
        }
        self.tasks.postpone(slept);
        self.calls.postpone(slept);
        let next = self.next_limit().map_or(now, |limit| limit.max(now));
        self.armed = Some(next);
        next
    }

    fn next_limit(&self) -> Option<Time> {
        let attempts = self.attempts.values().filter(|attempt| attempt.is_judged());
        let attempts = attempts.filter_map(|attempt| attempt.limit).min();
        let tasks = self.tasks.running().filter_map(|(_, task)| task.deadline).min();
        let calls = self.calls.iter().filter(|(_, call)| call.open > 0);
        let calls = calls.filter_map(|(_, call)| call.deadline).min();
        let blocks = self.blocks.oldest().map(|touched| touched.plus(self.rules.temp_ttl));
        [attempts, tasks, calls, blocks].into_iter().flatten().min()
    }

    fn judge_attempts(&mut self, now: Time, fx: &mut Effects) {
        let due = |attempt: &Attempt| attempt.limit.is_some_and(|limit| limit <= now);
        let mut over: Vec<Tag> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.is_judged() && due(attempt))
            .map(|(tag, _)| *tag)
            .collect();
        over.sort_unstable();
        for tag in over {
            if !self.moved_on(tag, now) {
                self.time_out(tag, now, fx);
            }
        }
    }

    /// A list of files has a limit for each file: one that began its present file later is not over
    /// it (R63).
    fn moved_on(&mut self, tag: Tag, now: Time) -> bool {
        let Some(attempt) = self.attempts.get_mut(&tag) else { return false };
        let chain = attempt.chain.and_then(|id| self.chains.get(&id));
        let (list, limit) = match chain.map(|chain| &chain.work) {
            Some(Work::Lookup { asked: Some(list), .. }) => {
                (list, self.rules.lookup_limit.map(|(_, limit)| limit))
            }
            Some(Work::Refresh { asked: Some(list), .. }) => (list, self.rules.metadata_limit),
            _ => return false,
        };
        let Some(limit) = limit else { return false };
        let over = list.began_file().plus(limit);
        let moved = over > now;
        if moved {
            attempt.limit = Some(over);
        }
        moved
    }

    /// An attempt is over its limit.
    fn time_out(&mut self, tag: Tag, now: Time, fx: &mut Effects) {
        let Some(attempt) = self.attempts.get_mut(&tag) else { return };
        let alone = attempt.gate.revoke();
        if let Some(Pending::End(error)) = attempt.pending.take_if(|_| alone) {
            // Its chain waited for the worker that has just left.
            return self.end_without(tag, error, now, fx);
        }
        if self.excused(tag, alone, now, fx) {
            return;
        }
        let Some(attempt) = self.attempts.get_mut(&tag) else { return };
        if !alone {
            // A worker is inside (R30, R32): it stops when it leaves, and reports.
            attempt.pending.get_or_insert(Pending::TimedOut);
            // In `borrowed` mode its I/O may take for ever: the window must know now (R32), and its
            // place is for others (R36).
            self.abandon(tag, fx);
            self.count_time_out(tag, now, fx);
            return;
        }
        let id = attempt.chain;
        self.abandon(tag, fx);
        self.count_time_out(tag, now, fx);
        let Some(id) = id else { return };
        let Some(attempt) = self.attempts.get(&tag) else { return };
        let (lane, failure) = (attempt.lane, self.timed_out(attempt));
        let writes = attempt.class == Class::Dump;
        let Some(chain) = self.chains.get_mut(&id) else { return };
        if writes {
            chain.in_kernel.insert(tag);
        }
        self.go_on(id, lane, failure, Status::Timeout, now, fx);
    }

    /// The chain of an attempt ends without it, and the attempt is over its limit.
    fn end_without(&mut self, tag: Tag, error: Error, now: Time, fx: &mut Effects) {
        let Some(attempt) = self.attempts.get_mut(&tag) else { return };
        let (id, writes) = (attempt.chain.take(), attempt.class == Class::Dump);
        self.abandon(tag, fx);
        self.count_time_out(tag, now, fx);
        let Some(id) = id else { return };
        if let Some(chain) = self.chains.get_mut(&id).filter(|_| writes) {
            chain.in_kernel.insert(tag);
        }
        self.end(id, Err(error), now, fx);
    }

    fn abandon(&mut self, tag: Tag, fx: &mut Effects) {
        let Some(attempt) = self.attempts.get_mut(&tag) else { return };
        let lane = attempt.lane;
        // A failure makes no path available: it stands after the time-out was recorded, too (R29).
        let epoch = self.health.backends()[lane].epoch();
        attempt.abandoned = Some(epoch);
        let class = attempt.class;
        self.lanes[lane].free_slot(class);
        self.lanes[lane].hung.add(attempt.may_hold_a_buffer(), epoch);
        fx.abandon.push((lane, tag));
        fx.wake_class(lane, class);
    }

    /// Takes a time-out into the window.
    fn count_time_out(&mut self, tag: Tag, now: Time, fx: &mut Effects) {
        let Some(attempt) = self.attempts.get(&tag) else { return };
        let (lane, block, work) = (attempt.lane, attempt.blames(), attempt.work);
        let failure = self.timed_out(attempt);
        self.count_limit(tag, &failure, now);
        self.record_failure(lane, block, work, &failure, now, fx);
    }

    fn judge_waiters(&mut self, now: Time, fx: &mut Effects) {
        let over = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let due = self.tasks.running().filter(|(_, task)| over(task.deadline));
        let due: Vec<u64> = due.map(|(handle, _)| handle).collect();
        self.end_tasks(&due, now, fx);
        let due = self.calls.iter().filter(|(_, call)| call.open > 0 && over(call.deadline));
        let calls: Vec<(u64, Vec<ChainId>)> =
            due.map(|(id, call)| (id, call.chains.clone())).collect();
        for (call, chains) in calls {
            let error = self.limit_error("call");
            for id in chains {
                self.terminate(id, error.clone(), now, fx);
            }
            self.abandon_call(call, &error, fx);
        }
    }

    /// Ends tasks that are over their limit, oldest first. All at once: many may be due, and each
    /// look for what they wait for goes through all chains.
    fn end_tasks(&mut self, due: &[u64], now: Time, fx: &mut Effects) {
        if due.is_empty() {
            return;
        }
        let error = self.limit_error("task");
        // First what waits, so that nothing of it is begun anew by what ends next.
        self.leave_commits(due, &error, now, fx);
        for handle in due {
            // Asked only now: ending another task may have begun something for this one.
            let chains = self.tasks.get_mut(*handle).map(|task| task.chains.clone());
            for id in chains.unwrap_or_default() {
                self.terminate(id, error.clone(), now, fx);
            }
        }
        self.leave_commits(due, &error, now, fx);
        for handle in due {
            // What is left of it ends when a worker leaves its memory (R32): not a matter of time.
            if let Some(task) = self.tasks.get_mut(*handle) {
                task.deadline = None;
            }
        }
    }

    pub(super) fn limit_error(&self, what: &str) -> Error {
        Error::new(
            Status::Timeout,
            format!("the {what}'s time limit passed{}", self.starved.because()),
        )
    }

    /// A call's limit passed while a commit that it waits for goes on.
    fn abandon_call(&mut self, id: u64, error: &Error, fx: &mut Effects) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.open > 0 {
            call.open = 0;
            call.errors.push((0, error.clone()));
            fx.finished.push(std::sync::Arc::clone(&call.cell));
        }
    }

    /// Tasks (in order) are over while commits that they wait for go on: they leave them.
    fn leave_commits(&mut self, over: &[u64], error: &Error, now: Time, fx: &mut Effects) {
        let is_over = |task: &u64| over.binary_search(task).is_ok();
        let mine = |w: &Waiter| matches!(w, Waiter::Task { task, .. } if is_over(task));
        let mut left = Vec::new();
        for chain in self.chains.values_mut() {
            if let Work::Commit { rewrite, .. } = &mut chain.work
                && rewrite.as_ref().is_some_and(|shards| is_over(&shards.task))
            {
                // The memory is the caller's again (R30): it is not written from any more.
                *rewrite = None;
            }
            let (Work::Commit { waiters, .. } | Work::Dump { also: waiters, .. }) = &mut chain.work
            else {
                continue;
            };
            left.extend(waiters.extract_if(.., |waiter| mine(waiter)));
        }
        for shards in self.blocks.take_behind_of(is_over) {
            left.push(super::blocks::waiter(&shards));
        }
        self.tell(left, &Err(error.clone()), now, fx);
    }

    fn judge_blocks(&mut self, now: Time, fx: &mut Effects) {
        let ttl = self.rules.temp_ttl;
        if self.blocks.oldest().is_none_or(|oldest| now.since(oldest) < ttl) {
            return;
        }
        let since = Time(now.0.saturating_sub(ttl));
        for (block, generation) in self.blocks.idle_since(since) {
            self.stats.expired_blocks += 1;
            let age = ttl.as_secs();
            let text = format!("block {block}: unfinished for {age} s, dropped (temp_ttl_s)");
            fx.log(Level::Warn, "KV3002", text);
            self.end_generation(block, generation, now, fx);
        }
        self.blocks.touch_busy(since, now);
    }

    /// Ends a chain from outside with `error`: queued ones at once, running ones without waiting
    /// for the kernel, unless a worker is inside the caller's memory at this moment (R30).
    pub(super) fn terminate(&mut self, id: ChainId, error: Error, now: Time, fx: &mut Effects) {
        let Some(chain) = self.chains.get_mut(&id) else { return };
        let Place::Running(tag) = chain.place else {
            return self.end(id, Err(error), now, fx);
        };
        let Some(attempt) = self.attempts.get_mut(&tag) else {
            return self.end(id, Err(error), now, fx);
        };
        if attempt.waiting.is_some() {
            // Between two steps: nothing is in the kernel.
            if let Some(attempt) = self.attempts.remove(&tag) {
                self.free_slot(&attempt);
                fx.wake_class(attempt.lane, attempt.class);
                self.end(id, Err(error), now, fx);
                self.after_creation(&attempt, now, fx);
            }
            return;
        }
        if !attempt.gate.revoke() {
            attempt.pending = Some(Pending::End(error));
            return;
        }
        (attempt.chain, attempt.pending) = (None, None);
        if attempt.class == Class::Dump {
            chain.in_kernel.insert(tag);
        }
        self.end(id, Err(error), now, fx);
    }

    /// Ends everything (R54: the limit of close has passed). Nothing begins after this: what a
    /// worker that is still inside a caller's memory brings ends with what it is, since nobody
    /// would take its commit any more.
    pub fn terminate_all(&mut self, error: &Error, now: Time, fx: &mut Effects) {
        self.over = true;
        let all: Vec<ChainId> = self.chains.keys().copied().collect();
        for id in all {
            self.terminate(id, error.clone(), now, fx);
        }
    }

    /// Ends what has not started of a task (R26).
    ///
    /// # Errors
    /// `NotFound` where no such task runs or is kept.
    pub fn cancel(&mut self, handle: u64, now: Time, fx: &mut Effects) -> Result<(), Error> {
        if matches!(self.tasks.find(handle), super::task::Found::Unknown) {
            return Err(super::submit::unknown_task(handle));
        }
        let Some(task) = self.tasks.get_mut(handle) else { return Ok(()) };
        let error = Error::new(Status::Cancelled, "cancelled before it was started");
        for id in task.chains.clone() {
            let not_begun = |chain: &super::chain::Chain| {
                chain.attempts == 0 && !matches!(chain.place, Place::Running(_))
            };
            if self.chains.get(&id).is_some_and(not_begun) {
                self.end(id, Err(error.clone()), now, fx);
            }
        }
        let behind = self.blocks.take_behind_of(|task| *task == handle);
        let left = behind.iter().map(super::blocks::waiter).collect();
        self.tell(left, &Err(error), now, fx);
        Ok(())
    }
}
