//! The two kinds of error: [`Error`] goes to the caller (a status and a text), [`Failure`] is what
//! one step on one path came back with (an operation and its cause) and decides what the store does
//! next (R22).
//!
//! Nothing here logs, retries or counts.

use std::fmt;

/// Status codes of the C ABI (R71). The numbers are the pipeline's and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An error that fits no other code.
    Error = -1,
    /// An argument or the configuration is wrong.
    InvalidParam = -50000,
    /// Memory could not be had.
    OutOfMemory = -50001,
    /// The operating system refused; the text names the operation and errno.
    OsError = -50002,
    /// The key exists already.
    DuplicateKey = -50003,
    /// Not now: not finished yet, or a table is full. Try again.
    Retry = -50004,
    /// No such block, or no such task handle.
    NotFound = -50005,
    /// Not possible in this role, on this system, or in this build.
    Unsupported = -50008,
    /// The storage is full.
    NoSpace = -50009,
    /// A time limit passed.
    Timeout = -50010,
    /// No backend is available.
    StoreUnhealthy = -50011,
    /// A block's file is not what was committed (a detail of `NotFound`, R23).
    Corrupt = -51000,
    /// The caller is a child made by `fork` of the process that opened stores (R73).
    Forked = -51001,
    /// The store is closed or closing.
    Closed = -51002,
    /// The caller cancelled the task before this shard was started.
    Cancelled = -51003,
}

/// Every status, in the order of the header.
pub const ALL_STATUSES: [Status; 16] = [
    Status::Ok,
    Status::Error,
    Status::InvalidParam,
    Status::OutOfMemory,
    Status::OsError,
    Status::DuplicateKey,
    Status::Retry,
    Status::NotFound,
    Status::Unsupported,
    Status::NoSpace,
    Status::Timeout,
    Status::StoreUnhealthy,
    Status::Corrupt,
    Status::Forked,
    Status::Closed,
    Status::Cancelled,
];

impl Status {
    /// The number that crosses the C ABI.
    #[must_use]
    pub fn code(self) -> i32 {
        self as i32
    }
}

/// An error for the caller: what, where and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// The code that the call returns.
    pub status: Status,
    /// A finer code where there is one (`Corrupt` beside `NotFound`), else the same as `status`.
    pub detail: Status,
    /// The whole story for a person: the operation, the path, errno with its text, or what
    /// differed.
    pub text: String,
}

impl Error {
    /// An error without a finer detail.
    pub fn new(status: Status, text: impl Into<String>) -> Error {
        Error { status, detail: status, text: text.into() }
    }

    /// The same error with a finer code.
    #[must_use]
    pub fn with_detail(mut self, detail: Status) -> Error {
        self.detail = detail;
        self
    }

    /// `InvalidParam` with a text.
    pub fn invalid(text: impl Into<String>) -> Error {
        Error::new(Status::InvalidParam, text)
    }
}

/// Which step on a path failed. The words are those of texts, logs, metrics and fault rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Making a directory.
    Mkdir,
    /// Opening a file, creating it included.
    Open,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// `fsync`, `fdatasync`.
    Fsync,
    /// Comparing what was read with what was written, or a root with its storage.
    Verify,
    /// Closing a file.
    Close,
    /// Removing a file.
    Remove,
    /// Giving a file its final name.
    Rename,
    /// Hard-linking a file.
    Link,
    /// Asking a file's size or kind.
    Stat,
    /// Listing a directory.
    List,
    /// Refreshing a file's times.
    Touch,
}

impl Step {
    /// The word for logs and texts.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Step::Mkdir => "mkdir",
            Step::Open => "open",
            Step::Read => "read",
            Step::Write => "write",
            Step::Fsync => "fsync",
            Step::Verify => "verify",
            Step::Close => "close",
            Step::Remove => "remove",
            Step::Rename => "rename",
            Step::Link => "link",
            Step::Stat => "stat",
            Step::List => "list",
            Step::Touch => "touch",
        }
    }
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The kernel's errno.
    Errno(i32),
    /// The file is not `expected` bytes long, or is no regular file (R23).
    WrongSize {
        /// What the file has; `None` for what is no regular file.
        found: Option<u64>,
        /// What a block has.
        expected: u64,
    },
    /// Zero bytes were written and no error was given (R34).
    NoProgress,
    /// What came back differs from what was expected; the text says how.
    Differs(String),
    /// The path does not show the storage that it showed at open (R24).
    NotTheStorage(String),
    /// The attempt passed its time limit of this many ms (R28).
    TimedOut(u64),
    /// The attempt was given up from outside; the step took no effect after that.
    GivenUp,
    /// The file system has less free than is to be kept (R85); the text has the figures.
    Reserve(String),
    /// So many operations hang on this backend that new ones are refused (R36).
    TooManyAbandoned(usize),
}

/// What one step on one path came back with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The step that failed.
    pub step: Step,
    /// Why.
    pub cause: Cause,
}

impl Failure {
    /// A failure with an errno.
    #[must_use]
    pub fn errno(step: Step, errno: i32) -> Failure {
        Failure { step, cause: Cause::Errno(errno) }
    }

    /// The cause in a word, for metrics.
    #[must_use]
    pub fn error_word(&self) -> ErrorWord {
        ErrorWord::Word(match self.cause {
            Cause::Errno(errno) => return ErrorWord::Errno(errno),
            Cause::WrongSize { .. } => "wrong_size",
            Cause::NoProgress => "no_progress",
            Cause::Differs(_) => "differs",
            Cause::NotTheStorage(_) => "not_the_storage",
            Cause::TimedOut(_) => "timed_out",
            Cause::Reserve(_) => "reserve",
            Cause::GivenUp => "given_up",
            Cause::TooManyAbandoned(_) => "too_many_abandoned",
        })
    }

    /// The errno, where the kernel gave one.
    #[must_use]
    pub fn os(&self) -> Option<i32> {
        match self.cause {
            Cause::Errno(errno) => Some(errno),
            _ => None,
        }
    }
}

/// A cause in a word: "EIO", "timed_out".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorWord {
    /// The kernel's errno.
    Errno(i32),
    /// What has no errno.
    Word(&'static str),
}

impl fmt::Display for ErrorWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorWord::Word(word) => f.write_str(word),
            ErrorWord::Errno(errno) => match nix::errno::Errno::from_raw(*errno) {
                nix::errno::Errno::UnknownErrno => write!(f, "{errno}"),
                known => write!(f, "{known:?}"),
            },
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step.word(), self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Errno(errno) => {
                let known = nix::errno::Errno::from_raw(*errno);
                write!(f, "errno {errno} ({known:?}: {})", known.desc())
            }
            Cause::WrongSize { found: Some(found), expected } => {
                write!(f, "the file has {found} bytes, a block has {expected}")
            }
            Cause::WrongSize { found: None, .. } => write!(f, "not a regular file"),
            Cause::NoProgress => write!(f, "no progress: 0 bytes written"),
            Cause::Differs(text) => write!(f, "{text}"),
            Cause::NotTheStorage(text) => write!(f, "not the storage: {text}"),
            Cause::TimedOut(limit_ms) => write!(f, "timed out after {limit_ms} ms"),
            Cause::GivenUp => write!(f, "given up"),
            Cause::Reserve(text) => write!(f, "{text}"),
            Cause::TooManyAbandoned(count) => {
                write!(f, "too many abandoned: {count} operations hang on this backend")
            }
        }
    }
}
