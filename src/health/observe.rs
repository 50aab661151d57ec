//! What a test can see of a thread from outside: /proc.

use std::time::{Duration, Instant};

use crate::posix::affinity;

/// Nothing in a healthy run takes this long.
pub const LONG: Duration = Duration::from_secs(30);

/// The calling thread's directory in /proc.
pub fn own_task() -> String {
    let task = std::fs::read_link("/proc/thread-self").unwrap();
    format!("/proc/{}", task.display())
}

/// A line of a thread's status: `Name`, `Cpus_allowed_list`, `voluntary_ctxt_switches`, …
pub fn status(task: &str, key: &str) -> String {
    let status = std::fs::read_to_string(format!("{task}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(&format!("{key}:"))).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

/// A joined thread leaves /proc a moment after its join.
pub fn assert_gone(task: &str) {
    let end = Instant::now() + LONG;
    while std::path::Path::new(task).exists() {
        assert!(Instant::now() < end, "{task} is still there");
        std::thread::yield_now();
    }
}

/// A core that every test may use.
pub fn last_core() -> usize {
    // The test's own threads are never pinned, so this is the same for all of them.
    *affinity::allowed().unwrap().last().unwrap()
}
