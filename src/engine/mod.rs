//! Floor 2: how bytes move. An [`Engine`] runs [`Op`]s of one backend (a lane) and knows nothing of
//! tasks, blocks, routing or health.
//!
//! An engine *pulls*: it asks its [`Source`] for the next op exactly when it can start it, so that
//! waiting is never held against a backend (R28). Each pulled op ends with exactly one
//! [`Source::complete`]. The order of steps (create, write, rename, …) is decided above, once, for
//! all engines.

pub mod aio;
pub mod buffers;
#[cfg(test)]
pub mod conformance;
#[cfg(any(test, feature = "fault"))]
pub mod fault;
pub mod gate;
mod habits;
pub mod host;
pub mod memory;
pub mod pool;
pub mod psync;
pub mod select;
pub mod survey;
pub mod uring;

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::error::Failure;
pub use crate::posix::space::Space;
pub use gate::Gate;
pub use memory::{Memory, Segment};
pub use survey::{Kind, Seen, Surveyor};

/// Names one accepted op. Never used twice while a store is open, so a late completion is
/// recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u64);

/// One whole step on one path.
#[derive(Debug)]
pub struct Op {
    /// Comes back with the completion.
    pub tag: Tag,
    /// What to do.
    pub kind: OpKind,
    /// Asked before every step, and held while the caller's memory is touched.
    pub gate: Arc<Gate>,
    /// How long a *local* shortage (EMFILE, ENFILE, ENOMEM, EAGAIN) may be waited out before the op
    /// ends with its errno (R22).
    pub local_limit: Duration,
}

/// The steps there are.
#[derive(Debug)]
pub enum OpKind {
    /// Open, check the size, read, close. Bytes land in `memory`.
    Read(Transfer),
    /// Open or create, write, close. Bytes come from `memory`.
    Write(Transfer),
    /// Rename a temporary to its final name.
    Rename {
        /// The temporary.
        from: CString,
        /// The final name.
        to: CString,
        /// Fail with EEXIST where `to` exists (`RENAME_NOREPLACE`).
        no_replace: bool,
    },
    /// Open, `fdatasync`, close. A directory's entries are made durable in the same way.
    Sync {
        /// The file or directory.
        path: CString,
        /// The path is a directory.
        directory: bool,
    },
    /// Open a file, set its length (it has it already, as its writers have left it), close.
    SetLength(CString, u64),
    /// Ask kind and size without following a symbolic link in the last component.
    Stat {
        /// The file.
        path: CString,
    },
    /// Ask many files, one after another.
    StatMany(Arc<FileList>),
    /// Remove a file.
    Unlink {
        /// The file.
        path: CString,
    },
    /// Make one directory; EEXIST is success where a real directory is there.
    MakeDir {
        /// The directory.
        path: CString,
        /// Its mode, not subject to the umask (R9).
        mode: u32,
    },
    /// Read a small file whole, at most 4096 bytes (the marker of R8).
    ReadSmall {
        /// The file.
        path: CString,
    },
    /// List the entries of a directory whose names contain `filter`.
    List {
        /// The directory.
        path: CString,
        /// What the names must contain.
        filter: &'static str,
    },
    /// Set a file's mtime to the storage's now.
    Touch {
        /// The file.
        path: CString,
    },
    /// Set the mtime of many files, one after another.
    TouchMany(Arc<FileList>),
    /// Ask how much room the file system has.
    Space {
        /// A directory on it.
        path: CString,
    },
    /// Show every name of a directory.
    Survey {
        /// The directory.
        path: CString,
        /// To whom.
        to: Arc<dyn Surveyor>,
    },
    /// Make a directory that nobody else has made.
    Claim {
        /// The directory.
        path: CString,
        /// Its mode (R9).
        mode: u32,
    },
    /// Remove an empty directory.
    RemoveDir {
        /// The directory.
        path: CString,
    },
    /// Set a file's mtime to the storage's now, and tell what that is.
    Stamp {
        /// The file.
        path: CString,
        /// Make it, with this mode less the umask, where it is missing.
        create: Option<u32>,
    },
    /// Remove a file, unless it was used since it had this mtime.
    RemoveCold {
        /// The file.
        path: CString,
        /// Nanoseconds of the storage's clock.
        mtime_ns: i64,
    },
    /// Rename a regular file that has not this size, and make the directory of its new name.
    SetAside {
        /// The file.
        from: CString,
        /// The directory of its new name.
        dir: CString,
        /// That directory's mode (R9).
        mode: u32,
        /// The new name.
        to: CString,
        /// The size of what stays where it is.
        bytes: u64,
    },
}

/// A read or a write of one range of one file.
#[derive(Debug)]
pub struct Transfer {
    /// The file, by full path (R35).
    pub path: CString,
    /// Where the range starts in the file, in bytes.
    pub offset: u64,
    /// The caller's memory; its total length is the range's length.
    pub memory: Arc<Memory>,
    /// I/O runs on memory that the engine owns (R30); `false`: on the caller's (R32).
    pub isolated: bool,
    /// Use `O_DIRECT`; what is not aligned goes through aligned memory (R33).
    pub direct: bool,
    /// The length that the whole file must have. A read checks it after opening.
    pub file_bytes: u64,
    /// A write creates the file, exclusively, with this mode less the umask (R5, R9).
    pub create: Option<u32>,
    /// A creating write asks for space, on a device for the length too: writers run side by side.
    pub reserve: bool,
    /// A write ends with `fdatasync` before it closes.
    pub sync: bool,
}

/// Many files to ask or to touch, one after another. Shared by the op and by who judges its time:
/// each file has its own.
#[derive(Debug)]
pub struct FileList {
    /// The files, by full path.
    pub paths: Vec<CString>,
    /// The directory that all of them are below, if that is known: an engine may look from there
    /// for as long as the op runs, and no longer (R35).
    pub root: Option<CString>,
    clock: Clock,
    moved_ns: AtomicU64,
}

impl FileList {
    /// A list of which nothing has been asked.
    #[must_use]
    pub fn new(paths: Vec<CString>, clock: Clock) -> FileList {
        FileList { paths, root: None, clock, moved_ns: AtomicU64::new(0) }
    }

    /// Says that every path starts with `root`, which ends with `/`.
    #[must_use]
    pub fn below(self, root: CString) -> FileList {
        FileList { root: Some(root), ..self }
    }

    /// The engine begins with the next file.
    pub fn begin_file(&self) {
        let nanos = u64::try_from(self.clock.now().0.as_nanos()).unwrap_or(u64::MAX);
        self.moved_ns.store(nanos, Ordering::Relaxed);
    }

    /// When the present file was begun.
    #[must_use]
    pub fn began_file(&self) -> Time {
        Time(Duration::from_nanos(self.moved_ns.load(Ordering::Relaxed)))
    }
}

/// What kind of file a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileInfo {
    /// Bytes, for a regular file; `None` for anything else.
    pub bytes: Option<u64>,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory.
    pub name: String,
    /// Its mtime, in seconds of the storage's clock.
    pub mtime_s: i64,
}

/// What an op that succeeded gives.
#[derive(Debug, PartialEq, Eq)]
pub enum Done {
    /// Nothing to tell (rename, sync, unlink, mkdir, touch, and a read).
    Unit,
    /// A write; says whether the bytes survive without a further sync through this path.
    Written {
        /// Direct, or synced.
        durable: bool,
    },
    /// The file's kind and size.
    Info(FileInfo),
    /// One answer a path; `None` = no such file. A failure ends the list: the rest was not asked.
    Infos(Vec<Option<FileInfo>>, Option<Failure>),
    /// The small file.
    Bytes(Vec<u8>),
    /// The directory's entries.
    Entries(Vec<Entry>),
    /// One answer a path: touched, or the errno that says something about this one file (it is not
    /// there, or not ours). Any other failure ends the list: the rest was not touched.
    Touched(Vec<Result<(), i32>>, Option<Failure>),
    /// Room of the file system.
    Space(Space),
    /// Nothing was done, for things are not so: the name is taken, the directory is in use, the
    /// file was used meanwhile, or has the right size.
    Left,
    /// The storage's now, in nanoseconds.
    Stamp(i64),
}

/// How an op ended.
pub type Outcome = Result<Done, Failure>;

/// Which ops an engine can start right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Anything.
    Any,
    /// Reads and writes only.
    Transfers,
    /// Everything but reads and writes.
    Metadata,
    /// Steps of the collector's lease only.
    Lease,
}

/// Where an engine takes its work from and brings it back to. The lane of the store implements it;
/// the fault decorator wraps one.
pub trait Source: Send + Sync {
    /// The next op, which the caller starts at once. `None`: nothing to do now; the engine is woken
    /// by [`Engine::wake`] when there is. Never blocks on I/O.
    fn pull(&self, want: Want) -> Option<Op>;

    /// An op ended. The engine has let go of its memory and its descriptors.
    fn complete(&self, tag: Tag, outcome: Outcome);
}

/// Which engine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// Blocking calls on a pool of threads.
    Psync,
    /// Linux AIO.
    Aio,
    /// `io_uring`.
    IoUring,
}

impl EngineKind {
    /// The word of `posix_io_engine`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            EngineKind::Psync => "psync",
            EngineKind::Aio => "aio",
            EngineKind::IoUring => "io_uring",
        }
    }

    /// How many transfers find a buffer of a lane that has these, whatever each of them takes.
    #[must_use]
    pub fn buffered(self, buffer_bytes: u64, transfers: usize, file_bytes: u64) -> usize {
        let slots = buffers::slots(buffer_bytes, transfers, file_bytes).1;
        if self == EngineKind::Aio { aio::buffered(slots) } else { slots }
    }
}

/// One lane's engine. All methods return at once, `join` apart.
pub trait Engine: Send + Sync {
    /// Which engine runs.
    fn kind(&self) -> EngineKind;

    /// Tells that up to `jobs` more ops can be pulled. As many workers are woken as there is work;
    /// where none is idle and another may be made, the supervisor is asked for it.
    fn wake(&self, jobs: usize);

    /// As [`Engine::wake`], for ops that an engine with several kinds of threads gives to those
    /// that make blocking calls: lookups and listings.
    fn wake_metadata(&self, jobs: usize) {
        self.wake(jobs);
    }

    /// As [`Engine::wake_metadata`], for steps of the collector's lease: however many other ops
    /// hang, one of these can start (R36, R83).
    fn wake_lease(&self, jobs: usize) {
        self.wake_metadata(jobs);
    }

    /// Makes the threads that were asked for. Only the supervisor calls it, so that threads inherit
    /// its affinity (R57). Returns an errno text where a thread could not be made (tried again by
    /// the caller).
    ///
    /// # Errors
    /// The system's refusal to make a thread.
    fn make_threads(&self) -> Result<(), std::io::Error>;

    /// An op that is still in the kernel was given up: its worker no longer counts, and may be
    /// replaced.
    fn abandon(&self, tag: Tag);

    /// Threads alive now, those of abandoned ops included.
    fn threads(&self) -> usize;

    /// Stops pulling; idle threads end at once, busy ones after their op.
    fn stop(&self);

    /// Waits until every thread has ended, at most `limit` (`None`: as long as it takes). Says
    /// whether all have.
    fn join(&self, limit: Option<Duration>) -> bool;
}

/// Rings the supervisor: a lane asks for threads.
pub type Bell = Arc<dyn Fn() + Send + Sync>;

/// What every engine is made from.
#[derive(Clone)]
pub struct EngineParams {
    /// The backend's number, for thread names: `ucm_posix_<index>_<n>`.
    pub index: usize,
    /// Most transfers in flight.
    pub transfers: usize,
    /// Most metadata ops in flight.
    pub metadata: usize,
    /// Most bytes of buffers that the engine may own, those of abandoned ops included.
    pub buffer_bytes: u64,
    /// As much of a file (R1 `block_size`) as a buffer is to hold.
    pub file_bytes: u64,
    /// Rings the supervisor.
    pub bell: Bell,
}
