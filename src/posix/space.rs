//! How much room a file system has.

use std::ffi::CStr;

use nix::errno::Errno;
use nix::sys::statvfs::statvfs;

/// Room of a file system, as `statvfs` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// All bytes.
    pub bytes: u64,
    /// Bytes that nobody uses, those that only root may use included.
    pub free_bytes: u64,
    /// Bytes that this user may still use.
    pub available_bytes: u64,
    /// All inodes; 0 where the file system does not count them.
    pub inodes: u64,
    /// Inodes that nobody uses.
    pub free_inodes: u64,
    /// Inodes that this user may still use.
    pub available_inodes: u64,
}

/// How much room the file system of `path` has. May hang as any call on a dead mount.
///
/// # Errors
/// The errno.
pub fn space(path: &CStr) -> Result<Space, i32> {
    let told = loop {
        match statvfs(path) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno as i32),
            Ok(told) => break told,
        }
    };
    // What is given in fragments; nothing that large is real.
    let bytes = |fragments: u64| fragments.saturating_mul(told.fragment_size());
    Ok(Space {
        bytes: bytes(told.blocks()),
        free_bytes: bytes(told.blocks_free()),
        available_bytes: bytes(told.blocks_available()),
        inodes: told.files(),
        free_inodes: told.files_free(),
        available_inodes: told.files_available(),
    })
}
