//! What the collector needs (R80–R86): listings, the lease, removals that look first.

use std::ffi::CStr;

use super::{Job, UNIT};
use crate::engine::{Done, Outcome, Seen, Surveyor};
use crate::error::{Failure, Step};
use crate::posix::file;
use crate::posix::listing::Listing;

impl Job<'_> {
    pub(in crate::engine) fn survey(&self, path: &CStr, to: &dyn Surveyor) -> Outcome {
        let mut listing = self.step(Step::List, || Listing::open(path))?;
        to.begin();
        let listed = listing.each(|name, kind, stat| {
            // A name that is no text is nobody's; its lossy form is no block's and no temporary's.
            let text = name.to_string_lossy();
            if self.op.gate.revoked() {
                return Err(libc::ECANCELED);
            }
            if to.wants(&text, kind) {
                match stat(name) {
                    Ok(info) => {
                        to.tell(&text, Seen { file: info.is_file(), mtime_ns: info.mtime_ns })
                    }
                    // Gone since the directory was read.
                    Err(libc::ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Ok(())
        });
        match listed {
            Ok(()) => UNIT,
            Err(libc::ECANCELED) if self.op.gate.revoked() => {
                let cause = crate::error::Cause::GivenUp;
                Err(Failure { step: Step::List, cause })
            }
            Err(errno) => Err(Failure::errno(Step::List, errno)),
        }
    }

    pub(in crate::engine) fn claim(&self, path: &CStr, mode: u32) -> Outcome {
        match self.step(Step::Mkdir, || file::make_directory(path, mode)) {
            Ok(()) => UNIT,
            Err(failure) if failure.os() == Some(libc::EEXIST) => Ok(Done::Left),
            Err(failure) => Err(failure),
        }
    }

    pub(in crate::engine) fn remove_directory(&self, path: &CStr) -> Outcome {
        match self.step(Step::Remove, || file::remove_directory(path)) {
            Ok(()) => UNIT,
            Err(failure) if matches!(failure.os(), Some(libc::ENOTEMPTY | libc::EEXIST)) => {
                Ok(Done::Left)
            }
            Err(failure) => Err(failure),
        }
    }

    pub(in crate::engine) fn stamp(&self, path: &CStr, create: Option<u32>) -> Outcome {
        match self.step(Step::Touch, || file::touch(path)) {
            Err(failure) if failure.os() == Some(libc::ENOENT) && create.is_some() => {
                let mode = create.unwrap_or_default();
                self.step(Step::Open, || file::make_file(path, mode))?;
                self.step(Step::Touch, || file::touch(path))?;
            }
            touched => touched?,
        }
        Ok(Done::Stamp(self.step(Step::Stat, || file::stat(path))?.mtime_ns))
    }

    pub(in crate::engine) fn remove_cold(&self, path: &CStr, mtime_ns: i64) -> Outcome {
        let info = self.step(Step::Stat, || file::stat(path))?;
        if !info.is_file() || info.mtime_ns > mtime_ns {
            return Ok(Done::Left);
        }
        self.unlink(path)
    }

    pub(in crate::engine) fn set_aside(
        &self,
        from: &CStr,
        (dir, mode): (&CStr, u32),
        to: &CStr,
        bytes: u64,
    ) -> Outcome {
        let right = |path: &CStr| {
            let info = self.step(Step::Stat, || look(path, bytes))?;
            Ok(is_right(&info, bytes))
        };
        if right(from)? {
            return Ok(Done::Left);
        }
        let renamed = self.step(Step::Rename, || file::rename(from, to, false));
        match renamed {
            Err(failure) if failure.os() == Some(libc::ENOENT) => {
                self.make_directory(dir, mode)?;
                self.step(Step::Rename, || file::rename(from, to, false))?;
            }
            renamed => renamed?,
        }
        // Somebody may have put the whole block there in between. Also where the op was given up: a
        // rename that hung is done whenever the path lets it go, and may find a block that was
        // dumped meanwhile.
        match look(to, bytes) {
            Ok(info) if !is_right(&info, bytes) => UNIT,
            Ok(_) => {
                // Whatever has the name by now: a whole block takes its place, and a client that
                // remembers one there is not believed.
                let back = file::rename(to, from, false);
                back.map_err(|errno| Failure::errno(Step::Rename, errno))?;
                Ok(Done::Left)
            }
            Err(errno) => {
                // Nobody knows what was moved: it goes back where nothing has the name.
                give_back(to, from).map_err(|errno| Failure::errno(Step::Rename, errno))?;
                Err(Failure::errno(Step::Stat, errno))
            }
        }
    }
}

/// Nothing to be set aside.
fn is_right(info: &file::Info, bytes: u64) -> bool {
    !info.is_file() || info.bytes == bytes
}

/// What a file is. A client may say what it remembers of one that is right by now: before that is
/// believed the server is asked, by setting the time that the file has.
fn look(path: &CStr, bytes: u64) -> Result<file::Info, i32> {
    let seen = file::stat(path)?;
    if is_right(&seen, bytes) {
        return Ok(seen);
    }
    match file::set_mtime(path, seen.mtime_ns) {
        Ok(()) | Err(libc::EPERM | libc::EACCES | libc::EROFS) => file::stat(path),
        Err(errno) => Err(errno),
    }
}

/// Gives a file its name back, unless yet another has it by now: one is enough.
fn give_back(from: &CStr, to: &CStr) -> Result<(), i32> {
    match file::rename(from, to, true) {
        Err(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => {
            match file::link(from, to) {
                Ok(()) | Err(libc::EEXIST) => {}
                Err(errno) => return Err(errno),
            }
            file::unlink(from)
        }
        Err(libc::EEXIST) => Ok(()),
        renamed => renamed,
    }
}
