//! The caller's side of a transfer: memory of every shape, with known bytes.

use std::path::Path;
use std::sync::Arc;

use super::rig::c_path;
use crate::engine::{Memory, OpKind, Segment, Transfer};
use crate::posix::aligned::AlignedBuffer;

/// Memory of a caller, cut into segments.
pub struct Host {
    buffer: AlignedBuffer,
    pieces: Vec<(usize, usize)>,
}

impl Host {
    /// `pieces`: start and length of each segment, from a page's boundary on.
    pub fn new(pieces: &[(usize, usize)]) -> Host {
        let bytes = pieces.iter().map(|(start, bytes)| start + bytes).max().unwrap();
        Host { buffer: AlignedBuffer::new(bytes).unwrap(), pieces: pieces.to_vec() }
    }

    /// One aligned segment.
    pub fn plain(bytes: usize) -> Host {
        Host::new(&[(0, bytes)])
    }

    /// The same length in several shapes: aligned, at an odd address, in three segments, in three
    /// aligned ones.
    pub fn shapes(bytes: usize) -> Vec<Host> {
        let (third, page) = (bytes / 3, bytes / 3 / 4096 * 4096);
        let mut shapes = vec![
            Host::plain(bytes),
            Host::new(&[(13, bytes)]),
            Host::new(&[(bytes + 5, third), (7, bytes - 2 * third), (2 * bytes + 9, third)]),
        ];
        if page > 0 {
            let far = bytes.next_multiple_of(4096) + 4096;
            shapes.push(Host::new(&[(far, page), (0, bytes - 2 * page), (2 * far, page)]));
        }
        shapes
    }

    pub fn memory(&self) -> Arc<Memory> {
        let base = self.buffer.pointer();
        let segment =
            |(start, bytes): &(usize, usize)| Segment::new(base.wrapping_add(*start), *bytes);
        Arc::new(Memory::new(self.pieces.iter().map(segment)))
    }

    pub fn set(&mut self, bytes: &[u8]) {
        // SAFETY: the buffer is ours, and no op of the test is in flight.
        unsafe { self.memory().copy_in(0, bytes) };
    }

    pub fn get(&self) -> Vec<u8> {
        let memory = self.memory();
        let mut bytes = vec![0; usize::try_from(memory.bytes()).unwrap()];
        // SAFETY: the buffer is ours, and no op of the test is in flight.
        unsafe { memory.copy_out(0, &mut bytes) };
        bytes
    }
}

/// Bytes that differ from page to page and from seed to seed.
pub fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(bytes).collect()
}

/// How a transfer is done.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub direct: bool,
    pub isolated: bool,
}

pub const WAYS: [Way; 4] = [
    Way { direct: false, isolated: true },
    Way { direct: true, isolated: true },
    Way { direct: false, isolated: false },
    Way { direct: true, isolated: false },
];

/// A transfer of `memory` at `offset` of a file of `file_bytes`; changed by the case that uses it.
pub fn transfer(path: &Path, way: Way, memory: Arc<Memory>, offset: u64, file: u64) -> Transfer {
    Transfer {
        path: c_path(path),
        offset,
        memory,
        isolated: way.isolated,
        direct: way.direct,
        file_bytes: file,
        create: None,
        reserve: false,
        sync: false,
    }
}

/// Reads a whole file into `host`.
pub fn read_whole(path: &Path, way: Way, host: &Host) -> OpKind {
    let memory = host.memory();
    let file = memory.bytes();
    OpKind::Read(transfer(path, way, memory, 0, file))
}

/// Creates a file from `host`.
pub fn write_whole(path: &Path, way: Way, host: &Host) -> OpKind {
    let memory = host.memory();
    let file = memory.bytes();
    OpKind::Write(Transfer { create: Some(0o644), ..transfer(path, way, memory, 0, file) })
}
