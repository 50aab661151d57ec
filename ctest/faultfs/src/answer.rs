//! How each kind of answer goes back to the kernel: a value or an errno.

use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
};
use nix::errno::Errno as RealErrno;
use nix::sys::statvfs::Statvfs;

/// How long the kernel may believe what it was told about names and attributes.
const TTL: Duration = Duration::ZERO;
/// For open files: no page cache, and no lock that a hung write would hold against others.
pub const FILE_FLAGS: FopenFlags =
    FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

/// The errno as the kernel's library has it.
pub fn fuse_errno(errno: RealErrno) -> Errno {
    Errno::from_i32(errno as i32)
}

/// A reply that can be an error.
pub trait Refuse: Send + 'static {
    /// Sends the error.
    fn refuse(self, errno: Errno);
}

/// A reply that carries a value.
pub trait Answer<T>: Refuse {
    /// Sends the value.
    fn answer(self, value: T);
}

impl Refuse for ReplyDirectory {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Refuse for ReplyEntry {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Answer<FileAttr> for ReplyEntry {
    fn answer(self, attr: FileAttr) {
        self.entry(&TTL, &attr, Generation(0));
    }
}

impl Refuse for ReplyAttr {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Answer<FileAttr> for ReplyAttr {
    fn answer(self, attr: FileAttr) {
        self.attr(&TTL, &attr);
    }
}

impl Refuse for ReplyEmpty {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Answer<()> for ReplyEmpty {
    fn answer(self, (): ()) {
        self.ok();
    }
}

impl Refuse for ReplyData {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Answer<Vec<u8>> for ReplyData {
    fn answer(self, data: Vec<u8>) {
        self.data(&data);
    }
}

impl Refuse for ReplyWrite {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Answer<u32> for ReplyWrite {
    fn answer(self, bytes: u32) {
        self.written(bytes);
    }
}

impl Refuse for ReplyLseek {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Answer<i64> for ReplyLseek {
    fn answer(self, offset: i64) {
        self.offset(offset);
    }
}

impl Refuse for ReplyOpen {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Answer<(u64, FopenFlags)> for ReplyOpen {
    fn answer(self, (id, flags): (u64, FopenFlags)) {
        self.opened(FileHandle(id), flags);
    }
}

impl Refuse for ReplyCreate {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Answer<(FileAttr, u64)> for ReplyCreate {
    fn answer(self, (attr, id): (FileAttr, u64)) {
        self.created(&TTL, &attr, Generation(0), FileHandle(id), FILE_FLAGS);
    }
}

impl Refuse for ReplyStatfs {
    fn refuse(self, errno: Errno) {
        self.error(errno);
    }
}

impl Answer<Statvfs> for ReplyStatfs {
    fn answer(self, space: Statvfs) {
        self.statfs(
            space.blocks(),
            space.blocks_free(),
            space.blocks_available(),
            space.files(),
            space.files_free(),
            u32::try_from(space.block_size()).unwrap_or(u32::MAX),
            u32::try_from(space.name_max()).unwrap_or(u32::MAX),
            u32::try_from(space.fragment_size()).unwrap_or(u32::MAX),
        );
    }
}
