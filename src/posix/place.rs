//! Directories that are made and removed for themselves, files whose times tell the storage's
//! clock, and how much room a file system has.

use std::ffi::CStr;

use super::file;

/// Makes a directory; EEXIST where anything has the name.
pub fn make_new(path: &CStr, mode: u32) -> Result<(), i32> {
    file::make_directory(path, mode)
}

/// Removes an empty directory; ENOTEMPTY (on some file systems EEXIST) where it is not.
pub fn remove_directory(path: &CStr) -> Result<(), i32> {
    // SAFETY: the name is terminated and lives during the call.
    file::retry(|| unsafe { libc::rmdir(path.as_ptr()) }).map(drop)
}

/// Makes an empty file where there is none.
pub fn make_file(path: &CStr, mode: u32) -> Result<(), i32> {
    match file::create_new(path, false, mode) {
        Ok(fd) => file::close(fd),
        Err(libc::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// How much a file system has, and has left for this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// All bytes.
    pub bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// All inodes; 0 where the file system does not count them.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// Asks the file system of `path`.
pub fn room(path: &CStr) -> Result<Room, i32> {
    let mut raw = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the name is terminated, and `raw` is ours to write during the call.
    file::retry(|| unsafe { libc::statvfs(path.as_ptr(), raw.as_mut_ptr()) })?;
    // SAFETY: zeroed is a valid value of this plain struct, and the kernel has filled it.
    let raw = unsafe { raw.assume_init() };
    let unit = if raw.f_frsize > 0 { raw.f_frsize } else { raw.f_bsize };
    Ok(Room {
        bytes: raw.f_blocks.saturating_mul(unit),
        free_bytes: raw.f_bavail.saturating_mul(unit),
        inodes: raw.f_files,
        free_inodes: raw.f_favail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r85_a_file_system_tells_its_room() {
        let room = room(c"/").unwrap();
        assert!(room.bytes > 0 && room.free_bytes <= room.bytes);
        assert!(room.free_inodes <= room.inodes);
        assert_eq!(super::room(c"/none/there"), Err(libc::ENOENT));
    }
}
