//! Facts about this host and services of it that the store needs, since the floor above names no
//! system call.
//!
//! Nothing here decides: the names of temporaries are made in `store/layout.rs`, pinning in
//! `store/mod.rs`.

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::raw::c_int;
use std::thread::JoinHandle;

use crate::posix::{affinity, eventfd, process, random, thread};

/// Stack of the library's own threads: the deepest of them formats a text.
pub const STACK_BYTES: usize = 256 << 10;

/// What tells one writer from every other, for the names of its temporaries (R5, R46).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterIdentity {
    /// Names the boot of the machine.
    pub boot_id: String,
    /// The pid namespace in which `pid` means something.
    pub pid_namespace: u64,
    /// The process.
    pub pid: u32,
    /// When it started, in ticks since boot: a pid is used again, a pair is not.
    pub start: u64,
}

/// This process. `None` where `/proc` does not tell: then only the age of a temporary decides
/// (R46).
#[must_use]
pub fn writer_identity() -> Option<WriterIdentity> {
    let pid = process::pid();
    Some(WriterIdentity {
        boot_id: process::boot_id()?,
        pid_namespace: process::pid_namespace()?,
        pid,
        start: process::start_time(pid)?,
    })
}

/// Whether a process of this boot and this pid namespace may still run. "No" is certain.
#[must_use]
pub fn alive(pid: u32, start: u64) -> bool {
    process::alive(pid, start)
}

/// This host's name; "unknown" where it has none.
#[must_use]
pub fn host_name() -> String {
    process::host_name().unwrap_or_else(|| "unknown".into())
}

/// This host's wall clock, in seconds since 1970. For comparing with a storage's clock only (R46).
#[must_use]
pub fn wall_clock_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Random bytes for names.
///
/// # Errors
/// The system's refusal.
pub fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT], Error> {
    let mut bytes = [0; COUNT];
    random::fill(&mut bytes).map_err(Error::from_raw_os_error)?;
    Ok(bytes)
}

/// A descriptor that becomes readable when [`Event::signal`] is called, until [`Event::drain`].
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Makes one, not readable.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn new() -> Result<Event, Error> {
        eventfd::create().map(Event).map_err(Error::from_raw_os_error)
    }

    /// Makes it readable.
    pub fn signal(&self) {
        eventfd::signal(&self.0);
    }

    /// Makes it not readable; says whether it was.
    pub fn drain(&self) -> bool {
        eventfd::drain(&self.0)
    }

    /// The descriptor, for `poll(2)`. Owned by this value.
    #[must_use]
    pub fn descriptor(&self) -> c_int {
        self.0.as_raw_fd()
    }
}

/// Makes a thread of the library: named (at most 15 bytes), signals blocked, on its maker's CPUs.
///
/// # Errors
/// The system's refusal.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::spawn(name, STACK_BYTES, work)
}

/// The text of a refusal to make the thread `name`, with its remedy.
#[must_use]
pub fn thread_refusal(name: &str, error: &Error) -> String {
    let limit = match process::thread_limit() {
        Some(u64::MAX) => "unlimited".to_owned(),
        Some(limit) => limit.to_string(),
        None => "unknown".to_owned(),
    };
    format!(
        "{name} cannot be made: {error}: RLIMIT_NPROC is {limit} (ulimit -u, all threads of this \
         user); the cgroup's pids.max, kernel.threads-max and memory limit threads too"
    )
}

/// The CPUs that the calling thread may run on.
///
/// # Errors
/// The system's refusal.
pub fn allowed_cores() -> Result<Vec<usize>, Error> {
    affinity::allowed().map_err(Error::from_raw_os_error)
}

/// Lets the calling thread, and those that it makes later, run on `cores` alone.
///
/// # Errors
/// The system's refusal; EINVAL where none of them can be used.
pub fn pin(cores: &[usize]) -> Result<(), Error> {
    affinity::pin(cores).map_err(Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_writer_is_alive_and_its_identity_does_not_change() {
        let identity = writer_identity().unwrap();
        assert_eq!(identity, writer_identity().unwrap());
        assert!(alive(identity.pid, identity.start));
        assert!(!alive(identity.pid, identity.start + 1));
        assert_ne!(random_bytes::<8>().unwrap(), random_bytes::<8>().unwrap());
    }

    #[test]
    fn an_event_is_drained_once() {
        let event = Event::new().unwrap();
        event.signal();
        assert!(event.descriptor() >= 0);
        assert!(event.drain());
        assert!(!event.drain());
    }
}
