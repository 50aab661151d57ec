//! Names that hang whoever opens them, until they are released: a FIFO for engines that block in
//! the call; for those whose kernel workers do, a directory below a mount whose server is stopped.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::memory::{Host, WAYS, read_whole};
use super::rig::{LIMIT, Rig};
use crate::engine::{EngineKind, Gate, Tag};

/// Several names that hang.
pub struct Stuck {
    dir: PathBuf,
    mount: Option<Mount>,
}

/// What keeps released names released.
pub struct Released(#[expect(dead_code, reason = "held open")] Vec<File>);

impl Stuck {
    /// The names `0`, `1`, … below `dir`, for this rig's engine.
    pub fn new(rig: &Rig, dir: &Path, count: usize) -> Stuck {
        let stuck = match rig.engine.kind() {
            EngineKind::IoUring => {
                let mount = Mount::new(dir);
                Stuck { dir: mount.point.clone(), mount: Some(mount) }
            }
            EngineKind::Psync | EngineKind::Aio => Stuck { dir: dir.to_path_buf(), mount: None },
        };
        for number in 0..count {
            let path = stuck.dir.join(number.to_string());
            match &stuck.mount {
                Some(mount) => std::fs::create_dir(mount.source.join(number.to_string())).unwrap(),
                None => nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap(),
            }
        }
        if let Some(mount) = &stuck.mount {
            mount.signal(Signal::SIGSTOP);
        }
        stuck
    }

    /// Submits a read that hangs.
    pub fn hang(&self, rig: &Rig, number: usize, host: &Host) -> (Tag, Arc<Gate>) {
        let begun = self.begin(rig, number, host);
        // The kernel tells of no event when somebody begins to hang in an open.
        rig.until_opening(rig.running());
        begun
    }

    /// Submits a read that will hang, and waits until an engine has it.
    pub fn begin(&self, rig: &Rig, number: usize, host: &Host) -> (Tag, Arc<Gate>) {
        let path = self.dir.join(number.to_string());
        let (tag, gate) = rig.submit(read_whole(&path, WAYS[0], host));
        rig.started(tag);
        (tag, gate)
    }

    /// Lets every open of the name return, as long as the result is held.
    pub fn release(&self, number: usize) -> Released {
        if let Some(mount) = &self.mount {
            mount.signal(Signal::SIGCONT);
            return Released(Vec::new());
        }
        let path = self.dir.join(number.to_string());
        let flags = libc::O_NONBLOCK;
        let open = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        Released(vec![open.unwrap()])
    }
}

/// A directory mounted by a process of our own.
struct Mount {
    server: Child,
    source: PathBuf,
    point: PathBuf,
}

impl Mount {
    fn new(dir: &Path) -> Mount {
        let (source, point) = (dir.join("source of the mount"), dir.join("mount"));
        std::fs::create_dir(&source).unwrap();
        std::fs::create_dir(&point).unwrap();
        let device = || std::fs::metadata(&point).unwrap().dev();
        let before = device();
        // Nothing is remembered: every open asks the server.
        let server = Command::new("bindfs")
            .args(["-f", "-o", "attr_timeout=0,entry_timeout=0"])
            .args([&source, &point])
            .spawn()
            .unwrap();
        let start = Instant::now();
        while device() == before {
            assert!(start.elapsed() < LIMIT, "bindfs did not mount");
            std::thread::yield_now();
        }
        Mount { server, source, point }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.server.id()).unwrap());
        kill(pid, signal).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
        let done = nix::mount::umount2(&self.point, nix::mount::MntFlags::MNT_DETACH);
        let ended = self.server.wait();
        if !std::thread::panicking() {
            done.unwrap();
            ended.unwrap();
        }
    }
}

/// Whether `bindfs` is installed, without which rings cannot be made to hang.
pub fn possible() -> bool {
    Command::new("bindfs").arg("--version").output().is_ok()
}
