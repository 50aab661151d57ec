//! A read on the ring: ask the size where the bytes do not tell it, open, read, look beyond the
//! end, close, as one chain; a read of several pieces keeps its file open between them.
//!
//! What a chain cannot do is found out at its end, and the op is run again by a worker of the pool:
//! a short read, another kind of file, an alignment that must be asked for, a local shortage.

use io_uring::{opcode, squeue, types};

use super::table::{Ending, File, Id, Job, Part};
use super::worker::Worker;
use crate::engine::psync::Tried;
use crate::engine::psync::local::is_local;
use crate::engine::psync::plan::{ALIGN_BYTES, BORROWED_PIECE_BYTES, CACHED_PIECE_BYTES, Piece};
use crate::engine::psync::read::{SEGMENTS_MAX, given_up, memory_is_aligned, vector};
use crate::engine::{Done, OpKind, Transfer};
use crate::error::{Failure, Step};

const AT: types::Fd = types::Fd(libc::AT_FDCWD);
/// Flags of every open (R9). A slot of the ring, which no child inherits, refuses `O_CLOEXEC`.
pub(super) const OPEN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NOCTTY;

pub(super) fn direct_flag(transfer: &Transfer) -> i32 {
    if transfer.direct { libc::O_DIRECT } else { 0 }
}

/// What offsets and lengths of this transfer's calls are multiples of, as long as the file says
/// nothing else.
pub(super) fn align(transfer: &Transfer) -> u64 {
    if transfer.direct { ALIGN_BYTES } else { 1 }
}

/// The transfer can run on the caller's memory in one call.
pub(super) fn in_one_call(transfer: &Transfer) -> bool {
    let memory = &transfer.memory;
    memory.bytes() <= BORROWED_PIECE_BYTES as u64
        && memory.bytes() > 0
        && memory.segments().len() <= SEGMENTS_MAX
        && transfer.range().aligned(align(transfer))
        && memory_is_aligned(memory, align(transfer))
}

/// The errors that a chain cannot judge, or that a worker waits out.
pub(super) fn is_passing(errno: i32) -> bool {
    is_local(errno) || matches!(errno, libc::EINTR | libc::ECANCELED | libc::ESTALE)
}

/// The errors of a read that may only say that the name is no regular file, or that the file wants
/// another alignment.
fn is_unclear(errno: i32) -> bool {
    is_passing(errno)
        || matches!(errno, libc::EINVAL | libc::ELOOP | libc::ENXIO | libc::EISDIR | libc::EBADF)
}

/// How many bytes a call at `start` of a file of the right length gives.
fn expected(transfer: &Transfer, start: u64, span: usize) -> u64 {
    transfer.file_bytes.saturating_sub(start).min(span as u64)
}

/// The piece is the transfer's last.
pub(super) fn is_last(transfer: &Transfer, piece: &Piece) -> bool {
    piece.at + piece.bytes as u64 == transfer.memory.bytes()
}

/// How a read learns that the file has the right length (R23), at one extra call at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// The last call of the transfer asks for more than there may be.
    Told,
    /// The transfer ends where the file must: nothing may be beyond. The last call asks for that,
    /// too, where there is room for it, else one call more.
    LookBeyond,
    /// Neither: the file is asked by name.
    Ask,
}

fn length(transfer: &Transfer) -> Length {
    let end = transfer.offset + transfer.memory.bytes();
    match end == transfer.file_bytes {
        true if end.is_multiple_of(align(transfer)) => Length::LookBeyond,
        true => Length::Told,
        false => Length::Ask,
    }
}

/// The piece, and what may not be there beyond it, as one call; `None`: the slot has no room.
fn and_beyond(piece: Piece, transfer: &Transfer, slot: usize) -> Option<Piece> {
    let span = piece.span.checked_add(usize::try_from(align(transfer)).ok()?)?;
    (span <= slot).then_some(Piece { span, ..piece })
}

/// The piece's call asks for more than there may be.
fn asks_beyond(piece: &Piece, transfer: &Transfer) -> bool {
    piece.start + piece.span as u64 > transfer.file_bytes
}

/// What a read's chain came to.
enum Verdict {
    /// The piece is there.
    There,
    /// This op fails.
    Fail(Failure),
    /// A worker of the pool runs the op again.
    HandOver(Tried),
}

impl Worker {
    pub(super) fn start_read(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        let OpKind::Read(transfer) = &job.op.kind else { return };
        if job.op.gate.revoked() {
            return self.end(id, Ending::Report(Err(given_up(Step::Open))));
        }
        // A range beyond the end is what its file says: nobody asks for it but with a wrong length.
        let end = transfer.offset.checked_add(transfer.memory.bytes());
        if end.is_none_or(|end| end > transfer.file_bytes) {
            return self.end(id, Ending::HandOver(Tried::default()));
        }
        if !transfer.isolated {
            if !in_one_call(transfer) {
                return self.end(id, Ending::HandOver(Tried::default()));
            }
            job.buffer = None;
            job.vector = vector(&transfer.memory, 0, BORROWED_PIECE_BYTES);
            // The gate is entered once the file is open: an open that hangs holds nobody. And no
            // byte reaches the caller from a file of a wrong size, so it is asked for first.
            let (stat, open) = (self.stat_entry(id), self.open_entry(id));
            let stat = stat.map(|entry| (Part::Stat, entry, true));
            return self.submit_all(id, [stat, open.map(|entry| (Part::Open, entry, false))]);
        }
        self.next_piece(id);
    }

    /// The chain of the next piece, opening and closing included where it is the first or last.
    pub(super) fn next_piece(&mut self, id: Id) {
        let small = self.pressure.high();
        let Some(job) = self.table.get(id) else { return };
        let OpKind::Read(transfer) = &job.op.kind else { return };
        let slot = job.buffer.as_ref().map_or(0, crate::engine::buffers::Buffer::slot_bytes);
        // What the kernel copies stays in the CPU's cache until it is copied on.
        let most = if transfer.direct && !small { slot } else { CACHED_PIECE_BYTES.min(slot) };
        let piece = transfer.range().piece(job.at, most, align(transfer));
        let Some(piece) = piece else {
            return self.end(id, Ending::HandOver(Tried::default()));
        };
        let (first, last) = (job.file == File::None, is_last(transfer, &piece));
        let length = length(transfer);
        let beyond = last && length == Length::LookBeyond;
        let more = if beyond { and_beyond(piece, transfer, slot) } else { None };
        let (piece, beyond) = (more.unwrap_or(piece), beyond && more.is_none());
        let end = (transfer.file_bytes, align(transfer));
        job.piece = Some(piece);
        let stat = if first && length == Length::Ask { self.stat_entry(id) } else { None };
        let open = if first { self.open_entry(id) } else { None };
        let moved = self.move_entry(id);
        let beyond = beyond.then(|| self.beyond_entry(id, end));
        let close = last.then(|| opcode::Close::new(types::Fixed(id.slot)).build());
        self.submit_all(
            id,
            [
                stat.map(|entry| (Part::Stat, entry, true)),
                open.map(|entry| (Part::Open, entry, true)),
                moved.map(|entry| (Part::Move, entry, true)),
                beyond.map(|entry| (Part::End, entry, true)),
                close.map(|entry| (Part::Close, entry, false)),
            ],
        );
    }

    pub(super) fn submit_all<const COUNT: usize>(
        &mut self,
        id: Id,
        parts: [Option<(Part, squeue::Entry, bool)>; COUNT],
    ) {
        for (part, entry, quiet) in parts.into_iter().flatten() {
            self.chain(part, entry, quiet);
        }
        self.submit(id);
    }

    pub(super) fn stat_entry(&mut self, id: Id) -> Option<squeue::Entry> {
        let job = self.table.get(id)?;
        let facts = job.facts_pointer();
        let path = match &job.op.kind {
            OpKind::Read(transfer) | OpKind::Write(transfer) => &transfer.path,
            OpKind::Stat { path } => path,
            _ => return None,
        };
        let entry = opcode::Statx::new(AT, path.as_ptr(), facts)
            .flags(libc::AT_SYMLINK_NOFOLLOW)
            .mask(libc::STATX_TYPE | libc::STATX_SIZE);
        Some(entry.build())
    }

    /// Opens into the op's slot of the ring's table.
    fn open_entry(&mut self, id: Id) -> Option<squeue::Entry> {
        let job = self.table.get(id)?;
        let OpKind::Read(transfer) = &job.op.kind else { return None };
        let slot = types::DestinationSlot::try_from_slot_target(id.slot).ok()?;
        let flags = libc::O_RDONLY | OPEN_FLAGS | direct_flag(transfer);
        let entry = opcode::OpenAt::new(AT, transfer.path.as_ptr());
        Some(entry.flags(flags).file_index(Some(slot)).build())
    }

    fn move_entry(&mut self, id: Id) -> Option<squeue::Entry> {
        let file = types::Fixed(id.slot);
        let job = self.table.get(id)?;
        let piece = job.piece?;
        let buffer = job.buffer.as_ref()?;
        let bytes = u32::try_from(piece.span).ok()?;
        Some(match self.ring.registered(buffer) {
            Some(number) => opcode::ReadFixed::new(file, buffer.pointer(), bytes, number)
                .offset(piece.start)
                .build(),
            None => opcode::Read::new(file, buffer.pointer(), bytes).offset(piece.start).build(),
        })
    }

    fn beyond_entry(&self, id: Id, (from, bytes): (u64, u64)) -> squeue::Entry {
        let bytes = u32::try_from(bytes).unwrap_or(1);
        let scratch = self.ring.scratch();
        opcode::Read::new(types::Fixed(id.slot), scratch, bytes).offset(from).build()
    }

    /// The last part of a read's chain has completed.
    pub(super) fn read_ended(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        let opened_here = job.file == File::None;
        if job.last == Part::Open {
            return self.borrowed_open(id);
        }
        let open_failed = opened_here && job.failed(Part::Open).is_some();
        let closed = job.last == Part::Close && job.failed(Part::Close) != Some(libc::ECANCELED);
        let lost = job.failed(Part::Close) == Some(libc::EBADF) && !open_failed;
        job.file = match open_failed || (closed && !lost) {
            true => File::None,
            false => File::Slot,
        };
        let OpKind::Read(transfer) = &job.op.kind else { return };
        match judge(job, transfer, opened_here) {
            Verdict::Fail(failure) => self.end(id, Ending::Report(Err(failure))),
            Verdict::HandOver(tried) => self.end(id, Ending::HandOver(tried)),
            Verdict::There if job.inside => self.end(id, Ending::Report(Ok(Done::Unit))),
            Verdict::There => self.landed(id),
        }
    }

    /// The file of a read into borrowed memory is open, or is not.
    fn borrowed_open(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        if let Some(errno) = job.failed(Part::Open) {
            let ending = match is_unclear(errno) {
                true => Ending::HandOver(tried(errno)),
                false => Ending::Report(Err(Failure::errno(Step::Open, errno))),
            };
            return self.end(id, ending);
        }
        job.file = File::Slot;
        let OpKind::Read(transfer) = &job.op.kind else { return };
        if job.failed(Part::Stat).is_some() || job.file_bytes() != Some(transfer.file_bytes) {
            return self.end(id, Ending::HandOver(Tried::default()));
        }
        if !job.op.gate.enter() {
            return self.end(id, Ending::Report(Err(given_up(Step::Read))));
        }
        job.inside = true;
        let offset = transfer.offset;
        let pieces = u32::try_from(job.vector.len()).unwrap_or(0);
        let file = types::Fixed(id.slot);
        let moved = opcode::Readv::new(file, job.vector.as_ptr(), pieces).offset(offset).build();
        let close = opcode::Close::new(file).build();
        self.submit_all(id, [Some((Part::Move, moved, true)), Some((Part::Close, close, false))]);
    }
}

/// What a worker of the pool has to know after `errno`.
fn tried(errno: i32) -> Tried {
    Tried { stale: errno == libc::ESTALE, ..Tried::default() }
}

fn judge(job: &Job, transfer: &Transfer, opened_here: bool) -> Verdict {
    let unclear = Verdict::HandOver(Tried::default());
    if let Some(errno) = job.failed(Part::Open).filter(|_| opened_here) {
        return match is_unclear(errno) {
            true => Verdict::HandOver(tried(errno)),
            false => Verdict::Fail(Failure::errno(Step::Open, errno)),
        };
    }
    if job.cancelled() {
        return unclear;
    }
    if let Some(errno) = job.failed(Part::Move) {
        return match is_unclear(errno) {
            true => Verdict::HandOver(tried(errno)),
            false => Verdict::Fail(Failure::errno(Step::Read, errno)),
        };
    }
    // A quiet read gave all it was asked for.
    let got = |span: u64| job.result(Part::Move).map_or(span, |got| u64::from(got.unsigned_abs()));
    let whole = match &job.piece {
        None => got(transfer.memory.bytes()) == transfer.memory.bytes(),
        Some(piece) => {
            let right = match (length(transfer), opened_here, is_last(transfer, piece)) {
                (Length::Ask, true, _) => {
                    job.failed(Part::Stat).is_none()
                        && job.file_bytes() == Some(transfer.file_bytes)
                }
                // A look beyond the end that found something is quiet.
                (Length::LookBeyond, _, true) if !asks_beyond(piece, transfer) => {
                    job.result(Part::End) == Some(0)
                }
                _ => true,
            };
            right && got(piece.span as u64) == expected(transfer, piece.start, piece.span)
        }
    };
    match whole {
        true => Verdict::There,
        false => unclear,
    }
}
