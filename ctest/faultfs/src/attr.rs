//! From what the real file system says to what the kernel is told.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use nix::errno::Errno;

use crate::nodes::Identity;

/// The bits of a mode that are permissions.
const MODE_PERMISSIONS: u32 = 0o7777;

/// The errno of an error of the standard library.
pub fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// What tells one real file from another.
pub fn identity_of(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Attributes under the number `ino`.
pub fn attr_of(metadata: &Metadata, ino: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: time_of(metadata.atime(), metadata.atime_nsec()),
        mtime: time_of(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time_of(metadata.ctime(), metadata.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: FileType::from_std(metadata.file_type()).unwrap_or(FileType::RegularFile),
        // The mask makes it fit.
        perm: u16::try_from(metadata.mode() & MODE_PERMISSIONS).unwrap_or_default(),
        nlink: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: u32::try_from(metadata.rdev()).unwrap_or_default(),
        blksize: u32::try_from(metadata.blksize()).unwrap_or(4096),
        flags: 0,
    }
}

/// A time of a file; before 1970 counts as 1970.
fn time_of(seconds: i64, nanoseconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    let nanoseconds = u32::try_from(nanoseconds).unwrap_or_default();
    UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}
