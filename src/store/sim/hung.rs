//! Operations that hang for good on a path which itself works again (R36): what was mounted there
//! was unmounted lazily, and something else is mounted.

use std::time::Duration;

use super::world::{Mode, Path, World};
use crate::engine::{Tag, Want};
use crate::error::Status;
use crate::health::state::BackendState;
use crate::store::chain::Class;
use crate::store::core::Core;
use crate::store::effects::Effects;
use crate::store::types::{BlockId, Setting, TaskKind};

const ONE_PATH: Mode = Mode {
    paths: 1,
    direct: true,
    hangs: true,
    limits: true,
    isolated: true,
    sync: true,
    limit: Duration::from_millis(900),
};
/// More than twice the four transfers that a path of the simulation may have in flight.
const MANY: u8 = 10;

impl World {
    fn state(&self) -> BackendState {
        self.core.health.backends()[0].state()
    }

    fn hung(&self) -> usize {
        usize::try_from(self.core.snapshot().abandoned).unwrap()
    }

    /// Everything that is asked of the path now hangs, for good: removals of `count` blocks.
    fn hang(&mut self, count: u8) {
        self.paths[0] = Path::Hang;
        let ids: Vec<BlockId> =
            (0..count).map(|at| BlockId(std::array::from_fn(|_| 100 + at))).collect();
        drop(self.with(|core, now, fx| core.begin_remove(&ids, now, fx)).unwrap());
        while self.pull_some(0, Want::Any) {}
        while self.core.snapshot().in_flight > 0 {
            self.clock.advance(Duration::from_millis(1));
            self.with(Core::judge);
        }
        self.paths[0] = Path::Healthy;
    }

    fn dump_now(&mut self) -> Option<Status> {
        self.run_now(TaskKind::Dump)
    }

    /// A task of a block, from its beginning to its end; what hung before goes on hanging.
    fn run_now(&mut self, kind: TaskKind) -> Option<Status> {
        let before: Vec<Tag> = self.running.keys().copied().collect();
        let handle = self.submit_whole(kind);
        while self.jobs[&handle].ended.is_none() {
            while self.pull_some(0, Want::Any) {}
            let tags = self.running.keys().filter(|tag| !before.contains(tag));
            let tags: Vec<Tag> = tags.copied().collect();
            assert!(!tags.is_empty(), "nobody does anything for the task");
            tags.into_iter().for_each(|tag| self.proceed_with(tag));
        }
        self.jobs[&handle].error
    }

    /// What the log was told of with this id, since a good probe more.
    fn told_by_a_probe(&mut self, id: &str) -> usize {
        let mut fx = Effects::default();
        let now = self.clock.now();
        self.core.probed(0, Ok(None), now, &mut fx);
        fx.messages.iter().filter(|message| message.id == id).count()
    }

    /// As many good probes as bring a path back, if anything does.
    fn probe_for_long(&mut self) {
        for _ in 0..self.core.rules.window {
            self.probe();
        }
    }

    /// A load fails before anything is begun.
    fn submit_fails(&mut self) -> bool {
        let handle = self.submit_whole(TaskKind::Load);
        self.jobs[&handle].error.is_some()
    }

    fn let_all_return(&mut self) {
        while let Some(tag) = self.running.keys().min().copied() {
            self.proceed_with(tag);
        }
    }
}

#[test]
fn r36_a_path_that_came_back_serves_whatever_hung_before() {
    let mut world = World::new(3, ONE_PATH);
    world.hang(MANY);
    assert_eq!((world.state(), world.hung()), (BackendState::Excluded, usize::from(MANY)));
    world.probe_for_long();
    assert_eq!(world.state(), BackendState::Available);
    for _ in 0..20 {
        assert_eq!(world.dump_now(), None);
        assert_eq!(world.state(), BackendState::Available);
    }
    assert_eq!(world.hung(), usize::from(MANY), "they are told as long as they hang");
    world.let_all_return();
    world.finish();
}

#[test]
fn r36_a_path_on_which_more_and_more_hangs_stays_out_in_the_end() {
    let mut world = World::new(4, ONE_PATH);
    let mut times = 0;
    while world.state() == BackendState::Available {
        times += 1;
        world.hang(MANY);
        assert_eq!(world.state(), BackendState::Excluded);
        world.probe_for_long();
    }
    // Twice what one time of availability may leave: eight, and what was in flight beside them.
    let (most, in_flight) = (2 * (8 + 4 + 4 + 32 + 2 + 1), 4 + 4 + 32 + 2 + 1);
    assert!(times > 2, "the first times it came back");
    assert!(world.hung() > most && world.hung() <= most + in_flight, "{}", world.hung());
    assert!(world.core.lanes[0].told_clogged);
    assert_eq!(world.told_by_a_probe("KV2007"), 0, "it is told once");
    let last = world.core.health.backends()[0].last_failure().unwrap();
    assert_eq!(
        last.text,
        format!("open: too many abandoned: {} operations hang on this backend", world.hung())
    );
    // An operator can force it in, and then it fails at once.
    world.with(|core, now, fx| core.set_backend(0, Setting::In, now, fx));
    assert!(world.submit_fails());
    world.with(|core, now, fx| core.set_backend(0, Setting::Auto, now, fx));
    world.let_all_return();
    world.probe_for_long();
    assert_eq!((world.hung(), world.state()), (0, BackendState::Available));
    assert_eq!(world.dump_now(), None);
    world.finish();
}

#[test]
fn r36_late_returns_of_before_take_nothing_from_what_hangs_now() {
    let mut world = World::new(5, ONE_PATH);
    world.hang(MANY);
    world.probe_for_long();
    let before: Vec<Tag> = world.running.keys().copied().collect();
    world.hang(MANY);
    before.into_iter().for_each(|tag| world.proceed_with(tag));
    assert_eq!(world.hung(), usize::from(MANY));
    world.with(|core, now, fx| core.set_backend(0, Setting::In, now, fx));
    assert_eq!(world.dump_now(), None, "an operator starts it afresh as well");
    world.with(|core, now, fx| core.set_backend(0, Setting::Auto, now, fx));
    world.let_all_return();
    world.finish();
}

#[test]
fn r36_an_operator_s_word_starts_a_path_afresh_that_is_in_already() {
    let mut world = World::new(6, ONE_PATH);
    world.with(|core, now, fx| core.set_backend(0, Setting::In, now, fx));
    world.hang(MANY);
    assert!(world.submit_fails(), "it is in, and more than eight hang");
    world.with(|core, now, fx| core.set_backend(0, Setting::In, now, fx));
    assert_eq!(world.dump_now(), None);
    world.with(|core, now, fx| core.set_backend(0, Setting::Auto, now, fx));
    world.let_all_return();
    world.finish();
}

/// Every place of the path is taken by I/O on the caller's memory, which hangs and is not given up.
fn borrowed() -> World {
    let mut world = World::new(8, Mode { isolated: false, ..ONE_PATH });
    while world.core.lanes[0].in_flight(Class::Dump) < 4 {
        world.submit_whole(TaskKind::Dump);
        while world.pull_some(0, Want::Any) {}
        let tags: Vec<Tag> = world.running.keys().copied().collect();
        let opened = |world: &World, tag: &Tag| world.running[tag].inside;
        for tag in tags.into_iter().filter(|tag| !opened(&world, tag)).collect::<Vec<_>>() {
            world.proceed_with(tag);
        }
    }
    while world.running.values().any(|running| !running.inside) {
        while world.pull_some(0, Want::Any) {}
        let outside = world.running.iter().find(|(_, running)| !running.inside);
        let tag = *outside.unwrap().0;
        world.proceed_with(tag);
    }
    world
}

impl World {
    fn wait_out(&mut self) {
        for _ in 0..ONE_PATH.limit.as_millis() {
            self.clock.advance(Duration::from_millis(1));
            self.with(Core::judge);
        }
    }
}

#[test]
fn r36_borrowed_io_that_hangs_takes_no_place_of_a_path_that_came_back() {
    let mut world = borrowed();
    world.paths[0] = Path::Hang;
    world.wait_out();
    assert_eq!(world.state(), BackendState::Excluded);
    let stuck = world.running.len();
    world.paths[0] = Path::Healthy;
    world.probe_for_long();
    assert_eq!(world.run_now(TaskKind::Load), Some(Status::NotFound), "it is served");
    assert_eq!((world.state(), world.hung()), (BackendState::Available, stuck));
    world.let_all_return();
    assert_eq!(world.hung(), 0);
    world.finish();
}

#[test]
fn r28_borrowed_io_whose_task_is_over_has_its_limit_all_the_same() {
    let mut world = World::new(8, Mode { isolated: false, ..ONE_PATH });
    let handle = world.submit_whole(TaskKind::Dump);
    while world.running.values().all(|running| !running.inside) {
        world.clock.advance(Duration::from_millis(100));
        while world.pull_some(0, Want::Any) {}
        let tag = *world.running.keys().next().unwrap();
        world.proceed_with(tag);
    }
    world.paths[0] = Path::Hang;
    let limit = world.core.tasks.get_mut(handle).unwrap().deadline.unwrap();
    world.clock.advance(limit.since(world.clock.now()));
    world.with(Core::judge);
    assert!(world.jobs[&handle].ended.is_none(), "the kernel has its memory");
    assert_eq!(world.core.snapshot().in_flight, 1, "it began later than its task");
    world.wait_out();
    let failures = world.core.health.backends()[0].failures();
    assert_eq!((failures, world.core.snapshot().in_flight, world.hung()), (1, 0, 1));
    world.paths[0] = Path::Healthy;
    world.let_all_return();
    assert_eq!(world.hung(), 0);
    world.finish();
}
