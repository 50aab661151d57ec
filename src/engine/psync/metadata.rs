//! Every op that is no read or write of a block: a few calls on names.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use super::{Job, UNIT};
use crate::engine::{Done, Entry, FileInfo, FileList, Outcome};
use crate::error::{Cause, Failure, Step};
use crate::posix::{file, space};

/// The largest file that [`crate::engine::OpKind::ReadSmall`] reads.
const SMALL_BYTES: usize = 4096;
/// From so many paths on the root is opened once to look from there.
const PLACE_PATHS_MIN: usize = 8;

impl Job<'_> {
    pub(in crate::engine) fn rename(&self, from: &CStr, to: &CStr, no_replace: bool) -> Outcome {
        self.step(Step::Rename, || file::rename(from, to, no_replace))?;
        UNIT
    }

    pub(in crate::engine) fn sync(&self, path: &CStr, directory: bool) -> Outcome {
        let fd = self.step(Step::Open, || match directory {
            true => file::open_directory(path),
            false => file::open_read(path, false),
        })?;
        let synced = self.step(Step::Fsync, || match directory {
            true => file::sync_all(&fd),
            false => file::sync_data(&fd),
        });
        let closed = self.lane.close(fd);
        synced?;
        closed.map_err(|errno| Failure::errno(Step::Close, errno))?;
        UNIT
    }

    /// Sets the length that the file has. Any other length is an error, and stays: a short file
    /// would become one with zeros.
    pub(in crate::engine) fn set_length(&self, path: &CStr, bytes: u64) -> Outcome {
        let fd = self.step(Step::Open, || file::open_write(path, false))?;
        let set = self.set_same_length(&fd, bytes);
        let closed = self.lane.close(fd);
        set?;
        closed.map_err(|errno| Failure::errno(Step::Close, errno))?;
        UNIT
    }

    fn set_same_length(&self, fd: &OwnedFd, bytes: u64) -> Result<(), Failure> {
        // The server's answer to this has the length; what a client says may be what it remembers.
        self.step(Step::Touch, || file::touch_open(fd))?;
        let found = self.step(Step::Stat, || file::stat_open(fd))?.bytes;
        if found != bytes {
            let cause = Cause::WrongSize { found: Some(found), expected: bytes };
            return Err(Failure { step: Step::Verify, cause });
        }
        self.give_length(fd, bytes)
    }

    pub(in crate::engine) fn stat(&self, path: &CStr) -> Outcome {
        self.ask(path).map(Done::Info)
    }

    fn ask(&self, path: &CStr) -> Result<FileInfo, Failure> {
        let bytes = self.step(Step::Stat, || file::file_bytes(path))?;
        Ok(FileInfo { bytes })
    }

    /// Where to look from: walking down to the root is most of the price of a question. Where the
    /// root cannot be opened each path tells by itself what is wrong.
    fn place<'m>(&self, many: &'m FileList) -> Option<(OwnedFd, &'m CStr)> {
        let root = many.root.as_deref().filter(|_| many.paths.len() >= PLACE_PATHS_MIN)?;
        many.begin_file();
        let place = self.step(Step::Stat, || file::open_place(root));
        // What it lacked for that, it does without.
        self.op.gate.set_local(0);
        Some((place.ok()?, root))
    }

    fn ask_below(
        &self,
        place: Option<&(OwnedFd, &CStr)>,
        path: &CStr,
    ) -> Result<FileInfo, Failure> {
        let below = place.and_then(|(place, root)| {
            let rest = path.to_bytes_with_nul().strip_prefix(root.to_bytes())?;
            Some((place, CStr::from_bytes_with_nul(rest).ok()?))
        });
        match below {
            Some((place, path)) => {
                let bytes = self.step(Step::Stat, || file::file_bytes_below(place, path))?;
                Ok(FileInfo { bytes })
            }
            None => self.ask(path),
        }
    }

    pub(in crate::engine) fn stat_many(&self, many: &FileList) -> Done {
        let mut answers = Vec::with_capacity(many.paths.len());
        let place = self.place(many);
        for path in &many.paths {
            many.begin_file();
            match self.ask_below(place.as_ref(), path) {
                Ok(info) => answers.push(Some(info)),
                Err(failure) if failure.os() == Some(libc::ENOENT) => answers.push(None),
                Err(failure) => return Done::Infos(answers, Some(failure)),
            }
        }
        Done::Infos(answers, None)
    }

    pub(in crate::engine) fn unlink(&self, path: &CStr) -> Outcome {
        self.step(Step::Remove, || file::unlink(path))?;
        UNIT
    }

    pub(in crate::engine) fn make_directory(&self, path: &CStr, mode: u32) -> Outcome {
        match self.step(Step::Mkdir, || file::make_directory(path, mode)) {
            Ok(()) => UNIT,
            Err(failure) if failure.os() == Some(libc::EEXIST) => {
                match self.step(Step::Mkdir, || file::stat(path))?.is_directory() {
                    true => UNIT,
                    // A link to a directory is none (R9).
                    false => Err(Failure::errno(Step::Mkdir, libc::ENOTDIR)),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    pub(in crate::engine) fn read_small(&self, path: &CStr) -> Outcome {
        let fd = self.step(Step::Open, || file::open_read(path, false))?;
        let result = self.read_small_open(&fd);
        // Nothing was written: a close that fails has nothing to tell.
        let _nothing_lost = self.lane.close(fd);
        result.map(Done::Bytes)
    }

    fn read_small_open(&self, fd: &OwnedFd) -> Result<Vec<u8>, Failure> {
        // One byte more than allowed tells a file that is too large from one that just fits.
        let mut bytes = vec![0; SMALL_BYTES + 1];
        let mut done = 0;
        while done < bytes.len() {
            let rest = &mut bytes[done..];
            match self.step(Step::Read, || file::read_at(fd, rest, done as u64))? {
                0 => {
                    bytes.truncate(done);
                    return Ok(bytes);
                }
                got => done += got,
            }
        }
        let found = Some(self.step(Step::Stat, || file::stat_open(fd))?.bytes);
        let cause = Cause::WrongSize { found, expected: SMALL_BYTES as u64 };
        Err(Failure { step: Step::Verify, cause })
    }

    pub(in crate::engine) fn list(&self, path: &CStr, filter: &str) -> Outcome {
        let names = self.step(Step::List, || file::list(path))?;
        let mut entries = Vec::new();
        for name in names.into_iter().filter(|name| name.contains(filter)) {
            let full = [path.to_bytes(), b"/", name.as_bytes()].concat();
            let full = CString::new(full).map_err(|_| Failure::errno(Step::List, libc::EINVAL))?;
            match self.step(Step::List, || file::stat(&full)) {
                Ok(info) => entries.push(Entry { name, mtime_s: info.mtime_s }),
                // Gone since the directory was read.
                Err(failure) if failure.os() == Some(libc::ENOENT) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Done::Entries(entries))
    }

    pub(in crate::engine) fn touch(&self, path: &CStr) -> Outcome {
        self.step(Step::Touch, || file::touch(path))?;
        UNIT
    }

    pub(in crate::engine) fn touch_many(&self, many: &FileList) -> Done {
        let mut answers = Vec::with_capacity(many.paths.len());
        for path in &many.paths {
            many.begin_file();
            match self.touch(path) {
                Ok(_) => answers.push(Ok(())),
                Err(failure) => match failure.os() {
                    Some(errno @ (libc::ENOENT | libc::EPERM | libc::EACCES)) => {
                        answers.push(Err(errno));
                    }
                    _ => return Done::Touched(answers, Some(failure)),
                },
            }
        }
        Done::Touched(answers, None)
    }

    pub(in crate::engine) fn space(&self, path: &CStr) -> Outcome {
        self.step(Step::Stat, || space::space(path)).map(Done::Space)
    }
}
