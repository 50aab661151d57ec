//! Who works, who idles and what may be started: the counts of one pool, and the decisions made
//! from them.
//!
//! Pure bookkeeping under the pool's lock: no thread, no clock, no system call. Owned by
//! [`super::Pool`].

#[cfg(test)]
mod tests;
mod threads;

use std::sync::Arc;
use std::thread::JoinHandle;

use super::{Look, Parker, Spread};
use crate::engine::{Tag, Want};

/// Which limit an op counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads and writes.
    Transfer,
    /// Everything else.
    Metadata,
}

/// One thread, from its making until it leaves.
#[derive(Debug, Default)]
struct Member {
    running: Option<(Tag, Kind)>,
    abandoned: bool,
    handle: Option<JoinHandle<()>>,
    /// It left before its maker could store the handle.
    left: bool,
}

/// What a worker may pull: places that it holds until [`Roster::settle`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) transfer: bool,
    pub(super) metadata: bool,
    /// The number of wakes seen before the pull.
    wakes: u64,
}

impl Claim {
    /// What to ask the source for. A transfer also needs a buffer.
    pub(super) fn want(&self, buffer: bool) -> Option<Want> {
        match (self.transfer && buffer, self.metadata) {
            (true, true) => Some(Want::Any),
            (true, false) => Some(Want::Transfers),
            (false, true) => Some(Want::Metadata),
            (false, false) => None,
        }
    }

    /// The place that an op of `kind` counts on. Its own kind's where that was claimed; but a chain
    /// that was pulled as a transfer may begin with another step, and then has the place of one.
    fn place(&self, kind: Kind) -> Kind {
        match kind {
            Kind::Metadata if !self.metadata => Kind::Transfer,
            Kind::Transfer if !self.transfer => Kind::Metadata,
            claimed => claimed,
        }
    }
}

/// What a worker does after its pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It has an op.
    Run,
    /// Something changed: pull again.
    Again,
    /// It is on the idle stack and parks.
    Park,
}

/// What a worker does when its op has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// It pulls the next op.
    Stay,
    /// It was replaced while it hung, and leaves.
    Leave,
}

/// What has to be done once the lock is released.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Whom to wake.
    pub(super) wake: Vec<Arc<Parker>>,
    /// The supervisor is asked for threads.
    pub(super) ring: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Roster {
    transfers_max: usize,
    metadata_max: usize,
    spread: Spread,
    /// In flight or claimed, abandoned ones apart.
    transfers: usize,
    metadata: usize,
    members: Vec<Option<Member>>,
    /// Parked workers; the last one in is the first one out, so the others can retire.
    idle: Vec<Arc<Parker>>,
    /// How many ops may wait in the source, at most; never too low after a wake.
    waiting: usize,
    /// Counts wakes, so that a worker which found nothing sees that it must look again.
    wakes: u64,
    /// Workers that are on their way to a pull that they have not begun: they will see what waits
    /// now.
    seeking: usize,
    /// Workers between the source and the roster: their op is not on record yet. They look again if
    /// a wake came meanwhile, so they too are on their way.
    pulling: usize,
    /// No metadata op was there when so many wakes had been seen.
    dry: u64,
    /// Ops that were abandoned before they were on record.
    early: Vec<Tag>,
    /// Threads that the supervisor was asked for and has not made.
    asked: usize,
    /// Threads that it could not make: still wanted, but nobody is on his way.
    refused: usize,
    /// Threads that are being made.
    making: usize,
    /// Threads alive, those of abandoned ops included.
    threads: usize,
    abandoned: usize,
    stopping: bool,
    /// Handles of threads that have left, to be joined.
    ended: Vec<JoinHandle<()>>,
}

impl Roster {
    pub(super) fn new(transfers_max: usize, metadata_max: usize) -> Roster {
        Roster {
            transfers_max,
            metadata_max,
            spread: Spread::Full,
            transfers: 0,
            metadata: 0,
            members: Vec::new(),
            idle: Vec::new(),
            waiting: 0,
            wakes: 0,
            seeking: 0,
            pulling: 0,
            dry: 0,
            early: Vec::new(),
            asked: 0,
            refused: 0,
            making: 0,
            threads: 0,
            abandoned: 0,
            stopping: false,
            ended: Vec::new(),
        }
    }

    pub(super) fn with_spread(self, spread: Spread) -> Roster {
        Roster { spread, ..self }
    }

    /// Other limits from now on.
    pub(super) fn set_limits(
        &mut self,
        transfers_max: usize,
        metadata_max: usize,
        available: bool,
    ) -> Calls {
        (self.transfers_max, self.metadata_max) = (transfers_max, metadata_max);
        self.rouse(available, Look::Both)
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Nobody is left and nobody is coming.
    pub(super) fn empty(&self) -> bool {
        self.threads == 0 && self.making == 0
    }

    /// More threads may exist: those of abandoned ops do not count.
    fn room(&self) -> usize {
        let counted = self.threads - self.abandoned;
        (self.transfers_max + self.metadata_max).saturating_sub(counted)
    }

    /// Whether a place is free that `claim` could not have.
    fn missed(&self, claim: &Claim, buffer: bool, available: bool) -> bool {
        let transfer = self.transfers < self.transfers_max && (buffer || available);
        let metadata = self.metadata < self.metadata_max;
        (transfer && !(claim.transfer && buffer)) || (metadata && !claim.metadata)
    }

    /// `jobs` more ops can be pulled.
    pub(super) fn arrived(&mut self, jobs: usize, available: bool, look: Look) -> Calls {
        if self.stopping || jobs == 0 {
            return Calls::default();
        }
        self.waiting = self.waiting.saturating_add(jobs);
        self.wakes = self.wakes.wrapping_add(1);
        self.rouse(available, look)
    }

    /// Wakes or asks for as many workers as there is work that nobody is on his way to. Where only
    /// metadata could be started and nobody knows whether any waits, one scout looks, if `look`
    /// allows it.
    pub(super) fn rouse(&mut self, available: bool, look: Look) -> Calls {
        let mut calls = Calls::default();
        if self.stopping {
            return calls;
        }
        let metadata = self.metadata_max.saturating_sub(self.metadata);
        let transfers = self.transfers_max.saturating_sub(self.transfers);
        let coming = self.seeking + self.pulling + self.asked;
        let startable = match (transfers > 0 && available, look) {
            (true, Look::Both) => transfers + metadata,
            // Whoever is on his way takes a place first.
            (true, _) => transfers.saturating_sub(self.seeking + self.asked),
            // Whoever is coming will look.
            (false, Look::Both | Look::Scout) if coming == 0 => metadata.min(1),
            (false, _) => 0,
        };
        let sent = match self.spread {
            Spread::Full => startable,
            Spread::Chain(most) => startable.min(most.saturating_sub(coming)),
        };
        let mut missing = self.waiting.saturating_sub(coming).min(sent);
        while missing > 0
            && let Some(parker) = self.idle.pop()
        {
            self.seeking += 1;
            missing -= 1;
            calls.wake.push(parker);
        }
        let wanted = self.asked + self.refused;
        let more = missing.saturating_sub(self.refused).min(self.room().saturating_sub(wanted));
        self.asked += more;
        calls.ring = more > 0;
        calls
    }

    /// A worker begins a pull: it holds a place of each kind that has one. `None`: the pool stops.
    pub(super) fn claim(&mut self) -> Option<Claim> {
        self.seeking -= 1;
        if self.stopping {
            return None;
        }
        let transfer = self.transfers < self.transfers_max;
        let metadata = self.metadata < self.metadata_max;
        self.transfers += usize::from(transfer);
        self.metadata += usize::from(metadata);
        self.pulling += 1;
        Some(Claim { transfer, metadata, wakes: self.wakes })
    }

    /// The pull gave `op`, or nothing. `buffer`: the worker had one to pull with; `available`:
    /// there is another.
    pub(super) fn settle(
        &mut self,
        parker: &Arc<Parker>,
        claim: &Claim,
        op: Option<(Tag, Kind)>,
        buffer: bool,
        available: bool,
    ) -> (Next, Calls) {
        self.pulling -= 1;
        let op = op.map(|(tag, kind)| (tag, claim.place(kind)));
        let kind = op.map(|(_, kind)| kind);
        if claim.transfer && kind != Some(Kind::Transfer) {
            self.transfers -= 1;
        }
        if claim.metadata && kind != Some(Kind::Metadata) {
            self.metadata -= 1;
        }
        let next = match op {
            Some((tag, kind)) => {
                self.waiting = self.waiting.saturating_sub(1);
                self.put_on_record(parker.number, tag, kind);
                Next::Run
            }
            None => self.nothing_found(parker, claim, buffer, available),
        };
        if self.pulling == 0 {
            self.early.clear();
        }
        // A place that was held for nothing may be what a parked worker missed; and a wake that
        // counted on this worker may have been for metadata, while it came back with a transfer.
        let calls = match kind {
            Some(Kind::Metadata) => self.rouse(available, Look::Both),
            Some(Kind::Transfer) if self.dry != self.wakes => self.rouse(available, Look::Scout),
            Some(Kind::Transfer) => self.rouse(available, Look::Places),
            None => Calls::default(),
        };
        (next, calls)
    }

    fn put_on_record(&mut self, number: usize, tag: Tag, kind: Kind) {
        if let Some(member) = self.member(number) {
            member.running = Some((tag, kind));
        }
        if let Some(at) = self.early.iter().position(|early| *early == tag) {
            self.early.swap_remove(at);
            self.mark_abandoned(tag);
        }
    }

    fn nothing_found(
        &mut self,
        parker: &Arc<Parker>,
        claim: &Claim,
        buffer: bool,
        available: bool,
    ) -> Next {
        let changed = self.wakes != claim.wakes;
        if matches!(claim.want(buffer), Some(Want::Any | Want::Metadata)) {
            self.dry = claim.wakes;
        }
        if claim.want(buffer) == Some(Want::Any) && !changed {
            self.waiting = 0;
        }
        let missed = self.waiting > 0 && self.missed(claim, buffer, available);
        if changed || missed || self.stopping {
            self.seeking += 1;
            return Next::Again;
        }
        self.idle.push(Arc::clone(parker));
        Next::Park
    }

    /// The worker's op has ended and is about to be reported: the worker is on its way to the next
    /// one, which may come out of the report itself.
    pub(super) fn reporting(&mut self) {
        self.seeking += 1;
    }

    /// The op was reported: its place is free. Not before, so that the source never sees more in
    /// flight than the limit.
    pub(super) fn finished(&mut self, number: usize, available: bool) -> (After, Calls) {
        let Some(member) = self.member(number) else { return (After::Leave, Calls::default()) };
        let running = member.running.take();
        if !std::mem::take(&mut member.abandoned) {
            if let Some((_, kind)) = running {
                self.give_back(kind);
            }
            return (After::Stay, Calls::default());
        }
        self.abandoned -= 1;
        if self.threads - self.abandoned <= self.transfers_max + self.metadata_max {
            return (After::Stay, Calls::default());
        }
        self.seeking -= 1;
        // Work that came meanwhile may have counted on this worker.
        (After::Leave, self.rouse(available, Look::Both))
    }

    fn give_back(&mut self, kind: Kind) {
        match kind {
            Kind::Transfer => self.transfers -= 1,
            Kind::Metadata => self.metadata -= 1,
        }
    }

    /// The worker of `tag` no longer counts.
    pub(super) fn abandon(&mut self, tag: Tag, available: bool) -> Calls {
        if !self.mark_abandoned(tag) {
            if self.pulling > 0 {
                self.early.push(tag);
            }
            return Calls::default();
        }
        self.rouse(available, Look::Both)
    }

    fn mark_abandoned(&mut self, tag: Tag) -> bool {
        for member in self.members.iter_mut().flatten() {
            if let Some((running, kind)) = member.running
                && running == tag
                && !member.abandoned
            {
                member.abandoned = true;
                self.abandoned += 1;
                self.give_back(kind);
                return true;
            }
        }
        false
    }

    fn member(&mut self, number: usize) -> Option<&mut Member> {
        self.members.get_mut(number).and_then(Option::as_mut)
    }
}
