//! Blocks in progress: what a written, failed or committed shard means for its block (R5, R40–R42).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::blocks::{Creation, Level as Safety, Shard, waiter};
use super::chain::{ChainId, Place, Shards, Waiter, Work};
use super::core::Core;
use super::effects::Effects;
use super::generations::{Leftover, closed_error};
use super::types::BlockId;
use crate::clock::Time;
use crate::config::CommitPolicy;
use crate::error::{Error, Status};
use crate::log::Level;

impl Core {
    /// Starts chains for shards that nobody writes yet.
    pub(super) fn begin_dump(
        &mut self,
        block: BlockId,
        shards: Shards,
        now: Time,
        fx: &mut Effects,
    ) -> Option<ChainId> {
        let progress = self.blocks.begin(block, now);
        let (generation, creation) = (progress.generation, progress.creation);
        let (first, count) = (shards.first, shards.count());
        let create = creation == Creation::Absent;
        let id = self.add_chain(Work::Dump { shards, generation, create, also: Vec::new() }, block);
        let progress = self.blocks.live(&block, generation)?;
        progress.touched = now;
        progress.mark(first, count, Shard::InFlight(id));
        match creation {
            Creation::Absent => progress.creation = Creation::By(id),
            Creation::By(_) => {
                progress.parked.push(id);
                return Some(id);
            }
            Creation::Done => {}
        }
        self.route(id, now, fx);
        Some(id)
    }

    /// A dump's bytes are in the temporary.
    pub(super) fn dump_succeeded(
        &mut self,
        id: ChainId,
        lane: usize,
        durable: bool,
        now: Time,
        fx: &mut Effects,
    ) {
        let Some(chain) = self.chains.remove(&id) else { return };
        let (block, tried) = (chain.block, chain.tried);
        let Work::Dump { shards, generation, also, .. } = chain.work else { return };
        self.stats.dumped_shards += shards.count() as u64;
        self.stats.dumped_bytes += shards.memory.bytes();
        let level = self.safety(&shards, lane, durable);
        let policy = self.rules.commit_policy;
        let Some(progress) = self.blocks.live(&block, generation) else {
            // Dropped or closed meanwhile: nobody will ever see these bytes.
            let mut waiters = vec![waiter(&shards)];
            waiters.extend(also);
            return self.tell(waiters, &Err(closed_error(&block)), now, fx);
        };
        (progress.touched, progress.seen_by) = (now, 0);
        progress.mark(shards.first, shards.count(), Shard::Written { lane, level });
        let created = std::mem::replace(&mut progress.creation, Creation::Done);
        let parked = match created {
            Creation::Done => Vec::new(),
            Creation::Absent | Creation::By(_) => std::mem::take(&mut progress.parked),
        };
        let behind = progress.take_behind(shards.first, shards.count());
        let ready = progress.ready(policy) && progress.commit.is_none();
        for waiting in parked {
            self.unpark(waiting, now, fx);
        }
        let mut waiters = vec![waiter(&shards)];
        waiters.extend(also);
        waiters.extend(behind.iter().map(|(_, shards)| waiter(shards)));
        if ready {
            let whole = self.rules.shape.map(|shape| shape.block_bytes);
            let rewrite = (whole == Some(shards.memory.bytes()) && level == Safety::Cached)
                .then_some((shards, tried));
            self.begin_commit(block, generation, waiters, rewrite, now, fx);
        } else {
            self.tell(waiters, &Ok(()), now, fx);
        }
    }

    /// How safe the bytes of this transfer are for another path (R42).
    fn safety(&self, shards: &Shards, lane: usize, durable: bool) -> Safety {
        if !durable {
            return Safety::Cached;
        }
        let Some(shape) = self.rules.shape else { return Safety::Cached };
        let facts = &self.lanes[lane].facts;
        let shared = shape.shard_bytes % facts.offset_align.max(1) != 0;
        let whole = shards.memory.bytes() == shape.block_bytes;
        let synced = !facts.direct || shared || (whole && self.syncs_data());
        if synced { Safety::Synced } else { Safety::Direct }
    }

    fn unpark(&mut self, id: ChainId, now: Time, fx: &mut Effects) {
        let Some(chain) = self.chains.get(&id).filter(|chain| chain.place == Place::Parked) else {
            return;
        };
        if let Work::Dump { generation, .. } = chain.work {
            // Not behind what hangs there with the directory, or the file, if there is a choice.
            let hung = self.hung_writers(&chain.block, generation);
            let open = self.mask.load(Ordering::Acquire) & !chain.tried & !hung;
            if open != 0
                && let Some(chain) = self.chains.get_mut(&id)
            {
                chain.tried |= hung;
            }
        }
        self.route(id, now, fx);
    }

    /// A dump's chain has ended without success.
    #[expect(clippy::too_many_arguments, reason = "the parts of a chain that is gone")]
    pub(super) fn dump_failed(
        &mut self,
        id: ChainId,
        (block, generation): (BlockId, u64),
        shards: &Shards,
        result: &Result<(), Error>,
        close: bool,
        now: Time,
        fx: &mut Effects,
    ) {
        let behind = match self.blocks.live(&block, generation) {
            None => Vec::new(),
            Some(progress) => {
                progress.mark(shards.first, shards.count(), Shard::Failed);
                progress.touched = now;
                progress.parked.retain(|parked| *parked != id);
                progress.take_behind(shards.first, shards.count())
            }
        };
        if close {
            self.stats.closed_generations += 1;
            fx.log(Level::Warn, "KV3001", closed_error(&block).text);
            self.give_up(block, generation, now, fx);
        } else {
            self.next_creator(block, generation, id, now, fx);
        }
        self.end_positions(shards.task, &shards.positions, result, now, fx);
        for (_, waiting) in behind {
            if close {
                // His bytes belonged to the generation that is over.
                let error = Err(closed_error(&block));
                self.end_positions(waiting.task, &waiting.positions, &error, now, fx);
            } else {
                self.dump_again(block, waiting, now, fx);
            }
        }
        self.end_if_bare(block, generation, now, fx);
    }

    /// Nothing is lost with a generation in which nothing is written: whoever dumps the block again
    /// begins anew. On a full disk each dump would else leave an unfinished block and an empty
    /// file, until the table is full.
    pub(super) fn end_if_bare(
        &mut self,
        block: BlockId,
        generation: u64,
        now: Time,
        fx: &mut Effects,
    ) {
        let live = self.blocks.live(&block, generation);
        let is_bare = live.is_some_and(|progress| progress.is_bare());
        // The last shard must find that another one failed (R41).
        if !is_bare || self.rules.commit_policy == CommitPolicy::LastShard {
            return;
        }
        if self.blocks.end(&block, generation).is_some_and(|progress| progress.begun_on != 0) {
            self.discard(Leftover { block, generation, named: false }, now, fx);
        }
    }

    /// Who waited behind a shard that failed writes it himself.
    fn dump_again(&mut self, block: BlockId, shards: Shards, now: Time, fx: &mut Effects) {
        if self.closing {
            let error = Err(Error::new(Status::Closed, "the store is closing"));
            return self.end_positions(shards.task, &shards.positions, &error, now, fx);
        }
        if !self.nobody_writes(block, shards.first, now) {
            // Somebody who waited too was faster.
            return self.join_dump(block, shards, now, fx);
        }
        let task = shards.task;
        if let Some(id) = self.begin_dump(block, shards, now, fx)
            && let Some(task) = self.tasks.get_mut(task)
        {
            task.chains.push(id);
        }
    }

    /// If its creator failed, the next transfer creates the temporary (R5).
    fn next_creator(
        &mut self,
        block: BlockId,
        generation: u64,
        failed: ChainId,
        now: Time,
        fx: &mut Effects,
    ) {
        let Some(progress) = self.blocks.live(&block, generation) else { return };
        if progress.creation != Creation::By(failed) {
            return;
        }
        progress.creation = Creation::Absent;
        if progress.parked.is_empty() {
            return;
        }
        let next = progress.parked.remove(0);
        progress.creation = Creation::By(next);
        if let Some(chain) = self.chains.get_mut(&next)
            && let Work::Dump { create, .. } = &mut chain.work
        {
            *create = true;
        }
        self.unpark(next, now, fx);
    }

    /// Tells waiters how it ended.
    pub(super) fn tell(
        &mut self,
        waiters: Vec<Waiter>,
        result: &Result<(), Error>,
        now: Time,
        fx: &mut Effects,
    ) {
        for waiter in waiters {
            match waiter {
                Waiter::Task { task, positions } => {
                    self.end_positions(task, &positions, result, now, fx);
                }
                Waiter::Call { call, position } => {
                    let errors = result.clone().err().map(|error| (position, error));
                    self.end_part(call, errors.into_iter().collect(), fx);
                }
            }
        }
    }

    /// Whether a shard is neither written nor being written.
    pub(super) fn nobody_writes(&mut self, block: BlockId, index: u32, now: Time) -> bool {
        let progress = self.blocks.begin(block, now);
        let shard = progress.shards.get(index as usize);
        matches!(shard, Some(Shard::Missing | Shard::Failed) | None)
    }

    /// One shard of a dump that is written already, or being written (R42).
    pub(super) fn join_dump(
        &mut self,
        block: BlockId,
        shards: Shards,
        now: Time,
        fx: &mut Effects,
    ) {
        let policy = self.rules.commit_policy;
        let progress = self.blocks.begin(block, now);
        if let Some(Shard::InFlight(_)) = progress.shards.get(shards.first as usize) {
            progress.behind.push((shards.first, shards));
            return;
        }
        let again = policy != CommitPolicy::Explicit && progress.ready(policy);
        let generation = progress.generation;
        let running = progress.commit;
        let waiting = waiter(&shards);
        match running.and_then(|id| self.chains.get_mut(&id)) {
            Some(chain) => {
                if let Work::Commit { waiters, .. } = &mut chain.work {
                    waiters.push(waiting);
                }
            }
            None if again => {
                self.begin_commit(block, generation, vec![waiting], None, now, fx);
            }
            None => self.tell(vec![waiting], &Ok(()), now, fx),
        }
    }
}

/// Joins memory of adjacent shards.
#[must_use]
pub(super) fn join_memory(parts: Vec<Vec<crate::engine::Segment>>) -> Arc<crate::engine::Memory> {
    Arc::new(crate::engine::Memory::new(parts.into_iter().flatten()))
}
