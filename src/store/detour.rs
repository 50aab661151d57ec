//! Detours of a commit: what other paths have to do before one of them names the block (R42). They
//! sync what only their cache may hold, and look at the block anew.

use std::sync::atomic::Ordering;

use super::blocks::Shard;
use super::chain::{ChainId, Detour, Place, Shards, Waiter, Work};
use super::core::Core;
use super::effects::Effects;
use super::step::Verdict;
use super::types::BlockId;
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

    /// A sync of the temporary through `lane` begins.
    pub(super) fn sync_begins(&mut self, id: ChainId, lane: usize) {
        if let Some(chain) = self.chains.get_mut(&id)
            && let Work::Commit { syncing, .. } = &mut chain.work
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

    /// Before a commit through `lane`, the other paths that the block was begun on look at it anew
    /// where they can: other processes load through their clients, too, and know nothing of this.
    /// What fails here fails no commit. Says whether this took over.
    pub(super) fn looks_first(&mut self, id: ChainId, lane: usize, fx: &mut Effects) -> bool {
        let Some(chain) = self.chains.get(&id) else { return false };
        let (block, tried) = (chain.block, chain.tried);
        let Work::Commit { generation, looked, .. } = chain.work else { return false };
        let Some(progress) = self.blocks.get(&block) else { return false };
        let not = progress.seen_by | self.coherent() | tried | looked | 1 << lane;
        // Nearly always nobody else has begun it, and this is on the path of every block.
        let others = progress.begun_on & !not & self.mask.load(Ordering::Acquire);
        if others == 0 {
            return false;
        }
        let others = others & !self.hung_writers(&block, generation);
        let asks = |other: &usize| {
            let epoch = self.health.backends()[*other].epoch();
            others >> other & 1 == 1
                && self.saw_less(&block, *other)
                && !self.lanes[*other].too_many_abandoned(epoch)
        };
        let Some(through) = (0..self.lanes.len()).find(asks) else { return false };
        if let Some(Work::Commit { detour, looked, .. }) =
            self.chains.get_mut(&id).map(|chain| &mut chain.work)
        {
            (*detour, *looked) = (Some(Detour::Look(through)), *looked | 1 << through);
        }
        self.queue_detour(id, through, fx);
        true
    }

    /// What the outcome of such a look means for its attempt.
    pub(super) fn looked(
        &mut self,
        block: &BlockId,
        generation: u64,
        lane: usize,
        outcome: Outcome,
    ) -> Verdict {
        match outcome {
            Ok(_) => self.blocks.seen(block, generation, lane),
            Err(failure) => {
                let context = Context::new(Operation::Commit, self.rules.scope);
                if failure.os() != Some(libc::ENOENT) && class::classify(&failure, context).counts()
                {
                    return Verdict::Fail(failure);
                }
            }
        }
        Verdict::Success(Done::Unit)
    }

    /// A commit's turn through another path, to look anew, has failed: that path may still name the
    /// block, unless it hangs. Says whether it was such a turn.
    pub(super) fn look_ended(&mut self, id: ChainId) -> bool {
        let Some(chain) = self.chains.get_mut(&id) else { return false };
        let Work::Commit { detour, .. } = &mut chain.work else { return false };
        let Some(Detour::Look(through)) = *detour else { return false };
        *detour = None;
        if chain.last.as_ref().is_none_or(|last| last.status != Status::Timeout) {
            chain.tried &= !(1 << through);
        }
        true
    }
}
