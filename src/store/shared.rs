//! What the threads of a store share, and the only way to the core: [`Shared::with`] takes its
//! lock, and does what the core asked for after the lock is free.
//!
//! Shared: the core (one lock, a leaf) · the engines (made once at open) · the availability mask
//! (an atomic, R18) · the alarm, the event descriptor and the quiet flag (each a leaf lock of its
//! own).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex as Leaf};

use super::core::Core;
use super::effects::Effects;
use super::supervisor::Alarm;
use crate::clock::{Clock, Time};
use crate::engine::{Engine, EngineKind, Op, Outcome, Source, Tag, Want, host};
use crate::error::{Error, Status};
use crate::log;
use crate::sync::Mutex;

/// Wakes the health threads.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// See the module's text.
pub struct Shared {
    /// Time.
    pub clock: Clock,
    /// The availability mask.
    pub mask: Arc<AtomicU64>,
    /// Wakes the supervisor.
    pub alarm: Arc<Alarm>,
    /// A caller may wait awake for a moment: somebody else can run meanwhile.
    pub watches: bool,
    /// The engines as decorated for tests, in the order of the lanes.
    #[cfg(feature = "fault")]
    pub faults: Leaf<Vec<Arc<crate::engine::fault::FaultEngine>>>,
    core: Mutex<Core>,
    engines: OnceLock<Vec<Arc<dyn Engine>>>,
    event: Mutex<Option<host::Event>>,
    quiet: Leaf<bool>,
    became_quiet: Condvar,
    recovery: Leaf<Option<Wake>>,
}

impl Shared {
    /// Shares a core. Engines follow with [`Shared::set_engines`].
    #[must_use]
    pub fn new(core: Core, clock: Clock, mask: Arc<AtomicU64>, alarm: Arc<Alarm>) -> Shared {
        Shared {
            clock,
            mask,
            alarm,
            watches: host::allowed_cores().is_ok_and(|cores| cores.len() > 1),
            #[cfg(feature = "fault")]
            faults: Leaf::default(),
            core: Mutex::new(core),
            engines: OnceLock::new(),
            event: Mutex::new(None),
            quiet: Leaf::new(false),
            became_quiet: Condvar::new(),
            recovery: Leaf::new(None),
        }
    }

    /// Gives the engines, one a lane. Called once.
    pub fn set_engines(&self, engines: Vec<Arc<dyn Engine>>) {
        if self.engines.set(engines).is_err() {
            debug_assert!(false, "engines are made once");
        }
    }

    /// Gives what wakes recovery after an exclusion. It never blocks.
    pub fn set_recovery(&self, wake: Wake) {
        *self.recovery.lock() = Some(wake);
    }

    /// Lets go of the health threads, which hold the store in turn.
    pub fn forget_recovery(&self) {
        *self.recovery.lock() = None;
    }

    /// The engines, in the order of the lanes.
    #[must_use]
    pub fn engines(&self) -> &[Arc<dyn Engine>] {
        self.engines.get().map_or(&[], Vec::as_slice)
    }

    /// Runs `body` on the core, then does what it asked for.
    pub fn with<R>(&self, body: impl FnOnce(&mut Core, Time, &mut Effects) -> R) -> R {
        self.with_from(None, body)
    }

    /// As [`Shared::with`], from a worker of `lane` that pulls its next op itself.
    fn with_from<R>(
        &self,
        lane: Option<usize>,
        body: impl FnOnce(&mut Core, Time, &mut Effects) -> R,
    ) -> R {
        let mut fx = Effects::default();
        let result = {
            let mut core = self.core.lock();
            let now = self.clock.now();
            body(&mut core, now, &mut fx)
        };
        self.apply(fx, lane);
        result
    }

    /// Reads the core.
    pub fn read<R>(&self, body: impl FnOnce(&mut Core) -> R) -> R {
        body(&mut self.core.lock())
    }

    fn apply(&self, fx: Effects, own: Option<usize>) {
        for cell in &fx.finished {
            cell.finish();
        }
        let engines = self.engines();
        for (lane, tag) in &fx.abandon {
            engines[*lane].abandon(*tag);
        }
        // Whoever pulls himself needs nobody for one of his lane's ops.
        let mut own = own;
        let mut left = |(lane, jobs): (usize, usize)| {
            let jobs = if own.take_if(|own| *own == lane).is_some() { jobs - 1 } else { jobs };
            engines.get(lane).filter(|_| jobs > 0).map(|engine| (engine, jobs))
        };
        for (engine, jobs) in fx.wake.into_iter().filter_map(&mut left) {
            engine.wake(jobs);
        }
        for (engine, jobs) in fx.wake_metadata.into_iter().filter_map(&mut left) {
            engine.wake_metadata(jobs);
        }
        // Whoever pulls himself may have no place for one of these.
        for (lane, jobs) in fx.wake_lease {
            engines[lane].wake_lease(jobs);
        }
        if let Some(at) = fx.arm {
            self.alarm.arm(at);
        }
        if fx.listed
            && let Some(event) = &*self.event.lock()
            && self.core.lock().tasks.has_unlisted()
        {
            // Not where `finished` was quicker: readable means that there is something to list.
            event.signal();
        }
        for message in &fx.messages {
            log::emit(message.level, message.id, &message.text);
        }
        if fx.health_changed
            && let Some(wake) = &*self.recovery.lock()
        {
            wake();
        }
        if fx.quiet {
            *self.quiet.lock() = true;
            self.became_quiet.notify_all();
        }
    }

    /// Waits until `is_quiet` holds of the closing core; `false`: `limit` passed first.
    pub fn wait_quiet(&self, limit: Option<Duration>, is_quiet: fn(&Core) -> bool) -> bool {
        let deadline = limit.map(|limit| self.clock.now().plus(limit));
        loop {
            if self.read(|core| is_quiet(core)) {
                return true;
            }
            let mut quiet = self.quiet.lock();
            match deadline {
                None => self.became_quiet.wait_while(&mut quiet, |quiet| !*quiet),
                Some(deadline) => {
                    let left = deadline.since(self.clock.now());
                    let wait = self.became_quiet.wait_while_for(&mut quiet, |quiet| !*quiet, left);
                    if wait.timed_out() && !*quiet {
                        return false;
                    }
                }
            }
            *quiet = false;
        }
    }

    /// The descriptor of `kvpath_event_fd`, made when first asked for.
    ///
    /// # Errors
    /// `OsError` where no descriptor is left.
    pub fn event_fd(&self) -> Result<i32, Error> {
        let mut slot = self.event.lock();
        if let Some(event) = &*slot {
            return Ok(event.descriptor());
        }
        let event = host::Event::new()
            .map_err(|error| Error::new(Status::OsError, format!("eventfd: {error}")))?;
        let descriptor = event.descriptor();
        if self.core.lock().tasks.has_unlisted() {
            event.signal();
        }
        *slot = Some(event);
        Ok(descriptor)
    }

    /// A result was taken: the descriptor is not readable any more where that was the last one.
    pub fn consumed(&self) {
        let event = self.event.lock();
        if let Some(event) = &*event
            && !self.read(|core| core.tasks.has_unlisted())
        {
            let _was_readable = event.drain();
        }
    }

    /// Lists finished tasks, and makes the descriptor not readable once the list is empty.
    pub fn finished(&self, max: usize) -> Vec<u64> {
        let event = self.event.lock();
        let (listed, more) = self.read(|core| (core.tasks.list(max), core.tasks.has_unlisted()));
        if let (Some(event), false) = (&*event, more) {
            // Whether it was readable does not matter; it is not any more.
            let _was_readable = event.drain();
        }
        listed
    }
}

/// A lane as its engine sees it.
pub struct LaneSource {
    shared: Weak<Shared>,
    lane: usize,
    /// Whoever completes an op pulls the next one himself.
    completer_pulls: bool,
}

impl LaneSource {
    /// The source of a lane for this kind of engine.
    #[must_use]
    pub fn new(shared: Weak<Shared>, lane: usize, kind: EngineKind) -> LaneSource {
        LaneSource { shared, lane, completer_pulls: kind == EngineKind::Psync }
    }
}

impl Source for LaneSource {
    fn pull(&self, want: Want) -> Option<Op> {
        let shared = self.shared.upgrade()?;
        shared.with(|core, now, fx| core.pull(self.lane, want, now, fx))
    }

    fn complete(&self, tag: Tag, outcome: Outcome) {
        if let Some(shared) = self.shared.upgrade() {
            let own = self.completer_pulls.then_some(self.lane);
            shared.with_from(own, |core, now, fx| core.complete(tag, outcome, now, fx));
        }
    }
}
