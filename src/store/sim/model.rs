//! The model storage: files by name below the root, one set behind all paths. A write that only one
//! path's cache holds is remembered as such, so that a commit through another path can be caught
//! (R42).

use std::collections::HashMap;

use crate::engine::{Done, FileInfo, OpKind, Outcome, Transfer};
use crate::error::{Cause, Failure, Step};

pub const SHARD: usize = 8;
pub const SHARDS: usize = 4;
pub const BLOCK: usize = SHARD * SHARDS;

/// A file's bytes.
#[derive(Debug, Default, Clone)]
pub struct Inode {
    pub bytes: Vec<u8>,
    /// By shard: one bit for each path in whose cache it is; 0 = it is in the storage itself.
    pub cached: [u8; SHARDS],
}

#[derive(Debug, Default)]
pub struct Storage {
    pub names: HashMap<String, usize>,
    pub inodes: Vec<Inode>,
    pub marker: Vec<u8>,
    /// The clients of its paths remember what files were like ([`super::client`]).
    pub remembers: bool,
    /// What they remember, by path and file.
    pub views: HashMap<(usize, usize), Vec<u8>>,
    /// How often each name was asked to go.
    pub removed: HashMap<String, u64>,
}

/// Where an op is.
#[derive(Debug)]
pub enum Phase {
    /// Nothing was done.
    New,
    /// The file is open.
    Open(usize),
    /// A write's bytes were copied and are in the kernel's hands.
    InKernel(usize, Vec<u8>),
    /// A rename is done, and its answer is on the way.
    Answered(Result<(), Failure>),
}

pub fn relative(path: &std::ffi::CStr) -> String {
    // "/p<lane>/…"
    let text = path.to_str().unwrap();
    text.split_once('/').unwrap().1.split_once('/').map_or("", |(_, rest)| rest).to_string()
}

fn fail<T>(step: Step, errno: i32) -> Result<T, Failure> {
    Err(Failure::errno(step, errno))
}

pub fn is_block(name: &str) -> bool {
    !name.contains(".tmp") && name.contains('/')
}

impl Storage {
    pub fn open_read(&self, transfer: &Transfer) -> Result<usize, Failure> {
        match self.names.get(&relative(&transfer.path)) {
            None => fail(Step::Open, libc::ENOENT),
            Some(inode) if self.inodes[*inode].bytes.len() != BLOCK => {
                let found = Some(self.inodes[*inode].bytes.len() as u64);
                let cause = Cause::WrongSize { found, expected: BLOCK as u64 };
                Err(Failure { step: Step::Verify, cause })
            }
            Some(inode) => Ok(*inode),
        }
    }

    pub fn open_write(&mut self, transfer: &Transfer) -> Result<usize, Failure> {
        let name = relative(&transfer.path);
        match (self.names.get(&name), transfer.create) {
            (Some(_), Some(_)) => fail(Step::Open, libc::EEXIST),
            (None, None) => fail(Step::Open, libc::ENOENT),
            (Some(inode), None) => Ok(*inode),
            (None, Some(_)) => {
                self.inodes.push(Inode::default());
                self.names.insert(name, self.inodes.len() - 1);
                Ok(self.inodes.len() - 1)
            }
        }
    }

    /// Bytes arrive in a file, early or late.
    pub fn land(&mut self, inode: usize, transfer: &Transfer, bytes: &[u8], lane: usize) {
        let start = usize::try_from(transfer.offset).unwrap();
        let file = &mut self.inodes[inode];
        if file.bytes.len() < start + bytes.len() {
            file.bytes.resize(start + bytes.len(), 0);
        }
        self.remember_own(inode, lane, start, bytes);
        let file = &mut self.inodes[inode];
        let safe = transfer.direct || transfer.sync;
        for shard in start / SHARD..(start + bytes.len()) / SHARD {
            let range = shard * SHARD..(shard + 1) * SHARD;
            let new = &bytes[range.start - start..range.end - start];
            let same = file.bytes[range.clone()] == *new;
            file.bytes[range].copy_from_slice(new);
            // The same bytes once more, from a late twin, take nothing away from where they are
            // already.
            file.cached[shard] = match (safe, same, file.cached[shard]) {
                (true, _, _) | (false, true, 0) => 0,
                (false, true, others) => others | 1 << lane,
                (false, false, _) => 1 << lane,
            };
        }
    }

    /// Everything but reads and writes.
    pub fn metadata(&mut self, kind: &OpKind, lane: usize) -> Outcome {
        match kind {
            OpKind::Rename { from, to, no_replace } => {
                let (from, to) = (relative(from), relative(to));
                let Some(inode) = self.names.get(&from).copied() else {
                    return fail(Step::Rename, libc::ENOENT);
                };
                if *no_replace && self.names.contains_key(&to) {
                    return fail(Step::Rename, libc::EEXIST);
                }
                self.names.remove(&from);
                self.names.insert(to, inode);
                let cached = self.inodes[inode].cached;
                let elsewhere = cached.iter().any(|lanes| *lanes != 0 && lanes >> lane & 1 == 0);
                assert!(!elsewhere, "committed through {lane} what only another cache holds");
                Ok(Done::Unit)
            }
            OpKind::Sync { path, directory } => {
                if *directory {
                    return Ok(Done::Unit);
                }
                let Some(inode) = self.names.get(&relative(path)) else {
                    return fail(Step::Open, libc::ENOENT);
                };
                for cached in &mut self.inodes[*inode].cached {
                    if *cached >> lane & 1 == 1 {
                        *cached = 0;
                    }
                }
                Ok(Done::Unit)
            }
            OpKind::SetLength(path, bytes) => {
                let Some(inode) = self.names.get(&relative(path)).copied() else {
                    return fail(Step::Open, libc::ENOENT);
                };
                assert_eq!(self.inodes[inode].bytes.len() as u64, *bytes, "it is cut");
                self.look_anew(inode, lane, is_block(&relative(path)));
                Ok(Done::Unit)
            }
            OpKind::Stat { path } => {
                let info = self.info(path).ok_or(Failure::errno(Step::Stat, libc::ENOENT))?;
                Ok(Done::Info(info))
            }
            OpKind::StatMany(list) => {
                list.begin_file();
                Ok(Done::Infos(list.paths.iter().map(|path| self.info(path)).collect(), None))
            }
            OpKind::Unlink { path } => {
                *self.removed.entry(relative(path)).or_default() += 1;
                match self.names.remove(&relative(path)) {
                    None => fail(Step::Remove, libc::ENOENT),
                    Some(_) => Ok(Done::Unit),
                }
            }
            OpKind::ReadSmall { .. } => Ok(Done::Bytes(self.marker.clone())),
            OpKind::List { .. } => Ok(Done::Entries(Vec::new())),
            OpKind::MakeDir { .. } | OpKind::Touch { .. } => Ok(Done::Unit),
            OpKind::TouchMany(list) => {
                list.begin_file();
                let touch = |path| self.info(path).map(drop).ok_or(libc::ENOENT);
                Ok(Done::Touched(list.paths.iter().map(|path| touch(path)).collect(), None))
            }
            OpKind::Space { .. } => Ok(Done::Space(crate::engine::Space::default())),
            OpKind::Read(_) | OpKind::Write(_) => unreachable!("transfers have phases"),
            other => unreachable!("nothing is collected or set aside here: {other:?}"),
        }
    }

    fn info(&self, path: &std::ffi::CStr) -> Option<FileInfo> {
        let inode = self.names.get(&relative(path))?;
        Some(FileInfo { bytes: Some(self.inodes[*inode].bytes.len() as u64) })
    }
}
