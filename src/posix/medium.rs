//! What kind of file system a file is on.

use std::ffi::CStr;

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

/// The kind of file system that a name is on, by its magic number. May hang as any call on a path.
///
/// # Errors
/// errno.
pub fn file_system(path: &CStr) -> Result<i64, i32> {
    let mut raw = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the name is terminated; one struct of ours is written during the call.
    retry(|| unsafe { libc::statfs(path.as_ptr(), raw.as_mut_ptr()) })?;
    // SAFETY: zeroed is a valid value of this plain struct, and the kernel has filled it.
    Ok(unsafe { raw.assume_init() }.f_type)
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

/// What a file is kept on. May hang as any call on a path.
///
/// # Errors
/// errno.
pub fn medium(path: &CStr) -> Result<Medium, i32> {
    Ok(match file_system(path)? {
        EXT4 | XFS | BTRFS | F2FS => Medium::Device,
        TMPFS => Medium::Memory,
        FUSE => Medium::Fuse,
        _ => Medium::Other,
    })
}
