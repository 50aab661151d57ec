//! How the health threads see the store: what is excluded, how it is probed, and where an outcome
//! goes (R50–R53, R60).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::backend::LaneState;
use super::core::Core;
use super::effects::Effects;
use super::hung::Clog;
use super::layout::Writer;
use super::shared::Shared;
use super::types::Setting;
use crate::clock::Time;
use crate::config::{Config, FailureScope};
use crate::error::{Cause, Failure, Step};
use crate::health::breaker::{BreakerChange, Watched};
use crate::health::class::Operation;
use crate::health::marker::Uuid;
use crate::health::probe::{self, Expect, ProbeParams, Probed};
use crate::health::recovery::{ProbeResult, Recovery};
use crate::health::startup::{RootId, StartupParams};
use crate::health::state::{Blame, Outcome};
use crate::health::storage::{Remade, remake_marker};
use crate::log::{self, Level};

/// See the module's text. Holds the store weakly: a probe that hangs keeps nothing alive.
pub struct Link {
    shared: Weak<Shared>,
    startup: StartupParams,
    /// Which directory each root was at open; `None`: it did not pass then.
    roots_at_open: Vec<Option<RootId>>,
    digits: usize,
    writer: String,
    direct: bool,
    fallback: bool,
    dir_mode: u32,
    file_mode: u32,
    scope: FailureScope,
}

/// What a probe of one backend must know.
pub struct ProbeFacts {
    /// The storage that it must show; `None`: any.
    storage: Option<Uuid>,
    /// Whether it runs direct; `None`: it has not been seen yet.
    direct: Option<bool>,
}

impl Link {
    /// The link of a store.
    #[must_use]
    pub fn new(
        config: &Config,
        me: &Writer,
        shared: &Arc<Shared>,
        roots_at_open: Vec<Option<RootId>>,
    ) -> Link {
        let never = Arc::new(AtomicBool::new(false));
        Link {
            shared: Arc::downgrade(shared),
            startup: StartupParams::new(config, me.word(), never),
            roots_at_open,
            digits: config.data_dir_shard_bytes,
            writer: me.word(),
            direct: config.io_direct,
            fallback: config.io_direct_fallback,
            dir_mode: config.dir_mode,
            file_mode: config.file_mode,
            scope: config.failure_scope,
        }
    }

    fn params(&self, backend: usize, facts: (Option<Uuid>, bool)) -> Result<ProbeParams, Failure> {
        let (storage, direct) = facts;
        Ok(ProbeParams {
            root: self.startup.roots[backend].clone(),
            directory: probe::any_directory(self.digits)?,
            expect: storage.map_or(Expect::Any, Expect::Storage),
            data_dir_shard_bytes: self.digits,
            writer: self.writer.clone(),
            direct,
            dir_mode: self.dir_mode,
            file_mode: self.file_mode,
        })
    }
}

impl Link {
    /// A marker that is gone everywhere, while the mounts are what they were at open, was wiped
    /// with the storage: it is made again, so that the store goes on with an empty storage (R8).
    fn wiped(&self, storage: Uuid) -> bool {
        match remake_marker(&self.startup, &self.roots_at_open, storage) {
            Ok(Remade::Made) => {
                let text = "the storage was wiped: its marker is gone from every path while the \
                            mounts are as at open; made again";
                log::emit(Level::Warn, "KV2005", text);
                true
            }
            Ok(Remade::NotWiped(_)) => false,
            Err(failed) => {
                let text =
                    format!("the storage was wiped, and its marker cannot be made: {failed:?}");
                log::emit(Level::Error, "KV2006", &text);
                false
            }
        }
    }
}

impl Recovery for Link {
    fn excluded(&self) -> Vec<usize> {
        let Some(shared) = self.shared.upgrade() else { return Vec::new() };
        shared.read(|core| core.health.excluded())
    }

    fn probe(&self, backend: usize) -> ProbeResult {
        let gone = Failure { step: Step::Verify, cause: Cause::GivenUp };
        // Upgraded for a moment only: the probe itself may hang.
        let facts = {
            let shared = self.shared.upgrade().ok_or(gone)?;
            shared.read(|core| core.probe_facts(backend))
        };
        let ProbeFacts { storage, direct: known } = facts;
        let direct = known.unwrap_or(self.direct);
        let mut result = probe::probe(&self.params(backend, (storage, direct))?);
        let refused = result.as_ref().err().is_some_and(|failed| failed.direct_refused);
        if refused && self.fallback {
            result = probe::probe(&self.params(backend, (storage, false))?);
        }
        let unmarked = result
            .as_ref()
            .err()
            .is_some_and(|failed| matches!(failed.failure.cause, Cause::NotTheStorage(_)));
        if unmarked && storage.is_some_and(|storage| self.wiped(storage)) {
            result = probe::probe(&self.params(backend, (storage, direct))?);
        }
        probe::judge_recovery(result, self.scope).map_err(|failed| failed.failure)
    }

    fn record(&self, backend: usize, outcome: ProbeResult) {
        if let Some(shared) = self.shared.upgrade() {
            shared.with(|core, now, fx| core.probed(backend, outcome, now, fx));
        }
    }
}

impl Watched for Link {
    fn is_healthy(&self) -> bool {
        self.shared.upgrade().is_none_or(|shared| shared.mask.load(Ordering::Acquire) != 0)
    }

    fn changed(&self, change: BreakerChange) {
        let BreakerChange { open, samples, failures } = change;
        let word = if open { "open: the store refuses work" } else { "closed" };
        let text = format!("breaker {word}: {failures} unhealthy of {samples} evaluations");
        log::emit(if open { Level::Error } else { Level::Warn }, "KV2004", &text);
    }
}

impl Core {
    /// What a probe of this backend must know.
    pub(super) fn probe_facts(&self, lane: usize) -> ProbeFacts {
        let facts = &self.lanes[lane].facts;
        let direct = facts.storage.map(|_| facts.direct);
        ProbeFacts { storage: self.expected_storage(lane), direct }
    }

    /// The storage that a backend must show: what it showed first, or, where it has shown none yet
    /// and all must be the same, what the others showed (R8, R24).
    pub(super) fn expected_storage(&self, lane: usize) -> Option<Uuid> {
        let others = || self.lanes.iter().find_map(|lane| lane.facts.storage);
        let shown = self.lanes[lane].facts.storage;
        shown.or_else(|| if self.rules.same_storage { others() } else { None })
    }

    /// Whether all backends that have shown a storage show the same (R8).
    pub(super) fn same_storage(&self) -> bool {
        let mut shown = self.lanes.iter().filter_map(|lane| lane.facts.storage);
        let first = shown.next();
        shown.all(|storage| Some(storage) == first)
    }

    /// The outcome of a probe (R53).
    pub(super) fn probed(
        &mut self,
        lane: usize,
        outcome: ProbeResult,
        now: Time,
        fx: &mut Effects,
    ) {
        let outcome = match outcome {
            Ok(probed) => {
                if let Some(probed) = probed {
                    self.learn(lane, &probed, fx);
                }
                match self.clogged(lane, fx) {
                    None => Outcome::ProbeSuccess,
                    Some(failure) => {
                        Outcome::ProbeFailure { blame: Blame::new(Operation::Probe, &failure) }
                    }
                }
            }
            Err(failure) => Outcome::ProbeFailure { blame: Blame::new(Operation::Probe, &failure) },
        };
        self.record(lane, outcome, now, fx);
    }

    /// A path that answers, and on which so much hangs all the same that it would be excluded again
    /// with its first operations: no probe brings it back (R36). Told once.
    fn clogged(&mut self, lane: usize, fx: &mut Effects) -> Option<Failure> {
        let state = &mut self.lanes[lane];
        let clog = state.clog()?;
        if !std::mem::replace(&mut state.told_clogged, true) {
            let root = self.layout.root(lane);
            let what = match clog {
                Clog::Operations(count) => format!("{count} operations that were given up hang"),
                Clog::Buffers(count) => {
                    format!("{count} transfers that were given up hang with its buffers")
                }
            };
            let text = format!(
                "backend {root}: its probes pass, but {what} in the kernel: it stays excluded \
                 until some of them return, or the store is closed and opened again"
            );
            fx.log(Level::Error, "KV2007", text);
        }
        let cause = Cause::TooManyAbandoned(state.hung.total());
        Some(Failure { step: Step::Open, cause })
    }

    /// A backend that showed nothing at open (R13) has shown what it is.
    fn learn(&mut self, lane: usize, probed: &Probed, fx: &mut Effects) {
        let facts = &mut self.lanes[lane].facts;
        if facts.storage.is_some() {
            return;
        }
        facts.storage = Some(probed.marker.uuid);
        facts.direct = probed.direct;
        facts.offset_align = u64::from(probed.offset_align);
        facts.coherent = probed.coherent;
        if !self.same_storage() {
            let shown = |(at, lane): (usize, &LaneState)| {
                let storage = lane.facts.storage?;
                Some(format!("{} shows {storage}", self.layout.root(at)))
            };
            let list: Vec<String> = self.lanes.iter().enumerate().filter_map(shown).collect();
            let text = format!("the backends show different storages: {}", list.join(", "));
            fx.log(Level::Warn, "KV1007", text);
        }
    }

    /// An operator's word about a backend (R56).
    pub(super) fn set_backend(
        &mut self,
        lane: usize,
        setting: Setting,
        now: Time,
        fx: &mut Effects,
    ) {
        let transition = self.health.set(lane, setting, now);
        if let Some(transition) = transition {
            self.changed(&transition, now, fx);
        }
    }
}
