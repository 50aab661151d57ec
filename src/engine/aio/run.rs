//! What a worker does with an op: begins it, or goes on with a flight that came back.

use std::sync::Arc;

use super::flight::{Flight, Leg, Todo, transfer};
use super::hub::Hub;
use crate::engine::buffers::{Buffer, Take};
use crate::engine::pool::Ran;
use crate::engine::psync::plan::ALIGN_BYTES;
use crate::engine::psync::read::{given_up, memory_is_aligned};
use crate::engine::psync::whole::is_whole;
use crate::engine::psync::{Job, Tried};
use crate::engine::{Op, OpKind, Outcome, Transfer};
use crate::error::Failure;

/// The most slots of one transfer: more only makes the pieces larger.
pub(super) const SLOTS_MAX: usize = 2;

/// How the opening of a transfer went.
enum Opened {
    /// It can fly.
    Ready(Leg),
    /// It has ended.
    Ended(Outcome),
}

impl Hub {
    /// Runs one op on a worker.
    pub fn run(&self, op: Op, buffer: &mut Option<Buffer>) -> Ran {
        let held = self.desk.lock().take_held(op.tag);
        if let Some((flight, todo)) = held {
            self.disown(op.tag);
            return self.go_on(flight, todo, buffer);
        }
        let direct = transfer(&op).filter(|_| self.flies(&op) && self.has_context());
        if direct.is_none() {
            let outcome = Job { lane: &self.lane, op: &op }.run(buffer, Tried::default());
            if let Some(transfer) = transfer(&op) {
                self.learn(&transfer.path);
            }
            return Ran::Ended(outcome);
        }
        let op = Arc::new(op);
        match self.open(&op, buffer) {
            Opened::Ended(outcome) => Ran::Ended(outcome),
            Opened::Ready(leg) => match self.fly(&op, Box::new(leg), true, None) {
                Ok(()) => Ran::Detached,
                Err((leg, failure)) => Ran::Ended(self.finish(&op, *leg, Err(failure), buffer)),
            },
        }
    }

    /// A worker that goes on with an abandoned op is abandoned from the start.
    fn disown(&self, tag: crate::engine::Tag) {
        if self.desk.lock().is_abandoned(tag)
            && let Some(pool) = self.pool.get().and_then(std::sync::Weak::upgrade)
        {
            pool.abandon(tag);
        }
    }

    fn open(&self, op: &Arc<Op>, buffer: &mut Option<Buffer>) -> Opened {
        let job = Job { lane: &self.lane, op };
        let mut created = false;
        let opened = match &op.kind {
            OpKind::Read(transfer) => {
                job.open_to_read(transfer).map(|fd| (transfer, Leg::new(fd, false), false))
            }
            OpKind::Write(transfer) => job
                .open_to_write(transfer, &mut created)
                .map(|(fd, made)| (transfer, Leg::new(fd, true), made)),
            _ => return Opened::Ended(job.run(buffer, Tried::default())),
        };
        let (transfer, mut leg, made) = match opened {
            Ok(opened) => opened,
            Err(failure) => return Opened::Ended(self.once_more(&job, created, failure, buffer)),
        };
        leg.created = created;
        self.learn(&transfer.path);
        leg.local = self.habits.kind().is_local();
        let ready = match leg.write {
            false => self.prepare_read(&job, transfer, &mut leg, buffer),
            true => self.prepare_write(&job, transfer, &mut leg, made, buffer),
        };
        match ready {
            Ok(true) => Opened::Ready(leg),
            // Nothing of it can be direct.
            Ok(false) => {
                let rest = job.write_rest(transfer, &leg.fd, 0, buffer);
                Opened::Ended(self.finish(op, leg, rest, buffer))
            }
            Err(failure) => Opened::Ended(self.finish(op, leg, Err(failure), buffer)),
        }
    }

    fn prepare_read(
        &self,
        job: &Job<'_>,
        transfer: &Transfer,
        leg: &mut Leg,
        buffer: &mut Option<Buffer>,
    ) -> Result<bool, Failure> {
        enter(job, transfer, leg)?;
        if let Some(beyond) = self.beyond.as_ref().filter(|_| leg.local && is_whole(transfer)) {
            // The one alignment that needs no asking.
            (leg.align, leg.end) = (ALIGN_BYTES, transfer.memory.bytes());
            self.give_slots(job, transfer, leg, buffer)?;
            let room: usize = leg.buffers.iter().map(Buffer::slot_bytes).sum();
            if room as u64 >= leg.end.next_multiple_of(ALIGN_BYTES) {
                leg.beyond = Some(Arc::clone(beyond));
                return Ok(true);
            }
        }
        let (align, in_place) = job.examine(transfer, &leg.fd)?;
        (leg.align, leg.end) = (align, transfer.memory.bytes());
        if !in_place && leg.buffers.is_empty() {
            self.give_slots(job, transfer, leg, buffer)?;
        }
        Ok(true)
    }

    /// `false`: everything goes through the page cache.
    fn prepare_write(
        &self,
        job: &Job<'_>,
        transfer: &Transfer,
        leg: &mut Leg,
        made: bool,
        buffer: &mut Option<Buffer>,
    ) -> Result<bool, Failure> {
        enter(job, transfer, leg)?;
        job.prepare(transfer, &leg.fd, made)?;
        (leg.end, leg.align) = job.direct_part(transfer, &leg.fd, &transfer.range())?;
        if leg.end == 0 {
            return Ok(false);
        }
        if transfer.isolated || !memory_is_aligned(&transfer.memory, leg.align.max(ALIGN_BYTES)) {
            self.give_slots(job, transfer, leg, buffer)?;
        }
        Ok(true)
    }

    /// The worker's slot goes with the flight, and more of them where there are plenty.
    fn give_slots(
        &self,
        job: &Job<'_>,
        transfer: &Transfer,
        leg: &mut Leg,
        buffer: &mut Option<Buffer>,
    ) -> Result<(), Failure> {
        let slot_bytes = job.memory(leg.step(), buffer)?.len();
        leg.buffers.extend(buffer.take());
        let needed = transfer.memory.bytes() + transfer.offset % leg.align;
        let slots = usize::try_from(needed.div_ceil(slot_bytes as u64)).unwrap_or(usize::MAX);
        while leg.buffers.len() < slots.min(SLOTS_MAX)
            && self.lane.buffers.plenty()
            && let Take::Got(slot) = self.lane.buffers.take()
        {
            leg.buffers.push(slot);
        }
        Ok(())
    }

    /// Goes on with a flight that came back from the kernel, on a thread that may block.
    pub fn go_on(&self, flight: Flight, todo: Todo, buffer: &mut Option<Buffer>) -> Ran {
        let Flight { op, mut leg } = flight;
        let job = Job { lane: &self.lane, op: &op };
        let Some(transfer) = transfer(&op) else { return Ran::Detached };
        let todo = match todo {
            Todo::Digest(result) => leg.digest(&job, transfer, result),
            todo => todo,
        };
        let todo = match todo {
            Todo::Ask => match job.examine(transfer, &leg.fd) {
                Ok((align, _)) => {
                    leg.restart(align);
                    Todo::Submit
                }
                Err(failure) => Todo::End(Err(failure)),
            },
            todo => todo,
        };
        let result = match todo {
            Todo::Submit | Todo::Again(_) | Todo::Digest(_) | Todo::Ask => {
                let shortage = if let Todo::Again(errno) = todo { Some(errno) } else { None };
                match self.fly(&op, leg, false, shortage) {
                    Ok(()) => return Ran::Detached,
                    Err((back, failure)) => {
                        leg = back;
                        Err(failure)
                    }
                }
            }
            Todo::Rest => {
                let mut slot = leg.buffers.pop();
                job.write_rest(transfer, &leg.fd, leg.end, &mut slot)
            }
            Todo::EndedEarly(reached) => Err(job.ended_early(transfer, &leg.fd, reached)),
            Todo::End(result) => result,
        };
        let outcome = self.finish(&op, *leg, result, buffer);
        self.landed();
        Ran::Ended(outcome)
    }

    /// Closes; and opens again by name, once, what had become stale.
    fn finish(
        &self,
        op: &Arc<Op>,
        leg: Leg,
        result: Result<(), Failure>,
        buffer: &mut Option<Buffer>,
    ) -> Outcome {
        let job = Job { lane: &self.lane, op };
        let Some(transfer) = transfer(op) else { return Err(given_up(leg.step())) };
        let created = leg.created;
        match leg.conclude(&job, transfer, result) {
            Err(failure) => self.once_more(&job, created, failure, buffer),
            outcome => outcome,
        }
    }

    /// What was stale is tried once more, with blocking calls.
    fn once_more(
        &self,
        job: &Job<'_>,
        created: bool,
        failure: Failure,
        buffer: &mut Option<Buffer>,
    ) -> Outcome {
        let mut created = created;
        match failure.os() {
            Some(libc::ESTALE) if !job.op.gate.revoked() => job.run_once(buffer, &mut created),
            _ => Err(failure),
        }
    }
}

/// Enters the gate for the whole op where the memory is borrowed (R32).
fn enter(job: &Job<'_>, transfer: &Transfer, leg: &mut Leg) -> Result<(), Failure> {
    if !transfer.isolated {
        if !job.op.gate.enter() {
            return Err(given_up(leg.step()));
        }
        leg.entered = true;
    }
    Ok(())
}
