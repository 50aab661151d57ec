//! What dumps that fail leave behind (R5, R42), and calls that hang after a shortage (R22).

use std::time::Duration;

use super::aftermath::{run, writes_fail};
use super::world::{Mode, STEADY, World};
use crate::engine::gate::HANGS_AFTER;
use crate::engine::{Op, Outcome};
use crate::error::{Failure, Status, Step};
use crate::store::core::Core;
use crate::store::types::TaskKind;

const TWO_PATHS: Mode = Mode { paths: 2, limit: Duration::from_secs(4), ..STEADY };
/// An attempt's limit.
const ATTEMPT: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(1);

impl World {
    fn ends(&mut self, op: &Op, outcome: Outcome) {
        self.with(|core, now, fx| core.complete(op.tag, outcome, now, fx));
    }

    fn failures_of(&self, lane: usize) -> usize {
        self.core.health.backends()[lane].failures()
    }
}

#[test]
fn r42_a_dump_of_which_nothing_is_written_leaves_no_unfinished_block() {
    let mut world = World::new(1, TWO_PATHS);
    world.all_verified();
    for errno in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
        let handle = world.submit_whole(TaskKind::Dump);
        let seen = run(&mut world, writes_fail(errno));
        assert_eq!(seen, ["write", "write", "unlink"], "{errno}");
        assert_eq!(world.jobs[&handle].error, Some(Status::NoSpace), "{errno}");
        assert_eq!(world.core.blocks.len(), 0, "{errno}");
    }
    world.finish();
}

#[test]
fn r42_a_dump_that_was_never_begun_leaves_nothing_to_remove() {
    let mut world = World::new(2, TWO_PATHS);
    world.all_verified();
    let handle = world.submit_whole(TaskKind::Dump);
    world.clock.advance(TWO_PATHS.limit);
    world.with(Core::judge);
    assert_eq!(world.jobs[&handle].error, Some(Status::Timeout));
    assert_eq!(world.core.blocks.len(), 0);
    assert!(world.next_op().is_none(), "a file that nobody made is not removed");
    world.finish();
}

/// A load met a shortage on its first path.
fn short_of_descriptors() -> (World, u64, usize, Op) {
    let mut world = World::new(3, TWO_PATHS);
    world.all_verified();
    let handle = world.submit_whole(TaskKind::Load);
    let (lane, op) = world.next_op().expect("the read");
    op.gate.set_local(libc::EMFILE);
    (world, handle, lane, op)
}

#[test]
fn r22_a_call_that_hangs_after_a_shortage_is_the_path_s_fault() {
    let (mut world, handle, lane, op) = short_of_descriptors();
    world.clock.advance(Duration::from_millis(100));
    op.gate.call_again();
    world.clock.advance(ATTEMPT - Duration::from_millis(100));
    world.with(Core::judge);
    assert_eq!(world.failures_of(lane), 1);
    let (other, second) = world.next_op().expect("the next path is tried");
    assert_ne!(other, lane);
    world.ends(&second, Err(Failure::errno(Step::Open, libc::ENXIO)));
    assert_eq!(world.jobs[&handle].error, Some(Status::OsError));
    world.ends(&op, Err(Failure::errno(Step::Open, libc::EIO)));
    world.finish();
}

#[test]
fn r22_a_shortage_that_lasts_is_not_the_path_s_fault() {
    let (mut world, handle, lane, op) = short_of_descriptors();
    world.clock.advance(ATTEMPT);
    world.with(Core::judge);
    assert_eq!(world.jobs[&handle].error, Some(Status::OsError));
    assert!(world.next_op().is_none());
    world.ends(&op, Err(Failure::errno(Step::Open, libc::EMFILE)));
    assert_eq!(world.failures_of(lane), 0);
    world.finish();
}

#[test]
fn r22_a_busy_path_that_answers_late_within_a_shortage_does_not_hang() {
    let (mut world, handle, lane, op) = short_of_descriptors();
    world.clock.advance(ATTEMPT - Duration::from_millis(500));
    op.gate.call_again();
    world.clock.advance(Duration::from_millis(500));
    world.with(Core::judge);
    assert_eq!(world.jobs[&handle].error, Some(Status::OsError));
    world.ends(&op, Err(Failure::errno(Step::Open, libc::EMFILE)));
    assert_eq!(world.failures_of(lane), 0);
    world.finish();
}

#[test]
fn r22_a_call_made_again_just_before_the_limit_is_looked_at_once_more() {
    let (mut world, handle, lane, op) = short_of_descriptors();
    world.clock.advance(ATTEMPT - MOMENT);
    op.gate.call_again();
    world.clock.advance(MOMENT);
    world.with(Core::judge);
    assert_eq!(world.jobs[&handle].error, Some(Status::OsError), "it was refused until now");
    assert_eq!((world.failures_of(lane), world.core.snapshot().in_flight), (0, 1));
    world.clock.advance(HANGS_AFTER);
    world.with(Core::judge);
    assert_eq!((world.failures_of(lane), world.core.snapshot().in_flight), (1, 0));
    world.ends(&op, Err(Failure::errno(Step::Open, libc::EIO)));
    world.finish();
}

#[test]
fn r5_a_creation_that_may_be_in_the_kernel_closes_its_generation() {
    let mut world = World::new(4, TWO_PATHS);
    world.all_verified();
    let handle = world.submit_whole(TaskKind::Dump);
    let (_, op) = world.next_op().expect("the write");
    op.gate.set_local(libc::EMFILE);
    world.clock.advance(ATTEMPT - MOMENT);
    op.gate.call_again();
    world.clock.advance(MOMENT);
    let closed = world.core.snapshot().closed_generations;
    world.with(Core::judge);
    assert_eq!(world.jobs[&handle].error, Some(Status::OsError));
    assert_eq!(world.core.snapshot().closed_generations, closed + 1);
    world.ends(&op, Err(Failure::errno(Step::Open, libc::EMFILE)));
    world.finish();
}
