//! What is left after dumps that fail (R21, R41, R42), and of shortages that outlast a limit (R22).

use std::time::Duration;

use super::world::{Mode, STEADY, World};
use crate::config::CommitPolicy;
use crate::engine::{Done, Op, OpKind, Outcome, Want};
use crate::error::{Failure, Status, Step};
use crate::health::state::BackendState;
use crate::store::core::Core;
use crate::store::types::{BlockId, TaskKind};

fn block(number: u8) -> BlockId {
    let mut id = [0; 16];
    id[0] = number;
    BlockId(id)
}

/// Runs everything that an engine would be given; says what it was.
pub(super) fn run(world: &mut World, mut outcome: impl FnMut(&Op) -> Outcome) -> Vec<&'static str> {
    let mut seen = Vec::new();
    loop {
        world.all_verified();
        let Some((_, op)) = world.next_op() else { return seen };
        seen.push(match &op.kind {
            OpKind::Write(_) => "write",
            OpKind::Unlink { .. } => "unlink",
            OpKind::Rename { .. } => "rename",
            OpKind::Sync { .. } => "sync",
            _ => "other",
        });
        let outcome = outcome(&op);
        world.with(|core, now, fx| core.complete(op.tag, outcome, now, fx));
    }
}

fn good(op: &Op) -> Outcome {
    match &op.kind {
        OpKind::Write(write) => Ok(Done::Written { durable: write.direct || write.sync }),
        _ => Ok(Done::Unit),
    }
}

pub(super) fn writes_fail(errno: i32) -> impl FnMut(&Op) -> Outcome {
    move |op| match &op.kind {
        OpKind::Write(_) => Err(Failure::errno(Step::Write, errno)),
        _ => good(op),
    }
}

/// R41: under `last_shard` a block of which a shard failed is not committed by its last shard.
#[test]
fn r41_the_last_shard_commits_no_block_of_which_the_first_shard_failed() {
    let mut world = World::new(1, STEADY);
    world.core.rules.commit_policy = CommitPolicy::LastShard;
    let first = world.dump_of(block(1), &[0]);
    run(&mut world, writes_fail(libc::ENOSPC));
    assert_eq!(world.jobs[&first].error, Some(Status::NoSpace));
    let last = world.dump_of(block(1), &[3]);
    let seen = run(&mut world, good);
    assert_eq!(world.jobs[&last].error, None);
    assert!(!seen.contains(&"rename"), "a block without its shard 0 was committed: {seen:?}");
}

/// The same without a byte of I/O: shard 0 was never begun.
#[test]
fn r41_the_last_shard_commits_no_block_of_which_the_first_shard_was_over_its_limit() {
    let mut world = World::new(1, STEADY);
    world.core.rules.commit_policy = CommitPolicy::LastShard;
    let first = world.dump_of(block(1), &[0]);
    world.clock.advance(STEADY.limit);
    world.with(Core::judge);
    assert_eq!(world.jobs[&first].error, Some(Status::Timeout));
    world.dump_of(block(1), &[3]);
    let seen = run(&mut world, good);
    assert!(!seen.contains(&"rename"), "a block without its shard 0 was committed: {seen:?}");
}

/// R20, R21: each dump fails with EIO. That its leavings can be removed says nothing for the path.
#[test]
fn r21_a_path_on_which_each_dump_fails_is_excluded() {
    let mut world = World::with_rule(1, STEADY, 4, 3);
    for number in 0..20 {
        world.dump_of(block(number), &[0, 1, 2, 3]);
        run(&mut world, writes_fail(libc::EIO));
        if world.core.health.backends()[0].state() == BackendState::Excluded {
            assert_eq!(number, 2);
            return;
        }
    }
    panic!("20 dumps in a row failed with EIO, window 4, threshold 3, and the path is available");
}

/// A full disk that shows only when the cache is synced (NFS): the block is as bare as one that
/// could not be written, and its file is as long as a block.
#[test]
fn r42_a_dump_whose_sync_finds_the_disk_full_leaves_no_unfinished_block() {
    let mut world = World::new(1, Mode { direct: false, ..STEADY });
    let mut syncs = 0;
    for number in 0..3 {
        let handles: Vec<u64> = (0..4).map(|at| world.dump_of(block(number), &[at])).collect();
        run(&mut world, |op| match &op.kind {
            OpKind::Sync { .. } => {
                syncs += 1;
                Err(Failure::errno(Step::Fsync, libc::ENOSPC))
            }
            _ => good(op),
        });
        assert!(handles.iter().any(|h| world.jobs[h].error == Some(Status::NoSpace)));
    }
    assert_eq!(syncs, 3);
    assert_eq!(world.core.blocks.len(), 0, "unfinished blocks without a byte that counts");
}

/// A load whose op noted a shortage and then went on to something else that hangs (`place`'s root,
/// a close): nothing of the path's ever ends it.
#[test]
fn r22_an_op_that_does_not_come_back_once_it_was_given_up_is_the_path_s_fault() {
    let mut world = World::new(1, STEADY);
    world.core.lanes[0].marker_seen = Some(world.clock.now());
    world.submit_whole(TaskKind::Load);
    let op = world.with(|core, now, fx| core.pull(0, Want::Any, now, fx)).unwrap();
    op.gate.set_local(libc::EMFILE);
    let mut looks = 0;
    // Whoever waits for a resource looks each 50 ms whether he was given up.
    while world.clock.now() < crate::clock::Time(Duration::from_secs(60)) {
        let next = world.core.armed.map_or(Duration::from_secs(1), |at| {
            at.since(world.clock.now()).max(Duration::from_millis(1))
        });
        world.clock.advance(next);
        world.with(Core::judge);
        looks += 1;
    }
    let (hung, in_flight) = (world.core.snapshot().abandoned, world.core.snapshot().in_flight);
    world.with(|core, now, fx| core.complete(op.tag, Ok(Done::Unit), now, fx));
    assert_eq!((hung, in_flight), (1, 0), "its slot is never freed; the judge woke {looks} times");
}

/// R22, R32: a shortage that is waited out inside the gate is this host's too.
#[test]
fn r22_a_shortage_of_borrowed_io_is_not_the_path_s_fault() {
    let mut world = World::new(1, Mode { isolated: false, ..STEADY });
    world.core.lanes[0].marker_seen = Some(world.clock.now());
    world.submit_whole(TaskKind::Load);
    let op = world.with(|core, now, fx| core.pull(0, Want::Any, now, fx)).unwrap();
    assert!(op.gate.enter());
    op.gate.set_local(libc::ENOMEM);
    world.clock.advance(STEADY.limit);
    world.with(Core::judge);
    let failures = world.core.health.backends()[0].failures();
    let _ended = op.gate.leave();
    let short = Err(Failure::errno(Step::Read, libc::ENOMEM));
    world.with(|core, now, fx| core.complete(op.tag, short, now, fx));
    assert_eq!(failures, 0);
}
