//! What the pool of a lane sees as its source: the ops that a ring handed over, and the lane's
//! metadata. Where no ring can be made, everything.

use std::collections::{HashMap, VecDeque};
use std::sync::Weak;
use std::sync::atomic::Ordering;

use super::lane::Lane;
use super::ledger::{Kind, Who};
use crate::engine::buffers::{Buffer, Take};
use crate::engine::psync::Tried;
use crate::engine::{Op, OpKind, Outcome, Source, Tag, Want};

/// What an op takes along to the pool.
#[derive(Debug, Default)]
pub(super) struct Baggage {
    pub(super) buffer: Option<Buffer>,
    pub(super) tried: Tried,
    /// The worker looks what kind of file system it is.
    pub(super) learns: bool,
}

/// The ops on their way from the rings to the pool, and those that it has. Owned by the lane.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Ops that wait for a worker.
    waiting: VecDeque<(Op, Baggage)>,
    /// What ops that a worker has pulled have brought, until it is taken.
    baggage: HashMap<Tag, Baggage>,
    /// Ops that have not ended, and whether they crowd.
    live: HashMap<Tag, bool>,
}

impl Handed {
    /// An op of a ring.
    pub(super) fn add(&mut self, op: Op, baggage: Baggage) {
        self.live.insert(op.tag, crowds(&op.kind));
        self.waiting.push_back((op, baggage));
    }

    /// The next op for a worker.
    fn take(&mut self, mut fits: impl FnMut(&Op) -> bool) -> Option<Op> {
        let at = self.waiting.iter().position(|(op, _)| fits(op))?;
        let (op, baggage) = self.waiting.remove(at)?;
        self.baggage.insert(op.tag, baggage);
        Some(op)
    }

    /// An op that a worker pulled itself and brings a buffer for.
    fn put_baggage(&mut self, op: &Op, baggage: Baggage) {
        self.baggage.insert(op.tag, baggage);
        self.live.insert(op.tag, crowds(&op.kind));
    }

    /// What an op has brought.
    pub(super) fn take_baggage(&mut self, tag: Tag) -> Option<Baggage> {
        self.baggage.remove(&tag)
    }

    /// An op has ended; whether it was one of these.
    pub(super) fn ended(&mut self, tag: Tag) -> bool {
        self.live.remove(&tag).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// How many crowd.
    pub(super) fn crowd(&self) -> usize {
        self.live.values().filter(|crowds| **crowds).count()
    }
}

/// Whether the op is one that transfers wait for, or fight with: not a listing or a removal of the
/// collector's, of which there may be many, and each may last.
fn crowds(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Read(_) | OpKind::Write(_) | OpKind::ReadSmall { .. })
}

/// See the module's text. Holds the lane weakly, since the lane holds the pool.
pub(super) struct PoolSource(pub(super) Weak<Lane>);

impl Source for PoolSource {
    fn pull(&self, want: Want) -> Option<Op> {
        let lane = self.0.upgrade()?;
        if let Some(op) = lane.with_handed(|handed| handed.take(|op| Kind::of(&op.kind).fits(want)))
        {
            return Some(op);
        }
        if lane.stopping() {
            return None;
        }
        if want != Want::Transfers
            && let Some(op) = pull_metadata(&lane)
        {
            return Some(op);
        }
        if want != Want::Metadata && lane.without_ring() {
            return pull_transfer(&lane);
        }
        None
    }

    fn complete(&self, tag: Tag, outcome: Outcome) {
        let Some(lane) = self.0.upgrade() else { return };
        // Taken where the worker had no use for it, or panicked before it looked.
        drop(lane.with_handed(|handed| handed.take_baggage(tag)));
        lane.source.complete(tag, outcome);
        let missed = lane.ledger.finish(tag);
        lane.tell(missed);
        lane.reported(tag);
        // The op's buffer is free, and so is its worker.
        let starved = lane.starved.swap(false, Ordering::SeqCst);
        if lane.crowded.swap(false, Ordering::SeqCst) || starved {
            lane.wake(1);
        }
    }
}

fn pull_metadata(lane: &Lane) -> Option<Op> {
    let claim = lane.ledger.claim(Who::Pool, Want::Metadata);
    let op = if claim.metadata { lane.source.pull(Want::Metadata) } else { None };
    let record = op.as_ref().map(|op| (op.tag, Kind::Metadata));
    lane.tell(lane.ledger.settle(Who::Pool, claim, record));
    op
}

/// A buffer is taken before a transfer is pulled, as rings do it.
fn pull_transfer(lane: &Lane) -> Option<Op> {
    let buffer = match lane.buffers.take() {
        Take::Got(buffer) => Some(buffer),
        Take::Refused(_) => None,
        Take::Exhausted => {
            lane.ledger.pool_missed();
            return None;
        }
    };
    let claim = lane.ledger.claim(Who::Pool, Want::Transfers);
    let op = if claim.transfer { lane.source.pull(Want::Transfers) } else { None };
    let record = op.as_ref().map(|op| (op.tag, Kind::Transfer));
    lane.tell(lane.ledger.settle(Who::Pool, claim, record));
    if let Some(op) = &op {
        let baggage = Baggage { buffer, ..Baggage::default() };
        lane.with_handed(|handed| handed.put_baggage(op, baggage));
    }
    op
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::engine::Gate;

    fn op(tag: u64, kind: OpKind) -> Op {
        let gate = Arc::new(Gate::new(Clock::monotonic()));
        Op { tag: Tag(tag), kind, gate, local_limit: Duration::ZERO }
    }

    #[test]
    fn listings_and_removals_keep_no_ring_from_its_transfers() {
        let mut handed = Handed::default();
        for tag in 0..8 {
            handed.add(op(tag, OpKind::List { path: c"/".into(), filter: "" }), Baggage::default());
        }
        handed.add(op(8, OpKind::Unlink { path: c"/x".into() }), Baggage::default());
        assert_eq!(handed.crowd(), 0);
        handed.add(op(9, OpKind::ReadSmall { path: c"/x".into() }), Baggage::default());
        assert_eq!(handed.crowd(), 1);
        assert!(handed.ended(Tag(9)) && !handed.ended(Tag(9)));
        assert_eq!(handed.crowd(), 0);
        assert!(!handed.is_empty());
    }
}
