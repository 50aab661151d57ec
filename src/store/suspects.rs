//! Blocks whose file a path's client may remember as it was before it was finished (R42).
//!
//! A client that has looked a temporary up, or opened it, before another path wrote into it may go
//! on showing it so for a while under its final name, whoever gave that name: zeros for what the
//! other wrote (seen on GlusterFS). So the first load through such a path makes it look anew.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::attempt::Attempt;
use super::blocks::Progress;
use super::chain::Class;
use super::core::Core;
use super::step::Step;
use super::types::BlockId;

/// Most blocks remembered; the oldest go first. Only a fail-over while one is written adds one.
const MAX_BLOCKS: usize = 65_536;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Suspects {
    paths: HashMap<BlockId, u64>,
    order: VecDeque<BlockId>,
}

impl Suspects {
    /// The block was committed; these paths have seen its temporary. None is nothing to remember.
    pub fn add(&mut self, block: BlockId, paths: u64) {
        if paths == 0 {
            return;
        }
        match self.paths.entry(block) {
            // What was there before may be what is there still.
            Entry::Occupied(mut known) => *known.get_mut() |= paths,
            Entry::Vacant(new) => {
                new.insert(paths);
                self.order.push_back(block);
            }
        }
        if self.order.len() > MAX_BLOCKS
            && let Some(oldest) = self.order.pop_front()
        {
            self.paths.remove(&oldest);
        }
    }

    /// Whether a load through this path has to look anew.
    #[must_use]
    pub fn has(&self, block: &BlockId, path: usize) -> bool {
        self.paths.get(block).is_some_and(|paths| paths >> path & 1 == 1)
    }

    /// This path has looked anew.
    pub fn clear(&mut self, block: &BlockId, path: usize) {
        if let Some(paths) = self.paths.get_mut(block) {
            *paths &= !(1 << path);
        }
    }
}

impl Core {
    /// Whether the client of this path may remember the temporary as it was before other paths
    /// wrote into it. It looks at a name anew, but not when it gives one itself: a block that was
    /// committed here would be what is remembered, with zeros for what others wrote (seen on
    /// GlusterFS: within a second, or for as long as the page cache holds them). Setting the length
    /// makes it forget.
    pub(super) fn saw_less(&self, block: &BlockId, lane: usize) -> bool {
        let less = |progress: &Progress| {
            progress.written_elsewhere(lane) && progress.seen_by >> lane & 1 == 0
        };
        !self.lanes[lane].facts.coherent && self.blocks.get(block).is_some_and(less)
    }

    /// The block has its name, or may get it late: loads through paths that it was begun on, and
    /// that have not seen all of it, look anew.
    pub(super) fn suspect(&mut self, block: BlockId, generation: u64) {
        // Nearly always one path has it all, and this is on the path of every block.
        let begun = self.blocks.live(&block, generation).map(|progress| progress.begun_on);
        if begun.is_none_or(|paths| paths.count_ones() < 2) {
            return;
        }
        let coherent = self.coherent();
        if let Some(progress) = self.blocks.live(&block, generation) {
            let paths = progress.begun_on & !progress.seen_by & !coherent;
            // Who has written all of it himself has seen all of it.
            let others = |path: &usize| paths >> path & 1 == 1 && progress.written_elsewhere(*path);
            let others = (0..self.lanes.len()).filter(others);
            self.suspects.add(block, others.fold(0, |all, path| all | 1 << path));
            for attempt in self.attempts.values_mut().filter(|attempt| attempt.block == block) {
                attempt.has_looked = false;
            }
        }
    }

    /// What a load has read there may be what the path remembers.
    pub(super) fn is_suspect(&self, attempt: &Attempt) -> bool {
        let reads = attempt.class == Class::Load && attempt.step == Step::Main;
        reads && (attempt.has_to_look || self.suspects.has(&attempt.block, attempt.lane))
    }

    /// What a load has read may lack something, whoever shows it.
    pub(super) fn is_misnamed(&self, attempt: &Attempt) -> bool {
        attempt.class == Class::Load && self.misnamed.contains_key(&attempt.block)
    }

    /// A load has made a path look anew. Others that were begun there before may have read what it
    /// remembered, and are not told yet.
    pub(super) fn looked_anew(&mut self, block: &BlockId, path: usize) {
        self.suspects.clear(block, path);
        let here = |attempt: &&mut Attempt| attempt.lane == path && attempt.block == *block;
        for attempt in self.attempts.values_mut().filter(here) {
            // Nor do they make each other look for ever.
            attempt.has_to_look = !attempt.has_looked;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: usize) -> BlockId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        BlockId(id)
    }

    #[test]
    fn a_path_looks_anew_once_and_the_oldest_go_first() {
        let mut suspects = Suspects::default();
        suspects.add(block(0), 0b101);
        assert!(suspects.has(&block(0), 0) && suspects.has(&block(0), 2));
        assert!(!suspects.has(&block(0), 1) && !suspects.has(&block(1), 0));
        suspects.clear(&block(0), 2);
        suspects.clear(&block(1), 2);
        suspects.add(block(1), 0);
        assert!(suspects.has(&block(0), 0) && !suspects.has(&block(0), 2));
        for number in 0..=MAX_BLOCKS {
            suspects.add(block(number), 1);
        }
        assert!(!suspects.has(&block(0), 0) && suspects.has(&block(1), 0));
        assert!(suspects.order.len() == MAX_BLOCKS && suspects.paths.len() == MAX_BLOCKS);
    }
}
