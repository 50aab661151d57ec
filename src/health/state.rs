//! The health of one backend (R20–R25, R29, R56): a window, a state, and what an operator wants.
//!
//! Pure: outcomes and `now` come in, transitions come out. It does no I/O, takes no lock and logs
//! nothing; the store's core owns it and publishes what it says.

use std::fmt::Write as _;

pub use super::class::Blame;
use super::window::{BlockKey, Rule, Window};
use crate::clock::Time;

/// State of a backend, as routing and the C ABI see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendState {
    /// Takes part in routing.
    Available,
    /// Excluded by its window; probed until it comes back.
    Excluded,
    /// Taken out by an operator; neither routed to nor probed.
    Out,
}

impl BackendState {
    /// The number that crosses the C ABI.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            BackendState::Available => 0,
            BackendState::Excluded => 1,
            BackendState::Out => 2,
        }
    }

    /// The word of logs and reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            BackendState::Available => "available",
            BackendState::Excluded => "excluded",
            BackendState::Out => "out",
        }
    }
}

/// What an operator wants of a backend (R56).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setting {
    /// Out of routing, and not probed.
    Out,
    /// In, whatever the window says. The window goes on counting.
    In,
    /// The window decides.
    Auto,
}

impl Setting {
    /// The word of logs and reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Setting::Out => "out",
            Setting::In => "in",
            Setting::Auto => "auto",
        }
    }
}

/// Counts how often a backend became available, or was said to be by an operator. Kept with an
/// attempt when its time-out is recorded, it tells whether the backend has been available again
/// since (R29, R36).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(u64);

/// One outcome, classified already (R22): only successes and *path* failures get here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A business attempt succeeded in time.
    Success,
    /// A business attempt failed, a time-out included.
    Failure {
        /// The block that it was about, where it was about one.
        block: Option<BlockKey>,
        /// Why.
        blame: Blame,
    },
    /// An attempt that had timed out succeeded after all.
    LateSuccess,
    /// An attempt that had timed out failed in the end.
    LateFailure {
        /// The block that it was about, where it was about one.
        block: Option<BlockKey>,
        /// [`BackendHealth::epoch`] as it was right after the time-out was recorded.
        timed_out_at: Epoch,
        /// Why.
        blame: Blame,
    },
    /// A probe passed.
    ProbeSuccess,
    /// A probe failed or timed out; not-found is a failure here (R53).
    ProbeFailure {
        /// Why.
        blame: Blame,
    },
}

/// Why a state changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// This failure was the last straw.
    Failure(Blame),
    /// The window is full and holds no failure.
    Recovered,
    /// An operator said so.
    Operator(Setting),
}

/// One change of state (R25).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The backend's number.
    pub backend: usize,
    /// The state that it had.
    pub from: BackendState,
    /// The state that it has.
    pub to: BackendState,
    /// When.
    pub at: Time,
    /// Outcomes in the window at that moment.
    pub samples: usize,
    /// Failures in the window at that moment.
    pub failures: usize,
    /// The cause.
    pub why: Why,
}

impl Transition {
    /// The line for the log; `path` is the backend's.
    #[must_use]
    pub fn describe(&self, path: &str) -> String {
        let (from, to) = (self.from.word(), self.to.word());
        let mut text = format!(
            "backend {path}: {from} -> {to}: {} failures in {} samples",
            self.failures, self.samples
        );
        // Writing to a String cannot fail.
        let written = match &self.why {
            Why::Failure(blame) => {
                write!(text, "; cause: {}: {}", blame.operation.word(), blame.text)
            }
            Why::Recovered => write!(text, "; cause: the window is full and clean"),
            Why::Operator(setting) => write!(text, "; cause: operator set it {}", setting.word()),
        };
        debug_assert!(written.is_ok());
        text
    }
}

/// What a backend is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthParams {
    /// Window and threshold.
    pub rule: Rule,
    /// The one-bad-block rule of R22 holds (`failure_scope: "path"`).
    pub one_bad_block: bool,
}

/// Counters for the health report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HealthCounters {
    /// Probes with an outcome.
    pub probes: u64,
    /// Those that failed or timed out.
    pub probe_failures: u64,
    /// Changes of state.
    pub transitions: u64,
    /// Business failures that went into the window.
    pub failures: u64,
    /// Business failures left out by the one-bad-block rule.
    pub forgiven: u64,
    /// Late successes; none was ever recorded.
    pub late_successes: u64,
    /// Late failures, recorded or not.
    pub late_failures: u64,
    /// Late failures that went into the window.
    pub late_failures_recorded: u64,
}

/// The health of one backend.
#[derive(Debug, Clone)]
pub struct BackendHealth {
    backend: usize,
    params: HealthParams,
    window: Window,
    /// What the window says; what routing sees is [`BackendHealth::state`].
    excluded: bool,
    setting: Setting,
    since: Time,
    epoch: Epoch,
    last: Option<Blame>,
    counters: HealthCounters,
}

impl BackendHealth {
    /// A backend that passed its start-up check: available, with an empty window.
    #[must_use]
    pub fn available(backend: usize, params: HealthParams, now: Time) -> BackendHealth {
        BackendHealth {
            backend,
            params,
            window: Window::new(params.rule.window),
            excluded: false,
            setting: Setting::Auto,
            since: now,
            epoch: Epoch(0),
            last: None,
            counters: HealthCounters::default(),
        }
    }

    /// A backend that failed its start-up check: excluded, with an empty window (R13).
    #[must_use]
    pub fn excluded(
        backend: usize,
        params: HealthParams,
        now: Time,
        blame: Blame,
    ) -> BackendHealth {
        let available = BackendHealth::available(backend, params, now);
        BackendHealth { excluded: true, last: Some(blame), ..available }
    }

    /// What routing sees.
    #[must_use]
    pub fn state(&self) -> BackendState {
        match (self.setting, self.excluded) {
            (Setting::Out, _) => BackendState::Out,
            (Setting::In, _) | (Setting::Auto, false) => BackendState::Available,
            (Setting::Auto, true) => BackendState::Excluded,
        }
    }

    /// What an operator wants.
    #[must_use]
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// When the state changed last.
    #[must_use]
    pub fn since(&self) -> Time {
        self.since
    }

    /// To be kept with an attempt whose time-out has just been recorded.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Outcomes in the window.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.window.samples()
    }

    /// Failures in the window.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.window.failures()
    }

    /// The last failure that was told, recorded or not.
    #[must_use]
    pub fn last_failure(&self) -> Option<&Blame> {
        self.last.as_ref()
    }

    /// Counters for the health report.
    #[must_use]
    pub fn counters(&self) -> HealthCounters {
        self.counters
    }

    /// Takes an outcome in (R21, R22, R29, R53).
    pub fn record(&mut self, outcome: Outcome, now: Time) -> Option<Transition> {
        match outcome {
            Outcome::Success => {
                // Attempts of the time before the exclusion must not bring a backend back.
                if self.state() != BackendState::Available {
                    return None;
                }
                self.window.push_success();
                self.judge(None, now)
            }
            Outcome::Failure { block, blame } => {
                if self.forgives(block.as_ref()) {
                    self.counters.forgiven += 1;
                    self.last = Some(blame);
                    return None;
                }
                self.counters.failures += 1;
                self.fail(block, blame, now)
            }
            Outcome::LateSuccess => {
                self.counters.late_successes += 1;
                None
            }
            Outcome::LateFailure { block, timed_out_at, blame } => {
                self.counters.late_failures += 1;
                let excluded_now = self.excluded && self.setting != Setting::In;
                if !excluded_now || timed_out_at != self.epoch {
                    self.last = Some(blame);
                    return None;
                }
                self.counters.late_failures_recorded += 1;
                self.fail(block, blame, now)
            }
            Outcome::ProbeSuccess => {
                self.counters.probes += 1;
                self.window.push_success();
                self.judge(None, now)
            }
            Outcome::ProbeFailure { blame } => {
                self.counters.probes += 1;
                self.counters.probe_failures += 1;
                self.fail(None, blame, now)
            }
        }
    }

    /// An operator's word (R56).
    pub fn set(&mut self, setting: Setting, now: Time) -> Option<Transition> {
        let from = self.state();
        self.setting = setting;
        if setting == Setting::In && from == BackendState::Available {
            // Said of a path that is in use: what hung there before is void (R36).
            self.epoch.0 += 1;
        }
        self.change(from, || Why::Operator(setting), now)
    }

    fn forgives(&self, block: Option<&BlockKey>) -> bool {
        self.params.one_bad_block && block.is_some_and(|block| self.window.holds_failure_of(block))
    }

    fn fail(&mut self, block: Option<BlockKey>, blame: Blame, now: Time) -> Option<Transition> {
        self.window.push_failure(block);
        self.last = Some(blame.clone());
        self.judge(Some(blame), now)
    }

    /// Applies the rule of R21. The window stays as it is.
    fn judge(&mut self, blame: Option<Blame>, now: Time) -> Option<Transition> {
        let from = self.state();
        let excluded = self.window.excludes(self.excluded, self.params.rule.threshold);
        let came_back = self.excluded && !excluded;
        self.excluded = excluded;
        if came_back && self.state() == from {
            // An operator's setting hides it, but the window has been clean: old time-outs are
            // void.
            self.epoch.0 += 1;
        }
        self.change(from, || blame.map_or(Why::Recovered, Why::Failure), now)
    }

    fn change(
        &mut self,
        from: BackendState,
        why: impl FnOnce() -> Why,
        now: Time,
    ) -> Option<Transition> {
        let to = self.state();
        if from == to {
            return None;
        }
        if to == BackendState::Available {
            self.epoch.0 += 1;
        }
        self.since = now;
        self.counters.transitions += 1;
        Some(Transition {
            backend: self.backend,
            from,
            to,
            at: now,
            samples: self.window.samples(),
            failures: self.window.failures(),
            why: why(),
        })
    }
}
