//! A directory read name by name, in bounded memory, and what a name in it is.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, IntoRawFd};

use super::file::{self, Info};

/// What a directory says about one of its names, without a system call a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
    /// The file system does not tell; [`Listing::stat`] does.
    Unknown,
}

/// An open directory.
#[derive(Debug)]
pub struct Listing(nix::dir::Dir);

impl Listing {
    /// Opens it. A symbolic link is not followed, unless the path ends with `/`.
    pub fn open(path: &CStr) -> Result<Listing, i32> {
        let fd = file::open_directory(path)?;
        let directory = nix::dir::Dir::from_fd(fd.into_raw_fd()).map_err(|errno| errno as i32)?;
        Ok(Listing(directory))
    }

    /// Shows every name but `.` and `..`. `see` may ask what it is; it ends the listing with an
    /// errno.
    pub fn each(
        &mut self,
        mut see: impl FnMut(&CStr, Kind, &dyn Fn(&CStr) -> Result<Info, i32>) -> Result<(), i32>,
    ) -> Result<(), i32> {
        let place = self.0.as_raw_fd();
        let stat = move |name: &CStr| file::stat_in(place, name);
        for entry in self.0.iter() {
            let entry = entry.map_err(|errno| errno as i32)?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let kind = match entry.file_type() {
                Some(nix::dir::Type::File) => Kind::File,
                Some(nix::dir::Type::Directory) => Kind::Directory,
                Some(_) => Kind::Other,
                None => Kind::Unknown,
            };
            see(name, kind, &stat)?;
        }
        Ok(())
    }
}
