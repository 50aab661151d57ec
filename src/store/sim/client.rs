//! What the client of a path remembers of the model's files: where the storage is not coherent, it
//! goes on showing a file as it was when it was first opened for a write, its own writes apart,
//! until it is made to look anew (R42). And what is lost with a sync that failed.

use super::model::{BLOCK, SHARD, Storage, relative};

impl Storage {
    /// What the storage shows to this path: not what only other caches hold.
    fn shown(&self, inode: usize, lane: usize) -> Vec<u8> {
        let file = &self.inodes[inode];
        let mut bytes = file.bytes.clone();
        bytes.resize(BLOCK, 0);
        for (shard, lanes) in file.cached.iter().enumerate() {
            if *lanes != 0 && lanes >> lane & 1 == 0 {
                bytes[shard * SHARD..(shard + 1) * SHARD].fill(0);
            }
        }
        bytes
    }

    /// A path opens a file to write into it.
    pub fn remember(&mut self, inode: usize, lane: usize) {
        let shown = self.shown(inode, lane);
        self.views.entry((lane, inode)).or_insert(shown);
    }

    /// A path looks anew. A block's file is closed, so that the storage has all of it, synced or
    /// not.
    pub fn look_anew(&mut self, inode: usize, lane: usize, is_block: bool) {
        let shown = match is_block {
            true => self.inodes[inode].bytes.clone(),
            false => self.shown(inode, lane),
        };
        self.views.insert((lane, inode), shown);
    }

    /// A path has written.
    pub fn remember_own(&mut self, inode: usize, lane: usize, start: usize, bytes: &[u8]) {
        if let Some(view) = self.views.get_mut(&(lane, inode)) {
            view[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// What a load through this path gets.
    pub fn loaded(&self, inode: usize, lane: usize) -> &[u8] {
        let view = self.views.get(&(lane, inode)).filter(|_| self.remembers);
        view.unwrap_or(&self.inodes[inode].bytes)
    }

    /// A sync failed: the kernel forgets what it could not write.
    pub fn forget(&mut self, path: &std::ffi::CStr, lane: usize) {
        let Some(inode) = self.names.get(&relative(path)).copied() else { return };
        let file = &mut self.inodes[inode];
        for (cached, bytes) in file.cached.iter_mut().zip(file.bytes.chunks_exact_mut(SHARD)) {
            if *cached == 1 << lane {
                *cached = 0;
                bytes.fill(0);
            }
        }
    }
}
