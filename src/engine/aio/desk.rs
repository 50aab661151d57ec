//! Who is in flight and where: the counts of one lane and the decisions made from them.
//!
//! Pure bookkeeping under the lane's lock: no thread, no clock, no system call. Owned by
//! [`super::hub::Hub`]. Slots carry a generation, so that an event is never taken for another
//! op's.

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::flight::{Flight, Leg, Todo};
use crate::engine::{Op, Tag, Want};
use crate::posix::linux_aio::Context;

/// The event of a kick; no slot has it.
pub const KICK: u64 = u64::MAX;

/// The thread that takes events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaper {
    /// There is none, and none is needed.
    None,
    /// The supervisor is to make it.
    Wanted,
    /// It could not make it: nothing more is submitted.
    Refused,
    /// It runs, or is being made.
    Running,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    flight: Option<Flight>,
}

/// See the module's text.
pub struct Desk {
    transfers_max: usize,
    /// Transfers that were pulled and have not ended, abandoned ones apart.
    in_flight: usize,
    /// Each of them, and whether it was abandoned.
    tags: HashMap<Tag, bool>,
    /// Pulls that have not come back: their op is not in `tags` yet.
    pulling: usize,
    /// Ops that were abandoned before they were in `tags`.
    early: Vec<Tag>,
    /// The source may have transfers that nobody could start.
    more: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Flights that came back from the kernel and wait for a worker.
    resumed: VecDeque<(Flight, Todo)>,
    /// Flights whose worker has been given the op, and not the rest yet.
    held: HashMap<Tag, (Flight, Todo)>,
    /// Flights that are in a slot, resumed, held, or with a worker after that.
    airborne: usize,
    /// There is one, or will be, while there is a context.
    pub reaper: Reaper,
    pub context: Option<Arc<Context>>,
    pub stopping: bool,
    /// The reaper sleeps until an event comes, however long.
    pub deaf: bool,
    /// Reapers alive, those that only end their context included.
    pub reapers: usize,
    pub handles: Vec<JoinHandle<()>>,
}

/// What a pull may ask the source for.
pub enum Ask {
    /// This.
    Source(Want),
    /// This; a place is reserved for a transfer.
    Reserved(Want),
    /// A flight goes on instead.
    Resumed(Op),
    /// Nothing.
    Nothing,
}

impl Desk {
    pub fn new(transfers_max: usize) -> Desk {
        Desk {
            transfers_max,
            in_flight: 0,
            tags: HashMap::new(),
            pulling: 0,
            early: Vec::new(),
            more: false,
            slots: Vec::new(),
            free: Vec::new(),
            resumed: VecDeque::new(),
            held: HashMap::new(),
            airborne: 0,
            reaper: Reaper::None,
            context: None,
            stopping: false,
            deaf: false,
            reapers: 0,
            handles: Vec::new(),
        }
    }

    /// A worker pulls. A flight that came back goes first, whatever is wanted.
    pub fn ask(&mut self, want: Want) -> Ask {
        if let Some((flight, todo)) = self.resumed.pop_front() {
            let stand_in = flight.stand_in();
            self.held.insert(stand_in.tag, (flight, todo));
            return Ask::Resumed(stand_in);
        }
        if want == Want::Metadata {
            return Ask::Source(want);
        }
        if self.in_flight >= self.transfers_max {
            self.more = true;
            return if want == Want::Any { Ask::Source(Want::Metadata) } else { Ask::Nothing };
        }
        self.in_flight += 1;
        self.pulling += 1;
        Ask::Reserved(want)
    }

    /// The pull with a reserved place gave a transfer, a metadata op (`Err(true)`) or nothing. Says
    /// whether somebody must look again.
    pub fn answered(&mut self, got: Result<Tag, bool>) -> bool {
        self.pulling -= 1;
        let again = match got {
            Ok(tag) => {
                let early = self.early.iter().position(|early| *early == tag);
                let abandoned = early.map(|at| self.early.swap_remove(at)).is_some();
                self.tags.insert(tag, abandoned);
                self.in_flight -= usize::from(abandoned);
                abandoned && self.more
            }
            Err(metadata) => {
                self.in_flight -= 1;
                self.more &= metadata;
                self.more
            }
        };
        if self.pulling == 0 {
            self.early.clear();
        }
        again
    }

    /// An op was reported. Says whether its place may be what a transfer waits for.
    pub fn ended(&mut self, tag: Tag) -> bool {
        match self.tags.remove(&tag) {
            Some(false) => {
                self.in_flight -= 1;
                self.more
            }
            Some(true) | None => false,
        }
    }

    /// An op was given up. Says whether its place may be what a transfer waits for.
    pub fn abandon(&mut self, tag: Tag) -> bool {
        match self.tags.get_mut(&tag) {
            Some(abandoned) => {
                let first = !std::mem::replace(abandoned, true);
                self.in_flight -= usize::from(first);
                first && self.more
            }
            None => {
                if self.pulling > 0 {
                    self.early.push(tag);
                }
                false
            }
        }
    }

    pub fn is_abandoned(&self, tag: Tag) -> bool {
        self.tags.get(&tag).copied().unwrap_or(false)
    }

    /// A flight goes to the kernel: what its event will carry. `fresh`: it was not airborne yet.
    pub fn enter(&mut self, flight: Flight, fresh: bool) -> u64 {
        self.airborne += usize::from(fresh);
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[number as usize];
        slot.flight = Some(flight);
        u64::from(slot.generation) << 32 | u64::from(number)
    }

    /// The flight that an event is about.
    pub fn leave(&mut self, data: u64) -> Option<Flight> {
        let number = usize::try_from(data & u64::from(u32::MAX)).ok()?;
        let slot = self.slots.get_mut(number)?;
        if u64::from(slot.generation) != data >> 32 {
            return None;
        }
        let flight = slot.flight.take()?;
        // The last generation would make a kick's data; it is left out.
        slot.generation = (slot.generation + 1) % u32::MAX;
        self.free.push(u32::try_from(number).unwrap_or(u32::MAX));
        Some(flight)
    }

    /// Something is in the kernel.
    pub fn in_kernel(&self) -> bool {
        self.free.len() < self.slots.len()
    }

    /// A context that holds so many requests takes one more flight, and a kick.
    pub fn has_room(&self, holds: u32) -> bool {
        self.airborne + 1 < usize::try_from(holds).unwrap_or(usize::MAX)
    }

    pub fn resume(&mut self, flight: Flight, todo: Todo) {
        self.resumed.push_back((flight, todo));
    }

    /// A flight that waits for a worker, for the reaper to go on with.
    pub fn take_resumed(&mut self) -> Option<(Flight, Todo)> {
        self.resumed.pop_front()
    }

    /// The rest of a flight whose op a worker was given.
    pub fn take_held(&mut self, tag: Tag) -> Option<(Flight, Todo)> {
        self.held.remove(&tag)
    }

    /// A flight is over. Says whether the reaper must be told that it was the last.
    pub fn landed(&mut self) -> bool {
        self.airborne -= 1;
        self.airborne == 0 && (self.deaf || self.stopping)
    }

    pub fn airborne(&self) -> usize {
        self.airborne
    }

    /// Nothing of the reaper is left or needed.
    pub fn quiet(&self) -> bool {
        self.reapers == 0 && self.reaper == Reaper::None
    }
}

impl Flight {
    /// An op that stands for the flight on its way through the pool.
    fn stand_in(&self) -> Op {
        Op {
            tag: self.op.tag,
            kind: crate::engine::OpKind::Stat { path: std::ffi::CString::default() },
            gate: Arc::clone(&self.op.gate),
            local_limit: self.op.local_limit,
        }
    }

    /// Puts the parts together.
    pub fn new(op: Arc<Op>, leg: Box<Leg>) -> Flight {
        Flight { op, leg }
    }
}
