//! The steps of the start-up check on one backend: look, make the storage, make the `dir`s, check
//! (R6–R9), and making the marker again where a storage was wiped (R8).
//!
//! Each may hang. The order, the limits and what a failure means for the open are in `startup`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::class;
use super::marker::{self, MakeParams, Marker, Uuid, at, c_path};
use super::probe::{self, Expect, ProbeFailure, ProbeParams, Probed};
use super::startup::StartupParams;
use crate::error::{Cause, Failure, Step};
use crate::posix::file::{self, Kind};
use crate::posix::space::{self, Space};

/// Data directories are made at open up to this many digits: 4096 directories (R6).
pub const MOST_DIGITS_AT_OPEN: usize = 3;

/// Which directory a root is: what stays the same until something else is mounted there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootId {
    /// Mount id; 0 where the kernel does not tell.
    pub mount: u64,
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
}

/// A backend that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Which directory the root was.
    pub root: RootId,
    /// What the probe learned; `probed.marker.uuid` is what later checks compare with (R24).
    pub probed: Probed,
    /// Room of its file system, where it tells.
    pub space: Option<Space>,
}

/// Why a backend did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFailure {
    /// The step and its cause.
    pub failure: Failure,
    /// The file or directory that it failed on.
    pub path: String,
    /// The file system refuses `O_DIRECT`.
    pub direct_refused: bool,
}

impl From<ProbeFailure> for CheckFailure {
    fn from(failed: ProbeFailure) -> CheckFailure {
        let ProbeFailure { failure, path, direct_refused, marker: _ } = failed;
        CheckFailure { failure, path, direct_refused }
    }
}

impl CheckFailure {
    pub(super) fn new(failure: Failure, path: impl Into<String>) -> CheckFailure {
        CheckFailure { failure, path: path.into(), direct_refused: false }
    }

    /// "backend PATH: write: errno 28 (…) at FILE (backend 2 of 3); what to do".
    #[must_use]
    pub fn text(&self, root: &str, index: usize, backends: usize) -> String {
        let mut text = class::text(root, &self.failure);
        if self.path != root && !self.path.is_empty() {
            text.push_str(&format!(" at {}", self.path));
        }
        text.push_str(&format!(" (backend {} of {backends})", index + 1));
        if self.direct_refused {
            text.push_str(
                "; this file system refuses O_DIRECT: set io_direct to false, or \
                 io_direct_fallback to true",
            );
        } else if let Some(remedy) = class::remedy(&self.failure) {
            text.push_str(&format!("; {remedy}"));
        }
        text
    }
}

/// Told to a step that nobody waits for it any more, so that it starts nothing further (R5).
#[derive(Clone)]
pub(super) struct Halt {
    /// Raised by a caller who waits no longer for the whole.
    pub(super) cancel: Arc<AtomicBool>,
    /// Raised where this step passed its limit.
    pub(super) given_up: Arc<AtomicBool>,
}

impl Halt {
    pub(super) fn check(&self) -> Result<(), CheckFailure> {
        if self.cancel.load(Ordering::Relaxed) || self.given_up.load(Ordering::Relaxed) {
            let failure = Failure { step: Step::Verify, cause: Cause::GivenUp };
            return Err(CheckFailure::new(failure, ""));
        }
        Ok(())
    }
}

/// What a root showed before anything was written.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Which directory it is.
    pub root: RootId,
    /// Its marker, where it has one.
    pub marker: Option<Marker>,
}

/// The data directories that exist from open on (R6); none where they are made on first use.
#[must_use]
pub fn directories(data_dir_shard_bytes: usize) -> Vec<String> {
    match data_dir_shard_bytes {
        0 => vec!["data".to_owned()],
        digits @ 1..=MOST_DIGITS_AT_OPEN => {
            (0..1_u32 << (4 * digits)).map(|number| format!("{number:0digits$x}")).collect()
        }
        _ => vec![],
    }
}

/// Asks which directory a root is; a root may be a symbolic link (R3).
///
/// # Errors
/// `Open`: the root is not there, or no directory.
pub fn root_id(root: &str) -> Result<RootId, Failure> {
    let info = file::stat_follow(&c_path(root)?).map_err(at(Step::Open))?;
    if !info.is_directory() {
        return Err(Failure::errno(Step::Open, libc::ENOTDIR));
    }
    Ok(RootId { mount: info.mount, device: info.device, inode: info.inode })
}

/// Reads what a root shows.
pub(super) fn look(
    params: &StartupParams,
    index: usize,
    halt: &Halt,
) -> Result<Seen, CheckFailure> {
    let root = params.roots[index].as_str();
    let id = root_id(root).map_err(|failure| CheckFailure::new(failure, root))?;
    halt.check()?;
    let marker = read_marker(root)?;
    Ok(Seen { root: id, marker })
}

fn read_marker(root: &str) -> Result<Option<Marker>, CheckFailure> {
    let path = || format!("{root}{}", marker::NAME);
    marker::read(root).map_err(|failure| CheckFailure::new(failure, path()))
}

fn verify_marker(root: &str, expected: Uuid) -> Result<(), CheckFailure> {
    let found = read_marker(root)?;
    marker::verify(found.as_ref(), expected).map_err(|failure| CheckFailure::new(failure, root))
}

/// Makes the storage's marker, with a new UUID; gives another's where that was first.
pub(super) fn make(
    params: &StartupParams,
    index: usize,
    halt: &Halt,
) -> Result<Marker, CheckFailure> {
    halt.check()?;
    let root = params.roots[index].as_str();
    let fail = |failure| CheckFailure::new(failure, format!("{root}{}", marker::NAME));
    let uuid = Uuid::random().map_err(at(Step::Open)).map_err(fail)?;
    let data_dir_shard_bytes = params.data_dir_shard_bytes;
    let marker = Marker { uuid, data_dir_shard_bytes };
    make_marker(params, root, marker).map_err(fail)
}

fn make_marker(params: &StartupParams, root: &str, marker: Marker) -> Result<Marker, Failure> {
    let (file_mode, writer) = (params.file_mode, params.writer.as_str());
    let made = marker::make(MakeParams { root, marker, file_mode, writer })?;
    if made.data_dir_shard_bytes == marker.data_dir_shard_bytes {
        return Ok(made);
    }
    let text = format!(
        "another process has just made the storage with data_dir_shard_bytes {}, not {}",
        made.data_dir_shard_bytes, marker.data_dir_shard_bytes
    );
    Err(Failure { step: Step::Verify, cause: Cause::Differs(text) })
}

fn list(root: &str) -> Result<Listing, CheckFailure> {
    let names = c_path(root).and_then(|path| file::list_kinds(&path).map_err(at(Step::List)));
    let names = names.map_err(|failure| CheckFailure::new(failure, root))?;
    Ok(names.into_iter().collect())
}

/// What a listing of a root gave.
pub(super) type Listing = HashMap<String, Kind>;

/// The data directories that a root does not have. One listing, whatever their number; where none
/// is missing, it is what [`check_one`] needs too.
pub(super) fn missing_directories(
    params: &StartupParams,
    index: usize,
    expected: Uuid,
    halt: &Halt,
) -> Result<(Vec<String>, Option<Listing>), CheckFailure> {
    let root = params.roots[index].as_str();
    verify_marker(root, expected)?;
    let mut missing = directories(params.data_dir_shard_bytes);
    if missing.is_empty() {
        return Ok((missing, None));
    }
    halt.check()?;
    let there = list(root)?;
    missing.retain(|name| !there.contains_key(name));
    let complete = missing.is_empty().then_some(there);
    Ok((missing, complete))
}

/// Makes data directories; another process may be making the same.
pub(super) fn make_directories(
    params: &StartupParams,
    index: usize,
    names: &[String],
    halt: &Halt,
) -> Result<(), CheckFailure> {
    for name in names {
        halt.check()?;
        let path = format!("{}{name}", params.roots[index]);
        let made =
            c_path(&path).and_then(|target| match file::make_directory(&target, params.dir_mode) {
                Ok(()) | Err(libc::EEXIST) => Ok(()),
                Err(errno) => Err(Failure::errno(Step::Mkdir, errno)),
            });
        made.map_err(|failure| CheckFailure::new(failure, path))?;
    }
    Ok(())
}

/// Syncs the root, in which the data directories are.
pub(super) fn sync_names(params: &StartupParams, index: usize) -> Result<(), CheckFailure> {
    let root = params.roots[index].as_str();
    marker::sync_directory(root).map_err(|failure| CheckFailure::new(failure, root))
}

/// Checks one backend: marker, `dir`s, probe (R10). `listed`: what a listing of this root gave
/// after its marker was seen.
pub(super) fn check_one(
    params: &StartupParams,
    index: usize,
    expected: Uuid,
    listed: Option<Listing>,
    halt: &Halt,
) -> Result<Checked, CheckFailure> {
    let root = params.roots[index].as_str();
    let names = directories(params.data_dir_shard_bytes);
    // Listed before the marker is asked for again: a network file system may remember for a while
    // that there was none when it was made through another path, and a listing makes it look anew.
    let there = match listed {
        Some(listed) => listed,
        None if names.is_empty() => HashMap::new(),
        None => list(root)?,
    };
    halt.check()?;
    verify_marker(root, expected)?;
    for name in &names {
        verify_directory(root, name, there.get(name).copied())?;
    }
    halt.check()?;
    let id = root_id(root).map_err(|failure| CheckFailure::new(failure, root))?;
    let digits = params.data_dir_shard_bytes;
    let directory = probe::any_directory(digits);
    let mut wanted = ProbeParams {
        root: root.to_owned(),
        directory: directory.map_err(|failure| CheckFailure::new(failure, root))?,
        expect: Expect::Storage(expected),
        data_dir_shard_bytes: digits,
        writer: params.writer.clone(),
        direct: params.direct,
        dir_mode: params.dir_mode,
        file_mode: params.file_mode,
    };
    let probed = match probe::probe(&wanted) {
        Err(refused) if refused.direct_refused && params.direct_fallback => {
            halt.check()?;
            wanted.direct = false;
            probe::probe(&wanted)?
        }
        other => other?,
    };
    let space = c_path(root).ok().and_then(|root| space::space(&root).ok());
    Ok(Checked { root: id, probed, space })
}

/// A `dir` must be a directory itself (R9), and every backend must show it (R6).
fn verify_directory(root: &str, name: &str, kind: Option<Kind>) -> Result<(), CheckFailure> {
    let path = format!("{root}{name}");
    let fail = |failure| Err(CheckFailure::new(failure, path.clone()));
    let differs = |text: String| Failure { step: Step::Verify, cause: Cause::Differs(text) };
    let no_directory = || differs(format!("{name} is a symbolic link, or no directory"));
    match kind {
        Some(Kind::Directory) => return Ok(()),
        Some(Kind::Other) => return fail(no_directory()),
        // Not told, or not in a listing that may be older than the directory: ask for this one.
        Some(Kind::Unknown) | None => {}
    }
    match c_path(&path).and_then(|path| file::stat(&path).map_err(at(Step::Verify))) {
        Ok(info) if info.is_directory() => Ok(()),
        Ok(_) => fail(no_directory()),
        Err(failure) if failure.os() == Some(libc::ENOENT) => {
            fail(differs(format!("the directory {name} is not there")))
        }
        Err(failure) => fail(failure),
    }
}

/// What became of a storage whose marker is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remade {
    /// Every root is the directory that it was at open, and none had a marker: wiped. It has the
    /// same marker again.
    Made,
    /// It was not wiped; why.
    NotWiped(String),
}

/// Makes the marker again where the storage was wiped: gone everywhere, while each root is still
/// the directory that it was at open (R8). Asks every root, so it may hang on any.
///
/// # Errors
/// The step that failed, making it.
pub fn remake_marker(
    params: &StartupParams,
    roots_at_open: &[Option<RootId>],
    uuid: Uuid,
) -> Result<Remade, CheckFailure> {
    for (root, at_open) in std::iter::zip(&params.roots, roots_at_open) {
        let no = |text: String| Ok(Remade::NotWiped(format!("backend {root}: {text}")));
        match (root_id(root), at_open) {
            (Err(failure), _) => return no(failure.to_string()),
            (Ok(_), None) => return no("it was not seen at open".to_owned()),
            (Ok(now), Some(at_open)) if now != *at_open => {
                return no("another directory than at open".to_owned());
            }
            (Ok(_), Some(_)) => {}
        }
        match marker::read(root) {
            Ok(None) => {}
            Ok(Some(_)) => return no("it has a marker".to_owned()),
            Err(failure) => return no(failure.to_string()),
        }
    }
    let Some(root) = params.roots.first() else {
        return Ok(Remade::NotWiped("there is no backend".to_owned()));
    };
    let marker = Marker { uuid, data_dir_shard_bytes: params.data_dir_shard_bytes };
    match make_marker(params, root, marker) {
        Ok(made) if made.uuid == uuid => Ok(Remade::Made),
        Ok(made) => {
            let text = format!("backend {root}: another process has just made {}", made.uuid);
            Ok(Remade::NotWiped(text))
        }
        Err(failure) => Err(CheckFailure::new(failure, format!("{root}{}", marker::NAME))),
    }
}
