//! The decorator, around a real engine.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::memory::{Host, WAYS, pattern, read_whole, write_whole};
use super::rig::{LIMIT, Rig, USUAL, c_path};
use super::{Case, Make};
use crate::engine::fault::{FaultEngine, Faults};
use crate::engine::{Done, OpKind};
use crate::error::{Cause, Failure, Step};

pub const CASES: &[Case] = &[
    ("fail", fail),
    ("delay", delay),
    ("hang and release", hang),
    ("a hung op that was given up", hang_given_up),
    ("short", short),
    ("flip", flip),
    ("stop waits for what is held", stop),
];

/// A rig whose engine is decorated.
fn decorated(make: Make) -> (Rig, Arc<FaultEngine>, Arc<Faults>) {
    let mut engine = None;
    let rig = Rig::of(
        &mut |params, source| {
            let faulty = FaultEngine::new(&make, params, source).unwrap();
            engine = Some(Arc::clone(&faulty));
            faulty
        },
        USUAL,
    );
    let engine = engine.unwrap();
    let faults = Arc::clone(engine.faults());
    (rig, engine, faults)
}

fn fail(make: Make, dir: &Path) {
    let (rig, _engine, faults) = decorated(make);
    let host = Host::plain(4096);
    let path = dir.join("file");
    let rule = faults.add("fail write EIO path=file count=1").unwrap();
    let write = || write_whole(&path, WAYS[0], &host);
    assert_eq!(rig.run(write()), Err(Failure::errno(Step::Write, libc::EIO)));
    assert!(!path.exists(), "a failed op does nothing");
    assert_eq!(rig.run(write()), Ok(Done::Written { durable: false }));
    assert_eq!(faults.hits(rule), 1);
    faults.add("fail open ENOTCONN").unwrap();
    let read = || read_whole(&path, WAYS[0], &host);
    assert_eq!(rig.run(read()), Err(Failure::errno(Step::Open, libc::ENOTCONN)));
    faults.clear();
    assert_eq!(rig.run(read()), Ok(Done::Unit));
}

fn delay(make: Make, dir: &Path) {
    let (rig, _engine, faults) = decorated(make);
    faults.add("delay mkdir 100").unwrap();
    let start = Instant::now();
    let made = dir.join("made");
    let late = rig.submit(OpKind::MakeDir { path: c_path(&made), mode: 0o774 });
    assert!(rig.run(OpKind::Stat { path: c_path(dir) }).is_ok());
    assert_eq!(rig.outcome(late.0), Ok(Done::Unit));
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert!(made.exists());
}

fn hang(make: Make, dir: &Path) {
    let (rig, engine, faults) = decorated(make);
    faults.add("hang getattr path=hung").unwrap();
    fs::write(dir.join("hung"), "x").unwrap();
    // More than there are threads: none of them is taken.
    let hung: Vec<_> =
        (0..50).map(|_| rig.submit(OpKind::Stat { path: c_path(&dir.join("hung")) }).0).collect();
    assert!(faults.wait_held(50, LIMIT));
    assert!(rig.run(OpKind::Stat { path: c_path(dir) }).is_ok());
    assert_eq!(faults.held(), 50);
    assert_eq!(rig.running(), 50);
    assert_eq!(engine.release(), 50);
    for tag in hung {
        assert!(rig.outcome(tag).is_ok());
    }
}

fn hang_given_up(make: Make, dir: &Path) {
    let (rig, engine, faults) = decorated(make);
    fs::write(dir.join("file"), vec![1; 4096]).unwrap();
    faults.add("hang read").unwrap();
    let host = Host::plain(4096);
    let (tag, gate) = rig.submit(read_whole(&dir.join("file"), WAYS[0], &host));
    assert!(faults.wait_held(1, LIMIT));
    assert!(gate.revoke());
    rig.engine.abandon(tag);
    assert_eq!(engine.release(), 1);
    let outcome = rig.outcome(tag);
    assert!(matches!(outcome, Err(Failure { cause: Cause::GivenUp, .. })), "{outcome:?}");
    assert!(host.get() == vec![0; 4096]);
}

fn short(make: Make, dir: &Path) {
    let (rig, _engine, faults) = decorated(make);
    let host = Host::plain(4096);
    faults.add("short read").unwrap();
    faults.add("short write").unwrap();
    let cause = Cause::WrongSize { found: Some(2048), expected: 4096 };
    let read = rig.run(read_whole(&dir.join("file"), WAYS[0], &host));
    assert_eq!(read, Err(Failure { step: Step::Verify, cause }));
    let write = rig.run(write_whole(&dir.join("file"), WAYS[0], &host));
    assert_eq!(write, Err(Failure { step: Step::Write, cause: Cause::NoProgress }));
}

fn flip(make: Make, dir: &Path) {
    let (rig, _engine, faults) = decorated(make);
    for way in WAYS {
        let path = dir.join(format!("{way:?}"));
        let content = pattern(8192, 1);
        let mut flipped = content.clone();
        flipped[0] = !flipped[0];
        let mut host = Host::plain(content.len());
        host.set(&content);
        faults.add("flip write count=1").unwrap();
        assert!(rig.run(write_whole(&path, way, &host)).is_ok());
        assert!(host.get() == content, "the caller's memory is not written to");
        assert!(fs::read(&path).unwrap() == flipped);
        faults.add("flip read count=1").unwrap();
        assert_eq!(rig.run(read_whole(&path, way, &host)), Ok(Done::Unit));
        assert!(host.get() == content, "the file's flip, flipped back");
        assert_eq!(rig.run(read_whole(&path, way, &host)), Ok(Done::Unit));
        assert!(host.get() == flipped);
    }
}

fn stop(make: Make, dir: &Path) {
    let (rig, engine, faults) = decorated(make);
    faults.add("hang getattr").unwrap();
    let (tag, _) = rig.submit(OpKind::Stat { path: c_path(dir) });
    assert!(faults.wait_held(1, LIMIT));
    rig.engine.stop();
    assert!(!rig.engine.join(Some(Duration::ZERO)));
    let (later, _) = rig.submit(OpKind::Stat { path: c_path(dir) });
    assert_eq!(engine.release(), 1);
    assert!(rig.outcome(tag).is_ok());
    assert!(rig.engine.join(Some(LIMIT)));
    assert_eq!((rig.waiting(), rig.running()), (1, 0), "{later:?} was not pulled");
}
