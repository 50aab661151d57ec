//! Who this process is, in words that another process on this boot can check (R46).

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::sys::resource::{Resource, getrlimit};

/// This process's id.
#[must_use]
pub fn pid() -> u32 {
    std::process::id()
}

/// When process `pid` started, in the kernel's ticks since boot; `None` where it is gone or hidden.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Field 22 of `/proc/<pid>/stat`. Field 2 is the command in parentheses and may contain anything,
/// parentheses and spaces included, so fields are counted from the last `)`.
fn parse_start_time(stat: &str) -> Option<u64> {
    let (_, after_command) = stat.rsplit_once(')')?;
    after_command.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The name of this host.
#[must_use]
pub fn host_name() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(text.trim().to_owned())
}

/// Names this boot of this machine.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// The inode of this process's pid namespace: pids mean something only within it.
#[must_use]
pub fn pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|info| info.ino())
}

/// Whether the process with this pid and start time may still run. "No" is certain, "yes" is not:
/// where `/proc` hides the processes of others, the pid alone decides.
#[must_use]
pub fn alive(pid: u32, start: u64) -> bool {
    if let Some(found) = start_time(pid) {
        return found == start;
    }
    let Ok(raw) = libc::pid_t::try_from(pid) else {
        return false;
    };
    // SAFETY: signal 0 only asks whether the process exists. A pid of 0 would ask about our own
    // group: it is no process's, and the check comes first.
    raw != 0 && (unsafe { libc::kill(raw, 0) } == 0 || nix::errno::Errno::last_raw() != libc::ESRCH)
}

/// Bytes that this process may lock in memory; `u64::MAX`: no limit.
#[must_use]
pub fn memory_lock_limit() -> Option<u64> {
    getrlimit(Resource::RLIMIT_MEMLOCK).ok().map(|(soft, _)| soft)
}

/// Threads that this process's user may have, in all its processes.
#[must_use]
pub fn thread_limit() -> Option<u64> {
    getrlimit(Resource::RLIMIT_NPROC).ok().map(|(soft, _)| soft)
}

/// Descriptors that this process may have.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r46_a_process_lives_until_it_is_reaped_and_its_pid_alone_proves_nothing() {
        let own = start_time(pid()).unwrap();
        assert!(alive(pid(), own));
        assert!(!alive(pid(), own + 1));
        assert!(!alive(0, own));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let start = start_time(child.id()).unwrap();
        assert!(start >= own);
        assert!(alive(child.id(), start));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!alive(child.id(), start));
    }

    #[test]
    fn a_command_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 100 1";
        assert_eq!(parse_start_time(stat), Some(4242));
        assert_eq!(parse_start_time("7 (a"), None);
    }

    #[test]
    fn the_boot_and_the_namespace_have_names() {
        assert_eq!(boot_id().unwrap().len(), 36);
        assert!(pid_namespace().unwrap() > 0);
    }
}
