//! Blocks in progress: which shards of which generation are written, and when a block may be
//! committed (R5, R41, R42). Pure; one table per store, owned by the core.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::chain::{ChainId, Shards, Waiter};
use super::types::BlockId;
use crate::clock::Time;
use crate::config::CommitPolicy;

/// Most blocks in progress; a dump of a further one gets RETRY (R46).
pub const MAX_UNFINISHED_BLOCKS: usize = 65_536;

/// How safe written bytes are from the point of view of another path to the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In this client's page cache of one path.
    Cached,
    /// Handed to the storage past the cache.
    Direct,
    /// Synced through the path that wrote it.
    Synced,
}

/// One shard of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shard {
    /// Never tried.
    Missing,
    /// This chain writes it.
    InFlight(ChainId),
    /// A chain failed to write it.
    Failed,
    /// Written.
    Written {
        /// Through which backend.
        lane: usize,
        /// How safe it is.
        level: Level,
    },
}

/// Whether the temporary exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// Nobody has begun to create it.
    Absent,
    /// This chain creates it; others wait.
    By(ChainId),
    /// It exists.
    Done,
}

/// One block in progress.
#[derive(Debug)]
pub struct Progress {
    /// Its generation.
    pub generation: u64,
    /// The one that it began with.
    pub first_generation: u64,
    /// Its temporary.
    pub creation: Creation,
    /// Its shards.
    pub shards: Vec<Shard>,
    /// Chains that wait for the temporary.
    pub parked: Vec<ChainId>,
    /// Shards that other tasks want to write and that are in flight already, with their memory
    /// (R42).
    pub behind: Vec<(u32, Shards)>,
    /// The commit that runs.
    pub commit: Option<ChainId>,
    /// The backends on which an engine was asked to write: the temporary may exist.
    pub begun_on: u64,
    /// Of these, those whose clients have looked at it since the last write.
    pub seen_by: u64,
    /// Shards that were written were lost.
    pub lost: bool,
    /// When it last changed; its age counts from here (R46).
    pub touched: Time,
}

impl Progress {
    fn new(generation: u64, shards: usize, now: Time) -> Progress {
        Progress {
            generation,
            first_generation: generation,
            creation: Creation::Absent,
            shards: vec![Shard::Missing; shards],
            parked: Vec::new(),
            behind: Vec::new(),
            commit: None,
            begun_on: 0,
            seen_by: 0,
            lost: false,
            touched: now,
        }
    }

    /// Every shard is written.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.shards.iter().all(|shard| matches!(shard, Shard::Written { .. }))
    }

    /// Nothing of it is written, and nobody is at it.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        let bare = |shard: &Shard| matches!(shard, Shard::Missing | Shard::Failed);
        self.shards.iter().all(bare) && self.behind.is_empty() && self.commit.is_none()
    }

    /// Whether it may be committed now (R41).
    #[must_use]
    pub fn ready(&self, policy: CommitPolicy) -> bool {
        match policy {
            CommitPolicy::AllShards => self.complete(),
            CommitPolicy::LastShard => {
                matches!(self.shards.last(), Some(Shard::Written { .. }))
                    && !self
                        .shards
                        .iter()
                        .any(|shard| matches!(shard, Shard::InFlight(_) | Shard::Failed))
            }
            CommitPolicy::Explicit => false,
        }
    }

    /// Indexes that are not written.
    #[must_use]
    pub fn missing(&self) -> Vec<u32> {
        (0..)
            .zip(&self.shards)
            .filter(|(_, shard)| !matches!(shard, Shard::Written { .. }))
            .map(|(index, _)| index)
            .collect()
    }

    /// Indexes that somebody has dumped, whatever came of it.
    #[must_use]
    pub fn dumped(&self) -> Vec<u32> {
        let dumped = (0..).zip(&self.shards).filter(|(_, shard)| **shard != Shard::Missing);
        dumped.map(|(index, _)| index).collect()
    }

    /// A backend other than `lane` through which shards were written that only its own cache may
    /// hold: they do not count for a commit through `lane` (R42).
    #[must_use]
    pub fn cached_elsewhere(&self, lane: usize) -> Option<usize> {
        self.shards.iter().find_map(|shard| match shard {
            Shard::Written { lane: other, level: Level::Cached } if *other != lane => Some(*other),
            _ => None,
        })
    }

    /// Whether shards were written through other backends than `lane`.
    #[must_use]
    pub fn written_elsewhere(&self, lane: usize) -> bool {
        let elsewhere =
            |shard: &Shard| matches!(shard, Shard::Written { lane: other, .. } if *other != lane);
        self.shards.iter().any(elsewhere)
    }

    /// Whether there are shards that only the cache of `lane` may hold.
    #[must_use]
    pub fn cached_at(&self, lane: usize) -> bool {
        let only = Shard::Written { lane, level: Level::Cached };
        self.shards.contains(&only)
    }

    /// Whether every written shard is synced.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.shards.iter().all(|shard| match shard {
            Shard::Written { level, .. } => *level == Level::Synced,
            _ => true,
        })
    }

    /// Notes that the temporary was synced through `lane`.
    fn set_synced(&mut self, lane: usize) {
        for shard in &mut self.shards {
            if let Shard::Written { lane: through, level } = shard
                && *through == lane
            {
                *level = Level::Synced;
            }
        }
    }

    /// Marks the shards from `first` on.
    pub fn mark(&mut self, first: u32, count: usize, state: Shard) {
        for shard in self.shards.iter_mut().skip(first as usize).take(count) {
            *shard = state;
        }
    }

    /// Shards that only the cache of `lane` holds are lost to a commit through another path.
    pub fn lose(&mut self, lane: usize) {
        self.lost = true;
        for shard in &mut self.shards {
            if matches!(shard, Shard::Written { lane: l, level: Level::Cached } if *l == lane) {
                *shard = Shard::Failed;
            }
        }
    }

    /// Takes those who wait behind the shards from `first` on.
    pub fn take_behind(&mut self, first: u32, count: usize) -> Vec<(u32, Shards)> {
        let range = first..first.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        let (taken, kept) =
            std::mem::take(&mut self.behind).into_iter().partition(|(at, _)| range.contains(at));
        self.behind = kept;
        taken
    }
}

/// All blocks in progress of one store.
#[derive(Debug)]
pub struct Blocks {
    table: HashMap<BlockId, Progress>,
    shards: usize,
    last_generation: u64,
}

impl Blocks {
    /// An empty table for blocks of `shards` shards.
    #[must_use]
    pub fn new(shards: usize) -> Blocks {
        Blocks { table: HashMap::new(), shards, last_generation: 0 }
    }

    /// How many are in progress.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The generation that the next new block gets.
    #[cfg(test)]
    #[must_use]
    pub fn next_generation(&self) -> u64 {
        self.last_generation + 1
    }

    /// The block in progress, begun now with a generation that was never used before if there is
    /// none.
    pub fn begin(&mut self, id: BlockId, now: Time) -> &mut Progress {
        match self.table.entry(id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.last_generation += 1;
                entry.insert(Progress::new(self.last_generation, self.shards, now))
            }
        }
    }

    /// The block in progress.
    #[must_use]
    pub fn get(&self, id: &BlockId) -> Option<&Progress> {
        self.table.get(id)
    }

    /// The block in progress, if `generation` is its present one.
    pub fn live(&mut self, id: &BlockId, generation: u64) -> Option<&mut Progress> {
        self.table.get_mut(id).filter(|progress| progress.generation == generation)
    }

    /// Another generation, never used before, takes the place of one of which nothing is written.
    pub fn renew(&mut self, id: &BlockId, generation: u64) -> Option<&Progress> {
        let new = self.last_generation + 1;
        let progress = self.live(id, generation)?;
        (progress.generation, progress.begun_on) = (new, 0);
        self.last_generation = new;
        self.get(id)
    }

    /// The client of this path has looked at the temporary, with all that is written by now, unless
    /// only the cache of another one holds it.
    pub fn seen(&mut self, id: &BlockId, generation: u64, lane: usize) {
        if let Some(progress) = self.live(id, generation)
            && progress.cached_elsewhere(lane).is_none()
        {
            progress.seen_by |= 1 << lane;
        }
    }

    /// The temporary was synced through this path.
    pub fn synced(&mut self, id: &BlockId, generation: u64, lane: usize) {
        if let Some(progress) = self.live(id, generation) {
            progress.set_synced(lane);
        }
    }

    /// Ends a generation: committed, closed or dropped. It is never used again.
    pub fn end(&mut self, id: &BlockId, generation: u64) -> Option<Progress> {
        self.live(id, generation)?;
        self.table.remove(id)
    }

    /// All ids in progress, with their generations.
    #[must_use]
    pub fn all(&self) -> Vec<(BlockId, u64)> {
        self.table.iter().map(|(id, progress)| (*id, progress.generation)).collect()
    }

    /// Blocks that nothing has happened to since `since` and that nothing runs for.
    #[must_use]
    pub fn idle_since(&self, since: Time) -> Vec<(BlockId, u64)> {
        let idle = |progress: &Progress| {
            progress.touched <= since
                && progress.commit.is_none()
                && !progress.shards.iter().any(|shard| matches!(shard, Shard::InFlight(_)))
        };
        let found = self.table.iter().filter(|(_, progress)| idle(progress));
        found.map(|(id, progress)| (*id, progress.generation)).collect()
    }

    /// Takes everything of certain tasks that waits behind shards in flight.
    pub fn take_behind_of(&mut self, whose: impl Fn(&u64) -> bool) -> Vec<Shards> {
        let mut taken = Vec::new();
        for progress in self.table.values_mut() {
            let mine = progress.behind.extract_if(.., |(_, shards)| whose(&shards.task));
            taken.extend(mine.map(|(_, shards)| shards));
        }
        taken
    }

    /// Blocks that are old but busy count as touched now, so that nobody looks again at once.
    pub fn touch_busy(&mut self, since: Time, now: Time) {
        for progress in self.table.values_mut().filter(|progress| progress.touched <= since) {
            progress.touched = now;
        }
    }

    /// When the oldest block last changed.
    #[must_use]
    pub fn oldest(&self) -> Option<Time> {
        self.table.values().map(|progress| progress.touched).min()
    }
}

/// The waiter for the positions of these shards.
#[must_use]
pub fn waiter(shards: &Shards) -> Waiter {
    Waiter::Task { task: shards.task, positions: shards.positions.clone() }
}
