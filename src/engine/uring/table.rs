//! The ops of one ring: each in a slot that is also its file's slot in the ring, under a number
//! that tells a late completion from one of the slot's present op.

use io_uring::types;

use crate::engine::buffers::Buffer;
use crate::engine::psync::Tried;
use crate::engine::psync::plan::Piece;
use crate::engine::{Op, Outcome};

/// What a submission is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Part {
    /// Asking a file's kind and size by name.
    Stat,
    /// Opening.
    Open,
    /// Reserving space.
    Reserve,
    /// Reading or writing.
    Move,
    /// Reading beyond the end, where nothing must be.
    End,
    /// `fdatasync`.
    Sync,
    /// Closing.
    Close,
    /// Renaming or removing.
    Name,
    /// Watching the descriptor that wakes the ring.
    Wake,
}

/// How many parts there are.
pub(super) const PARTS: usize = 9;

const ALL: [Part; PARTS] = [
    Part::Stat,
    Part::Open,
    Part::Reserve,
    Part::Move,
    Part::End,
    Part::Sync,
    Part::Close,
    Part::Name,
    Part::Wake,
];

/// Names an op of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) slot: u32,
    generation: u32,
}

/// What a submission carries and its completion brings back: slot, part, generation.
pub(super) fn ticket(id: Id, part: Part) -> u64 {
    u64::from(id.generation) << 32 | u64::from(part as u8) << 24 | u64::from(id.slot)
}

/// The reverse; `None`: nobody's.
pub(super) fn read_ticket(ticket: u64) -> Option<(Id, Part)> {
    let part = *ALL.get(usize::try_from(ticket >> 24 & 0xff).ok()?)?;
    let slot = u32::try_from(ticket & 0xff_ffff).ok()?;
    Some((Id { slot, generation: u32::try_from(ticket >> 32).ok()? }, part))
}

/// The ticket of the ring's own watch.
pub(super) fn wake_ticket() -> u64 {
    ticket(Id { slot: 0, generation: 0 }, Part::Wake)
}

/// Which file an op has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum File {
    /// None.
    None,
    /// One in its slot of the ring's table.
    Slot,
    /// An ordinary descriptor.
    Descriptor(i32),
}

/// How an op leaves the ring once its file is closed.
#[derive(Debug)]
pub(super) enum Ending {
    /// Reported.
    Report(Outcome),
    /// Run again, from its start, by a worker of the pool.
    HandOver(Tried),
    /// The same; the worker looks what kind of file system it is.
    Learn,
}

/// One op and what the kernel uses of it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) op: Op,
    pub(super) buffer: Option<Buffer>,
    /// The part whose completion ends the present chain.
    pub(super) last: Part,
    /// Results of the present chain. A quiet part that did all it was asked leaves none.
    pub(super) results: [Option<i32>; PARTS],
    pub(super) file: File,
    /// The op has made its file.
    pub(super) created: bool,
    /// The op is inside its gate (borrowed memory).
    pub(super) inside: bool,
    /// How much of the transfer is done.
    pub(super) at: u64,
    pub(super) piece: Option<Piece>,
    /// The length of the present write.
    pub(super) moving: usize,
    pub(super) ending: Option<Ending>,
    /// Nothing of it needs one of the kernel's workers, where the file system is a local one.
    pub(super) inline: bool,
    pub(super) facts: Box<std::mem::MaybeUninit<libc::statx>>,
    pub(super) vector: Vec<libc::iovec>,
}

impl Job {
    pub(super) fn new(op: Op, buffer: Option<Buffer>) -> Job {
        Job {
            op,
            buffer,
            last: Part::Close,
            results: [None; PARTS],
            file: File::None,
            created: false,
            inside: false,
            at: 0,
            piece: None,
            moving: 0,
            ending: None,
            inline: false,
            facts: Box::new(std::mem::MaybeUninit::zeroed()),
            vector: Vec::new(),
        }
    }

    pub(super) fn result(&self, part: Part) -> Option<i32> {
        self.results[part as usize]
    }

    /// The errno of a part that failed.
    pub(super) fn failed(&self, part: Part) -> Option<i32> {
        self.result(part).filter(|result| *result < 0).map(|result| -result)
    }

    /// Some part was not even begun.
    pub(super) fn cancelled(&self) -> bool {
        self.results.contains(&Some(-libc::ECANCELED))
    }

    /// Where the kernel writes what it knows of the file.
    pub(super) fn facts_pointer(&mut self) -> *mut types::statx {
        self.facts.as_mut_ptr().cast()
    }

    /// What it wrote there, once the part has succeeded: the file's length, where it is a file.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        // SAFETY: zeroed is a valid value of this plain struct, and the kernel has filled it.
        let facts = unsafe { self.facts.assume_init_ref() };
        let kind = u32::from(facts.stx_mode) & libc::S_IFMT;
        (kind == libc::S_IFREG).then_some(facts.stx_size)
    }
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    job: Option<Box<Job>>,
}

/// See the module's text. Owned by the ring's thread.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
    max: usize,
    busy: usize,
    inline: usize,
}

impl Table {
    pub(super) fn new(max: usize) -> Table {
        Table { entries: Vec::new(), free: Vec::new(), max, busy: 0, inline: 0 }
    }

    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// How many of the busy ones are inline.
    pub(super) fn inline(&self) -> usize {
        self.inline
    }

    pub(super) fn full(&self) -> bool {
        self.free.is_empty() && self.entries.len() >= self.max
    }

    /// Some of the ops were given up.
    pub(super) fn any_given_up(&self) -> bool {
        let jobs = self.entries.iter().filter_map(|entry| entry.job.as_deref());
        jobs.into_iter().any(|job| job.op.gate.revoked())
    }

    /// Takes a free slot; there is one.
    pub(super) fn insert(&mut self, job: Job) -> Id {
        self.inline += usize::from(job.inline);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.job = Some(Box::new(job));
        self.busy += 1;
        Id { slot, generation: entry.generation }
    }

    /// The op, unless it has left.
    pub(super) fn get(&mut self, id: Id) -> Option<&mut Job> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        entry.job.as_deref_mut()
    }

    /// Takes the op out. Its slot is used again, unless its file could not be closed (`stuck`).
    pub(super) fn remove(&mut self, id: Id, stuck: bool) -> Option<Job> {
        self.get(id)?;
        let job = self.entries[id.slot as usize].job.take()?;
        self.busy -= 1;
        self.inline -= usize::from(job.inline);
        if !stuck {
            self.free.push(id.slot);
        }
        Some(*job)
    }

    /// Everything that is left, for a thread that cannot go on.
    pub(super) fn drain(&mut self) -> Vec<Job> {
        (self.busy, self.inline) = (0, 0);
        self.entries.iter_mut().filter_map(|entry| entry.job.take()).map(|job| *job).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::engine::{Gate, OpKind, Tag};

    fn job(tag: u64) -> Job {
        let kind = OpKind::Stat { path: c"/".into() };
        let (gate, local_limit) = (Arc::new(Gate::new(Clock::monotonic())), Duration::ZERO);
        Job::new(Op { tag: Tag(tag), kind, gate, local_limit }, None)
    }

    #[test]
    fn a_ticket_comes_back_as_it_went() {
        let id = Id { slot: 0xab_cdef, generation: 0xffff_fffe };
        for part in ALL {
            assert_eq!(read_ticket(ticket(id, part)), Some((id, part)));
        }
        assert_eq!(read_ticket(0xff << 24), None);
    }

    #[test]
    fn a_late_completion_finds_nobody() {
        let mut table = Table::new(2);
        let first = table.insert(job(1));
        assert_eq!(table.remove(first, false).map(|job| job.op.tag), Some(Tag(1)));
        let second = table.insert(job(2));
        assert_eq!(second.slot, first.slot, "the slot is used again");
        assert!(table.get(first).is_none() && table.get(second).is_some());
        assert!(table.remove(first, false).is_none());
        assert_eq!(table.busy(), 1);
    }

    #[test]
    fn a_slot_whose_file_could_not_be_closed_is_not_used_again() {
        let mut table = Table::new(2);
        let stuck = table.insert(job(1));
        table.remove(stuck, true);
        let next = table.insert(job(2));
        assert_ne!(next.slot, stuck.slot);
        assert!(table.full() && !table.any_given_up());
        assert!(table.get(next).unwrap().op.gate.revoke());
        assert!(table.any_given_up());
    }
}
