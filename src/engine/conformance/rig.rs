//! What the cases stand on: a source that checks the contract, a supervisor, and a directory of
//! one's own.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Make;
use crate::clock::Clock;
use crate::engine::{Engine, EngineParams, Gate, Op, OpKind, Outcome, Source, Tag, Want};

/// No event in these tests takes this long.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A directory that is removed with everything in it.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(parent: &Path) -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("kvpath-test-{}-{next}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// A queue of ops that notes every breach of [`Source`]'s contract.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Op>,
    running: HashSet<Tag>,
    transfers: HashSet<Tag>,
    ended: HashMap<Tag, Outcome>,
    transfers_max: usize,
    metadata_max: usize,
    breaches: Vec<String>,
}

fn is_transfer(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Read(_) | OpKind::Write(_))
}

impl Queue {
    fn until<T>(&self, what: &str, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.state.lock();
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            let timed_out = self.changed.wait_for(&mut state, LIMIT).timed_out();
            assert!(!timed_out, "nothing happened while waiting for {what}");
        }
    }
}

impl Source for Queue {
    fn pull(&self, want: Want) -> Option<Op> {
        let mut state = self.state.lock();
        let at = state.waiting.iter().position(|op| match want {
            Want::Any => true,
            Want::Transfers => is_transfer(&op.kind),
            Want::Metadata => !is_transfer(&op.kind),
            Want::Lease => false,
        })?;
        let op = state.waiting.remove(at)?;
        state.running.insert(op.tag);
        if is_transfer(&op.kind) {
            state.transfers.insert(op.tag);
        }
        let transfers = state.transfers.len();
        state.transfers_max = state.transfers_max.max(transfers);
        state.metadata_max = state.metadata_max.max(state.running.len() - transfers);
        self.changed.notify_all();
        Some(op)
    }

    fn complete(&self, tag: Tag, outcome: Outcome) {
        let mut state = self.state.lock();
        if !state.running.remove(&tag) {
            state.breaches.push(format!("{tag:?} ended, but was not running"));
        }
        state.transfers.remove(&tag);
        if state.ended.insert(tag, outcome).is_some() {
            state.breaches.push(format!("{tag:?} ended twice"));
        }
        self.changed.notify_all();
    }
}

type Maker<'a> = &'a mut dyn FnMut(EngineParams, Arc<dyn Source>) -> Arc<dyn Engine>;

/// An engine with its source and a supervisor that makes its threads.
pub struct Rig {
    pub queue: Arc<Queue>,
    pub engine: Arc<dyn Engine>,
    pub index: usize,
    next: AtomicU64,
    bell: Sender<bool>,
    supervisor: Option<JoinHandle<()>>,
    rung: Arc<(Mutex<usize>, Condvar)>,
}

/// Limits of an engine under test.
#[derive(Clone, Copy)]
pub struct Limits {
    pub transfers: usize,
    pub metadata: usize,
    pub buffer_bytes: u64,
}

pub const USUAL: Limits = Limits { transfers: 4, metadata: 2, buffer_bytes: 64 << 20 };

impl Rig {
    pub fn new(make: Make, limits: Limits) -> Rig {
        Rig::of(&mut |params, source| make(params, source), limits)
    }

    /// A rig around whatever engine `make` makes.
    pub fn of(make: Maker<'_>, limits: Limits) -> Rig {
        static NEXT: AtomicUsize = AtomicUsize::new(10);
        let index = NEXT.fetch_add(1, Ordering::Relaxed);
        let (bell, heard) = channel();
        let ring = bell.clone();
        let rung = Arc::new((Mutex::new(0), Condvar::new()));
        let params = EngineParams {
            index,
            transfers: limits.transfers,
            metadata: limits.metadata,
            buffer_bytes: limits.buffer_bytes,
            file_bytes: 512 << 10,
            // After the supervisor has ended nobody listens, and nothing is lost.
            bell: Arc::new(move || {
                let _nobody = ring.send(true);
            }),
        };
        let queue = Arc::new(Queue::default());
        let engine = make(params, Arc::clone(&queue) as Arc<dyn Source>);
        let slot: Arc<OnceLock<Arc<dyn Engine>>> = Arc::default();
        assert!(slot.set(Arc::clone(&engine)).is_ok());
        let told = Arc::clone(&rung);
        let supervisor = std::thread::spawn(move || {
            while let Ok(true) = heard.recv() {
                slot.wait().make_threads().unwrap();
                *told.0.lock() += 1;
                told.1.notify_all();
            }
        });
        let (next, supervisor) = (AtomicU64::new(1), Some(supervisor));
        Rig { queue, engine, index, next, bell, supervisor, rung }
    }

    pub fn op(&self, kind: OpKind) -> (Op, Tag, Arc<Gate>) {
        let tag = Tag(self.next.fetch_add(1, Ordering::Relaxed));
        let gate = Arc::new(Gate::new(Clock::monotonic()));
        let op = Op { tag, kind, gate: Arc::clone(&gate), local_limit: LIMIT };
        (op, tag, gate)
    }

    pub fn submit(&self, kind: OpKind) -> (Tag, Arc<Gate>) {
        let (op, tag, gate) = self.op(kind);
        self.submit_op(op);
        (tag, gate)
    }

    pub fn submit_op(&self, op: Op) {
        self.queue.state.lock().waiting.push_back(op);
        self.engine.wake(1);
    }

    /// Waits until an engine has pulled the op.
    pub fn started(&self, tag: Tag) {
        self.queue.until("a start", |state| {
            (state.running.contains(&tag) || state.ended.contains_key(&tag)).then_some(())
        });
    }

    /// Waits for the op's end.
    pub fn outcome(&self, tag: Tag) -> Outcome {
        self.queue.until("an outcome", |state| state.ended.remove(&tag))
    }

    /// Submits and waits.
    pub fn run(&self, kind: OpKind) -> Outcome {
        let (tag, _) = self.submit(kind);
        self.outcome(tag)
    }

    pub fn waiting(&self) -> usize {
        self.queue.state.lock().waiting.len()
    }

    pub fn running(&self) -> usize {
        self.queue.state.lock().running.len()
    }

    /// The most transfers and the most metadata ops that were in flight at once.
    pub fn most(&self) -> (usize, usize) {
        let state = self.queue.state.lock();
        (state.transfers_max, state.metadata_max)
    }

    /// Waits until the supervisor has heard the bell and `done` holds.
    pub fn until_bell(&self, mut done: impl FnMut() -> bool) {
        let mut count = self.rung.0.lock();
        while !done() {
            let timed_out = self.rung.1.wait_for(&mut count, LIMIT).timed_out();
            assert!(!timed_out || done(), "the bell did not ring");
        }
    }

    pub fn bells(&self) -> usize {
        *self.rung.0.lock()
    }

    /// The engine's threads as the kernel sees them: each one's directory in `/proc`.
    fn tasks(&self) -> Vec<PathBuf> {
        let prefix = format!("ucm_posix_{}_", self.index % 100);
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let name = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        tasks.filter(|task| name(task).starts_with(&prefix)).collect()
    }

    /// How many threads the kernel has.
    pub fn kernel_threads(&self) -> usize {
        self.tasks().len()
    }

    /// The voluntary switches of each thread.
    pub fn switches(&self) -> Vec<u64> {
        let status = |task: PathBuf| std::fs::read_to_string(task.join("status")).ok();
        let count = |status: String| {
            let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse().unwrap()
        };
        self.tasks().into_iter().filter_map(status).map(count).collect()
    }

    /// Waits until `count` threads are in an open.
    pub fn until_opening(&self, count: usize) {
        let open = format!("{} ", libc::SYS_openat);
        let opening = |task: &PathBuf| {
            let call = std::fs::read_to_string(task.join("syscall")).unwrap_or_default();
            call.starts_with(&open)
        };
        let start = std::time::Instant::now();
        let hanging = || self.tasks().iter().map(|task| self.kernel_workers(task)).sum::<usize>();
        while self.tasks().iter().filter(|task| opening(task)).count() + hanging() < count {
            assert!(start.elapsed() < LIMIT, "nobody hangs");
            std::thread::yield_now();
        }
    }

    /// How many workers of the kernel wait for something on behalf of a ring's thread.
    fn kernel_workers(&self, task: &Path) -> usize {
        let Some(id) = task.file_name().and_then(|id| id.to_str()) else { return 0 };
        let name = format!("iou-wrk-{id}\n");
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        let read = |task: &Path, what| std::fs::read_to_string(task.join(what)).unwrap_or_default();
        let waits = |task: &PathBuf| {
            let at = read(task, "wchan");
            read(task, "comm") == name && at != "0" && !at.contains("io_wq_worker")
        };
        tasks.filter(waits).count()
    }

    /// Ends the engine, and checks the contract.
    pub fn end(mut self) {
        self.close();
    }

    fn close(&mut self) {
        let Some(supervisor) = self.supervisor.take() else { return };
        self.engine.stop();
        assert!(self.engine.join(Some(LIMIT)), "threads are left");
        self.bell.send(false).unwrap();
        supervisor.join().unwrap();
        assert_eq!(self.engine.threads(), 0);
        // The kernel lets a joiner go a moment before the thread leaves its list.
        let start = std::time::Instant::now();
        while self.kernel_threads() > 0 {
            assert!(start.elapsed() < LIMIT, "threads are left in the kernel's list");
            std::thread::yield_now();
        }
        let state = self.queue.state.lock();
        assert_eq!(state.breaches, Vec::<String>::new());
        assert_eq!(state.running.len(), 0, "ops without an end");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.close();
        }
    }
}
