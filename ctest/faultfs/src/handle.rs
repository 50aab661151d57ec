//! Open files and directories by the number that the kernel uses for them, and how bytes move in
//! and out of files. `disk.rs` owns the table.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fuser::FileType;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek64};
use parking_lot::Mutex;

use crate::attr::errno_of;
use crate::rule::Tweak;

/// Offsets and lengths of direct I/O must be multiples of this, as on a disk.
const SECTOR_BYTES: usize = 512;
/// What a flipped byte is changed by.
const FLIP_BITS: u8 = 0xff;

/// An open file of the real directory.
pub struct OpenFile {
    /// The real file; without `O_DIRECT`, so that odd short transfers work.
    pub file: File,
    /// The caller opened it with `O_DIRECT`.
    pub direct: bool,
}

/// One entry of an open directory.
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// Its inode number on the real file system.
    pub ino: u64,
    /// What it is.
    pub kind: FileType,
}

/// What a handle stands for.
#[derive(Clone)]
pub enum Handle {
    /// A file with its node.
    File(u64, Arc<OpenFile>),
    /// A directory, as it was when it was opened.
    Dir(Arc<Vec<Entry>>),
}

#[derive(Default)]
struct Table {
    last: u64,
    open: HashMap<u64, Handle>,
}

/// The table.
#[derive(Default)]
pub struct Handles {
    table: Mutex<Table>,
}

impl Handles {
    /// Adds a handle and gives its number.
    pub fn add(&self, handle: Handle) -> u64 {
        let mut table = self.table.lock();
        table.last += 1;
        let id = table.last;
        table.open.insert(id, handle);
        id
    }

    /// Takes a handle away.
    pub fn remove(&self, id: u64) -> Option<Handle> {
        self.table.lock().open.remove(&id)
    }

    /// An open file.
    pub fn file(&self, id: u64) -> Result<Arc<OpenFile>, Errno> {
        match self.table.lock().open.get(&id) {
            Some(Handle::File(_, file)) => Ok(Arc::clone(file)),
            _ => Err(Errno::EBADF),
        }
    }

    /// An open directory.
    pub fn dir(&self, id: u64) -> Result<Arc<Vec<Entry>>, Errno> {
        match self.table.lock().open.get(&id) {
            Some(Handle::Dir(entries)) => Ok(Arc::clone(entries)),
            _ => Err(Errno::EBADF),
        }
    }
}

impl OpenFile {
    /// Reads until `bytes`, the end of the file, or where `tweak` says.
    pub fn read(&self, offset: u64, bytes: usize, tweak: Tweak) -> Result<Vec<u8>, Errno> {
        self.check_sectors(offset, bytes)?;
        let wanted = tweak.short.map_or(bytes, |short| short.min(bytes));
        let mut data = vec![0; wanted];
        let mut done = 0;
        while done < wanted {
            match self.file.read_at(&mut data[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(errno_of(&error)),
            }
        }
        data.truncate(done);
        flip(&mut data, tweak);
        Ok(data)
    }

    /// Writes all of `data`, or what `tweak` leaves of it.
    pub fn write(&self, offset: u64, mut data: Vec<u8>, tweak: Tweak) -> Result<u32, Errno> {
        self.check_sectors(offset, data.len())?;
        data.truncate(tweak.short.unwrap_or(usize::MAX));
        flip(&mut data, tweak);
        self.file.write_all_at(&data, offset).map_err(|error| errno_of(&error))?;
        u32::try_from(data.len()).map_err(|_| Errno::EINVAL)
    }

    fn check_sectors(&self, offset: u64, bytes: usize) -> Result<(), Errno> {
        let odd =
            !offset.is_multiple_of(SECTOR_BYTES as u64) || !bytes.is_multiple_of(SECTOR_BYTES);
        if self.direct && odd { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// `fsync`, or `fdatasync`.
    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        let result = if data_only { self.file.sync_data() } else { self.file.sync_all() };
        result.map_err(|error| errno_of(&error))
    }

    /// Reserves space.
    pub fn fallocate(&self, mode: i32, offset: u64, bytes: u64) -> Result<(), Errno> {
        let mode = FallocateFlags::from_bits(mode).ok_or(Errno::EOPNOTSUPP)?;
        let offset = i64::try_from(offset).map_err(|_| Errno::EFBIG)?;
        let bytes = i64::try_from(bytes).map_err(|_| Errno::EFBIG)?;
        fallocate(&self.file, mode, offset, bytes)
    }

    /// Finds data or a hole.
    pub fn seek(&self, offset: i64, whence: i32) -> Result<i64, Errno> {
        let whence = match whence {
            libc_whence::DATA => Whence::SeekData,
            libc_whence::HOLE => Whence::SeekHole,
            _ => return Err(Errno::EINVAL),
        };
        lseek64(&self.file, offset, whence)
    }

    /// Its attributes.
    pub fn metadata(&self) -> Result<Metadata, Errno> {
        self.file.metadata().map_err(|error| errno_of(&error))
    }
}

/// The two seeks that the kernel does not answer itself.
mod libc_whence {
    pub const DATA: i32 = 3;
    pub const HOLE: i32 = 4;
}

fn flip(data: &mut [u8], tweak: Tweak) {
    let middle = data.len() / 2;
    if tweak.flip
        && let Some(byte) = data.get_mut(middle)
    {
        *byte ^= FLIP_BITS;
    }
}
