//! Files and directories by full path: one function a system call, EINTR continued, errno kept.
//!
//! No function follows a symbolic link in the last component (R9). Descriptors close on exec and
//! are owned by [`OwnedFd`], except that [`close`] tells the error that a plain drop would lose
//! (R35).

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::raw::c_int;

/// errno of the last failing call of this thread.
fn errno() -> i32 {
    nix::errno::Errno::last_raw()
}

/// Repeats `call` while it is interrupted by a signal, and turns -1 into errno.
pub(super) fn retry(mut call: impl FnMut() -> c_int) -> Result<c_int, i32> {
    loop {
        let value = call();
        if value >= 0 {
            return Ok(value);
        }
        let errno = errno();
        if errno != libc::EINTR {
            return Err(errno);
        }
    }
}

fn retry_size(mut call: impl FnMut() -> isize) -> Result<usize, i32> {
    loop {
        if let Ok(size) = usize::try_from(call()) {
            return Ok(size);
        }
        let errno = errno();
        if errno != libc::EINTR {
            return Err(errno);
        }
    }
}

fn open_with(path: &CStr, flags: c_int, mode: u32) -> Result<OwnedFd, i32> {
    let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NOCTTY;
    // SAFETY: `path` is terminated and lives during the call.
    let fd = retry(|| unsafe { libc::open(path.as_ptr(), flags, mode) })?;
    // SAFETY: the kernel just gave this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn direct_flag(direct: bool) -> c_int {
    if direct { libc::O_DIRECT } else { 0 }
}

/// Opens an existing file for reading.
pub fn open_read(path: &CStr, direct: bool) -> Result<OwnedFd, i32> {
    open_with(path, libc::O_RDONLY | direct_flag(direct), 0)
}

/// Opens an existing file for writing.
pub fn open_write(path: &CStr, direct: bool) -> Result<OwnedFd, i32> {
    open_with(path, libc::O_WRONLY | direct_flag(direct), 0)
}

/// Creates a file for reading and writing; EEXIST where the name is taken.
pub fn create_new(path: &CStr, direct: bool, mode: u32) -> Result<OwnedFd, i32> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | direct_flag(direct);
    open_with(path, flags, mode)
}

/// Opens a directory.
pub fn open_directory(path: &CStr) -> Result<OwnedFd, i32> {
    open_with(path, libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

/// Closes, and tells the error. The descriptor is gone either way; EINTR is not repeated (Linux has
/// released it).
pub fn close(fd: OwnedFd) -> Result<(), i32> {
    let raw = fd.into_raw_fd();
    // SAFETY: `into_raw_fd` handed the descriptor over; nobody else closes it.
    match unsafe { libc::close(raw) } {
        0 => Ok(()),
        _ => match errno() {
            libc::EINTR => Ok(()),
            errno => Err(errno),
        },
    }
}

/// Reads once at `offset`; 0 = end of file.
pub fn read_at(fd: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize, i32> {
    let offset = libc::off_t::try_from(offset).map_err(|_| libc::EOVERFLOW)?;
    let (target, bytes) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: `buffer` is ours for the call, and at most its length is written.
    retry_size(|| unsafe { libc::pread(fd.as_raw_fd(), target, bytes, offset) })
}

/// Writes once at `offset`; may be short.
pub fn write_at(fd: &OwnedFd, buffer: &[u8], offset: u64) -> Result<usize, i32> {
    let offset = libc::off_t::try_from(offset).map_err(|_| libc::EOVERFLOW)?;
    let (source, bytes) = (buffer.as_ptr().cast(), buffer.len());
    // SAFETY: `buffer` lives during the call, and at most its length is read.
    retry_size(|| unsafe { libc::pwrite(fd.as_raw_fd(), source, bytes, offset) })
}

/// Reads once at `offset` into several pieces of memory that this process may not own as
/// references.
///
/// # Safety
/// Every piece is valid for writes until the call returns.
pub unsafe fn read_vectored_at(
    fd: &OwnedFd,
    pieces: &[libc::iovec],
    offset: u64,
) -> Result<usize, i32> {
    let offset = libc::off_t::try_from(offset).map_err(|_| libc::EOVERFLOW)?;
    let count = c_int::try_from(pieces.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the function's contract; the array lives during the call.
    retry_size(|| unsafe { libc::preadv(fd.as_raw_fd(), pieces.as_ptr(), count, offset) })
}

/// Writes once at `offset` from several pieces of memory.
///
/// # Safety
/// Every piece is valid for reads until the call returns.
pub unsafe fn write_vectored_at(
    fd: &OwnedFd,
    pieces: &[libc::iovec],
    offset: u64,
) -> Result<usize, i32> {
    let offset = libc::off_t::try_from(offset).map_err(|_| libc::EOVERFLOW)?;
    let count = c_int::try_from(pieces.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the function's contract; the array lives during the call.
    retry_size(|| unsafe { libc::pwritev(fd.as_raw_fd(), pieces.as_ptr(), count, offset) })
}

/// Waits until data and metadata are on the device.
pub fn sync_all(fd: &OwnedFd) -> Result<(), i32> {
    // SAFETY: a plain call on a descriptor that is open for the borrow's life.
    retry(|| unsafe { libc::fsync(fd.as_raw_fd()) }).map(drop)
}

/// Waits until the data is on the device.
pub fn sync_data(fd: &OwnedFd) -> Result<(), i32> {
    // SAFETY: a plain call on a descriptor that is open for the borrow's life.
    retry(|| unsafe { libc::fdatasync(fd.as_raw_fd()) }).map(drop)
}

/// Reserves space for `bytes` from the start of the file; with `length` they are its length, too.
pub fn reserve(fd: &OwnedFd, bytes: u64, length: bool) -> Result<(), i32> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| libc::EFBIG)?;
    let mode = if length { 0 } else { libc::FALLOC_FL_KEEP_SIZE };
    // SAFETY: a plain call on a descriptor that is open for the borrow's life.
    retry(|| unsafe { libc::fallocate(fd.as_raw_fd(), mode, 0, bytes) }).map(drop)
}

/// Renames; with `no_replace`, EEXIST where `to` exists, and EINVAL, ENOSYS or EOPNOTSUPP where the
/// file system cannot tell.
pub fn rename(from: &CStr, to: &CStr, no_replace: bool) -> Result<(), i32> {
    let flags = if no_replace { libc::RENAME_NOREPLACE } else { 0 };
    let at = libc::AT_FDCWD;
    if flags == 0 {
        // SAFETY: both names are terminated and live during the call.
        return retry(|| unsafe { libc::rename(from.as_ptr(), to.as_ptr()) }).map(drop);
    }
    // SAFETY: both names are terminated and live during the call.
    retry(|| unsafe { libc::renameat2(at, from.as_ptr(), at, to.as_ptr(), flags) }).map(drop)
}

/// Hard-links; EEXIST where `to` exists.
pub fn link(from: &CStr, to: &CStr) -> Result<(), i32> {
    // SAFETY: both names are terminated and live during the call.
    retry(|| unsafe { libc::link(from.as_ptr(), to.as_ptr()) }).map(drop)
}

/// Removes a file's name.
pub fn unlink(path: &CStr) -> Result<(), i32> {
    // SAFETY: the name is terminated and lives during the call.
    retry(|| unsafe { libc::unlink(path.as_ptr()) }).map(drop)
}

/// Makes a directory with exactly `mode`, whatever the umask; keeps the setgid bit that it inherits
/// (R9).
pub fn make_directory(path: &CStr, mode: u32) -> Result<(), i32> {
    // SAFETY: the name is terminated and lives during the call.
    retry(|| unsafe { libc::mkdir(path.as_ptr(), mode) })?;
    let info = stat(path)?;
    if info.mode & 0o777 == mode & 0o777 {
        return Ok(());
    }
    let kept = info.mode & 0o7000;
    // SAFETY: the name is terminated and lives during the call.
    retry(|| unsafe { libc::chmod(path.as_ptr(), kept | mode) }).map(drop)
}

/// Makes an empty file where there is none.
pub fn make_file(path: &CStr, mode: u32) -> Result<(), i32> {
    match create_new(path, false, mode) {
        Ok(fd) => close(fd),
        Err(libc::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Removes an empty directory; ENOTEMPTY (on some file systems EEXIST) where it is not.
pub fn remove_directory(path: &CStr) -> Result<(), i32> {
    // SAFETY: the name is terminated and lives during the call.
    retry(|| unsafe { libc::rmdir(path.as_ptr()) }).map(drop)
}

/// Sets the file's times to the storage's now. Needs no ownership beyond the right to write.
pub fn touch(path: &CStr) -> Result<(), i32> {
    let at = libc::AT_FDCWD;
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name is terminated and lives during the call; null times mean "now".
    retry(|| unsafe { libc::utimensat(at, path.as_ptr(), std::ptr::null(), flags) }).map(drop)
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Bytes.
    pub bytes: u64,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// mtime in seconds of the storage's clock.
    pub mtime_s: i64,
    /// The same in nanoseconds.
    pub mtime_ns: i64,
    /// Device of the file.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Mount id; 0 where the kernel does not tell.
    pub mount: u64,
    /// Memory alignment of `O_DIRECT`; 0 where the kernel does not tell.
    pub memory_align: u32,
    /// Offset alignment of `O_DIRECT`; 0 where the kernel does not tell.
    pub offset_align: u32,
}

impl Info {
    /// A regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// A directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// Everything that [`Info`] has.
const WHOLE: u32 = libc::STATX_TYPE
    | libc::STATX_MODE
    | libc::STATX_SIZE
    | libc::STATX_MTIME
    | libc::STATX_INO
    | libc::STATX_MNT_ID
    | libc::STATX_DIOALIGN;

fn statx(at: c_int, path: &CStr, flags: c_int, mask: u32) -> Result<Info, i32> {
    let mut raw = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the name is terminated, and `raw` is ours to write during the call.
    retry(|| unsafe { libc::statx(at, path.as_ptr(), flags, mask, raw.as_mut_ptr()) })?;
    // SAFETY: zeroed is a valid value of this plain struct, and the kernel has filled it.
    let raw = unsafe { raw.assume_init() };
    let dio = raw.stx_mask & libc::STATX_DIOALIGN != 0;
    Ok(Info {
        bytes: raw.stx_size,
        mode: u32::from(raw.stx_mode),
        mtime_s: raw.stx_mtime.tv_sec,
        mtime_ns: (raw.stx_mtime.tv_sec.saturating_mul(1_000_000_000))
            .saturating_add(i64::from(raw.stx_mtime.tv_nsec)),
        device: libc::makedev(raw.stx_dev_major, raw.stx_dev_minor),
        inode: raw.stx_ino,
        mount: raw.stx_mnt_id,
        memory_align: if dio { raw.stx_dio_mem_align } else { 0 },
        offset_align: if dio { raw.stx_dio_offset_align } else { 0 },
    })
}

/// Sets a name's mtime; a symbolic link is not followed.
pub fn set_mtime(path: &CStr, ns: i64) -> Result<(), i32> {
    let omitted = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let (tv_sec, tv_nsec) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let times = [omitted, libc::timespec { tv_sec, tv_nsec }];
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    let at = libc::AT_FDCWD;
    // SAFETY: the name is terminated; both live during the call.
    retry(|| unsafe { libc::utimensat(at, path.as_ptr(), times.as_ptr(), flags) }).map(drop)
}

/// Sets an open file's times to now.
pub fn touch_open(fd: &OwnedFd) -> Result<(), i32> {
    // SAFETY: a plain number; null times mean "now".
    retry(|| unsafe { libc::futimens(fd.as_raw_fd(), std::ptr::null()) }).map(drop)
}

/// What an open file is.
pub fn stat_open(fd: &OwnedFd) -> Result<Info, i32> {
    statx(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH, WHOLE)
}

/// What a name is; a symbolic link is not followed.
pub fn stat(path: &CStr) -> Result<Info, i32> {
    statx(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW, WHOLE)
}

/// Kind and times of a name in an open directory; a symbolic link is not followed.
pub(super) fn stat_in(place: c_int, name: &CStr) -> Result<Info, i32> {
    statx(place, name, libc::AT_SYMLINK_NOFOLLOW, libc::STATX_TYPE | libc::STATX_MTIME)
}

/// The size of a regular file, `None` for anything else; a symbolic link is not followed. Asks for
/// no more than that, which some file systems answer faster.
pub fn file_bytes(path: &CStr) -> Result<Option<u64>, i32> {
    let mask = libc::STATX_TYPE | libc::STATX_SIZE;
    let info = statx(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW, mask)?;
    Ok(info.is_file().then_some(info.bytes))
}

/// A directory as a place to look from, for [`file_bytes_below`]; a symbolic link is followed (R3).
pub fn open_place(path: &CStr) -> Result<OwnedFd, i32> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: `path` is terminated and lives during the call.
    let fd = retry(|| unsafe { libc::open(path.as_ptr(), flags) })?;
    // SAFETY: the kernel just gave this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// As [`file_bytes`], by a path that starts at `place`.
pub fn file_bytes_below(place: &OwnedFd, path: &CStr) -> Result<Option<u64>, i32> {
    let mask = libc::STATX_TYPE | libc::STATX_SIZE;
    let info = statx(place.as_raw_fd(), path, libc::AT_SYMLINK_NOFOLLOW, mask)?;
    Ok(info.is_file().then_some(info.bytes))
}

/// What a name is; a symbolic link is followed (storage roots may be links, R3).
pub fn stat_follow(path: &CStr) -> Result<Info, i32> {
    statx(libc::AT_FDCWD, path, 0, WHOLE)
}

/// Makes a file this long.
pub fn set_length(fd: &OwnedFd, bytes: u64) -> Result<(), i32> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| libc::EFBIG)?;
    // SAFETY: plain numbers.
    retry(|| unsafe { libc::ftruncate(fd.as_raw_fd(), bytes) }).map(drop)
}

/// The names in a directory, `.` and `..` left out. Names that are not UTF-8 are replaced by their
/// lossy form, which no block and no temporary of ours has.
pub fn list(path: &CStr) -> Result<Vec<String>, i32> {
    Ok(list_kinds(path)?.into_iter().map(|(name, _)| name).collect())
}

/// What a directory says about one of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// Anything else, a symbolic link to a directory included.
    Other,
    /// The file system does not tell; [`stat`] does.
    Unknown,
}

/// The names in a directory as [`list`] gives them, and what each is, without a system call a name.
pub fn list_kinds(path: &CStr) -> Result<Vec<(String, Kind)>, i32> {
    let fd = open_directory(path)?;
    let mut directory = nix::dir::Dir::from_fd(fd.into_raw_fd()).map_err(|errno| errno as i32)?;
    let mut names = Vec::new();
    for entry in directory.iter() {
        let entry = entry.map_err(|errno| errno as i32)?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            let kind = match entry.file_type() {
                Some(nix::dir::Type::Directory) => Kind::Directory,
                Some(_) => Kind::Other,
                None => Kind::Unknown,
            };
            names.push((name.to_string_lossy().into_owned(), kind));
        }
    }
    Ok(names)
}

/// `text` as a C string; EINVAL where it contains NUL.
pub fn c_path(text: &str) -> Result<CString, i32> {
    CString::new(text).map_err(|_| libc::EINVAL)
}
