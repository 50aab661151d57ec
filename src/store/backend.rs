//! A lane: everything that belongs to one backend and to no other (R36). [`LaneState`] is the pure
//! part: queues, slots, and what start-up learned about the path. Owned by the core.

use std::collections::VecDeque;

use super::chain::{CLASSES, ChainId, Class};
use super::hung::{Clog, Hung, Limits};
use super::space::Room;
use crate::clock::Time;
use crate::engine::{Space, Tag, Want};
use crate::health::marker::Uuid;
use crate::health::state::Epoch;
use crate::stats::PathStats;

/// Commits, removals and discards in flight on one backend.
pub const METADATA_IN_FLIGHT: usize = 32;
/// Steps of the lease in flight on one backend.
pub const LEASE_IN_FLIGHT: usize = 2;
/// Dumps keep at least this part of the slots when loads are queued too (R37).
const DUMP_SHARE: usize = 8;

/// What start-up learned about a path, or was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathFacts {
    /// `O_DIRECT` is used.
    pub direct: bool,
    /// Offset alignment of direct I/O, bytes.
    pub offset_align: u64,
    /// The storage that this path showed at open (R24); `None`: it has not shown any yet (R13).
    pub storage: Option<Uuid>,
    /// The storage's clock minus the store's clock, in seconds (R46).
    pub clock_offset_s: i64,
    /// What it says of a name is so: see [`crate::posix::medium::Medium::is_coherent`].
    pub coherent: bool,
}

/// Slots of one lane.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    /// Loads and dumps.
    pub transfers: usize,
    /// Lookups.
    pub lookups: usize,
    /// What can wait: collecting, sweeping.
    pub idle: usize,
    /// Transfers that find a buffer, however many that were given up keep theirs.
    pub buffered: usize,
}

impl Slots {
    /// Operations in flight that are no transfers.
    #[must_use]
    pub fn metadata(&self) -> usize {
        self.lookups + METADATA_IN_FLIGHT + LEASE_IN_FLIGHT + self.idle
    }
}

/// The pure part of a lane.
#[derive(Debug)]
pub struct LaneState {
    /// What is known of the path.
    pub facts: PathFacts,
    /// When the marker was last seen to be right.
    pub marker_seen: Option<Time>,
    /// What the file system had left, and when (R85).
    pub left: Option<(Time, Space)>,
    /// `renameat2` can tell whether the target exists; cleared once it refused.
    pub no_replace: bool,
    /// Steps that continue an attempt which has its slot already.
    pub continuations: VecDeque<(Tag, Class)>,
    /// Operations that were given up and are still in the kernel.
    pub hung: Hung,
    /// It was told that no probe brings the path back (R36).
    pub told_clogged: bool,
    /// Room of its file system.
    pub room: Room,
    /// For metrics.
    pub stats: PathStats,
    slots: Slots,
    queues: [VecDeque<ChainId>; CLASSES.len()],
    in_flight: [usize; CLASSES.len()],
}

fn slot(class: Class) -> usize {
    match class {
        Class::Lookup => 0,
        Class::Metadata => 1,
        Class::Load => 2,
        Class::Dump => 3,
        Class::Idle => 4,
        Class::Lease => 5,
    }
}

impl LaneState {
    /// A lane with nothing to do.
    #[must_use]
    pub fn new(facts: PathFacts, slots: Slots) -> LaneState {
        LaneState {
            facts,
            marker_seen: None,
            left: None,
            no_replace: true,
            continuations: VecDeque::new(),
            hung: Hung::default(),
            told_clogged: false,
            room: Room::default(),
            stats: PathStats::default(),
            slots,
            queues: Default::default(),
            in_flight: [0; CLASSES.len()],
        }
    }

    /// Queues a chain.
    pub fn push(&mut self, class: Class, chain: ChainId) {
        self.queues[slot(class)].push_back(chain);
    }

    /// Takes everything that is queued.
    pub fn drain(&mut self) -> Vec<ChainId> {
        self.queues.iter_mut().flat_map(|queue| queue.drain(..)).collect()
    }

    /// The next queued chain of a class that has a free slot, loads and dumps by R37.
    pub fn pop(&mut self, want: Want) -> Option<ChainId> {
        let order = self.order(want);
        let class = order
            .into_iter()
            .flatten()
            .find(|class| !self.queues[slot(*class)].is_empty() && self.has_slot(*class))?;
        self.queues[slot(class)].pop_front()
    }

    fn order(&self, want: Want) -> [Option<Class>; 6] {
        let metadata = [Class::Lookup, Class::Metadata, Class::Lease, Class::Idle].map(Some);
        let dumps_first = self.in_flight(Class::Dump) < (self.slots.transfers / DUMP_SHARE).max(1);
        let transfers = if dumps_first {
            [Some(Class::Dump), Some(Class::Load)]
        } else {
            [Some(Class::Load), Some(Class::Dump)]
        };
        match want {
            Want::Any => {
                let [lookup, names, lease, idle] = metadata;
                [lookup, names, lease, transfers[0], transfers[1], idle]
            }
            Want::Transfers => [transfers[0], transfers[1], None, None, None, None],
            Want::Metadata => {
                let [lookup, names, lease, idle] = metadata;
                [lookup, names, lease, idle, None, None]
            }
            Want::Lease => [Some(Class::Lease), None, None, None, None, None],
        }
    }

    fn has_slot(&self, class: Class) -> bool {
        let transfers = self.in_flight(Class::Load) + self.in_flight(Class::Dump);
        match class {
            Class::Lookup => self.in_flight(class) < self.slots.lookups,
            Class::Metadata => self.in_flight(class) < METADATA_IN_FLIGHT,
            Class::Lease => self.in_flight(class) < LEASE_IN_FLIGHT,
            Class::Load | Class::Dump => transfers < self.slots.transfers,
            Class::Idle => self.in_flight(class) < self.slots.idle,
        }
    }

    /// Operations running for a class.
    #[must_use]
    pub fn in_flight(&self, class: Class) -> usize {
        self.in_flight[slot(class)]
    }

    /// Operations running.
    #[must_use]
    pub fn running(&self) -> usize {
        self.in_flight.iter().sum()
    }

    /// Chains that wait here; some may have ended meanwhile.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// The same without what `skip` says of what can wait.
    #[must_use]
    pub fn queued_but(&self, skip: impl Fn(ChainId) -> bool) -> usize {
        let skipped = self.queues[slot(Class::Idle)].iter().filter(|id| skip(**id)).count();
        self.queued() - skipped
    }

    /// Takes a slot.
    pub fn take_slot(&mut self, class: Class) {
        self.in_flight[slot(class)] += 1;
    }

    /// Gives a slot back.
    pub fn free_slot(&mut self, class: Class) {
        self.in_flight[slot(class)] = self.in_flight[slot(class)].saturating_sub(1);
    }

    /// Chains of a class are queued; some may have ended meanwhile.
    #[must_use]
    pub fn waits(&self, class: Class) -> bool {
        !self.queues[slot(class)].is_empty()
    }

    /// Most operations of what can wait that run at once.
    #[must_use]
    pub fn idle_max(&self) -> usize {
        self.slots.idle
    }

    fn limits(&self) -> Limits {
        let Slots { transfers, buffered, .. } = self.slots;
        Limits { transfers, operations: transfers + self.slots.metadata(), buffered }
    }

    /// More than 2 × its concurrency hang here since the path became available: business I/O fails
    /// at once (R36).
    #[must_use]
    pub fn too_many_abandoned(&self, epoch: Epoch) -> bool {
        self.hung.too_many(&self.limits(), epoch)
    }

    /// So much hangs here that no probe brings the path back (R36).
    #[must_use]
    pub fn clog(&self) -> Option<Clog> {
        self.hung.clog(&self.limits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(transfers: usize) -> LaneState {
        let facts = PathFacts {
            direct: false,
            offset_align: 4096,
            storage: None,
            clock_offset_s: 0,
            coherent: true,
        };
        LaneState::new(facts, Slots { transfers, lookups: 2, idle: 1, buffered: 100 })
    }

    #[test]
    fn r37_loads_go_first_and_dumps_keep_an_eighth() {
        let mut lane = lane(16);
        for number in 0..40 {
            lane.push(Class::Dump, ChainId(number));
            lane.push(Class::Load, ChainId(100 + number));
        }
        let mut loads = 0;
        let mut dumps = 0;
        while let Some(chain) = lane.pop(Want::Any) {
            let class = if chain.0 >= 100 { Class::Load } else { Class::Dump };
            lane.take_slot(class);
            loads += usize::from(class == Class::Load);
            dumps += usize::from(class == Class::Dump);
        }
        assert_eq!((loads, dumps), (14, 2));
        lane.free_slot(Class::Load);
        assert_eq!(lane.pop(Want::Transfers), Some(ChainId(114)));
    }

    #[test]
    fn r36_who_wants_steps_of_the_lease_gets_nothing_else() {
        let mut lane = lane(1);
        for (number, class) in (0..).zip(CLASSES) {
            lane.push(class, ChainId(number));
        }
        let got = lane.pop(Want::Lease);
        let number = CLASSES.iter().position(|class| *class == Class::Lease);
        assert_eq!(got.map(|chain| chain.0), number.map(|number| number as u64));
        assert_eq!(lane.pop(Want::Lease), None);
    }

    #[test]
    fn each_class_has_slots_of_its_own() {
        let mut lane = lane(1);
        for number in 0..3 {
            lane.push(Class::Lookup, ChainId(number));
            lane.push(Class::Load, ChainId(10 + number));
        }
        for expected in [Some(0), Some(1), None] {
            let chain = lane.pop(Want::Metadata);
            assert_eq!(chain.map(|id| id.0), expected);
            lane.take_slot(Class::Lookup);
        }
        assert_eq!(lane.pop(Want::Any), Some(ChainId(10)));
    }
}
