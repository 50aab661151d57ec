//! A copy whose target is not read again soon: stores go past the CPU's cache.
//!
//! A plain copy into cold memory reads each line of the target before it overwrites it, and throws
//! out what the cache held. Isolation copies every byte once (R30), so this is most of its price
//! (R31). The source is not used again either: it is fetched ahead, past the outer caches.

/// Below this the caller may well find the bytes in the cache, and a plain copy is as fast.
const STREAM_BYTES_MIN: usize = 16 << 10;

/// Copies `bytes` bytes from `from` to `to`.
///
/// # Safety
/// `from` is valid for reads of `bytes` bytes, `to` for writes, and they do not overlap.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let whole = if bytes < STREAM_BYTES_MIN {
        0
    } else {
        // SAFETY: the function's contract.
        unsafe { copy_lines(from, to, bytes) }
    };
    // SAFETY: `whole` is at most `bytes`.
    let rest_from = unsafe { from.add(whole) };
    // SAFETY: as above.
    let rest_to = unsafe { to.add(whole) };
    // SAFETY: the function's contract, for what is left.
    unsafe { std::ptr::copy_nonoverlapping(rest_from, rest_to, bytes - whole) };
}

/// Copies whole cache lines of the target, and what is before the first of them; says how many
/// bytes.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_lines(from: *const u8, to: *mut u8, bytes: usize) -> usize {
    use std::arch::x86_64::{
        __m128i, _MM_HINT_NTA, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128,
    };
    const LINE: usize = 64;
    const WORD: usize = size_of::<__m128i>();
    const AHEAD_BYTES: usize = 1024;
    let head = to.align_offset(LINE).min(bytes);
    // SAFETY: `head` is at most `bytes`; the function's contract.
    unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
    let mut done = head;
    while bytes - done >= LINE {
        // SAFETY: at least a line is left of both.
        let source = unsafe { from.add(done) }.cast::<__m128i>();
        // SAFETY: as above.
        let target = unsafe { to.add(done) };
        let target = target.cast::<__m128i>();
        let ahead = from.wrapping_add(done + AHEAD_BYTES).cast::<i8>();
        // SAFETY: a hint about an address: one beyond the end is not looked at.
        unsafe { _mm_prefetch::<_MM_HINT_NTA>(ahead) };
        for word in 0..LINE / WORD {
            // SAFETY: inside the line.
            let place = unsafe { source.add(word) };
            // SAFETY: readable by the function's contract; this load needs no alignment.
            let value = unsafe { _mm_loadu_si128(place) };
            // SAFETY: inside the line.
            let place = unsafe { target.add(word) };
            // SAFETY: writable by the function's contract, and aligned: the line is.
            unsafe { _mm_stream_si128(place, value) };
        }
        done += LINE;
    }
    // Streaming stores are not ordered with the one that tells the caller that the bytes are there.
    // SAFETY: every x86-64 processor has it; it touches no memory.
    unsafe { _mm_sfence() };
    done
}

/// Other processors copy plainly.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_lines(_from: *const u8, _to: *mut u8, _bytes: usize) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_and_no_other_changes_at_any_alignment() {
        let source: Vec<u8> =
            (0..STREAM_BYTES_MIN * 2 + 300).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
        for bytes in [0, 1, 63, STREAM_BYTES_MIN - 1, STREAM_BYTES_MIN, STREAM_BYTES_MIN * 2 + 77] {
            for (skip_from, skip_to) in [(0, 0), (1, 0), (0, 1), (13, 64), (65, 15), (100, 127)] {
                let mut target = vec![0xee; bytes + 256];
                let from = &source[skip_from..skip_from + bytes];
                let to = &mut target[skip_to..skip_to + bytes];
                // SAFETY: both are borrowed for the call and have `bytes` bytes.
                unsafe { copy(from.as_ptr(), to.as_mut_ptr(), bytes) };
                assert_eq!(&target[skip_to..skip_to + bytes], from);
                assert!(target[..skip_to].iter().all(|byte| *byte == 0xee));
                assert!(target[skip_to + bytes..].iter().all(|byte| *byte == 0xee));
            }
        }
    }
}
