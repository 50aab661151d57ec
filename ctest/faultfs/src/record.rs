//! A record of every change, for a replay of what a power loss leaves of it: names made, changed
//! and removed, bytes written, syncs. `disk.rs` owns it and reports; whoever replays is
//! `ctest/powerloss/`, which has the same layout in `log.h`.
//!
//! Several mounts of one directory append to one file. A change of a name happens under the file's
//! lock, so that the order in the file is the order in which they happened. A write or sync is two
//! events: what lies between them has no order with it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use parking_lot::{Mutex, MutexGuard};

use crate::handle::OpenFile;

/// What an event is. The numbers are those of `log.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new file.
    Create = 1,
    /// A write begins: its data, and `detail` is 1 for a direct one.
    Write = 2,
    /// A write or sync has ended: `detail` is what was written, or 1; -1 where it failed.
    End = 3,
    /// A sync of a file begins.
    Sync = 4,
    /// A file has got another name.
    Rename = 5,
    /// A file has got a second name.
    Link = 6,
    /// A name is gone.
    Unlink = 7,
    /// A new directory.
    Mkdir = 8,
    /// A directory is gone.
    Rmdir = 9,
    /// A sync of a directory begins.
    SyncDir = 10,
    /// A file's length was changed to `offset`.
    Truncate = 11,
}

/// One event.
pub struct Event<'a> {
    /// What it is.
    pub kind: Kind,
    /// Joins its two halves.
    pub id: u64,
    /// The file's inode number.
    pub ino: u64,
    /// Where a write begins.
    pub offset: u64,
    /// See the kinds.
    pub detail: i64,
    /// The path, and the path that a rename or link makes.
    pub paths: [&'a str; 2],
    /// What is written.
    pub data: &'a [u8],
}

/// See the top of this file.
#[derive(Default)]
pub struct Record {
    file: Mutex<Option<File>>,
    last: AtomicU64,
}

/// Holds the order of names while one is changed.
pub struct Held<'a> {
    /// Between processes.
    _lock: Option<Flock<File>>,
    /// Between threads.
    file: MutexGuard<'a, Option<File>>,
}

impl Record {
    /// Records into the end of this file from now on, or no more.
    pub fn start(&self, path: Option<&str>) -> io::Result<()> {
        let open = |path| File::options().append(true).create(true).open(path);
        *self.file.lock() = path.map(open).transpose()?;
        Ok(())
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.file.lock().is_some()
    }

    /// A number that joins the halves of an event.
    pub fn next_id(&self) -> u64 {
        (u64::from(process::id()) << 32) | self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends an event that has no order with changes of names.
    pub fn add(&self, event: &Event<'_>) -> Result<(), Errno> {
        append(self.file.lock().as_ref(), event)
    }

    /// From here until it is dropped, no name changes elsewhere.
    pub fn hold(&self) -> Result<Held<'_>, Errno> {
        let file = self.file.lock();
        let lock = match file.as_ref() {
            None => None,
            Some(file) => {
                let own = file.try_clone().map_err(|_| Errno::EIO)?;
                Some(Flock::lock(own, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?)
            }
        };
        Ok(Held { _lock: lock, file })
    }

    /// A write or sync has ended.
    pub fn end(&self, id: u64, detail: i64) -> Result<(), Errno> {
        self.add(&Event { detail, id, ..Event::of(Kind::End, 0) })
    }
}

impl Held<'_> {
    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.file.is_some()
    }

    /// Appends what has just been done.
    pub fn add(&self, event: &Event<'_>) -> Result<(), Errno> {
        append(self.file.as_ref(), event)
    }
}

impl<'a> Event<'a> {
    /// Of this file.
    pub fn of(kind: Kind, ino: u64) -> Self {
        Self { kind, id: 0, ino, offset: 0, detail: 0, paths: ["", ""], data: &[] }
    }

    /// Of these paths.
    pub fn named(kind: Kind, path: &'a str, path_to: &'a str) -> Self {
        Self { paths: [path, path_to], ..Self::of(kind, 0) }
    }
}

/// The inode number of an open file.
pub fn ino_of(file: &OpenFile) -> Result<u64, Errno> {
    file.metadata().map(|metadata| metadata.ino())
}

/// One `write`, which an appending file does not mix with others.
fn append(file: Option<&File>, event: &Event<'_>) -> Result<(), Errno> {
    let Some(mut file) = file else { return Ok(()) };
    let length = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    let [path, path_to] = event.paths;
    let mut bytes = Vec::with_capacity(80 + path.len() + path_to.len() + event.data.len());
    let numbers = [
        event.kind as u64,
        u64::from(process::id()),
        event.id,
        event.ino,
        event.offset,
        event.detail.cast_unsigned(),
        length(path.len()),
        length(path_to.len()),
        length(event.data.len()),
    ];
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for part in [path.as_bytes(), path_to.as_bytes(), event.data] {
        bytes.extend_from_slice(part);
    }
    file.write_all(&bytes).map_err(|_| Errno::EIO)
}
