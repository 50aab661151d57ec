//! What a read has brought, on its way to the caller (R30, R31).
//!
//! A device that answers many reads at once has nothing to do until it is asked for more. So what
//! follows is asked for between the copies, not after all of them: the next piece of what was just
//! copied, and what the ends of ops set free. It is not asked for before the copy: a revoke that
//! meets a copy is answered when that is over, and what is in the kernel then might hang.

use std::sync::Arc;

use super::read::is_last;
use super::table::{Ending, Id};
use super::worker::Worker;
use crate::engine::psync::plan::Piece;
use crate::engine::psync::read::given_up;
use crate::engine::{Done, OpKind};
use crate::error::Step;

/// What is copied before the thread looks what it can ask for meanwhile.
const COPY_BYTES: usize = 256 << 10;

/// A piece that is in its op's buffer, and not with the caller yet.
pub(super) struct Landed {
    id: Id,
    piece: Piece,
}

impl Worker {
    /// The present piece of a read is there.
    pub(super) fn landed(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        let (OpKind::Read(transfer), Some(piece)) = (&job.op.kind, job.piece) else { return };
        let landed = Landed { id, piece };
        if transfer.direct {
            self.landed.push(landed);
        } else {
            // The kernel has just copied it: it is in the CPU's cache, and no device waits.
            self.deliver(&landed);
        }
    }

    /// Brings everything that has landed to the caller.
    pub(super) fn deliver_all(&mut self) {
        let (mut landed, mut copied) = (std::mem::take(&mut self.landed), 0);
        for one in landed.drain(..) {
            if copied >= COPY_BYTES {
                copied = 0;
                self.pull();
                if self.ring.has_queued() {
                    self.flush();
                }
            }
            copied += one.piece.bytes;
            self.deliver(&one);
        }
        self.landed = landed;
    }

    /// Copies a piece to the caller, unless the op was given up, and goes on.
    fn deliver(&mut self, landed: &Landed) {
        let Landed { id, piece } = *landed;
        let Some(job) = self.table.get(id) else { return };
        let (OpKind::Read(transfer), Some(buffer)) = (&job.op.kind, job.buffer.as_mut()) else {
            return;
        };
        let last = is_last(transfer, &piece);
        let gate = Arc::clone(&job.op.gate);
        if !gate.enter() {
            return self.end(id, Ending::Report(Err(given_up(Step::Read))));
        }
        let from = &buffer.bytes_mut()[piece.skip..piece.skip + piece.bytes];
        // SAFETY: inside the gate; `from` is the lane's own memory.
        unsafe { transfer.memory.copy_in(piece.at, from) };
        // A revoke during the last piece finds the whole range delivered: that is reported.
        if !gate.leave() && !last {
            return self.end(id, Ending::Report(Err(given_up(Step::Read))));
        }
        job.at = piece.at + piece.bytes as u64;
        if last {
            return self.end(id, Ending::Report(Ok(Done::Unit)));
        }
        self.next_piece(id);
    }
}
