//! The memory that one lane owns for its I/O, bounded (R30, R31): equal slots, cut from slabs that
//! fill huge pages.
//!
//! A worker takes a slot *before* it pulls a transfer, so running out means that it does not pull;
//! no transfer ever fails for it. A slot is charged until it is dropped, by whatever late return of
//! an abandoned op. The slot used last is given first: it is still in the CPU's cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::engine::psync::plan::CACHED_PIECE_BYTES;
use crate::posix::aligned::{AlignedBuffer, HUGE_PAGE_BYTES, PAGE_BYTES};

/// The largest slot, and so the most bytes of one direct call: a huge page. A device answers large
/// calls faster than several smaller ones.
pub const SLOT_BYTES_MAX: usize = HUGE_PAGE_BYTES;
/// A slot is not made smaller than this to have more of them, unless the bound itself is smaller.
const SLOT_BYTES_SMALL: usize = 64 << 10;
/// The smallest slot that is any use: a range that starts and ends inside a page fits.
const SLOT_BYTES_MIN: usize = 2 * PAGE_BYTES;
/// What a call asks for beside the bytes that are wanted: up to the alignment, and beyond the end.
const AROUND_BYTES: usize = 2 * PAGE_BYTES;
/// The most of a file that a slot is to hold where all I/O is buffered: one call moves no more.
pub const BUFFERED_FILE_BYTES: u64 = (CACHED_PIECE_BYTES - AROUND_BYTES) as u64;
/// Slots are made smaller so that there are this many for each transfer: those that hang with their
/// ops are charged, and others go on meanwhile (R36).
const SPARE: usize = 2;
/// How many free slabs are kept when workers retire but others stay.
const SLABS_KEPT: usize = 2;

/// Where a slot is: its slab, and its number there.
type Place = (usize, usize);

/// One lane's buffers. Shared by its workers.
#[derive(Debug)]
pub struct Buffers {
    slot_bytes: usize,
    slots_max: usize,
    slots_per_slab: usize,
    /// Slots that are taken. A leaf counter, read without the lock by whoever asks whether one is
    /// free.
    taken: AtomicUsize,
    /// Rings that have slabs registered: while there is one, no slab goes back.
    rings: AtomicUsize,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    slabs: Vec<Option<Slab>>,
    free: Vec<Place>,
    slots_mapped: usize,
}

#[derive(Debug)]
struct Slab {
    memory: AlignedBuffer,
    slots: usize,
    free: usize,
}

/// A slab's number and memory, for registering it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its number; that of a slab which went back is used again.
    pub number: usize,
    /// Where it starts.
    pub start: usize,
    /// Its length.
    pub bytes: usize,
}

/// What [`Buffers::take`] gives.
#[derive(Debug)]
pub enum Take {
    /// A slot.
    Got(Buffer),
    /// All are taken; the workers that hold them will pull what waits.
    Exhausted,
    /// The system gave no memory.
    Refused(i32),
}

impl Buffers {
    /// Buffers of at most `bytes` bytes for `transfers` transfers at once of files of `file_bytes`
    /// bytes: a slot holds a file and what a call may ask for around it, up to the largest slot.
    /// Where the bound is too small for that, slots are smaller; where it is too small for those,
    /// there are fewer (R1 `buffer_mb_max`).
    #[must_use]
    pub fn new(bytes: u64, transfers: usize, file_bytes: u64) -> Arc<Buffers> {
        let (slot_bytes, slots_max) = slots(bytes, transfers, file_bytes);
        Arc::new(Buffers {
            slot_bytes,
            slots_max,
            slots_per_slab: HUGE_PAGE_BYTES / slot_bytes,
            taken: AtomicUsize::new(0),
            rings: AtomicUsize::new(0),
            shelf: Mutex::default(),
        })
    }

    /// The length of every slot: a power of two.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Whether a slot is free, or may be made.
    #[must_use]
    pub fn available(&self) -> bool {
        self.taken.load(Ordering::Acquire) < self.slots_max
    }

    /// Whether so many slots are free that a transfer may have more than one.
    #[must_use]
    pub fn plenty(&self) -> bool {
        self.taken.load(Ordering::Relaxed) < self.slots_max / 2
    }

    /// Bytes that the system gave and has not got back.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.shelf.lock().slots_mapped * self.slot_bytes
    }

    /// Takes a slot. Its content is whatever was there.
    pub fn take(self: &Arc<Buffers>) -> Take {
        let claim = |taken| (taken < self.slots_max).then_some(taken + 1);
        if self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, claim).is_err() {
            return Take::Exhausted;
        }
        match self.shelf.lock().place(self) {
            Ok((place, address, slab)) => {
                let (home, bytes) = (Arc::clone(self), self.slot_bytes);
                Take::Got(Buffer { home, place, address, bytes, slab })
            }
            Err(errno) => {
                self.taken.fetch_sub(1, Ordering::AcqRel);
                Take::Refused(errno)
            }
        }
    }

    /// The most slabs that there can be.
    #[must_use]
    pub fn slabs_max(&self) -> usize {
        self.slots_max.div_ceil(self.slots_per_slab.max(1))
    }

    /// Keeps all slabs until [`Buffers::let_slabs_go`]: what the kernel has registered would stay
    /// in memory, uncounted.
    pub fn keep_slabs(&self) {
        self.rings.fetch_add(1, Ordering::AcqRel);
    }

    /// The end of a [`Buffers::keep_slabs`].
    pub fn let_slabs_go(&self) {
        if self.rings.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.trim(true);
        }
    }

    /// Gives free slabs back to the system: all of them where `all` is set, else those beyond a
    /// small cache.
    pub fn trim(&self, all: bool) {
        if self.rings.load(Ordering::Acquire) > 0 {
            return;
        }
        let kept = if all { 0 } else { SLABS_KEPT };
        let dropped = self.shelf.lock().trim(kept);
        drop(dropped);
    }
}

impl Shelf {
    /// A free slot; maps a slab where there is none. The claim on `taken` proves that one may be
    /// had.
    fn place(&mut self, home: &Buffers) -> Result<(Place, usize, Extent), i32> {
        if self.free.is_empty() {
            self.add_slab(home)?;
        }
        let place = self.free.pop().ok_or(libc::ENOMEM)?;
        let slab = self.slabs.get_mut(place.0).and_then(Option::as_mut).ok_or(libc::ENOMEM)?;
        slab.free -= 1;
        let start = slab.memory.pointer() as usize;
        let extent = Extent { number: place.0, start, bytes: slab.memory.bytes() };
        Ok((place, start + place.1 * home.slot_bytes, extent))
    }

    fn add_slab(&mut self, home: &Buffers) -> Result<(), i32> {
        let slots = home.slots_per_slab.min(home.slots_max.saturating_sub(self.slots_mapped));
        let memory = AlignedBuffer::new(slots * home.slot_bytes)?.hidden_from_children();
        let number = self.slabs.iter().position(Option::is_none).unwrap_or(self.slabs.len());
        if number == self.slabs.len() {
            self.slabs.push(None);
        }
        self.slabs[number] = Some(Slab { memory, slots, free: slots });
        self.slots_mapped += slots;
        self.free.extend((0..slots).rev().map(|slot| (number, slot)));
        Ok(())
    }

    /// Takes the free slabs beyond `kept` off the shelf.
    fn trim(&mut self, kept: usize) -> Vec<Slab> {
        let mut passed = 0;
        let mut gone = Vec::new();
        for entry in &mut self.slabs {
            if let Some(slab) = entry.take_if(|slab| slab.free == slab.slots) {
                passed += 1;
                if passed > kept {
                    self.slots_mapped -= slab.slots;
                    gone.push(slab);
                } else {
                    *entry = Some(slab);
                }
            }
        }
        let slabs = &self.slabs;
        self.free.retain(|(slab, _)| slabs[*slab].is_some());
        gone
    }
}

/// The length of a slot, and how many there are.
#[must_use]
pub fn slots(bytes: u64, transfers: usize, file_bytes: u64) -> (usize, usize) {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let file = usize::try_from(file_bytes).unwrap_or(usize::MAX).min(SLOT_BYTES_MAX);
    let file = (file + AROUND_BYTES).next_power_of_two().min(SLOT_BYTES_MAX);
    let largest = file.max(SLOT_BYTES_SMALL);
    let share = (bytes / transfers.max(1) / SPARE).clamp(SLOT_BYTES_SMALL, largest);
    let slot_bytes = floor_power(share.min(bytes).max(SLOT_BYTES_MIN));
    (slot_bytes, (bytes / slot_bytes).max(1))
}

/// The largest power of two that is not above `bytes` (which is not 0).
fn floor_power(bytes: usize) -> usize {
    1 << bytes.ilog2()
}

/// One slot, owned; it goes back when dropped.
#[derive(Debug)]
pub struct Buffer {
    home: Arc<Buffers>,
    place: Place,
    address: usize,
    bytes: usize,
    slab: Extent,
}

impl Buffer {
    /// The slab that it is cut from.
    #[must_use]
    pub fn slab(&self) -> Extent {
        self.slab
    }

    /// Where it starts.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// Its length in bytes.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.bytes
    }

    /// The memory: page aligned.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the slot is mapped while `home` has it as taken, is initialised (zeroed at
        // first), and is this value's alone until it is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut shelf = self.home.shelf.lock();
        if let Some(slab) = shelf.slabs.get_mut(self.place.0).and_then(Option::as_mut) {
            slab.free += 1;
        }
        shelf.free.push(self.place);
        drop(shelf);
        self.home.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(buffers: &Arc<Buffers>) -> Buffer {
        match buffers.take() {
            Take::Got(buffer) => buffer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_bound_and_the_number_of_transfers_give_the_slot() {
        let slot = |bytes, transfers| Buffers::new(bytes, transfers, 8 << 20).slot_bytes();
        assert_eq!(slot(512 << 20, 128), 2 << 20);
        assert_eq!(slot(256 << 20, 128), 1 << 20);
        assert_eq!(slot(32 << 20, 128), 128 << 10);
        assert_eq!(slot(1 << 20, 128), 64 << 10);
        assert_eq!(slot(16 << 10, 128), 16 << 10);
        assert_eq!(slot(0, 128), SLOT_BYTES_MIN);
        assert_eq!(slot(6 << 20, 4), 512 << 10);
    }

    #[test]
    fn a_slot_is_no_larger_than_its_files_need() {
        let slot = |file_bytes| Buffers::new(1 << 30, 128, file_bytes).slot_bytes();
        assert_eq!(slot(0), 64 << 10);
        assert_eq!(slot(32 << 10), 64 << 10);
        assert_eq!(slot(64 << 10), 128 << 10);
        assert_eq!(slot((128 << 10) - 8192), 128 << 10);
        assert_eq!(slot(1 << 20), 2 << 20);
        assert_eq!(slot(4 << 20), 2 << 20);
        assert_eq!(slot(u64::MAX), 2 << 20);
        assert_eq!(slot(BUFFERED_FILE_BYTES), CACHED_PIECE_BYTES);
    }

    #[test]
    fn the_bound_holds_and_a_returned_slot_is_the_next_one_given() {
        let buffers = Buffers::new(5 << 20, 2, 1 << 19);
        let mut held: Vec<Buffer> = (0..5).map(|_| got(&buffers)).collect();
        assert!(!buffers.available());
        assert!(matches!(buffers.take(), Take::Exhausted));
        assert_eq!(buffers.mapped_bytes(), 5 << 20);
        for (at, buffer) in held.iter_mut().enumerate() {
            assert_eq!(buffer.address % PAGE_BYTES, 0);
            buffer.bytes_mut().fill(u8::try_from(at).unwrap());
        }
        for (at, buffer) in held.iter_mut().enumerate() {
            assert!(buffer.bytes_mut().iter().all(|byte| usize::from(*byte) == at));
        }
        let address = held.remove(2).address;
        assert_eq!(got(&buffers).address, address);
    }

    #[test]
    fn only_whole_free_slabs_beyond_the_cache_go_back() {
        let buffers = Buffers::new(64 << 20, 32, 1 << 19);
        let mut held: Vec<Buffer> = (0..10).map(|_| got(&buffers)).collect();
        held.truncate(1);
        assert_eq!(buffers.mapped_bytes(), 10 << 20);
        buffers.trim(false);
        assert_eq!(buffers.mapped_bytes(), 6 << 20);
        buffers.trim(true);
        assert_eq!(buffers.mapped_bytes(), 2 << 20);
        held.extend((0..9).map(|_| got(&buffers)));
        for buffer in &mut held {
            buffer.bytes_mut().fill(1);
        }
        assert_eq!(buffers.mapped_bytes(), 10 << 20);
        drop(held);
        buffers.trim(true);
        assert_eq!(buffers.mapped_bytes(), 0);
    }
}
