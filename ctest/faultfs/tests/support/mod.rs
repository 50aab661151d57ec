//! A mounted faultfs for one test, and how to talk to it.
#![expect(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MntFlags, umount2};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_faultfs");

/// Generous: on a loaded machine too, what is waited for comes or never will.
pub const LIMIT_MS: u32 = 30_000;

static LAST: AtomicU32 = AtomicU32::new(0);

/// A directory that is deleted in the end.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new() -> Self {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("faultfs-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("root")).unwrap();
        Self(path)
    }

    pub fn root(&self) -> PathBuf {
        self.0.join("root")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// A running server. It dies with the thread that started it.
pub struct Server {
    pub child: Child,
    pub output: BufReader<ChildStdout>,
    pub mount: PathBuf,
    socket: PathBuf,
}

impl Server {
    pub fn start(place: &Place, name: &str, more: &[&str]) -> Self {
        let (mount, socket) = (place.0.join(name), place.0.join(format!("{name}.control")));
        let mut child = Command::new(PROGRAM)
            .arg("--root")
            .arg(place.root())
            .arg("--mount")
            .arg(&mount)
            .arg("--control")
            .arg(&socket)
            .args(["--ready-fd", "1"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, output, mount, socket }
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.mount.join(path)
    }

    /// The answer without its "ok", or the whole answer as the error.
    pub fn ask(&self, command: &str) -> Result<String, String> {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let line = line.trim_end();
        match line.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim_start().to_owned()),
            None => Err(line.to_owned()),
        }
    }

    pub fn say(&self, command: &str) -> String {
        self.ask(command).unwrap_or_else(|answer| panic!("{command}: {answer}"))
    }

    pub fn wait_hung(&self, count: usize) {
        self.say(&format!("wait-hung {count} {LIMIT_MS}"));
    }

    /// What the counters say of one operation.
    pub fn count(&self, op: &str, pattern: &str) -> u64 {
        let text = self.say(&format!("counts {pattern}"));
        let wanted = format!("{op}=");
        let found = text.split(' ').find_map(|part| part.strip_prefix(&wanted));
        found.unwrap().parse().unwrap()
    }

    /// Waits until the server has gone, and gives its exit status.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also where a test has failed with calls still hung: killing ends them.
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
        umount2(&self.mount, MntFlags::MNT_DETACH).unwrap_or_default();
    }
}

pub fn is_mounted(path: &Path) -> bool {
    let path = path.to_str().unwrap();
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(path))
}

/// The errno of a result that must be an error.
pub fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("this must fail"),
        Err(error) => error.raw_os_error().unwrap(),
    }
}

/// Whether tests can run here; says so where not.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && nix::unistd::geteuid().is_root();
    if !can {
        eprintln!("skipped: no /dev/fuse, or not root");
    }
    can
}
