//! Why there is no ring, and what to do about it.

use std::fmt;

use crate::posix::process;

/// The system's refusal of a ring, with its cause and remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The call that was refused.
    pub(super) call: &'static str,
    /// errno; 0 where the kernel is too old.
    pub(super) errno: i32,
    /// What was asked for.
    pub(super) asked: String,
}

impl Refusal {
    /// errno; 0 where the kernel lacks something.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.errno
    }

    fn remedy(&self) -> String {
        let setting = |name: &str| {
            let path = format!("/proc/sys/kernel/{name}");
            let text = std::fs::read_to_string(path).ok();
            text.map_or_else(|| "not there".to_owned(), |text| text.trim().to_owned())
        };
        match self.errno {
            0 => "Linux 5.19 or newer is needed; posix_io_engine \"psync\" goes without".to_owned(),
            libc::EPERM | libc::EACCES => format!(
                "kernel.io_uring_disabled is {} (0 allows everybody, 1 the group of \
                 kernel.io_uring_group, which is {}, 2 nobody); where it is 0, a seccomp filter or \
                 a security module forbids it: allow io_uring_setup, io_uring_enter and \
                 io_uring_register in the container's profile",
                setting("io_uring_disabled"),
                setting("io_uring_group"),
            ),
            libc::ENOSYS => "the kernel was built without io_uring, or a seccomp filter hides it: \
                 allow io_uring_setup, io_uring_enter and io_uring_register in the container's \
                 profile"
                .to_owned(),
            libc::ENOMEM => format!(
                "RLIMIT_MEMLOCK is {}; raise it (ulimit -l), or lower \
                 posix_data_trans_concurrency",
                limit(process::memory_lock_limit())
            ),
            libc::EAGAIN => format!(
                "RLIMIT_NPROC is {} (ulimit -u, all threads of this user); the cgroup's pids.max \
                 limits threads too",
                limit(process::thread_limit())
            ),
            libc::EMFILE | libc::ENFILE => format!(
                "RLIMIT_NOFILE is {}; raise it (ulimit -n)",
                limit(process::descriptor_limit())
            ),
            _ => "posix_io_engine \"psync\" goes without io_uring".to_owned(),
        }
    }
}

fn limit(value: Option<u64>) -> String {
    match value {
        Some(u64::MAX) => "unlimited".to_owned(),
        Some(value) => value.to_string(),
        None => "unknown".to_owned(),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { call, errno, asked } = self;
        if *errno == 0 {
            return write!(f, "{call} ({asked}): {}", self.remedy());
        }
        let known = nix::errno::Errno::from_raw(*errno);
        let remedy = self.remedy();
        write!(f, "{call} ({asked}): errno {errno} ({known:?}: {}): {remedy}", known.desc())
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(errno: i32) -> String {
        Refusal { call: "io_uring_setup", errno, asked: "64 entries".into() }.to_string()
    }

    #[test]
    fn a_refusal_names_cause_and_remedy_with_present_values() {
        let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
        let eperm = text(libc::EPERM);
        if let Ok(value) = disabled {
            assert!(eperm.contains(&format!("io_uring_disabled is {}", value.trim())), "{eperm}");
        }
        assert!(eperm.contains("seccomp") && eperm.contains("EPERM"), "{eperm}");
        assert!(text(libc::ENOMEM).contains("RLIMIT_MEMLOCK is "));
        assert!(text(libc::EMFILE).contains("RLIMIT_NOFILE is "));
        assert!(text(0).contains("5.19"));
    }
}
