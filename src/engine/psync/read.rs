//! A read: open, ask the size, read in pieces, close.
//!
//! A piece lands in the lane's memory and is copied to the caller's while the worker is inside the
//! gate (R30), or lands there at once where the memory is borrowed and aligned (R32, R33).

use std::os::fd::OwnedFd;

use super::plan::{
    ALIGN_BYTES, BORROWED_PIECE_BYTES, CACHED_PIECE_BYTES, Piece, Range, aligned_part,
};
use super::{Job, UNIT};
use crate::engine::buffers::{Buffer, Take};
use crate::engine::{Memory, Outcome, Segment, Transfer};
use crate::error::{Cause, Failure, Step};
use crate::posix::file::{self, Info};

/// The most segments that one vectored call takes.
pub(in crate::engine) const SEGMENTS_MAX: usize = 1024;

/// A transfer on a file that is open.
struct Open<'a> {
    transfer: &'a Transfer,
    fd: &'a OwnedFd,
    range: Range,
    /// What offsets and lengths of direct calls are multiples of; 1 for buffered ones.
    align: u64,
}

impl Transfer {
    /// The range of the file.
    pub(in crate::engine) fn range(&self) -> Range {
        Range { offset: self.offset, bytes: self.memory.bytes() }
    }
}

pub(in crate::engine) fn given_up(step: Step) -> Failure {
    Failure { step, cause: Cause::GivenUp }
}

/// The alignment that the file asks of direct offsets and lengths.
pub(in crate::engine) fn alignment(info: &Info) -> u64 {
    match info.offset_align {
        0 => ALIGN_BYTES,
        align => u64::from(align),
    }
}

/// `memory` from `at` on as the vector of one call: at most `bytes` bytes.
pub(in crate::engine) fn vector(memory: &Memory, at: u64, bytes: usize) -> Vec<libc::iovec> {
    let part = |segment: Segment| libc::iovec {
        iov_base: segment.pointer().cast(),
        iov_len: segment.bytes(),
    };
    memory.range(at, bytes).take(SEGMENTS_MAX).map(part).collect()
}

/// Whether direct calls can use the caller's memory as it is.
pub(in crate::engine) fn memory_is_aligned(memory: &Memory, align: u64) -> bool {
    let multiple = |value: usize| (value as u64).is_multiple_of(align);
    memory.segments().iter().all(|part| multiple(part.pointer() as usize) && multiple(part.bytes()))
}

impl Job<'_> {
    /// The worker's buffer; waits out a shortage of memory where there is none yet.
    pub(in crate::engine) fn memory<'b>(
        &self,
        step: Step,
        buffer: &'b mut Option<Buffer>,
    ) -> Result<&'b mut [u8], Failure> {
        if buffer.is_none() {
            let take = || match self.lane.buffers.take() {
                Take::Got(got) => Ok(got),
                Take::Exhausted => Err(libc::ENOMEM),
                Take::Refused(errno) => Err(errno),
            };
            *buffer = Some(self.step(step, take)?);
        }
        match buffer {
            Some(buffer) => Ok(buffer.bytes_mut()),
            None => Err(Failure::errno(step, libc::ENOMEM)),
        }
    }

    /// Runs `work` inside the gate where the caller's memory is used for the whole op (R32).
    pub(in crate::engine) fn borrowed<T>(
        &self,
        transfer: &Transfer,
        step: Step,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if transfer.isolated {
            return work();
        }
        if !self.op.gate.enter() {
            return Err(given_up(step));
        }
        let result = work();
        // A revoke meanwhile waited for this; the op is reported as what it came to.
        let _still_wanted = self.op.gate.leave();
        result
    }

    pub(in crate::engine) fn read(
        &self,
        transfer: &Transfer,
        buffer: &mut Option<Buffer>,
    ) -> Outcome {
        let fd = self.open_to_read(transfer)?;
        let result = self.borrowed(transfer, Step::Read, || self.read_open(transfer, &fd, buffer));
        // Nothing was written: a close that fails has nothing to tell.
        let _nothing_lost = self.lane.close(fd);
        result?;
        UNIT
    }

    pub(in crate::engine) fn open_to_read(&self, transfer: &Transfer) -> Result<OwnedFd, Failure> {
        self.step(Step::Open, || file::open_read(&transfer.path, transfer.direct))
            .map_err(|failure| no_file(transfer, failure))
    }

    /// Asks the open file whether it is what the transfer expects, and how it wants to be read: the
    /// alignment of calls, and whether they may use the caller's memory as it is.
    pub(in crate::engine) fn examine(
        &self,
        transfer: &Transfer,
        fd: &OwnedFd,
    ) -> Result<(u64, bool), Failure> {
        let info = self.step(Step::Stat, || file::stat_open(fd))?;
        if !info.is_file() || info.bytes != transfer.file_bytes {
            return Err(wrong_size(transfer, info.is_file().then_some(info.bytes)));
        }
        let align = if transfer.direct { alignment(&info) } else { 1 };
        let memory_align = match info.memory_align {
            0 => align,
            memory => align.max(u64::from(memory)),
        };
        let in_place = !transfer.isolated
            && transfer.range().aligned(align)
            && memory_is_aligned(&transfer.memory, memory_align);
        Ok((align, in_place))
    }

    fn read_open(
        &self,
        transfer: &Transfer,
        fd: &OwnedFd,
        buffer: &mut Option<Buffer>,
    ) -> Result<(), Failure> {
        if self.read_whole(transfer, fd, buffer)? {
            return Ok(());
        }
        let (align, in_place) = self.examine(transfer, fd)?;
        let open = Open { transfer, fd, range: transfer.range(), align };
        if in_place {
            return self.read_borrowed(&open);
        }
        self.read_pieces(&open, self.memory(Step::Read, buffer)?)
    }

    fn read_pieces(&self, open: &Open<'_>, memory: &mut [u8]) -> Result<(), Failure> {
        let most = if open.transfer.direct { memory.len() } else { CACHED_PIECE_BYTES };
        let call_bytes = most.min(memory.len());
        let mut at = 0;
        while at < open.range.bytes {
            let piece = open
                .range
                .piece(at, call_bytes, open.align)
                .ok_or_else(|| Failure::errno(Step::Read, libc::EINVAL))?;
            self.fill(open, &piece, &mut memory[..piece.span])?;
            let from = &memory[piece.skip..piece.skip + piece.bytes];
            at += piece.bytes as u64;
            self.deliver(open.transfer, piece.at, from, at == open.range.bytes)?;
        }
        Ok(())
    }

    /// Reads the piece's range; a file that ends inside the alignment beyond the piece is fine.
    fn fill(&self, open: &Open<'_>, piece: &Piece, memory: &mut [u8]) -> Result<(), Failure> {
        let needed = piece.skip + piece.bytes;
        let mut done = 0;
        while done < needed {
            // A direct call continues from the last aligned offset (R34).
            let from = aligned_part(done, open.align);
            let offset = piece.start + from as u64;
            let rest = &mut memory[from..];
            let got = self.step(Step::Read, || file::read_at(open.fd, rest, offset))?;
            if from + got <= done {
                return Err(self.ended_early(open.transfer, open.fd, piece.start + done as u64));
            }
            done = from + got;
        }
        Ok(())
    }

    /// Copies a piece to the caller, unless the op was given up (R30).
    pub(in crate::engine) fn deliver(
        &self,
        transfer: &Transfer,
        at: u64,
        from: &[u8],
        last: bool,
    ) -> Result<(), Failure> {
        if transfer.isolated && !self.op.gate.enter() {
            return Err(given_up(Step::Read));
        }
        // SAFETY: inside the gate, here or for the whole op; `from` is the lane's own memory.
        unsafe { transfer.memory.copy_in(at, from) };
        // A revoke during the last piece finds the whole range delivered: that is what is reported.
        if transfer.isolated && !self.op.gate.leave() && !last {
            return Err(given_up(Step::Read));
        }
        Ok(())
    }

    /// Straight into the caller's memory.
    fn read_borrowed(&self, open: &Open<'_>) -> Result<(), Failure> {
        let mut done = 0;
        while done < open.range.bytes {
            let from = done - done % open.align;
            let vector = vector(&open.transfer.memory, from, BORROWED_PIECE_BYTES);
            let offset = open.range.offset + from;
            let got = self.step(Step::Read, || {
                // SAFETY: inside the gate for the whole op, so the memory is the task's.
                unsafe { file::read_vectored_at(open.fd, &vector, offset) }
            })?;
            if from + got as u64 <= done {
                return Err(self.ended_early(open.transfer, open.fd, open.range.offset + done));
            }
            done = from + got as u64;
        }
        Ok(())
    }

    /// The file ended before the range did: asks its size again. Where that is right, it is not the
    /// file that is wrong (R23), but the path, which does not give what is there (R22).
    pub(in crate::engine) fn ended_early(
        &self,
        transfer: &Transfer,
        fd: &OwnedFd,
        reached: u64,
    ) -> Failure {
        match self.step(Step::Stat, || file::stat_open(fd)) {
            Ok(info) if info.bytes != transfer.file_bytes => wrong_size(transfer, Some(info.bytes)),
            Ok(_) if reached < transfer.file_bytes => {
                Failure { step: Step::Read, cause: Cause::NoProgress }
            }
            Ok(_) => wrong_size(transfer, Some(reached)),
            Err(failure) => failure,
        }
    }
}

fn wrong_size(transfer: &Transfer, found: Option<u64>) -> Failure {
    let expected = transfer.file_bytes;
    Failure { step: Step::Verify, cause: Cause::WrongSize { found, expected } }
}

/// Opening failed. Where the name is no regular file some refusals say no more than that, and the
/// storage is well: a directory refuses `O_DIRECT`, a link is not followed, a socket has nobody
/// behind it.
fn no_file(transfer: &Transfer, failure: Failure) -> Failure {
    match failure.os() {
        Some(libc::EINVAL | libc::ELOOP | libc::ENXIO) => match file::stat(&transfer.path) {
            Ok(info) if !info.is_file() => wrong_size(transfer, None),
            Ok(_) | Err(_) => failure,
        },
        _ => failure,
    }
}
