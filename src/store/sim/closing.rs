//! What comes back after the limit of close (R54): nobody waits for ever for what it begins.

use super::world::{Mode, World};
use crate::engine::{Done, Gate, Tag};
use crate::error::Status;
use crate::store::core::Core;
use crate::store::submit::closed;
use crate::store::types::TaskKind;

/// A dump whose worker is inside the caller's memory when the limit of close passes.
fn dump_inside() -> (World, u64, Tag, std::sync::Arc<Gate>) {
    let mode = Mode { paths: 2, isolated: false, direct: true, limits: false, ..Mode::default() };
    let mut world = World::new(5, mode);
    world.all_verified();
    let handle = world.submit_whole(TaskKind::Dump);
    let (_, op) = world.next_op().expect("the write");
    assert!(op.gate.enter());
    world.with(Core::begin_close);
    world.with(|core, now, fx| core.terminate_all(&closed(), now, fx));
    (world, handle, op.tag, op.gate)
}

#[test]
fn r54_a_write_that_succeeds_after_the_limit_ends_its_task() {
    let (mut world, handle, tag, gate) = dump_inside();
    assert!(world.jobs[&handle].ended.is_none(), "a worker is inside its memory");
    let _wanted = gate.leave();
    let done = Ok(Done::Written { durable: true });
    world.with(|core, now, fx| core.complete(tag, done, now, fx));
    assert_eq!(world.jobs[&handle].error, Some(Status::Closed));
    assert!(world.core.is_quiet(), "a commit that no engine takes");
}

#[test]
fn r54_a_write_that_fails_after_the_limit_ends_its_task() {
    let (mut world, handle, tag, gate) = dump_inside();
    let _wanted = gate.leave();
    let failed = Err(crate::error::Failure::errno(crate::error::Step::Write, libc::EIO));
    world.with(|core, now, fx| core.complete(tag, failed, now, fx));
    assert_eq!(world.jobs[&handle].error, Some(Status::Closed));
    assert!(world.core.is_quiet());
}
