//! What kind of file system a file is on.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

use super::file::retry;

/// Magic numbers of file systems (`statfs(2)`).
pub const TMPFS: i64 = 0x0102_1994;
/// ramfs.
pub const RAMFS: i64 = 0x8584_58f6;
/// ext2 to ext4.
pub const EXT4: i64 = 0xef53;
/// XFS.
pub const XFS: i64 = 0x5846_5342;
/// btrfs.
pub const BTRFS: i64 = 0x9123_683e;
const F2FS: i64 = 0xf2f5_2010;
const FUSE: i64 = 0x6573_5546;

/// What `statfs(2)` or `fstatfs(2)`, as `call`, says the kind of file system is.
fn kind(mut call: impl FnMut(*mut libc::statfs) -> libc::c_int) -> Result<i64, i32> {
    let mut raw = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    retry(|| call(raw.as_mut_ptr()))?;
    // SAFETY: zeroed is a valid value of this plain struct, and the kernel has filled it.
    Ok(unsafe { raw.assume_init() }.f_type)
}

/// The kind of file system that a name is on, by its magic number. May hang as any call on a path.
///
/// # Errors
/// errno.
pub fn file_system(path: &CStr) -> Result<i64, i32> {
    // SAFETY: the name is terminated; one struct of ours is written during the call.
    kind(|raw| unsafe { libc::statfs(path.as_ptr(), raw) })
}

/// What a file system keeps its files on, as far as its kind tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A device of this host: ext2 to ext4, xfs, btrfs, f2fs.
    Device,
    /// This host's memory: tmpfs.
    Memory,
    /// Another process of this host (FUSE).
    Fuse,
    /// Anything else: the network, another file system.
    Other,
}

impl Medium {
    fn of(magic: i64) -> Medium {
        match magic {
            EXT4 | XFS | BTRFS | F2FS => Medium::Device,
            TMPFS => Medium::Memory,
            FUSE => Medium::Fuse,
            _ => Medium::Other,
        }
    }

    /// Nobody but this host's kernel changes it: what it says of a name is so. Any other file
    /// system may have a client that remembers a name for a while, whatever others do to it.
    #[must_use]
    pub fn is_coherent(self) -> bool {
        matches!(self, Medium::Device | Medium::Memory)
    }
}

/// What a file is kept on. May hang as any call on a path.
///
/// # Errors
/// errno.
pub fn medium(path: &CStr) -> Result<Medium, i32> {
    Ok(Medium::of(file_system(path)?))
}

/// The same for an open file.
///
/// # Errors
/// errno.
pub fn medium_of(fd: &OwnedFd) -> Result<Medium, i32> {
    // SAFETY: the descriptor is open; one struct of ours is written during the call.
    Ok(Medium::of(kind(|raw| unsafe { libc::fstatfs(fd.as_raw_fd(), raw) })?))
}
