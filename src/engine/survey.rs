//! A directory shown name by name to whoever asked for it, so that memory is bounded however many
//! names there are (R81).

use std::fmt::Debug;

/// What a directory says about one of its names.
pub use crate::posix::listing::Kind;

/// One name of a directory, looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// A regular file.
    pub file: bool,
    /// Its mtime, in nanoseconds of the storage's clock.
    pub mtime_ns: i64,
}

/// Who is shown the names. Called on a worker, one name after another, under no lock of anybody's.
pub trait Surveyor: Debug + Send + Sync {
    /// The directory is read from its beginning: what was shown before counts no more.
    fn begin(&self);

    /// Whether this name is to be looked at: one system call. `false`: it is of no interest, or its
    /// name was all there is to know.
    fn wants(&self, name: &str, kind: Kind) -> bool;

    /// A name that was wanted. What is gone by then is not shown.
    fn tell(&self, name: &str, seen: Seen);
}
