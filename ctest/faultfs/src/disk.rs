//! The real directory behind the mount: every operation as system calls on it. Not when or whether
//! they happen: that is `gate.rs`. Owns the node and handle tables.
//!
//! While the root is vanished, paths lead into an empty directory instead, as they do when a mount
//! has fallen off; what is open stays open.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{FileAttr, FileType, TimeOrNow};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FcntlArg, OFlag, RenameFlags, fcntl, open, renameat2};
use nix::sys::stat::{self, FchmodatFlags, Mode, SFlag, UtimensatFlags, mknod, utimensat};
use nix::sys::statvfs::{Statvfs, statvfs};
use nix::sys::time::TimeSpec;
use nix::unistd::{AccessFlags, Gid, Uid, faccessat, fchownat, linkat, mkdir, unlink};
use parking_lot::{Mutex, RwLock};

use crate::attr::{attr_of, errno_of, identity_of};
use crate::handle::{Entry, Handle, Handles, OpenFile};
use crate::nodes::{Identity, Nodes};
use crate::passage::shown;
use crate::record::{Event, Kind, Record, ino_of};

/// The bits of a mode that a call may set.
const MODE_PERMISSIONS: u32 = 0o7777;

/// What a `setattr` changes.
#[derive(Debug, Default)]
pub struct Change {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub bytes: Option<u64>,
    /// Time of access.
    pub atime: Option<TimeOrNow>,
    /// Time of modification.
    pub mtime: Option<TimeOrNow>,
}

/// See the top of this file.
pub struct Disk {
    root: PathBuf,
    shadow: PathBuf,
    base: RwLock<PathBuf>,
    /// What the kernel calls the files.
    pub nodes: Nodes,
    /// What is open.
    pub handles: Handles,
    /// What has changed.
    pub record: Record,
    /// What names showed when rules wanted them to be remembered.
    remembered: Mutex<Remembered>,
}

/// What a client with a cache knows of names, and of files whatever their name is.
#[derive(Default)]
struct Remembered {
    names: HashMap<PathBuf, Metadata>,
    files: HashMap<Identity, Metadata>,
}

impl Disk {
    /// The real directory, and the place of the empty one that stands in for it.
    pub fn new(root: PathBuf, shadow: PathBuf) -> Self {
        let base = RwLock::new(root.clone());
        let (nodes, handles, record) = (Nodes::new(), Handles::default(), Record::default());
        let remembered = Mutex::default();
        Self { root, shadow, base, nodes, handles, record, remembered }
    }

    /// Makes the root appear empty; gives the directory that stands in for it.
    pub fn vanish(&self) -> io::Result<&Path> {
        let mut base = self.base.write();
        if *base == self.root {
            fs::create_dir_all(&self.shadow)?;
            base.clone_from(&self.shadow);
        }
        Ok(&self.shadow)
    }

    /// The root is back; what was put in its place meanwhile is deleted.
    pub fn come_back(&self) -> io::Result<()> {
        let mut base = self.base.write();
        base.clone_from(&self.root);
        match fs::remove_dir_all(&self.shadow) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Where a path leads now.
    pub fn real(&self, path: &Path) -> PathBuf {
        let base = self.base.read();
        // Joining an empty path would add a slash, and a root that is a link would be followed.
        if path.as_os_str().is_empty() { base.clone() } else { base.join(path) }
    }

    fn real_child(&self, parent: u64, name: &OsStr) -> Result<PathBuf, Errno> {
        Ok(self.real(&self.nodes.child(parent, name)?))
    }

    fn seen(&self, path: &Path, metadata: &Metadata) -> FileAttr {
        attr_of(metadata, self.nodes.seen(path, identity_of(metadata)))
    }

    /// Finds `name`; the kernel holds one lookup more of it.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let path = self.nodes.child(parent, name)?;
        let metadata = symlink_metadata(&self.real(&path))?;
        Ok(self.seen(&path, &metadata))
    }

    /// The same as a client with a cache does it, which does not see what others do to the name or
    /// to the file.
    pub fn lookup_remembered(&self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let path = self.nodes.child(parent, name)?;
        let mut remembered = self.remembered.lock();
        let known = match remembered.names.get(&path).cloned() {
            Some(known) => known,
            None => {
                let now = symlink_metadata(&self.real(&path))?;
                remembered.files.get(&identity_of(&now)).cloned().unwrap_or(now)
            }
        };
        remembered.files.insert(identity_of(&known), known.clone());
        remembered.names.insert(path.clone(), known.clone());
        Ok(self.seen(&path, &known))
    }

    /// The same for attributes.
    pub fn getattr_remembered(&self, id: u64, handle: Option<u64>) -> Result<FileAttr, Errno> {
        let known = self.remembered.lock().names.get(&self.nodes.path(id)?).cloned();
        match known {
            Some(metadata) => Ok(attr_of(&metadata, identity_of(&metadata).1)),
            None => self.getattr(id, handle),
        }
    }

    /// This client has changed the file itself, and so forgets what it knew.
    fn changed(&self, path: &Path) {
        let mut remembered = self.remembered.lock();
        remembered.names.remove(path);
        if let Ok(now) = symlink_metadata(&self.real(path)) {
            remembered.files.remove(&identity_of(&now));
        }
    }

    /// The same by the file's number.
    pub fn written(&self, id: u64) {
        // Unknown numbers fail elsewhere.
        self.nodes.path(id).map(|path| self.changed(&path)).unwrap_or_default();
    }

    /// Attributes, of the open file where there is one, else of what the path leads to now. Where
    /// that is another file than was looked up, it was replaced meanwhile, and the call came late.
    pub fn getattr(&self, id: u64, handle: Option<u64>) -> Result<FileAttr, Errno> {
        let metadata = match self.open_file(id, handle) {
            Some(file) => file.metadata()?,
            None => symlink_metadata(&self.real(&self.nodes.path(id)?))?,
        };
        // The real inode number, so that another root (fallen off, replaced) shows as one.
        Ok(attr_of(&metadata, identity_of(&metadata).1))
    }

    fn open_file(&self, id: u64, handle: Option<u64>) -> Option<Arc<OpenFile>> {
        handle.and_then(|handle| self.handles.file(handle).ok()).or_else(|| self.nodes.any_open(id))
    }

    /// Changes attributes.
    pub fn setattr(
        &self,
        id: u64,
        handle: Option<u64>,
        change: &Change,
    ) -> Result<FileAttr, Errno> {
        let path = self.nodes.path(id)?;
        let real = self.real(&path);
        self.changed(&path);
        let open = self.open_file(id, handle);
        if let Some(bytes) = change.bytes {
            match handle.and_then(|handle| self.handles.file(handle).ok()) {
                Some(file) => file.file.set_len(bytes),
                None => File::options().write(true).open(&real).and_then(|f| f.set_len(bytes)),
            }
            .map_err(|error| errno_of(&error))?;
            if self.record.is_on() {
                let ino = self.getattr(id, handle)?.ino.0;
                self.record.add(&Event { offset: bytes, ..Event::of(Kind::Truncate, ino) })?;
            }
        }
        if let Some(mode) = change.mode {
            let mode = Mode::from_bits_truncate(mode & MODE_PERMISSIONS);
            match &open {
                Some(open) => stat::fchmod(&open.file, mode)?,
                None => stat::fchmodat(AT_FDCWD, &real, mode, FchmodatFlags::FollowSymlink)?,
            }
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            match &open {
                Some(open) => nix::unistd::fchown(&open.file, uid, gid)?,
                None => fchownat(AT_FDCWD, &real, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)?,
            }
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let (atime, mtime) = (time_spec(change.atime), time_spec(change.mtime));
            match &open {
                Some(open) => stat::futimens(&open.file, &atime, &mtime)?,
                None => {
                    let flags = UtimensatFlags::NoFollowSymlink;
                    utimensat(AT_FDCWD, &real, &atime, &mtime, flags)?;
                }
            }
        }
        self.getattr(id, handle)
    }

    /// May the server do that?
    pub fn access(&self, id: u64, mask: i32) -> Result<(), Errno> {
        let real = self.real(&self.nodes.path(id)?);
        let mask = AccessFlags::from_bits_truncate(mask);
        faccessat(AT_FDCWD, &real, mask, AtFlags::empty())
    }

    /// Opens a file that was looked up, or what has replaced it since.
    pub fn open(&self, id: u64, flags: i32) -> Result<u64, Errno> {
        let file = open_real(&self.real(&self.nodes.path(id)?), flags, 0)?;
        Ok(self.keep(id, file))
    }

    /// Makes and opens a file.
    pub fn create(
        &self,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, u64), Errno> {
        let path = self.nodes.child(parent, name)?;
        let held = self.record.hold()?;
        let is_new = held.is_on() && !self.real(&path).exists();
        let file = open_real(&self.real(&path), flags | OFlag::O_CREAT.bits(), mode)?;
        if is_new {
            let ino = ino_of(&file)?;
            held.add(&Event { ino, ..Event::named(Kind::Create, &shown(&path), "") })?;
        }
        drop(held);
        self.changed(&path);
        let attr = self.seen(&path, &file.metadata()?);
        Ok((attr, self.keep(attr.ino.0, file)))
    }

    fn keep(&self, id: u64, file: OpenFile) -> u64 {
        let file = Arc::new(file);
        self.nodes.opened(id, &file);
        self.handles.add(Handle::File(id, file))
    }

    /// Closes what is open.
    pub fn release(&self, handle: u64) {
        if let Some(Handle::File(id, file)) = self.handles.remove(handle) {
            self.nodes.closed(id, &file);
        }
    }

    /// Renames, with the flags of `renameat2`.
    pub fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> Result<(), Errno> {
        let (from, to) = (self.nodes.child(from.0, from.1)?, self.nodes.child(to.0, to.1)?);
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        let held = self.record.hold()?;
        renameat2(AT_FDCWD, &self.real(&from), AT_FDCWD, &self.real(&to), flags)?;
        held.add(&Event::named(Kind::Rename, &shown(&from), &shown(&to)))?;
        drop(held);
        self.changed(&to);
        // What is known is of the file, whatever its name is.
        let mut remembered = self.remembered.lock();
        let known = remembered.names.remove(&from);
        known.map(|known| remembered.names.insert(to.clone(), known));
        drop(remembered);
        self.nodes.moved(&from, &to, flags.contains(RenameFlags::RENAME_EXCHANGE));
        Ok(())
    }

    /// Makes another name of a file.
    pub fn link(&self, id: u64, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let (from, to) = (self.nodes.path(id)?, self.nodes.child(parent, name)?);
        let held = self.record.hold()?;
        linkat(AT_FDCWD, &self.real(&from), AT_FDCWD, &self.real(&to), AtFlags::empty())?;
        held.add(&Event::named(Kind::Link, &shown(&from), &shown(&to)))?;
        drop(held);
        self.lookup(parent, name)
    }

    /// Removes a file.
    pub fn unlink(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let path = self.nodes.child(parent, name)?;
        let held = self.record.hold()?;
        unlink(&self.real(&path))?;
        held.add(&Event::named(Kind::Unlink, &shown(&path), ""))?;
        drop(held);
        self.changed(&path);
        self.nodes.gone(&path);
        Ok(())
    }

    /// Removes a directory.
    pub fn rmdir(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let path = self.nodes.child(parent, name)?;
        let held = self.record.hold()?;
        fs::remove_dir(self.real(&path)).map_err(|error| errno_of(&error))?;
        held.add(&Event::named(Kind::Rmdir, &shown(&path), ""))?;
        drop(held);
        self.nodes.gone(&path);
        Ok(())
    }

    /// Makes a directory.
    pub fn mkdir(&self, parent: u64, name: &OsStr, mode: u32) -> Result<FileAttr, Errno> {
        let path = self.nodes.child(parent, name)?;
        let held = self.record.hold()?;
        mkdir(&self.real(&path), Mode::from_bits_truncate(mode & MODE_PERMISSIONS))?;
        held.add(&Event::named(Kind::Mkdir, &shown(&path), ""))?;
        drop(held);
        self.lookup(parent, name)
    }

    /// Makes a file, FIFO or socket.
    pub fn mknod(&self, parent: u64, name: &OsStr, mode: u32) -> Result<FileAttr, Errno> {
        let kind = SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits());
        if kind == SFlag::S_IFCHR || kind == SFlag::S_IFBLK {
            return Err(Errno::EPERM);
        }
        let permissions = Mode::from_bits_truncate(mode & MODE_PERMISSIONS);
        mknod(&self.real_child(parent, name)?, kind, permissions, 0)?;
        self.lookup(parent, name)
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, parent: u64, name: &OsStr, target: &Path) -> Result<FileAttr, Errno> {
        let real = self.real_child(parent, name)?;
        std::os::unix::fs::symlink(target, real).map_err(|error| errno_of(&error))?;
        self.lookup(parent, name)
    }

    /// Where a symbolic link leads.
    pub fn readlink(&self, id: u64) -> Result<PathBuf, Errno> {
        fs::read_link(self.real(&self.nodes.path(id)?)).map_err(|error| errno_of(&error))
    }

    /// Lists a directory once for all reads through the handle.
    pub fn opendir(&self, id: u64) -> Result<u64, Errno> {
        let real = self.real(&self.nodes.path(id)?);
        let mut entries = vec![
            Entry { name: ".".into(), ino: id, kind: FileType::Directory },
            Entry { name: "..".into(), ino: id, kind: FileType::Directory },
        ];
        for entry in fs::read_dir(real).map_err(|error| errno_of(&error))? {
            let entry = entry.map_err(|error| errno_of(&error))?;
            let kind = entry.file_type().ok().and_then(FileType::from_std);
            let ino = std::os::unix::fs::DirEntryExt::ino(&entry);
            let kind = kind.unwrap_or(FileType::RegularFile);
            entries.push(Entry { name: entry.file_name(), ino, kind });
        }
        Ok(self.handles.add(Handle::Dir(Arc::new(entries))))
    }

    /// Space of the real file system.
    pub fn statfs(&self) -> Result<Statvfs, Errno> {
        statvfs(&self.real(Path::new("")))
    }
}

fn symlink_metadata(real: &Path) -> Result<Metadata, Errno> {
    fs::symlink_metadata(real).map_err(|error| errno_of(&error))
}

/// Opens with the caller's flags, `O_DIRECT` too, so that a file system that refuses it does so
/// here; then takes that flag off again (see [`OpenFile`]).
fn open_real(real: &Path, flags: i32, mode: u32) -> Result<OpenFile, Errno> {
    let flags = OFlag::from_bits_truncate(flags);
    let direct = flags.contains(OFlag::O_DIRECT);
    // An appending file would ignore the offset, which the kernel has computed already.
    let flags = (flags - OFlag::O_APPEND) | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let permissions = Mode::from_bits_truncate(mode & MODE_PERMISSIONS);
    let file: OwnedFd = open(real, flags, permissions)?;
    if direct {
        fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_DIRECT))?;
    }
    Ok(OpenFile { file: File::from(file), direct })
}

fn time_spec(time: Option<TimeOrNow>) -> TimeSpec {
    match time {
        None => TimeSpec::UTIME_OMIT,
        Some(TimeOrNow::Now) => TimeSpec::UTIME_NOW,
        Some(TimeOrNow::SpecificTime(time)) => {
            TimeSpec::from(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
        }
    }
}
