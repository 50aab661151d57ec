//! The queue and the life of the log's thread. The process has one [`Logger`]; tests make more.
//!
//! Locks are leaf locks except `control`, under which the others are taken; none is held while a
//! callback runs, a thread is joined or a message is sent. `emit` never takes `control`.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{Pid, gettid};
use parking_lot::Mutex;

use super::delivery::Delivery;
use super::repeats::{Repeats, Verdict};
use super::{Callback, LOST_ID, Lease, Level, PIN_ID, QUEUE_MAX, TEXT_BYTES_MAX, THREAD_NAME};
use crate::clock::Clock;
use crate::error::{Error, Status};

thread_local! {
    static ON_LOG_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// See [`super::refuse_in_callback`].
pub fn refuse_in_callback(function: &str) -> Result<(), Error> {
    if ON_LOG_THREAD.get() {
        let text =
            format!("{function} was called from the log callback, which may not call kvpath");
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// A message in the queue.
struct Message {
    at: SystemTime,
    level: Level,
    id: &'static str,
    text: String,
}

/// The thread that runs now.
struct Worker {
    thread: JoinHandle<()>,
    /// Its kernel id, 0 until it has begun.
    tid: Arc<AtomicI32>,
}

/// Who uses the log, and the thread. Owned by those who come, go and set the callback.
struct Control {
    leases: usize,
    worker: Option<Worker>,
    /// Ends when the latest thread has ended: two never deliver at a time, so the order stays.
    ended: Option<Receiver<()>>,
    cores: Vec<usize>,
    /// Stack of the thread; `None`: as the system does.
    stack_bytes: Option<usize>,
}

/// A thread that was told to end.
#[must_use]
struct Stopped {
    queue: Option<Sender<Message>>,
    worker: Option<Worker>,
    /// Of that worker.
    ended: Option<Receiver<()>>,
}

/// A log.
pub struct Logger {
    control: Mutex<Control>,
    queue: Mutex<Option<Sender<Message>>>,
    repeats: Mutex<Repeats>,
    delivery: Delivery,
    /// The code of the least important level that anybody wants; 0 for none.
    wanted: AtomicI32,
    /// Messages that found no room or no thread, not told yet.
    lost: AtomicU64,
    clock: OnceLock<Clock>,
    stderr_level: fn() -> Option<Level>,
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logger").finish_non_exhaustive()
    }
}

impl Logger {
    /// A log that nobody uses yet. `stderr_level` is asked when its use begins.
    pub const fn new(stderr_level: fn() -> Option<Level>) -> Logger {
        let control =
            Control { leases: 0, worker: None, ended: None, cores: Vec::new(), stack_bytes: None };
        Logger {
            control: Mutex::new(control),
            queue: Mutex::new(None),
            repeats: Mutex::new(Repeats::new()),
            delivery: Delivery::new(),
            wanted: AtomicI32::new(0),
            lost: AtomicU64::new(0),
            clock: OnceLock::new(),
            stderr_level,
        }
    }

    /// See [`super::lease`].
    pub fn lease(&'static self) -> Lease {
        // The thread's own callback must not wait for those who wait for it.
        if ON_LOG_THREAD.get() {
            return Lease { log: None };
        }
        let mut control = self.control.lock();
        if control.leases == 0 {
            self.delivery.set_stderr((self.stderr_level)());
        }
        control.leases += 1;
        if self.update_wanted() && self.start(&mut control).is_err() {
            // Nobody can be told; `emit` counts, and the next lease tries again.
        }
        Lease { log: Some(self) }
    }

    /// The end of a lease; the last one waits for the thread, at most `limit`. `false`: the limit
    /// passed first.
    pub fn leave(&'static self, limit: Option<Duration>) -> bool {
        let mut control = self.control.lock();
        control.leases -= 1;
        if control.leases > 0 {
            return true;
        }
        control.cores.clear();
        let stopped = self.stop(&mut control);
        drop(control);
        stopped.join(limit)
    }

    /// See [`super::has_callback`].
    pub fn has_callback(&self) -> bool {
        self.delivery.has_callback()
    }

    /// See [`super::emit`].
    pub fn emit(&self, level: Level, id: &'static str, text: &str) {
        if level.code() > self.wanted.load(Ordering::Relaxed) {
            return;
        }
        let now = self.clock.get_or_init(Clock::monotonic).now();
        let left_out = match self.repeats.lock().judge(level, id, now) {
            Verdict::Pass(left_out) => left_out,
            Verdict::LeaveOut => return,
        };
        let mut text = cut(text);
        if left_out > 0 {
            text.push_str(&format!(" ({left_out} more of {id} were left out before)"));
        }
        let queue = self.queue.lock().clone();
        let message = Message { at: SystemTime::now(), level, id, text };
        if queue.is_none_or(|queue| queue.try_send(message).is_err()) {
            self.lost.fetch_add(1 + left_out, Ordering::Relaxed);
        }
    }

    /// See [`super::set_callback`].
    pub fn set_callback(&'static self, callback: Option<Callback>) -> Result<(), Error> {
        refuse_in_callback("kvpath_set_log_callback")?;
        let mut control = self.control.lock();
        if callback.is_some() && control.leases > 0 {
            self.start(&mut control)?;
        }
        let replaced = self.delivery.replace(callback);
        let stopped = (!self.update_wanted()).then(|| self.stop(&mut control));
        drop(control);
        self.delivery.await_return(replaced);
        if let Some(stopped) = stopped {
            // Without a limit it has ended.
            let _ended = stopped.join(None);
        }
        Ok(())
    }

    /// See [`super::pin`].
    pub fn pin(&self, cores: &[usize]) -> Result<(), Error> {
        let mut control = self.control.lock();
        control.cores = cores.to_vec();
        // A worker in `control` was not told to end, so its id cannot belong to another thread.
        match &control.worker {
            Some(worker) => pin_thread(worker.tid.load(Ordering::SeqCst), cores),
            None => Ok(()),
        }
    }

    /// Whether anybody wants anything.
    fn update_wanted(&self) -> bool {
        let wanted = self.delivery.wanted();
        self.wanted.store(wanted.map_or(0, Level::code), Ordering::Relaxed);
        wanted.is_some()
    }

    fn start(&'static self, control: &mut Control) -> Result<(), Error> {
        if control.worker.is_some() {
            return Ok(());
        }
        let (queue, messages) = bounded(QUEUE_MAX);
        let (ends, ended) = bounded(0);
        let before = control.ended.clone();
        let tid = Arc::new(AtomicI32::new(0));
        let own_tid = Arc::clone(&tid);
        let thread = spawn_without_signals(control.stack_bytes, move || {
            self.begin(&own_tid);
            if let Some(before) = before {
                // Nothing is ever sent: this returns when the thread before has ended.
                match before.recv() {
                    Ok(()) | Err(_) => {}
                }
            }
            self.run(&messages);
            drop::<Sender<()>>(ends);
        })?;
        control.worker = Some(Worker { thread, tid });
        control.ended = Some(ended);
        *self.queue.lock() = Some(queue);
        Ok(())
    }

    fn stop(&self, control: &mut Control) -> Stopped {
        let (queue, worker) = (self.queue.lock().take(), control.worker.take());
        Stopped { queue, worker, ended: control.ended.clone() }
    }

    /// The thread's first steps, before it may wait.
    fn begin(&self, own_tid: &AtomicI32) {
        ON_LOG_THREAD.set(true);
        let control = self.control.lock();
        let tid = gettid().as_raw();
        own_tid.store(tid, Ordering::SeqCst);
        if let Err(error) = pin_thread(tid, &control.cores) {
            drop(control);
            self.emit(Level::Warn, PIN_ID, &error.text);
        }
    }

    /// The thread: delivers until nobody can send any more, and then what was left out.
    fn run(&self, messages: &Receiver<Message>) {
        for Message { at, level, id, text } in messages {
            self.tell_lost();
            self.delivery.deliver(at, level, id, &text);
        }
        self.tell_lost();
        let left_out = self.repeats.lock().take_left_out();
        for (level, id, count) in left_out {
            let text = format!("{count} more of {id} were left out");
            self.delivery.deliver(SystemTime::now(), level, id, &text);
        }
    }

    fn tell_lost(&self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        // As important as its listener can hear: what was lost may have been errors.
        if lost > 0
            && let Some(wanted) = self.delivery.wanted()
        {
            let text =
                format!("{lost} messages were left out: the log could not take them in time");
            self.delivery.deliver(SystemTime::now(), wanted.min(Level::Warn), LOST_ID, &text);
        }
    }
}

#[cfg(test)]
impl Logger {
    /// Lets a test move the clock; before the first message.
    pub fn set_clock(&self, clock: Clock) {
        assert!(self.clock.set(clock).is_ok());
    }

    /// The stack of threads that are made from now on.
    pub fn set_stack_bytes(&self, bytes: usize) {
        self.control.lock().stack_bytes = Some(bytes);
    }

    /// The thread: `None` where there is none, 0 where it has not begun.
    pub fn tid(&self) -> Option<i32> {
        self.control.lock().worker.as_ref().map(|worker| worker.tid.load(Ordering::SeqCst))
    }
}

impl Stopped {
    /// Lets the thread end once it has delivered what is queued, and waits for that, at most
    /// `limit`. `false`: the limit passed first.
    fn join(self, limit: Option<Duration>) -> bool {
        drop(self.queue);
        // On the thread itself (a lease that ends inside the callback) waiting would be for ever.
        if let Some(worker) = self.worker.filter(|_| !ON_LOG_THREAD.get()) {
            if let (Some(limit), Some(ended)) = (limit, self.ended)
                && ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout)
            {
                return false;
            }
            // An error would be a panic of the thread, which has no step that panics.
            drop(worker.thread.join());
        }
        true
    }
}

fn cut(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_string();
    }
    let mut end = TEXT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// Makes the thread with every signal blocked from its first instruction on (R74).
fn spawn_without_signals(
    stack_bytes: Option<usize>,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let refused = |what: &dyn fmt::Display| {
        let text = format!("the log's thread {THREAD_NAME} cannot be made: {what}");
        Error::new(Status::OsError, text)
    };
    let before =
        SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(|errno| refused(&errno))?;
    let mut builder = std::thread::Builder::new().name(THREAD_NAME.into());
    if let Some(bytes) = stack_bytes {
        builder = builder.stack_size(bytes);
    }
    let thread = builder.spawn(body);
    before.thread_set_mask().map_err(|errno| refused(&errno))?;
    thread.map_err(|error| refused(&error))
}

fn pin_thread(tid: i32, cores: &[usize]) -> Result<(), Error> {
    // Without an id the thread has not begun; it will read the list itself.
    if cores.is_empty() || tid == 0 {
        return Ok(());
    }
    let mut set = CpuSet::new();
    let pinned = cores.iter().try_for_each(|core| set.set(*core));
    pinned.and_then(|()| sched_setaffinity(Pid::from_raw(tid), &set)).map_err(|errno| {
        let text = format!("{THREAD_NAME} cannot be pinned to the cores {cores:?}: {errno}");
        Error::new(Status::OsError, text)
    })
}
