//! Who is in flight: the places of one lane's transfers and metadata ops, shared by its rings and
//! its pool, so that the limits hold for all of them together.
//!
//! A place is claimed before an op is pulled and is free again once the op was reported, or given
//! up. Pure bookkeeping under a leaf lock; nobody is woken here.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::engine::{OpKind, Tag, Want};

/// Which limit an op counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads and writes.
    Transfer,
    /// Everything else.
    Metadata,
}

impl Kind {
    pub(super) fn of(kind: &OpKind) -> Kind {
        match kind {
            OpKind::Read(_) | OpKind::Write(_) => Kind::Transfer,
            _ => Kind::Metadata,
        }
    }

    /// Whether `want` asks for this kind.
    pub(super) fn fits(self, want: Want) -> bool {
        match want {
            Want::Any => true,
            Want::Transfers => self == Kind::Transfer,
            Want::Metadata | Want::Lease => self == Kind::Metadata,
        }
    }
}

/// A transfer through the page cache: the kernel's copy is made by whoever submits it.
pub(super) fn buffered(kind: &OpKind) -> bool {
    match kind {
        OpKind::Read(transfer) | OpKind::Write(transfer) => !transfer.direct,
        _ => false,
    }
}

/// Who claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Ring,
    Pool,
}

/// Places held for one pull.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Claim {
    pub(super) transfer: bool,
    pub(super) metadata: bool,
}

/// Who found no place before one became free, and has to look again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Missed {
    pub(super) ring: bool,
    pub(super) pool: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Ledger {
    transfers_max: usize,
    metadata_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    transfers: usize,
    metadata: usize,
    /// Ops that hold a place.
    live: HashMap<Tag, Kind>,
    /// Pulls that have not been settled.
    pulling: usize,
    /// Ops that were given up before they were on record.
    early: Vec<Tag>,
    missed: Missed,
}

impl State {
    fn give_back(&mut self, kind: Kind) {
        match kind {
            Kind::Transfer => self.transfers -= 1,
            Kind::Metadata => self.metadata -= 1,
        }
    }

    /// Frees the place of `tag`, where it has one.
    fn remove(&mut self, tag: Tag) -> Missed {
        match self.live.remove(&tag) {
            Some(kind) => {
                self.give_back(kind);
                std::mem::take(&mut self.missed)
            }
            None => Missed::default(),
        }
    }
}

impl Ledger {
    pub(super) fn new(transfers_max: usize, metadata_max: usize) -> Ledger {
        Ledger { transfers_max, metadata_max, state: Mutex::default() }
    }

    /// Claims a place of each kind that `want` asks for and that has one free.
    pub(super) fn claim(&self, who: Who, want: Want) -> Claim {
        let mut state = self.state.lock();
        let asked = (Kind::Transfer.fits(want), Kind::Metadata.fits(want));
        let transfer = asked.0 && state.transfers < self.transfers_max;
        let metadata = asked.1 && state.metadata < self.metadata_max;
        state.transfers += usize::from(transfer);
        state.metadata += usize::from(metadata);
        state.pulling += 1;
        if (transfer, metadata) != asked {
            match who {
                Who::Ring => state.missed.ring = true,
                Who::Pool => state.missed.pool = true,
            }
        }
        Claim { transfer, metadata }
    }

    /// The pull gave this op, or none: what is not needed is given back. Tells whether the pool
    /// missed a place meanwhile that the ring only held for the pull.
    pub(super) fn settle(&self, who: Who, claim: Claim, op: Option<(Tag, Kind)>) -> Missed {
        let mut state = self.state.lock();
        state.pulling -= 1;
        let kind = op.map(|(_, kind)| kind);
        if claim.transfer && kind != Some(Kind::Transfer) {
            state.transfers -= 1;
        }
        let unused = claim.metadata && kind != Some(Kind::Metadata);
        state.metadata -= usize::from(unused);
        if let Some((tag, kind)) = op {
            state.live.insert(tag, kind);
            if let Some(at) = state.early.iter().position(|early| *early == tag) {
                state.early.swap_remove(at);
                return state.remove(tag);
            }
        }
        if state.pulling == 0 {
            state.early.clear();
        }
        let pool = unused && who == Who::Ring && std::mem::take(&mut state.missed.pool);
        Missed { ring: false, pool }
    }

    /// Ops in flight, those given up apart.
    pub(super) fn in_flight(&self) -> usize {
        self.state.lock().live.len()
    }

    /// The op was reported.
    pub(super) fn finish(&self, tag: Tag) -> Missed {
        self.state.lock().remove(tag)
    }

    /// The op was given up: it no longer counts.
    pub(super) fn abandon(&self, tag: Tag) -> Missed {
        let mut state = self.state.lock();
        if state.pulling > 0 && !state.live.contains_key(&tag) {
            state.early.push(tag);
        }
        state.remove(tag)
    }

    /// The pool could not pull for want of a buffer.
    pub(super) fn pool_missed(&self) {
        self.state.lock().missed.pool = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulled(ledger: &Ledger, number: u64, kind: Kind) {
        let claim = ledger.claim(Who::Ring, Want::Any);
        ledger.settle(Who::Ring, claim, Some((Tag(number), kind)));
    }

    #[test]
    fn limits_hold_for_rings_and_pool_together_and_who_missed_is_told_once() {
        let ledger = Ledger::new(2, 1);
        pulled(&ledger, 1, Kind::Transfer);
        pulled(&ledger, 2, Kind::Transfer);
        pulled(&ledger, 3, Kind::Metadata);
        let claim = ledger.claim(Who::Pool, Want::Metadata);
        assert!(!claim.transfer && !claim.metadata);
        assert_eq!(ledger.settle(Who::Pool, claim, None), Missed::default(), "it would spin");
        let claim = ledger.claim(Who::Ring, Want::Any);
        assert!(!claim.transfer && !claim.metadata);
        assert_eq!(ledger.settle(Who::Ring, claim, None), Missed::default(), "no place is free");
        assert_eq!(ledger.finish(Tag(1)), Missed { ring: true, pool: true });
        assert_eq!(ledger.finish(Tag(2)), Missed::default());
        assert!(ledger.claim(Who::Ring, Want::Transfers).transfer);
    }

    #[test]
    fn a_place_that_a_ring_held_for_nothing_is_told_to_the_pool() {
        let ledger = Ledger::new(1, 1);
        let held = ledger.claim(Who::Ring, Want::Any);
        let claim = ledger.claim(Who::Pool, Want::Metadata);
        assert!(!claim.metadata);
        assert_eq!(ledger.settle(Who::Pool, claim, None), Missed::default());
        let told = ledger.settle(Who::Ring, held, Some((Tag(1), Kind::Transfer)));
        assert_eq!(told, Missed { ring: false, pool: true });
    }

    #[test]
    fn an_abandoned_op_gives_its_place_back_once() {
        let ledger = Ledger::new(1, 1);
        pulled(&ledger, 1, Kind::Transfer);
        ledger.abandon(Tag(1));
        pulled(&ledger, 2, Kind::Transfer);
        ledger.finish(Tag(1));
        assert!(!ledger.claim(Who::Ring, Want::Any).transfer, "the second op has the place");
    }

    #[test]
    fn an_op_that_is_given_up_before_it_is_on_record_does_not_count() {
        let ledger = Ledger::new(1, 1);
        let claim = ledger.claim(Who::Ring, Want::Any);
        ledger.abandon(Tag(7));
        ledger.settle(Who::Ring, claim, Some((Tag(7), Kind::Transfer)));
        assert!(ledger.claim(Who::Ring, Want::Any).transfer);
    }
}
