//! `ucm_health_io` (R52): runs work that may hang, under a time limit, on one reusable thread.
//!
//! A thread that passes its limit gets no more work and is replaced for the next job; its late
//! result goes nowhere. Owned and used by one thread (the recovery monitor, or the start-up check),
//! which makes the workers, so that they inherit its CPU affinity (R57).

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};

use crate::clock::{Clock, Time};
use crate::posix::thread;

/// The name of the worker thread.
pub const WORKER_NAME: &str = "ucm_health_io";

/// Stack of a worker. Small, because unfinished ones are not bounded in number (R52).
pub const WORKER_STACK_BYTES: usize = 128 << 10;

/// Woken this much later than armed, a judge has slept, and so may the worker have (R28).
const OVERSLEPT: Duration = Duration::from_millis(100);

/// What the worker gets on top then, to report what came back meanwhile.
const HARVEST: Duration = Duration::from_millis(500);

type Job = Box<dyn FnOnce() + Send>;

/// Tells a waiting thread to stop: it becomes readable when the sender is dropped.
pub type StopSignal = Receiver<Infallible>;

/// Why a job gave no result.
#[derive(Debug)]
pub enum NoResult {
    /// The limit passed; the job is still running and its result will be ignored.
    TimedOut,
    /// The stop signal came; as for a time-out.
    Stopped,
    /// No thread could be made; the job was not started.
    NoThread(io::Error),
    /// The job ended without a result (it panicked).
    Died,
}

/// How many worker threads hang, per backend. Cheap to clone; clones count together.
#[derive(Debug, Clone)]
pub struct Unfinished(Arc<[AtomicU32]>);

impl Unfinished {
    /// Counts for `backends` backends.
    #[must_use]
    pub fn new(backends: usize) -> Unfinished {
        Unfinished((0..backends).map(|_| AtomicU32::new(0)).collect())
    }

    /// Threads that a job on `backend` has not given back.
    #[must_use]
    pub fn on(&self, backend: usize) -> u32 {
        self.0.get(backend).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn add(&self, backend: usize) {
        if let Some(count) = self.0.get(backend) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sub(&self, backend: usize) {
        if let Some(count) = self.0.get(backend) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

struct Worker {
    id: u64,
    /// Dropped to end the thread when its job ends.
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

struct Orphan {
    id: u64,
    backend: usize,
    thread: JoinHandle<()>,
}

/// One reusable worker and those that hang.
pub struct Executor {
    clock: Clock,
    stack_bytes: usize,
    worker: Option<Worker>,
    next_id: u64,
    orphans: Vec<Orphan>,
    counts: Unfinished,
    /// A worker tells its id here as the last thing it does.
    ended_tx: Sender<u64>,
    ended: Receiver<u64>,
}

impl Executor {
    /// An executor without a thread; the first job makes one.
    #[must_use]
    pub fn new(clock: Clock, counts: Unfinished, stack_bytes: usize) -> Executor {
        let (ended_tx, ended) = unbounded();
        let orphans = Vec::new();
        Executor { clock, stack_bytes, worker: None, next_id: 0, orphans, counts, ended_tx, ended }
    }

    /// Runs `job`, which is about `backend`, for at most `limit`.
    ///
    /// # Errors
    /// Why there is no result.
    pub fn run<R: Send + 'static>(
        &mut self,
        backend: usize,
        limit: Duration,
        stop: &StopSignal,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, NoResult> {
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None => self.make_worker().map_err(NoResult::NoThread)?,
        };
        let (reply, result) = bounded(1);
        // The receiver is gone where the job was given up: its late result goes nowhere (R52).
        let job: Job = Box::new(move || {
            reply.send(job()).ok();
        });
        if worker.jobs.send(job).is_err() {
            self.set_aside(worker, backend);
            return Err(NoResult::Died);
        }
        let outcome = self.await_result(&result, limit, stop);
        match outcome {
            Ok(value) => {
                self.worker = Some(worker);
                Ok(value)
            }
            Err(reason) => {
                self.set_aside(worker, backend);
                Err(reason)
            }
        }
    }

    fn await_result<R>(
        &self,
        result: &Receiver<R>,
        limit: Duration,
        stop: &StopSignal,
    ) -> Result<R, NoResult> {
        let mut deadline = self.clock.now().plus(limit);
        loop {
            let left = deadline.since(self.clock.now());
            select! {
                recv(result) -> value => return value.map_err(|_| NoResult::Died),
                recv(stop) -> _never => return Err(NoResult::Stopped),
                default(left) => {}
            }
            let late = self.clock.now().since(deadline);
            if let Ok(value) = result.try_recv() {
                return Ok(value);
            }
            if late <= OVERSLEPT {
                return Err(NoResult::TimedOut);
            }
            // This whole process slept (SIGSTOP, a paused VM), the worker too: it gets that time
            // back.
            deadline = deadline.plus(late.saturating_add(HARVEST));
        }
    }

    fn make_worker(&mut self) -> io::Result<Worker> {
        let id = self.next_id;
        self.next_id += 1;
        let (jobs, work) = bounded::<Job>(1);
        let ended = self.ended_tx.clone();
        let thread = thread::spawn(WORKER_NAME, self.stack_bytes, move || {
            // Tells the end also where a job panics.
            let _told = TellEnd { id, ended };
            for job in work {
                job();
            }
        })?;
        Ok(Worker { id, jobs, thread })
    }

    /// The worker gets no more work; it ends when its job does.
    fn set_aside(&mut self, worker: Worker, backend: usize) {
        let Worker { id, jobs, thread } = worker;
        drop(jobs);
        self.counts.add(backend);
        self.orphans.push(Orphan { id, backend, thread });
    }

    /// Becomes readable when a worker that was set aside ends; then call [`Executor::reap`].
    #[must_use]
    pub fn ended(&self) -> &Receiver<u64> {
        &self.ended
    }

    /// Joins the worker `id`, which has told its end.
    pub fn reap(&mut self, id: u64) {
        if let Some(at) = self.orphans.iter().position(|orphan| orphan.id == id) {
            let orphan = self.orphans.swap_remove(at);
            self.counts.sub(orphan.backend);
            // A panic is told by the result that never came; the thread is gone either way.
            orphan.thread.join().ok();
        }
    }

    /// Joins every worker that has told its end.
    pub fn reap_ended(&mut self) {
        while let Ok(id) = self.ended.try_recv() {
            self.reap(id);
        }
    }

    /// Ends the idle worker: the next job gets a new one, made by the thread that asks then.
    pub fn retire(&mut self) {
        if let Some(worker) = self.worker.take() {
            // It hangs on no backend, so it counts for none.
            self.set_aside(worker, usize::MAX);
        }
    }

    /// Ends the idle worker and waits for those that hang, at most until `deadline` (`None`: as
    /// long as it takes). Gives how many are left; those are detached, and harmless when they
    /// return.
    #[must_use]
    pub fn join(mut self, deadline: Option<Time>) -> usize {
        self.retire();
        while !self.orphans.is_empty() {
            let ended = match deadline {
                None => self.ended.recv().ok(),
                Some(deadline) => {
                    let left = deadline.since(self.clock.now());
                    self.ended.recv_timeout(left).ok()
                }
            };
            match ended {
                Some(id) => self.reap(id),
                None => break,
            }
        }
        self.orphans.len()
    }
}

/// Tells the end of a worker when it is dropped.
struct TellEnd {
    id: u64,
    ended: Sender<u64>,
}

impl Drop for TellEnd {
    fn drop(&mut self) {
        // Nobody listens where the executor detached its workers.
        self.ended.send(self.id).ok();
    }
}
