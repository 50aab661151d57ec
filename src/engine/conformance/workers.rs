//! Threads: how many there are, how long they stay, and when they wake.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::memory::{Host, WAYS, pattern, read_whole, write_whole};
use super::rig::{Limits, Rig, USUAL, c_path};
use super::{Case, Make};
use crate::engine::{Done, OpKind};

pub const CASES: &[Case] = &[
    ("many ops end once each within the limits", many),
    ("threads are made for work and retire when idle", retire),
    ("one op at a time keeps one worker busy", one_at_a_time),
    ("submitters and workers lose no wake-up", no_lost_wakes),
];

fn many(make: Make, dir: &Path) {
    let rig = Rig::new(make, Limits { transfers: 8, metadata: 3, buffer_bytes: 64 << 20 });
    let content = pattern(64 << 10, 4);
    let mut hosts: Vec<Host> = (0..500).map(|_| Host::plain(content.len())).collect();
    let path = |at: usize| dir.join(format!("{}", at % 20));
    for host in hosts.iter_mut().take(20) {
        host.set(&content);
    }
    let way = WAYS[1];
    let writes: Vec<_> =
        (0..20).map(|at| rig.submit(write_whole(&path(at), way, &hosts[at])).0).collect();
    for tag in writes {
        assert_eq!(rig.outcome(tag), Ok(Done::Written { durable: true }));
    }
    let ops: Vec<_> = (0..1000)
        .map(|at| {
            rig.submit(match at % 2 {
                0 => read_whole(&path(at / 2), way, &hosts[at / 2]),
                _ => OpKind::Stat { path: c_path(&path(at / 2)) },
            })
        })
        .collect();
    assert!(rig.engine.threads() <= 11);
    for (tag, _) in ops {
        assert!(rig.outcome(tag).is_ok());
    }
    assert!(hosts.iter().all(|host| host.get() == content));
    let (transfers, metadata) = rig.most();
    assert!(transfers <= 8 && metadata <= 3, "{transfers} {metadata}");
}

fn retire(make: Make, dir: &Path) {
    let rig = Rig::new(make, USUAL);
    assert_eq!((rig.engine.threads(), rig.kernel_threads()), (0, 0));
    for _ in 0..2 {
        assert!(rig.run(OpKind::Stat { path: c_path(dir) }).is_ok());
        assert!(rig.engine.threads() >= 1);
        rig.until_bell(|| rig.engine.threads() == 0);
        // Reaped by the supervisor, or ended within its last instructions: join waits for that.
    }
    rig.end();
}

fn one_at_a_time(make: Make, dir: &Path) {
    let rig = Rig::new(make, Limits { transfers: 64, metadata: 16, ..USUAL });
    fs::write(dir.join("file"), vec![1; 4096]).unwrap();
    let host = Host::plain(4096);
    for _ in 0..300 {
        assert_eq!(rig.run(read_whole(&dir.join("file"), WAYS[0], &host)), Ok(Done::Unit));
        assert!(rig.run(OpKind::Stat { path: c_path(dir) }).is_ok());
    }
    // A submit that falls between a worker's last look and its sleep may ask for a second one.
    assert!(rig.engine.threads() <= 2, "{} threads", rig.engine.threads());
    let bells = rig.bells();
    // Nothing is submitted: a parked worker does not run. The interval is what is measured here.
    let settled = settled_switches(&rig);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(rig.switches(), settled);
    assert_eq!(rig.bells(), bells);
}

/// The workers' switches once they have all parked.
fn settled_switches(rig: &Rig) -> Vec<u64> {
    let mut before = rig.switches();
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let now = rig.switches();
        if now == before {
            return now;
        }
        before = now;
    }
}

fn no_lost_wakes(make: Make, dir: &Path) {
    let rig = Rig::new(make, Limits { transfers: 3, metadata: 1, buffer_bytes: 16384 });
    fs::write(dir.join("file"), vec![1; 4096]).unwrap();
    std::thread::scope(|scope| {
        for at in 0..4 {
            let (rig, file) = (&rig, dir.join("file"));
            scope.spawn(move || {
                let host = Host::plain(4096);
                for _ in 0..500 {
                    let outcome = match at % 2 {
                        0 => rig.run(read_whole(&file, WAYS[0], &host)),
                        _ => rig.run(OpKind::Stat { path: c_path(&file) }),
                    };
                    assert!(outcome.is_ok(), "{outcome:?}");
                }
            });
        }
    });
}
