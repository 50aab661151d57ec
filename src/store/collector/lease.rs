//! The lease of R83, the doing half: taking it, showing that its holder lives, giving it back. What
//! a dead holder is, is decided in `reclaim/lease`.

use std::time::Duration;

use super::run::{Ended, Run};
use crate::engine::{Done, Entry};
use crate::error::{Error, Status};
use crate::log::{self, Level};
use crate::reclaim::lease::{CHECK_TIME, HEARTBEAT, LOCK, PARKED};
use crate::store::chore::{Answer, Chore};

/// Nothing hides in a lease that has more entries than this.
const ENTRIES_MAX: usize = 1024;

fn entry(identity: &str) -> String {
    format!("{LOCK}/{identity}")
}

impl Run<'_> {
    /// Takes the lease, or finds out why not.
    pub(super) fn acquire(&mut self) -> Result<(), Ended> {
        if !self.settings.collection.lease {
            let stamp = Chore::Stamp { file: CHECK_TIME.into(), create: true };
            return self.stamp(stamp);
        }
        if self.claim()? {
            self.collector.suspicion.lock().forget();
            return Ok(());
        }
        if !self.holder_is_dead()? {
            return Err(Ended::Peer);
        }
        self.take_over()?;
        if self.claim()? { Ok(()) } else { Err(Ended::Peer) }
    }

    fn claim(&mut self) -> Result<bool, Ended> {
        if self.lease_step(Chore::Claim(LOCK.into()))? == Done::Left {
            return Ok(false);
        }
        let file = entry(&self.settings.identity);
        let stamped = self.stamp(Chore::Stamp { file, create: true });
        if stamped.is_err() {
            // Best effort, also where the store closes: without an entry it is taken over soon.
            self.last = true;
            let _left = self.lease_step(Chore::RemoveDir(LOCK.into()));
        }
        stamped?;
        self.held = true;
        Ok(true)
    }

    /// Sets a file's time, and learns the storage's now.
    fn stamp(&mut self, chore: Chore) -> Result<(), Ended> {
        match self.lease_step(chore)? {
            Done::Stamp(now_ns) => {
                self.now_is(now_ns);
                Ok(())
            }
            other => Err(Ended::Failed(odd(&other))),
        }
    }

    fn entries(&mut self, dir: &str, filter: &'static str) -> Result<Vec<Entry>, Ended> {
        match self.lease_step(Chore::List { dir: dir.into(), filter })? {
            Done::Entries(entries) => Ok(entries),
            other => Err(Ended::Failed(odd(&other))),
        }
    }

    fn holder_is_dead(&mut self) -> Result<bool, Ended> {
        let entries = match self.entries(LOCK, HEARTBEAT) {
            // Given back just now: the next try finds it free.
            Err(Ended::Failed(error)) if error.status == Status::NotFound => return Ok(false),
            entries => entries?,
        };
        let seen = entries.into_iter().next().map(|entry| (entry.name, entry.mtime_s));
        let stamp = Chore::Stamp { file: CHECK_TIME.into(), create: true };
        let Done::Stamp(now_ns) = self.lease_step(stamp)? else { return Ok(false) };
        let collection = &self.settings.collection;
        let (stale, beat) = (collection.stale, collection.heartbeat);
        let now = self.shared.clock.now();
        let now_s = now_ns.div_euclid(1_000_000_000);
        let mut suspicion = self.collector.suspicion.lock();
        if !suspicion.dead(&seen, now_s, stale, beat, now) {
            return Ok(false);
        }
        suspicion.forget();
        let who = name_of(seen.map(|(name, _)| name));
        let seconds = stale.as_secs();
        let text =
            format!("the lease of collection is taken over: {who} is silent for {seconds} s");
        log::emit(Level::Warn, "KV4002", &text);
        self.dead_holder = Some(who);
        Ok(true)
    }

    fn take_over(&mut self) -> Result<(), Ended> {
        // What an earlier taker left half deleted.
        for parked in self.entries("", PARKED)? {
            self.delete_parked(&parked.name)?;
        }
        let Some(dead) = self.dead_holder.take() else { return Err(Ended::Peer) };
        // Once more, as late as can be: another instance may have been quicker.
        match self.holder_in(LOCK) {
            Ok(holder) if holder == dead => {}
            Ok(_) => return Err(Ended::Peer),
            Err(Ended::Failed(error)) if error.status == Status::NotFound => {
                return Err(Ended::Peer);
            }
            Err(ended) => return Err(ended),
        }
        let nonce = self.collector.random() & 0xffff_ffff;
        let parked = format!("{PARKED}{}.{nonce:08x}", self.settings.identity);
        let rename = Chore::Rename { from: LOCK.into(), to: parked.clone() };
        match self.lease_step(rename) {
            // Another instance was quicker.
            Err(Ended::Failed(error)) if error.status == Status::NotFound => {
                return Err(Ended::Peer);
            }
            renamed => renamed?,
        };
        let holder = self.holder_in(&parked)?;
        self.delete_parked(&parked)?;
        if holder == dead {
            return Ok(());
        }
        // Somebody took the dead one's place in between. He finds out before his next batch.
        Err(Ended::Peer)
    }

    /// Whose entry is in a lease.
    fn holder_in(&mut self, dir: &str) -> Result<String, Ended> {
        let first = self.entries(dir, HEARTBEAT)?.into_iter().next();
        Ok(name_of(first.map(|entry| entry.name)))
    }

    fn delete_parked(&mut self, dir: &str) -> Result<(), Ended> {
        let entries = match self.entries(dir, "") {
            Err(Ended::Failed(error)) if error.status == Status::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries.into_iter().take(ENTRIES_MAX) {
            self.gone(Chore::RemoveFile(format!("{dir}/{}", entry.name)))?;
        }
        self.gone(Chore::RemoveDir(dir.into()))
    }

    /// A removal for which it is fine that somebody else was quicker.
    fn gone(&mut self, chore: Chore) -> Result<(), Ended> {
        match self.lease_step(chore) {
            Err(Ended::Failed(error)) if error.status == Status::NotFound => Ok(()),
            done => done.map(drop),
        }
    }

    /// One step of the lease.
    fn lease_step(&mut self, chore: Chore) -> Result<Done, Ended> {
        let limit = self.lease_limit();
        match self.one(chore, Some(limit))? {
            Ok(Answer::Done(done)) => Ok(done),
            Ok(Answer::Tally(_)) => Ok(Done::Unit),
            Err(error) => Err(Ended::of(error)),
        }
    }

    fn lease_limit(&self) -> Duration {
        if self.last { super::RELEASE_LIMIT } else { self.settings.lease_limit }
    }

    /// Shows that the holder lives.
    pub(super) fn beat(&mut self) {
        self.beaten = self.shared.clock.now();
        if !self.held {
            return;
        }
        let file = entry(&self.settings.identity);
        match self.lease_step(Chore::Stamp { file, create: false }) {
            Err(Ended::Failed(error)) if error.status == Status::NotFound => self.lost(),
            // Whether it is still held is asked before the next batch.
            _ => {}
        }
    }

    fn lost(&mut self) {
        self.held = false;
        let text = "the lease of collection is lost to another instance; this pass ends";
        log::emit(Level::Warn, "KV4003", text);
    }

    /// Makes sure that the lease is still held (R83: before each batch of removals).
    pub(super) fn check_lease(&mut self) -> Result<(), Ended> {
        if !self.settings.collection.lease {
            return Ok(());
        }
        let own = |entries: &[Entry], identity: &str| entries.iter().any(|e| e.name == identity);
        let held = match self.held {
            false => false,
            true => match self.entries(LOCK, HEARTBEAT) {
                Err(Ended::Failed(error)) if error.status == Status::NotFound => false,
                entries => own(&entries?, &self.settings.identity),
            },
        };
        if held {
            return Ok(());
        }
        if self.held {
            self.lost();
        }
        Err(Ended::Peer)
    }

    /// Gives the lease back: only the own entry goes.
    pub(super) fn release(&mut self) {
        self.last = true;
        if !self.held {
            return;
        }
        let file = entry(&self.settings.identity);
        let given_back = match self.check_lease() {
            Err(Ended::Peer) => return,
            held => held.and_then(|()| self.gone(Chore::RemoveFile(file))),
        };
        self.held = false;
        // What cannot be given back now goes stale.
        if given_back.is_err() || self.gone(Chore::RemoveDir(LOCK.into())).is_err() {
            log::emit(Level::Warn, "KV4004", "the lease of collection could not be given back");
        }
    }
}

fn odd(done: &Done) -> Error {
    Error::new(Status::Error, format!("bug in kvpath: a step of the lease gave {done:?}"))
}

/// How messages call the holder of a lease.
fn name_of(holder: Option<String>) -> String {
    holder.unwrap_or_else(|| "nobody".into())
}
