//! A chain: one piece of work that goes from backend to backend until it succeeds or nothing is
//! left to try (R27). A transfer, a commit, a lookup, a removal are chains. Plain data and small
//! pure questions; who moves chains is `core.rs`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::chore::Chore;
use super::collector::tally::Tally;
use super::types::BlockId;
use crate::engine::{FileList, Memory, Tag};
use crate::error::{Failure, Status};

/// Names a chain; never used twice by a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainId(pub u64);

/// Shards of one task that are adjacent in one file (R38).
#[derive(Debug, Clone)]
pub struct Shards {
    /// The task.
    pub task: u64,
    /// Index of the first shard in the block.
    pub first: u32,
    /// The position in the call of each shard, in file order.
    pub positions: Vec<usize>,
    /// Their memory, in file order.
    pub memory: Arc<Memory>,
}

impl Shards {
    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.positions.len()
    }
}

/// Who is told how a shard, or a commit, ended: positions of a task, or a waiting call.
#[derive(Debug, Clone)]
pub enum Waiter {
    /// These positions of this task.
    Task {
        /// The task.
        task: u64,
        /// Positions in its call.
        positions: Vec<usize>,
    },
    /// Position `position` of this call.
    Call {
        /// The call.
        call: u64,
        /// Position in it.
        position: usize,
    },
}

/// What is done through another backend before a commit goes on (R42).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detour {
    /// Sync what was written through it.
    Sync(usize),
    /// Make its client look at the temporary anew.
    Look(usize),
}

/// What a chain is for.
#[derive(Debug)]
pub enum Work {
    /// Read shards.
    Load(Shards),
    /// Write shards into a generation's temporary.
    Dump {
        /// The shards.
        shards: Shards,
        /// The generation.
        generation: u64,
        /// This chain creates the temporary.
        create: bool,
        /// Who else waits for these shards to be committed.
        also: Vec<Waiter>,
    },
    /// Give a temporary its final name.
    Commit {
        /// The generation.
        generation: u64,
        /// Who is told.
        waiters: Vec<Waiter>,
        /// The whole block, where one task dumped it: it can be written again through another
        /// backend (R42).
        rewrite: Option<Shards>,
        /// What is done first through another backend.
        detour: Option<Detour>,
        /// Backends that were asked to look anew first.
        looked: u64,
        /// A sync of the temporary through this backend was begun and has not succeeded.
        syncing: Option<usize>,
    },
    /// Remove a block.
    Remove {
        /// The call that waits.
        call: u64,
        /// Position in it.
        position: usize,
    },
    /// Ask whether blocks are there.
    Lookup {
        /// The call that waits.
        call: u64,
        /// Positions in it that are still open, with their blocks.
        open: Vec<(usize, BlockId)>,
        /// The present attempt's list.
        asked: Option<Arc<FileList>>,
    },
    /// Remove a temporary of this store, best effort.
    Discard {
        /// The generation.
        generation: u64,
        /// See [`Leftover`](super::generations::Leftover).
        named: bool,
    },
    /// One step of the collector (R80–R86).
    Chore {
        /// The call that waits.
        call: u64,
        /// Position in it.
        position: usize,
        /// What to do.
        chore: Chore,
        /// Limit of an attempt.
        limit: Option<Duration>,
        /// What the present attempt's listing showed.
        tally: Option<Arc<Tally>>,
    },
    /// Refresh the mtime of blocks that were found (R64).
    Refresh {
        /// Those that no backend has answered for.
        blocks: Vec<BlockId>,
        /// How many there were.
        hits: usize,
        /// The present attempt's list.
        asked: Option<Arc<FileList>>,
    },
    /// Ask how much room one path's file system has (R90).
    Space {
        /// The path.
        lane: usize,
    },
    /// Move a file that is no whole block out of the way (R23).
    SetAside,
}

/// Which slots a chain takes, and in which queue it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Lookups.
    Lookup,
    /// Commits, removals, discards.
    Metadata,
    /// Steps of the collector's lease: what hangs of its work must not hold them up.
    Lease,
    /// Loads.
    Load,
    /// Dumps.
    Dump,
    /// What can wait: collecting, sweeping, setting aside, hotness, questions about room.
    Idle,
}

/// All classes.
pub const CLASSES: [Class; 6] =
    [Class::Lookup, Class::Metadata, Class::Lease, Class::Load, Class::Dump, Class::Idle];

impl Work {
    /// See [`Class`].
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Work::Load(_) => Class::Load,
            Work::Dump { .. } => Class::Dump,
            Work::Commit { .. } | Work::Remove { .. } | Work::Discard { .. } => Class::Metadata,
            Work::Lookup { .. } => Class::Lookup,
            Work::Chore { chore, .. } if chore.is_of_the_lease() => Class::Lease,
            Work::Chore { .. } | Work::SetAside | Work::Refresh { .. } | Work::Space { .. } => {
                Class::Idle
            }
        }
    }
}

impl Work {
    /// Its success is no evidence of a path's health: it follows from work that was one.
    #[must_use]
    pub fn is_chore(&self) -> bool {
        matches!(self, Work::Refresh { .. } | Work::Space { .. } | Work::Discard { .. })
    }

    /// Its failure is remembered by the block, or the file, that decides its route (R22); that of a
    /// directory or of the lease is not.
    #[must_use]
    pub fn is_of_one_file(&self) -> bool {
        match self {
            Work::Chore { chore, .. } => chore.is_removal() && !chore.is_of_the_lease(),
            Work::Load(_)
            | Work::Dump { .. }
            | Work::Commit { .. }
            | Work::Remove { .. }
            | Work::Lookup { .. }
            | Work::Discard { .. }
            | Work::Refresh { .. }
            | Work::Space { .. }
            | Work::SetAside => true,
        }
    }

    /// It is at a commit's turn through another path that only has to look anew (R42): no attempt
    /// of the commit itself.
    #[must_use]
    pub fn looks(&self) -> bool {
        matches!(self, Work::Commit { detour: Some(Detour::Look(_)), .. })
    }

    /// It may still begin while the store closes (R54).
    #[must_use]
    pub fn outlives_close(&self) -> bool {
        matches!(self, Work::Commit { .. } | Work::Refresh { .. })
    }

    /// What can wait, and the lease: all that ends with the collector.
    #[must_use]
    pub fn ends_with_collector(&self) -> bool {
        matches!(self.class(), Class::Idle | Class::Lease) && !self.outlives_close()
    }
}

/// Where a chain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Waits until another chain has created the temporary.
    Parked,
    /// In the queue of this lane.
    Queued(usize),
    /// An attempt runs under this tag.
    Running(Tag),
}

/// Why a chain's last attempt failed.
#[derive(Debug, Clone)]
pub struct LastError {
    /// Through which backend.
    pub lane: usize,
    /// What.
    pub failure: Failure,
    /// The status that it becomes if nothing else is left.
    pub status: Status,
}

/// One piece of work on its way.
#[derive(Debug)]
pub struct Chain {
    /// What for.
    pub work: Work,
    /// The block that decides the route.
    pub block: BlockId,
    /// Its primary.
    pub primary: usize,
    /// Backends that were tried.
    pub tried: u64,
    /// Attempts begun.
    pub attempts: u32,
    /// The backend of the first attempt.
    pub first_lane: Option<usize>,
    /// The last failure.
    pub last: Option<LastError>,
    /// Where it is.
    pub place: Place,
    /// Attempts of this chain that were given up and are still in the kernel.
    pub in_kernel: HashSet<Tag>,
    /// The temporary was found to be gone from a path that shows the storage.
    pub vanished: bool,
    /// A second look was taken at a file of a wrong size (R23).
    pub looked_again: bool,
    /// Backends among `tried` that were only left out while there are others: what hangs there
    /// would be waited for. They are asked last.
    pub spared: u64,
}

impl Chain {
    /// It began on another backend than this.
    #[must_use]
    pub fn went_from(&self, lane: usize) -> bool {
        self.first_lane.is_some_and(|first| first != lane)
    }
}
