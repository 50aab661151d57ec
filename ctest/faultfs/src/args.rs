//! The command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::rule::number;

/// Printed where the command line is wrong.
pub const USAGE: &str = "usage:
    faultfs --root DIR --mount DIR --control SOCKET
        [--ready-fd N] [--max-seconds N] [--sync-dio]
    faultfs send SOCKET COMMAND...";

/// Life of a mount that nobody ends.
const MAX_SECONDS: u32 = 300;

/// What the command line says.
#[derive(Debug)]
pub struct Args {
    /// The real directory.
    pub root: PathBuf,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The control socket.
    pub control: PathBuf,
    /// Told once the mount works.
    pub ready_fd: Option<u32>,
    /// After this the watchdog ends everything.
    pub max_life: Duration,
    /// Keep asynchronous direct I/O synchronous.
    pub sync_dio: bool,
}

impl Args {
    /// Reads the arguments after the program's name.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut root, mut mount, mut control, mut ready_fd) = (None, None, None, None);
        let (mut max_seconds, mut sync_dio) = (MAX_SECONDS, false);
        while let Some(word) = words.next() {
            if word == "--sync-dio" {
                sync_dio = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word}: value missing\n{USAGE}"))?;
            match word.as_str() {
                "--root" => root = Some(PathBuf::from(value)),
                "--mount" => mount = Some(PathBuf::from(value)),
                "--control" => control = Some(PathBuf::from(value)),
                "--ready-fd" => ready_fd = Some(number("--ready-fd", &value)?),
                "--max-seconds" => max_seconds = number("--max-seconds", &value)?,
                _ => return Err(format!("unknown option {word}\n{USAGE}")),
            }
        }
        match (root, mount, control) {
            (Some(root), Some(mount), Some(control)) if max_seconds > 0 => {
                let max_life = Duration::from_secs(max_seconds.into());
                Ok(Self { root, mount, control, ready_fd, max_life, sync_dio })
            }
            _ => Err(USAGE.to_owned()),
        }
    }

    /// Where the directory is that stands in for a vanished root.
    pub fn shadow(&self) -> PathBuf {
        let mut name = self.control.clone().into_os_string();
        name.push(".vanished");
        Path::new(&name).to_owned()
    }
}
