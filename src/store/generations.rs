//! Generations of a block's temporary: how one ends, how one takes the place of another, and what
//! removes the files that are left (R5, R46).

use std::sync::atomic::Ordering;

use super::attempt::Attempt;
use super::blocks::{Progress, Shard};
use super::chain::{ChainId, Class, Work};
use super::core::Core;
use super::effects::Effects;
use super::step::Step;
use super::types::BlockId;
use crate::clock::Time;
use crate::config::CommitPolicy;
use crate::error::{Error, Status};

/// A temporary to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// Its block.
    pub block: BlockId,
    /// Its generation.
    pub generation: u64,
    /// Where the temporary is gone, a rename that was given up has made it the block, with shards
    /// lost: it goes, too. If it is another writer's by then, that one is only missed.
    pub named: bool,
}

/// A block whose name may stand for a temporary with shards lost, until that is gone or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misnamed {
    /// The temporary's generation.
    pub generation: u64,
    /// The rename that was given up would replace what has the name by then.
    pub replaces: bool,
}

/// Temporaries that could not be removed yet, remembered for another try.
const MAX_LEFTOVERS: usize = 65_536;

impl Attempt {
    /// It is in the kernel, and nobody waits for it any more.
    fn is_left(&self) -> bool {
        self.abandoned.is_some() || self.chain.is_none()
    }

    /// It works on the temporary of its generation, or on that file's name.
    fn is_at_the_temporary(&self) -> bool {
        match self.step {
            Step::Main => self.class == Class::Dump,
            Step::LookAnew | Step::SyncTemporary | Step::Rename { .. } | Step::DropTemporary => {
                self.generation.is_some()
            }
            _ => false,
        }
    }
}

impl Core {
    fn left_at(&self, which: impl Fn(&Attempt) -> bool) -> u64 {
        let left = self.attempts.values().filter(|attempt| attempt.is_left() && which(attempt));
        left.fold(0, |mask, attempt| mask | 1 << attempt.lane)
    }

    /// Backends on which a write of this generation, or of one whose place it took, was given up
    /// and is still in the kernel. The rename does not go there first: it would hang behind the
    /// write, and hold the directory meanwhile.
    pub(super) fn hung_writers(&self, block: &BlockId, generation: u64) -> u64 {
        // Nearly always nothing hangs, and this is on the path of every block.
        if self.lanes.iter().all(|lane| lane.hung.total() == 0) {
            return 0;
        }
        let first = self.blocks.get(block).map_or(generation, |progress| progress.first_generation);
        self.left_at(|attempt| {
            let mine = attempt.generation.is_some_and(|own| (first..=generation).contains(&own));
            mine && attempt.block == *block && attempt.class == Class::Dump
        })
    }

    /// Backends on which anything was given up that is still at a temporary of this block.
    fn hung_at_temporary(&self, block: &BlockId) -> u64 {
        self.left_at(|attempt| attempt.block == *block && attempt.is_at_the_temporary())
    }

    /// Shards of this generation were lost, and a rename of it that was given up may still be done.
    pub(super) fn may_be_named(&self, block: &BlockId, generation: u64) -> bool {
        let lost = self.blocks.get(block).is_some_and(|progress| progress.lost);
        lost && self.renames_late(block, generation, false)
    }

    /// A rename of this generation was given up and may still be done; `over`: in the place of
    /// whatever has the name by then.
    fn renames_late(&self, block: &BlockId, generation: u64, over: bool) -> bool {
        self.attempts.values().any(|attempt| {
            let mine = attempt.generation == Some(generation) && attempt.block == *block;
            let renames = match attempt.step {
                Step::Rename { replace } => replace || !over,
                _ => false,
            };
            mine && attempt.is_left() && renames
        })
    }

    /// Before the next attempt of a chain that creates the temporary: where a creation of it was
    /// given up and is still in the kernel, it gets another name. Done late it would make the old
    /// name again, and a rename that is done later still would put an empty file in the block's
    /// place where the file system cannot tell that there is one (R40); and its client would
    /// remember the file as it was then. Nothing has been written but by this chain.
    pub(super) fn begin_anew(&mut self, id: ChainId, lane: usize, now: Time, fx: &mut Effects) {
        let Some(chain) = self.chains.get(&id).filter(|chain| !chain.in_kernel.is_empty()) else {
            return;
        };
        let block = chain.block;
        let Work::Dump { generation: old, .. } = chain.work else { return };
        let hung = |tag| self.attempts.get(tag).is_some_and(|a: &Attempt| a.creates == Some(old));
        if !chain.in_kernel.iter().any(hung) {
            return;
        }
        let Some(progress) = self.blocks.renew(&block, old) else { return };
        let (new, waiting) = (progress.generation, progress.parked.iter());
        for (chain, creates) in waiting.map(|chain| (chain, false)).chain([(&id, true)]) {
            let work = self.chains.get_mut(chain).map(|chain| &mut chain.work);
            if let Some(Work::Dump { generation, create, .. }) = work {
                (*generation, *create) = (new, creates);
            }
        }
        let leftover = Leftover { block, generation: old, named: false };
        // Nor behind the creation that begins now, which may hang as well.
        self.discard_beside(leftover, 1 << lane, now, fx);
    }

    /// Ends a generation that cannot be finished. Under `last_shard` the next one knows what the
    /// caller has dumped: all that is needed again before the last shard counts (R41).
    pub(super) fn give_up(&mut self, block: BlockId, generation: u64, now: Time, fx: &mut Effects) {
        let dumped = self.blocks.live(&block, generation).map(|progress| progress.dumped());
        self.end_generation(block, generation, now, fx);
        if self.rules.commit_policy == CommitPolicy::LastShard && !self.closing {
            let next = self.blocks.begin(block, now);
            for index in dumped.into_iter().flatten() {
                if next.shards.get(index as usize) == Some(&Shard::Missing) {
                    next.mark(index, 1, Shard::Failed);
                }
            }
        }
    }

    /// Gives up a generation: its other chains end, its temporary is removed.
    pub(super) fn end_generation(
        &mut self,
        block: BlockId,
        generation: u64,
        now: Time,
        fx: &mut Effects,
    ) {
        self.suspect(block, generation);
        let named = self.may_be_named(&block, generation);
        let replaces = named && self.renames_late(&block, generation, true);
        let Some(progress) = self.blocks.end(&block, generation) else { return };
        let others: Vec<ChainId> = progress
            .shards
            .iter()
            .filter_map(|shard| match shard {
                Shard::InFlight(id) => Some(*id),
                _ => None,
            })
            .chain(progress.commit)
            .collect();
        for id in others {
            self.terminate(id, closed_error(&block), now, fx);
        }
        let error = Err(closed_error(&block));
        for (_, shards) in progress.behind {
            self.end_positions(shards.task, &shards.positions, &error, now, fx);
        }
        // What waited for this generation, which would have replaced it.
        self.named_badly(block, now, fx);
        if named {
            let replaces =
                replaces || self.misnamed.get(&block).is_some_and(|earlier| earlier.replaces);
            self.misnamed.insert(block, Misnamed { generation, replaces });
        }
        self.discard(Leftover { block, generation, named }, now, fx);
    }

    /// A temporary with shards lost is gone, and stands, perhaps, under the block's name. Whether
    /// it is removed there: not while a later generation is being given that name in its place.
    pub(super) fn drops_final(&self, block: &BlockId) -> bool {
        let committing = |progress: &Progress| progress.commit.is_some();
        self.misnamed.contains_key(block) && !self.blocks.get(block).is_some_and(committing)
    }

    /// A temporary that may have got the block's name is gone, and what it named as well, unless a
    /// later generation is to replace that. Says whether there is nothing more to do.
    pub(super) fn discarded(&mut self, block: &BlockId, generation: u64) -> bool {
        let known = self.misnamed.get(block).is_some_and(|known| known.generation == generation);
        if known && self.drops_final(block) {
            self.misnamed.remove(block);
        }
        self.leftovers.is_empty()
    }

    /// A commit has ended without giving the block its name: what may have it goes now.
    pub(super) fn named_badly(&mut self, block: BlockId, now: Time, fx: &mut Effects) {
        if let Some(Misnamed { generation, .. }) = self.misnamed.get(&block).copied() {
            self.discard(Leftover { block, generation, named: true }, now, fx);
        }
    }

    /// A block was committed: its name stands for that. Where the rename that was given up can
    /// replace it even now, it goes after all: to miss a block is better than to give a wrong one.
    pub(super) fn named_well(&mut self, block: BlockId, now: Time, fx: &mut Effects) {
        match self.misnamed.get(&block).copied() {
            None => {}
            Some(Misnamed { replaces: false, .. }) => {
                self.misnamed.remove(&block);
            }
            Some(Misnamed { replaces: true, .. }) => self.named_badly(block, now, fx),
        }
    }

    /// A temporary could not be removed: it is tried again once a path works, and at close. What is
    /// over the limit stays for the sweep of the next open (R46).
    pub(super) fn keep_leftover(&mut self, leftover: Leftover) {
        if self.leftovers.len() < MAX_LEFTOVERS {
            self.leftovers.insert(leftover);
        } else if leftover.named {
            self.misnamed.remove(&leftover.block);
        }
    }

    /// Tries again to remove what could not be removed.
    pub(super) fn discard_leftovers(&mut self, now: Time, fx: &mut Effects) {
        for leftover in std::mem::take(&mut self.leftovers) {
            self.discard(leftover, now, fx);
        }
    }

    /// Removes a temporary of this store, best effort: not where something still hangs at it,
    /// which it would wait behind, holding the directory, or be too late for.
    pub(super) fn discard(&mut self, leftover: Leftover, now: Time, fx: &mut Effects) {
        self.discard_beside(leftover, 0, now, fx);
    }

    /// The same, and not through these paths while there are others.
    fn discard_beside(&mut self, leftover: Leftover, busy: u64, now: Time, fx: &mut Effects) {
        let Leftover { block, generation, named } = leftover;
        let hung = self.hung_at_temporary(&block);
        let id = self.add_chain(Work::Discard { generation, named }, block);
        if let Some(chain) = self.chains.get_mut(&id) {
            let others = self.mask.load(Ordering::Acquire) & !hung & !busy;
            chain.tried = if others == 0 { hung } else { hung | busy };
        }
        self.route(id, now, fx);
    }

    /// An attempt that could create a temporary has returned: if its generation is over, the file
    /// goes (R5).
    pub(super) fn after_creation(&mut self, attempt: &Attempt, now: Time, fx: &mut Effects) {
        if attempt.is_left() && attempt.generation.is_some() && !self.leftovers.is_empty() {
            // It may have been what kept a temporary from being removed.
            self.discard_leftovers(now, fx);
        }
        let Some(generation) = attempt.creates else { return };
        // While it is being committed, it is still live.
        let block = attempt.block;
        if self.blocks.live(&block, generation).is_none() {
            self.discard(Leftover { block, generation, named: false }, now, fx);
        }
    }
}

/// Why bytes that were written will never be seen.
pub(super) fn closed_error(block: &BlockId) -> Error {
    Error::new(
        Status::Error,
        format!(
            "block {block}: its unfinished file was given up (an operation on it still \
             hangs, or it was dropped); dump all its shards again"
        ),
    )
}
