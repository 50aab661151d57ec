//! What an engine is asked to read or write for shards (R33, R43), and of what kind the paths are.

use std::sync::Arc;

use super::backend::LaneState;
use super::chain::Shards;
use super::core::Core;
use super::types::BlockId;
use crate::config::CommitSync;
use crate::engine::Transfer;

impl Core {
    pub(super) fn transfer(
        &self,
        shards: &Shards,
        lane: usize,
        block: &BlockId,
        generation: Option<u64>,
        create: bool,
    ) -> Option<Transfer> {
        let shape = self.rules.shape?;
        let facts = &self.lanes[lane].facts;
        let shared_sectors = shape.shard_bytes % facts.offset_align.max(1) != 0;
        let write = generation.is_some();
        // R33: a write never rewrites a sector for its neighbour; a read may read a little more.
        let direct = facts.direct && !(write && shared_sectors);
        let whole = shards.memory.bytes() == shape.block_bytes;
        let sync = write && ((facts.direct && shared_sectors) || (whole && self.syncs_data()));
        let path = match generation {
            Some(generation) => self.layout.temporary_path(lane, block, generation),
            None => self.layout.block_path(lane, block),
        };
        Some(Transfer {
            path,
            offset: u64::from(shards.first) * shape.shard_bytes,
            memory: Arc::clone(&shards.memory),
            isolated: self.rules.isolated,
            direct,
            file_bytes: shape.block_bytes,
            create: create.then_some(self.rules.file_mode),
            reserve: create && direct && !whole,
            sync,
        })
    }

    /// A block's bytes are synced before it gets its name (R43). Through whichever path they were
    /// written: blocks change paths, and a path may run buffered only after it came back.
    pub(super) fn syncs_data(&self) -> bool {
        match self.rules.commit_sync {
            CommitSync::None => false,
            CommitSync::AsPathsRun => self.lanes.iter().any(|lane| !lane.facts.direct),
            CommitSync::Data | CommitSync::Full => true,
        }
    }

    /// Paths whose clients remember nothing.
    pub(super) fn coherent(&self) -> u64 {
        let coherent = |(at, lane): (usize, &LaneState)| u64::from(lane.facts.coherent) << at;
        self.lanes.iter().enumerate().map(coherent).fold(0, |all, one| all | one)
    }
}
