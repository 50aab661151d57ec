//! What the steps of the lease believe (R24, R83).

use super::world::{Mode, World};
use crate::engine::{OpKind, Want};
use crate::reclaim::lease::{CHECK_TIME, HEARTBEAT, LOCK};
use crate::store::chore::Chore;

/// The first op of a chore on a path whose marker a dump has read just now.
fn first_op(chore: Chore) -> OpKind {
    let mut world = World::new(3, Mode { paths: 1, ..Mode::default() });
    let now = world.clock.now();
    world.core.lanes[0].marker_seen = Some(now);
    let begun = world.with(|core, now, fx| core.begin_chores(vec![chore], None, false, now, fx));
    assert!(begun.is_ok());
    world.with(|core, now, fx| core.pull(0, Want::Any, now, fx)).expect("an op").kind
}

#[test]
fn r24_each_step_that_takes_or_finds_a_lease_reads_the_marker() {
    for chore in [
        Chore::Claim(LOCK.into()),
        Chore::Stamp { file: CHECK_TIME.into(), create: true },
        Chore::List { dir: LOCK.into(), filter: HEARTBEAT },
    ] {
        let words = chore.describe();
        let op = first_op(chore);
        assert!(matches!(op, OpKind::ReadSmall { .. }), "{words}: {op:?}");
    }
}

#[test]
fn r24_what_finds_nothing_below_an_empty_mount_point_reads_none() {
    let op = first_op(Chore::RemoveFile("0/left.tmp".into()));
    assert!(matches!(op, OpKind::Unlink { .. }), "{op:?}");
    let op = first_op(Chore::RemoveDir(LOCK.into()));
    assert!(matches!(op, OpKind::RemoveDir { .. }), "{op:?}");
}
