//! Names and paths on the storage (R4, R5, R9). Pure: makes strings, touches nothing.

use std::ffi::CString;

use super::types::BlockId;
use crate::reclaim::names;

/// The marker file in a storage root (R8).
pub const MARKER: &str = ".kvpath";
/// Where files that are no whole blocks are moved to (R23).
pub const QUARANTINE: &str = ".quarantine";
/// What the name of every temporary contains (R5).
pub const TEMPORARY: &str = ".tmp";
/// The directory of blocks where `data_dir_shard_bytes` is 0.
const SINGLE_DIR: &str = "data";

/// Who wrote a temporary, as its name tells (R46). Unique to one open store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// Names this boot of this host.
    pub boot: u64,
    /// Inode of the pid namespace.
    pub pid_namespace: u64,
    /// The process.
    pub pid: u32,
    /// When the process started, in clock ticks since boot.
    pub started: u64,
    /// Tells stores of one process apart.
    pub nonce: u64,
}

impl Writer {
    /// `<writer>` of R5: hex numbers joined by `_`.
    #[must_use]
    pub fn word(&self) -> String {
        let Writer { boot, pid_namespace, pid, started, nonce } = self;
        format!("{boot:x}_{pid_namespace:x}_{pid:x}_{started:x}_{nonce:x}")
    }

    /// Reads a `<writer>`; `None` for one that this store did not make.
    #[must_use]
    pub fn parse(word: &str) -> Option<Writer> {
        let mut parts = word.split('_');
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (boot, pid_namespace, pid, started, nonce) =
            (number()?, number()?, number()?, number()?, number()?);
        let pid = u32::try_from(pid).ok()?;
        if parts.next().is_some() {
            return None;
        }
        Some(Writer { boot, pid_namespace, pid, started, nonce })
    }
}

/// What a name that contains `.tmp` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Temporary {
    /// Of a kvpath store: a block in progress, a probe, or a marker being made.
    Ours(Writer),
    /// A block in progress of somebody else's making.
    Foreign,
    /// Not to be touched: no name that a store gives.
    Unknown,
}

/// Reads the name of a temporary: `<what>.<writer>-<number>.tmp`, where `<what>` is a block,
/// `probe-<number>` or `.kvpath`.
#[must_use]
pub fn parse_temporary(name: &str) -> Temporary {
    let is_block = |what: &str| {
        what.len() == 32 && what.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_number = |text: &str| u64::from_str_radix(text, 16).is_ok();
    let ours = name
        .strip_suffix(TEMPORARY)
        .and_then(|rest| rest.rsplit_once('.'))
        .and_then(|(what, rest)| Some((what, rest.rsplit_once('-')?)))
        .filter(|(what, (_, number))| {
            let probe = what.strip_prefix("probe-").is_some_and(is_number);
            is_number(number) && (probe || *what == MARKER || is_block(what))
        })
        .and_then(|(_, (writer, _))| Writer::parse(writer));
    if let Some(writer) = ours {
        return Temporary::Ours(writer);
    }
    let block = name.split_once('.').is_some_and(|(what, _)| is_block(what));
    if block && name.contains(TEMPORARY) { Temporary::Foreign } else { Temporary::Unknown }
}

/// Makes every path of a store.
#[derive(Debug, Clone)]
pub struct Layout {
    roots: Vec<String>,
    digits: usize,
    writer: String,
}

fn c_string(path: impl Into<Vec<u8>>) -> CString {
    // Roots were checked for NUL with the configuration (R3), and nothing else of a path can
    // contain one.
    CString::new(path).unwrap_or_default()
}

impl Layout {
    /// For these roots (each with its trailing `/`), hex digits of `dir`, and writer.
    #[must_use]
    pub fn new(roots: &[String], digits: usize, writer: &Writer) -> Layout {
        Layout { roots: roots.to_vec(), digits, writer: writer.word() }
    }

    /// How many backends.
    #[must_use]
    pub fn backends(&self) -> usize {
        self.roots.len()
    }

    /// A backend's root.
    #[must_use]
    pub fn root(&self, lane: usize) -> &str {
        &self.roots[lane]
    }

    /// `name` of R4.
    #[must_use]
    pub fn name(id: &BlockId) -> String {
        format!("{id}")
    }

    /// `dir` of R4.
    #[must_use]
    pub fn dir(&self, id: &BlockId) -> String {
        if self.digits == 0 {
            return SINGLE_DIR.into();
        }
        Layout::name(id)[..self.digits].into()
    }

    /// How many `dir`s there can be.
    #[must_use]
    pub fn dirs(&self) -> u32 {
        1 << (4 * self.digits)
    }

    /// `<name>.<seconds>.<unique>`: a file in quarantine, and when it was put there.
    #[must_use]
    pub fn aside_name(&self, id: &BlockId, storage_s: i64, number: u64) -> String {
        format!("{}.{storage_s}.{}-{number:x}", Layout::name(id), self.writer)
    }

    /// When a file in quarantine was put there; `None`: somebody else's name.
    #[must_use]
    pub fn set_aside_at(name: &str) -> Option<i64> {
        let mut parts = name.splitn(3, '.');
        let (id, seconds) = (parts.next()?, parts.next()?);
        parts.next()?;
        names::block_id(id)?;
        seconds.parse().ok()
    }

    /// Whether `name` is that of a `dir`.
    #[must_use]
    pub fn is_dir(&self, name: &str) -> bool {
        match self.digits {
            0 => name == SINGLE_DIR,
            digits => {
                let hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                name.len() == digits && name.bytes().all(hex)
            }
        }
    }

    /// What the names of all blocks in a `dir` begin with.
    #[must_use]
    pub fn prefix<'d>(&self, dir: &'d str) -> &'d str {
        if self.digits == 0 { "" } else { dir }
    }

    /// The `dir` with this number, in order of names.
    #[must_use]
    pub fn dir_number(&self, number: u32) -> String {
        if self.digits == 0 {
            return SINGLE_DIR.into();
        }
        format!("{number:0width$x}", width = self.digits)
    }

    /// `<root><dir>/<name>`, with room for `more` bytes after it.
    fn block(&self, lane: usize, id: &BlockId, more: usize) -> Vec<u8> {
        let (root, hex) = (self.root(lane).as_bytes(), id.hex());
        let dir = if self.digits == 0 { SINGLE_DIR.as_bytes() } else { &hex[..self.digits] };
        let mut path = Vec::with_capacity(root.len() + dir.len() + 1 + hex.len() + more + 1);
        path.extend_from_slice(root);
        path.extend_from_slice(dir);
        path.push(b'/');
        path.extend_from_slice(&hex);
        path
    }

    /// The committed file.
    #[must_use]
    pub fn block_path(&self, lane: usize, id: &BlockId) -> CString {
        c_string(self.block(lane, id, 0))
    }

    /// The file in progress.
    #[must_use]
    pub fn temporary_path(&self, lane: usize, id: &BlockId, generation: u64) -> CString {
        let end = format!(".{}-{generation:x}{TEMPORARY}", self.writer);
        let mut path = self.block(lane, id, end.len());
        path.extend_from_slice(end.as_bytes());
        c_string(path)
    }

    /// The directory of a block.
    #[must_use]
    pub fn dir_path(&self, lane: usize, id: &BlockId) -> CString {
        let (root, dir) = (self.root(lane), self.dir(id));
        c_string(format!("{root}{dir}"))
    }

    /// Any path below a root.
    #[must_use]
    pub fn below(&self, lane: usize, relative: &str) -> CString {
        let root = self.root(lane);
        c_string(format!("{root}{relative}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        Writer { boot: 0xabc, pid_namespace: 7, pid: 42, started: 99, nonce: 0x1234 }
    }

    #[test]
    fn r4_paths() {
        let id = BlockId([
            0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee,
            0xff,
        ]);
        let roots = ["/a/".to_string(), "/b/".to_string()];
        let layout = Layout::new(&roots, 3, &writer());
        let path = layout.block_path(1, &id);
        assert_eq!(path.to_str().unwrap(), "/b/001/00112233445566778899aabbccddeeff");
        let flat = Layout::new(&roots, 0, &writer());
        let path = flat.block_path(0, &id);
        assert_eq!(path.to_str().unwrap(), "/a/data/00112233445566778899aabbccddeeff");
        assert_eq!(layout.dirs(), 4096);
        assert_eq!(layout.dir_number(0xab), "0ab");
        assert_eq!((flat.dirs(), flat.dir_number(0).as_str()), (1, "data"));
    }

    #[test]
    fn r5_a_temporary_names_its_writer_and_generation() {
        let id = BlockId([0xfe; 16]);
        let layout = Layout::new(&["/a/".into()], 2, &writer());
        let path = layout.temporary_path(0, &id, 0x1f);
        let path = path.to_str().unwrap();
        assert!(path.starts_with("/a/fe/fefefefefefefefefefefefefefefefe."));
        let name = path.rsplit('/').next().unwrap();
        assert_eq!(parse_temporary(name), Temporary::Ours(writer()));
        let word = writer().word();
        for other in [format!("probe-1f.{word}-0.tmp"), format!(".kvpath.{word}-ab.tmp")] {
            assert_eq!(parse_temporary(&other), Temporary::Ours(writer()), "{other}");
        }
    }

    #[test]
    fn r46_foreign_and_unknown_names() {
        let block = "fefefefefefefefefefefefefefefefe";
        assert_eq!(parse_temporary(&format!("{block}.tmp")), Temporary::Foreign);
        assert_eq!(parse_temporary(&format!("{block}.tmp.123")), Temporary::Foreign);
        assert_eq!(parse_temporary(".kvpath.tmp"), Temporary::Unknown);
        assert_eq!(parse_temporary("probe-x.1_1_1_1_1-0.tmp"), Temporary::Unknown);
        assert_eq!(parse_temporary(block), Temporary::Unknown);
        assert_eq!(parse_temporary("notes.tmp"), Temporary::Unknown);
        assert_eq!(parse_temporary("é.tmp"), Temporary::Unknown);
        let upper = block.to_uppercase();
        assert_eq!(parse_temporary(&format!("{upper}.tmp")), Temporary::Unknown);
    }
}
