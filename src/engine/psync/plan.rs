//! The arithmetic of pieces: which bytes of a file one call moves, and how alignment widens or
//! forbids it (R33). Pure: no file, no memory.

/// The alignment assumed where the file does not tell, and the one that needs no asking.
pub(in crate::engine) const ALIGN_BYTES: u64 = 4096;
/// The most bytes of one buffered call: a piece that stays in the CPU's cache between the kernel's
/// copy and ours.
pub(in crate::engine) const CACHED_PIECE_BYTES: usize = 256 << 10;
/// The most bytes of one call on the caller's memory; the kernel moves less than 2 GiB at once
/// (R34).
pub(in crate::engine) const BORROWED_PIECE_BYTES: usize = 1 << 30;

/// One piece of a transfer, within the aligned range of the file that one call moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Piece {
    /// Where it starts in the transfer.
    pub(in crate::engine) at: u64,
    /// Its length.
    pub(in crate::engine) bytes: usize,
    /// Where the call starts in the file.
    pub(in crate::engine) start: u64,
    /// The length of the call.
    pub(in crate::engine) span: usize,
    /// Where the piece starts in the call's bytes.
    pub(in crate::engine) skip: usize,
}

/// A range of a file, as a transfer asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Range {
    pub(in crate::engine) offset: u64,
    pub(in crate::engine) bytes: u64,
}

impl Range {
    /// The piece that starts at `at` of the transfer, with calls of at most `call_bytes` that start
    /// and end at multiples of `align` in the file. `None`: no call of that size is aligned, or the
    /// range is absurd.
    pub(in crate::engine) fn piece(&self, at: u64, call_bytes: usize, align: u64) -> Option<Piece> {
        let align = align.max(1);
        let call_bytes = call_bytes as u64 / align * align;
        let from = self.offset.checked_add(at)?;
        let start = from - from % align;
        let end = self.offset.checked_add(self.bytes)?.min(start.checked_add(call_bytes)?);
        if end <= from {
            return None;
        }
        let span = (end - start).checked_next_multiple_of(align)?;
        Some(Piece {
            at,
            bytes: usize::try_from(end - from).ok()?,
            start,
            span: usize::try_from(span).ok()?,
            skip: usize::try_from(from - start).ok()?,
        })
    }

    /// Both ends are multiples of `align`.
    pub(in crate::engine) fn aligned(&self, align: u64) -> bool {
        self.offset.is_multiple_of(align) && self.bytes.is_multiple_of(align)
    }

    /// How many bytes of a *write* may go directly into a file of `file_bytes`; the rest is the
    /// file's tail and goes through the page cache. `None`: the range shares a sector, or a page of
    /// the cache, with bytes that are not its own, and no way of writing it is safe (R33: the store
    /// never asks that).
    pub(in crate::engine) fn direct_part(&self, file_bytes: u64, align: u64) -> Option<u64> {
        if self.aligned(align) {
            return Some(self.bytes);
        }
        let page = align.max(ALIGN_BYTES);
        let ends_the_file = self.offset.checked_add(self.bytes)? == file_bytes;
        let starts_a_page = self.offset.is_multiple_of(page);
        (ends_the_file && starts_a_page).then(|| self.bytes - self.bytes % page)
    }
}

/// How far a direct transfer of `done` bytes counts: the last aligned offset (R34).
pub(in crate::engine) fn aligned_part(done: usize, align: u64) -> usize {
    let align = usize::try_from(align).unwrap_or(usize::MAX).max(1);
    done / align * align
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(offset: u64, bytes: u64, call_bytes: usize, align: u64) -> Vec<Piece> {
        let range = Range { offset, bytes };
        let mut at = 0;
        let mut pieces = Vec::new();
        while at < bytes {
            let piece = range.piece(at, call_bytes, align).unwrap();
            at += piece.bytes as u64;
            pieces.push(piece);
        }
        pieces
    }

    #[test]
    fn an_aligned_range_is_cut_into_full_calls() {
        let cut = pieces(4096, 5 << 20, 1 << 20, 4096);
        assert_eq!(cut.len(), 5);
        assert!(cut.iter().all(|piece| piece.skip == 0 && piece.span == 1 << 20));
    }

    #[test]
    fn an_unaligned_range_reads_the_enclosing_one() {
        let cut = pieces(5000, 9000, 8192, 4096);
        assert_eq!(cut[0], Piece { at: 0, bytes: 7288, start: 4096, span: 8192, skip: 904 });
        assert_eq!(cut[1], Piece { at: 7288, bytes: 1712, start: 12288, span: 4096, skip: 0 });
        assert_eq!(cut.len(), 2);
    }

    #[test]
    fn every_byte_is_in_exactly_one_piece() {
        for offset in [0, 1, 511, 4095, 4096, 12345] {
            for bytes in [1, 4095, 4096, 4097, 100_000] {
                for align in [1, 512, 4096] {
                    let cut = pieces(offset, bytes, 16384, align);
                    let mut at = 0;
                    for piece in &cut {
                        assert_eq!(piece.at, at);
                        assert_eq!(piece.start + piece.skip as u64, offset + at);
                        assert!(piece.skip + piece.bytes <= piece.span && piece.span <= 16384);
                        assert!(piece.start.is_multiple_of(align));
                        assert!((piece.span as u64).is_multiple_of(align));
                        at += piece.bytes as u64;
                    }
                    assert_eq!(at, bytes);
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_aligned_or_overflows_is_refused() {
        assert_eq!(Range { offset: 0, bytes: 10 }.piece(0, 4096, 8192), None);
        assert_eq!(Range { offset: u64::MAX, bytes: 10 }.piece(0, 4096, 1), None);
        assert_eq!(Range { offset: 0, bytes: 10 }.piece(10, 4096, 1), None);
    }

    #[test]
    fn r33_only_the_tail_of_the_file_leaves_the_direct_path() {
        let part = |offset, bytes, file| Range { offset, bytes }.direct_part(file, 512);
        assert_eq!(part(0, 8192, 8192), Some(8192));
        assert_eq!(part(512, 1024, 8192), Some(1024));
        assert_eq!(part(4096, 5000, 9096), Some(4096));
        assert_eq!(part(4096, 100, 4196), Some(0));
        assert_eq!(part(4096, 5000, 20000), None);
        assert_eq!(part(512, 1000, 1512), None);
        assert_eq!(part(100, 512, 612), None);
    }
}
