//! The supervisor: the one permanent thread `ucm_posix_sup`. It judges limits (R28) and makes the
//! lanes' threads, so that they inherit its CPUs (R57). It never touches the file system, and
//! sleeps without waking while there is nothing to judge.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::collector::Collector;
use super::shared::Shared;
use crate::clock::{Clock, Time};
use crate::engine::host;
use crate::log::{self, Level};
use crate::sync::{Condvar, Mutex};

/// The thread's name.
const NAME: &str = "ucm_posix_sup";
/// How soon a thread that could not be made is tried again.
const RETRY_THREAD: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct State {
    armed: Option<Time>,
    rung: bool,
    stopped: bool,
}

/// What wakes the supervisor. Shared by it, the lanes' bells, and whoever starts an attempt.
#[derive(Debug)]
pub struct Alarm {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

impl Alarm {
    /// An alarm that is not set.
    #[must_use]
    pub fn new(clock: Clock) -> Alarm {
        Alarm { clock, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Makes sure that the supervisor wakes no later than `at`.
    pub fn arm(&self, at: Time) {
        let mut state = self.state.lock();
        if state.armed.is_none_or(|armed| at < armed) {
            state.armed = Some(at);
            self.changed.notify_one();
        }
    }

    /// Wakes the supervisor now.
    pub fn ring(&self) {
        self.state.lock().rung = true;
        self.changed.notify_one();
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Sleeps until it is time. `false`: stop.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return false;
            }
            let now = self.clock.now();
            if std::mem::take(&mut state.rung) || state.armed.is_some_and(|armed| armed <= now) {
                state.armed = None;
                return true;
            }
            match state.armed {
                None => self.changed.wait(&mut state),
                Some(armed) => {
                    // A time-out is found out by the clock, above.
                    self.changed.wait_for(&mut state, armed.since(now));
                }
            }
        }
    }
}

/// The running thread.
#[derive(Debug)]
pub struct Supervisor {
    alarm: Arc<Alarm>,
    thread: JoinHandle<()>,
}

impl Supervisor {
    /// Starts it. It sets its own affinity to `cores` (empty: unchanged).
    ///
    /// # Errors
    /// The system's refusal of a thread.
    pub fn start(
        alarm: Arc<Alarm>,
        (shared, collector): (Weak<Shared>, Arc<Collector>),
        cores: Vec<usize>,
    ) -> Result<Supervisor, std::io::Error> {
        let for_thread = Arc::clone(&alarm);
        let thread = host::spawn(NAME, move || {
            pin(&cores);
            let mut starved = Vec::new();
            while for_thread.wait() {
                let Some(shared) = shared.upgrade() else { return };
                round(&shared, &collector, &for_thread, &mut starved);
            }
        })?;
        Ok(Supervisor { alarm, thread })
    }

    /// Stops it and waits for its end: it never hangs.
    pub fn stop(self) {
        self.alarm.stop();
        if self.thread.join().is_err() {
            log::emit(Level::Error, "KV9001", "bug in kvpath: the supervisor panicked");
        }
    }
}

/// Pins the calling thread; a refusal is a warning (R57).
pub fn pin(cores: &[usize]) {
    if cores.is_empty() {
        return;
    }
    if let Err(error) = host::pin(cores) {
        let text = format!("cores {cores:?} cannot be used: {error}; threads are not pinned");
        log::emit(Level::Warn, "KV1005", &text);
    }
}

/// `starved`: the lanes whose threads were refused in the last round.
fn round(shared: &Shared, collector: &Arc<Collector>, alarm: &Alarm, starved: &mut Vec<usize>) {
    if let Some(due) = collector.look() {
        alarm.arm(due);
    }
    let before = std::mem::take(starved);
    for (lane, engine) in shared.engines().iter().enumerate() {
        match engine.make_threads() {
            Err(error) => {
                let text = host::thread_refusal("a worker thread", &error);
                log::emit(Level::Error, "KV1006", &format!("trying again: {text}"));
                alarm.arm(shared.clock.now().plus(RETRY_THREAD));
                starved.push(lane);
                let any = engine.threads() > 0;
                shared.with(|core, now, fx| core.threads_refused(lane, any, &text, now, fx));
            }
            Ok(()) if before.contains(&lane) => shared.with(|core, _, _| core.threads_made(lane)),
            Ok(()) => {}
        }
    }
    if let Some(next) = shared.with(super::core::Core::judge) {
        alarm.arm(next);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc as Shared;

    /// Two bells and a stop: every ring is answered by a round that begins after it, and the last
    /// word is the stop.
    #[test]
    fn loom_every_ring_is_followed_by_a_round() {
        loom::model(|| {
            let alarm = Shared::new(Alarm::new(Clock::monotonic()));
            let work = Shared::new(Mutex::new(0));
            let ringers: Vec<_> = (0..2)
                .map(|_| {
                    let (alarm, work) = (Shared::clone(&alarm), Shared::clone(&work));
                    loom::thread::spawn(move || {
                        *work.lock() += 1;
                        alarm.ring();
                    })
                })
                .collect();
            let mut done = 0;
            while done < 2 {
                assert!(alarm.wait());
                done += std::mem::take(&mut *work.lock());
            }
            for ringer in ringers {
                ringer.join().unwrap();
            }
            alarm.stop();
            assert!(!alarm.wait());
        });
    }
}
