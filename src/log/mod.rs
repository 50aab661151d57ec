//! The log of the process (R91): messages go through a bounded queue to one thread of the library,
//! which calls the callback or writes to stderr.
//!
//! [`emit`] never waits, so it may be called with locks held. What is left out, because it repeats
//! or because the queue is full, is counted and told. The thread exists only while a [`Lease`] does
//! and there is something to deliver to; it sleeps until a message comes.
//! Deciding what is worth a message is not done here.

mod delivery;
mod logger;
mod repeats;
mod stderr;
#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::time::Duration;

use crate::error::Error;
use logger::Logger;

/// Messages that wait for the log's thread; more are left out, counted and told.
pub const QUEUE_MAX: usize = 1024;
/// Bytes of a message's text; a longer one is cut.
pub const TEXT_BYTES_MAX: usize = 8192;
/// Messages of one id that pass within [`REPEAT_WINDOW_S`]; more are left out, counted and told.
pub const REPEAT_BURST: u32 = 10;
/// See [`REPEAT_BURST`].
pub const REPEAT_WINDOW_S: u64 = 10;
/// The name of the log's thread.
pub const THREAD_NAME: &str = "ucm_posix_log";
/// The id of the message that tells how many did not fit into the queue.
pub const LOST_ID: &str = "KV0001";
/// The id of the message that tells that the log's thread could not be pinned.
pub const PIN_ID: &str = "KV0002";

/// How important a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Level {
    /// Only errors.
    Error = 1,
    /// What an operator should look at.
    Warn = 2,
    /// Changes of state.
    Info = 3,
    /// For the developers of kvpath.
    Debug = 4,
}

impl Level {
    /// All of them, the most important first.
    pub const ALL: [Level; 4] = [Level::Error, Level::Warn, Level::Info, Level::Debug];

    /// The number that crosses the C ABI.
    #[must_use]
    pub fn code(self) -> i32 {
        self as i32
    }

    /// The level of a number.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.code() == code)
    }

    /// The word for lines and for `KVPATH_LOG`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// What is called for each message.
pub type Call = Box<dyn Fn(Level, &CStr, &CStr) + Send + Sync>;

/// A callback and the least important level that it wants.
pub struct Callback {
    /// Messages above this level are not given.
    pub level: Level,
    /// The function.
    pub call: Call,
}

/// The one log of the process.
static LOG: Logger = Logger::new(stderr::level_from_environment);

/// Held while a store is open or being opened: the log's thread lives as long as one of these does.
/// Dropping the last one delivers what is queued and ends the thread, so it waits for a running
/// callback: drop it with no lock held that a callback may take.
#[derive(Debug)]
pub struct Lease {
    /// `None` where it was made inside the callback, which may not call kvpath: it keeps nothing.
    log: Option<&'static Logger>,
}

impl Lease {
    /// As dropping it, but a callback that does not return within `limit` is not waited for: its
    /// caller may hold what it waits for; nor is a stderr that takes nothing. The thread then ends
    /// by itself. Says whether it has ended, if it was to.
    pub fn end_within(mut self, limit: Duration) -> bool {
        self.log.take().is_none_or(|log| log.leave(Some(limit)))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(log) = self.log.take() {
            // Without a limit it has ended.
            let _ended = log.leave(None);
        }
    }
}

/// Begins to use the log. Never waits. Where the thread cannot be made, messages are counted
/// as left out until a later call makes it.
#[must_use]
pub fn lease() -> Lease {
    LOG.lease()
}

/// Queues a message; never blocks, never calls back on this thread. `id` is stable ("KV1001").
pub fn emit(level: Level, id: &'static str, text: &str) {
    LOG.emit(level, id, text);
}

/// Sets or unsets the callback (see `kvpath_set_log_callback`). After it has returned, the
/// earlier callback does not run any more and is dropped.
///
/// # Errors
/// `InvalidParam` from inside the callback; `OsError` where the thread cannot be made, with the
/// earlier callback still set.
pub fn set_callback(callback: Option<Callback>) -> Result<(), Error> {
    LOG.set_callback(callback)
}

/// Whether a callback is set: lines go to stderr otherwise.
#[must_use]
pub fn has_callback() -> bool {
    LOG.has_callback()
}

/// Refuses `function` on the log's own thread.
///
/// # Errors
/// `InvalidParam` from inside the callback.
pub fn refuse_in_callback(function: &str) -> Result<(), Error> {
    logger::refuse_in_callback(function)
}

/// Keeps the log's thread on `cores` (R57) until the last lease is dropped; the latest call counts.
/// An empty list changes nothing.
///
/// # Errors
/// `OsError` where the thread may run on none of them.
pub fn pin(cores: &[usize]) -> Result<(), Error> {
    LOG.pin(cores)
}
