//! The collector: it keeps a store within its space and sweeps what nobody needs (R80–R86).
//!
//! A pass runs on a thread `ucm_posix_gc` that exists only as long as the pass; the supervisor
//! makes it when the pass is due. The thread never enters the file system: it hands chores to the
//! lanes and waits for their ends, so a hung backend costs it an attempt's limit. Which blocks go
//! is decided in `crate::reclaim`.
//!
//! `lease.rs` who may collect · `run.rs` waiting for chores · `pass.rs` what a pass does ·
//! `tally.rs` what a directory shows.

mod lease;
mod pass;
mod run;
pub mod tally;

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::layout::{Layout, Writer};
use super::shared::Shared;
use super::supervisor::Alarm;
use crate::clock::{Clock, Time};
use crate::config::{Collection, Config};
use crate::engine::host;
use crate::log::{self, Level};
use crate::reclaim::lease::{Suspicion, identity};
use pass::Aim;
use run::{Ended, Run};
use tally::Alive;

/// The thread's name.
const NAME: &str = "ucm_posix_gc";
/// The first pass begins so long after open, and up to once more of it: whoever opens, asks and
/// closes again pays nothing for it.
const FIRST_PASS_AFTER: Duration = Duration::from_millis(100);
/// A sweep that did not take place is tried again after this; each time after twice as long.
const RETRY_SWEEP: Duration = Duration::from_secs(5);
/// Limit of a step by which close gives the lease back.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);
/// The part of the limit of close in which all of that must be done.
const RELEASE_PART: u32 = 4;
/// A thread that could not be made is tried again after this.
const RETRY_THREAD: Duration = Duration::from_secs(1);

/// What the collector was told. Never changes.
pub struct Settings {
    collection: Collection,
    /// Temporaries are swept, too.
    sweeps: bool,
    temp_ttl: Duration,
    me: Writer,
    alive: Alive,
    layout: Arc<Layout>,
    identity: String,
    /// Limit of one attempt to remove a file, and of one step of the lease.
    file_limit: Option<Duration>,
    lease_limit: Duration,
}

impl Settings {
    /// Of a configuration.
    pub fn new(config: &Config, me: &Writer, alive: Alive, layout: Arc<Layout>) -> Settings {
        let collection = config.collection.clone();
        let n = u64::try_from(config.backends.len()).unwrap_or(1);
        let part = Duration::from_millis((config.timeout_ms / n).max(1));
        let metadata = (config.timeout_ms > 0 && config.metadata_time_limits).then_some(part);
        let file_limit = [collection.task_timeout, metadata].into_iter().flatten().min();
        // A holder must show itself in time, through whichever backend answers.
        let lease_limit = file_limit.unwrap_or(Duration::MAX).min(collection.heartbeat);
        #[expect(clippy::cast_possible_truncation, reason = "any 32 bits of it are as random")]
        let nonce = me.nonce as u32;
        Settings {
            sweeps: config.transfers,
            temp_ttl: Duration::from_secs(config.temp_ttl_s),
            me: me.clone(),
            alive,
            layout,
            identity: identity(&host::host_name(), std::process::id(), nonce),
            file_limit,
            lease_limit,
            collection,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    running: bool,
    collect_at: Option<Time>,
    sweep_at: Option<Time>,
    /// Sweeps in a row that did not take place.
    missed: u32,
    thread: Option<JoinHandle<()>>,
    random: u64,
}

/// See the module's text. Shared by the supervisor, the thread of a pass, and close.
pub struct Collector {
    settings: Settings,
    clock: Clock,
    shared: Weak<Shared>,
    alarm: Arc<Alarm>,
    suspicion: Mutex<Suspicion>,
    state: Mutex<State>,
    ended: Condvar,
}

/// Tells when the thread of a pass has ended, however that came.
struct Finish<'c>(&'c Collector);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running = false;
        self.0.ended.notify_all();
        self.0.alarm.ring();
    }
}

impl Collector {
    /// A collector whose first pass is due soon, if there is anything for it to do.
    #[must_use]
    pub fn new(settings: Settings, shared: &Arc<Shared>) -> Collector {
        let mut state = State { random: settings.me.nonce | 1, ..State::default() };
        let first =
            shared.clock.now().plus(jittered(FIRST_PASS_AFTER, FIRST_PASS_AFTER, &mut state));
        state.collect_at = settings.collection.capacity.is_some().then_some(first);
        state.sweep_at = settings.sweeps.then_some(first);
        Collector {
            settings,
            clock: shared.clock.clone(),
            shared: Arc::downgrade(shared),
            alarm: Arc::clone(&shared.alarm),
            suspicion: Mutex::default(),
            state: Mutex::new(state),
            ended: Condvar::new(),
        }
    }

    /// Threads alive now.
    #[must_use]
    pub fn threads(&self) -> usize {
        usize::from(self.state.lock().running)
    }

    /// Begins a pass where one is due; says when to look again. Called by the supervisor, so that
    /// the thread inherits its CPUs (R57).
    pub fn look(self: &Arc<Self>) -> Option<Time> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.stopped || state.running {
            return None;
        }
        let due = [state.collect_at, state.sweep_at].into_iter().flatten().min()?;
        if due > now {
            return Some(due);
        }
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let aim = Aim { collect: is_due(state.collect_at), sweep: is_due(state.sweep_at) };
        let last = state.thread.take();
        let own = Arc::clone(self);
        match host::spawn(NAME, move || own.run(aim)) {
            Ok(thread) => {
                state.running = true;
                state.thread = Some(thread);
                drop(state);
                join(last);
                None
            }
            Err(error) => {
                let text = format!("the thread {NAME} cannot be made, trying again: {error}");
                log::emit(Level::Error, "KV1006", &text);
                let again = now.plus(RETRY_THREAD);
                state.collect_at = state.collect_at.map(|at| at.max(again));
                state.sweep_at = state.sweep_at.map(|at| at.max(again));
                Some(again)
            }
        }
    }

    /// The thread of a pass.
    fn run(&self, aim: Aim) {
        let _finish = Finish(self);
        let Some(shared) = self.shared.upgrade() else { return };
        let result = Run::new(&shared, self).pass(aim);
        let took_place = result.is_ok();
        match result {
            Ok(()) => shared.read(|core| {
                core.stats.collector_passes += u64::from(aim.collect);
                core.stats.sweep_passes += u64::from(aim.sweep);
            }),
            Err(Ended::Peer | Ended::Stopped) => {}
            Err(Ended::Failed(error)) => {
                shared.read(|core| core.stats.failed_passes += 1);
                log::emit(Level::Warn, "KV4006", &format!("collection: the pass ended: {error}"));
            }
        }
        self.plan(aim, took_place);
    }

    /// When the next passes are due.
    fn plan(&self, aim: Aim, took_place: bool) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if aim.collect {
            state.collect_at = Some(now.plus(self.settings.collection.interval));
        }
        if aim.sweep {
            let half = self.settings.temp_ttl / 2;
            let wait = if took_place {
                state.missed = 0;
                half
            } else {
                state.missed = (state.missed + 1).min(16);
                RETRY_SWEEP.saturating_mul(1 << (state.missed - 1)).min(half)
            };
            state.sweep_at = Some(now.plus(jittered(wait, wait / 2, &mut state)));
        }
    }

    /// Ends a pass that runs, so that it gives the lease back, and waits for that (R54): for a part
    /// of the limit, since what the store has begun needs the rest. `Core::end_collecting` ends
    /// what still runs then.
    pub fn close(&self, shared: &Shared, limit: Option<Duration>) {
        self.state.lock().stopped = true;
        shared.with(|core, now, fx| core.stop_chores(RELEASE_LIMIT, now, fx));
        self.join(limit.map(|limit| limit / RELEASE_PART));
    }

    /// Waits for the end of a pass. Says how many threads there still are.
    pub fn join(&self, limit: Option<Duration>) -> usize {
        let mut state = self.state.lock();
        match limit {
            None => self.ended.wait_while(&mut state, |state| state.running),
            Some(limit) => {
                // Whether it ended is asked below.
                let _passed = self.ended.wait_while_for(&mut state, |state| state.running, limit);
            }
        }
        if state.running {
            return 1;
        }
        let last = state.thread.take();
        drop(state);
        join(last);
        0
    }

    fn random(&self) -> u64 {
        next(&mut self.state.lock())
    }

    fn random_below(&self, count: usize) -> usize {
        let count = count.max(1) as u64;
        usize::try_from((self.random() >> 16) % count).unwrap_or(0)
    }
}

/// Joins the thread of a pass that has told its end.
fn join(thread: Option<JoinHandle<()>>) {
    if thread.is_some_and(|thread| thread.join().is_err()) {
        log::emit(Level::Error, "KV9003", "bug in kvpath: a pass of the collector panicked");
    }
}

fn next(state: &mut State) -> u64 {
    // splitmix64: for spreading, not for secrets.
    state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = state.random;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// `least`, and a random part of `more`.
fn jittered(least: Duration, more: Duration, state: &mut State) -> Duration {
    let millis = u64::try_from(more.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    least.saturating_add(Duration::from_millis((next(state) >> 16) % millis))
}
