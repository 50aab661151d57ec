//! What one directory shows the collector: how many blocks, the coldest of them, the temporaries of
//! dead writers. Filled by a worker while it lists; in bounded memory (R81, R82, R46).

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::{Kind, Seen, Surveyor};
use crate::reclaim::coldest::{Candidate, Oldest};
use crate::reclaim::names::{self, Name};
use crate::store::layout::{TEMPORARY, Temporary, Writer, parse_temporary};

/// Most temporaries that one listing of a directory remembers; the next pass finds the rest.
const DEAD_MAX: usize = 65_536;

/// Tells whether a writer of this boot and pid namespace may still write.
pub type Alive = fn(&Writer) -> bool;

/// Whose temporaries are dead (R46).
#[derive(Debug)]
pub struct Mortality {
    /// This store.
    pub me: Writer,
    /// For writers of this boot and pid namespace.
    pub alive: Alive,
    /// The storage's now, when the pass began.
    pub storage_now_ns: i64,
    /// What others have not touched for so long is dead.
    pub ttl_ns: i64,
}

/// What a survey looks for in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// The coldest blocks, at most so many; 0: blocks are only counted.
    pub coldest: u64,
    /// Temporaries of dead writers.
    pub dead: bool,
}

/// One survey.
#[derive(Debug)]
pub struct Plan {
    /// The directory, below the root; empty: the root itself.
    pub dir: String,
    /// What the names of its blocks begin with.
    pub prefix: String,
    /// What to look for.
    pub want: Want,
    /// Whose temporaries are dead.
    pub mortality: Arc<Mortality>,
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Found {
    /// Blocks.
    pub blocks: u64,
    /// Names that are nobody's.
    pub foreign: u64,
    /// The coldest.
    pub coldest: Oldest,
    /// Temporaries of dead writers.
    pub dead: Vec<String>,
    /// Names that may be directories; kept for the root only.
    pub dirs: Vec<String>,
}

/// A survey under way. Each attempt has one of its own, so that one that was given up counts
/// nothing twice.
#[derive(Debug)]
pub struct Tally {
    plan: Arc<Plan>,
    found: Mutex<Found>,
}

impl Tally {
    /// Of this plan.
    #[must_use]
    pub fn new(plan: Arc<Plan>) -> Tally {
        let found = Mutex::new(Found::new(plan.want));
        Tally { plan, found }
    }

    /// Takes what was found.
    #[must_use]
    pub fn take(&self) -> Found {
        std::mem::take(&mut self.found.lock())
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &str {
        &self.plan.dir
    }

    fn remember_dead(&self, name: &str) {
        let mut found = self.found.lock();
        if found.dead.len() < DEAD_MAX {
            found.dead.push(name.to_owned());
        }
    }

    /// Whether a temporary's times must be asked.
    fn wants_temporary(&self, name: &str) -> bool {
        if !self.plan.want.dead {
            return false;
        }
        match parse_temporary(name) {
            Temporary::Unknown => false,
            Temporary::Foreign => true,
            Temporary::Ours(writer) => {
                let mortality = &self.plan.mortality;
                let me = &mortality.me;
                let here = writer.boot == me.boot && writer.pid_namespace == me.pid_namespace;
                if here && !(mortality.alive)(&writer) {
                    self.remember_dead(name);
                }
                !here
            }
        }
    }
}

impl Found {
    fn new(want: Want) -> Found {
        Found { coldest: Oldest::new(want.coldest), ..Found::default() }
    }
}

impl Surveyor for Tally {
    fn begin(&self) {
        *self.found.lock() = Found::new(self.plan.want);
    }

    fn wants(&self, name: &str, kind: Kind) -> bool {
        let plan = &self.plan;
        if name.contains(TEMPORARY) {
            return self.wants_temporary(name);
        }
        if plan.dir.is_empty() {
            if matches!(kind, Kind::Directory | Kind::Unknown) {
                self.found.lock().dirs.push(name.to_owned());
            }
            return false;
        }
        match names::read(name, &plan.prefix) {
            Name::Dot | Name::Temporary => false,
            Name::Block(_) if matches!(kind, Kind::File | Kind::Unknown) => {
                let asks = plan.want.coldest > 0 || kind == Kind::Unknown;
                if !asks {
                    self.found.lock().blocks += 1;
                }
                asks
            }
            Name::Block(_) | Name::Foreign => {
                self.found.lock().foreign += 1;
                false
            }
        }
    }

    fn tell(&self, name: &str, seen: Seen) {
        if name.contains(TEMPORARY) {
            let Mortality { storage_now_ns, ttl_ns, .. } = *self.plan.mortality;
            if seen.file && storage_now_ns.saturating_sub(seen.mtime_ns) > ttl_ns {
                self.remember_dead(name);
            }
            return;
        }
        let mut found = self.found.lock();
        match names::read(name, &self.plan.prefix) {
            Name::Block(block) if seen.file => {
                found.blocks += 1;
                if self.plan.want.coldest > 0 {
                    // R81: a time in the future is now.
                    let mtime_ns = seen.mtime_ns.min(self.plan.mortality.storage_now_ns);
                    found.coldest.see(Candidate { mtime_ns, block });
                }
            }
            _ => found.foreign += 1,
        }
    }
}
