//! The marker `.kvpath` in a storage root (R8): which storage a path shows.
//!
//! Its text, reading it and making it. What follows from a marker that is absent or different is
//! decided by `startup`, by the probe, and by the store's core (R24).

use std::fmt;
use std::os::fd::OwnedFd;

use super::class::{self, Optional};
use crate::error::{Cause, Failure, Step};
use crate::posix::{file, random};

/// The marker's name in the root.
pub const NAME: &str = ".kvpath";

/// The format that this library writes, and the newest that it reads.
pub const VERSION: u64 = 1;

/// More than any marker has; what is larger is not one.
pub const MAX_BYTES: usize = 4096;

/// Names one storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A new one (version 4).
    ///
    /// # Errors
    /// errno of the kernel's source of random bytes.
    pub fn random() -> Result<Uuid, i32> {
        let mut bytes = [0; 16];
        random::fill(&mut bytes)?;
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Ok(Uuid(bytes))
    }

    /// Reads `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Uuid> {
        let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let dashes_fit = text.bytes().enumerate().all(|(at, byte)| is_dash(at) == (byte == b'-'));
        if text.len() != 36 || !dashes_fit {
            return None;
        }
        let digits = text.replace('-', "");
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(&digits, 16).ok().map(|value| Uuid(value.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                write!(f, "-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// What a marker says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The storage.
    pub uuid: Uuid,
    /// `data_dir_shard_bytes` of the storage.
    pub data_dir_shard_bytes: usize,
}

impl Marker {
    /// The file's content.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!(
            "{{\"kvpath_version\": {VERSION}, \"uuid\": \"{}\", \"data_dir_shard_bytes\": {}}}\n",
            self.uuid, self.data_dir_shard_bytes
        )
    }

    /// Reads a file's content.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub fn parse(content: &[u8]) -> Result<Marker, String> {
        if content.is_empty() {
            return Err(format!(
                "the marker {NAME} is empty: another process is making it right now, or died \
                 while it did; open again, and remove the empty file where that does not help"
            ));
        }
        if content.len() > MAX_BYTES {
            return Err(format!(
                "the marker {NAME} is no marker of kvpath: over {MAX_BYTES} bytes"
            ));
        }
        let value: serde_json::Value = serde_json::from_slice(content)
            .map_err(|error| format!("the marker {NAME} is garbled: {error}"))?;
        let Some(version) = value.get("kvpath_version").and_then(serde_json::Value::as_u64) else {
            return Err(format!("the marker {NAME} is no marker of kvpath: no kvpath_version"));
        };
        if version > VERSION {
            return Err(format!(
                "the marker {NAME} has version {version}; this library reads up to {VERSION}"
            ));
        }
        let uuid = value.get("uuid").and_then(serde_json::Value::as_str).and_then(Uuid::parse);
        let digits = value.get("data_dir_shard_bytes").and_then(serde_json::Value::as_u64);
        let digits = digits.and_then(|digits| usize::try_from(digits).ok());
        match (uuid, digits) {
            (Some(uuid), Some(digits)) if version > 0 && digits <= 5 => {
                Ok(Marker { uuid, data_dir_shard_bytes: digits })
            }
            (None, _) => Err(format!("the marker {NAME} is garbled: no uuid")),
            _ => Err(format!("the marker {NAME} is garbled: data_dir_shard_bytes is not 0 to 5")),
        }
    }
}

/// Compares what a path shows with the storage that it must show.
///
/// # Errors
/// `NotTheStorage`, with what was found instead.
pub fn verify(found: Option<&Marker>, expected: Uuid) -> Result<(), Failure> {
    let text = match found {
        Some(marker) if marker.uuid == expected => return Ok(()),
        Some(marker) => format!("the marker {NAME} names {}, not {expected}", marker.uuid),
        None => format!("no marker {NAME}"),
    };
    Err(Failure { step: Step::Verify, cause: Cause::NotTheStorage(text) })
}

/// Reads the marker of a root (which ends with `/`). `None`: the root is a directory without one.
///
/// # Errors
/// The step that failed; `Verify` where the file is there and is no marker.
pub fn read(root: &str) -> Result<Option<Marker>, Failure> {
    let path = c_path(&format!("{root}{NAME}"))?;
    let fd = match file::open_read(&path, false) {
        Ok(fd) => fd,
        Err(libc::ENOENT) => {
            // The root itself may be what is missing, which is no storage at all.
            file::stat_follow(&c_path(root)?).map_err(at(Step::Open))?;
            return Ok(None);
        }
        Err(errno) => return Err(Failure::errno(Step::Open, errno)),
    };
    let content = read_small(&fd);
    file::close(fd).map_err(at(Step::Close))?;
    match Marker::parse(&content?) {
        Ok(marker) => Ok(Some(marker)),
        Err(text) => Err(Failure { step: Step::Verify, cause: Cause::Differs(text) }),
    }
}

fn read_small(fd: &OwnedFd) -> Result<Vec<u8>, Failure> {
    // One byte more than a marker may have, so that a larger file is seen to be one.
    let mut content = vec![0; MAX_BYTES + 1];
    let mut done = 0;
    while done < content.len() {
        match file::read_at(fd, &mut content[done..], done as u64).map_err(at(Step::Read))? {
            0 => break,
            bytes => done += bytes,
        }
    }
    content.truncate(done);
    Ok(content)
}

/// How a marker file is made.
#[derive(Debug, Clone, Copy)]
pub struct MakeParams<'a> {
    /// The root, with its trailing `/`.
    pub root: &'a str,
    /// What the marker shall say.
    pub marker: Marker,
    /// The file's mode, less the umask.
    pub file_mode: u32,
    /// The identity of this open store, for the temporary's name.
    pub writer: &'a str,
}

/// Makes the marker and gives the one that is there then: another process may have been first.
///
/// # Errors
/// The step that failed. Nothing of ours is left behind then, where the path still answers.
pub fn make(params: MakeParams<'_>) -> Result<Marker, Failure> {
    let path = c_path(&format!("{}{NAME}", params.root))?;
    let nonce = random_word().map_err(at(Step::Open))?;
    let temporary = c_path(&format!("{}{NAME}.{}-{nonce:016x}.tmp", params.root, params.writer))?;
    let text = params.marker.to_text();
    write_new(&temporary, &text, params.file_mode)?;
    let linked = file::link(&temporary, &path);
    let removed = file::unlink(&temporary).map_err(at(Step::Remove));
    match linked {
        Ok(()) => removed.and_then(|()| sync_directory(params.root)).map(|()| params.marker),
        Err(libc::EEXIST) => removed.and_then(|()| existing(params.root)),
        Err(errno) if class::is_refusal(errno, Optional::Link) => {
            removed?;
            match write_new(&path, &text, params.file_mode) {
                Ok(()) => sync_directory(params.root).map(|()| params.marker),
                Err(failure) if failure.os() == Some(libc::EEXIST) => existing(params.root),
                Err(failure) => Err(failure),
            }
        }
        Err(errno) => Err(Failure::errno(Step::Link, errno)),
    }
}

/// The marker that was there before ours. A lost answer to our own link shows our own.
fn existing(root: &str) -> Result<Marker, Failure> {
    let gone = || Cause::Differs(format!("the marker {NAME} exists and then does not"));
    read(root)?.ok_or_else(|| Failure { step: Step::Verify, cause: gone() })
}

/// Creates a file exclusively, writes and syncs it; removes it where that fails.
fn write_new(path: &std::ffi::CStr, text: &str, mode: u32) -> Result<(), Failure> {
    let fd = file::create_new(path, false, mode).map_err(at(Step::Open))?;
    let written = write_synced(&fd, text.as_bytes());
    let closed = file::close(fd).map_err(at(Step::Close));
    let whole = written.and(closed);
    if whole.is_err() {
        // The first failure is the one to tell.
        file::unlink(path).ok();
    }
    whole
}

fn write_synced(fd: &OwnedFd, bytes: &[u8]) -> Result<(), Failure> {
    let mut done = 0;
    while done < bytes.len() {
        match file::write_at(fd, &bytes[done..], done as u64).map_err(at(Step::Write))? {
            0 => return Err(Failure { step: Step::Write, cause: Cause::NoProgress }),
            count => done += count,
        }
    }
    file::sync_all(fd).map_err(at(Step::Fsync))
}

/// Syncs the names in a root.
pub(super) fn sync_directory(root: &str) -> Result<(), Failure> {
    let fd = file::open_directory(&c_path(root)?).map_err(at(Step::Open))?;
    match file::sync_all(&fd) {
        // Some file systems cannot sync a directory; the marker is in their hands then.
        Ok(()) | Err(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => Ok(()),
        Err(errno) => Err(Failure::errno(Step::Fsync, errno)),
    }
}

/// 64 random bits, for names that nobody else has.
pub(super) fn random_word() -> Result<u64, i32> {
    let mut bytes = [0; 8];
    random::fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Turns errno into a failure of `step`.
pub(super) fn at(step: Step) -> impl Fn(i32) -> Failure {
    move |errno| Failure::errno(step, errno)
}

/// `text` as a C string.
pub(super) fn c_path(text: &str) -> Result<std::ffi::CString, Failure> {
    file::c_path(text).map_err(at(Step::Open))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::scratch::Scratch;

    fn marker(digits: usize) -> Marker {
        Marker { uuid: Uuid::random().unwrap(), data_dir_shard_bytes: digits }
    }

    fn make_in(root: &str, marker: Marker) -> Result<Marker, Failure> {
        make(MakeParams { root, marker, file_mode: 0o644, writer: "w1" })
    }

    #[test]
    fn r8_a_marker_is_made_once_and_read_back() {
        let scratch = Scratch::new();
        let root = scratch.root("a");
        assert_eq!(read(&root), Ok(None));
        let first = marker(3);
        assert_eq!(make_in(&root, first), Ok(first));
        assert_eq!(make_in(&root, marker(3)), Ok(first), "whoever was first wins");
        assert_eq!(read(&root), Ok(Some(first)));
        assert_eq!(scratch.names("a"), [NAME], "no temporary stays");
    }

    #[test]
    fn r8_many_makers_agree_on_one() {
        let scratch = Scratch::new();
        let root = scratch.root("a");
        let made: Vec<Marker> = std::thread::scope(|scope| {
            let makers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| make_in(&root, marker(2)).unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(made.iter().all(|marker| *marker == made[0]), "{made:?}");
        assert_eq!(scratch.names("a"), [NAME]);
    }

    #[test]
    fn r8_a_root_may_be_a_link_and_must_be_a_directory() {
        let scratch = Scratch::new();
        let root = scratch.root("a");
        std::os::unix::fs::symlink(&root, scratch.path("link")).unwrap();
        let link = format!("{}/", scratch.path("link"));
        let made = make_in(&link, marker(3)).unwrap();
        assert_eq!(read(&root), Ok(Some(made)));

        std::fs::write(scratch.path("file"), "x").unwrap();
        let file = format!("{}/", scratch.path("file"));
        assert_eq!(read(&file), Err(Failure::errno(Step::Open, libc::ENOTDIR)));
        let missing = format!("{}/", scratch.path("missing"));
        assert_eq!(read(&missing), Err(Failure::errno(Step::Open, libc::ENOENT)));
    }

    #[test]
    fn r8_what_is_no_marker_is_refused_and_never_replaced() {
        let scratch = Scratch::new();
        let root = scratch.root("a");
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        let rows = [
            (String::new(), "is empty"),
            ("hello".to_owned(), "garbled"),
            ("{\"a\": 1}".to_owned(), "no kvpath_version"),
            ("{\"kvpath_version\": 2}".to_owned(), "has version 2; this library reads up to 1"),
            ("{\"kvpath_version\": 1, \"uuid\": \"x\"}".to_owned(), "no uuid"),
            (
                format!(
                    "{{\"kvpath_version\": 1, \"uuid\": \"{uuid}\", \
                     \"data_dir_shard_bytes\": 6}}"
                ),
                "is not 0 to 5",
            ),
            (" ".repeat(MAX_BYTES + 1), "over 4096 bytes"),
        ];
        for (content, expected) in rows {
            std::fs::write(format!("{root}{NAME}"), &content).unwrap();
            let failure = read(&root).unwrap_err();
            assert_eq!(failure.step, Step::Verify);
            assert!(failure.to_string().contains(expected), "{failure}, not {expected}");
            assert_eq!(make_in(&root, marker(3)), Err(failure), "not replaced");
            assert_eq!(std::fs::read_to_string(format!("{root}{NAME}")).unwrap(), content);
        }
    }

    #[test]
    fn r9_a_marker_that_is_a_link_is_not_followed() {
        let scratch = Scratch::new();
        let (a, b) = (scratch.root("a"), scratch.root("b"));
        make_in(&a, marker(3)).unwrap();
        std::os::unix::fs::symlink(format!("{a}{NAME}"), format!("{b}{NAME}")).unwrap();
        assert_eq!(read(&b), Err(Failure::errno(Step::Open, libc::ELOOP)));
    }

    #[test]
    fn r24_another_storage_and_none_are_told_apart() {
        let (one, two) = (marker(3), marker(3));
        assert_eq!(verify(Some(&one), one.uuid), Ok(()));
        let other = verify(Some(&one), two.uuid).unwrap_err();
        assert!(other.to_string().contains(&one.uuid.to_string()), "{other}");
        assert!(other.to_string().starts_with("verify: not the storage: "), "{other}");
        assert!(verify(None, one.uuid).unwrap_err().to_string().ends_with("no marker .kvpath"));
    }

    #[test]
    fn uuids_have_one_form() {
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(Uuid::parse(text).unwrap().to_string(), text);
        for wrong in ["", "00112233445566778899aabbccddeeff", &text[1..], &text.replace('a', "g")] {
            assert_eq!(Uuid::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Uuid::parse("+0112233-4455-6677-8899-aabbccddeeff"), None);
        assert_eq!(Uuid::random().unwrap().to_string().as_bytes()[14], b'4');
    }
}
