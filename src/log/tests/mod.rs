//! Tests of the log (R91), each with a log of its own; only those of `lines` use the process's.

mod callback;
mod lines;
mod thread;

use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use parking_lot::Mutex;

use super::logger::Logger;
use super::{Callback, Level, REPEAT_WINDOW_S};
use crate::clock::Clock;

/// Longer than anything here takes, however busy the machine.
const LONG: Duration = Duration::from_secs(60);

/// A message as a callback got it.
type Got = (Level, String, String);

/// A log without stderr whose clock the test moves.
fn quiet_log() -> (&'static Logger, Clock) {
    log_with_stderr(|| None)
}

fn log_with_stderr(level: fn() -> Option<Level>) -> (&'static Logger, Clock) {
    let clock = Clock::manual();
    let log = Box::leak(Box::new(Logger::new(level)));
    log.set_clock(clock.clone());
    (log, clock)
}

/// A callback for everything, made of a function.
fn callback(run: impl Fn(Level, &str, &str) + Send + Sync + 'static) -> Option<Callback> {
    let call = move |level: Level, id: &CStr, text: &CStr| {
        run(level, id.to_str().unwrap(), text.to_str().unwrap());
    };
    Some(Callback { level: Level::Debug, call: Box::new(call) })
}

/// A callback that keeps what it gets.
fn keeper() -> (Option<Callback>, Arc<Mutex<Vec<Got>>>) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let keeping =
        callback(move |level, id, text| keep.lock().push((level, id.into(), text.into())));
    (keeping, kept)
}

/// Emits so that no message counts as a repeat of the one before.
fn emit_apart(log: &Logger, clock: &Clock, text: &str) {
    clock.advance(Duration::from_secs(REPEAT_WINDOW_S));
    log.emit(Level::Info, "KV9000", text);
}

/// A callback that tells when it was entered, and returns when it is let go.
struct Held {
    entered: Receiver<String>,
    /// Dropped to let this call and all later ones go.
    hold: Option<crossbeam_channel::Sender<()>>,
}

fn held() -> (Option<Callback>, Held) {
    let (entering, entered) = unbounded();
    let (hold, held) = unbounded::<()>();
    let holding = callback(move |_, _, text| {
        entering.send(text.to_string()).unwrap();
        assert!(held.recv().is_err());
    });
    (holding, Held { entered, hold: Some(hold) })
}
