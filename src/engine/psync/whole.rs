//! A read of a whole file by one call: asked for more than there may be, it tells the file's length
//! by where it ends, and the file need not be asked (R23).
//!
//! On a local file system only: elsewhere the look beyond the end is a request to a server, and
//! what the opening has just fetched answers the question for nothing. Whatever is not as expected
//! is left to `read.rs`, which asks and reads again.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::Job;
use super::plan::{ALIGN_BYTES, CACHED_PIECE_BYTES};
use crate::engine::Transfer;
use crate::engine::buffers::Buffer;
use crate::error::{Failure, Step};
use crate::posix::file;

/// Where a byte would land that must not be there.
#[repr(align(4096))]
struct Beyond([u8; BEYOND_BYTES]);

const BEYOND_BYTES: usize = 4096;

/// The errors that may say no more than that the name is no regular file, or that the file wants
/// another alignment.
pub(in crate::engine) fn is_unclear(errno: i32) -> bool {
    matches!(errno, libc::EINVAL | libc::EISDIR | libc::ESPIPE | libc::ENXIO)
}

/// The transfer is a read of all that its file has.
pub(in crate::engine) fn is_whole(transfer: &Transfer) -> bool {
    let bytes = transfer.memory.bytes();
    transfer.isolated && transfer.offset == 0 && bytes == transfer.file_bytes && bytes > 0
}

impl Job<'_> {
    /// Reads the file into the worker's buffer and delivers it. `false`: not a case for this, or
    /// not the file that was expected; nothing was delivered.
    pub(super) fn read_whole(
        &self,
        transfer: &Transfer,
        fd: &OwnedFd,
        buffer: &mut Option<Buffer>,
    ) -> Result<bool, Failure> {
        let bytes = transfer.memory.bytes();
        if !is_whole(transfer) || !self.lane.local.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let memory = self.memory(Step::Read, buffer)?;
        let most = if transfer.direct { memory.len() } else { CACHED_PIECE_BYTES };
        let Some(bytes) = usize::try_from(bytes).ok().filter(|bytes| *bytes <= most) else {
            return Ok(false);
        };
        let align = if transfer.direct { ALIGN_BYTES } else { 1 };
        let span = bytes.next_multiple_of(usize::try_from(align).unwrap_or(1)).min(memory.len());
        let mut beyond = Beyond([0; BEYOND_BYTES]);
        let vector = [
            libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: span },
            libc::iovec { iov_base: beyond.0.as_mut_ptr().cast(), iov_len: BEYOND_BYTES },
        ];
        // Where the file ends inside the alignment, the first piece asks for more already.
        let vector = if span > bytes { &vector[..1] } else { &vector[..] };
        let got = self.step(Step::Read, || {
            // SAFETY: both pieces are this call's own: the lane's memory and the stack's.
            unsafe { file::read_vectored_at(fd, vector, 0) }
        });
        match got {
            Ok(got) if got == bytes => self.deliver(transfer, 0, &memory[..bytes], true)?,
            Ok(_) => return Ok(false),
            Err(failure) if failure.os().is_some_and(is_unclear) => return Ok(false),
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }
}
