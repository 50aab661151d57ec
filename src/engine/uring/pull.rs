//! What a ring's thread takes on: as much as its lane may have in flight, its buffers allow, and
//! the kernel has workers for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ledger::{Kind, Who, buffered};
use super::worker::Worker;
use crate::engine::Want;
use crate::engine::buffers::Take;

/// The kernel's workers of one ring where nothing hangs: there, writes and calls on names alone go
/// to them, and a device is busy with a few.
pub(super) const WORKERS: u32 = 10;
/// Transfers that go to those workers: the rest is for the calls on names that end them.
const WRITES: usize = 9;
/// Ops of the pool that transfers wait for, or fight with for the caches: looks at the storage's
/// marker, and on a memory file system every transfer, which is a copy.
const HANDED: usize = 4;
/// Ops that a ring starts before it enters, while it is its thread that limits the lane.
const SHARE: usize = 2;
/// Writes that are copied before they are handed over together: a copy takes as long as the device
/// needs for several of them, and a call much less.
pub(super) const COPIES: usize = 4;

impl Worker {
    /// Pulls what can be started, and starts it.
    pub(super) fn pull(&mut self) {
        let mut left = usize::MAX;
        self.more = false;
        while self.has_places() && !self.lane.stopping() {
            if left == 0 && self.table.busy() >= SHARE {
                self.more = true;
                return self.lane.rouse(self.number + 1);
            }
            let lane = Arc::clone(&self.lane);
            let (writes, names) = self.room();
            if !names {
                return;
            }
            let armed = writes && self.arm();
            let want = if armed { Want::Any } else { Want::Metadata };
            let claim = lane.ledger.claim(Who::Ring, want);
            let want = match (claim.transfer, claim.metadata) {
                (true, true) => Want::Any,
                (true, false) => Want::Transfers,
                (false, true) => Want::Metadata,
                (false, false) => {
                    lane.ledger.settle(Who::Ring, claim, None);
                    return;
                }
            };
            let op = lane.source.pull(want);
            let record = op.as_ref().map(|op| (op.tag, Kind::of(&op.kind)));
            lane.tell(lane.ledger.settle(Who::Ring, claim, record));
            let Some(op) = op else { return };
            if self.pressure.high() || buffered(&op.kind) {
                left = left.min(SHARE);
            }
            left = left.saturating_sub(1);
            self.start(op);
            if self.copied >= COPIES {
                self.flush();
            }
        }
    }

    /// Whether there is a worker, the kernel's or the pool's, for a transfer, and for a call on a
    /// name. The thread looks again when something has ended, so nothing is missed.
    fn room(&self) -> (bool, bool) {
        let habit = &self.lane.habit;
        if !habit.few() {
            return (true, true);
        }
        let inline = if habit.local() { self.table.inline() } else { 0 };
        let busy = self.table.busy() - inline;
        let room = || busy < WRITES && self.lane.crowd() < HANDED;
        // Noted before the last look, so that whoever ends an op there sees it.
        let transfers = room() || {
            self.lane.crowded.store(true, Ordering::SeqCst);
            room()
        };
        (transfers, busy < WORKERS as usize)
    }

    /// Whether the ring takes on more: it has a place for it, or has lost places for good, perhaps,
    /// to ops that were given up. What has no place then goes to the pool.
    fn has_places(&self) -> bool {
        let places = || !self.table.full() || self.table.any_given_up();
        // Noted before the last look, so that whoever gives an op up sees it.
        places() || {
            self.lane.full.store(true, Ordering::SeqCst);
            places()
        }
    }

    /// Takes a buffer before a transfer is pulled. Where the system refuses one the transfer is
    /// pulled all the same, and waits for memory on a worker of the pool (R22).
    fn arm(&mut self) -> bool {
        if self.spare.is_some() {
            return true;
        }
        // Noted before the last look, so that whoever gives one back sees it.
        for last in [false, true] {
            match self.lane.buffers.take() {
                Take::Got(buffer) => {
                    self.spare = Some(buffer);
                    return true;
                }
                Take::Refused(_) => return true,
                Take::Exhausted if last => return false,
                Take::Exhausted => self.lane.starved.store(true, Ordering::SeqCst),
            }
        }
        false
    }
}
