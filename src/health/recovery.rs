//! `ucm_health_pmon` (R51–R53): one thread a store that probes what is excluded.
//!
//! It sleeps without waking while nothing is excluded. It never enters the file system: probes run
//! on the [`Executor`]'s thread. What an outcome means is decided by whoever implements
//! [`Recovery`].

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};
use parking_lot::Mutex;

use super::executor::{Executor, NoResult, StopSignal, Unfinished};
use super::probe::Probed;
use crate::clock::{Clock, Time};
use crate::error::{Cause, Failure, Step};
use crate::log::{self, Level};
use crate::posix::{affinity, thread};

/// The name of the thread.
pub const MONITOR_NAME: &str = "ucm_health_pmon";

/// Stack of the monitor threads.
pub(super) const STACK_BYTES: usize = 256 << 10;

/// What a probe in recovery gives; `None` where a full disk stands for a success (R50).
pub type ProbeResult = Result<Option<Probed>, Failure>;

/// What the monitor needs of the store. No call may block for long, `probe` apart.
pub trait Recovery: Send + Sync {
    /// The backends that are excluded now, in order.
    fn excluded(&self) -> Vec<usize>;

    /// Probes one backend. Runs on `ucm_health_io`, and may hang.
    fn probe(&self, backend: usize) -> ProbeResult;

    /// Records the outcome of a probe, a time-out included. Late outcomes never come here.
    fn record(&self, backend: usize, outcome: ProbeResult);
}

/// How the monitor runs.
#[derive(Debug, Clone)]
pub struct MonitorParams {
    /// Between the beginnings of two rounds.
    pub interval: Duration,
    /// Limit of one probe.
    pub timeout: Duration,
    /// Where the health threads run; empty: wherever their maker does (R57).
    pub cores: Vec<usize>,
    /// The monotonic clock.
    pub clock: Clock,
    /// Probe threads that hang, for the health report.
    pub unfinished: Unfinished,
}

/// The running monitor. Dropping it stops the thread without waiting for it.
pub struct Monitor {
    wake: Sender<()>,
    clock: Clock,
    unfinished: Unfinished,
    running: Mutex<Running>,
}

/// What stopping and joining use up.
struct Running {
    /// Dropped to stop the thread.
    stop: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
    /// The thread's last act: it hands over the executor, with the workers that hang.
    handed: Receiver<Executor>,
}

impl Monitor {
    /// Makes the thread. `executor` is what start-up has used, or a new one. Backends that are
    /// excluded already are probed one interval from now.
    ///
    /// # Errors
    /// The system's refusal to make a thread.
    pub fn start(
        params: MonitorParams,
        mut executor: Executor,
        recovery: Arc<dyn Recovery>,
    ) -> io::Result<Monitor> {
        // The monitor makes its own worker, which inherits the monitor's affinity.
        executor.retire();
        let (wake, woken) = bounded(1);
        let (stop, stopped) = bounded(0);
        let (hand, handed) = bounded(1);
        let (clock, unfinished) = (params.clock.clone(), params.unfinished.clone());
        let thread = thread::spawn(MONITOR_NAME, STACK_BYTES, move || {
            pin_to(&params.cores);
            let mut rounds = Rounds { params, executor, recovery, woken, stopped };
            rounds.run();
            // Nobody takes it where the store was dropped without a join: its threads are detached.
            hand.send(rounds.executor).ok();
        })?;
        let running = Running { stop: Some(stop), thread: Some(thread), handed };
        Ok(Monitor { wake, clock, unfinished, running: Mutex::new(running) })
    }

    /// Tells that a backend has been excluded. Never blocks.
    pub fn wake(&self) {
        // Full: it has been told already and has not looked yet.
        self.wake.try_send(()).ok();
    }

    /// Asks the thread to stop. A probe that is running is given up.
    pub fn stop(&self) {
        self.running.lock().stop = None;
    }

    /// Stops, and waits for the monitor and for every probe thread, at most `limit` (`None`: as
    /// long as it takes). Gives how many threads are left; they are detached, and harmless when
    /// they return.
    #[must_use]
    pub fn join(&self, limit: Option<Duration>) -> usize {
        self.stop();
        let deadline = limit.map(|limit| self.clock.now().plus(limit));
        let (thread, handed) = {
            let mut running = self.running.lock();
            (running.thread.take(), running.handed.clone())
        };
        let Some(thread) = thread else { return 0 };
        let handed = match deadline {
            None => handed.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => handed.recv_timeout(deadline.since(self.clock.now())),
        };
        if matches!(handed, Err(RecvTimeoutError::Timeout)) {
            // It is inside a call of `Recovery`, and its workers are its own.
            return 1 + usize::try_from(self.unfinished.total()).unwrap_or(usize::MAX - 1);
        }
        // It has done its last act. Where it panicked, the panic hook has told.
        thread.join().ok();
        match handed {
            Ok(executor) => executor.join(deadline),
            Err(_) => usize::try_from(self.unfinished.total()).unwrap_or(usize::MAX),
        }
    }
}

/// Pins the calling thread, and logs where that fails: the thread runs where its maker does then.
pub(super) fn pin_to(cores: &[usize]) {
    if cores.is_empty() {
        return;
    }
    if let Err(errno) = affinity::pin(cores) {
        let cause = Cause::Errno(errno);
        let text = format!("health threads stay unpinned: cores {cores:?}: {cause}");
        log::emit(Level::Warn, "KV2103", &text);
    }
}

/// The monitor's thread from the inside.
struct Rounds {
    params: MonitorParams,
    executor: Executor,
    recovery: Arc<dyn Recovery>,
    woken: Receiver<()>,
    stopped: StopSignal,
}

/// Whether the thread goes on.
#[derive(PartialEq, Eq)]
enum Go {
    On,
    Stop,
}

impl Rounds {
    fn run(&mut self) {
        loop {
            if self.recovery.excluded().is_empty() {
                if self.sleep(None) == Go::Stop {
                    return;
                }
                // Woken for what has come back since, or been taken out by an operator.
                continue;
            }
            if self.run_rounds(self.params.clock.now()) == Go::Stop {
                return;
            }
        }
    }

    /// Rounds as long as something is excluded, the first one interval after `since`.
    fn run_rounds(&mut self, since: Time) -> Go {
        let mut next = since.plus(self.params.interval);
        loop {
            if self.sleep(Some(next)) == Go::Stop {
                return Go::Stop;
            }
            let begin = self.params.clock.now();
            let excluded = self.recovery.excluded();
            if excluded.is_empty() {
                return Go::On;
            }
            for backend in excluded {
                match self.probe(backend) {
                    ControlFlow::Next => {}
                    ControlFlow::EndRound => break,
                    ControlFlow::Stop => return Go::Stop,
                }
            }
            self.executor.reap_ended();
            if self.recovery.excluded().is_empty() {
                return Go::On;
            }
            // From beginning to beginning; a round that took longer is followed at once.
            next = begin.plus(self.params.interval);
        }
    }

    /// Sleeps until `until`, or, without one, until woken. Joins threads that end meanwhile.
    fn sleep(&mut self, until: Option<Time>) -> Go {
        let ended = self.executor.ended().clone();
        loop {
            let left = until.map(|until| until.since(self.params.clock.now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Go::On;
            }
            let timer = left.map_or_else(crossbeam_channel::never, crossbeam_channel::after);
            select! {
                recv(self.stopped) -> _never => return Go::Stop,
                recv(ended) -> id => if let Ok(id) = id {
                    self.executor.reap(id);
                },
                recv(self.woken) -> _woken => match until {
                    // The pace is set; another exclusion does not change it (R51).
                    Some(_) => {}
                    None => return Go::On,
                },
                recv(timer) -> _now => {}
            }
        }
    }

    fn probe(&mut self, backend: usize) -> ControlFlow {
        let recovery = Arc::clone(&self.recovery);
        let limit = self.params.timeout;
        let job = move || recovery.probe(backend);
        match self.executor.run(backend, limit, &self.stopped, job) {
            Ok(outcome) => self.recovery.record(backend, outcome),
            Err(NoResult::TimedOut) => {
                let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                self.recovery.record(backend, Err(timed_out(limit_ms)));
            }
            Err(NoResult::Stopped) => return ControlFlow::Stop,
            Err(NoResult::NoThread(error)) => {
                // Says nothing about the path (R52), and the next backend would fare no better.
                let text = format!("no thread for a probe, tried again next round: {error}");
                log::emit(Level::Warn, "KV2101", &text);
                return ControlFlow::EndRound;
            }
            Err(NoResult::Died) => {
                log::emit(Level::Error, "KV2102", "a probe ended without a result");
            }
        }
        ControlFlow::Next
    }
}

/// What follows a probe.
enum ControlFlow {
    Next,
    EndRound,
    Stop,
}

/// The failure of a probe, or of a check at open, that passed its limit.
#[must_use]
pub fn timed_out(limit_ms: u64) -> Failure {
    Failure { step: Step::Verify, cause: Cause::TimedOut(limit_ms) }
}
