//! The sweep of temporaries that dead writers left (R46): one `dir` after another, as work that can
//! wait.

use super::chain::Work;
use super::core::Core;
use super::effects::Effects;
use super::layout::{Temporary, Writer, parse_temporary};
use super::types::BlockId;
use crate::clock::Time;
use crate::engine::Entry;

/// Tells whether a writer of this boot and pid namespace may still write.
pub type Alive = fn(&Writer) -> bool;

/// A sweep under way.
#[derive(Debug)]
pub struct Sweep {
    next: u32,
    left: u32,
    me: Writer,
    alive: Alive,
}

impl Core {
    /// Begins a sweep of all `dir`s, from a place that differs from store to store.
    pub fn begin_sweep(&mut self, me: Writer, alive: Alive, now: Time, fx: &mut Effects) {
        let places = self.layout.dirs() + 1;
        let next = u32::try_from(me.nonce % u64::from(places)).unwrap_or(0);
        self.sweeping = Some(Sweep { next, left: places, me, alive });
        self.sweep_next(now, fx);
    }

    /// Goes on to the next `dir`.
    pub(super) fn sweep_next(&mut self, now: Time, fx: &mut Effects) {
        let places = self.layout.dirs() + 1;
        let Some(sweep) = &mut self.sweeping else { return };
        if sweep.left == 0 || self.closing {
            self.sweeping = None;
            return;
        }
        let dir = sweep.next;
        sweep.left -= 1;
        sweep.next = (dir + 1) % places;
        // Any id will do: it spreads the listings over the backends.
        let mut spread = [0; 16];
        spread[..4].copy_from_slice(&dir.to_le_bytes());
        let id = self.add_chain(Work::Sweep { dir }, BlockId(spread));
        self.route(id, now, fx);
    }

    /// The temporaries of one `dir`: those of dead writers are removed.
    pub(super) fn sweep_listed(
        &mut self,
        id: super::chain::ChainId,
        lane: usize,
        entries: &[Entry],
        now: Time,
        fx: &mut Effects,
    ) {
        let Some(Work::Sweep { dir }) = self.chains.get(&id).map(|chain| &chain.work) else {
            return;
        };
        let dir = self.layout.swept(*dir);
        let dead: Vec<String> = entries
            .iter()
            .filter(|entry| self.is_dead(lane, entry, now))
            .map(|entry| format!("{dir}{}{}", if dir.is_empty() { "" } else { "/" }, entry.name))
            .collect();
        for relative in dead {
            let work = Work::SweepOne { relative };
            let mut spread = [0; 16];
            spread[0] = u8::try_from(lane).unwrap_or(0);
            let id = self.add_chain(work, BlockId(spread));
            self.route(id, now, fx);
        }
    }

    fn is_dead(&self, lane: usize, entry: &Entry, now: Time) -> bool {
        let Some(sweep) = &self.sweeping else { return false };
        let ttl = i64::try_from(self.rules.temp_ttl.as_secs()).unwrap_or(i64::MAX);
        let seconds = i64::try_from(now.0.as_secs()).unwrap_or(i64::MAX);
        let storage_now = seconds.saturating_add(self.lanes[lane].facts.clock_offset_s);
        let old = storage_now.saturating_sub(entry.mtime_s) > ttl;
        match parse_temporary(&entry.name) {
            Temporary::Unknown => false,
            Temporary::Foreign => old,
            Temporary::Ours(writer) => {
                let me = &sweep.me;
                let here = writer.boot == me.boot && writer.pid_namespace == me.pid_namespace;
                if here { !(sweep.alive)(&writer) } else { old }
            }
        }
    }
}
