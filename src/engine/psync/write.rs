//! A write: open or create, reserve, write in pieces, sync, close.
//!
//! A direct write needs a range that is aligned. The one exception is the tail of a file whose
//! length is no multiple of the alignment: its last page goes through the page cache, by a second
//! descriptor, and is synced. That is safe because nobody else owns a byte of that page. Any other
//! unaligned direct write is EINVAL: it would rewrite bytes of a neighbour (R33), and the store
//! asks for buffered and synced writes there.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::Job;
use super::plan::{ALIGN_BYTES, BORROWED_PIECE_BYTES, CACHED_PIECE_BYTES, Range, aligned_part};
use super::read::{alignment, given_up, memory_is_aligned, vector};
use crate::engine::buffers::Buffer;
use crate::engine::{Done, Outcome, Transfer};
use crate::error::{Cause, Failure, Step};
use crate::posix::file;
use crate::posix::medium::{self, Medium};

/// A part of a transfer that goes through one descriptor.
struct Part<'a> {
    transfer: &'a Transfer,
    fd: &'a OwnedFd,
    /// Where the part ends in the transfer.
    end: u64,
    /// What offsets and lengths of direct calls are multiples of; 1 for buffered ones.
    align: u64,
}

impl Job<'_> {
    /// `created` remembers that an earlier try in this op has made the file.
    pub(in crate::engine) fn write(
        &self,
        transfer: &Transfer,
        buffer: &mut Option<Buffer>,
        created: &mut bool,
    ) -> Outcome {
        let (fd, made) = self.open_to_write(transfer, created)?;
        let result = self.borrowed(transfer, Step::Write, || {
            self.prepare(transfer, &fd, made)?;
            self.write_open(transfer, &fd, buffer)
        });
        let closed = self.lane.close(fd);
        result?;
        closed.map_err(|errno| Failure::errno(Step::Close, errno))?;
        Ok(Done::Written { durable: transfer.direct || transfer.sync })
    }

    /// Opens, or creates; says which.
    pub(in crate::engine) fn open_to_write(
        &self,
        transfer: &Transfer,
        created: &mut bool,
    ) -> Result<(OwnedFd, bool), Failure> {
        let create = transfer.create.filter(|_| !*created);
        let fd = self.step(Step::Open, || match create {
            Some(mode) => file::create_new(&transfer.path, transfer.direct, mode),
            None => file::open_write(&transfer.path, transfer.direct),
        })?;
        *created |= create.is_some();
        Ok((fd, create.is_some()))
    }

    /// What a file, or a new one, needs before the first byte is written.
    pub(in crate::engine) fn prepare(
        &self,
        transfer: &Transfer,
        fd: &OwnedFd,
        made: bool,
    ) -> Result<(), Failure> {
        if transfer.direct {
            self.lengthen(transfer, fd)?;
        }
        match made && transfer.reserve {
            true => self.reserve(fd, transfer.file_bytes),
            false => Ok(()),
        }
    }

    /// On FUSE a direct write that extends its file and fails makes the kernel cut the file to the
    /// length that this mount knew, however late, and whatever was written through other mounts
    /// since. So no write extends one there: the file has its length before.
    fn lengthen(&self, transfer: &Transfer, fd: &OwnedFd) -> Result<(), Failure> {
        let medium = match self.lane.medium.get() {
            Some(medium) => *medium,
            None => {
                let medium = self.step(Step::Stat, || medium::medium(&transfer.path))?;
                *self.lane.medium.get_or_init(|| medium)
            }
        };
        if medium != Medium::Fuse {
            return Ok(());
        }
        if self.op.gate.revoked() {
            return Err(given_up(Step::Write));
        }
        self.give_length(fd, transfer.file_bytes)
    }

    /// Where that cannot be done, a late write cannot do it, either, and a client has nothing to
    /// forget.
    pub(in crate::engine) fn give_length(&self, fd: &OwnedFd, bytes: u64) -> Result<(), Failure> {
        self.step(Step::Write, || match file::set_length(fd, bytes) {
            Err(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(()),
            other => other,
        })
    }

    /// Asks for space up front, and on a device for the length, so that no write extends the file
    /// and its writers run side by side. A refusal is ignored; a file system that cannot do it is
    /// not asked again.
    fn reserve(&self, fd: &OwnedFd, bytes: u64) -> Result<(), Failure> {
        if self.lane.no_reserve.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.op.gate.revoked() {
            return Err(given_up(Step::Write));
        }
        let length = self.lane.medium.get() == Some(&Medium::Device);
        if let Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) =
            file::reserve(fd, bytes, length)
        {
            self.lane.no_reserve.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write_open(
        &self,
        transfer: &Transfer,
        fd: &OwnedFd,
        buffer: &mut Option<Buffer>,
    ) -> Result<(), Failure> {
        let range = transfer.range();
        let (direct_bytes, align) = self.direct_part(transfer, fd, &range)?;
        let part = Part { transfer, fd, end: direct_bytes, align };
        self.write_part(&part, 0, buffer)?;
        self.write_rest(transfer, fd, direct_bytes, buffer)
    }

    /// What follows the bytes of the first descriptor: the sync, and the tail of the file.
    pub(in crate::engine) fn write_rest(
        &self,
        transfer: &Transfer,
        fd: &OwnedFd,
        direct_bytes: u64,
        buffer: &mut Option<Buffer>,
    ) -> Result<(), Failure> {
        let range = transfer.range();
        if transfer.sync {
            self.step(Step::Fsync, || file::sync_data(fd))?;
        }
        if direct_bytes == range.bytes {
            return Ok(());
        }
        let tail = self.step(Step::Open, || file::open_write(&transfer.path, false))?;
        let part = Part { transfer, fd: &tail, end: range.bytes, align: 1 };
        let written = self
            .write_part(&part, direct_bytes, buffer)
            .and_then(|()| self.step(Step::Fsync, || file::sync_data(&tail)));
        let closed = self.lane.close(tail);
        written?;
        closed.map_err(|errno| Failure::errno(Step::Close, errno))
    }

    /// How many bytes go through the first descriptor, and the alignment of its calls. The file is
    /// asked only where the usual alignment does not do.
    pub(in crate::engine) fn direct_part(
        &self,
        transfer: &Transfer,
        fd: &OwnedFd,
        range: &Range,
    ) -> Result<(u64, u64), Failure> {
        if !transfer.direct {
            return Ok((range.bytes, 1));
        }
        if range.aligned(ALIGN_BYTES) {
            return Ok((range.bytes, ALIGN_BYTES));
        }
        let info = self.step(Step::Stat, || file::stat_open(fd))?;
        let align = alignment(&info);
        match range.direct_part(transfer.file_bytes, align) {
            Some(bytes) => Ok((bytes, align)),
            None => Err(Failure::errno(Step::Write, libc::EINVAL)),
        }
    }

    /// Writes the transfer's bytes from `at` to the end of the part.
    fn write_part(
        &self,
        part: &Part<'_>,
        at: u64,
        buffer: &mut Option<Buffer>,
    ) -> Result<(), Failure> {
        if at == part.end {
            return Ok(());
        }
        let memory = &part.transfer.memory;
        if !part.transfer.isolated && memory_is_aligned(memory, part.align) {
            return self.write_borrowed(part, at);
        }
        self.write_pieces(part, at, self.memory(Step::Write, buffer)?)
    }

    fn write_pieces(&self, part: &Part<'_>, at: u64, memory: &mut [u8]) -> Result<(), Failure> {
        let most = if part.align > 1 { memory.len() } else { CACHED_PIECE_BYTES };
        let call_bytes = aligned_part(most.min(memory.len()), part.align);
        let mut at = at;
        while at < part.end {
            let left = usize::try_from(part.end - at).unwrap_or(usize::MAX);
            let piece = &mut memory[..left.min(call_bytes)];
            if piece.is_empty() {
                return Err(Failure::errno(Step::Write, libc::EINVAL));
            }
            self.fetch(part.transfer, at, piece)?;
            self.put(part, part.transfer.offset + at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies a piece from the caller, unless the op was given up (R30).
    pub(in crate::engine) fn fetch(
        &self,
        transfer: &Transfer,
        at: u64,
        to: &mut [u8],
    ) -> Result<(), Failure> {
        if transfer.isolated && !self.op.gate.enter() {
            return Err(given_up(Step::Write));
        }
        if transfer.direct {
            // SAFETY: inside the gate, here or for the whole op; `to` is the lane's own memory.
            unsafe { transfer.memory.copy_out_to_device(at, to) };
        } else {
            // SAFETY: as above.
            unsafe { transfer.memory.copy_out(at, to) };
        }
        if transfer.isolated && !self.op.gate.leave() {
            return Err(given_up(Step::Write));
        }
        Ok(())
    }

    /// Writes a piece whole; a short call is continued (R34).
    fn put(&self, part: &Part<'_>, offset: u64, piece: &[u8]) -> Result<(), Failure> {
        let mut progress = Progress::default();
        while progress.done < piece.len() {
            let from = progress.done;
            let at = offset + from as u64;
            let got = self.step(Step::Write, || file::write_at(part.fd, &piece[from..], at))?;
            progress.add(got, piece.len() - from, part.align)?;
        }
        Ok(())
    }

    /// Straight from the caller's memory.
    fn write_borrowed(&self, part: &Part<'_>, at: u64) -> Result<(), Failure> {
        let mut at = at;
        while at < part.end {
            let left = usize::try_from(part.end - at).unwrap_or(usize::MAX);
            let vector = vector(&part.transfer.memory, at, left.min(BORROWED_PIECE_BYTES));
            let asked = vector.iter().map(|piece| piece.iov_len).sum();
            let offset = part.transfer.offset + at;
            let mut progress = Progress::default();
            while progress.done == 0 {
                let got = self.step(Step::Write, || {
                    // SAFETY: inside the gate for the whole op, so the memory is the task's.
                    unsafe { file::write_vectored_at(part.fd, &vector, offset) }
                })?;
                progress.add(got, asked, part.align)?;
            }
            at += progress.done as u64;
        }
        Ok(())
    }
}

/// How much of a piece is written.
#[derive(Debug, Default)]
pub(in crate::engine) struct Progress {
    pub(in crate::engine) done: usize,
    /// The last call wrote less than one aligned step, so the next one repeats it.
    stuck: bool,
}

impl Progress {
    /// A call wrote `got` of `asked` bytes. Nothing, or twice running less than one step, is no
    /// progress.
    pub(in crate::engine) fn add(
        &mut self,
        got: usize,
        asked: usize,
        align: u64,
    ) -> Result<(), Failure> {
        let counted = if got >= asked { asked } else { aligned_part(got, align) };
        if got == 0 || (counted == 0 && self.stuck) {
            return Err(Failure { step: Step::Write, cause: Cause::NoProgress });
        }
        self.stuck = counted == 0;
        self.done += counted;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r34_a_short_write_continues_from_the_last_aligned_offset() {
        let mut progress = Progress::default();
        progress.add(5000, 12288, 4096).unwrap();
        assert_eq!(progress.done, 4096);
        progress.add(100, 8192, 4096).unwrap();
        assert_eq!(progress.done, 4096);
        progress.add(8192, 8192, 4096).unwrap();
        assert_eq!(progress.done, 12288);
    }

    #[test]
    fn r34_no_progress_is_a_failure_and_not_a_loop() {
        assert!(Progress::default().add(0, 100, 1).is_err());
        let mut progress = Progress::default();
        progress.add(100, 8192, 4096).unwrap();
        let failure = progress.add(100, 8192, 4096).unwrap_err();
        assert_eq!(failure.cause, Cause::NoProgress);
    }
}
