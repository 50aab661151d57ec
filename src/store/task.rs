//! Tasks and calls: who waits for what, and results that nobody has asked for yet (R26). Pure
//! tables, owned by the core; a [`Cell`] is the only thing that a waiting thread shares with it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::chain::ChainId;
use super::types::{TaskKind, TaskResult};
use crate::clock::{Clock, Time};
use crate::error::Error;

/// Results kept for callers that have not asked yet (R26).
pub const MAX_KEPT_RESULTS: usize = 65_536;

/// How often a thread that watches looks between two looks at the clock.
const LOOKS: usize = 16;

/// Where a thread waits for the end of a task or a call.
#[derive(Debug, Default)]
pub struct Cell {
    /// Written under the lock, so that nobody goes to sleep on what has just finished.
    done: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Cell {
    /// Tells all who wait.
    pub fn finish(&self) {
        let held = self.lock.lock();
        self.done.store(true, Ordering::Release);
        drop(held);
        self.changed.notify_all();
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Waits at most `limit` without sleeping; says whether it has finished.
    pub fn watch(&self, clock: &Clock, limit: Duration) -> bool {
        let end = clock.now().plus(limit);
        loop {
            for _ in 0..LOOKS {
                if self.is_done() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if clock.now() >= end {
                return false;
            }
        }
    }

    /// Waits at most `limit` (`None`: as long as it takes); says whether it has finished.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        let mut held = self.lock.lock();
        // The one real clock read outside clock.rs would be here; the condition variable does it
        // for us.
        match limit {
            None => self.changed.wait_while(&mut held, |()| !self.is_done()),
            Some(limit) => {
                let result = self.changed.wait_while_for(&mut held, |()| !self.is_done(), limit);
                return !result.timed_out() || self.is_done();
            }
        }
        true
    }
}

/// One unfinished task.
#[derive(Debug)]
pub struct Task {
    /// Shards of the call.
    pub shards: usize,
    /// Positions that have not ended.
    pub open: usize,
    /// Errors so far, by position.
    pub errors: Vec<(usize, Error)>,
    /// When it ends with TIMEOUT.
    pub deadline: Option<Time>,
    /// Its transfers.
    pub chains: Vec<ChainId>,
    /// Nobody will ask for the result.
    pub forgotten: bool,
    /// Where threads wait.
    pub cell: Arc<Cell>,
    /// Load or dump.
    pub kind: TaskKind,
    /// When it was accepted.
    pub began: Time,
}

/// What a task leaves when its last position has ended.
#[derive(Debug)]
pub struct Ended {
    /// Who is to be told.
    pub cell: Arc<Cell>,
    /// Load or dump.
    pub kind: TaskKind,
    /// When it was accepted.
    pub began: Time,
}

/// What `check` and `wait` find under a handle.
pub enum Found {
    /// It runs; wait here.
    Running(Arc<Cell>),
    /// It has finished.
    Finished,
    /// It was consumed, dropped, forgotten, or never given.
    Unknown,
}

/// All tasks of one store.
#[derive(Debug, Default)]
pub struct Tasks {
    last: u64,
    open: usize,
    running: BTreeMap<u64, Task>,
    finished: HashMap<u64, TaskResult>,
    /// In the order of finishing; may hold handles that were consumed meanwhile.
    order: VecDeque<u64>,
    /// Finished and not listed by `finished` yet; may hold handles that were consumed meanwhile.
    unlisted: VecDeque<u64>,
    /// Results dropped because nobody asked.
    pub dropped: u64,
}

impl Tasks {
    /// A new handle: strictly increasing, never 0.
    pub fn add(&mut self, task: Task) -> u64 {
        self.last += 1;
        self.open += task.open;
        self.running.insert(self.last, task);
        self.last
    }

    /// An unfinished task.
    pub fn get_mut(&mut self, handle: u64) -> Option<&mut Task> {
        self.running.get_mut(&handle)
    }

    /// It is not finished.
    #[must_use]
    pub fn runs(&self, handle: u64) -> bool {
        self.running.contains_key(&handle)
    }

    /// All unfinished tasks, oldest first.
    pub fn running(&self) -> impl Iterator<Item = (u64, &Task)> {
        self.running.iter().map(|(handle, task)| (*handle, task))
    }

    /// Ends positions of a task. Gives whom to tell where that was the last of it.
    pub fn end(
        &mut self,
        handle: u64,
        positions: &[usize],
        result: &Result<(), Error>,
    ) -> Option<Ended> {
        let task = self.running.get_mut(&handle)?;
        task.open = task.open.saturating_sub(positions.len());
        self.open = self.open.saturating_sub(positions.len());
        if let Err(error) = result {
            task.errors.extend(positions.iter().map(|at| (*at, error.clone())));
        }
        if task.open > 0 {
            return None;
        }
        let task = self.running.remove(&handle)?;
        if !task.forgotten {
            self.keep(handle, TaskResult::new(task.shards, task.errors));
        }
        Some(Ended { cell: task.cell, kind: task.kind, began: task.began })
    }

    fn keep(&mut self, handle: u64, result: TaskResult) {
        self.finished.insert(handle, result);
        self.order.push_back(handle);
        self.unlisted.push_back(handle);
        while self.finished.len() > MAX_KEPT_RESULTS {
            let Some(oldest) = self.order.pop_front() else { break };
            self.dropped += u64::from(self.finished.remove(&oldest).is_some());
        }
        self.trim();
    }

    /// Consumed handles are left in the queues and thrown out here, at a cost that is constant on
    /// average.
    fn trim(&mut self) {
        let limit = 2 * self.finished.len() + 64;
        if self.order.len() > limit {
            self.order.retain(|handle| self.finished.contains_key(handle));
        }
        if self.unlisted.len() > limit {
            self.unlisted.retain(|handle| self.finished.contains_key(handle));
        }
    }

    /// What is under a handle.
    #[must_use]
    pub fn find(&self, handle: u64) -> Found {
        if self.finished.contains_key(&handle) {
            return Found::Finished;
        }
        match self.running.get(&handle) {
            Some(task) if !task.forgotten => Found::Running(Arc::clone(&task.cell)),
            _ => Found::Unknown,
        }
    }

    /// Moves every deadline later.
    pub fn postpone(&mut self, by: Duration) {
        for task in self.running.values_mut() {
            task.deadline = task.deadline.map(|deadline| deadline.plus(by));
        }
    }

    /// Positions of all unfinished tasks that have not ended.
    #[must_use]
    pub fn open_positions(&self) -> usize {
        self.open
    }

    /// Shards of a task, finished or not.
    #[must_use]
    pub fn shards(&self, handle: u64) -> Option<usize> {
        let running = self.running.get(&handle).filter(|task| !task.forgotten);
        let finished = self.finished.get(&handle).map(TaskResult::shards);
        running.map(|task| task.shards).or(finished)
    }

    /// Takes a result; the handle is unknown from now on.
    pub fn consume(&mut self, handle: u64) -> Option<TaskResult> {
        let result = self.finished.remove(&handle);
        self.trim();
        result
    }

    /// Drops a handle. Says whether there was one.
    pub fn forget(&mut self, handle: u64) -> bool {
        match self.running.get_mut(&handle) {
            Some(task) => !std::mem::replace(&mut task.forgotten, true),
            None => self.consume(handle).is_some(),
        }
    }

    /// Lists up to `max` handles that finished and were not listed yet.
    pub fn list(&mut self, max: usize) -> Vec<u64> {
        let mut listed = Vec::new();
        while listed.len() < max {
            let Some(handle) = self.unlisted.pop_front() else { break };
            if self.finished.contains_key(&handle) {
                listed.push(handle);
            }
        }
        listed
    }

    /// Whether [`Tasks::list`] has something to give. Throws out consumed handles in front.
    pub fn has_unlisted(&mut self) -> bool {
        while let Some(handle) = self.unlisted.front() {
            if self.finished.contains_key(handle) {
                return true;
            }
            self.unlisted.pop_front();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    fn add(tasks: &mut Tasks, shards: usize) -> u64 {
        tasks.add(Task {
            shards,
            open: shards,
            errors: Vec::new(),
            deadline: None,
            chains: Vec::new(),
            forgotten: false,
            cell: Arc::default(),
            kind: TaskKind::Load,
            began: Time::ZERO,
        })
    }

    #[test]
    fn whoever_watches_sees_the_end_and_its_own_limit() {
        let (cell, clock) = (Arc::new(Cell::default()), Clock::monotonic());
        let before = clock.now();
        assert!(!cell.watch(&clock, Duration::from_millis(1)));
        assert!(clock.now().since(before) >= Duration::from_millis(1));
        assert!(!cell.wait(Some(Duration::ZERO)));
        let other = Arc::clone(&cell);
        let finisher = std::thread::spawn(move || other.finish());
        assert!(cell.watch(&clock, Duration::from_secs(3600)));
        finisher.join().unwrap();
        assert!(cell.watch(&clock, Duration::ZERO) && cell.wait(Some(Duration::ZERO)));
    }

    #[test]
    fn r26_a_task_ends_with_its_last_position_and_gives_the_first_error_in_shard_order() {
        let mut tasks = Tasks::default();
        let handle = add(&mut tasks, 3);
        let error = |status| Err(Error::new(status, "x"));
        assert!(tasks.end(handle, &[2], &error(Status::Timeout)).is_none());
        assert!(tasks.end(handle, &[0], &Ok(())).is_none());
        assert!(tasks.end(handle, &[1], &error(Status::NotFound)).is_some());
        assert!(matches!(tasks.find(handle), Found::Finished));
        let result = tasks.consume(handle).unwrap();
        assert_eq!(result.first_error().unwrap_err().status, Status::NotFound);
        assert!(result.error(0).is_none());
        assert!(matches!(tasks.find(handle), Found::Unknown));
        assert!(tasks.consume(handle).is_none());
    }

    #[test]
    fn r26_handles_only_grow_and_old_results_are_dropped_and_counted() {
        let mut tasks = Tasks::default();
        let mut last = 0;
        for _ in 0..MAX_KEPT_RESULTS + 3 {
            let handle = add(&mut tasks, 1);
            assert!(handle > last);
            last = handle;
            tasks.end(handle, &[0], &Ok(()));
        }
        assert_eq!(tasks.dropped, 3);
        assert!(matches!(tasks.find(3), Found::Unknown));
        assert!(matches!(tasks.find(4), Found::Finished));
    }

    #[test]
    fn r26_finished_lists_each_once_and_consumed_ones_never() {
        let mut tasks = Tasks::default();
        let handles: Vec<u64> = (0..4).map(|_| add(&mut tasks, 1)).collect();
        for handle in &handles {
            tasks.end(*handle, &[0], &Ok(()));
        }
        tasks.consume(handles[0]);
        assert!(tasks.has_unlisted());
        assert_eq!(tasks.list(2), handles[1..3]);
        tasks.consume(handles[3]);
        assert!(!tasks.has_unlisted());
        assert!(tasks.list(9).is_empty());
    }

    #[test]
    fn forgetting_a_running_task_hides_it_and_keeps_no_result() {
        let mut tasks = Tasks::default();
        let handle = add(&mut tasks, 1);
        assert!(tasks.forget(handle));
        assert!(!tasks.forget(handle));
        assert!(matches!(tasks.find(handle), Found::Unknown));
        assert!(tasks.end(handle, &[0], &Ok(())).is_some());
        assert!(matches!(tasks.find(handle), Found::Unknown));
    }
}
