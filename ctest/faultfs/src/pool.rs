//! Threads that do the blocking work on the real directory, and the queue of what waits for its
//! time. Not who decides what waits: that is `gate.rs`, which owns both.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// How many operations run on the real directory at once.
const WORKERS: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

/// A first-in, first-out queue with its workers.
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    added: Condvar,
}

impl Pool {
    /// Starts the workers; they end with the process.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        for index in 0..WORKERS {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("worker-{index}")).spawn(move || work(&shared))?;
        }
        Ok(Self { shared })
    }

    /// Runs `job` as soon as a worker is free.
    pub fn run(&self, job: Job) {
        self.shared.jobs.lock().push_back(job);
        self.shared.added.notify_one();
    }
}

fn work(shared: &Shared) -> ! {
    loop {
        let mut jobs = shared.jobs.lock();
        let job = loop {
            match jobs.pop_front() {
                Some(job) => break job,
                None => shared.added.wait(&mut jobs),
            }
        };
        drop(jobs);
        job();
    }
}

/// Things that wait for a point in time, in its order.
pub struct Later<T> {
    waiting: Mutex<BTreeMap<(Instant, u64), T>>,
    changed: Condvar,
}

impl<T> Later<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self { waiting: Mutex::new(BTreeMap::new()), changed: Condvar::new() }
    }

    /// Keeps `thing` until `at`; `id` tells equal times apart.
    pub fn add(&self, at: Instant, id: u64, thing: T) {
        self.waiting.lock().insert((at, id), thing);
        self.changed.notify_one();
    }

    /// Waits for the next thing whose time has come.
    pub fn next(&self) -> T {
        let mut waiting = self.waiting.lock();
        loop {
            let Some(first) = waiting.first_entry() else {
                self.changed.wait(&mut waiting);
                continue;
            };
            let at = first.key().0;
            if at <= Instant::now() {
                return first.remove();
            }
            self.changed.wait_until(&mut waiting, at);
        }
    }

    /// Takes everything that still waits.
    pub fn take_all(&self) -> Vec<T> {
        std::mem::take(&mut *self.waiting.lock()).into_values().collect()
    }
}
