//! One pass of the collector: it waits on its own thread for chores that lanes carry out, and
//! shows meanwhile that it lives.

use std::time::Duration;

use super::{Collector, Settings};
use crate::clock::Time;
use crate::error::{Error, Status};
use crate::store::chore::{Answer, Chore};
use crate::store::shared::Shared;
use crate::store::submit::closed;

/// Why a pass, or a part of it, did not go on.
#[derive(Debug)]
pub enum Ended {
    /// Another instance holds the lease.
    Peer,
    /// The store closes.
    Stopped,
    /// Every backend failed.
    Failed(Error),
}

impl Ended {
    /// What an error of a chore means for the pass.
    pub fn of(error: Error) -> Ended {
        if error.status == Status::Closed { Ended::Stopped } else { Ended::Failed(error) }
    }
}

/// A pass under way.
pub struct Run<'c> {
    pub(super) shared: &'c Shared,
    pub(super) collector: &'c Collector,
    pub(super) settings: &'c Settings,
    /// The lease is ours.
    pub(super) held: bool,
    /// Giving the lease back: allowed although the store closes.
    pub(super) last: bool,
    /// When the last heartbeat was sent.
    pub(super) beaten: Time,
    /// Whom this instance believes to be dead.
    pub(super) dead_holder: Option<String>,
    /// The storage's now, in nanoseconds, at a moment of the store's clock.
    now_ns: (i64, Time),
}

impl<'c> Run<'c> {
    /// Before anything was done.
    pub fn new(shared: &'c Shared, collector: &'c Collector) -> Run<'c> {
        let now = shared.clock.now();
        Run {
            shared,
            collector,
            settings: &collector.settings,
            held: false,
            last: false,
            beaten: now,
            dead_holder: None,
            now_ns: (0, now),
        }
    }

    /// The storage's clock was read.
    pub(super) fn now_is(&mut self, now_ns: i64) {
        self.now_ns = (now_ns, self.shared.clock.now());
        self.beaten = self.now_ns.1;
    }

    /// The storage's now.
    pub(super) fn storage_now_ns(&self) -> i64 {
        let (at, when) = self.now_ns;
        let since = self.shared.clock.now().since(when).as_nanos();
        at.saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }

    /// Runs chores at the same time, and gives what became of each.
    pub(super) fn all(
        &mut self,
        chores: Vec<Chore>,
        limit: Option<Duration>,
    ) -> Result<Vec<Result<Answer, Error>>, Ended> {
        self.wait_for(chores, limit, true)
    }

    /// Runs one chore; no heartbeat meanwhile, for it may be one.
    pub(super) fn one(
        &mut self,
        chore: Chore,
        limit: Option<Duration>,
    ) -> Result<Result<Answer, Error>, Ended> {
        let mut answers = self.wait_for(vec![chore], limit, false)?;
        Ok(answers.pop().unwrap_or_else(|| Err(closed())))
    }

    fn wait_for(
        &mut self,
        chores: Vec<Chore>,
        limit: Option<Duration>,
        beats: bool,
    ) -> Result<Vec<Result<Answer, Error>>, Ended> {
        let count = chores.len();
        let last = self.last;
        let shared = self.shared;
        let begun = shared.with(|core, now, fx| core.begin_chores(chores, limit, last, now, fx));
        let (id, cell) = begun.map_err(Ended::of)?;
        while !cell.wait(beats.then(|| self.until_beat())) {
            self.beat();
        }
        let Some(call) = shared.read(|core| core.take_call(id)) else { return Err(Ended::Stopped) };
        let mut results: Vec<Result<Answer, Error>> = (0..count).map(|_| Err(closed())).collect();
        for (at, answer) in call.answers {
            results[at] = Ok(answer);
        }
        for (at, error) in call.errors {
            results[at] = Err(error);
        }
        Ok(results)
    }

    fn until_beat(&self) -> Duration {
        let next = self.beaten.plus(self.settings.collection.heartbeat);
        next.since(self.shared.clock.now())
    }
}
