//! Hotness (R64): a hit refreshes the mtime of the block's file, at most once a block and minute.
//! [`Hotness`] decides, from hits and `now`; the core makes chains of what it collects.
//!
//! Nobody waits for it, so it is cheap before it is quick: a hit costs one look into a table of
//! fixed size, and nobody is woken before a whole list of blocks has come together or [`DELAY`] has
//! passed. While nothing is hot nothing is armed, and nothing wakes.

use std::time::Duration;

use super::chain::{ChainId, Work};
use super::core::Core;
use super::effects::Effects;
use super::routing;
use super::step::Verdict;
use super::types::BlockId;
use crate::clock::Time;
use crate::engine::{Done, FileList, OpKind};
use crate::error::{Error, Failure};

/// Blocks of one list: so many hits on one backend wake one worker once.
pub const BATCH: usize = 64;
/// How long the first hit of a list waits for others.
pub const DELAY: Duration = Duration::from_secs(1);
/// So long after a hit that counted the next one counts: a minute, and what the first may have
/// waited.
pub const INTERVAL: Duration = Duration::from_secs(61);
/// Hits collected, queued or under way; further ones are left out and counted.
pub const MAX_WAITING: usize = 4096;
/// Blocks whose last refresh is remembered: sets of a few places each, found by the block's hash. A
/// hit that finds its set full of younger ones is left out and counted.
const SETS: usize = 16_384;
const PLACES: usize = 8;
/// Sets that are allocated together, when the first of them is needed: a store with few blocks, or
/// one that is opened and closed often, touches little memory. (One table of zeros would be mapped
/// once and touched page by page, but malloc takes what large tables gave back for the next one,
/// and then clears all of it: 15 MiB more after 200 stores.)
const PART: usize = 64;

/// A block, and until when its hits do not count. Small: a hit reads a whole set.
#[derive(Debug, Clone, Copy)]
struct Place {
    block: BlockId,
    /// Nanoseconds of the store's clock; 0: free.
    until_ns: u64,
}

const FREE: Place = Place { block: BlockId([0; 16]), until_ns: 0 };

fn nanos(time: Time) -> u64 {
    u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX)
}

/// What a hit leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hit {
    /// Refreshed less than a minute ago, or about to be.
    Recent,
    /// Left out: too many others are remembered, or wait.
    LeftOut,
    /// It waits for others.
    Waits,
    /// The list of its backend is full: time to go.
    Full,
}

/// Which blocks are to be refreshed, and which were. Owned by the core.
#[derive(Debug, Default)]
pub struct Hotness {
    /// Parts of [`PART`] sets; each is empty until its first hit.
    parts: Vec<Vec<Place>>,
    /// Hits that wait for others, by primary.
    lists: Vec<Vec<BlockId>>,
    /// Hits in lists and chains.
    waiting: usize,
    /// When the lists are due; `None`: they are empty.
    pub due: Option<Time>,
}

impl Hotness {
    /// For `n` backends.
    #[must_use]
    pub fn new(n: usize) -> Hotness {
        Hotness { lists: vec![Vec::new(); n], ..Hotness::default() }
    }

    /// A block was found.
    pub fn hit(&mut self, block: BlockId, now: Time) -> Hit {
        let hash = routing::hash(&block);
        let room = self.waiting < MAX_WAITING;
        let now_ns = nanos(now);
        let Some(place) = self.place(block, hash, now_ns) else { return Hit::LeftOut };
        if place.block == block && place.until_ns > now_ns {
            return Hit::Recent;
        }
        if !room {
            return Hit::LeftOut;
        }
        *place = Place { block, until_ns: nanos(now.plus(INTERVAL)) };
        self.waiting += 1;
        let n = self.lists.len().max(1);
        let lane = usize::try_from(hash % n as u64).unwrap_or(0);
        let Some(list) = self.lists.get_mut(lane) else { return Hit::LeftOut };
        list.push(block);
        self.due.get_or_insert(now.plus(DELAY));
        if list.len() >= BATCH { Hit::Full } else { Hit::Waits }
    }

    /// The block's place: its own, or one that is free or has aged.
    fn place(&mut self, block: BlockId, hash: u64, now_ns: u64) -> Option<&mut Place> {
        // The low bits chose the backend already.
        let set = usize::try_from((hash >> 32) % SETS as u64).unwrap_or(0);
        if self.parts.is_empty() {
            self.parts = vec![Vec::new(); SETS / PART];
        }
        let part = self.parts.get_mut(set / PART)?;
        if part.is_empty() {
            *part = vec![FREE; PART * PLACES];
        }
        let first = set % PART * PLACES;
        let places = part.get_mut(first..first + PLACES)?;
        let own = |place: &Place| place.block == block && place.until_ns > now_ns;
        let free = |place: &Place| place.until_ns <= now_ns;
        let at = places.iter().position(own).or_else(|| places.iter().position(free))?;
        places.get_mut(at)
    }

    /// Takes the hits that wait for this primary.
    pub fn take(&mut self, lane: usize) -> Vec<BlockId> {
        let taken = self.lists.get_mut(lane).map(std::mem::take).unwrap_or_default();
        if self.lists.iter().all(Vec::is_empty) {
            self.due = None;
        }
        taken
    }

    /// So many hits have been served, or given up.
    pub fn served(&mut self, count: usize) {
        self.waiting = self.waiting.saturating_sub(count);
    }
}

impl Core {
    /// A block was found (R64), or was there already when it was to be committed (R40).
    pub(super) fn hit(&mut self, block: BlockId, now: Time, fx: &mut Effects) {
        if self.closing {
            return;
        }
        let idle = self.hotness.due.is_none();
        match self.hotness.hit(block, now) {
            Hit::Recent => {}
            Hit::LeftOut => self.stats.hotness_left_out += 1,
            Hit::Waits if idle => {
                // Not among the judge's limits: a judge that wakes late for this has slept through
                // nobody's time (R28).
                let due = now.plus(DELAY);
                fx.arm = Some(fx.arm.map_or(due, |other| other.min(due)));
            }
            Hit::Waits => {}
            Hit::Full => self.refresh(routing::primary(&block, self.n()), now, fx),
        }
    }

    /// Time has passed: lists that are due go. Says when to look again.
    pub(super) fn judge_hotness(&mut self, now: Time, fx: &mut Effects) -> Option<Time> {
        if self.hotness.due.is_some_and(|due| due <= now) {
            self.refresh_all(now, fx);
        }
        self.hotness.due
    }

    /// Sends off what waits: the store closes, or it is time.
    pub(super) fn refresh_all(&mut self, now: Time, fx: &mut Effects) {
        for lane in 0..self.n() {
            self.refresh(lane, now, fx);
        }
    }

    fn refresh(&mut self, lane: usize, now: Time, fx: &mut Effects) {
        let blocks = self.hotness.take(lane);
        let Some(first) = blocks.first().copied() else { return };
        let hits = blocks.len();
        let id = self.add_chain(Work::Refresh { blocks, hits, asked: None }, first);
        self.route(id, now, fx);
    }

    pub(super) fn refresh_op(&mut self, id: ChainId, lane: usize) -> Option<OpKind> {
        let Work::Refresh { blocks, asked, .. } = &mut self.chains.get_mut(&id)?.work else {
            return None;
        };
        let paths = blocks.iter().map(|block| self.layout.block_path(lane, block)).collect();
        let list = std::sync::Arc::new(FileList::new(paths, self.clock.clone()));
        *asked = Some(std::sync::Arc::clone(&list));
        Some(OpKind::TouchMany(list))
    }

    /// What became of a list: what was answered is done with, whatever the answer (a block that is
    /// gone, a file of another owner); the rest goes on to the next backend.
    pub(super) fn refresh_verdict(
        &mut self,
        id: ChainId,
        answers: &[Result<(), i32>],
        failure: Option<Failure>,
    ) -> Verdict {
        let touched = answers.iter().filter(|answer| answer.is_ok()).count();
        self.stats.hotness_refreshed += touched as u64;
        self.stats.hotness_left_out += (answers.len() - touched) as u64;
        if let Some(chain) = self.chains.get_mut(&id)
            && let Work::Refresh { blocks, .. } = &mut chain.work
        {
            blocks.drain(..answers.len().min(blocks.len()));
        }
        match failure {
            Some(failure) => Verdict::Fail(failure),
            None => Verdict::Success(Done::Unit),
        }
    }

    /// A list has ended. Nobody waits for it; what no backend took is counted.
    pub(super) fn refreshed(&mut self, hits: usize, left: usize, result: &Result<(), Error>) {
        self.hotness.served(hits);
        if result.is_err() {
            self.stats.hotness_left_out += left as u64;
        }
    }
}

#[cfg(test)]
#[path = "hotness_tests.rs"]
mod tests;
