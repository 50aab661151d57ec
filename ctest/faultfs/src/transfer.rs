//! Bytes and syncs on the way to the disk, with both ends of each in the record.

use std::fs::File;

use nix::errno::Errno;

use crate::attr::errno_of;
use crate::disk::Disk;
use crate::passage::shown;
use crate::record::{Event, Kind, ino_of};
use crate::rule::Tweak;

impl Disk {
    /// Writes through an open file.
    pub fn write(
        &self,
        handle: u64,
        offset: u64,
        data: Vec<u8>,
        tweak: Tweak,
    ) -> Result<u32, Errno> {
        let file = self.handles.file(handle)?;
        if !self.record.is_on() {
            return file.write(offset, data, tweak);
        }
        let (id, ino, detail) = (self.record.next_id(), ino_of(&file)?, i64::from(file.direct));
        let begun = Event { id, offset, detail, data: &data, ..Event::of(Kind::Write, ino) };
        self.record.add(&begun)?;
        let result = file.write(offset, data, tweak);
        self.record.end(id, result.map_or(-1, i64::from))?;
        result
    }

    /// Syncs an open file, or fails as a rule wants it: then the kernel would have forgotten what
    /// it could not write.
    pub fn sync(&self, handle: u64, data_only: bool, fail: Option<Errno>) -> Result<(), Errno> {
        let file = self.handles.file(handle)?;
        let run = || fail.map_or_else(|| file.sync(data_only), Err);
        if !self.record.is_on() {
            return run();
        }
        let id = self.record.next_id();
        self.record.add(&Event { id, ..Event::of(Kind::Sync, ino_of(&file)?) })?;
        let result = run();
        self.record.end(id, if result.is_ok() { 1 } else { -1 })?;
        result
    }

    /// Syncs a directory.
    pub fn fsyncdir(&self, node: u64) -> Result<(), Errno> {
        let path = self.nodes.path(node)?;
        let id = self.record.next_id();
        let name = shown(&path);
        self.record.add(&Event { id, ..Event::named(Kind::SyncDir, &name, "") })?;
        let synced = File::open(self.real(&path)).and_then(|dir| dir.sync_all());
        let result = synced.map_err(|error| errno_of(&error));
        self.record.end(id, if result.is_ok() { 1 } else { -1 })?;
        result
    }
}
