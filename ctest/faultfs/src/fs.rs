//! What the kernel asks, as calls through the gate to the disk. One function a request; no decision
//! is made here. The kernel caches nothing: names and attributes live 0 s, files bypass the page
//! cache, so that every operation is seen and a fault shows at once.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};
use nix::fcntl::OFlag;

use crate::answer::{FILE_FLAGS, fuse_errno};
use crate::disk::Change;
use crate::gate::Verdict;
use crate::op::Op;
use crate::passage::FaultFs;

/// The longest single write request; longer calls arrive in several.
const WRITE_MAX_BYTES: u32 = 1 << 20;
/// Requests that may wait at once without holding up others: hung asynchronous I/O counts.
const BACKGROUND_MAX: u16 = u16::MAX;

impl Filesystem for FaultFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        if self.async_dio {
            wanted |= InitFlags::FUSE_ASYNC_DIO;
        }
        let offered = wanted & config.capabilities();
        let refused = || io::Error::other("the kernel refuses a setting");
        config.add_capabilities(offered).map_err(|_| refused())?;
        config.set_max_write(WRITE_MAX_BYTES).map_err(|_| refused())?;
        config.set_max_background(BACKGROUND_MAX).map_err(|_| refused())?;
        config.set_congestion_threshold(BACKGROUND_MAX).map_err(|_| refused())?;
        Ok(())
    }

    fn forget(&self, _: &Request, id: INodeNo, lookups: u64) {
        self.disk.nodes.forget(id.0, lookups);
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let call = self.at(Op::Lookup, parent, name);
        let name = name.to_owned();
        self.call(call, reply, move |disk, tweak| match tweak.remember {
            true => disk.lookup_remembered(parent.0, &name),
            false => disk.lookup(parent.0, &name),
        });
    }

    fn getattr(&self, _: &Request, id: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let call = self.on(Op::Getattr, id);
        self.call(call, reply, move |disk, tweak| match tweak.remember {
            true => disk.getattr_remembered(id.0, handle.map(|h| h.0)),
            false => disk.getattr(id.0, handle.map(|h| h.0)),
        });
    }

    fn setattr(
        &self,
        _: &Request,
        id: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        bytes: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let call = self.on(Op::Setattr, id);
        let change = Change { mode, uid, gid, bytes, atime, mtime };
        self.call(call, reply, move |disk, _| disk.setattr(id.0, handle.map(|h| h.0), &change));
    }

    fn readlink(&self, _: &Request, id: INodeNo, reply: ReplyData) {
        self.call(self.on(Op::Readlink, id), reply, move |disk, _| {
            disk.readlink(id.0).map(|target| target.as_os_str().as_bytes().to_vec())
        });
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let call = self.at(Op::Mknod, parent, name);
        let name = name.to_owned();
        self.call(call, reply, move |disk, _| disk.mknod(parent.0, &name, mode));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let call = self.at(Op::Mkdir, parent, name);
        let name = name.to_owned();
        self.call(call, reply, move |disk, _| disk.mkdir(parent.0, &name, mode));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = self.at(Op::Unlink, parent, name);
        let name = name.to_owned();
        self.call(call, reply, move |disk, _| disk.unlink(parent.0, &name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = self.at(Op::Rmdir, parent, name);
        let name = name.to_owned();
        self.call(call, reply, move |disk, _| disk.rmdir(parent.0, &name));
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let call = self.at(Op::Symlink, parent, name);
        let (name, target) = (name.to_owned(), target.to_owned());
        self.call(call, reply, move |disk, _| disk.symlink(parent.0, &name, &target));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        parent_to: INodeNo,
        name_to: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let call = self.at(Op::Rename, parent, name).to(self.name(parent_to, name_to));
        let call = call.with_flags(!flags.is_empty());
        let (name, name_to) = (name.to_owned(), name_to.to_owned());
        self.call(call, reply, move |disk, _| {
            disk.rename((parent.0, &name), (parent_to.0, &name_to), flags.bits())
        });
    }

    fn link(&self, _: &Request, id: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let call = self.on(Op::Link, id).to(self.name(parent, name));
        let name = name.to_owned();
        self.call(call, reply, move |disk, _| disk.link(id.0, parent.0, &name));
    }

    fn open(&self, _: &Request, id: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let call = self.on(Op::Open, id).direct(flags.0 & OFlag::O_DIRECT.bits() != 0);
        self.call(call, reply, move |disk, _| {
            disk.open(id.0, flags.0).map(|handle| (handle, FILE_FLAGS))
        });
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let call = self.at(Op::Create, parent, name).direct(flags & OFlag::O_DIRECT.bits() != 0);
        let name = name.to_owned();
        self.call(call, reply, move |disk, _| disk.create(parent.0, &name, mode, flags));
    }

    fn read(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.call(self.on(Op::Read, id), reply, move |disk, tweak| {
            disk.handles.file(handle.0)?.read(offset, bytes as usize, tweak)
        });
    }

    fn write(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // A copy: the buffer is the session's, and this write may hang for long.
        let data = data.to_vec();
        self.call(self.on(Op::Write, id), reply, move |disk, tweak| {
            disk.written(id.0);
            disk.write(handle.0, offset, data, tweak)
        });
    }

    fn flush(
        &self,
        _: &Request,
        id: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.call(self.on(Op::Flush, id), reply, |_, _| Ok(()));
    }

    fn release(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        // Whatever the verdict, the kernel never names this handle again.
        let disk = Arc::clone(&self.disk);
        let work = move |verdict| {
            disk.release(handle.0);
            match verdict {
                Verdict::Fail(errno) => reply.error(fuse_errno(errno)),
                Verdict::Run(_) => reply.ok(),
            }
        };
        self.gate.admit(self.on(Op::Release, id), Box::new(work));
    }

    fn fsync(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let disk = Arc::clone(&self.disk);
        let work = move |verdict| {
            let fail = match verdict {
                Verdict::Fail(errno) => Some(errno),
                Verdict::Run(_) => None,
            };
            match disk.sync(handle.0, data_only, fail) {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(fuse_errno(errno)),
            }
        };
        self.gate.admit(self.on(Op::Fsync, id), Box::new(work));
    }

    fn fallocate(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.call(self.on(Op::Fallocate, id), reply, move |disk, _| {
            disk.handles.file(handle.0)?.fallocate(mode, offset, bytes)
        });
    }

    fn lseek(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.call(self.on(Op::Lseek, id), reply, move |disk, _| {
            disk.handles.file(handle.0)?.seek(offset, whence)
        });
    }

    fn opendir(&self, _: &Request, id: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.call(self.on(Op::Opendir, id), reply, move |disk, _| {
            disk.opendir(id.0).map(|handle| (handle, FopenFlags::empty()))
        });
    }

    fn readdir(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.pass(self.on(Op::Readdir, id), reply, move |disk, _, mut reply| {
            let entries = match disk.handles.dir(handle.0) {
                Ok(entries) => entries,
                Err(errno) => return reply.error(fuse_errno(errno)),
            };
            for (index, entry) in (0_u64..).zip(entries.iter()).skip_while(|(i, _)| *i < offset) {
                if reply.add(INodeNo(entry.ino), index + 1, entry.kind, &entry.name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.call(self.on(Op::Releasedir, id), reply, move |disk, _| {
            disk.release(handle.0);
            Ok(())
        });
    }

    fn fsyncdir(
        &self,
        _: &Request,
        id: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.call(self.on(Op::Fsyncdir, id), reply, move |disk, _| disk.fsyncdir(id.0));
    }

    fn statfs(&self, _: &Request, id: INodeNo, reply: ReplyStatfs) {
        self.call(self.on(Op::Statfs, id), reply, |disk, _| disk.statfs());
    }

    fn access(&self, _: &Request, id: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        self.call(self.on(Op::Access, id), reply, move |disk, _| disk.access(id.0, mask.bits()));
    }
}
