//! What the pool of a lane sees as its source: the ops that a ring handed over, and the lane's
//! metadata. Where no ring can be made, everything.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use super::lane::{Baggage, Lane};
use super::ledger::{Kind, Who};
use crate::engine::buffers::Take;
use crate::engine::{Op, Outcome, Source, Tag, Want};

/// See the module's text. Holds the lane weakly, since the lane holds the pool.
pub(super) struct PoolSource(pub(super) Weak<Lane>);

impl Source for PoolSource {
    fn pull(&self, want: Want) -> Option<Op> {
        let lane = self.0.upgrade()?;
        if let Some(op) = lane.take_handed(|op| Kind::of(&op.kind).fits(want)) {
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
        drop(lane.take_baggage(tag));
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
        lane.put_baggage(op.tag, Baggage { buffer, ..Baggage::default() });
    }
    op
}
