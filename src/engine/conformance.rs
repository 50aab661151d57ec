//! One suite for every engine: what an op does, how it fails, and that each ends exactly once.
//!
//! A case is a function over [`Make`] and a directory; it runs on a memory file system and on the
//! one that holds the temporary files. Engines run the groups from tests of their own.

mod faults;
mod hang;
mod local;
mod memory;
mod metadata;
mod rig;
mod stuck;
mod transfers;
mod upkeep;
mod workers;

use std::path::Path;
use std::sync::Arc;

use super::{Engine, EngineParams, Source};
use rig::Scratch;

/// Makes the engine under test.
pub type Make = fn(EngineParams, Arc<dyn Source>) -> Arc<dyn Engine>;

/// A case: its name, and what it does in an empty directory.
type Case = (&'static str, fn(Make, &Path));

/// Reads and writes.
pub fn transfers(make: Make) {
    run(make, transfers::CASES);
}

/// Everything but reads and writes.
pub fn metadata(make: Make) {
    run(make, metadata::CASES);
    run(make, upkeep::CASES);
}

/// What a hanging op does to the others, and to the caller's memory.
pub fn hangs(make: Make) {
    run(make, hang::CASES);
}

/// Threads, limits and wake-ups.
pub fn workers(make: Make) {
    run(make, workers::CASES);
}

/// The decorator around the engine.
pub fn faults(make: Make) {
    run(make, faults::CASES);
}

/// Shortages of this process. `test` is the full name of the calling test: it runs again alone in a
/// child, since limits belong to a whole process.
pub fn shortages(make: Make, test: &str) {
    in_child(test, || run(make, local::CASES));
}

fn run(make: Make, cases: &[Case]) {
    for (name, case) in cases {
        for parent in [Path::new("/dev/shm"), &std::env::temp_dir()] {
            println!("{name} in {}", parent.display());
            let scratch = Scratch::new(parent);
            case(make, scratch.path());
        }
    }
}

const CHILD: &str = "KVPATH_TEST_CHILD";

fn in_child(test: &str, body: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&status.stdout);
    assert!(text.contains("1 passed"), "{text}\n{}", String::from_utf8_lossy(&status.stderr));
}

mod psync {
    use super::*;
    use crate::engine::psync::PsyncEngine;

    fn make(params: EngineParams, source: Arc<dyn Source>) -> Arc<dyn Engine> {
        PsyncEngine::new(params, source)
    }

    #[test]
    fn psync_moves_bytes() {
        transfers(make);
    }

    #[test]
    fn psync_works_on_names() {
        metadata(make);
    }

    #[test]
    fn psync_confines_hangs() {
        hangs(make);
    }

    #[test]
    fn psync_keeps_its_workers() {
        workers(make);
    }

    #[test]
    fn psync_suffers_faults() {
        faults(make);
    }

    #[test]
    fn psync_waits_out_shortages() {
        shortages(make, "engine::conformance::psync::psync_waits_out_shortages");
    }
}

mod io_uring {
    use super::*;
    use crate::engine::uring::{self, UringEngine};

    fn make(params: EngineParams, source: Arc<dyn Source>) -> Arc<dyn Engine> {
        UringEngine::new(params, source).unwrap()
    }

    /// Whether there is anything to test here.
    fn given() -> bool {
        let refusal = uring::check().err();
        if let Some(refusal) = &refusal {
            println!("skipped: {refusal}");
        }
        refusal.is_none()
    }

    #[test]
    fn io_uring_moves_bytes() {
        if given() {
            transfers(make);
        }
    }

    #[test]
    fn io_uring_works_on_names() {
        if given() {
            metadata(make);
        }
    }

    #[test]
    fn io_uring_confines_hangs() {
        if given() && stuck::possible() {
            hangs(make);
        }
    }

    #[test]
    fn io_uring_keeps_its_workers() {
        if given() {
            workers(make);
        }
    }

    #[test]
    fn io_uring_suffers_faults() {
        if given() {
            faults(make);
        }
    }

    #[test]
    fn io_uring_waits_out_shortages() {
        if given() {
            let name = "engine::conformance::io_uring::io_uring_waits_out_shortages";
            shortages(make, name);
        }
    }
}

mod aio {
    use super::*;
    use crate::engine::aio::{AioEngine, Workers};
    use crate::engine::habits::{Habits, Kind};

    const WORKERS: Workers = Workers { openers: 32, committers: 4 };

    fn make(params: EngineParams, source: Arc<dyn Source>) -> Arc<dyn Engine> {
        AioEngine::new(params, WORKERS, source).unwrap()
    }

    fn told(kind: Kind, params: EngineParams, source: Arc<dyn Source>) -> Arc<dyn Engine> {
        AioEngine::with(params, WORKERS, source, Habits::told(kind))
    }

    /// Every direct transfer goes through a context, and the reaper ends it.
    fn local(params: EngineParams, source: Arc<dyn Source>) -> Arc<dyn Engine> {
        told(Kind::Local, params, source)
    }

    /// Every direct transfer goes through a context, and a worker ends it.
    fn remote(params: EngineParams, source: Arc<dyn Source>) -> Arc<dyn Engine> {
        told(Kind::Remote, params, source)
    }

    const MAKES: [Make; 3] = [make, local, remote];

    #[test]
    fn aio_moves_bytes() {
        MAKES.into_iter().for_each(transfers);
    }

    #[test]
    fn aio_works_on_names() {
        metadata(make);
    }

    #[test]
    fn aio_confines_hangs() {
        MAKES.into_iter().for_each(hangs);
    }

    #[test]
    fn aio_keeps_its_workers() {
        MAKES.into_iter().for_each(workers);
    }

    #[test]
    fn aio_suffers_faults() {
        MAKES.into_iter().for_each(faults);
    }

    #[test]
    fn aio_waits_out_shortages() {
        in_child("engine::conformance::aio::aio_waits_out_shortages", || {
            MAKES.into_iter().for_each(|make| run(make, local::CASES));
        });
    }
}
