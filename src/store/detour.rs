//! Detours of a commit: what other paths have to do before one of them names the block (R42). They
//! sync what only their cache may hold, and look at the block anew.

use std::sync::atomic::Ordering;

use super::attempt::Attempt;
use super::blocks::Shard;
use super::chain::{ChainId, Detour, Place, Shards, Waiter, Work};
use super::core::Core;
use super::effects::Effects;
use super::step::{Step, Verdict};
use crate::clock::Time;
use crate::engine::{Done, Outcome};
use crate::error::{Error, Status};
use crate::health::class::{self, Context, Operation};

impl Core {
    /// Before a commit through `lane`, shards that only the cache of another path may hold are
    /// written again (where one task has the whole block) or synced through that path (R42). Says
    /// whether this took over.
    pub(super) fn takes_detour(
        &mut self,
        id: ChainId,
        lane: usize,
        now: Time,
        fx: &mut Effects,
    ) -> bool {
        let Some(chain) = self.chains.get_mut(&id) else { return false };
        let block = chain.block;
        let Work::Commit { generation, rewrite, detour, .. } = &mut chain.work else {
            return false;
        };
        if !matches!(detour, Some(Detour::Sync(_))) {
            *detour = None;
            let progress = self.blocks.live(&block, *generation);
            let Some(other) = progress.and_then(|progress| progress.cached_elsewhere(lane)) else {
                return self.looks_first(id, lane, fx);
            };
            // Only while the task owns the memory (R30).
            let mine = rewrite.take().filter(|shards| self.tasks.runs(shards.task));
            if let Some(shards) = mine {
                self.write_again(id, shards, now, fx);
                return true;
            }
            *detour = Some(Detour::Sync(other));
        }
        // Even an excluded path may still sync what it holds: that is its only way out.
        let Some(Detour::Sync(through)) = *detour else { return false };
        self.queue_detour(id, through, fx);
        true
    }

    /// The chain takes a turn through another backend.
    pub(super) fn queue_detour(&mut self, id: ChainId, through: usize, fx: &mut Effects) {
        let Some(chain) = self.chains.get_mut(&id) else { return };
        chain.place = Place::Queued(through);
        let class = chain.work.class();
        self.lanes[through].push(class, id);
        fx.wake_one(through);
    }

    /// A sync through a backend failed or was given up: what only its cache holds is lost. Another
    /// sync would say nothing about it, since the kernel forgets what it could not write. Says
    /// whether something was lost.
    pub(super) fn sync_failed(&mut self, id: ChainId, now: Time, fx: &mut Effects) -> bool {
        let Some(chain) = self.chains.get_mut(&id) else { return false };
        let block = chain.block;
        let Work::Commit { generation, detour, syncing, .. } = &mut chain.work else {
            return false;
        };
        let detour = detour.take().and_then(|detour| match detour {
            Detour::Sync(through) => Some(through),
            Detour::Look(_) => None,
        });
        let syncing = syncing.take();
        let progress = self.blocks.live(&block, *generation);
        let cached = |lane: &usize| progress.is_some_and(|progress| progress.cached_at(*lane));
        let Some(lane) = detour.or_else(|| syncing.filter(cached)) else { return false };
        self.cached_lost(id, lane, now, fx);
        true
    }

    /// A step through `lane` begins: of a sync it is known from now on.
    pub(super) fn step_begins(&mut self, id: ChainId, lane: usize, step: &Step) {
        if matches!(step, Step::Rename { .. })
            && let Some(chain) = self.chains.get(&id)
            && let Work::Commit { generation, .. } = chain.work
        {
            // From now on it may have its name, whenever that is told.
            self.suspect(chain.block, generation);
        }
        if *step == Step::SyncTemporary
            && let Some(Work::Commit { syncing, .. }) =
                self.chains.get_mut(&id).map(|chain| &mut chain.work)
        {
            *syncing = Some(lane);
        }
    }

    /// The sync through the old backend is done: on with the commit.
    pub(super) fn detour_done(&mut self, id: ChainId, now: Time, fx: &mut Effects) {
        if let Some(chain) = self.chains.get_mut(&id)
            && let Work::Commit { detour, .. } = &mut chain.work
        {
            *detour = None;
        }
        self.route(id, now, fx);
    }

    fn cached_lost(&mut self, id: ChainId, lane: usize, now: Time, fx: &mut Effects) {
        let Some(chain) = self.chains.get(&id) else { return };
        let block = chain.block;
        if let Work::Commit { generation, .. } = chain.work
            && let Some(progress) = self.blocks.live(&block, generation)
        {
            progress.lose(lane);
        }
        let why = chain.last.as_ref().map_or_else(String::new, |last| {
            format!(": {}", self.failure_text(last.lane, &last.failure))
        });
        // A full disk is what it is, also where it shows only when the cache is written.
        let full = chain.last.as_ref().is_some_and(|last| last.status == Status::NoSpace);
        let error = Error::new(
            if full { Status::NoSpace } else { Status::OsError },
            format!(
                "commit of block {block}: shards are only in the cache of a path that is lost or \
                 cannot sync them; dump all its shards again{why}"
            ),
        );
        self.end(id, Err(error), now, fx);
    }

    /// A commit becomes a dump again, through the next backend.
    fn write_again(&mut self, id: ChainId, shards: Shards, now: Time, fx: &mut Effects) {
        let Some(chain) = self.chains.get_mut(&id) else { return };
        let Work::Commit { generation, .. } = chain.work else { return };
        let block = chain.block;
        let (first, count) = (shards.first, shards.count());
        let task = shards.task;
        // The dumping task owns the dump again; whoever else waits goes along.
        let mut also = Vec::new();
        if let Work::Commit { waiters, .. } = &mut chain.work {
            also = std::mem::take(waiters);
        }
        also.retain(|w| !matches!(w, Waiter::Task { task: other, .. } if *other == task));
        chain.work = Work::Dump { shards, generation, create: false, also };
        if let Some(progress) = self.blocks.live(&block, generation) {
            progress.commit = None;
            progress.mark(first, count, Shard::InFlight(id));
        }
        if let Some(task) = self.tasks.get_mut(task) {
            // It is the task's again, and ends with it.
            task.chains.push(id);
        }
        self.route(id, now, fx);
    }

    /// The path that has to look at the block anew before it gets its name through `lane`, where it
    /// can: other processes load through its client, too, and know nothing of this. What only a
    /// cache holds is synced first, or there is less to see.
    pub(super) fn who_looks(&self, id: ChainId, lane: usize) -> Option<usize> {
        // Without a limit one that hangs would keep the block from its name.
        self.rules.metadata_limit?;
        let chain = self.chains.get(&id)?;
        let Work::Commit { generation, looked, .. } = chain.work else { return None };
        let progress = self.blocks.get(&chain.block)?;
        let not = progress.seen_by | chain.tried | looked | 1 << lane;
        // Nearly always nobody else has begun it, and this is on the path of every block.
        let others = progress.begun_on & !not & self.mask.load(Ordering::Acquire);
        if others == 0 {
            return None;
        }
        let others = others & !self.coherent() & !self.hung_writers(&chain.block, generation);
        let asks = |other: &usize| {
            let epoch = self.health.backends()[*other].epoch();
            others >> other & 1 == 1
                && self.saw_less(&chain.block, *other)
                && progress.cached_elsewhere(*other).is_none()
                && !self.lanes[*other].too_many_abandoned(epoch)
        };
        (0..self.lanes.len()).find(asks)
    }

    /// Sends a commit through `lane` to look through another path first. Says whether it did.
    fn looks_first(&mut self, id: ChainId, lane: usize, fx: &mut Effects) -> bool {
        let Some(through) = self.who_looks(id, lane) else { return false };
        if let Some(Work::Commit { detour, looked, .. }) =
            self.chains.get_mut(&id).map(|chain| &mut chain.work)
        {
            (*detour, *looked) = (Some(Detour::Look(through)), *looked | 1 << through);
        }
        self.queue_detour(id, through, fx);
        true
    }

    /// The path has synced what it holds. If others have to look now, the commit comes back to it.
    pub(super) fn synced(&mut self, id: ChainId, lane: usize) -> Verdict {
        let detoured = |work: &Work| matches!(work, Work::Commit { detour: Some(_), .. });
        if self.chains.get(&id).is_some_and(|chain| detoured(&chain.work)) {
            return Verdict::Success(Done::Unit);
        }
        if self.who_looks(id, lane).is_none() {
            let block = self.chains.get(&id).map(|chain| chain.block);
            let step = block.map(|block| self.naming(&block, lane));
            return step.map_or(Verdict::NotFound, Verdict::Next);
        }
        if let Some(Work::Commit { detour, .. }) =
            self.chains.get_mut(&id).map(|chain| &mut chain.work)
        {
            *detour = Some(Detour::Sync(lane));
        }
        Verdict::Success(Done::Unit)
    }

    /// A turn through another path, to look anew, is over. It fails no commit, and takes no
    /// candidate from it.
    pub(super) fn look_settled(
        &mut self,
        id: ChainId,
        attempt: &Attempt,
        outcome: Outcome,
        now: Time,
        fx: &mut Effects,
    ) {
        let lane = attempt.lane;
        match outcome {
            Ok(_) => {
                if let Some(Work::Commit { generation, .. }) =
                    self.chains.get(&id).map(|chain| &chain.work)
                {
                    self.blocks.seen(&attempt.block, *generation, lane);
                }
                self.record_success(lane, now, fx);
            }
            Err(failure) => {
                let context = Context::new(Operation::Commit, self.rules.scope);
                let class = class::classify(&failure, context);
                self.count_error(lane, class, &failure);
                if class.counts() && failure.os() != Some(libc::ENOENT) {
                    self.record_failure(lane, attempt.blames(), attempt.work, &failure, now, fx);
                }
            }
        }
        self.look_ended(id, None);
        self.route(id, now, fx);
    }

    /// A turn through another path, to look anew, is over; `hung` where it hangs there: nobody else
    /// is made to look then, and that path is not asked for the name. Says whether it was a turn.
    pub(super) fn look_ended(&mut self, id: ChainId, hung: Option<usize>) -> bool {
        let Some(chain) = self.chains.get_mut(&id) else { return false };
        let Work::Commit { detour, looked, .. } = &mut chain.work else { return false };
        if detour.take_if(|detour| matches!(detour, Detour::Look(_))).is_none() {
            return false;
        }
        if let Some(lane) = hung {
            *looked = u64::MAX;
            chain.tried |= 1 << lane;
        }
        chain.place = Place::Parked;
        true
    }
}
