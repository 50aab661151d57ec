//! Directories that are made and removed for themselves, and files whose times tell the storage's
//! clock.

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
