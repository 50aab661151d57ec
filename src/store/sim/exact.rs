//! Time limits to the millisecond, on the manual clock (R28): three paths that hang and 900 ms.

use std::collections::HashSet;
use std::time::Duration;

use super::world::{Mode, Path, Running, World};
use crate::clock::Time;
use crate::engine::{OpKind, Tag, Want};
use crate::error::Status;
use crate::store::core::Core;
use crate::store::task::Found;
use crate::store::types::TaskKind;

const LIMIT_MS: u64 = 900;
const MILLISECOND: Duration = Duration::from_millis(1);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A world of which every path hangs, the moment of submission, and the handle of its task.
fn hanging(kind: TaskKind) -> (World, Time, u64) {
    let mode = Mode { paths: 3, limit: ms(LIMIT_MS), ..Mode::default() };
    let mut world = World::new(7, mode);
    world.paths.fill(Path::Hang);
    let begun = world.clock.now();
    let handle = world.submit_whole(kind);
    (world, begun, handle)
}

impl World {
    /// Time goes on by a millisecond and the judge looks, as often as it asks to or more.
    fn millisecond(&mut self) {
        self.clock.advance(MILLISECOND);
        self.with(Core::judge);
    }

    /// The path on which the dump or load goes on, if it does now. Removals of files that were left
    /// behind begin, too.
    fn next_attempt(&mut self) -> Option<usize> {
        let known: HashSet<Tag> = self.running.keys().copied().collect();
        for lane in 0..self.paths.len() {
            while self.pull_some(lane, Want::Any) {}
        }
        let is_new = |(tag, run): &(&Tag, &Running)| {
            !known.contains(tag) && !matches!(run.op.kind, OpKind::Unlink { .. })
        };
        let new: Vec<usize> = self.running.iter().filter(is_new).map(|(_, run)| run.lane).collect();
        assert!(new.len() <= 1, "one attempt at a time: {new:?}");
        new.first().copied()
    }

    /// The path whose turn it is begins, and nobody else has anything to do.
    fn only_start(&mut self) -> usize {
        let lanes: Vec<usize> =
            (0..self.paths.len()).filter(|lane| self.pull_some(*lane, Want::Any)).collect();
        assert_eq!(lanes.len(), 1, "one attempt at a time: {lanes:?}");
        lanes[0]
    }
}

/// How long each attempt took, by the order in which they began, and what the task got.
fn attempts_of(kind: TaskKind) -> (Vec<u64>, Vec<usize>, u64, Status) {
    let (mut world, begun, handle) = hanging(kind);
    let mut lengths = Vec::new();
    let mut order = vec![world.only_start()];
    let mut started = begun;
    while lengths.len() < 3 {
        world.millisecond();
        let now = world.clock.now();
        assert!(now.since(begun) <= ms(LIMIT_MS), "the task is over its limit: {lengths:?}");
        let ended = world.jobs[&handle].ended.is_some();
        let next = world.next_attempt();
        if ended || next.is_some() {
            lengths.push(u64::try_from(now.since(started).as_millis()).unwrap());
            started = now;
        }
        order.extend(next);
    }
    let whole = u64::try_from(world.clock.now().since(begun).as_millis()).unwrap();
    (lengths, order, whole, world.jobs[&handle].error.unwrap())
}

#[test]
fn r28_three_paths_and_900_ms_make_attempts_of_exactly_300_ms() {
    for kind in [TaskKind::Load, TaskKind::Dump] {
        let (lengths, order, whole, status) = attempts_of(kind);
        assert_eq!(lengths, [300, 300, 300], "{kind:?}");
        assert_eq!(order[1], (order[0] + 1) % 3, "{kind:?}");
        assert_eq!(order[2], (order[0] + 2) % 3, "{kind:?}");
        assert_eq!(order.len(), 3, "{kind:?}: none is tried twice");
        assert_eq!(whole, LIMIT_MS, "{kind:?}");
        assert_eq!(status, Status::Timeout, "{kind:?}");
    }
}

#[test]
fn r28_waiting_in_the_queue_is_no_part_of_an_attempt() {
    let (mut world, begun, _) = hanging(TaskKind::Load);
    // Nobody takes it for a while: that is held against no path.
    for _ in 0..250 {
        world.millisecond();
    }
    let first = world.only_start();
    let started = world.clock.now();
    while !world.pull_some((first + 1) % 3, Want::Any) {
        world.millisecond();
        assert!(world.clock.now().since(started) <= ms(300), "an attempt over its limit");
    }
    assert_eq!(world.clock.now().since(started), ms(300));
    assert_eq!(world.clock.now().since(begun), ms(550));
}

#[test]
fn r28_an_attempt_cut_short_by_its_task_is_no_time_out() {
    let (mut world, _, handle) = hanging(TaskKind::Load);
    for _ in 0..700 {
        world.millisecond();
    }
    let lane = world.only_start();
    for _ in 0..200 {
        world.millisecond();
    }
    assert!(matches!(world.core.tasks.find(handle), Found::Unknown), "taken at its end");
    assert_eq!(world.jobs[&handle].error, Some(Status::Timeout));
    let failures = |world: &World| world.core.health.backends()[lane].failures();
    assert_eq!(failures(&world), 0, "200 ms of 300 prove nothing");
    // It is watched to its own limit, and is a time-out then.
    for _ in 0..99 {
        world.millisecond();
    }
    assert_eq!(failures(&world), 0);
    world.millisecond();
    assert_eq!(failures(&world), 1);
}
