//! Tests of the health state: by rule, and against a naive model with random outcomes.

use super::class::Operation;
use super::state::{
    BackendHealth, BackendState, Blame, Epoch, HealthParams, Outcome, Setting, Why,
};
use super::table::{HealthTable, TRANSITIONS_KEPT};
use super::window::{BlockKey, Rule};
use crate::clock::Time;
use crate::error::{Failure, Step};
use std::time::Duration;

fn blame(errno: i32) -> Blame {
    Blame::new(Operation::Load, &Failure::errno(Step::Read, errno))
}

fn params(window: usize, threshold: usize) -> HealthParams {
    HealthParams { rule: Rule { window, threshold }, one_bad_block: true }
}

fn fresh() -> BackendHealth {
    BackendHealth::available(3, params(8, 2), Time::ZERO)
}

fn failure(block: Option<u8>) -> Outcome {
    Outcome::Failure { block: block.map(|b| [b; 16]), blame: blame(libc::EIO) }
}

fn late(timed_out_at: Epoch) -> Outcome {
    Outcome::LateFailure { block: None, timed_out_at, blame: blame(libc::EIO) }
}

fn probe_failure() -> Outcome {
    Outcome::ProbeFailure { blame: blame(libc::ENOENT) }
}

fn ms(value: u64) -> Time {
    Time(Duration::from_millis(value))
}

fn exclude(health: &mut BackendHealth) {
    assert_eq!(health.record(failure(Some(1)), ms(1)), None);
    let transition = health.record(failure(Some(2)), ms(2)).expect("the threshold is reached");
    assert_eq!(transition.to, BackendState::Excluded);
}

#[test]
fn r21_excluded_at_the_threshold_and_back_after_a_clean_window() {
    let mut health = fresh();
    exclude(&mut health);
    assert_eq!(health.since(), ms(2));
    for _ in 0..7 {
        assert_eq!(health.record(Outcome::ProbeSuccess, ms(3)), None);
    }
    let back = health.record(Outcome::ProbeSuccess, ms(4)).expect("eight successes in a row");
    assert_eq!((back.from, back.to), (BackendState::Excluded, BackendState::Available));
    assert_eq!((back.backend, back.samples, back.failures, back.at), (3, 8, 0, ms(4)));
    assert_eq!(back.why, Why::Recovered);
    assert_eq!(health.samples(), 8, "the window is not cleared");
}

#[test]
fn r21_a_probe_failure_on_the_way_back_starts_again() {
    let mut health = fresh();
    exclude(&mut health);
    for _ in 0..7 {
        health.record(Outcome::ProbeSuccess, ms(3));
    }
    assert_eq!(health.record(probe_failure(), ms(3)), None);
    for _ in 0..7 {
        assert_eq!(health.record(Outcome::ProbeSuccess, ms(3)), None);
    }
    assert!(health.record(Outcome::ProbeSuccess, ms(3)).is_some());
    assert_eq!((health.counters().probes, health.counters().probe_failures), (16, 1));
}

#[test]
fn r22_successes_do_not_count_while_excluded_and_failures_do() {
    let mut health = fresh();
    exclude(&mut health);
    for _ in 0..20 {
        assert_eq!(health.record(Outcome::Success, ms(3)), None);
        assert_eq!(health.record(Outcome::LateSuccess, ms(3)), None);
    }
    assert_eq!((health.samples(), health.failures()), (2, 2));
    health.record(failure(Some(9)), ms(3));
    assert_eq!((health.samples(), health.failures()), (3, 3));
    assert_eq!(health.counters().late_successes, 20);
}

#[test]
fn r22_one_bad_block_does_not_exclude_and_the_scope_any_switches_that_off() {
    let mut health = fresh();
    for _ in 0..5 {
        assert_eq!(health.record(failure(Some(1)), ms(1)), None);
    }
    assert_eq!((health.failures(), health.counters().forgiven), (1, 4));
    assert_eq!(health.last_failure().and_then(|b| b.errno), Some(libc::EIO));
    assert!(health.record(failure(None), ms(1)).is_some(), "no block: always recorded");

    let any = HealthParams { one_bad_block: false, ..params(8, 2) };
    let mut health = BackendHealth::available(0, any, Time::ZERO);
    health.record(failure(Some(1)), ms(1));
    assert!(health.record(failure(Some(1)), ms(1)).is_some());
}

#[test]
fn r22_late_failures_and_probes_are_exempt_from_the_one_bad_block_rule() {
    let mut health = fresh();
    health.record(failure(Some(1)), ms(1));
    health.record(failure(Some(2)), ms(1));
    let epoch = health.epoch();
    let again =
        Outcome::LateFailure { block: Some([1; 16]), timed_out_at: epoch, blame: blame(libc::EIO) };
    health.record(again, ms(1));
    health.record(probe_failure(), ms(1));
    assert_eq!(health.failures(), 4);
}

#[test]
fn r22_a_block_counts_again_once_its_failure_has_left_the_window() {
    let mut health = BackendHealth::available(0, params(2, 2), Time::ZERO);
    health.record(failure(Some(1)), ms(1));
    health.record(Outcome::Success, ms(1));
    health.record(Outcome::Success, ms(1));
    assert_eq!(health.failures(), 0);
    health.record(failure(Some(1)), ms(1));
    assert_eq!((health.failures(), health.counters().forgiven), (1, 0));
}

#[test]
fn r29_a_late_failure_counts_only_in_the_exclusion_of_its_time_out() {
    let mut health = fresh();
    health.record(failure(Some(1)), ms(1));
    let first = health.epoch();
    assert_eq!(health.record(late(first), ms(1)), None);
    assert_eq!(health.failures(), 1, "available: only a counter");

    health.record(failure(Some(2)), ms(1));
    health.record(late(first), ms(1));
    assert_eq!(health.failures(), 3, "excluded since: it counts");

    for _ in 0..8 {
        health.record(Outcome::ProbeSuccess, ms(2));
    }
    assert_eq!(health.state(), BackendState::Available);
    exclude(&mut health);
    let failures = health.failures();
    health.record(late(first), ms(3));
    assert_eq!(health.failures(), failures, "available in between: only a counter");
    health.record(late(health.epoch()), ms(3));
    assert_eq!(health.failures(), failures + 1);
    let counters = health.counters();
    assert_eq!((counters.late_failures, counters.late_failures_recorded), (4, 2));
}

#[test]
fn r13_starts_excluded_with_an_empty_window_and_recovers_by_probes() {
    let mut health = BackendHealth::excluded(1, params(2, 1), ms(5), blame(libc::ENOTCONN));
    assert_eq!((health.state(), health.samples()), (BackendState::Excluded, 0));
    assert_eq!(health.last_failure().and_then(|b| b.errno), Some(libc::ENOTCONN));
    assert_eq!(health.record(Outcome::ProbeSuccess, ms(6)), None);
    assert!(health.record(Outcome::ProbeSuccess, ms(7)).is_some());
}

#[test]
fn r56_an_operator_takes_out_forces_in_and_gives_back() {
    let mut health = fresh();
    let out = health.set(Setting::Out, ms(1)).expect("it was available");
    assert_eq!((out.to, out.why), (BackendState::Out, Why::Operator(Setting::Out)));
    assert_eq!(health.set(Setting::Out, ms(1)), None);
    assert_eq!(health.record(Outcome::Success, ms(1)), None);
    assert_eq!(health.samples(), 0);
    exclude_hidden(&mut health);
    assert_eq!(health.state(), BackendState::Out);

    health.set(Setting::In, ms(2));
    assert_eq!(health.state(), BackendState::Available);
    let back = health.set(Setting::Auto, ms(3)).expect("the window says excluded");
    assert_eq!(back.to, BackendState::Excluded);

    health.set(Setting::In, ms(4));
    for _ in 0..8 {
        health.record(Outcome::Success, ms(4));
    }
    assert_eq!(health.set(Setting::Auto, ms(5)), None, "business cleaned the window");
    assert_eq!(health.state(), BackendState::Available);
}

fn exclude_hidden(health: &mut BackendHealth) {
    assert_eq!(health.record(failure(Some(1)), ms(1)), None);
    assert_eq!(health.record(failure(Some(2)), ms(1)), None);
}

#[test]
fn r25_a_transition_names_backend_states_counts_and_cause() {
    let mut health = fresh();
    health.record(failure(Some(1)), ms(1));
    let transition = health.record(failure(Some(2)), ms(2)).expect("excluded");
    assert_eq!(
        transition.describe("/mnt/a/"),
        "backend /mnt/a/: available -> excluded: 2 failures in 2 samples; \
         cause: load: read: errno 5 (EIO: I/O error)"
    );
    let operator = health.set(Setting::Out, ms(3)).expect("out");
    assert!(operator.describe("/mnt/a/").ends_with("cause: operator set it out"));
}

#[test]
fn r25_the_last_64_transitions_are_kept_and_the_mask_follows() {
    let backend = |index| BackendHealth::available(index, params(1, 1), Time::ZERO);
    let mut table = HealthTable::new((0..3).map(backend).collect());
    assert_eq!(table.available_mask(), 0b111);
    for round in 0..50 {
        assert!(table.record(1, failure(None), ms(round)).is_some());
        assert_eq!((table.available_mask(), table.excluded()), (0b101, vec![1]));
        assert!(table.record(1, Outcome::ProbeSuccess, ms(round)).is_some());
    }
    assert_eq!(table.transitions().len(), TRANSITIONS_KEPT);
    let times: Vec<Time> = table.transitions().map(|t| t.at).collect();
    assert!(times.is_sorted());
    assert_eq!((times[0], times[63]), (ms(18), ms(49)));
    table.set(2, Setting::Out, ms(60));
    assert_eq!((table.available_mask(), table.excluded()), (0b011, vec![]));
    assert_eq!(table.backends()[2].state(), BackendState::Out);
    assert_eq!(table.record(7, failure(None), ms(61)), None, "no such backend");
}

/// The rules of R20–R22 and R29 written down without any cleverness: the whole history is kept.
struct Naive {
    history: Vec<(bool, Option<BlockKey>)>,
    rule: Rule,
    excluded: bool,
    returns: Vec<usize>,
}

impl Naive {
    fn last(&self) -> &[(bool, Option<BlockKey>)] {
        let from = self.history.len().saturating_sub(self.rule.window);
        &self.history[from..]
    }

    fn failures(&self) -> usize {
        self.last().iter().filter(|(ok, _)| !ok).count()
    }

    fn push(&mut self, ok: bool, block: Option<BlockKey>, step: usize) {
        self.history.push((ok, block));
        let clean = self.history.len() >= self.rule.window && self.failures() == 0;
        if self.excluded && clean {
            self.excluded = false;
            self.returns.push(step);
        } else if !self.excluded && self.failures() >= self.rule.threshold {
            self.excluded = true;
        }
    }

    fn apply(&mut self, step: usize, kind: u64, block: BlockKey, timed_out_step: usize) {
        match kind {
            0 if !self.excluded => self.push(true, None, step),
            1 => {
                let known = self.last().iter().any(|(ok, b)| !ok && *b == Some(block));
                if !known {
                    self.push(false, Some(block), step);
                }
            }
            3 => {
                let returned = self.returns.iter().any(|at| *at > timed_out_step);
                if self.excluded && !returned {
                    self.push(false, Some(block), step);
                }
            }
            4 => self.push(true, None, step),
            5 => self.push(false, None, step),
            _ => {}
        }
    }
}

/// Numbers that repeat for a seed (an LCG; its high bits are good enough here).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

#[test]
fn r20_to_r29_agree_with_a_naive_model_for_random_outcomes() {
    let mut transitions = 0;
    for seed in 0..300 {
        let mut random = Random(seed);
        let window = 1 + usize::try_from(random.below(9)).expect("small");
        let threshold = 1 + usize::try_from(random.below(window as u64)).expect("small");
        let rule = Rule { window, threshold };
        let mut health = BackendHealth::available(0, params(window, threshold), Time::ZERO);
        let mut naive = Naive { history: vec![], rule, excluded: false, returns: vec![] };
        let mut time_outs = vec![(health.epoch(), 0)];
        // Long stretches of mostly good or mostly bad, or nothing would ever come back.
        let mut good = true;
        for step in 1..600 {
            if random.below(25) == 0 {
                good = !good;
            }
            let lucky = random.below(10) != 0;
            let kind = match (lucky == good, random.below(4)) {
                (true, 0) => 2,
                (true, 1) => 0,
                (true, _) => 4,
                (false, 0) => 5,
                (false, 1) => 3,
                (false, _) => 1,
            };
            let block = [u8::try_from(random.below(4)).expect("small"); 16];
            let pick = usize::try_from(random.below(time_outs.len() as u64)).expect("small");
            let (timed_out_at, timed_out_step) = time_outs[pick];
            let outcome = match kind {
                0 => Outcome::Success,
                1 => Outcome::Failure { block: Some(block), blame: blame(libc::EIO) },
                2 => Outcome::LateSuccess,
                3 => {
                    let block = Some(block);
                    Outcome::LateFailure { block, timed_out_at, blame: blame(libc::EIO) }
                }
                4 => Outcome::ProbeSuccess,
                _ => probe_failure(),
            };
            let was_excluded = naive.excluded;
            naive.apply(step, kind, block, timed_out_step);
            let transition = health.record(outcome, Time::ZERO);
            if kind == 1 {
                time_outs.push((health.epoch(), step));
            }
            let excluded = health.state() == BackendState::Excluded;
            assert_eq!(excluded, naive.excluded, "seed {seed}, step {step}");
            assert_eq!(transition.is_some(), was_excluded != excluded, "seed {seed} at {step}");
            transitions += u64::from(transition.is_some());
            let counts = (health.samples(), health.failures());
            let expected = (naive.last().len(), naive.failures());
            assert_eq!(counts, expected, "seed {seed}, step {step}");
        }
    }
    assert!(transitions > 5_000, "the outcomes hardly change anything: {transitions}");
}
