//! Seeded simulation of the core: a model storage behind several paths that fail, hang and come
//! back, a manual clock, and random callers. What must hold is checked after every step; a failing
//! seed is printed and becomes a named test.
//!
//! The words for faults are those of the fault decorator and of the fault file system: fail, hang,
//! release.

mod aftermath;
mod checks;
mod chores;
mod client;
mod closing;
#[cfg(loom)]
mod event;
mod exact;
mod failed;
mod hung;
mod kernel;
mod lease;
mod model;
mod naming;
pub mod world;

use world::{Mode, World};

/// Steps of one run.
const STEPS: usize = 3_000;
/// Seeds of one test.
const SEEDS: u64 = 20;

fn run(seed: u64, mode: Mode) {
    let mut world = World::new(seed, mode);
    for _ in 0..STEPS {
        world.step();
    }
    world.finish();
}

fn run_all(mode: Mode) {
    let one = std::env::var("KVPATH_SIM_SEED").ok().and_then(|seed| seed.parse().ok());
    let many = std::env::var("KVPATH_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..many.unwrap_or(SEEDS),
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| run(seed, mode));
        if let Err(panic) = result {
            eprintln!("simulation failed: KVPATH_SIM_SEED={seed} mode {mode:?}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn direct_blocks_are_whole_whatever_fails() {
    run_all(Mode { paths: 3, direct: true, hangs: true, ..Mode::default() });
}

#[test]
fn buffered_blocks_are_whole_whatever_fails() {
    run_all(Mode { paths: 3, direct: false, hangs: true, ..Mode::default() });
}

#[test]
fn one_path_alone() {
    run_all(Mode { paths: 1, direct: true, hangs: true, ..Mode::default() });
}

#[test]
fn without_time_limits_errors_alone() {
    run_all(Mode { paths: 4, direct: true, hangs: false, limits: false, ..Mode::default() });
}

#[test]
fn borrowed_memory() {
    run_all(Mode { paths: 2, direct: true, hangs: true, isolated: false, ..Mode::default() });
}

#[test]
fn buffered_without_sync() {
    run_all(Mode { paths: 3, direct: false, hangs: true, sync: false, ..Mode::default() });
}
