//! What is counted by path and by task, for metrics (R90). Decides nothing.

use super::attempt::Attempt;
use super::chain::{ChainId, Work};
use super::core::Core;
use super::space::Room;
use super::types::TaskKind;
use crate::clock::Time;
use crate::engine::Tag;
use crate::error::Failure;
use crate::health::class::{Class, Operation};
use crate::stats::{ATTEMPTS, Histogram, PathStats};

/// What is known of one path beside its health.
#[derive(Debug, Clone)]
pub struct PathFigures {
    /// Counters.
    pub stats: PathStats,
    /// Chains that wait for it.
    pub queued: usize,
    /// Room of its file system.
    pub room: Room,
}

/// How long tasks took, from submission to end: loads, dumps.
pub type TaskTimes = [Histogram; 2];

/// Where an operation stands in [`ATTEMPTS`].
fn histogram_of(work: Operation) -> Option<usize> {
    ATTEMPTS.iter().position(|word| *word == work.word())
}

impl Core {
    /// An attempt has ended by itself, or was given up.
    pub(super) fn count_attempt(&mut self, attempt: &Attempt, now: Time) {
        if let Some(at) = histogram_of(attempt.work) {
            let took = now.since(attempt.started);
            self.lanes[attempt.lane].stats.attempts[at].observe(took);
        }
    }

    /// An attempt passed its limit: its time, its error, and its number.
    pub(super) fn count_limit(&mut self, tag: Tag, failure: &Failure, now: Time) {
        let Some(attempt) = self.attempts.get(&tag) else { return };
        let (lane, took) = (attempt.lane, now.since(attempt.started));
        let stats = &mut self.lanes[lane].stats;
        stats.timeouts += 1;
        if let Some(at) = histogram_of(attempt.work) {
            stats.attempts[at].observe(took);
        }
        self.stats.timeouts += 1;
        self.count_error(lane, Class::Path, failure);
    }

    /// An attempt failed.
    pub(super) fn count_error(&mut self, lane: usize, class: Class, failure: &Failure) {
        self.lanes[lane].stats.error(class.word(), failure.error_word());
    }

    /// A chain succeeded on a path.
    pub(super) fn count_success(&mut self, id: ChainId, lane: usize) {
        let Some(chain) = self.chains.get(&id) else { return };
        let stats = &mut self.lanes[lane].stats;
        stats.failovers += u64::from(chain.went_from(lane));
        match &chain.work {
            Work::Load(shards) => {
                stats.load_hits += 1;
                stats.loaded_shards += shards.count() as u64;
                stats.loaded_bytes += shards.memory.bytes();
            }
            Work::Dump { shards, .. } => {
                stats.dumped_shards += shards.count() as u64;
                stats.dumped_bytes += shards.memory.bytes();
            }
            Work::Commit { detour: None, .. } => stats.committed_blocks += 1,
            Work::Remove { .. } => stats.removed_blocks += 1,
            Work::Commit { .. }
            | Work::Lookup { .. }
            | Work::Discard { .. }
            | Work::Chore { .. }
            | Work::SetAside
            | Work::Refresh { .. }
            | Work::Space { .. } => {}
        }
    }

    /// A path does not have what a chain asked for.
    pub(super) fn count_miss(&mut self, id: ChainId, lane: usize) {
        let stats = &mut self.lanes[lane].stats;
        match self.chains.get(&id).map(|chain| &chain.work) {
            Some(Work::Load(_)) => stats.load_misses += 1,
            Some(Work::Lookup { open, .. }) => {
                stats.lookup_misses += open.len() as u64;
                self.stats.lookup_misses += open.len() as u64;
            }
            _ => {}
        }
    }

    /// A task has ended.
    pub(super) fn count_task(&mut self, kind: TaskKind, began: Time, now: Time) {
        let at = match kind {
            TaskKind::Load => 0,
            TaskKind::Dump => 1,
        };
        self.task_times[at].observe(now.since(began));
    }

    /// A copy of it all, path by path.
    #[must_use]
    pub fn figures(&self) -> (Vec<PathFigures>, TaskTimes) {
        // Whoever asks for figures asks about room with it, and that is no work.
        let asks_room =
            |id| self.chains.get(&id).is_some_and(|chain| matches!(chain.work, Work::Space { .. }));
        let paths = self.lanes.iter().map(|lane| PathFigures {
            stats: lane.stats.clone(),
            queued: lane.queued_but(asks_room),
            room: lane.room,
        });
        (paths.collect(), self.task_times)
    }
}
