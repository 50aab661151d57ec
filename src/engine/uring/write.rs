//! A write on the ring: open, reserve, write, sync and close.
//!
//! On a local file system that is one chain. Elsewhere the file has an ordinary descriptor, not a
//! slot of the ring, and so is opened before: only closing a descriptor makes a file system flush
//! and tell what it could not write (NFS, FUSE; R35). A direct write that is not aligned has a tail
//! of its own way, and goes to a worker of the pool.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use io_uring::{opcode, squeue, types};

use super::read::{OPEN_FLAGS, align, direct_flag, in_one_call, is_passing};
use super::table::{Ending, File, Id, Job, Part};
use super::worker::Worker;
use crate::engine::psync::Tried;
use crate::engine::psync::plan::{BORROWED_PIECE_BYTES, CACHED_PIECE_BYTES, aligned_part};
use crate::engine::psync::read::{given_up, vector};
use crate::engine::{Done, OpKind, Outcome, Transfer};
use crate::error::{Failure, Step};

/// The parts of a write's chain and the steps that they are.
const STEPS: [(Part, Step); 2] = [(Part::Move, Step::Write), (Part::Sync, Step::Fsync)];

impl Worker {
    pub(super) fn start_write(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        let OpKind::Write(transfer) = &job.op.kind else { return };
        if job.op.gate.revoked() {
            return self.end(id, Ending::Report(Err(given_up(Step::Open))));
        }
        let bufferless = transfer.isolated && job.buffer.is_none();
        let whole_pages = transfer.range().aligned(align(transfer)) && transfer.memory.bytes() > 0;
        let lengthens = self.lane.habit.lengthens();
        let in_one_call = transfer.isolated || in_one_call(transfer);
        if bufferless || !whole_pages || lengthens || !in_one_call {
            return self.end(id, Ending::HandOver(Tried::default()));
        }
        if !transfer.isolated {
            job.buffer = None;
            job.vector = vector(&transfer.memory, 0, BORROWED_PIECE_BYTES);
        }
        if self.lane.habit.local() && transfer.isolated {
            return self.next_write(id);
        }
        let entry = create_entry(transfer, None);
        self.submit_all(id, [Some((Part::Open, entry, false))]);
    }

    /// The last part of a write's chain has completed.
    pub(super) fn write_ended(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        if job.last == Part::Open {
            return self.write_opened(id);
        }
        let opened_here = job.file == File::None;
        if opened_here && job.failed(Part::Open).is_some() {
            return self.write_opened(id);
        }
        let OpKind::Write(transfer) = &job.op.kind else { return };
        job.created |= opened_here && transfer.create.is_some();
        let closed = job.last == Part::Close && job.failed(Part::Close) != Some(libc::ECANCELED);
        let in_slot = !matches!(job.file, File::Descriptor(_));
        let lost = in_slot && job.failed(Part::Close) == Some(libc::EBADF);
        job.file = match (closed && !lost, opened_here) {
            (true, _) => File::None,
            (false, true) => File::Slot,
            (false, false) => job.file,
        };
        let unsupported = [libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL];
        if job.failed(Part::Reserve).is_some_and(|errno| unsupported.contains(&errno)) {
            self.lane.no_reserve.store(true, Ordering::Relaxed);
        }
        let OpKind::Write(transfer) = &job.op.kind else { return };
        match judge(job, transfer) {
            Verdict::Ended(outcome) => self.end(id, Ending::Report(outcome)),
            Verdict::HandOver(tried) => self.end(id, Ending::HandOver(tried)),
            Verdict::GoOn(at) => {
                job.at = at;
                self.next_write(id);
            }
        }
    }

    fn write_opened(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        let OpKind::Write(transfer) = &job.op.kind else { return };
        let opened = job.result(Part::Open).unwrap_or(-libc::ECANCELED);
        if opened < 0 {
            let ending = match is_passing(-opened) {
                true => Ending::HandOver(tried(job, -opened)),
                false => Ending::Report(Err(Failure::errno(Step::Open, -opened))),
            };
            return self.end(id, ending);
        }
        job.file = File::Descriptor(opened);
        job.created = transfer.create.is_some();
        if !transfer.isolated {
            if !job.op.gate.enter() {
                return self.end(id, Ending::Report(Err(given_up(Step::Write))));
            }
            job.inside = true;
        }
        self.next_write(id);
    }

    /// Copies the next piece from the caller, unless the op was given up (R30), and writes it.
    fn next_write(&mut self, id: Id) {
        let small = self.pressure.high();
        let Some(job) = self.table.get(id) else { return };
        let OpKind::Write(transfer) = &job.op.kind else { return };
        if job.inside {
            return self.write_chain(id, 0, true);
        }
        let Some(buffer) = job.buffer.as_mut() else { return };
        let slot = buffer.slot_bytes();
        let most = if transfer.direct && !small { slot } else { CACHED_PIECE_BYTES.min(slot) };
        let left = transfer.memory.bytes() - job.at;
        let bytes = usize::try_from(left).unwrap_or(usize::MAX);
        let bytes = bytes.min(aligned_part(most, align(transfer)));
        let last = bytes as u64 == left;
        if bytes == 0 {
            let created = job.created;
            return self.end(id, Ending::HandOver(Tried { created, ..Tried::default() }));
        }
        let gate = Arc::clone(&job.op.gate);
        if !gate.enter() {
            return self.end(id, Ending::Report(Err(given_up(Step::Write))));
        }
        job.moving = bytes;
        let to = &mut buffer.bytes_mut()[..bytes];
        if transfer.direct {
            // SAFETY: inside the gate; `to` is the lane's own memory.
            unsafe { transfer.memory.copy_out_to_device(job.at, to) };
        } else {
            // SAFETY: as above.
            unsafe { transfer.memory.copy_out(job.at, to) };
        }
        if !gate.leave() {
            return self.end(id, Ending::Report(Err(given_up(Step::Write))));
        }
        self.copied += 1;
        self.write_chain(id, bytes, last);
    }

    fn write_chain(&mut self, id: Id, bytes: usize, last: bool) {
        let reserve = self.reserve_entry(id);
        let moved = self.write_entry(id, bytes);
        let Some(job) = self.table.get(id) else { return };
        let OpKind::Write(transfer) = &job.op.kind else { return };
        let (file, fixed) = place(job, id);
        let slot = types::DestinationSlot::try_from_slot_target(id.slot).ok();
        let open = (job.file == File::None).then(|| create_entry(transfer, slot));
        let data_only = types::FsyncFlags::DATASYNC;
        let sync = (last && transfer.sync)
            .then(|| opcode::Fsync::new(file).flags(data_only).build().flags(fixed));
        let close = last.then(|| close_entry(job.file, id));
        // A local file system, too, sends a direct write that extends its file to a worker.
        let away = if job.inline { squeue::Flags::empty() } else { squeue::Flags::ASYNC };
        self.submit_all(
            id,
            [
                open.map(|entry| (Part::Open, entry, true)),
                reserve.map(|entry| (Part::Reserve, entry, true)),
                moved.map(|entry| (Part::Move, entry.flags(away), true)),
                // Never quiet: the kernel does not mark a sync that failed as failed, and would
                // pass over its result in silence.
                sync.map(|entry| (Part::Sync, entry, false)),
                close.map(|entry| (Part::Close, entry, false)),
            ],
        );
    }

    fn reserve_entry(&mut self, id: Id) -> Option<squeue::Entry> {
        let refused = self.lane.no_reserve.load(Ordering::Relaxed);
        let habit = &self.lane.habit;
        let job = self.table.get(id)?;
        let OpKind::Write(transfer) = &job.op.kind else { return None };
        let (file, fixed) = place(job, id);
        let asked = job.at == 0 && transfer.create.is_some() && transfer.reserve && !refused;
        // As in `psync`.
        let mode = if habit.local() { 0 } else { libc::FALLOC_FL_KEEP_SIZE };
        let entry = opcode::Fallocate::new(file, transfer.file_bytes);
        asked.then(|| entry.mode(mode).build().flags(fixed))
    }

    fn write_entry(&mut self, id: Id, bytes: usize) -> Option<squeue::Entry> {
        let job = self.table.get(id)?;
        let OpKind::Write(transfer) = &job.op.kind else { return None };
        let (file, fixed) = place(job, id);
        let offset = transfer.offset + job.at;
        let Some(buffer) = &job.buffer else {
            let pieces = u32::try_from(job.vector.len()).ok()?;
            let entry = opcode::Writev::new(file, job.vector.as_ptr(), pieces);
            return Some(entry.offset(offset).build().flags(fixed));
        };
        let bytes = u32::try_from(bytes).ok()?;
        let entry = match self.ring.registered(buffer) {
            Some(number) => opcode::WriteFixed::new(file, buffer.pointer(), bytes, number)
                .offset(offset)
                .build(),
            None => opcode::Write::new(file, buffer.pointer(), bytes).offset(offset).build(),
        };
        Some(entry.flags(fixed))
    }

    /// What closes the op's file.
    pub(super) fn close_entry(&mut self, id: Id) -> Option<squeue::Entry> {
        match self.table.get(id)?.file {
            File::None => None,
            file => Some(close_entry(file, id)),
        }
    }
}

/// Opens or creates the file, in a slot of the ring or with a descriptor.
fn create_entry(transfer: &Transfer, slot: Option<types::DestinationSlot>) -> squeue::Entry {
    let (flags, mode) = match transfer.create {
        Some(mode) => (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, mode),
        None => (libc::O_WRONLY, 0),
    };
    let close_on_exec = if slot.is_some() { 0 } else { libc::O_CLOEXEC };
    opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), transfer.path.as_ptr())
        .flags(flags | OPEN_FLAGS | close_on_exec | direct_flag(transfer))
        .mode(mode)
        .file_index(slot)
        .build()
}

/// Where the op's file is, or will be once its chain has opened it; and the flag that says so.
fn place(job: &Job, id: Id) -> (types::Fd, squeue::Flags) {
    match job.file {
        File::Descriptor(fd) => (types::Fd(fd), squeue::Flags::empty()),
        File::None | File::Slot => {
            let slot = i32::try_from(id.slot).unwrap_or(i32::MAX);
            (types::Fd(slot), squeue::Flags::FIXED_FILE)
        }
    }
}

fn close_entry(file: File, id: Id) -> squeue::Entry {
    match file {
        File::Descriptor(fd) => opcode::Close::new(types::Fd(fd)).build(),
        File::None | File::Slot => opcode::Close::new(types::Fixed(id.slot)).build(),
    }
}

/// What a write's chain came to.
enum Verdict {
    Ended(Outcome),
    HandOver(Tried),
    /// So much of the transfer is written.
    GoOn(u64),
}

/// What a worker of the pool has to know after `errno`.
fn tried(job: &Job, errno: i32) -> Tried {
    Tried { created: job.created, stale: errno == libc::ESTALE }
}

/// How many bytes the chain's write was asked for.
fn asked(job: &Job, transfer: &Transfer) -> u64 {
    match job.inside {
        true => transfer.memory.bytes(),
        false => job.moving as u64,
    }
}

fn judge(job: &Job, transfer: &Transfer) -> Verdict {
    for (part, step) in STEPS {
        match job.failed(part) {
            Some(errno) if is_passing(errno) => return Verdict::HandOver(tried(job, errno)),
            Some(errno) => return Verdict::Ended(Err(Failure::errno(step, errno))),
            None => {}
        }
    }
    if job.cancelled() {
        return Verdict::HandOver(tried(job, 0));
    }
    let asked = asked(job, transfer);
    // A quiet write has written all.
    let written = job.result(Part::Move).map_or(asked, |done| u64::from(done.unsigned_abs()));
    if written != asked {
        return Verdict::HandOver(tried(job, 0));
    }
    if job.last != Part::Close {
        return Verdict::GoOn(job.at + written);
    }
    match job.failed(Part::Close) {
        None | Some(libc::EINTR) => {
            let durable = transfer.direct || transfer.sync;
            Verdict::Ended(Ok(Done::Written { durable }))
        }
        Some(errno) => Verdict::Ended(Err(Failure::errno(Step::Close, errno))),
    }
}
