//! Faults on purpose: a decorator around an engine and its source, scripted or seeded, for tests
//! only.
//!
//! To the store an op that is failed, delayed or hung looks like one that the engine has: it was
//! pulled, and it ends once. It waits in a table and takes no thread; a hung one is run by the real
//! engine when it is released, and finds its gate as it is then. What the file system would do with
//! the words of [`Rule`] is done here to whole ops.

mod rule;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::CString;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{
    Engine, EngineKind, EngineParams, Gate, Memory, Op, OpKind, Outcome, Source, Tag, Want, host,
};
use crate::clock::{Clock, Time};
use crate::error::{Cause, Failure, Step};
use crate::posix::file;
pub use rule::{Action, Rule};

/// Makes the engine that is decorated.
pub type Make<'a> = &'a dyn Fn(EngineParams, Arc<dyn Source>) -> Arc<dyn Engine>;

/// Names a rule that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

/// The rules, and the ops that they hold. Shared by tests, the source and the engine.
#[derive(Default)]
pub struct Faults {
    table: Mutex<Table>,
    /// Told when the table changes.
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    rules: Vec<(RuleId, Rule)>,
    next: u64,
    held: Vec<Held>,
    /// Released: to be given to the engine.
    ready: VecDeque<Op>,
    /// Released and given to the engine.
    resumed: HashSet<Tag>,
    flips: HashMap<Tag, Flip>,
    stopping: bool,
    gone: bool,
}

struct Held {
    op: Op,
    /// When it goes on by itself; `None`: when it is released.
    until: Option<Time>,
}

/// What is needed to invert a byte after the op has moved its bytes.
struct Flip {
    gate: Arc<Gate>,
    memory: Arc<Memory>,
    /// A write's file, and the byte.
    file: Option<(CString, u64)>,
}

impl Table {
    /// Ops that were pulled, were held, and have not ended.
    fn pending(&self) -> usize {
        self.held.len() + self.ready.len() + self.resumed.len()
    }

    fn release(&mut self, mut which: impl FnMut(&Held) -> bool) -> usize {
        let before = self.ready.len();
        let (gone, kept) = std::mem::take(&mut self.held).into_iter().partition(|held| which(held));
        self.held = kept;
        self.ready.extend(gone.into_iter().map(|held: Held| held.op));
        self.ready.len() - before
    }
}

impl Faults {
    /// Adds a rule (see [`Rule`] for its words). The first one that hits an op decides.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn add(&self, text: &str) -> Result<RuleId, String> {
        let rule = Rule::parse(text)?;
        let mut table = self.table.lock();
        table.next += 1;
        let id = RuleId(table.next);
        table.rules.push((id, rule));
        Ok(id)
    }

    /// Forgets all rules. What they hold stays held.
    pub fn clear(&self) {
        self.table.lock().rules.clear();
    }

    /// How often the rule has hit; 0 once it was cleared.
    #[must_use]
    pub fn hits(&self, id: RuleId) -> u64 {
        let table = self.table.lock();
        table.rules.iter().find(|(other, _)| *other == id).map_or(0, |(_, rule)| rule.hits())
    }

    /// Ops that hang or are delayed now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.table.lock().held.len()
    }

    /// Waits until at least `count` ops are held, at most `limit`; says whether they are.
    #[must_use]
    pub fn wait_held(&self, count: usize, limit: Duration) -> bool {
        let mut table = self.table.lock();
        while table.held.len() < count {
            if self.changed.wait_for(&mut table, limit).timed_out() {
                return table.held.len() >= count;
            }
        }
        true
    }

    fn decide(&self, op: &Op) -> Option<(Action, Step)> {
        self.table.lock().rules.iter_mut().find_map(|(_, rule)| rule.strike(op))
    }

    fn hold(&self, op: Op, until: Option<Time>) {
        self.table.lock().held.push(Held { op, until });
        self.changed.notify_all();
    }

    fn take_ready(&self, want: Want) -> Option<Op> {
        let mut table = self.table.lock();
        let at = table.ready.iter().position(|op| match want {
            Want::Any => true,
            Want::Transfers => is_transfer(&op.kind),
            Want::Metadata => !is_transfer(&op.kind),
            // Whose step it is cannot be seen here; whoever takes anything else takes it.
            Want::Lease => false,
        })?;
        let op = table.ready.remove(at)?;
        table.resumed.insert(op.tag);
        Some(op)
    }

    fn note_flip(&self, op: &Op) {
        let (transfer, file) = match &op.kind {
            OpKind::Read(transfer) => (transfer, None),
            OpKind::Write(transfer) => (transfer, Some((transfer.path.clone(), transfer.offset))),
            _ => return,
        };
        let (gate, memory) = (Arc::clone(&op.gate), Arc::clone(&transfer.memory));
        self.table.lock().flips.insert(op.tag, Flip { gate, memory, file });
    }
}

fn is_transfer(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Read(_) | OpKind::Write(_))
}

impl Flip {
    /// Inverts the first byte of what was moved.
    fn apply(&self) {
        match &self.file {
            None => self.flip_memory(),
            // The file may be gone or hang together with its mount: then there is nothing to
            // corrupt.
            Some((path, offset)) => flip_file(path, *offset).unwrap_or(()),
        }
    }

    fn flip_memory(&self) {
        if !self.gate.enter() {
            return;
        }
        let mut byte = [0];
        // SAFETY: inside the gate, so the memory is still the task's.
        unsafe { self.memory.copy_out(0, &mut byte) };
        // SAFETY: as above.
        unsafe { self.memory.copy_in(0, &[!byte[0]]) };
        // The op has ended already: whoever revoked meanwhile learns that from its completion.
        let _still_wanted = self.gate.leave();
    }
}

fn flip_file(path: &CString, offset: u64) -> Result<(), i32> {
    let mut byte = [0];
    file::read_at(&file::open_read(path, false)?, &mut byte, offset)?;
    let fd = file::open_write(path, false)?;
    file::write_at(&fd, &[!byte[0]], offset)?;
    file::sync_data(&fd)
}

/// The source that the decorated engine pulls from.
struct FaultSource {
    faults: Arc<Faults>,
    inner: Arc<dyn Source>,
    clock: Clock,
}

impl Source for FaultSource {
    fn pull(&self, want: Want) -> Option<Op> {
        loop {
            if let Some(op) = self.faults.take_ready(want) {
                return Some(op);
            }
            if self.faults.table.lock().stopping {
                return None;
            }
            let op = self.inner.pull(want)?;
            match self.faults.decide(&op) {
                None => return Some(op),
                Some((Action::Fail(errno), step)) => {
                    self.inner.complete(op.tag, Err(Failure::errno(step, errno)));
                }
                Some((Action::Short, _)) => self.inner.complete(op.tag, Err(short(&op.kind))),
                Some((Action::Delay(delay_ms), _)) => {
                    let until = self.clock.now().plus(Duration::from_millis(delay_ms));
                    self.faults.hold(op, Some(until));
                }
                Some((Action::Hang, _)) => self.faults.hold(op, None),
                Some((Action::Flip, _)) => {
                    self.faults.note_flip(&op);
                    return Some(op);
                }
            }
        }
    }

    fn complete(&self, tag: Tag, outcome: Outcome) {
        let flip = self.faults.table.lock().flips.remove(&tag);
        if let Some(flip) = flip
            && outcome.is_ok()
        {
            flip.apply();
        }
        self.inner.complete(tag, outcome);
        self.faults.table.lock().resumed.remove(&tag);
        self.faults.changed.notify_all();
    }
}

/// What a transfer that moved fewer bytes than asked ends with.
fn short(kind: &OpKind) -> Failure {
    match kind {
        OpKind::Read(transfer) => {
            let (found, expected) = (Some(transfer.file_bytes / 2), transfer.file_bytes);
            Failure { step: Step::Verify, cause: Cause::WrongSize { found, expected } }
        }
        _ => Failure { step: Step::Write, cause: Cause::NoProgress },
    }
}

/// An engine with faults.
pub struct FaultEngine {
    faults: Arc<Faults>,
    inner: Arc<dyn Engine>,
    timer: Mutex<Option<JoinHandle<()>>>,
    clock: Clock,
}

impl FaultEngine {
    /// Makes the engine that `make` makes, and decorates it. Has one thread of its own, for delays.
    ///
    /// # Errors
    /// The system's refusal of that thread.
    pub fn new(
        make: Make<'_>,
        params: EngineParams,
        source: Arc<dyn Source>,
    ) -> Result<Arc<FaultEngine>, std::io::Error> {
        let (faults, clock) = (Arc::new(Faults::default()), Clock::monotonic());
        let decorated =
            FaultSource { faults: Arc::clone(&faults), inner: source, clock: clock.clone() };
        let inner = make(params, Arc::new(decorated));
        let (weak, table, ticks) = (Arc::downgrade(&inner), Arc::clone(&faults), clock.clone());
        let timer = host::spawn("ucm_fault", move || let_go_in_time(&table, &weak, &ticks))?;
        Ok(Arc::new(FaultEngine { faults, inner, timer: Mutex::new(Some(timer)), clock }))
    }

    /// The rules.
    #[must_use]
    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    /// Lets everything that is held go on: the engine runs it now. Says how many.
    pub fn release(&self) -> usize {
        let released = self.faults.table.lock().release(|_| true);
        self.faults.changed.notify_all();
        self.inner.wake(released);
        released
    }
}

/// The timer's life: sleeps until the next delay is over.
fn let_go_in_time(faults: &Faults, engine: &Weak<dyn Engine>, clock: &Clock) {
    let mut table = faults.table.lock();
    while !table.gone {
        let now = clock.now();
        let due = table.release(|held| held.until.is_some_and(|until| until <= now));
        if due > 0 {
            drop(table);
            if let Some(engine) = engine.upgrade() {
                engine.wake(due);
            }
            table = faults.table.lock();
            continue;
        }
        match table.held.iter().filter_map(|held| held.until).min() {
            // Whether it was the delay or a change of the table shows above.
            Some(until) => {
                faults.changed.wait_for(&mut table, until.since(now));
            }
            None => faults.changed.wait(&mut table),
        }
    }
}

impl Engine for FaultEngine {
    fn kind(&self) -> EngineKind {
        self.inner.kind()
    }

    fn wake(&self, jobs: usize) {
        self.inner.wake(jobs);
    }

    fn wake_metadata(&self, jobs: usize) {
        self.inner.wake_metadata(jobs);
    }

    fn wake_lease(&self, jobs: usize) {
        self.inner.wake_lease(jobs);
    }

    fn make_threads(&self) -> Result<(), std::io::Error> {
        self.inner.make_threads()
    }

    fn abandon(&self, tag: Tag) {
        self.inner.abandon(tag);
    }

    fn threads(&self) -> usize {
        self.inner.threads()
    }

    /// Nothing new is pulled. What is held still has to end, and the engine below stops after that.
    fn stop(&self) {
        let mut table = self.faults.table.lock();
        table.stopping = true;
        let pending = table.pending();
        drop(table);
        if pending == 0 {
            self.inner.stop();
        }
    }

    fn join(&self, limit: Option<Duration>) -> bool {
        let end = limit.map(|limit| self.clock.now().plus(limit));
        let left = |end: Time| end.since(self.clock.now());
        let mut table = self.faults.table.lock();
        while table.pending() > 0 {
            match end.map(left) {
                None => self.faults.changed.wait(&mut table),
                Some(left) if left.is_zero() => return false,
                Some(left) => {
                    // Whether it was the limit or a change of the table shows above.
                    self.faults.changed.wait_for(&mut table, left);
                }
            }
        }
        drop(table);
        self.inner.stop();
        self.inner.join(end.map(left))
    }
}

impl Drop for FaultEngine {
    fn drop(&mut self) {
        self.faults.table.lock().gone = true;
        self.faults.changed.notify_all();
        if let Some(timer) = self.timer.lock().take()
            && timer.thread().id() != std::thread::current().id()
        {
            // It ends at once; a panic of it has been printed.
            let _panic = timer.join();
        }
    }
}
