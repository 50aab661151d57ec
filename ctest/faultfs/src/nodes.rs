//! Which number stands for which file: the kernel names files by numbers that it got from a lookup.
//! Pure bookkeeping without system calls; `disk.rs` owns the table.
//!
//! A number belongs to one path and one file. When another file takes the path, the path gets a new
//! number, so that the kernel never takes one file for the other; a number whose file was unlinked
//! or replaced lives on through its open files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use parking_lot::Mutex;

use crate::handle::OpenFile;

/// The number of the root.
const ROOT: u64 = 1;

/// Device and inode number on the real file system.
pub type Identity = (u64, u64);

struct Node {
    path: PathBuf,
    identity: Identity,
    lookups: u64,
    open: Vec<Arc<OpenFile>>,
}

struct Table {
    last: u64,
    nodes: HashMap<u64, Node>,
    by_path: HashMap<PathBuf, u64>,
}

/// The table.
pub struct Nodes {
    table: Mutex<Table>,
}

impl Nodes {
    /// A table that knows the root alone.
    pub fn new() -> Self {
        let table = Table { last: ROOT, nodes: HashMap::new(), by_path: HashMap::new() };
        Self { table: Mutex::new(table) }
    }

    /// The path below the root.
    pub fn path(&self, id: u64) -> Result<PathBuf, Errno> {
        if id == ROOT {
            return Ok(PathBuf::new());
        }
        let table = self.table.lock();
        table.nodes.get(&id).map(|node| node.path.clone()).ok_or(Errno::ESTALE)
    }

    /// The path of `name` in the directory `parent`.
    pub fn child(&self, parent: u64, name: &OsStr) -> Result<PathBuf, Errno> {
        Ok(self.path(parent)?.join(name))
    }

    /// The number of what the kernel has just seen under `path`; one lookup more of it.
    pub fn seen(&self, path: &Path, identity: Identity) -> u64 {
        let mut table = self.table.lock();
        let table = &mut *table;
        if let Some(id) = table.by_path.get(path)
            && let Some(node) = table.nodes.get_mut(id)
            && node.identity == identity
        {
            node.lookups += 1;
            return *id;
        }
        table.last += 1;
        let id = table.last;
        let node = Node { path: path.to_owned(), identity, lookups: 1, open: Vec::new() };
        table.nodes.insert(id, node);
        table.by_path.insert(path.to_owned(), id);
        id
    }

    /// The kernel drops so many lookups.
    pub fn forget(&self, id: u64, lookups: u64) {
        let mut table = self.table.lock();
        let table = &mut *table;
        let Some(node) = table.nodes.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return;
        }
        if table.by_path.get(&node.path) == Some(&id) {
            table.by_path.remove(&node.path);
        }
        table.nodes.remove(&id);
    }

    /// A file or directory, with all below it, was renamed; with `exchange`, both changed places.
    pub fn moved(&self, from: &Path, to: &Path, exchange: bool) {
        let mut table = self.table.lock();
        let table = &mut *table;
        let replaced = if exchange { None } else { table.by_path.remove(to) };
        let mut moves = Vec::new();
        // Only the number that a path leads to moves; what was unlinked keeps its last path.
        for (path, id) in &table.by_path {
            let renamed = match (path.strip_prefix(from), path.strip_prefix(to)) {
                (Ok(rest), _) => join(to, rest),
                (_, Ok(rest)) if exchange => join(from, rest),
                _ => continue,
            };
            moves.push((path.clone(), *id, renamed));
        }
        for (path, _, _) in &moves {
            table.by_path.remove(path);
        }
        for (_, id, renamed) in moves {
            if let Some(node) = table.nodes.get_mut(&id) {
                node.path.clone_from(&renamed);
            }
            table.by_path.insert(renamed, id);
        }
        // A lookup may have seen the new name before this call: then its number is as good.
        if let Some(id) = replaced {
            table.by_path.entry(to.to_owned()).or_insert(id);
        }
    }

    /// The file of this path was unlinked.
    pub fn gone(&self, path: &Path) {
        self.table.lock().by_path.remove(path);
    }

    /// An open file of this number.
    pub fn opened(&self, id: u64, file: &Arc<OpenFile>) {
        if let Some(node) = self.table.lock().nodes.get_mut(&id) {
            node.open.push(Arc::clone(file));
        }
    }

    /// It was closed.
    pub fn closed(&self, id: u64, file: &Arc<OpenFile>) {
        if let Some(node) = self.table.lock().nodes.get_mut(&id) {
            node.open.retain(|open| !Arc::ptr_eq(open, file));
        }
    }

    /// Any open file of this number: the kernel asks for attributes of an open file by number, also
    /// when its path has gone.
    pub fn any_open(&self, id: u64) -> Option<Arc<OpenFile>> {
        self.table.lock().nodes.get(&id).and_then(|node| node.open.first().cloned())
    }
}

/// `join` without the slash that an empty rest would leave.
fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { base.to_owned() } else { base.join(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_under_a_path_is_another_number() {
        let nodes = Nodes::new();
        let first = nodes.seen(Path::new("a"), (1, 10));
        assert_eq!(nodes.seen(Path::new("a"), (1, 10)), first);
        let second = nodes.seen(Path::new("a"), (1, 11));
        assert_ne!(first, second);
        nodes.forget(first, 2);
        assert_eq!(nodes.path(first), Err(Errno::ESTALE));
        assert_eq!(nodes.seen(Path::new("a"), (1, 11)), second);
    }

    #[test]
    fn a_rename_takes_numbers_along() {
        let nodes = Nodes::new();
        let dir = nodes.seen(Path::new("d"), (1, 1));
        let file = nodes.seen(Path::new("d/f"), (1, 2));
        let other = nodes.seen(Path::new("dd"), (1, 3));
        nodes.moved(Path::new("d"), Path::new("e"), false);
        assert_eq!(nodes.path(dir).unwrap(), Path::new("e"));
        assert_eq!(nodes.path(file).unwrap(), Path::new("e/f"));
        assert_eq!(nodes.path(other).unwrap(), Path::new("dd"));
        assert_eq!(nodes.seen(Path::new("e/f"), (1, 2)), file);
        nodes.moved(Path::new("e"), Path::new("dd"), true);
        assert_eq!(nodes.path(other).unwrap(), Path::new("e"));
        assert_eq!(nodes.path(file).unwrap(), Path::new("dd/f"));
    }

    #[test]
    fn an_unlinked_file_does_not_move_with_its_successor() {
        let nodes = Nodes::new();
        let old = nodes.seen(Path::new("a"), (1, 1));
        nodes.gone(Path::new("a"));
        let new = nodes.seen(Path::new("a"), (1, 2));
        nodes.moved(Path::new("a"), Path::new("b"), false);
        assert_eq!(nodes.path(old).unwrap(), Path::new("a"));
        assert_eq!(nodes.path(new).unwrap(), Path::new("b"));
    }
}
