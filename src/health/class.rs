//! What a failure means (R22): one table from step and cause to a class, and from a class to what
//! the caller of the C ABI gets.
//!
//! Pure. The class decides who tries again and whether the backend's window hears of it; the core
//! acts on it.

use crate::config::FailureScope;
use crate::error::{Cause, Error, Failure, Status, Step};

/// What the store was doing. The words are those of texts, logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reading shards of a block.
    Load,
    /// Writing shards of a block.
    Dump,
    /// Giving a block its name, syncs included.
    Commit,
    /// Asking whether a block is there.
    Lookup,
    /// Removing a block.
    Remove,
    /// Refreshing a block's heat (R64).
    Hotness,
    /// Collecting, sweeping, and what the lease needs (R80–R86).
    Collect,
    /// Asking for room (R90): never an outcome.
    Space,
    /// Verifying the marker for another operation (R24).
    Mount,
    /// A probe (R50).
    Probe,
    /// A check at open (R10).
    Startup,
}

impl Operation {
    /// The word of texts, logs and metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Operation::Load => "load",
            Operation::Dump => "dump",
            Operation::Commit => "commit",
            Operation::Lookup => "lookup",
            Operation::Remove => "remove",
            Operation::Hotness => "hotness",
            Operation::Collect => "collect",
            Operation::Space => "space",
            Operation::Mount => "mount",
            Operation::Probe => "probe",
            Operation::Startup => "start-up",
        }
    }

    /// ENOENT says that a block is not there, and nothing about the path.
    fn misses(self) -> bool {
        match self {
            Operation::Load
            | Operation::Lookup
            | Operation::Remove
            | Operation::Hotness
            | Operation::Collect => true,
            Operation::Dump
            | Operation::Commit
            | Operation::Space
            | Operation::Mount
            | Operation::Probe
            | Operation::Startup => false,
        }
    }
}

/// What is to blame for a failure: the cause that logs and reports show (R25).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blame {
    /// What the store was doing.
    pub operation: Operation,
    /// The step that failed.
    pub step: Step,
    /// errno, where the kernel gave one.
    pub errno: Option<i32>,
    /// Step and cause for a person: "read: errno 5 (EIO: I/O error)".
    pub text: String,
}

impl Blame {
    /// What `failure` says about `operation`.
    #[must_use]
    pub fn new(operation: Operation, failure: &Failure) -> Blame {
        Blame { operation, step: failure.step, errno: failure.os(), text: failure.to_string() }
    }
}

/// A call that a file system need not have; its refusal is no failure of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Optional {
    /// `renameat2` with flags.
    RenameFlags,
    /// `fallocate`.
    Reserve,
    /// The dio fields of `statx`.
    Alignment,
    /// `link`.
    Link,
}

/// Where a failure happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// What the store was doing.
    pub operation: Operation,
    /// The failed call was one that a file system need not have.
    pub optional: Option<Optional>,
    /// `failure_scope`.
    pub scope: FailureScope,
}

impl Context {
    /// A context without an optional call.
    #[must_use]
    pub fn new(operation: Operation, scope: FailureScope) -> Context {
        Context { operation, optional: None, scope }
    }
}

/// The classes of R22, success apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The block is not there: no outcome, no retry.
    NotFound,
    /// This host is short of something, or called wrongly: no outcome, no other backend.
    Local {
        /// Worth trying again here, until the attempt's limit.
        again: bool,
    },
    /// The storage is full: no outcome, next backend.
    Capacity,
    /// The path is to blame: an outcome, next backend.
    Path,
    /// One file or directory of the collector's is, as far as anybody knows: no outcome, next
    /// backend.
    File,
    /// The block's file is unusable (R23): no outcome, no other backend.
    WrongSize,
    /// An optional call was refused: remembered, and the plain form is used.
    Unsupported,
}

impl Class {
    /// The word of logs and metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Class::NotFound => "not_found",
            Class::Local { .. } => "local",
            Class::Capacity => "capacity",
            Class::Path => "path",
            Class::File => "file",
            Class::WrongSize => "wrong_size",
            Class::Unsupported => "unsupported",
        }
    }

    /// Goes into the backend's window as a failure.
    #[must_use]
    pub fn counts(self) -> bool {
        self == Class::Path
    }

    /// The next candidate is tried.
    #[must_use]
    pub fn fails_over(self) -> bool {
        matches!(self, Class::Path | Class::File | Class::Capacity)
    }
}

/// The table of R22.
#[must_use]
pub fn classify(failure: &Failure, context: Context) -> Class {
    match failure.cause {
        Cause::Errno(errno) => classify_errno(errno, context),
        Cause::WrongSize { .. } => Class::WrongSize,
        // Nothing was learned: the attempt was ended from outside.
        Cause::GivenUp => Class::Local { again: false },
        Cause::Reserve(_) => Class::Capacity,
        Cause::NoProgress
        | Cause::Differs(_)
        | Cause::NotTheStorage(_)
        | Cause::TimedOut(_)
        | Cause::TooManyAbandoned(_) => Class::Path,
    }
}

fn classify_errno(errno: i32, context: Context) -> Class {
    if errno == libc::ENOENT && context.operation.misses() {
        return Class::NotFound;
    }
    if context.optional.is_some_and(|call| is_refusal(errno, call)) {
        return Class::Unsupported;
    }
    let is_permission = matches!(errno, libc::EPERM | libc::EACCES);
    if is_permission && matches!(context.operation, Operation::Hotness | Operation::Collect) {
        // A file of another owner says nothing about the path, in either scope.
        return Class::Local { again: false };
    }
    if context.scope == FailureScope::Any {
        return Class::Path;
    }
    match errno {
        libc::EINTR | libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN => {
            Class::Local { again: true }
        }
        libc::EFAULT | libc::ENOSYS => Class::Local { again: false },
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Class::Capacity,
        // Two files that no path can remove would exclude all paths. What is wrong with the path
        // shows in business I/O, in its marker, and in the time-outs of collection.
        _ if context.operation == Operation::Collect => Class::File,
        _ => Class::Path,
    }
}

/// The file system does not have this call.
#[must_use]
pub fn is_refusal(errno: i32, call: Optional) -> bool {
    match errno {
        libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP => true,
        libc::EPERM => call == Optional::Link,
        _ => false,
    }
}

/// The status that a caller gets for a failure of this class.
#[must_use]
pub fn status(failure: &Failure, class: Class) -> Status {
    match (class, &failure.cause) {
        (Class::NotFound | Class::WrongSize, _) => Status::NotFound,
        (Class::Capacity, _) => Status::NoSpace,
        // With `failure_scope: "any"` a full disk is a path failure, and still a full disk.
        (_, Cause::Errno(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)) => Status::NoSpace,
        (_, Cause::TimedOut(_)) => Status::Timeout,
        _ => Status::OsError,
    }
}

/// The error that a caller gets: status, detail and text.
#[must_use]
pub fn caller_error(path: &str, failure: &Failure, class: Class) -> Error {
    let error = Error::new(status(failure, class), text(path, failure));
    if class == Class::WrongSize { error.with_detail(Status::Corrupt) } else { error }
}

/// "backend PATH: read: errno 5 (EIO: I/O error)".
#[must_use]
pub fn text(path: &str, failure: &Failure) -> String {
    format!("backend {path}: {failure}")
}

/// What to do about a full storage; `None` where it is something else.
#[must_use]
pub fn remedy(failure: &Failure) -> Option<&'static str> {
    match failure.cause {
        Cause::Errno(libc::ENOSPC) => {
            Some("free space or inodes on this file system, or enlarge it, and open again")
        }
        Cause::Errno(libc::EDQUOT) => Some("raise the quota, or remove files, and open again"),
        Cause::Errno(libc::EFBIG) => {
            Some("raise the largest file size (ulimit -f, or the file system's), and open again")
        }
        _ => None,
    }
}

/// The failed call was an attempt to use `O_DIRECT`, and the file system takes none.
#[must_use]
pub fn refuses_direct(failure: &Failure) -> bool {
    matches!(failure.step, Step::Open | Step::Write)
        && matches!(failure.cause, Cause::Errno(libc::EINVAL | libc::EOPNOTSUPP))
}
