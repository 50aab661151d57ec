//! How the shards of one call become transfers: sorted, checked, joined where they are adjacent
//! (R38). Pure.

use super::chain::Shards;
use super::dump::join_memory;
use super::types::{BlockId, ShardRequest, TaskKind};
use crate::config::Shape;
use crate::engine::Segment;
use crate::error::Error;

/// Most bytes of one transfer: what is larger goes in several (R38). One shard is never split.
pub const MAX_TRANSFER_BYTES: u64 = 16 << 20;
/// The runs of one task: positions in the call, sorted by block and index.
pub struct Plan {
    /// Position in the call, and the shard.
    pub requests: Vec<(usize, ShardRequest)>,
}

impl Plan {
    /// Sorts the shards of a call. Done outside the core's lock.
    ///
    /// # Errors
    /// `InvalidParam` for the same shard twice in a dump (R42).
    pub fn new(kind: TaskKind, requests: Vec<ShardRequest>) -> Result<Plan, Error> {
        let mut requests: Vec<(usize, ShardRequest)> = requests.into_iter().enumerate().collect();
        requests.sort_by_key(|(at, request)| (request.block, request.index, *at));
        let twice = requests
            .windows(2)
            .find(|pair| (pair[0].1.block, pair[0].1.index) == (pair[1].1.block, pair[1].1.index));
        if let (TaskKind::Dump, Some(pair)) = (kind, twice) {
            let ((first, request), (second, _)) = (&pair[0], &pair[1]);
            let (block, index) = (request.block, request.index);
            return Err(Error::invalid(format!(
                "shards[{first}] and shards[{second}] are the same: block {block}, shard {index}"
            )));
        }
        Ok(Plan { requests })
    }

    /// How many shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.requests.len()
    }

    /// The blocks, each once.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> {
        let mut last = None;
        self.requests.iter().filter_map(move |(_, request)| {
            (last.replace(request.block) != Some(request.block)).then_some(request.block)
        })
    }
}

/// Shards of one block that are adjacent and not too many, collected one by one.
struct Run {
    task: u64,
    block: BlockId,
    first: u32,
    positions: Vec<usize>,
    memory: Vec<Vec<Segment>>,
}

impl Run {
    fn takes(&self, request: &ShardRequest, shape: Shape) -> bool {
        let next = self.first as usize + self.positions.len();
        let bytes = (self.positions.len() as u64 + 1).saturating_mul(shape.shard_bytes);
        self.block == request.block && next == request.index as usize && bytes <= MAX_TRANSFER_BYTES
    }

    fn finish(self) -> (BlockId, Shards) {
        let memory = join_memory(self.memory);
        let Run { task, block, first, positions, .. } = self;
        (block, Shards { task, first, positions, memory })
    }
}

/// The transfers of one task.
pub fn runs(
    task: u64,
    shape: Shape,
    requests: Vec<(usize, ShardRequest)>,
) -> Vec<(BlockId, Shards)> {
    let mut done = Vec::new();
    let mut current: Option<Run> = None;
    for (at, request) in requests {
        match &mut current {
            Some(run) if run.takes(&request, shape) => {
                run.positions.push(at);
                run.memory.push(request.memory);
            }
            _ => {
                let (block, first) = (request.block, request.index);
                let (positions, memory) = (vec![at], vec![request.memory]);
                let next = Run { task, block, first, positions, memory };
                done.extend(current.replace(next).map(Run::finish));
            }
        }
    }
    done.extend(current.map(Run::finish));
    done
}
