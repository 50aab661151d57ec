//! Loads of a block while it is given its name (R42): it has it before anybody is told so, and a
//! path may remember the file as it was before others wrote into it.

use std::time::Duration;

use super::world::{Mode, STEADY, World};
use crate::engine::{Done, Op, OpKind, Outcome};
use crate::error::{Failure, Step};
use crate::store::TaskKind;
use crate::store::types::BlockId;

const BLOCK: BlockId = BlockId([3; 16]);

fn next(world: &mut World) -> (usize, Op) {
    world.all_verified();
    world.next_op().expect("an op")
}

fn ends(world: &mut World, op: &Op, outcome: Outcome) {
    world.with(|core, now, fx| core.complete(op.tag, outcome, now, fx));
}

/// What a read finds there.
fn reads(world: &mut World, op: &Op, byte: u8) {
    if let OpKind::Read(transfer) = &op.kind {
        // SAFETY: the memory is a job's, which lives as long as the world.
        unsafe { transfer.memory.copy_in(0, &[byte; 32]) };
    }
    ends(world, op, Ok(Done::Unit));
}

fn load(world: &mut World) -> u64 {
    world.submit_shards(TaskKind::Load, BLOCK, 1, (0..4).collect()).expect("there is room")
}

fn is_over(world: &World, task: u64) -> bool {
    world.jobs[&task].ended.is_some()
}

/// A block that was begun on one path, got its first shard through another, and is being named
/// through that: the rename is with the kernel. Gives the first path, too, which could not look.
fn being_named() -> (World, usize, Op) {
    let mode = Mode { paths: 2, limit: Duration::from_secs(400), ..STEADY };
    let mut world = World::new(1, mode);
    let eio = || Err(Failure::errno(Step::Write, libc::EIO));
    let written = || Ok(Done::Written { durable: true });
    let first = world.dump_of(BLOCK, &[0]);
    let (path, op) = next(&mut world);
    ends(&mut world, &op, eio());
    let (other, op) = next(&mut world);
    assert_ne!(path, other);
    ends(&mut world, &op, written());
    assert_eq!(world.jobs[&first].error, None);
    world.dump_of(BLOCK, &[1, 2, 3]);
    let (at, op) = next(&mut world);
    assert_eq!(at, path);
    ends(&mut world, &op, written());
    loop {
        let (at, op) = next(&mut world);
        match &op.kind {
            OpKind::SetLength(..) if at == path => ends(&mut world, &op, eio()),
            OpKind::SetLength(..) => ends(&mut world, &op, Ok(Done::Unit)),
            OpKind::Rename { .. } => return (world, path, op),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn r42_a_load_while_the_name_is_being_given_looks_anew() {
    let (mut world, path, _rename) = being_named();
    let task = load(&mut world);
    let (at, op) = next(&mut world);
    assert!(at == path && matches!(op.kind, OpKind::SetLength(..)), "{op:?}");
    ends(&mut world, &op, Ok(Done::Unit));
    let (at, op) = next(&mut world);
    assert_eq!(at, path);
    reads(&mut world, &op, 9);
    assert!(is_over(&world, task));
}

/// Two loads look at the same time; the one that has read before the other has looked reads again.
#[test]
fn r42_a_slow_load_is_read_again_where_another_has_looked_meanwhile() {
    let (mut world, path, rename) = being_named();
    // As if it had begun before the rename: nothing is suspected yet.
    world.core.suspects.clear(&BLOCK, path);
    let slow = load(&mut world);
    let (_, old) = next(&mut world);
    assert!(matches!(old.kind, OpKind::Read(_)), "{old:?}");
    ends(&mut world, &rename, Ok(Done::Unit));
    let quick = load(&mut world);
    let (at, look) = next(&mut world);
    assert!(at == path && matches!(look.kind, OpKind::SetLength(..)), "{look:?}");
    ends(&mut world, &look, Ok(Done::Unit));
    let (_, op) = next(&mut world);
    reads(&mut world, &op, 9);
    assert!(is_over(&world, quick));
    reads(&mut world, &old, 8);
    assert!(!is_over(&world, slow), "it has what the path remembered");
    let (at, look) = next(&mut world);
    assert!(at == path && matches!(look.kind, OpKind::SetLength(..)), "{look:?}");
    ends(&mut world, &look, Ok(Done::Unit));
    let (_, op) = next(&mut world);
    reads(&mut world, &op, 9);
    assert!(is_over(&world, slow) && world.jobs[&slow].error.is_none());
}

/// Loads that look at the same time look once each.
#[test]
fn r42_loads_do_not_make_each_other_look_for_ever() {
    let (mut world, path, rename) = being_named();
    ends(&mut world, &rename, Ok(Done::Unit));
    let tasks = [load(&mut world), load(&mut world), load(&mut world)];
    let ops = [(); 3].map(|()| next(&mut world).1);
    ops.iter().for_each(|op| ends(&mut world, op, Ok(Done::Unit)));
    for _ in 0..12 {
        let Some((at, op)) = world.next_op() else { break };
        assert_eq!(at, path);
        reads(&mut world, &op, 9);
    }
    assert!(tasks.iter().all(|task| is_over(&world, *task)));
}

/// Whoever may not change the file cannot make its path look anew; the path is well all the same.
#[test]
fn r22_a_look_that_is_refused_says_nothing_about_the_path() {
    let (mut world, path, rename) = being_named();
    ends(&mut world, &rename, Ok(Done::Unit));
    let failures = world.core.health.backends()[path].failures();
    for errno in [libc::EACCES, libc::EPERM, libc::EROFS] {
        let task = load(&mut world);
        let (at, op) = next(&mut world);
        assert!(at == path && matches!(op.kind, OpKind::SetLength(..)), "{op:?}");
        ends(&mut world, &op, Err(Failure::errno(Step::Touch, errno)));
        let (at, op) = next(&mut world);
        assert!(at != path && matches!(op.kind, OpKind::Read(_)), "{at} {op:?}");
        reads(&mut world, &op, 9);
        assert!(is_over(&world, task) && world.jobs[&task].error.is_none());
    }
    assert_eq!(world.core.health.backends()[path].failures(), failures);
}
