//! Lanes for which the system makes no thread (RLIMIT_NPROC, pids.max): who waits for one is told
//! so, and a store that closes does not wait for it.
//!
//! Pure bookkeeping. The supervisor tells what it was refused; it goes on trying.

use std::collections::HashMap;
use std::time::Duration;

use super::chain::{ChainId, Place};
use super::core::Core;
use super::effects::Effects;
use super::submit;
use crate::clock::Time;
use crate::log::Level;

/// A closing store waits this long for the thread of a lane that has none.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// The lanes, and since when and why there is no thread for more work of theirs.
#[derive(Debug, Default)]
pub struct Starved(HashMap<usize, (Time, String)>);

impl Starved {
    /// For the text of a limit that passed meanwhile: empty, or why.
    pub fn because(&self) -> String {
        self.0.values().next().map_or_else(String::new, |(_, why)| format!("; {why}"))
    }
}

impl Core {
    /// A thread of `lane` could not be made. `any`: it has others. Where it has none and the store
    /// has been closing for a while, its queued work ends: nobody will ever begin it.
    pub fn threads_refused(
        &mut self,
        lane: usize,
        any: bool,
        why: &str,
        now: Time,
        fx: &mut Effects,
    ) {
        let (since, _) = self.starved.0.entry(lane).or_insert_with(|| (now, why.to_owned()));
        if any || !self.closing || now < since.plus(CLOSE_PATIENCE) {
            return;
        }
        let queued = self.chains.iter().filter(|(_, chain)| chain.place == Place::Queued(lane));
        let queued: Vec<ChainId> = queued.map(|(id, _)| *id).collect();
        if queued.is_empty() {
            return;
        }
        let text = format!("close: {} operations are left undone: {why}", queued.len());
        fx.log(Level::Warn, "KV1013", text);
        for id in queued {
            self.end(id, Err(submit::closed()), now, fx);
        }
        self.note_quiet(fx);
    }

    /// All threads that the lane asked for are there.
    pub fn threads_made(&mut self, lane: usize) {
        self.starved.0.remove(&lane);
    }
}
