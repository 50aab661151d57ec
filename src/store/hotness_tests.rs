//! Hotness on the injected clock: what counts, what waits, what goes where (R64).

use std::collections::HashMap;

use super::*;
use crate::engine::{Op, Want};
use crate::error::Step as Word;
use crate::health::state::BackendState;
use crate::store::effects::Effects;
use crate::store::sim::world::{Mode, World};

const SECOND: Duration = Duration::from_secs(1);

fn block(number: u64) -> BlockId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    BlockId(id)
}

/// Takes everything that waits, as if it had been served at once.
fn serve(hotness: &mut Hotness, lanes: usize) -> usize {
    let taken: usize = (0..lanes).map(|lane| hotness.take(lane).len()).sum();
    hotness.served(taken);
    taken
}

#[test]
fn r64_a_block_counts_once_a_minute() {
    let mut hotness = Hotness::new(1);
    let start = Time(Duration::from_secs(5));
    assert_eq!(hotness.hit(block(1), start), Hit::Waits);
    assert_eq!(hotness.due, Some(start.plus(DELAY)));
    assert_eq!(hotness.hit(block(1), start), Hit::Recent);
    assert_eq!(hotness.take(0), [block(1)]);
    assert_eq!(hotness.due, None);
    hotness.served(1);
    for passed in [SECOND, 60 * SECOND, INTERVAL - Duration::from_nanos(1)] {
        assert_eq!(hotness.hit(block(1), start.plus(passed)), Hit::Recent, "{passed:?}");
    }
    assert_eq!(hotness.hit(block(1), start.plus(INTERVAL)), Hit::Waits);
    assert_eq!(hotness.take(0), [block(1)]);
}

#[test]
fn r64_the_id_of_zeros_is_a_block_like_any_other() {
    let mut hotness = Hotness::new(1);
    assert_eq!(hotness.hit(block(0), Time::ZERO), Hit::Waits);
    assert_eq!(hotness.hit(block(0), Time::ZERO), Hit::Recent);
}

#[test]
fn r64_a_full_list_goes_at_once() {
    let mut hotness = Hotness::new(1);
    for number in 1..BATCH as u64 {
        assert_eq!(hotness.hit(block(number), Time::ZERO), Hit::Waits);
    }
    assert_eq!(hotness.hit(block(0), Time::ZERO), Hit::Full);
    assert_eq!(hotness.take(0).len(), BATCH);
}

#[test]
fn r64_what_waits_is_bounded_and_what_was_left_out_counts_later() {
    let mut hotness = Hotness::new(2);
    for number in 0..MAX_WAITING as u64 {
        assert_ne!(hotness.hit(block(number), Time::ZERO), Hit::LeftOut);
    }
    let one_more = block(MAX_WAITING as u64);
    assert_eq!(hotness.hit(one_more, Time::ZERO), Hit::LeftOut);
    // Under way is not served.
    let taken = hotness.take(0).len() + hotness.take(1).len();
    assert_eq!(taken, MAX_WAITING);
    assert_eq!(hotness.hit(one_more, Time::ZERO), Hit::LeftOut);
    hotness.served(taken);
    assert_eq!(hotness.hit(one_more, Time::ZERO), Hit::Waits);
}

#[test]
fn r64_what_is_remembered_is_bounded_and_no_block_counts_twice_a_minute() {
    let mut hotness = Hotness::new(2);
    let mut counted: HashMap<u64, Time> = HashMap::new();
    let (mut now, mut left_out, mut random) = (Time::ZERO, 0_u64, 1_u64);
    for _ in 0..700_000 {
        now = now.plus(Duration::from_micros(200));
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let number = (random >> 33) % 400_000;
        match hotness.hit(block(number), now) {
            Hit::LeftOut => left_out += 1,
            Hit::Recent => {
                let last = counted.get(&number).expect("it was hit before");
                assert!(now.since(*last) < INTERVAL, "{number} was forgotten by nobody");
            }
            Hit::Waits | Hit::Full => {
                let last = counted.insert(number, now);
                let again = last.is_none_or(|last| now.since(last) >= INTERVAL);
                assert!(again, "{number} counted twice within a minute");
                serve(&mut hotness, 2);
            }
        }
    }
    let places: usize = hotness.parts.iter().map(Vec::len).sum();
    assert_eq!(places, SETS * PLACES);
    assert!(left_out > 100_000, "the table was never full: {left_out}");
}

/// A store of three paths in the role of lookups.
struct Rig {
    world: World,
}

impl Rig {
    fn new() -> Rig {
        let mut world = World::new(1, Mode { paths: 3, ..Mode::default() });
        world.core.rules.hot_on_lookup = true;
        Rig { world }
    }

    fn with<R>(&mut self, body: impl FnOnce(&mut Core, Time, &mut Effects) -> R) -> (R, Effects) {
        let mut fx = Effects::default();
        let result = body(&mut self.world.core, self.world.clock.now(), &mut fx);
        (result, fx)
    }

    fn hit(&mut self, id: BlockId) -> Effects {
        self.with(|core, now, fx| core.hit(id, now, fx)).1
    }

    fn pull(&mut self, lane: usize) -> Option<Op> {
        self.with(|core, now, fx| core.pull(lane, Want::Any, now, fx)).0
    }

    fn complete(&mut self, op: &Op, outcome: crate::engine::Outcome) {
        self.with(|core, now, fx| core.complete(op.tag, outcome, now, fx));
    }

    fn pass(&mut self, time: Duration) {
        self.world.clock.advance(time);
        self.with(Core::judge);
    }

    /// The paths of a list.
    fn paths(op: &Op) -> Vec<String> {
        let OpKind::TouchMany(list) = &op.kind else { panic!("{op:?}") };
        list.paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect()
    }

    fn failures(&self, lane: usize) -> usize {
        self.world.core.health.backends()[lane].failures()
    }
}

/// A block of this primary of three.
fn on(lane: usize, nth: usize) -> BlockId {
    (0..).map(block).filter(|id| routing::primary(id, 3) == lane).nth(nth).unwrap()
}

#[test]
fn r64_a_hit_wakes_nobody_and_arms_once_and_nothing_hot_arms_nothing() {
    let mut rig = Rig::new();
    assert_eq!(rig.with(Core::judge).0, None);
    let first = rig.hit(on(0, 0));
    assert!(first.wake.is_empty() && first.wake_metadata.is_empty());
    assert_eq!(first.arm, Some(Time::ZERO.plus(DELAY)));
    let second = rig.hit(on(1, 0));
    assert!(second.arm.is_none() && second.wake_metadata.is_empty());
    rig.world.clock.advance(DELAY);
    let (next, fx) = rig.with(Core::judge);
    assert_eq!(fx.wake_metadata, [(0, 1), (1, 1)]);
    let ops = [rig.pull(0).unwrap(), rig.pull(1).unwrap()];
    assert!(next.is_none_or(|next| next > rig.world.clock.now()));
    for op in &ops {
        rig.complete(op, Ok(Done::Touched(vec![Ok(())], None)));
    }
    assert_eq!(rig.with(Core::judge).0, None, "nothing is hot, nothing is armed");
    assert_eq!(rig.world.core.snapshot().hotness_refreshed, 2);
}

#[test]
fn r64_a_judge_that_comes_late_for_hotness_has_not_overslept() {
    let mut rig = Rig::new();
    rig.world.core.rules.lookup_limit = Some((60 * SECOND, 20 * SECOND));
    rig.with(|core, now, fx| core.begin_lookup(&[on(0, 0)], None, now, fx).unwrap());
    let _asked = rig.pull(0).unwrap();
    rig.hit(on(1, 0));
    let before = rig.world.core.armed;
    rig.pass(DELAY + Duration::from_millis(300));
    assert_eq!(rig.world.core.armed, before, "limits were moved");
}

#[test]
fn r64_r17_the_next_backend_refreshes_what_the_first_did_not() {
    let mut rig = Rig::new();
    for nth in 0..3 {
        rig.hit(on(1, nth));
    }
    rig.pass(DELAY);
    let op = rig.pull(1).unwrap();
    assert_eq!(Rig::paths(&op).len(), 3);
    let eio = Failure::errno(Word::Touch, libc::EIO);
    rig.complete(&op, Ok(Done::Touched(vec![Ok(())], Some(eio))));
    assert_eq!(rig.failures(1), 1, "EIO is the path's");
    let op = rig.pull(2).unwrap();
    let rest = Rig::paths(&op);
    assert!(rest.len() == 2 && rest.iter().all(|path| path.starts_with("/p2/")), "{rest:?}");
    rig.complete(&op, Ok(Done::Touched(vec![Ok(()); 2], None)));
    let stats = rig.world.core.snapshot();
    assert_eq!((stats.hotness_refreshed, stats.hotness_left_out), (3, 0));
    assert_eq!(rig.world.core.health.backends()[2].samples(), 0, "no success is recorded");
}

#[test]
fn r22_a_file_of_another_owner_says_nothing_about_the_path() {
    let mut rig = Rig::new();
    for round in 0..20 {
        rig.hit(on(0, round));
        rig.pass(DELAY);
        let op = rig.pull(0).unwrap();
        let errno = if round % 2 == 0 { libc::EPERM } else { libc::EACCES };
        rig.complete(&op, Ok(Done::Touched(vec![Err(errno)], None)));
    }
    assert_eq!(rig.failures(0), 0);
    assert_eq!(rig.world.core.health.backends()[0].state(), BackendState::Available);
    assert!(rig.world.core.is_quiet());
    let stats = rig.world.core.snapshot();
    assert_eq!((stats.hotness_refreshed, stats.hotness_left_out), (0, 20));
}

#[test]
fn r64_a_list_on_a_path_that_hangs_moves_on_after_the_limit_of_one_file() {
    let mut rig = Rig::new();
    rig.hit(on(0, 0));
    rig.hit(on(0, 1));
    rig.pass(DELAY);
    let op = rig.pull(0).unwrap();
    let OpKind::TouchMany(list) = &op.kind else { panic!() };
    let limit = rig.world.core.rules.metadata_limit.unwrap();
    // The second file begins late: its time runs from there.
    rig.pass(limit / 2);
    list.begin_file();
    rig.pass(limit / 2);
    assert!(rig.pull(1).is_none());
    rig.pass(limit / 2);
    assert_eq!(rig.failures(0), 1);
    assert_eq!(Rig::paths(&rig.pull(1).unwrap()).len(), 2, "nobody said that one was done");
    let late = Failure::errno(Word::Touch, libc::EIO);
    rig.complete(&op, Ok(Done::Touched(Vec::new(), Some(late))));
    assert_eq!(rig.world.core.snapshot().late_results, 1);
}

#[test]
fn r64_an_excluded_path_hands_its_lists_on() {
    let mut rig = Rig::new();
    rig.hit(on(0, 0));
    rig.pass(DELAY);
    rig.with(|core, now, fx| core.set_backend(0, crate::store::Setting::Out, now, fx));
    assert!(rig.pull(0).is_none());
    assert!(Rig::paths(&rig.pull(1).unwrap())[0].starts_with("/p1/"));
}

#[test]
fn r54_close_sends_off_what_waits_and_takes_no_more() {
    let mut rig = Rig::new();
    rig.hit(on(2, 0));
    rig.with(Core::begin_close);
    assert!(!rig.world.core.is_quiet());
    let op = rig.pull(2).unwrap();
    rig.complete(&op, Ok(Done::Touched(vec![Ok(())], None)));
    rig.hit(on(2, 1));
    assert!(rig.world.core.is_quiet() && rig.world.core.hotness.due.is_none());
}
