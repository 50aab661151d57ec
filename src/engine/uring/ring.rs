//! One ring: made, filled, entered, harvested. It knows submissions and completions, and nothing
//! of what they are for. Owned by the one thread that enters it.

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};

use super::refusal::Refusal;
use crate::engine::buffers::{Buffer, Extent};
use crate::posix::affinity;
use crate::posix::aligned::{AlignedBuffer, PAGE_BYTES};

/// Most submissions that wait in a ring; one entry takes them all.
const ENTRIES_MAX: u32 = 512;
/// A ring that the system finds too large is halved down to this.
const ENTRIES_MIN: u32 = 16;
/// The same for its table of files.
const FILES_MIN: u32 = 16;
/// The most files of one ring: the kernel's limit on registered files, and as many ops.
const FILES_MAX: u32 = 32_768;
/// The most slabs that can be registered (the kernel's limit on buffers).
const SLABS_MAX: usize = 16_384;
/// How long to wait before entering again where the kernel lacked memory for it.
const AGAIN_AFTER: Duration = Duration::from_millis(5);

/// What one ring is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Ops at a time, those given up included.
    pub(super) ops: usize,
    /// Slabs of buffers.
    pub(super) slabs: usize,
}

/// One completion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    pub(super) ticket: u64,
    pub(super) result: i32,
    /// More completions of the same submission follow.
    pub(super) more: bool,
}

/// How long an entry waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    /// Not at all.
    No,
    /// For this many completions; fewer do once some time has passed.
    For(u32),
    /// For one completion, at most this long.
    AtMost(Duration),
}

/// See the module's text.
pub(super) struct Ring {
    uring: IoUring,
    files: u32,
    /// Which slabs are registered; empty where registration was refused.
    slabs: Vec<bool>,
    /// Where reads land whose bytes nobody looks at.
    scratch: AlignedBuffer,
    min_wait: bool,
    /// The most workers that the kernel was allowed, and those that it has by right: one for each
    /// op.
    workers: u32,
    ops: u32,
}

impl Ring {
    /// Makes a ring; one that is too large for the system is made smaller.
    pub(super) fn new(shape: Shape) -> Result<Ring, Refusal> {
        let ops = u32::try_from(shape.ops).unwrap_or(FILES_MAX);
        let uring = make(ops.saturating_mul(4).clamp(ENTRIES_MIN, ENTRIES_MAX))?;
        let lacks = |what: &str| Refusal { call: "io_uring_setup", errno: 0, asked: what.into() };
        let params = uring.params();
        if !params.is_feature_skip_cqe_on_success() || !params.is_feature_linked_file() {
            return Err(lacks("quiet completions and linked files"));
        }
        if !params.is_feature_nodrop() || !params.is_feature_ext_arg() {
            return Err(lacks("completions that are never dropped, and waits with a limit"));
        }
        let files = register_files(&uring, ops.clamp(FILES_MIN, FILES_MAX))?;
        set_workers(&uring, ops);
        // Left alone, they run wherever the process may, whatever its threads are pinned to (R57).
        if let Ok(cores) = affinity::cpu_set() {
            let _refused = uring.submitter().register_iowq_aff(&cores);
        }
        let slabs = shape.slabs.min(SLABS_MAX);
        let count = u32::try_from(slabs).unwrap_or(0);
        // Without registered buffers the ring works, only slower.
        let registered = count > 0 && uring.submitter().register_buffers_sparse(count).is_ok();
        let scratch = AlignedBuffer::new(PAGE_BYTES).map_err(|errno| Refusal {
            call: "mmap",
            errno,
            asked: "one page".into(),
        })?;
        let min_wait = uring.params().is_feature_min_timeout();
        let slabs = if registered { vec![false; slabs] } else { Vec::new() };
        Ok(Ring { uring, files, slabs, scratch, min_wait, workers: ops, ops })
    }

    /// So many of the kernel's workers are enough; `None`: there must be one for each op.
    pub(super) fn limit_workers(&mut self, enough: Option<u32>) {
        let most = enough.map_or(self.ops, |enough| enough.min(self.ops));
        if self.workers != most {
            self.workers = most;
            set_workers(&self.uring, most);
        }
    }

    /// How many files it can hold open, and so how many ops it takes.
    pub(super) fn files(&self) -> usize {
        self.files as usize
    }

    /// A page that any number of reads may fill at once.
    pub(super) fn scratch(&self) -> *mut u8 {
        self.scratch.pointer()
    }

    /// The number under which the buffer's slab is registered, if it is.
    pub(super) fn registered(&mut self, buffer: &Buffer) -> Option<u16> {
        let slab = buffer.slab();
        let known = *self.slabs.get(slab.number)?;
        if !known {
            if register_slab(&self.uring, slab).is_err() {
                // RLIMIT_MEMLOCK, most likely: it will not be better for the next one.
                self.slabs.clear();
                return None;
            }
            self.slabs[slab.number] = true;
        }
        u16::try_from(slab.number).ok()
    }

    /// Room for `count` more submissions; enters where there is none, so that a chain is never cut
    /// in two.
    pub(super) fn make_room(&mut self, count: usize) {
        loop {
            let queue = self.uring.submission();
            if queue.capacity() - queue.len() >= count {
                return;
            }
            drop(queue);
            self.enter(Wait::No);
        }
    }

    /// Queues a submission; [`Ring::make_room`] was called.
    ///
    /// # Safety
    /// What the entry points to lives until its completion was harvested, or, where it is quiet,
    /// that of the last one of its chain.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the function's contract.
        let pushed = unsafe { self.uring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "there was room");
    }

    /// Something waits to be handed over.
    pub(super) fn has_queued(&mut self) -> bool {
        !self.uring.submission().is_empty()
    }

    /// Hands over what is queued, and waits. An interrupted wait returns early, as does one that
    /// the kernel refuses because it must be harvested first.
    pub(super) fn enter(&mut self, wait: Wait) {
        let entered = match wait {
            Wait::No => self.enter_raw(),
            Wait::For(count) if count > 1 && self.min_wait => {
                let limit = Timespec::new().sec(MIN_WAIT_END_S);
                let args = SubmitArgs::new().timespec(&limit).min_wait_usec(MIN_WAIT_US);
                self.uring.submitter().submit_with_args(count as usize, &args)
            }
            Wait::For(_) => self.uring.submitter().submit_and_wait(1),
            Wait::AtMost(limit) => {
                let limit = Timespec::from(limit);
                let args = SubmitArgs::new().timespec(&limit);
                self.uring.submitter().submit_with_args(1, &args)
            }
        };
        let refused = entered.err().and_then(|error| error.raw_os_error());
        if refused == Some(libc::EAGAIN) {
            let limit = Timespec::from(AGAIN_AFTER);
            let args = SubmitArgs::new().timespec(&limit);
            let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
            let submitter = self.uring.submitter();
            // SAFETY: nothing is submitted; the arguments live during the call.
            let _waited = unsafe { submitter.enter(0, 1, flags.bits(), Some(&args)) };
        }
    }

    /// Whether the ring may be entered at all: a filter may allow making it and forbid this. What
    /// is refused for now says that it may.
    pub(super) fn try_enter(&mut self) -> Result<(), Refusal> {
        let Err(error) = self.enter_raw() else { return Ok(()) };
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        if matches!(errno, libc::EAGAIN | libc::EBUSY | libc::EINTR) {
            return Ok(());
        }
        Err(Refusal { call: "io_uring_enter", errno, asked: "nothing".into() })
    }

    fn enter_raw(&mut self) -> Result<usize, Error> {
        let queued = u32::try_from(self.uring.submission().len()).unwrap_or(u32::MAX);
        let flags = EnterFlags::GETEVENTS.bits();
        let submitter = self.uring.submitter();
        // SAFETY: what is queued was queued under `push`'s contract; there is no argument.
        unsafe { submitter.enter::<libc::sigset_t>(queued, 0, flags, None) }
    }

    /// Takes everything that has completed.
    pub(super) fn harvest(&mut self, into: &mut Vec<Completion>) {
        let taken = self.uring.completion().map(|entry| Completion {
            ticket: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        });
        into.extend(taken);
    }

    /// A submission that completes each time `event` is signalled.
    pub(super) fn watch(event: &OwnedFd) -> squeue::Entry {
        let readable = u32::try_from(libc::POLLIN).unwrap_or(1);
        opcode::PollAdd::new(types::Fd(event.as_raw_fd()), readable).multi(true).build()
    }
}

/// How long a wait for several completions may take before one is enough.
const MIN_WAIT_US: u32 = 1200;
/// When such a wait ends without any: never, as far as anybody notices.
const MIN_WAIT_END_S: u64 = 3600;

/// Makes the ring itself: halved where it is too large, without what an older kernel lacks.
fn make(entries: u32) -> Result<IoUring, Refusal> {
    let mut entries = entries;
    loop {
        let refused = |error: &Error| Refusal {
            call: "io_uring_setup",
            errno: error.raw_os_error().unwrap_or(libc::EINVAL),
            asked: format!("{entries} entries"),
        };
        let error = match build(entries, true) {
            Ok(uring) => return Ok(uring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // Linux before 6.1 does not know how to leave work to the next entry.
                match build(entries, false) {
                    Ok(uring) => return Ok(uring),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        if error.raw_os_error() != Some(libc::ENOMEM) || entries / 2 < ENTRIES_MIN {
            return Err(refused(&error));
        }
        entries /= 2;
    }
}

fn build(entries: u32, modern: bool) -> Result<IoUring, Error> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_submit_all().setup_cqsize(entries.saturating_mul(4));
    if modern {
        builder.setup_single_issuer().setup_defer_taskrun();
    } else {
        builder.setup_coop_taskrun();
    }
    builder.build(entries)
}

fn register_files(uring: &IoUring, files: u32) -> Result<u32, Refusal> {
    let mut files = files;
    loop {
        let Err(error) = uring.submitter().register_files_sparse(files) else { return Ok(files) };
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        if matches!(errno, libc::EMFILE | libc::ENOMEM) && files / 2 >= FILES_MIN {
            files /= 2;
            continue;
        }
        // A kernel without sparse tables says EINVAL.
        let errno = if errno == libc::EINVAL { 0 } else { errno };
        return Err(Refusal { call: "io_uring_register", errno, asked: format!("{files} files") });
    }
}

/// NFS and FUSE send everything to the kernel's workers: there must be one for each op, or a hung
/// one would keep others waiting.
fn set_workers(uring: &IoUring, most: u32) {
    let mut most = [most, most];
    // A kernel that has no such limit has more than enough of them.
    let _refused = uring.submitter().register_iowq_max_workers(&mut most);
}

fn register_slab(uring: &IoUring, slab: Extent) -> Result<(), Error> {
    let start = slab.start as *mut libc::c_void;
    let memory = [libc::iovec { iov_base: start, iov_len: slab.bytes }];
    let number = u32::try_from(slab.number).map_err(|_| Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the slab is mapped, and stays so while a ring lives (`Buffers::keep_slabs`).
    unsafe { uring.submitter().register_buffers_update(number, &memory, None) }
}
