//! Page-aligned memory, on huge pages where it is large enough for them: [`AlignedBuffer`] for the
//! engines, and [`allocate`] / [`release`] for callers of the C ABI.
//!
//! The memory comes straight from the kernel and goes straight back; what is reused is the business
//! of `engine/buffers.rs`.

use std::collections::HashMap;
use std::ptr::null_mut;

use parking_lot::Mutex;

use crate::error::{Error, Status};

/// The alignment that every buffer has; `O_DIRECT` never wants more of memory.
pub const PAGE_BYTES: usize = 4096;
/// From this size on a buffer starts at a huge page's boundary and asks for huge pages.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Owned, zeroed memory that starts at a page boundary.
#[derive(Debug)]
pub struct AlignedBuffer {
    address: usize,
    /// What was asked for.
    bytes: usize,
    /// What is mapped: `bytes` rounded up to whole pages.
    mapped: usize,
}

impl AlignedBuffer {
    /// Maps `bytes` bytes.
    ///
    /// # Errors
    /// errno; EINVAL for no bytes.
    pub fn new(bytes: usize) -> Result<AlignedBuffer, i32> {
        if bytes == 0 {
            return Err(libc::EINVAL);
        }
        let mapped = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(libc::ENOMEM)?;
        if mapped < HUGE_PAGE_BYTES {
            return Ok(AlignedBuffer { address: map(mapped)?, bytes, mapped });
        }
        let spare = mapped.checked_add(HUGE_PAGE_BYTES).ok_or(libc::ENOMEM)?;
        let start = map(spare)?;
        let address = start.next_multiple_of(HUGE_PAGE_BYTES);
        unmap(start, address - start);
        unmap(address + mapped, start + spare - (address + mapped));
        // Refused where the kernel has no huge pages; the memory is as good, only slower.
        let _refused = advise(address, mapped, libc::MADV_HUGEPAGE);
        Ok(AlignedBuffer { address, bytes, mapped })
    }

    /// Keeps the memory out of forked children: they may not use it, and a page that the kernel is
    /// writing to while the process forks must stay the parent's.
    #[must_use]
    pub fn hidden_from_children(self) -> AlignedBuffer {
        // A kernel that cannot do that loses nothing but the protection.
        let _refused = advise(self.address, self.mapped, libc::MADV_DONTFORK);
        self
    }

    /// Where it starts.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// How many bytes were asked for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        unmap(self.address, self.mapped);
    }
}

fn map(bytes: usize) -> Result<usize, i32> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address that the kernel chooses touches nothing that
    // exists.
    let start = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(nix::errno::Errno::last_raw()) } else { Ok(start as usize) }
}

fn unmap(address: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: callers give whole pages of a mapping of their own that nobody uses any more.
        let status = unsafe { libc::munmap(address as *mut libc::c_void, bytes) };
        debug_assert_eq!(status, 0, "own pages can be unmapped");
    }
}

fn advise(address: usize, bytes: usize, advice: libc::c_int) -> Result<(), i32> {
    // SAFETY: advice on a mapping of the caller's own changes no byte of it.
    match unsafe { libc::madvise(address as *mut libc::c_void, bytes, advice) } {
        0 => Ok(()),
        _ => Err(nix::errno::Errno::last_raw()),
    }
}

/// What [`allocate`] gave and [`release`] has not taken back, by address.
static LIVE: Mutex<Option<HashMap<usize, AlignedBuffer>>> = Mutex::new(None);

/// Allocates `bytes` zeroed bytes: page aligned, from 2 MiB on aligned to huge pages and on them
/// where possible.
///
/// # Errors
/// `InvalidParam` for 0 bytes, `OutOfMemory`.
pub fn allocate(bytes: usize) -> Result<*mut u8, Error> {
    if bytes == 0 {
        return Err(Error::invalid("bytes is 0: there is no memory of that size"));
    }
    let buffer = AlignedBuffer::new(bytes).map_err(|errno| {
        let known = nix::errno::Errno::from_raw(errno);
        Error::new(Status::OutOfMemory, format!("{bytes} bytes: {known:?} ({})", known.desc()))
    })?;
    let pointer = buffer.pointer();
    LIVE.lock().get_or_insert_default().insert(pointer as usize, buffer);
    Ok(pointer)
}

/// Frees what [`allocate`] gave.
///
/// # Errors
/// `InvalidParam` for any other address, one that was freed already included.
///
/// # Safety
/// Nobody uses the memory any more.
pub unsafe fn release(memory: *mut u8) -> Result<(), Error> {
    // The lock ends with this statement: unmapping large memory takes long.
    let buffer = LIVE.lock().get_or_insert_default().remove(&(memory as usize));
    match buffer {
        Some(buffer) => {
            drop(buffer);
            Ok(())
        }
        None => Err(Error::invalid(format!(
            "memory {memory:p} was not given by kvpath_alloc, or was freed already"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_decide_the_alignment_and_memory_is_zeroed_and_writable() {
        for (bytes, align) in [
            (1, PAGE_BYTES),
            (PAGE_BYTES, PAGE_BYTES),
            (HUGE_PAGE_BYTES - 1, PAGE_BYTES),
            (HUGE_PAGE_BYTES, HUGE_PAGE_BYTES),
            (HUGE_PAGE_BYTES * 2 + 5, HUGE_PAGE_BYTES),
        ] {
            let memory = allocate(bytes).unwrap();
            assert_eq!(memory as usize % align, 0, "{bytes}");
            // SAFETY: `bytes` bytes were allocated here, and nobody else knows them.
            let slice = unsafe { std::slice::from_raw_parts_mut(memory, bytes) };
            assert_eq!((slice[0], slice[bytes - 1]), (0, 0));
            slice[bytes - 1] = 7;
            // SAFETY: `slice` is not used after this.
            unsafe { release(memory) }.unwrap();
        }
    }

    #[test]
    fn a_bad_free_is_an_error_and_no_crash() {
        let memory = allocate(100).unwrap();
        // SAFETY: an address that was never given out is refused before it is touched.
        let inside = unsafe { release(memory.wrapping_add(8)) }.unwrap_err();
        assert_eq!(inside.status, Status::InvalidParam);
        // SAFETY: nobody uses it.
        unsafe { release(memory) }.unwrap();
        // SAFETY: refused before it is touched.
        assert_eq!(unsafe { release(memory) }.unwrap_err().status, Status::InvalidParam);
        // SAFETY: refused before it is touched.
        assert!(unsafe { release(null_mut()) }.is_err());
    }

    #[test]
    fn no_bytes_and_more_than_there_are_both_fail() {
        assert_eq!(allocate(0).unwrap_err().status, Status::InvalidParam);
        assert_eq!(allocate(usize::MAX).unwrap_err().status, Status::OutOfMemory);
        assert_eq!(allocate(usize::MAX / 2).unwrap_err().status, Status::OutOfMemory);
    }
}
