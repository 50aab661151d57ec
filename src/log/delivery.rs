//! The last step of a message: the callback that is set now, or stderr. Owned by the logger, used
//! by its thread.

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Condvar, Mutex};

use super::{Callback, Level, stderr};

struct Now {
    callback: Option<Arc<Callback>>,
    /// Counts the calls of [`Delivery::replace`]: which callback is meant.
    generation: u64,
    /// The generation of the callback that runs at the moment.
    running: Option<u64>,
    /// What goes to stderr where no callback is set.
    stderr: Option<Level>,
}

/// The callback, and whether it runs.
pub struct Delivery {
    now: Mutex<Now>,
    returned: Condvar,
}

/// A callback that was replaced and may still be running.
pub struct Replaced {
    callback: Option<Arc<Callback>>,
    generation: u64,
}

impl Delivery {
    /// No callback, and nothing goes to stderr.
    pub const fn new() -> Delivery {
        let now = Now { callback: None, generation: 0, running: None, stderr: None };
        Delivery { now: Mutex::new(now), returned: Condvar::new() }
    }

    /// Sets what goes to stderr.
    pub fn set_stderr(&self, level: Option<Level>) {
        self.now.lock().stderr = level;
    }

    /// The least important level that anybody wants.
    pub fn wanted(&self) -> Option<Level> {
        let now = self.now.lock();
        now.callback.as_ref().map(|callback| callback.level).or(now.stderr)
    }

    /// Whether a callback is set.
    pub fn has_callback(&self) -> bool {
        self.now.lock().callback.is_some()
    }

    /// Sets another callback; the earlier one is not called from now on.
    pub fn replace(&self, callback: Option<Callback>) -> Replaced {
        let mut now = self.now.lock();
        let generation = now.generation;
        now.generation += 1;
        let callback = std::mem::replace(&mut now.callback, callback.map(Arc::new));
        Replaced { callback, generation }
    }

    /// Waits until a replaced callback has returned, and drops it.
    pub fn await_return(&self, replaced: Replaced) {
        let mut now = self.now.lock();
        while now.running == Some(replaced.generation) {
            self.returned.wait(&mut now);
        }
        drop(now);
        drop(replaced.callback);
    }

    /// Gives a message to whoever wants it, with no lock held.
    pub fn deliver(&self, at: SystemTime, level: Level, id: &str, text: &str) {
        let mut now = self.now.lock();
        let Some(callback) = now.callback.clone() else {
            let wanted = now.stderr;
            drop(now);
            if wanted.is_some_and(|wanted| level <= wanted) {
                stderr::write(&stderr::line(at, level, id, text));
            }
            return;
        };
        now.running = Some(now.generation);
        drop(now);
        if level <= callback.level {
            call(&callback, level, id, text);
        }
        // Before `running` ends, so that the one who replaced it drops it last.
        drop(callback);
        self.now.lock().running = None;
        self.returned.notify_all();
    }
}

fn call(callback: &Callback, level: Level, id: &str, text: &str) {
    let (Ok(id), Ok(text)) = (CString::new(id), CString::new(text.replace('\0', "\u{fffd}")))
    else {
        return;
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (callback.call)(level, &id, &text))) {
        // The thread must go on. Dropping a panic payload may panic again; leaking it cannot.
        std::mem::forget(panic);
    }
}
