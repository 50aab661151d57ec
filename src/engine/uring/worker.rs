//! The thread of one ring: it pulls ops, starts their chains, enters the ring, and takes what has
//! completed to its end. It never blocks anywhere but in the ring, and makes no call on a file.

use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use io_uring::squeue;

use super::handover::Baggage;
use super::landing::Landed;
use super::lane::Lane;
use super::ledger::Kind;
use super::pressure::Pressure;
use super::pull::{COPIES, WORKERS};
use super::refusal::Refusal;
use super::ring::{Completion, Ring, Shape, Wait};
use super::table::{Ending, File, Id, Job, Part, Table, read_ticket, ticket, wake_ticket};
use crate::engine::buffers::Buffer;
use crate::engine::pool::IDLE_LIMIT;
use crate::engine::psync::Tried;
use crate::engine::{OpKind, Outcome};
use crate::error::{Cause, Failure, Step};
use crate::log::{self, Level};
use crate::posix::{eventfd, thread};

/// The most submissions of one chain.
pub(super) const CHAIN_MAX: usize = 6;
/// Completions waited for at once: this part of what is in flight.
const BATCH_PART: usize = 2;
/// And no more than these.
const BATCH_MAX: usize = 12;
/// Ops that were given up and are still in the kernel, as multiples of those in flight: more are
/// refused above (R36).
const ABANDONED_FACTOR: usize = 2;
/// Metadata ops that may hang beside them.
const SPARE_OPS: usize = 32;

/// See the module's text.
pub(super) struct Worker {
    pub(super) lane: Arc<Lane>,
    pub(super) ring: Ring,
    pub(super) table: Table,
    pub(super) pressure: Pressure,
    pub(super) number: usize,
    /// Writes that were copied and not handed over yet.
    pub(super) copied: usize,
    /// A buffer for the next transfer.
    pub(super) spare: Option<Buffer>,
    /// The chain that is being made.
    chain: Vec<(Part, squeue::Entry, bool)>,
    harvested: Vec<Completion>,
    /// Pieces of direct reads that are there, each to be copied before the next harvest.
    pub(super) landed: Vec<Landed>,
    /// The watch on the event has ended and is to be renewed.
    unwatched: bool,
    /// More may be pulled than was.
    pub(super) more: bool,
}

/// What a ring of this lane is made for.
pub(super) fn shape(lane: &Lane) -> Shape {
    let params = &lane.params;
    let ops = params.transfers * (1 + ABANDONED_FACTOR) + params.metadata + SPARE_OPS;
    Shape { ops, slabs: lane.buffers.slabs_max() }
}

/// A ring's thread, from its beginning to its end.
pub(super) fn work(lane: Arc<Lane>, number: usize) {
    match prepare(&lane) {
        Ok((ring, event)) => run(lane, number, ring, event),
        Err(refusal) => {
            lane.refused(number, &refusal);
            lane.left();
        }
    }
}

fn prepare(lane: &Lane) -> Result<(Ring, Arc<OwnedFd>), Refusal> {
    let event = eventfd::create().map_err(|errno| Refusal {
        call: "eventfd",
        errno,
        asked: "one descriptor".into(),
    })?;
    Ok((Ring::new(shape(lane))?, Arc::new(event)))
}

fn run(lane: Arc<Lane>, number: usize, ring: Ring, event: Arc<OwnedFd>) {
    thread::be_prompt();
    lane.buffers.keep_slabs();
    lane.take_seat(number, Arc::clone(&event));
    let table = Table::new(ring.files());
    let mut worker = Worker {
        lane: Arc::clone(&lane),
        ring,
        table,
        pressure: Pressure::new(lane.clock.clone()),
        number,
        copied: 0,
        spare: None,
        chain: Vec::new(),
        harvested: Vec::new(),
        landed: Vec::new(),
        unwatched: true,
        more: false,
    };
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| worker.live(&event)));
    match panicked {
        Ok(()) => drop(worker),
        Err(panic) => {
            // Dropping a payload may panic again; leaking it cannot.
            std::mem::forget(panic);
            worker.give_up();
        }
    }
    lane.buffers.let_slabs_go();
    lane.leave(number, &event);
}

impl Worker {
    fn live(&mut self, event: &Arc<OwnedFd>) {
        loop {
            self.lane.begin_look(self.number);
            self.watch(event);
            self.copied = 0;
            self.ring.limit_workers(self.lane.habit.few().then_some(WORKERS));
            self.pull();
            let idle = self.table.busy() == 0;
            if idle && (self.lane.stopping() || self.lane.steps_aside(self.number)) {
                return;
            }
            if idle {
                // What is kept for the next transfer is another ring's while this one sleeps.
                self.spare = None;
            }
            if self.more || !self.lane.fall_asleep(self.number) {
                self.ring.enter(Wait::No);
            } else if idle {
                self.ring.enter(Wait::AtMost(IDLE_LIMIT));
                if !self.harvest() && self.lane.retire(self.number) {
                    return;
                }
            } else {
                self.ring.enter(Wait::For(self.batch()));
            }
            // Whoever wakes the lane from here on need not enter the kernel for it.
            self.lane.begin_look(self.number);
            self.harvest();
            self.pressure.round();
        }
    }

    fn watch(&mut self, event: &OwnedFd) {
        if std::mem::take(&mut self.unwatched) {
            self.ring.make_room(1);
            let entry = Ring::watch(event).user_data(wake_ticket());
            // SAFETY: the descriptor is open as long as this thread's loop runs, and the kernel
            // holds the file itself.
            unsafe { self.ring.push(&entry) };
        }
    }

    /// Writes go through the kernel's workers in several steps, so theirs are waited for together;
    /// a device that reads is fed best by looking at once.
    fn batch(&self) -> u32 {
        // What was given up may never come.
        let coming = self.table.busy() - self.table.inline();
        let coming = coming.min(self.lane.ledger.in_flight());
        u32::try_from((coming / BATCH_PART).clamp(1, BATCH_MAX)).unwrap_or(1)
    }

    pub(super) fn start(&mut self, op: crate::engine::Op) {
        let buffer = match Kind::of(&op.kind) {
            Kind::Transfer => self.spare.take(),
            Kind::Metadata => None,
        };
        if self.table.full() {
            let (tried, learns) = (Tried::default(), false);
            return self.lane.hand_over(op, Baggage { buffer, tried, learns });
        }
        let inline = self.runs_inline(&op.kind);
        let id = self.table.insert(Job { inline, ..Job::new(op, buffer) });
        let Some(job) = self.table.get(id) else { return };
        match &job.op.kind {
            OpKind::Read(_) | OpKind::Write(_) if self.lane.habit.asks() => {
                self.end(id, Ending::Learn);
            }
            // A transfer of a memory file system is a copy, which a ring makes nobody else do.
            OpKind::Read(_) | OpKind::Write(_) if self.lane.habit.memory() => {
                self.end(id, Ending::HandOver(Tried::default()));
            }
            OpKind::Read(_) => self.start_read(id),
            OpKind::Write(_) => self.start_write(id),
            OpKind::Rename { .. } | OpKind::Unlink { .. } | OpKind::Stat { .. } => {
                self.start_name(id);
            }
            _ => self.end(id, Ending::HandOver(Tried::default())),
        }
    }

    /// A read, and a direct write into a file that has its length and its space already, are for
    /// the device alone. Any other write holds the file's lock while it waits for the device.
    fn runs_inline(&self, kind: &OpKind) -> bool {
        let reserves = || !self.lane.no_reserve.load(Ordering::Relaxed);
        match kind {
            OpKind::Read(_) => true,
            OpKind::Write(transfer) => {
                let is_there = transfer.create.is_none();
                is_there && transfer.direct && !transfer.sync && reserves()
            }
            _ => false,
        }
    }

    /// Takes what has completed to its end. Says whether there was anything.
    fn harvest(&mut self) -> bool {
        self.copied = 0;
        let mut harvested = std::mem::take(&mut self.harvested);
        self.ring.harvest(&mut harvested);
        let any = !harvested.is_empty();
        for completion in harvested.drain(..) {
            self.completed(completion);
            if self.copied >= COPIES {
                self.flush();
            }
        }
        self.harvested = harvested;
        self.deliver_all();
        any
    }

    /// Hands over what is queued, so that it does not wait for further copies.
    pub(super) fn flush(&mut self) {
        self.copied = 0;
        self.ring.enter(Wait::No);
    }

    fn completed(&mut self, completion: Completion) {
        let Some((id, part)) = read_ticket(completion.ticket) else { return };
        if part == Part::Wake {
            self.unwatched |= !completion.more;
            return;
        }
        let Some(job) = self.table.get(id) else { return };
        job.results[part as usize] = Some(completion.result);
        if part != job.last {
            return;
        }
        match &job.op.kind {
            _ if job.ending.is_some() => self.closed(id),
            OpKind::Read(_) => self.read_ended(id),
            OpKind::Write(_) => self.write_ended(id),
            _ => self.name_ended(id),
        }
    }

    /// Begins a chain.
    pub(super) fn chain(&mut self, part: Part, entry: squeue::Entry, quiet: bool) {
        self.chain.push((part, entry, quiet));
    }

    /// Queues the chain: each part begins when the one before it has ended, well or not. A quiet
    /// part completes only where it did not do all it was asked; the last part always does. The
    /// first one is never quiet: a chain that the kernel refuses as a whole would else end in
    /// silence.
    pub(super) fn submit(&mut self, id: Id) {
        self.ring.make_room(CHAIN_MAX);
        let mut chain = std::mem::take(&mut self.chain);
        let count = chain.len();
        if let (Some(job), Some((last, ..))) = (self.table.get(id), chain.last()) {
            job.last = *last;
            job.results = Default::default();
        }
        let away = if self.lane.habit.local() { 0 } else { squeue::Flags::ASYNC.bits() };
        for (at, (part, entry, quiet)) in chain.drain(..).enumerate() {
            let mut flags = squeue::Flags::from_bits_retain(away);
            if at + 1 < count {
                flags |= squeue::Flags::IO_HARDLINK;
                if quiet && at > 0 {
                    flags |= squeue::Flags::SKIP_SUCCESS;
                }
            }
            let entry = entry.flags(flags).user_data(ticket(id, part));
            // SAFETY: all that chains point to belongs to the job, which stays in the table until
            // the last part has completed.
            unsafe { self.ring.push(&entry) };
        }
        self.chain = chain;
    }

    /// The op is over for this ring: its file is closed, then it leaves.
    pub(super) fn end(&mut self, id: Id, ending: Ending) {
        let Some(job) = self.table.get(id) else { return };
        job.ending = Some(ending);
        if job.file == File::None {
            return self.depart(id, false);
        }
        self.close(id);
    }

    /// A close on behalf of [`Worker::end`] has completed.
    fn closed(&mut self, id: Id) {
        let Some(job) = self.table.get(id) else { return };
        match job.failed(Part::Close) {
            Some(libc::ECANCELED) => self.close(id),
            Some(libc::EBADF) => self.depart(id, true),
            _ => self.depart(id, false),
        }
    }

    fn close(&mut self, id: Id) {
        let Some(entry) = self.close_entry(id) else { return };
        self.chain(Part::Close, entry, false);
        self.submit(id);
    }

    fn depart(&mut self, id: Id, stuck: bool) {
        let Some(mut job) = self.table.remove(id, stuck) else { return };
        let ending = job.ending.take();
        let revoked = job.inside && !job.op.gate.leave();
        match ending {
            Some(Ending::HandOver(tried)) if !revoked => {
                self.lane.hand_over(job.op, Baggage { buffer: job.buffer, tried, learns: false });
            }
            Some(Ending::Learn) => {
                let (buffer, tried) = (job.buffer, Tried::default());
                self.lane.hand_over(job.op, Baggage { buffer, tried, learns: true });
            }
            Some(Ending::Report(outcome)) => self.report(job, outcome),
            Some(Ending::HandOver(_)) | None => {
                self.report(job, Err(Failure { step: Step::Open, cause: Cause::GivenUp }));
            }
        }
    }

    fn report(&mut self, job: Job, outcome: Outcome) {
        let Job { op, buffer, .. } = job;
        if self.spare.is_none() {
            self.spare = buffer;
        }
        self.lane.source.complete(op.tag, outcome);
        let missed = self.lane.ledger.finish(op.tag);
        self.lane.tell(missed);
    }

    /// A bug was met. Every op still ends once; what the kernel may be using is never freed.
    fn give_up(mut self) {
        log::emit(Level::Error, "KV9002", "bug in kvpath: a ring's thread panicked");
        for job in self.table.drain() {
            let cause = Cause::Differs("bug in kvpath: a ring's thread panicked".into());
            let tag = job.op.tag;
            std::mem::forget(job);
            let outcome = Err(Failure { step: Step::Verify, cause });
            self.lane.source.complete(tag, outcome);
            let missed = self.lane.ledger.finish(tag);
            self.lane.tell(missed);
        }
        let asked = "a ring that panicked".to_owned();
        let refusal = Refusal { call: "io_uring_enter", errno: libc::EINVAL, asked };
        self.lane.refused(self.number, &refusal);
        std::mem::forget(self);
    }
}
