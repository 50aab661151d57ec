//! The log (R91). STUB: replaced by the real one.
use std::ffi::CStr;

use crate::error::Error;

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
    /// The number that crosses the C ABI.
    #[must_use]
    pub fn code(self) -> i32 {
        self as i32
    }

    /// The level of a number.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Level> {
        [Level::Error, Level::Warn, Level::Info, Level::Debug]
            .into_iter()
            .find(|l| l.code() == code)
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

/// Held while a store is open or being opened: the log's thread lives as long as one of these does. Dropping the
/// last one delivers what is queued and ends the thread.
#[derive(Debug)]
pub struct Lease(());

/// Begins to use the log.
#[must_use]
pub fn lease() -> Lease {
    Lease(())
}

/// Queues a message; never blocks, never calls back on this thread. `id` is stable ("KV1001").
pub fn emit(level: Level, id: &'static str, text: &str) {
    let _unused = (level, id, text);
}

/// Sets or unsets the callback (see `kvpath_set_log_callback`).
///
/// # Errors
/// `InvalidParam` from inside the callback.
pub fn set_callback(_callback: Option<Callback>) -> Result<(), Error> {
    Ok(())
}

/// Refuses `function` on the log's own thread.
///
/// # Errors
/// `InvalidParam` from inside the callback.
pub fn refuse_in_callback(_function: &str) -> Result<(), Error> {
    Ok(())
}
