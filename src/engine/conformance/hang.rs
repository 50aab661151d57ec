//! Ops that hang in the kernel: a stuck name hangs whoever opens it, and memory that the test has
//! not filled in yet hangs whoever touches it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use super::memory::{Host, WAYS, Way, pattern, read_whole, transfer, write_whole};
use super::rig::{Limits, Rig, USUAL, c_path};
use super::stuck::Stuck;
use super::{Case, Make};
use crate::engine::{Done, EngineKind, Gate, Memory, OpKind, Outcome, Segment, Tag};
use crate::error::{Cause, Failure};
use crate::posix::aligned::AlignedBuffer;

pub const CASES: &[Case] = &[
    ("r30 a read that was given up leaves the caller's memory alone", given_up),
    ("r30 a revoke during a copy waits for it and stops the op", revoked_inside),
    ("r32 a borrowed op is reported as what it came to", revoked_borrowed),
    ("r36 a hung worker is replaced", replaced),
    ("r36 hung transfers leave metadata alone", metadata_goes_on),
    ("r36 more may hang than a ring has places", more_than_places),
    ("r30 buffers of abandoned ops are charged until they return", charged),
    ("stop leaves what is queued and lets the hung return", stopped),
];

const BUFFERED: Way = WAYS[0];

fn is_given_up(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Failure { cause: Cause::GivenUp, .. }))
}

fn is_no_file(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Failure { cause: Cause::WrongSize { found: None, .. }, .. }))
}

fn given_up(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let stuck = Stuck::new(&rig, dir, 1);
    let mut host = Host::plain(4096);
    host.set(&[5; 4096]);
    let (tag, gate) = stuck.hang(&rig, 0, &host);
    assert!(gate.revoke(), "nobody is inside while it opens");
    let _released = stuck.release(0);
    assert!(is_given_up(&rig.outcome(tag)));
    assert!(host.get() == [5; 4096]);
}

/// Memory whose first page hangs whoever touches it.
struct Sticky {
    fd: OwnedFd,
    buffer: AlignedBuffer,
}

#[repr(C)]
#[derive(Default)]
struct Request {
    words: [u64; 4],
}

const UFFD_API: u64 = 0xaa;
const PAGE: u64 = 4096;

/// `_IOWR(0xaa, number, bytes)`.
fn request_code(number: u64, bytes: u64) -> libc::c_ulong {
    (3 << 30) | (bytes << 16) | (0xaa << 8) | number
}

impl Sticky {
    fn new(bytes: usize) -> Sticky {
        let buffer = AlignedBuffer::new(bytes).unwrap();
        // SAFETY: a system call without pointers.
        let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let raw = i32::try_from(raw).unwrap();
        assert!(raw >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the kernel just gave this descriptor to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let sticky = Sticky { fd, buffer };
        sticky.request(0x3f, 24, [UFFD_API, 0, 0, 0]);
        // Missing pages of this range are ours to provide.
        sticky.request(0x00, 32, [sticky.address(), PAGE, 1, 0]);
        sticky
    }

    fn address(&self) -> u64 {
        self.buffer.pointer() as u64
    }

    fn request(&self, number: u64, bytes: u64, words: [u64; 4]) {
        let mut request = Request { words };
        let code = request_code(number, bytes);
        // SAFETY: the struct is as long as the longest of these requests, and ours.
        let status = unsafe { libc::ioctl(self.fd.as_raw_fd(), code, &raw mut request) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    }

    /// Waits until somebody hangs on it.
    fn touched(&self) {
        let mut message = [0_u8; 32];
        let (to, bytes) = (message.as_mut_ptr().cast(), message.len());
        // SAFETY: 32 bytes of ours are written during the call.
        assert_eq!(unsafe { libc::read(self.fd.as_raw_fd(), to, bytes) }, 32);
    }

    fn release(&self) {
        self.request(0x04, 32, [self.address(), PAGE, 0, 0]);
    }

    fn memory(&self) -> Arc<Memory> {
        let bytes = self.buffer.bytes();
        Arc::new(Memory::new([Segment::new(self.buffer.pointer(), bytes)]))
    }
}

fn revoked_inside(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let bytes = 4 << 20;
    let source = dir.join("source");
    std::fs::write(&source, pattern(bytes, 1)).unwrap();
    for way in [WAYS[0], WAYS[1]] {
        let sticky = Sticky::new(bytes);
        let memory = sticky.memory();
        let read = transfer(&source, way, Arc::clone(&memory), 0, bytes as u64);
        let (tag, gate) = rig.submit(OpKind::Read(read));
        sticky.touched();
        assert!(!gate.revoke(), "the copy is in the middle of the memory");
        sticky.release();
        assert!(is_given_up(&rig.outcome(tag)));
        let mut last = [1; 4096];
        // SAFETY: the op has ended; the memory is the test's.
        unsafe { memory.copy_out((bytes - last.len()) as u64, &mut last) };
        assert!(last == [0; 4096], "the last piece was copied after the revoke");

        let path = dir.join(format!("{way:?}"));
        let sticky = Sticky::new(bytes);
        let mut write = transfer(&path, way, sticky.memory(), 0, bytes as u64);
        write.create = Some(0o644);
        let (tag, gate) = rig.submit(OpKind::Write(write));
        sticky.touched();
        assert!(!gate.revoke());
        sticky.release();
        assert!(is_given_up(&rig.outcome(tag)));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "no step after the revoke");
    }
}

fn revoked_borrowed(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let content = pattern(64 << 10, 1);
    let source = dir.join("source");
    std::fs::write(&source, &content).unwrap();
    let sticky = Sticky::new(content.len());
    let memory = sticky.memory();
    let read = transfer(&source, WAYS[2], Arc::clone(&memory), 0, content.len() as u64);
    let (tag, gate) = rig.submit(OpKind::Read(read));
    sticky.touched();
    assert!(!gate.revoke());
    sticky.release();
    assert_eq!(rig.outcome(tag), Ok(Done::Unit));
    let mut got = vec![0; content.len()];
    // SAFETY: the op has ended; the memory is the test's.
    unsafe { memory.copy_out(0, &mut got) };
    assert!(got == content);
}

fn replaced(make: Make, dir: &Path) {
    let one = Limits { transfers: 1, metadata: 1, ..USUAL };
    let rig = Rig::new(make, one);
    let file = dir.join("file");
    let mut host = Host::plain(4096);
    assert!(rig.run(write_whole(&file, BUFFERED, &host)).is_ok());
    let stuck = Stuck::new(&rig, dir, 3);
    let hung: Vec<(Tag, Arc<Gate>)> = (0..3)
        .map(|number| {
            let (tag, gate) = stuck.hang(&rig, number, &host);
            let (next, _) = rig.submit(read_whole(&file, BUFFERED, &host));
            assert_eq!(rig.waiting(), 1, "the only place is taken");
            assert!(gate.revoke());
            rig.engine.abandon(tag);
            assert_eq!(rig.outcome(next), Ok(Done::Unit));
            (tag, gate)
        })
        .collect();
    assert_eq!(rig.running(), 3);
    // Kernel workers hang for the ring, and are no threads of ours.
    assert!(rig.engine.threads() >= if rig.engine.kind() == EngineKind::IoUring { 1 } else { 4 });
    host.set(&[6; 4096]);
    for (number, (tag, _)) in hung.into_iter().enumerate() {
        let _released = stuck.release(number);
        assert!(is_given_up(&rig.outcome(tag)));
    }
    assert!(host.get() == [6; 4096]);
    // Those that came back are too many and leave; work goes on.
    assert_eq!(rig.run(read_whole(&file, BUFFERED, &host)), Ok(Done::Unit));
    rig.until_bell(|| rig.engine.threads() == 0);
}

fn more_than_places(make: Make, dir: &Path) {
    let rig = Rig::new(make, Limits { transfers: 8, metadata: 1, buffer_bytes: 256 << 20 });
    let file = dir.join("file");
    let host = Host::plain(4096);
    std::fs::write(&file, pattern(4096, 1)).unwrap();
    let stuck = Stuck::new(&rig, dir, 1);
    // As many as fill the tables of several rings; threads have no such limit.
    let rounds = if rig.engine.kind() == EngineKind::IoUring { 20 } else { 2 };
    let mut hung = Vec::new();
    for _ in 0..rounds {
        let new: Vec<(Tag, Arc<Gate>)> = (0..8).map(|_| stuck.begin(&rig, 0, &host)).collect();
        rig.until_opening(rig.running());
        for (tag, gate) in new {
            assert!(gate.revoke());
            rig.engine.abandon(tag);
            hung.push(tag);
        }
    }
    assert_eq!(rig.running(), hung.len());
    let reads: Vec<Tag> =
        (0..20).map(|_| rig.submit(read_whole(&file, BUFFERED, &host)).0).collect();
    for tag in reads {
        assert_eq!(rig.outcome(tag), Ok(Done::Unit));
    }
    let _released = stuck.release(0);
    for tag in hung {
        assert!(rig.outcome(tag).is_err());
    }
}

fn metadata_goes_on(make: Make, dir: &Path) {
    let rig = Rig::new(make, Limits { transfers: 2, metadata: 1, ..USUAL });
    let stuck = Stuck::new(&rig, dir, 1);
    let host = Host::plain(4096);
    let hung = [stuck.hang(&rig, 0, &host), stuck.hang(&rig, 0, &host)];
    let (third, _) = rig.submit(read_whole(&dir.join("none"), BUFFERED, &host));
    for _ in 0..50 {
        assert!(rig.run(OpKind::Stat { path: c_path(dir) }).is_ok());
    }
    assert_eq!(rig.waiting(), 1, "a third transfer has no place");
    let _released = stuck.release(0);
    for (tag, _) in hung {
        assert!(is_no_file(&rig.outcome(tag)));
    }
    assert!(rig.outcome(third).is_err());
    assert_eq!(rig.most(), (2, 1));
}

fn charged(make: Make, dir: &Path) {
    // One slot for four transfers.
    let rig = Rig::new(make, Limits { buffer_bytes: 8192, ..USUAL });
    let stuck = Stuck::new(&rig, dir, 1);
    let host = Host::plain(4096);
    let (hung, gate) = stuck.hang(&rig, 0, &host);
    let (queued, _) = rig.submit(read_whole(&dir.join("none"), BUFFERED, &host));
    assert!(gate.revoke());
    rig.engine.abandon(hung);
    assert!(rig.run(OpKind::Stat { path: c_path(dir) }).is_ok());
    assert_eq!(rig.waiting(), 1, "there is no buffer to pull it with");
    let _released = stuck.release(0);
    assert!(is_given_up(&rig.outcome(hung)));
    assert!(rig.outcome(queued).is_err());
}

fn stopped(make: Make, dir: &Path) {
    let rig = Rig::new(make, Limits { transfers: 2, ..USUAL });
    let stuck = Stuck::new(&rig, dir, 1);
    let host = Host::plain(4096);
    let hung = [stuck.hang(&rig, 0, &host), stuck.hang(&rig, 0, &host)];
    for _ in 0..5 {
        rig.submit(read_whole(&dir.join("none"), BUFFERED, &host));
    }
    rig.engine.stop();
    assert!(!rig.engine.join(Some(std::time::Duration::ZERO)), "two are still hung");
    let _released = stuck.release(0);
    assert!(rig.engine.join(None));
    for (tag, _) in hung {
        assert!(is_no_file(&rig.outcome(tag)));
    }
    assert_eq!((rig.waiting(), rig.engine.threads()), (5, 0));
    rig.engine.wake(5);
    rig.engine.make_threads().unwrap();
    assert_eq!((rig.waiting(), rig.engine.threads()), (5, 0));
}
