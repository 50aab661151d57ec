//! Shortages of this process, and what is left behind. Each case runs alone in its process.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::memory::{Host, WAYS, read_whole};
use super::rig::{LIMIT, Rig, USUAL, c_path};
use super::{Case, Make};
use crate::clock::{Clock, Time};
use crate::engine::{Done, FileList, Gate, Op, OpKind};
use crate::error::{Cause, Failure, Step};

pub const CASES: &[Case] = &[
    ("r22 a shortage that lasts ends with its errno", lasts),
    ("r22 a shortage that ends is waited out", passes),
    ("r22 a shortage that an op goes on without is noted no longer", goes_on),
    ("r22 a wait ends when the op is given up", given_up),
    ("threads and descriptors are as before", nothing_left),
];

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Holds every descriptor that the process may have.
fn take_all() -> Vec<File> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 200, hard).unwrap();
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Waits until the op says what it lacks.
fn until_short(gate: &Arc<Gate>) {
    let start = Instant::now();
    while gate.local(Time::ZERO) != Some(libc::EMFILE) {
        assert!(start.elapsed() < LIMIT);
        std::thread::yield_now();
    }
}

fn short_read(rig: &Rig, dir: &Path, host: &Host, limit: Duration) -> (Op, crate::engine::Tag) {
    fs::write(dir.join("file"), vec![3; 4096]).unwrap();
    let (mut op, tag, _) = rig.op(read_whole(&dir.join("file"), WAYS[0], host));
    op.local_limit = limit;
    (op, tag)
}

fn lasts(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let host = Host::plain(4096);
    let (op, tag) = short_read(&rig, dir, &host, Duration::from_millis(200));
    let gate = Arc::clone(&op.gate);
    let held = take_all();
    let start = Instant::now();
    rig.submit_op(op);
    assert_eq!(rig.outcome(tag), Err(Failure::errno(Step::Open, libc::EMFILE)));
    assert!(start.elapsed() >= Duration::from_millis(200));
    // The judge's limit passes at the same time, and must still see that the path is not to blame.
    assert_eq!(gate.local(Time::ZERO), Some(libc::EMFILE));
    drop(held);
}

fn passes(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let host = Host::plain(4096);
    let (op, tag) = short_read(&rig, dir, &host, LIMIT);
    let gate = Arc::clone(&op.gate);
    let held = take_all();
    rig.submit_op(op);
    until_short(&gate);
    drop(held);
    assert_eq!(rig.outcome(tag), Ok(Done::Unit));
    assert_eq!(gate.local(Time::ZERO), None);
    assert!(host.get() == [3; 4096]);
}

/// The root of a list cannot be opened; each file is asked by its full path then, which takes no
/// descriptor. What hangs from there on is the path's fault.
fn goes_on(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    fs::write(dir.join("file"), vec![3; 4096]).unwrap();
    let paths = (0..8).map(|_| c_path(&dir.join("file"))).collect();
    let many = FileList::new(paths, Clock::monotonic());
    let many = Arc::new(many.below(c_path(&dir.join(""))));
    let (mut op, tag, gate) = rig.op(OpKind::StatMany(many));
    op.local_limit = Duration::from_millis(200);
    let held = take_all();
    rig.submit_op(op);
    let outcome = rig.outcome(tag);
    assert!(matches!(&outcome, Ok(Done::Infos(all, None)) if all.len() == 8), "{outcome:?}");
    assert_eq!(gate.local(Time::ZERO), None, "eight files were asked without any shortage");
    drop(held);
}

fn given_up(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    let host = Host::plain(4096);
    let (op, tag) = short_read(&rig, dir, &host, LIMIT);
    let gate = Arc::clone(&op.gate);
    let held = take_all();
    rig.submit_op(op);
    until_short(&gate);
    assert!(gate.revoke());
    let given_up = Failure { step: Step::Open, cause: Cause::GivenUp };
    assert_eq!(rig.outcome(tag), Err(given_up));
    drop(held);
}

fn nothing_left(make: Make, dir: &Path) {
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let before = (threads(), descriptors());
    for _ in 0..20 {
        let rig = Rig::new(make, USUAL);
        let host = Host::plain(4096);
        fs::write(dir.join("file"), vec![3; 4096]).unwrap();
        let reads: Vec<_> = (0..50)
            .map(|at| rig.submit(read_whole(&dir.join("file"), WAYS[at % 4], &host)).0)
            .collect();
        for tag in reads {
            assert_eq!(rig.outcome(tag), Ok(Done::Unit));
        }
        rig.end();
    }
    assert_eq!((threads(), descriptors()), before);
}
