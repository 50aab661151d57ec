//! One transfer between its open and its close: which request is next, and what an event means.
//! The arithmetic is that of `psync/plan.rs`; no thread, no lock.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::clock::Time;
use crate::engine::buffers::Buffer;
use crate::engine::psync::local::is_local;
use crate::engine::psync::plan::{BORROWED_PIECE_BYTES, Piece, Range, aligned_part};
use crate::engine::psync::read::vector;
use crate::engine::psync::whole::is_unclear;
use crate::engine::psync::write::Progress;
use crate::engine::psync::{Job, UNIT};
use crate::engine::{Done, Op, OpKind, Outcome, Transfer};
use crate::error::{Failure, Step};
use crate::posix::aligned::AlignedBuffer;
use crate::posix::linux_aio::Request;

/// A transfer in the air.
pub struct Flight {
    pub op: Arc<Op>,
    pub leg: Box<Leg>,
}

/// How far a transfer has come. Owns what the kernel uses for it.
pub struct Leg {
    pub fd: OwnedFd,
    pub write: bool,
    /// The lane's memory; none: requests use the caller's.
    pub buffers: Vec<Buffer>,
    /// What offsets and lengths of requests are multiples of.
    pub align: u64,
    /// Bytes of the transfer that are done.
    pub at: u64,
    /// Where the part of the transfer ends that goes through `fd`.
    pub end: u64,
    /// The piece that is in the buffers.
    piece: Option<Piece>,
    /// How far the present request, or piece, is.
    progress: Progress,
    /// What the last request asked for.
    asked: usize,
    /// Requests have ended with a local shortage, and none well since: how long that is waited out.
    pub short_until: Option<Time>,
    /// Inside the gate for the whole op (R32).
    pub entered: bool,
    /// Whether the reaper may close it.
    pub local: bool,
    /// The file was made by this op.
    pub created: bool,
    /// The whole file is read by one request, which asks for this page more and so tells the file's
    /// length by where it ends (as `psync/whole.rs` does). Nobody looks at what is in the page.
    pub beyond: Option<Arc<AlignedBuffer>>,
}

/// What a flight needs next.
#[derive(Debug)]
pub enum Todo {
    /// Look at what an event brought.
    Digest(i64),
    /// Submit a request.
    Submit,
    /// Wait out a local shortage, then submit again.
    Again(i32),
    /// The sync and the tail of a write.
    Rest,
    /// A file read whole is not what was expected, or wants another alignment: ask it, read again.
    Ask,
    /// The file ended early, at this offset: see why.
    EndedEarly(u64),
    /// Close and report.
    End(Result<(), Failure>),
}

/// The transfer of an op.
pub fn transfer(op: &Op) -> Option<&Transfer> {
    match &op.kind {
        OpKind::Read(transfer) | OpKind::Write(transfer) => Some(transfer),
        _ => None,
    }
}

impl Leg {
    pub fn new(fd: OwnedFd, write: bool) -> Leg {
        Leg {
            fd,
            write,
            buffers: Vec::new(),
            align: 1,
            at: 0,
            end: 0,
            piece: None,
            progress: Progress::default(),
            asked: 0,
            short_until: None,
            entered: false,
            local: false,
            created: false,
            beyond: None,
        }
    }

    pub fn step(&self) -> Step {
        if self.write { Step::Write } else { Step::Read }
    }

    /// The next request, and the vector that it names; the vector must live until it is submitted.
    /// A write's bytes are fetched here.
    pub fn request(
        &mut self,
        job: &Job<'_>,
        transfer: &Transfer,
        data: u64,
        pieces: &mut Vec<libc::iovec>,
    ) -> Result<Request, Failure> {
        let offset = if self.buffers.is_empty() {
            let from = if self.write { self.at } else { self.at - self.at % self.align };
            let left = usize::try_from(self.end - from).unwrap_or(usize::MAX);
            *pieces = vector(&transfer.memory, from, left.min(BORROWED_PIECE_BYTES));
            transfer.offset + from
        } else {
            let piece = self.piece(job, transfer)?;
            let from = self.from();
            self.slots(from, piece.span, pieces);
            // Where the file ends inside the alignment, the piece asks for more already.
            if let Some(beyond) = self.beyond.as_ref().filter(|_| piece.span == piece.bytes) {
                let iov_base = beyond.pointer().cast();
                pieces.push(libc::iovec { iov_base, iov_len: beyond.bytes() });
            }
            piece.start + from as u64
        };
        self.asked = pieces.iter().map(|piece| piece.iov_len).sum();
        let request = match self.write {
            true => Request::write(&self.fd, pieces, offset, data),
            false => Request::read(&self.fd, pieces, offset, data),
        };
        request.map_err(|errno| Failure::errno(self.step(), errno))
    }

    /// Where the next request of the present piece starts (R34).
    fn from(&self) -> usize {
        aligned_part(self.progress.done, self.align)
    }

    /// The present piece, or a new one.
    fn piece(&mut self, job: &Job<'_>, transfer: &Transfer) -> Result<Piece, Failure> {
        if let Some(piece) = self.piece {
            return Ok(piece);
        }
        let call_bytes = self.buffers.iter_mut().map(|slot| slot.bytes_mut().len()).sum();
        let piece = Range { offset: transfer.offset, bytes: self.end }
            .piece(self.at, call_bytes, self.align)
            .ok_or_else(|| Failure::errno(self.step(), libc::EINVAL))?;
        if self.write {
            let mut at = piece.at;
            let mut left = piece.bytes;
            for slot in &mut self.buffers {
                let slot = slot.bytes_mut();
                let part = left.min(slot.len());
                if part > 0 {
                    job.fetch(transfer, at, &mut slot[..part])?;
                }
                at += part as u64;
                left -= part;
            }
        }
        self.piece = Some(piece);
        self.progress = Progress::default();
        Ok(piece)
    }

    /// The bytes `from..to` of the buffers.
    fn slots(&mut self, from: usize, to: usize, pieces: &mut Vec<libc::iovec>) {
        let mut start = 0;
        for slot in &mut self.buffers {
            let slot = slot.bytes_mut();
            let end = start + slot.len();
            let (first, last) = (from.max(start), to.min(end));
            if first < last {
                let part = &mut slot[first - start..last - start];
                let iov_base = part.as_mut_ptr().cast();
                pieces.push(libc::iovec { iov_base, iov_len: part.len() });
            }
            start = end;
        }
    }

    /// What the event of the last request means.
    pub fn digest(&mut self, job: &Job<'_>, transfer: &Transfer, result: i64) -> Todo {
        let refusal = if result < 0 { i32::try_from(-result).unwrap_or(libc::EIO) } else { 0 };
        if !is_local(refusal) && self.short_until.take().is_some() {
            job.op.gate.set_local(0);
        }
        let Ok(got) = usize::try_from(result) else {
            return match refusal {
                libc::EINTR => Todo::Submit,
                errno if is_local(errno) => Todo::Again(errno),
                errno if self.beyond.is_some() && is_unclear(errno) => Todo::Ask,
                errno => Todo::End(Err(Failure::errno(self.step(), errno))),
            };
        };
        let moved = match (self.write, self.piece) {
            (true, _) => self.wrote(got),
            (false, Some(piece)) if self.beyond.is_some() && got != piece.bytes => Err(Todo::Ask),
            (false, Some(piece)) => self.read(job, transfer, &piece, got),
            (false, None) => self.read_in_place(transfer, got),
        };
        match moved {
            Err(todo) => todo,
            Ok(()) if self.at < self.end => Todo::Submit,
            Ok(()) if self.write && (transfer.sync || self.end < transfer.memory.bytes()) => {
                Todo::Rest
            }
            Ok(()) => Todo::End(Ok(())),
        }
    }

    fn wrote(&mut self, got: usize) -> Result<(), Todo> {
        let added = self.progress.add(got, self.asked, self.align);
        added.map_err(|failure| Todo::End(Err(failure)))?;
        match self.piece {
            Some(piece) if self.progress.done < piece.span => return Err(Todo::Submit),
            Some(piece) => self.at += piece.bytes as u64,
            None if self.progress.done == 0 => return Err(Todo::Submit),
            None => self.at += self.progress.done as u64,
        }
        self.piece = None;
        self.progress = Progress::default();
        Ok(())
    }

    fn read(
        &mut self,
        job: &Job<'_>,
        transfer: &Transfer,
        piece: &Piece,
        got: usize,
    ) -> Result<(), Todo> {
        let done = self.progress.done;
        let reached = self.from() + got;
        if reached <= done {
            return Err(Todo::EndedEarly(piece.start + done as u64));
        }
        self.progress.done = reached;
        if reached < piece.skip + piece.bytes {
            return Err(Todo::Submit);
        }
        self.deliver(job, transfer, piece).map_err(|failure| Todo::End(Err(failure)))?;
        self.at += piece.bytes as u64;
        self.piece = None;
        Ok(())
    }

    /// Copies a piece to the caller, slot by slot.
    fn deliver(
        &mut self,
        job: &Job<'_>,
        transfer: &Transfer,
        piece: &Piece,
    ) -> Result<(), Failure> {
        let (mut start, mut at) = (0, piece.at);
        for slot in &mut self.buffers {
            let slot = slot.bytes_mut();
            let end = start + slot.len();
            let (first, last) = (piece.skip.max(start), (piece.skip + piece.bytes).min(end));
            if first < last {
                let part = &slot[first - start..last - start];
                let next = at + part.len() as u64;
                job.deliver(transfer, at, part, next == self.end)?;
                at = next;
            }
            start = end;
        }
        Ok(())
    }

    fn read_in_place(&mut self, transfer: &Transfer, got: usize) -> Result<(), Todo> {
        let reached = self.at - self.at % self.align + got as u64;
        if reached <= self.at {
            return Err(Todo::EndedEarly(transfer.offset + self.at));
        }
        self.at = reached;
        Ok(())
    }

    /// The file was asked: it is read from its start, in requests of this alignment.
    pub fn restart(&mut self, align: u64) {
        self.align = align;
        self.beyond = None;
        self.piece = None;
        self.progress = Progress::default();
    }

    /// Lets go of the file and the gate: the op's outcome.
    pub fn conclude(
        self,
        job: &Job<'_>,
        transfer: &Transfer,
        result: Result<(), Failure>,
    ) -> Outcome {
        let write = self.write;
        if self.entered {
            // A revoke meanwhile waited for this; the op is reported as what it came to.
            let _still_wanted = job.op.gate.leave();
        }
        drop(self.buffers);
        let closed = job.lane.close(self.fd);
        result?;
        if !write {
            // Nothing was written: a close that fails has nothing to tell.
            return UNIT;
        }
        closed.map_err(|errno| Failure::errno(Step::Close, errno))?;
        Ok(Done::Written { durable: transfer.direct || transfer.sync })
    }
}
