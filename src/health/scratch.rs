//! A directory of its own for a test, gone with the test; mounts of its own where a test needs a
//! file system that fails.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A fresh directory, removed with everything in it (mounts first) when it is dropped.
pub struct Scratch {
    base: String,
    mounts: std::cell::RefCell<Vec<String>>,
}

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir();
        let base = format!("{}/kvpath-test-{}-{next}", directory.display(), std::process::id());
        std::fs::create_dir(&base).unwrap();
        Scratch { base, mounts: std::cell::RefCell::default() }
    }

    /// The path of `name`, which need not exist.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// Makes the directory `name`; its path as a root, with the trailing `/`.
    pub fn root(&self, name: &str) -> String {
        std::fs::create_dir(self.path(name)).unwrap();
        format!("{}/", self.path(name))
    }

    /// The names in the directory `name`, in order.
    pub fn names(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(name)).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Mounts a tmpfs on the directory `name`. `false` where this system does not let us: the test
    /// says so and ends.
    pub fn mount_tmpfs(&self, name: &str, options: &str) -> bool {
        self.mount(name, &["-t", "tmpfs", "-o", options, "tmpfs"])
    }

    /// Shows the directory `from` at the directory `name` too.
    pub fn mount_bind(&self, from: &str, name: &str) -> bool {
        self.mount(name, &["--bind", &self.path(from)])
    }

    fn mount(&self, name: &str, arguments: &[&str]) -> bool {
        let path = self.path(name);
        let status = Command::new("mount").args(arguments).arg(&path).status();
        let mounted = status.is_ok_and(|status| status.success());
        if mounted {
            self.mounts.borrow_mut().push(path);
        } else {
            eprintln!("skipped: this system does not let the test mount");
        }
        mounted
    }

    /// Ends the last mount.
    pub fn unmount(&self) {
        let path = self.mounts.borrow_mut().pop().unwrap();
        assert!(Command::new("umount").arg("-l").arg(path).status().unwrap().success());
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        while !self.mounts.borrow().is_empty() {
            self.unmount();
        }
        std::fs::remove_dir_all(&self.base).unwrap();
    }
}
