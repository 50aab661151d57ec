//! What kind of file system a lane's files are on: where requests of Linux AIO really run in the
//! background, where closing a file may hang, and how many blocking transfers at once are any use.
//! Owned by the lane; looked up again from time to time, since something else may be mounted there
//! by now.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Time;
use crate::posix::medium::{self, BTRFS, EXT4, RAMFS, TMPFS, XFS};

/// How long what was learned stands.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// Kinds of file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Not known yet.
    Unknown,
    /// In memory: a request runs inside its submission.
    Memory,
    /// On a local device, and a write that extends a file runs inside its submission.
    Extent,
    /// On a local device.
    Local,
    /// Any other: a server may stand behind it, and every call may hang.
    Remote,
}

const KINDS: [Kind; 5] = [Kind::Unknown, Kind::Memory, Kind::Extent, Kind::Local, Kind::Remote];

impl Kind {
    fn of(magic: i64) -> Kind {
        match magic {
            TMPFS | RAMFS => Kind::Memory,
            EXT4 => Kind::Extent,
            XFS | BTRFS => Kind::Local,
            _ => Kind::Remote,
        }
    }

    /// Whether a direct transfer gains by AIO; otherwise a worker runs it with blocking calls.
    pub fn flies(self, write: bool) -> bool {
        match self {
            Kind::Unknown | Kind::Memory => false,
            Kind::Extent => !write,
            Kind::Local | Kind::Remote => true,
        }
    }

    /// Calls on an open file never hang.
    pub fn is_local(self) -> bool {
        match self {
            Kind::Unknown | Kind::Remote => false,
            Kind::Memory | Kind::Extent | Kind::Local => true,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Habits {
    kind: AtomicU8,
    /// When to ask again, in ns of the lane's clock; never, where that is the maximum.
    stale_ns: AtomicU64,
}

impl Habits {
    /// Nothing is known.
    pub fn new() -> Habits {
        Habits { kind: AtomicU8::new(Kind::Unknown as u8), stale_ns: AtomicU64::new(0) }
    }

    /// The kind is told, and never asked for.
    #[cfg(test)]
    pub fn told(kind: Kind) -> Habits {
        Habits { kind: AtomicU8::new(kind as u8), stale_ns: AtomicU64::new(u64::MAX) }
    }

    /// An op was given up: whatever was known does not hold.
    pub fn forget(&self) {
        self.kind.store(Kind::Unknown as u8, Ordering::Relaxed);
        self.stale_ns.store(0, Ordering::Relaxed);
    }

    /// What is known.
    pub fn kind(&self) -> Kind {
        KINDS[usize::from(self.kind.load(Ordering::Relaxed))]
    }

    /// Asks for the file system of `path` if that is due. Gives the kind where it has changed. May
    /// hang as any call on a path.
    pub fn learn(&self, path: &CStr, now: Time) -> Option<Kind> {
        let now_ns = nanos(now.0);
        let stale_ns = self.stale_ns.load(Ordering::Relaxed);
        let next_ns = now_ns.saturating_add(nanos(FRESH_FOR));
        let due = stale_ns <= now_ns
            && self
                .stale_ns
                .compare_exchange(stale_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !due {
            return None;
        }
        let kind = Kind::of(medium::file_system(path).ok()?);
        let before = self.kind.swap(kind as u8, Ordering::Relaxed);
        (before != kind as u8).then_some(kind)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_learned_once_and_again_when_stale() {
        let habits = Habits::new();
        let at = |s| Time(Duration::from_secs(s));
        assert_eq!(habits.kind(), Kind::Unknown);
        assert_eq!(habits.learn(c"/dev/shm", at(10)), Some(Kind::Memory));
        assert_eq!(habits.learn(c"/proc", at(10)), None);
        assert_eq!(
            (habits.kind(), habits.learn(c"/proc", at(11))),
            (Kind::Memory, Some(Kind::Remote))
        );
        assert_eq!(habits.learn(c"/proc", at(12)), None);
        let told = Habits::told(Kind::Local);
        assert_eq!((told.learn(c"/proc", at(99)), told.kind()), (None, Kind::Local));
    }
}
