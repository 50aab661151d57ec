//! The caller's memory of one transfer, as a list of segments, and the copies to and from it.
//!
//! Owned by the caller of the C ABI until its task ends; the store passes it along and never looks
//! inside. Only an engine touches it, and only while it is inside the attempt's gate.

mod stream;

/// One contiguous piece of the caller's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    address: usize,
    bytes: usize,
}

impl Segment {
    /// The piece of `bytes` bytes at `address`.
    #[must_use]
    pub fn new(address: *mut u8, bytes: usize) -> Segment {
        Segment { address: address as usize, bytes }
    }

    /// Where it starts.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The segments of one transfer in file order; neighbours that touch in memory are one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    segments: Vec<Segment>,
    bytes: u64,
}

impl Memory {
    /// Joins the segments in order.
    #[must_use]
    pub fn new(pieces: impl IntoIterator<Item = Segment>) -> Memory {
        let mut memory = Memory::default();
        for piece in pieces {
            memory.push(piece);
        }
        memory
    }

    fn push(&mut self, piece: Segment) {
        self.bytes += piece.bytes as u64;
        if let Some(last) = self.segments.last_mut()
            && last.address.checked_add(last.bytes) == Some(piece.address)
        {
            last.bytes += piece.bytes;
            return;
        }
        self.segments.push(piece);
    }

    /// The length of the transfer in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The segments, in file order.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The parts of the segments that make up `len` bytes from `offset` of the transfer.
    pub fn range(&self, offset: u64, len: usize) -> impl Iterator<Item = Segment> + '_ {
        let mut skip = offset;
        let mut left = len;
        self.segments.iter().filter_map(move |segment| {
            let bytes = segment.bytes as u64;
            if left == 0 || skip >= bytes {
                skip = skip.saturating_sub(bytes);
                return None;
            }
            let start = usize::try_from(skip).ok()?;
            skip = 0;
            let take = left.min(segment.bytes - start);
            left -= take;
            Some(Segment { address: segment.address + start, bytes: take })
        })
    }

    /// Copies `from` into the transfer's bytes at `offset`.
    ///
    /// # Safety
    /// The caller is inside the gate of an attempt whose task has not ended, so the segments are
    /// valid for writes; `from` does not overlap them.
    pub unsafe fn copy_in(&self, offset: u64, from: &[u8]) {
        let mut done = 0;
        for part in self.range(offset, from.len()) {
            // SAFETY: `done + part.bytes()` never passes `from.len()` (range gives at most that
            // many bytes).
            let source = unsafe { from.as_ptr().add(done) };
            // SAFETY: the function's contract: valid for writes, no overlap.
            unsafe { stream::copy(source, part.pointer(), part.bytes()) };
            done += part.bytes();
        }
    }

    /// Copies the transfer's bytes at `offset` to `to`, which is read again soon: the kernel copies
    /// it on.
    ///
    /// # Safety
    /// The caller is inside the gate of an attempt whose task has not ended, so the segments are
    /// valid for reads; `to` does not overlap them.
    pub unsafe fn copy_out(&self, offset: u64, to: &mut [u8]) {
        let copy = |from: *const u8, to: *mut u8, bytes| {
            // SAFETY: `copy_out_by`'s promise.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        };
        // SAFETY: the function's contract.
        unsafe { self.copy_out_by(offset, to, copy) };
    }

    /// As [`Memory::copy_out`], where only a device reads `to`.
    ///
    /// # Safety
    /// As for [`Memory::copy_out`].
    pub unsafe fn copy_out_to_device(&self, offset: u64, to: &mut [u8]) {
        // SAFETY: `copy_out_by`'s promise.
        let copy = |from: *const u8, to: *mut u8, bytes| unsafe { stream::copy(from, to, bytes) };
        // SAFETY: the function's contract.
        unsafe { self.copy_out_by(offset, to, copy) };
    }

    /// `copy` gets sources that are valid for reads of as many bytes as their targets are for
    /// writes.
    ///
    /// # Safety
    /// As for [`Memory::copy_out`].
    unsafe fn copy_out_by(
        &self,
        offset: u64,
        to: &mut [u8],
        copy: impl Fn(*const u8, *mut u8, usize),
    ) {
        let mut done = 0;
        for part in self.range(offset, to.len()) {
            // SAFETY: `done + part.bytes()` never passes `to.len()` (range gives at most that many
            // bytes).
            let target = unsafe { to.as_mut_ptr().add(done) };
            copy(part.pointer(), target, part.bytes());
            done += part.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_pieces_are_joined_and_ranges_cross_segments() {
        let mut a = *b"abcdefgh";
        let mut b = *b"ijkl";
        let base = a.as_mut_ptr();
        let pieces = [
            Segment::new(base, 3),
            Segment::new(base.wrapping_add(3), 5),
            Segment::new(b.as_mut_ptr(), 4),
        ];
        let memory = Memory::new(pieces);
        assert_eq!(memory.segments().len(), 2);
        assert_eq!(memory.bytes(), 12);
        let mut out = [0u8; 6];
        // SAFETY: both arrays live here and nobody else uses them.
        unsafe { memory.copy_out(5, &mut out) };
        assert_eq!(&out, b"fghijk");
        // SAFETY: as above.
        unsafe { memory.copy_out_to_device(1, &mut out) };
        assert_eq!(&out, b"bcdefg");
        // SAFETY: as above.
        unsafe { memory.copy_in(7, b"XY") };
        assert_eq!(&a, b"abcdefgX");
        assert_eq!(&b, b"Yjkl");
    }
}
