//! The probe (R50): is this path our storage, and does it take a write and give it back?
//!
//! Runs on a thread that may hang; the time limit is the caller's. It decides nothing about health.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use super::class;
use super::marker::{self, Marker, Uuid, at, c_path, random_word};
use crate::config::FailureScope;
use crate::error::{Cause, Failure, Step};
use crate::posix::file;
use crate::posix::medium::{Medium, medium_of};

/// What a probe writes, in bytes.
pub const PROBE_BYTES: usize = 4096;

/// Alignment of `O_DIRECT` where the file does not tell (R33).
pub const DEFAULT_ALIGN: u32 = 4096;

/// A short transfer of the probe's page is begun again this often.
const MOST_TRIES: usize = 8;

/// Which storage the path must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// This one.
    Storage(Uuid),
    /// Any: a backend that showed nothing at open (R13). What it shows is in [`Probed::marker`].
    Any,
}

/// What to probe, and how.
#[derive(Debug, Clone)]
pub struct ProbeParams {
    /// The backend's root, with its trailing `/`.
    pub root: String,
    /// The data directory to write in, relative to the root: see [`any_directory`].
    pub directory: String,
    /// Which storage it must be.
    pub expect: Expect,
    /// `data_dir_shard_bytes`, which the marker must show.
    pub data_dir_shard_bytes: usize,
    /// The identity of this open store, for the file's name.
    pub writer: String,
    /// Use `O_DIRECT`.
    pub direct: bool,
    /// Mode of a data directory that has to be made again (R7, R9).
    pub dir_mode: u32,
    /// Mode of the file, less the umask.
    pub file_mode: u32,
}

/// What a probe that passed has learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probed {
    /// The storage's marker.
    pub marker: Marker,
    /// The transfers used `O_DIRECT`.
    pub direct: bool,
    /// Memory alignment of `O_DIRECT` on this file system, in bytes.
    pub memory_align: u32,
    /// Offset alignment of `O_DIRECT` on this file system, in bytes.
    pub offset_align: u32,
    /// How far the storage's clock is ahead of this host's, in seconds.
    pub clock_ahead_s: i64,
    /// What it says of a name is so: see [`Medium::is_coherent`].
    pub coherent: bool,
}

/// Why a probe failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFailure {
    /// The first step that failed.
    pub failure: Failure,
    /// The file or directory that it failed on.
    pub path: String,
    /// The marker, where it was read and is the right one: nothing was written before.
    pub marker: Option<Marker>,
    /// The file system refuses `O_DIRECT`; a buffered probe may pass (R33).
    pub direct_refused: bool,
}

/// One of the data directories, at random. With more digits than directories are made at open,
/// always the first, so that probes do not make thousands.
///
/// # Errors
/// errno of the kernel's source of random bytes.
pub fn any_directory(data_dir_shard_bytes: usize) -> Result<String, Failure> {
    let word = random_word().map_err(at(Step::Open))?;
    Ok(match data_dir_shard_bytes {
        0 => "data".to_owned(),
        digits @ 1..=3 => format!("{:0digits$x}", word % (1 << (4 * digits))),
        digits => "0".repeat(digits),
    })
}

/// Probes one backend.
///
/// # Errors
/// The first step that failed. Removal was tried whatever happened after the create.
pub fn probe(params: &ProbeParams) -> Result<Probed, ProbeFailure> {
    let found = check_marker(params).map_err(|failure| ProbeFailure {
        failure,
        path: format!("{}{}", params.root, marker::NAME),
        marker: None,
        direct_refused: false,
    })?;
    let mut path = format!("{}{}", params.root, params.directory);
    write_and_read(params, found, &mut path).map_err(|failure| ProbeFailure {
        direct_refused: params.direct && class::refuses_direct(&failure),
        marker: Some(found),
        failure,
        path,
    })
}

/// In recovery a full disk is no reason to stay excluded: it serves loads, and the marker was read
/// (R50). Off where `failure_scope` is `any`.
///
/// # Errors
/// The failure of a probe that failed otherwise.
pub fn judge_recovery(
    result: Result<Probed, ProbeFailure>,
    scope: FailureScope,
) -> Result<Option<Probed>, ProbeFailure> {
    match result {
        Ok(probed) => Ok(Some(probed)),
        Err(failed) if failed.marker.is_some() && scope == FailureScope::Path => {
            let context = class::Context::new(class::Operation::Probe, scope);
            match class::classify(&failed.failure, context) {
                class::Class::Capacity => Ok(None),
                _ => Err(failed),
            }
        }
        Err(failed) => Err(failed),
    }
}

fn check_marker(params: &ProbeParams) -> Result<Marker, Failure> {
    let found = marker::read(&params.root)?;
    match (found, params.expect) {
        (Some(found), Expect::Storage(expected)) => marker::verify(Some(&found), expected)?,
        (Some(_), Expect::Any) => {}
        (None, _) => return Err(absent()),
    }
    let found = found.ok_or_else(absent)?;
    let (has, wants) = (found.data_dir_shard_bytes, params.data_dir_shard_bytes);
    if has != wants {
        let text = format!("the storage has data_dir_shard_bytes {has}, the configuration {wants}");
        return Err(Failure { step: Step::Verify, cause: Cause::Differs(text) });
    }
    Ok(found)
}

fn absent() -> Failure {
    let text = format!("no marker {}", marker::NAME);
    Failure { step: Step::Verify, cause: Cause::NotTheStorage(text) }
}

fn write_and_read(
    params: &ProbeParams,
    found: Marker,
    path: &mut String,
) -> Result<Probed, Failure> {
    let directory = c_path(path)?;
    // The form of a block's temporary: never taken for a block, and swept when its writer is dead.
    let nonce = random_word().map_err(at(Step::Open))?;
    let target = format!("{path}/probe-{nonce:016x}.{}-0.tmp", params.writer);
    let file = c_path(&target)?;
    let fd = match create(params, &file) {
        Err(failure) if failure.os() == Some(libc::ENOENT) => {
            make_lost_directory(params, &directory)?;
            path.clone_from(&target);
            create(params, &file)?
        }
        other => {
            path.clone_from(&target);
            other?
        }
    };
    let used = use_file(params, found, &fd);
    let closed = file::close(fd).map_err(at(Step::Close));
    let removed = file::unlink(&file).map_err(at(Step::Remove));
    let probed = used?;
    closed?;
    removed?;
    Ok(probed)
}

fn create(params: &ProbeParams, path: &CStr) -> Result<OwnedFd, Failure> {
    file::create_new(path, params.direct, params.file_mode).map_err(|errno| {
        if errno == libc::EINVAL {
            // Some file systems create the file before they refuse O_DIRECT. Others did not, and
            // then there is nothing to remove; the refusal is what matters.
            file::unlink(path).ok();
        }
        Failure::errno(Step::Open, errno)
    })
}

/// Only with the marker seen may a directory that was lost be made again (R7). It is looked at
/// anew: the path may have fallen off since, and do so just now.
fn make_lost_directory(params: &ProbeParams, path: &CStr) -> Result<(), Failure> {
    check_marker(params)?;
    make_directory(path, params.dir_mode)?;
    check_marker(params).map(drop).inspect_err(|_| {
        // Best effort: blocks would be put into it.
        file::remove_directory(path).ok();
    })
}

fn make_directory(path: &CStr, mode: u32) -> Result<(), Failure> {
    match file::make_directory(path, mode) {
        // Somebody else needed it too.
        Ok(()) | Err(libc::EEXIST) => Ok(()),
        Err(errno) => Err(Failure::errno(Step::Mkdir, errno)),
    }
}

/// A page that `O_DIRECT` takes.
#[repr(align(4096))]
struct Page([u8; PROBE_BYTES]);

impl Page {
    fn zeroed() -> Box<Page> {
        Box::new(Page([0; PROBE_BYTES]))
    }

    /// The fixed pattern: no two neighbouring 512-byte sectors are alike, so that a misplaced
    /// sector is seen.
    fn pattern() -> Box<Page> {
        let mut page = Page::zeroed();
        for (at, byte) in page.0.iter_mut().enumerate() {
            *byte = u8::try_from(at % 251).unwrap_or(0) ^ 0x5a;
        }
        page
    }
}

fn use_file(params: &ProbeParams, found: Marker, fd: &OwnedFd) -> Result<Probed, Failure> {
    let wrote = Page::pattern();
    let direct = params.direct;
    let bytes = move_page(direct, |done| file::write_at(fd, &wrote.0[done..], done as u64))
        .map_err(at(Step::Write))?;
    if bytes < PROBE_BYTES {
        return Err(Failure { step: Step::Write, cause: Cause::NoProgress });
    }
    if !direct {
        file::sync_all(fd).map_err(at(Step::Fsync))?;
    }
    let mut read = Page::zeroed();
    let bytes = move_page(direct, |done| file::read_at(fd, &mut read.0[done..], done as u64))
        .map_err(at(Step::Read))?;
    if let Some(text) = difference(&wrote.0, &read.0[..bytes]) {
        return Err(Failure { step: Step::Verify, cause: Cause::Differs(text) });
    }
    let info = file::stat_open(fd).map_err(at(Step::Stat))?;
    let told = |align: u32| if align == 0 { DEFAULT_ALIGN } else { align };
    Ok(Probed {
        marker: found,
        direct,
        memory_align: told(info.memory_align),
        offset_align: told(info.offset_align),
        clock_ahead_s: info.mtime_s - now_s(),
        coherent: medium_of(fd).is_ok_and(Medium::is_coherent),
    })
}

/// Repeats `step`, which moves bytes from an offset on, until the page is whole; gives what was
/// moved.
fn move_page(
    direct: bool,
    mut step: impl FnMut(usize) -> Result<usize, i32>,
) -> Result<usize, i32> {
    let mut done = 0;
    for _ in 0..MOST_TRIES {
        match step(done)? {
            0 => break,
            bytes => done += bytes,
        }
        if done >= PROBE_BYTES {
            break;
        }
        if direct {
            // The last offset that is surely aligned.
            done = 0;
        }
    }
    Ok(done)
}

/// How what came back differs from what was written.
fn difference(wrote: &[u8], read: &[u8]) -> Option<String> {
    let differs = wrote.iter().zip(read).position(|(one, other)| one != other);
    if let Some(at) = differs {
        let (one, other) = (wrote[at], read[at]);
        return Some(format!("byte {at} was written as {one:#04x} and read as {other:#04x}"));
    }
    let (wrote, read) = (wrote.len(), read.len());
    (read < wrote).then(|| format!("{wrote} bytes were written and {read} came back"))
}

/// This host's clock in seconds, to compare with the storage's.
fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r10_a_difference_is_told_by_its_place() {
        let wrote = Page::pattern();
        assert_eq!(difference(&wrote.0, &wrote.0), None);
        let mut read = wrote.0;
        read[700] ^= 0xff;
        let text = difference(&wrote.0, &read).unwrap();
        assert!(text.starts_with("byte 700 was written as"), "{text}");
        let text = difference(&wrote.0, &wrote.0[..512]).unwrap();
        assert_eq!(text, "4096 bytes were written and 512 came back");
        assert_ne!(wrote.0[..512], wrote.0[512..1024], "a misplaced sector is seen");
    }

    #[test]
    fn r34_short_transfers_go_on_and_end() {
        let mut offsets = vec![];
        let short = |done: usize| {
            offsets.push(done);
            Ok(if offsets.len() == 1 { 100 } else { PROBE_BYTES - done })
        };
        assert_eq!(move_page(false, short), Ok(PROBE_BYTES));
        assert_eq!(offsets, [0, 100]);
        let mut offsets = vec![];
        let short = |done: usize| {
            offsets.push(done);
            Ok(if offsets.len() == 1 { 512 } else { PROBE_BYTES })
        };
        assert_eq!(move_page(true, short), Ok(PROBE_BYTES));
        assert_eq!(offsets, [0, 0], "direct: from an aligned offset");
        assert_eq!(move_page(false, |_| Ok(0)), Ok(0));
        assert_eq!(move_page(true, |_| Ok(512)), Ok(0), "never whole: given up");
        assert_eq!(move_page(true, |_| Err(libc::EIO)), Err(libc::EIO));
    }
}
