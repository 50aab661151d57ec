//! `ucm_health_mon` (R60): the outer breaker, for callers without a pipeline.
//!
//! It evaluates `check_health` every interval and judges it by the same window rules as a backend.
//! It never probes, and it sleeps without waking while no evaluation could change anything. What an
//! open breaker refuses is the store's matter.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select};
use parking_lot::Mutex;

use super::executor::StopSignal;
use super::marker::random_word;
use super::recovery::{STACK_BYTES, pin_to};
use super::window::{Rule, Window};
use crate::clock::{Clock, Time};
use crate::posix::thread;

/// The name of the thread.
pub const BREAKER_NAME: &str = "ucm_health_mon";

/// A change of the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerChange {
    /// It is open now: the store refuses.
    pub open: bool,
    /// Evaluations in the window.
    pub samples: usize,
    /// Unhealthy ones among them.
    pub failures: usize,
}

/// The breaker's arithmetic; pure.
#[derive(Debug, Clone)]
pub struct Breaker {
    window: Window,
    threshold: usize,
    open: bool,
    last_failed: bool,
}

impl Breaker {
    /// A closed breaker with an empty window.
    #[must_use]
    pub fn new(rule: Rule) -> Breaker {
        let window = Window::new(rule.window);
        Breaker { window, threshold: rule.threshold, open: false, last_failed: false }
    }

    /// Takes one evaluation in.
    pub fn evaluate(&mut self, healthy: bool) -> Option<BreakerChange> {
        if healthy {
            self.window.push_success()
        } else {
            self.window.push_failure(None)
        }
        self.last_failed = !healthy;
        let open = self.window.excludes(self.open, self.threshold);
        if open == self.open {
            return None;
        }
        self.open = open;
        let (samples, failures) = (self.window.samples(), self.window.failures());
        Some(BreakerChange { open, samples, failures })
    }

    /// Whether further evaluations would leave everything that matters as it is, as long as the
    /// health stays what it is. Closed and clean: a success changes no count of failures. Open
    /// with a failure last: it takes a whole window of successes from now, however many failures
    /// come before.
    #[must_use]
    pub fn is_settled(&self, healthy: bool) -> bool {
        match (self.open, healthy) {
            (false, true) => self.window.failures() == 0,
            (true, false) => self.last_failed,
            (false, false) | (true, true) => false,
        }
    }
}

/// What the breaker needs of the store.
pub trait Watched: Send + Sync {
    /// `check_health`: no I/O, never blocks.
    fn is_healthy(&self) -> bool;

    /// The breaker opened or closed; to be logged.
    fn changed(&self, change: BreakerChange);
}

/// How the breaker runs.
#[derive(Debug, Clone)]
pub struct BreakerParams {
    /// Between two evaluations.
    pub interval: Duration,
    /// An evaluation that takes longer is unhealthy.
    pub timeout: Duration,
    /// The same rule as for backends.
    pub rule: Rule,
    /// Where the health threads run; empty: wherever their maker does (R57).
    pub cores: Vec<usize>,
    /// The monotonic clock.
    pub clock: Clock,
}

/// The running breaker. Dropping it stops the thread without waiting for it.
pub struct BreakerThread {
    wake: Sender<()>,
    is_open: Arc<AtomicBool>,
    stop: Mutex<Option<Sender<Infallible>>>,
    ended: Receiver<Infallible>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl BreakerThread {
    /// Makes the thread; the breaker is closed.
    ///
    /// # Errors
    /// The system's refusal to make a thread.
    pub fn start(params: BreakerParams, watched: Arc<dyn Watched>) -> io::Result<BreakerThread> {
        let (wake, woken) = bounded(1);
        let (stop, stopped) = bounded(0);
        let (end, ended) = bounded(0);
        let is_open = Arc::new(AtomicBool::new(false));
        let publish = Arc::clone(&is_open);
        let thread = thread::spawn(BREAKER_NAME, STACK_BYTES, move || {
            pin_to(&params.cores);
            let breaker = Breaker::new(params.rule);
            Ticks { params, watched, breaker, publish, woken, stopped }.run();
            drop(end);
        })?;
        let (stop, thread) = (Mutex::new(Some(stop)), Mutex::new(Some(thread)));
        Ok(BreakerThread { wake, is_open, stop, ended, thread })
    }

    /// The store must refuse. One atomic read.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Tells that `check_health` says something else than before. Never blocks.
    pub fn wake(&self) {
        // Full: it has been told already and has not looked yet.
        self.wake.try_send(()).ok();
    }

    /// Stops the thread and waits for it, at most `limit`. Gives how many threads are left: 0 or 1.
    #[must_use]
    pub fn join(&self, limit: Option<Duration>) -> usize {
        *self.stop.lock() = None;
        let Some(thread) = self.thread.lock().take() else { return 0 };
        // Nothing is ever sent: the answer is that the other end is gone, or that time is up.
        let is_late = match limit {
            None => self.ended.recv().is_ok(),
            Some(limit) => {
                let answer = self.ended.recv_timeout(limit);
                matches!(answer, Err(crossbeam_channel::RecvTimeoutError::Timeout))
            }
        };
        if !is_late {
            // Where it panicked, the panic hook has told.
            thread.join().ok();
        }
        usize::from(is_late)
    }
}

/// The thread from the inside.
struct Ticks {
    params: BreakerParams,
    watched: Arc<dyn Watched>,
    breaker: Breaker,
    publish: Arc<AtomicBool>,
    woken: Receiver<()>,
    stopped: StopSignal,
}

impl Ticks {
    fn run(mut self) {
        // A random part, so that the instances of a fleet do not evaluate in step.
        let first = self.params.interval + part_of(self.params.interval);
        let mut next = self.params.clock.now().plus(first);
        let mut was_settled = false;
        loop {
            let is_settled = self.breaker.is_settled(self.watched.is_healthy());
            let now = self.params.clock.now();
            if was_settled && !is_settled {
                // Evaluations that were slept through would have changed nothing; the beat stays.
                next = next_beat(next, self.params.interval, now);
            }
            was_settled = is_settled;
            let timer = if is_settled {
                crossbeam_channel::never()
            } else {
                crossbeam_channel::after(next.since(now))
            };
            select! {
                recv(self.stopped) -> _never => return,
                recv(self.woken) -> _woken => {}
                recv(timer) -> _now => {
                    self.evaluate();
                    next = next.plus(self.params.interval);
                }
            }
        }
    }

    fn evaluate(&mut self) {
        let begin = self.params.clock.now();
        let healthy = self.watched.is_healthy();
        let in_time = self.params.clock.now().since(begin) <= self.params.timeout;
        if let Some(change) = self.breaker.evaluate(healthy && in_time) {
            self.publish.store(change.open, Ordering::Release);
            self.watched.changed(change);
        }
    }
}

/// The first beat of `next`, `next + interval`, … that is not past at `now`.
fn next_beat(next: Time, interval: Duration, now: Time) -> Time {
    let late = now.since(next);
    if late.is_zero() {
        return next;
    }
    let beats = late.as_nanos().div_ceil(interval.as_nanos().max(1));
    next.plus(interval.saturating_mul(u32::try_from(beats).unwrap_or(u32::MAX)))
}

/// A random part of `interval`.
fn part_of(interval: Duration) -> Duration {
    // Without random bytes the fleet may evaluate in step, which is harmless.
    let word = random_word().unwrap_or(0);
    let share = u32::try_from(word >> 32).unwrap_or(0);
    interval.mul_f64(f64::from(share) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    #[test]
    fn beats_that_were_slept_through_keep_the_beat() {
        let interval = Duration::from_millis(10);
        assert_eq!(next_beat(at(15), interval, at(3)), at(15));
        assert_eq!(next_beat(at(15), interval, at(15)), at(15));
        assert_eq!(next_beat(at(15), interval, at(16)), at(25));
        assert_eq!(next_beat(at(15), interval, at(25)), at(25));
        assert_eq!(next_beat(at(15), interval, at(1_000_000)), at(1_000_005));
    }

    #[test]
    fn r60_sleeping_while_settled_changes_nothing() {
        // One breaker is told of every evaluation, the other only of those that are not slept
        // through: they must open and close together.
        for seed in 0_u64..200 {
            let mut state = seed;
            let mut next = |end: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % end
            };
            let window = usize::try_from(1 + next(6)).unwrap();
            let threshold = usize::try_from(1 + next(window as u64)).unwrap();
            let rule = Rule { window, threshold };
            let (mut always, mut lazy) = (Breaker::new(rule), Breaker::new(rule));
            let (mut healthy, mut skipped) = (true, 0);
            for step in 0..400 {
                if next(7) == 0 {
                    healthy = !healthy;
                }
                let change = always.evaluate(healthy).map(|change| change.open);
                let is_settled = lazy.is_settled(healthy);
                skipped += u32::from(is_settled);
                let same = if is_settled { None } else { lazy.evaluate(healthy) };
                assert_eq!(change, same.map(|change| change.open), "seed {seed}, step {step}");
            }
            assert!(skipped > 50, "seed {seed} hardly sleeps: {skipped}");
        }
    }
}
