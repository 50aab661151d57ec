//! Mounting and, above all, unmounting: whatever happens, no mount of ours may stay behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use fuser::{Config, MountOption, Session, SessionACL};
use nix::mount::{MntFlags, umount2};
use nix::unistd::geteuid;

use crate::passage::FaultFs;

/// How the kernel shows our mounts.
const FS_TYPE: &str = "fuse.faultfs";
/// Threads that take requests from the kernel; none of them ever blocks.
const SESSION_THREADS: usize = 2;

/// The real paths of root and mount point. Detaches what earlier runs left at the mount point,
/// makes the directory, and refuses one inside the other, where the file system would call itself.
pub fn prepare(root: &Path, mount: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let mount = std::path::absolute(mount)?;
    let parent = mount.parent().ok_or_else(|| io::Error::other("the mount point is /"))?;
    let name = mount.file_name().ok_or_else(|| io::Error::other("the mount point has no name"))?;
    fs::create_dir_all(parent)?;
    // Not the mount point itself: of a dead mount nothing can be resolved.
    let mount = parent.canonicalize()?.join(name);
    detach_stale(&mount)?;
    fs::create_dir_all(&mount)?;
    let root = root.canonicalize()?;
    if root.starts_with(&mount) || mount.starts_with(&root) {
        return Err(io::Error::other("root and mount point lie within each other"));
    }
    Ok((root, mount))
}

/// Detaches every mount of this file system at this place; others are not touched.
fn detach_stale(mount: &Path) -> io::Result<()> {
    for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let place = left.split(' ').nth(4).unwrap_or_default();
        if right.split(' ').next() == Some(FS_TYPE) && Path::new(&unescape(place)) == mount {
            detach(mount)?;
        }
    }
    Ok(())
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Takes the mount out of the tree at once, also while it is in use.
pub fn detach(mount: &Path) -> io::Result<()> {
    match umount2(mount, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Err(nix::errno::Errno::EPERM) => {
            let status =
                Command::new("fusermount3").args(["-u", "-z", "--"]).arg(mount).status()?;
            if status.success() { Ok(()) } else { Err(io::Error::other("fusermount3 -u failed")) }
        }
        result => result.map_err(io::Error::from),
    }
}

/// Mounts; by itself as root, through `fusermount3` otherwise.
pub fn mount(fs: FaultFs, root: &Path, mount: &Path) -> io::Result<Session<FaultFs>> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(root.to_string_lossy().into_owned()),
        MountOption::CUSTOM("subtype=faultfs".to_owned()),
    ];
    config.acl = if geteuid().is_root() { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(SESSION_THREADS);
    Session::new(fs, mount, &config)
}
