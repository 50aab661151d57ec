//! Linux's asynchronous I/O, by its raw system calls: a context, requests, events.
//!
//! Not libaio, and nothing of its habit of reaping in user space. A [`Context`] names a kernel
//! object; who may use it until when is its owner's business, the thread that drops it included.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::raw::c_long;
use std::ptr::null_mut;
use std::time::Duration;

/// The most segments of one request.
pub const SEGMENTS_MAX: usize = 1024;

/// `IOCB_CMD_PREAD`.
const READ: u16 = 0;
/// `IOCB_CMD_PREADV`.
const READ_VECTORED: u16 = 7;
/// `IOCB_CMD_PWRITEV`.
const WRITE_VECTORED: u16 = 8;

/// One request, laid out as the kernel's `struct iocb` (little-endian word order of `aio_key`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Request {
    data: u64,
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    descriptor: u32,
    address: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// What became of a request, laid out as the kernel's `struct io_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Event {
    /// What the request carried.
    pub data: u64,
    request: u64,
    /// Bytes moved, or a negative errno.
    pub result: i64,
    second: i64,
}

impl Request {
    fn vectored(
        opcode: u16,
        fd: &OwnedFd,
        pieces: &[libc::iovec],
        offset: u64,
        data: u64,
    ) -> Result<Request, i32> {
        Ok(Request {
            data,
            opcode,
            descriptor: fd.as_raw_fd().cast_unsigned(),
            address: pieces.as_ptr() as u64,
            bytes: pieces.len() as u64,
            offset: i64::try_from(offset).map_err(|_| libc::EOVERFLOW)?,
            ..Request::default()
        })
    }

    /// What the event will carry.
    pub fn set_data(&mut self, data: u64) {
        self.data = data;
    }

    /// Reads at `offset` into `pieces`, which live until the request was submitted.
    ///
    /// # Errors
    /// EOVERFLOW for an offset that no file has.
    pub fn read(
        fd: &OwnedFd,
        pieces: &[libc::iovec],
        offset: u64,
        data: u64,
    ) -> Result<Request, i32> {
        Request::vectored(READ_VECTORED, fd, pieces, offset, data)
    }

    /// Writes `pieces` at `offset`; they live until the request was submitted.
    ///
    /// # Errors
    /// EOVERFLOW for an offset that no file has.
    pub fn write(
        fd: &OwnedFd,
        pieces: &[libc::iovec],
        offset: u64,
        data: u64,
    ) -> Result<Request, i32> {
        Request::vectored(WRITE_VECTORED, fd, pieces, offset, data)
    }
}

/// Whether this process may use the calls at all: ENOSYS where the kernel has none, EPERM where a
/// filter forbids them. Makes no context.
///
/// # Errors
/// errno.
pub fn allowed() -> Result<(), i32> {
    match setup(0) {
        // A context for no events is refused by whoever knows the call.
        Ok(_) | Err(libc::EINVAL) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn setup(events: u32) -> Result<u64, i32> {
    let mut id: u64 = 0;
    // SAFETY: the kernel writes one word of ours, which is 0 as it demands.
    let status = unsafe { libc::syscall(libc::SYS_io_setup, events, &raw mut id) };
    if status == 0 { Ok(id) } else { Err(nix::errno::Errno::last_raw()) }
}

/// A context.
#[derive(Debug)]
pub struct Context {
    id: u64,
    events: u32,
    /// A file without bytes, whose read is an event at once.
    empty: OwnedFd,
}

impl Context {
    /// Makes one that holds at least `events` requests.
    ///
    /// # Errors
    /// errno; EAGAIN where `fs.aio-max-nr` does not allow so many.
    pub fn new(events: u32) -> Result<Context, i32> {
        // SAFETY: the name is terminated.
        let raw = unsafe { libc::memfd_create(c"kvpath".as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return Err(nix::errno::Errno::last_raw());
        }
        // SAFETY: the kernel just gave this descriptor to us alone.
        let empty = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Context { id: setup(events)?, events, empty })
    }

    /// How many requests it holds at least.
    #[must_use]
    pub fn holds(&self) -> u32 {
        self.events
    }

    /// Submits one request, not a batch: a submission may wait for an inode's lock or hang with its
    /// server, and what is behind it in the list would wait, too, and with it its worker's next
    /// op. EAGAIN: the context is full, or the kernel lacks memory.
    ///
    /// # Errors
    /// errno; the request was not taken.
    ///
    /// # Safety
    /// The memory that the request's pieces name stays valid until its event has come; the pieces
    /// themselves until this returns.
    pub unsafe fn submit(&self, request: &Request) -> Result<(), i32> {
        let mut list = [std::ptr::from_ref(request).cast_mut()];
        loop {
            let one: c_long = 1;
            // SAFETY: a list of one request that lives during the call; the contract for the rest.
            let taken =
                unsafe { libc::syscall(libc::SYS_io_submit, self.id, one, list.as_mut_ptr()) };
            match taken {
                1 => return Ok(()),
                0 => return Err(libc::EAGAIN),
                _ => match nix::errno::Errno::last_raw() {
                    libc::EINTR => {}
                    errno => return Err(errno),
                },
            }
        }
    }

    /// Makes an event that carries `data`, without any I/O.
    ///
    /// # Errors
    /// errno; EAGAIN where the context is full.
    pub fn kick(&self, data: u64) -> Result<(), i32> {
        let request = Request {
            data,
            opcode: READ,
            descriptor: self.empty.as_raw_fd().cast_unsigned(),
            ..Request::default()
        };
        // SAFETY: a request for no bytes names no memory.
        unsafe { self.submit(&request) }
    }

    /// Waits for at least one event, at most `limit` (`None`: as long as it takes), and takes as
    /// many as there are. Nothing: the limit has passed, or a signal came.
    ///
    /// # Errors
    /// errno, EINTR excepted.
    pub fn events<'a>(
        &self,
        into: &'a mut [Event],
        limit: Option<Duration>,
    ) -> Result<&'a [Event], i32> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let time = match limit {
            None => null_mut(),
            Some(limit) => {
                time.tv_sec = libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX);
                time.tv_nsec = c_long::from(limit.subsec_nanos().cast_signed());
                &raw mut time
            }
        };
        let least: c_long = 1;
        let most = c_long::try_from(into.len()).unwrap_or(c_long::MAX);
        let to = into.as_mut_ptr();
        // SAFETY: at most `into.len()` events of ours are written during the call.
        let got = unsafe { libc::syscall(libc::SYS_io_getevents, self.id, least, most, to, time) };
        match usize::try_from(got) {
            Ok(got) => Ok(&into[..got]),
            Err(_) => match nix::errno::Errno::last_raw() {
                libc::EINTR => Ok(&[]),
                errno => Err(errno),
            },
        }
    }
}

/// Waits in the kernel until everything that was submitted has ended, and some milliseconds beyond:
/// not for a thread that may not hang.
impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: a call without pointers; nobody else names this context any more.
        let status = unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
        debug_assert_eq!(status, 0, "a context is destroyed once");
    }
}

/// How many requests all contexts of this system hold, and how many they may: `fs.aio-nr` and
/// `fs.aio-max-nr`. `None` where `/proc` does not tell.
#[must_use]
pub fn quota() -> Option<(u64, u64)> {
    let read = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/fs/{name}")).ok()?.trim().parse().ok()
    };
    Some((read("aio-nr")?, read("aio-max-nr")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_request_is_one_event_with_its_data_and_a_kick_is_one_without_io() {
        assert_eq!((size_of::<Request>(), size_of::<Event>()), (64, 32));
        if allowed().is_err() {
            eprintln!("skipped: no Linux AIO here");
            return;
        }
        let mut file = tempfile();
        file.write_all(b"0123456789").unwrap();
        let fd = OwnedFd::from(file);
        let context = Context::new(8).unwrap();
        let mut into = [0_u8; 16];
        let pieces = [
            libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: 3 },
            libc::iovec { iov_base: into.as_mut_ptr().wrapping_add(8).cast(), iov_len: 8 },
        ];
        let request = Request::read(&fd, &pieces, 2, 77).unwrap();
        // SAFETY: `into` lives until the event below.
        unsafe { context.submit(&request) }.unwrap();
        let mut events = [Event::default(); 4];
        let got = context.events(&mut events, None).unwrap();
        assert_eq!((got.len(), got[0].data, got[0].result), (1, 77, 8));
        assert_eq!(&into, b"234\0\0\0\0\x0056789\0\0\0");
        context.kick(5).unwrap();
        let got = context.events(&mut events, None).unwrap();
        assert_eq!((got.len(), got[0].data, got[0].result), (1, 5, 0));
        let none = context.events(&mut events, Some(Duration::from_millis(1))).unwrap();
        assert_eq!(none.len(), 0);
    }

    fn tempfile() -> std::fs::File {
        let path = std::env::temp_dir().join(format!("kvpath-aio-{}", std::process::id()));
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }
}
