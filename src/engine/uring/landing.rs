//! What a read has brought, on its way to the caller (R30, R31).
//!
//! A device that answers many reads at once has nothing to do until it is asked for more. So all
//! that follows is asked for first, and only then is copied what is there: a read of several pieces
//! goes on in another buffer, and while many pieces are copied, what their ends set free is pulled.

use std::sync::Arc;

use super::read::is_last;
use super::table::{Ending, Id};
use super::worker::Worker;
use crate::engine::OpKind;
use crate::engine::buffers::{Buffer, Take};
use crate::engine::psync::plan::Piece;
use crate::engine::psync::read::given_up;
use crate::error::Step;

/// What is copied before the thread looks what it can ask for meanwhile.
const COPY_BYTES: usize = 256 << 10;

/// A piece that is in a buffer, and not with the caller yet.
pub(super) struct Landed {
    id: Id,
    piece: Piece,
    /// Where it is, if the op has gone on with its next piece in a buffer of its own.
    ahead: Option<Buffer>,
}

impl Worker {
    /// The present piece of a read is there.
    pub(super) fn landed(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        let (OpKind::Read(transfer), Some(piece)) = (&job.op.kind, job.piece) else { return };
        if job.op.gate.revoked() {
            return self.end(id, Ending::Report(Err(given_up(Step::Read))));
        }
        if !transfer.direct {
            // The kernel has just copied it: it is in the CPU's cache, and no device waits.
            return self.deliver(Landed { id, piece, ahead: None });
        }
        let goes_on = !is_last(transfer, &piece) && self.lane.buffers.plenty();
        let ahead = match goes_on.then(|| self.lane.buffers.take()) {
            Some(Take::Got(next)) => job.buffer.replace(next),
            _ => None,
        };
        if ahead.is_some() {
            job.at = piece.at + piece.bytes as u64;
            self.next_piece(id);
        }
        self.landed.push(Landed { id, piece, ahead });
    }

    /// Brings everything that has landed to the caller.
    pub(super) fn deliver_all(&mut self) {
        if self.landed.is_empty() {
            return;
        }
        self.hand_in();
        let (mut landed, mut copied) = (std::mem::take(&mut self.landed), 0);
        for one in landed.drain(..) {
            if copied >= COPY_BYTES {
                copied = 0;
                self.pull();
                self.hand_in();
            }
            copied += one.piece.bytes;
            self.deliver(one);
        }
        self.landed = landed;
    }

    fn hand_in(&mut self) {
        if self.ring.has_queued() {
            self.flush();
        }
    }

    /// Copies a piece to the caller, unless the op was given up, and goes on.
    fn deliver(&mut self, landed: Landed) {
        let Landed { id, piece, mut ahead } = landed;
        let Some(job) = self.table.get(id).filter(|job| job.ending.is_none()) else { return };
        let OpKind::Read(transfer) = &job.op.kind else { return };
        let went_on = ahead.is_some();
        let Some(buffer) = ahead.as_mut().or(job.buffer.as_mut()) else { return };
        let last = is_last(transfer, &piece);
        let gate = Arc::clone(&job.op.gate);
        let mut wanted = gate.enter();
        if wanted {
            let from = &buffer.bytes_mut()[piece.skip..piece.skip + piece.bytes];
            // SAFETY: inside the gate; `from` is the lane's own memory.
            unsafe { transfer.memory.copy_in(piece.at, from) };
            // A revoke during the last piece finds the whole range delivered: that is reported.
            wanted = gate.leave() || last;
        }
        if went_on {
            // The next piece is in the kernel; where this one is not wanted, that finds so, too.
            return;
        }
        if !wanted {
            return self.end(id, Ending::Report(Err(given_up(Step::Read))));
        }
        job.at = piece.at + piece.bytes as u64;
        if last {
            return self.end(id, Ending::Report(Ok(crate::engine::Done::Unit)));
        }
        self.next_piece(id);
    }
}
