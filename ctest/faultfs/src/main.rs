//! A pass-through FUSE file system that fails, delays, hangs, cuts and flips operations on demand,
//! so that tests can break one path to a directory and not the others. See README.md.
//!
//! `args` reads the command line, `mount` mounts and unmounts, `fs` takes requests from the kernel
//! and `passage` sends them on, `gate` decides with `rule`, `op` and `counts`, `pool` has the
//! threads, `disk` does the work with `transfer`, `nodes`, `handle`, `attr` and `answer`, `record`
//! notes it, `control` listens to the test.
//!
//! It must never hang the machine. So the main thread waits for whichever end comes first, a signal
//! (the parent's death is one), `quit`, an unmount from outside or the watchdog, then fails
//! whatever is parked and detaches the mount. An alarm behind that kills the process if even this
//! should hang: the kernel then ends all requests by itself.

mod answer;
mod args;
mod attr;
mod control;
mod counts;
mod disk;
mod fs;
mod gate;
mod handle;
mod mount;
mod nodes;
mod op;
mod passage;
mod pool;
mod record;
mod rule;
mod transfer;

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{alarm, getppid};

use crate::args::Args;
use crate::control::Control;
use crate::disk::Disk;
use crate::gate::Gate;
use crate::passage::FaultFs;
use crate::pool::Pool;

/// How much later than the watchdog the alarm kills.
const ALARM_GRACE: Duration = Duration::from_secs(5);
/// How long an orderly end may take before the alarm kills.
const END_LIMIT: Duration = Duration::from_secs(15);
/// Exit status when the watchdog ended it.
const EXIT_WATCHDOG: u8 = 3;
/// Exit status where this machine does not let us mount.
const EXIT_CANNOT_MOUNT: u8 = 4;

/// Why it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// SIGTERM, SIGINT, SIGHUP, or the parent's death.
    Signal,
    /// The command `quit`.
    Quit,
    /// Somebody unmounted.
    Unmounted,
    /// Its time is over.
    Watchdog,
}

/// Why it did not start or end well.
enum Failure {
    Mount(String),
    Other(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "send") {
        return control::send(&words[1..]);
    }
    match run(words.into_iter()) {
        Ok(End::Watchdog) => {
            eprintln!("faultfs: the watchdog ended it");
            ExitCode::from(EXIT_WATCHDOG)
        }
        Ok(End::Signal | End::Quit | End::Unmounted) => ExitCode::SUCCESS,
        Err(Failure::Mount(text)) => {
            eprintln!("faultfs: mount: {text}");
            ExitCode::from(EXIT_CANNOT_MOUNT)
        }
        Err(Failure::Other(text)) => {
            eprintln!("faultfs: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: impl Iterator<Item = String>) -> Result<End, Failure> {
    let parent = getppid();
    let args = Args::parse(words)?;
    let deadline = Instant::now() + args.max_life;
    set_alarm(args.max_life + ALARM_GRACE);
    let signals = block_signals().map_err(|e| format!("signals: {e}"))?;
    set_pdeathsig(Signal::SIGTERM).map_err(|e| format!("prctl: {e}"))?;
    if getppid() != parent {
        return Err("the parent has gone".to_owned().into());
    }
    umask(Mode::empty());
    raise_file_limit().map_err(|e| format!("file limit: {e}"))?;

    let (root, place) = mount::prepare(&args.root, &args.mount)
        .map_err(|e| format!("{}: {e}", args.mount.display()))?;
    let disk = Arc::new(Disk::new(root.clone(), args.shadow()));
    let pool = Pool::start().map_err(|e| format!("threads: {e}"))?;
    let gate = Arc::new(Gate::new(pool));
    let listener = listen(&args.control).map_err(|e| format!("{}: {e}", args.control.display()))?;
    let fs =
        FaultFs { gate: Arc::clone(&gate), disk: Arc::clone(&disk), async_dio: !args.sync_dio };
    let session = mount::mount(fs, &root, &place).map_err(|e| Failure::Mount(e.to_string()))?;

    let (ends, end) = mpsc::channel();
    let served = start_threads(session, signals, listener, &gate, &disk, &ends)
        .and_then(|()| ready(args.ready_fd));
    let end = match served {
        Ok(()) => end
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            .unwrap_or(End::Watchdog),
        Err(_) => End::Signal,
    };

    set_alarm(END_LIMIT);
    gate.close();
    let detached = match end {
        End::Unmounted => Ok(()),
        End::Signal | End::Quit | End::Watchdog => mount::detach(&place),
    };
    // What is left of these two harms nobody.
    std::fs::remove_file(&args.control).unwrap_or_default();
    disk.come_back().unwrap_or_default();
    detached.map_err(|e| format!("unmount {}: {e}", place.display()))?;
    served.map(|()| end).map_err(|e| format!("start: {e}").into())
}

fn start_threads(
    session: fuser::Session<FaultFs>,
    signals: SigSet,
    listener: UnixListener,
    gate: &Arc<Gate>,
    disk: &Arc<Disk>,
    ends: &Sender<End>,
) -> io::Result<()> {
    let delayed = Arc::clone(gate);
    spawn("delayed", move || delayed.run_delayed())?;
    let told = ends.clone();
    spawn("signals", move || {
        while signals.wait().is_err() {}
        // The receiver lives as long as the process.
        told.send(End::Signal).unwrap_or_default();
    })?;
    let control = Control { gate: Arc::clone(gate), disk: Arc::clone(disk), ends: ends.clone() };
    spawn("control", move || control.serve(&listener))?;
    let told = ends.clone();
    spawn("session", move || {
        if let Err(error) = session.run() {
            eprintln!("faultfs: session: {error}");
        }
        told.send(End::Unmounted).unwrap_or_default();
    })
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map(|_| ())
}

/// Blocks the ending signals in every thread, for one thread to wait for.
fn block_signals() -> nix::Result<SigSet> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        signals.add(signal);
    }
    signals.thread_block()?;
    Ok(signals)
}

/// SIGALRM is not blocked and not handled: it kills.
fn set_alarm(after: Duration) {
    alarm::set(u32::try_from(after.as_secs()).unwrap_or(u32::MAX));
}

fn raise_file_limit() -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

/// Listens; a socket file of an earlier run is replaced.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(path),
    }
}

/// Says on the descriptor that the mount works.
fn ready(fd: Option<u32>) -> io::Result<()> {
    let Some(fd) = fd else { return Ok(()) };
    let mut out = std::fs::File::options().write(true).open(format!("/proc/self/fd/{fd}"))?;
    out.write_all(b"ready\n")
}
