//! What a list of questions was answered: which blocks are there, which are hot now, and what is to
//! be asked again (R24, R62, R64).

use super::chain::{ChainId, Work};
use super::core::Core;
use super::step::{Step, Then, Verdict};
use super::types::BlockId;
use crate::engine::{Done, FileInfo};
use crate::error::Failure;

impl Core {
    /// The answers to a list of blocks; the rest goes on, to the next step or backend. Gives the
    /// blocks that are hot now.
    pub(super) fn lookup_verdict(
        &mut self,
        id: ChainId,
        lane: usize,
        infos: &[Option<FileInfo>],
        failure: Option<Failure>,
        fresh: bool,
    ) -> (Verdict, Vec<BlockId>) {
        let mut hits = Vec::new();
        let nothing = (Verdict::NotFound, Vec::new());
        let block_bytes = self.rules.shape.map(|shape| shape.block_bytes);
        let check_size = self.rules.lookup_size;
        let Some(chain) = self.chains.get_mut(&id) else { return nothing };
        let Work::Lookup { call, open, .. } = &mut chain.work else { return nothing };
        let Some(call) = self.calls.get_mut(*call) else { return nothing };
        let mut rest = Vec::new();
        for (at, (position, block)) in open.drain(..).enumerate() {
            match infos.get(at) {
                Some(Some(info)) => {
                    let whole = match (info.bytes, block_bytes) {
                        (Some(bytes), Some(expected)) if check_size => bytes == expected,
                        (Some(bytes), _) => bytes > 0,
                        (None, _) => false,
                    };
                    call.found[position] = whole;
                    if !whole && self.rules.quarantine {
                        self.wrong.push(block);
                    }
                    if whole && self.rules.hot_on_lookup {
                        hits.push(block);
                    }
                    let stats = &mut self.lanes[lane].stats;
                    for (all, here, counts) in [
                        (&mut self.stats.lookup_hits, &mut stats.lookup_hits, whole),
                        (&mut self.stats.corrupt, &mut stats.corrupt, !whole),
                        (&mut self.stats.lookup_misses, &mut stats.lookup_misses, !whole),
                    ] {
                        *all += u64::from(counts);
                        *here += u64::from(counts);
                    }
                }
                // Absent only if the path shows the storage (R24).
                Some(None) if fresh => {
                    self.stats.lookup_misses += 1;
                    self.lanes[lane].stats.lookup_misses += 1;
                }
                Some(None) | None => rest.push((position, block)),
            }
        }
        let answered_all = rest.is_empty();
        let missing_only = failure.is_none();
        *open = rest;
        let verdict = match failure {
            Some(failure) => Verdict::Fail(failure),
            None if answered_all || !missing_only => Verdict::Success(Done::Unit),
            None => Verdict::Next(Step::Marker(Then::NotFound)),
        };
        (verdict, hits)
    }
}
