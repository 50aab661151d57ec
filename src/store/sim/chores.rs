//! What chores of the collector say about a path (R22, R84).

use std::time::Duration;

use super::world::{Mode, Path, World};
use crate::engine::{Done, OpKind, Outcome, Tag, Want};
use crate::error::{Cause, Failure, Step};
use crate::health::state::BackendState;
use crate::store::chore::Chore;
use crate::store::core::Core;
use crate::store::effects::Effects;
use crate::store::types::BlockId;

const LIMIT: Duration = Duration::from_millis(100);

fn world() -> World {
    let mut world = World::new(9, Mode { paths: 1, ..Mode::default() });
    world.paths[0] = Path::Hang;
    world
}

impl World {
    /// Begins a chore, and gives its first op.
    fn chore(&mut self, chore: Chore) -> Tag {
        let begun =
            self.with(|core, now, fx| core.begin_chores(vec![chore], Some(LIMIT), false, now, fx));
        drop(begun.unwrap());
        assert!(self.pull_some(0, Want::Any));
        self.running.keys().max().copied().unwrap()
    }

    fn times_out(&mut self, chore: Chore) {
        self.chore(chore);
        self.clock.advance(LIMIT);
        self.with(Core::judge);
    }

    fn complete(&mut self, tag: Tag, outcome: Outcome) {
        self.running.remove(&tag);
        self.with(|core, now, fx| core.complete(tag, outcome, now, fx));
    }

    /// Its first op fails, be it the marker's.
    fn begins_badly(&mut self, chore: Chore, failure: Failure) {
        let tag = self.chore(chore);
        self.complete(tag, Err(failure));
    }

    /// It fails itself: the marker is right, where it asks for that.
    fn fails(&mut self, chore: Chore, failure: Failure) {
        let mut tag = self.chore(chore);
        if matches!(self.running[&tag].op.kind, OpKind::ReadSmall { .. }) {
            let marker = self.storage.marker.clone();
            self.complete(tag, Ok(Done::Bytes(marker)));
            assert!(self.pull_some(0, Want::Any));
            tag = self.running.keys().max().copied().unwrap();
        }
        self.complete(tag, Err(failure));
    }

    fn failures(&self) -> usize {
        self.core.health.backends()[0].failures()
    }
}

fn cold(number: u8) -> Chore {
    Chore::RemoveCold { block: BlockId([number; 16]), mtime_ns: 0 }
}

fn listing() -> Chore {
    Chore::List { dir: "data".into(), filter: "" }
}

#[test]
fn r22_a_file_whose_removal_hangs_counts_once_and_another_one_as_well() {
    let mut world = world();
    for _ in 0..3 {
        world.times_out(cold(1));
        assert_eq!(world.failures(), 1, "one bad block");
    }
    world.times_out(cold(2));
    assert_eq!(world.core.health.backends()[0].state(), BackendState::Excluded);
}

#[test]
fn r84_each_listing_that_hangs_counts() {
    let mut world = world();
    world.times_out(listing());
    world.times_out(listing());
    assert_eq!(world.core.health.backends()[0].state(), BackendState::Excluded);
}

#[test]
fn r22_an_errno_of_a_chore_counts_never_and_a_marker_always() {
    let mut world = world();
    for number in 0..3 {
        world.fails(cold(number), Failure::errno(Step::Remove, libc::EIO));
        world.fails(
            Chore::RemoveFile(format!("{number}.tmp")),
            Failure::errno(Step::Remove, libc::EROFS),
        );
        world.fails(listing(), Failure::errno(Step::List, libc::EIO));
    }
    assert_eq!(world.failures(), 0);
    let claim = || Chore::Claim("lease".into());
    world.fails(claim(), Failure::errno(Step::Mkdir, libc::EIO));
    assert_eq!(world.failures(), 0);
    world.begins_badly(claim(), Failure::errno(Step::Read, libc::EIO));
    assert_eq!(world.failures(), 1, "its first step reads the marker");
    let cause = Cause::NotTheStorage("another".into());
    world.begins_badly(claim(), Failure { step: Step::Verify, cause });
    assert_eq!(world.core.health.backends()[0].state(), BackendState::Excluded);
}

#[test]
fn r29_a_late_errno_of_a_chore_counts_never() {
    let mut world = world();
    world.times_out(cold(1));
    world.times_out(cold(2));
    let failures = world.failures();
    let late: Vec<Tag> = world.running.keys().copied().collect();
    for tag in late {
        assert!(matches!(world.running[&tag].op.kind, OpKind::RemoveCold { .. }));
        world.complete(tag, Err(Failure::errno(Step::Remove, libc::EIO)));
    }
    assert_eq!(world.failures(), failures);
}

#[test]
fn r54_a_step_of_the_lease_is_let_finish_for_a_moment() {
    let mut world = world();
    world.chore(Chore::Claim("lease".into()));
    world.with(|core, now, fx| core.stop_chores(LIMIT / 2, now, fx));
    assert_eq!(world.core.chains.len(), 1, "it is not ended at once");
    assert_eq!(world.core.armed, Some(world.clock.now().plus(LIMIT / 2)));
    world.clock.advance(LIMIT / 2);
    world.with(Core::judge);
    assert_eq!((world.core.chains.len(), world.core.snapshot().abandoned), (0, 1));
}

#[test]
fn what_can_wait_wakes_no_more_workers_than_may_run() {
    let mut world = world();
    let chores = (0..64).map(cold).collect();
    let mut fx = Effects::default();
    let now = world.clock.now();
    let begun = world.core.begin_chores(chores, Some(LIMIT), false, now, &mut fx);
    drop(begun.unwrap());
    assert_eq!(fx.wake_metadata, [(0, world.core.lanes[0].idle_max())]);
}

#[test]
fn what_can_wait_is_told_of_when_a_slot_is_free_again() {
    let mut world = world();
    let begun =
        world.with(|core, now, fx| core.begin_chores(vec![cold(1), cold(2)], None, false, now, fx));
    drop(begun.unwrap());
    let op = world.with(|core, now, fx| core.pull(0, Want::Metadata, now, fx)).unwrap();
    let mut fx = Effects::default();
    let now = world.clock.now();
    world.core.complete(op.tag, Ok(Done::Unit), now, &mut fx);
    assert_eq!(fx.wake_metadata, [(0, 1)]);
}
