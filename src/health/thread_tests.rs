//! Tests of the health threads: real threads and clocks, probes that do what the test says.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;

use super::executor::{Executor, NoResult, Unfinished, WORKER_NAME, WORKER_STACK_BYTES};
use super::observe::{LONG, assert_gone, last_core, own_task, status};
use super::recovery::{MONITOR_NAME, Monitor, MonitorParams, ProbeResult, Recovery};
use crate::clock::Clock;
use crate::error::{Cause, Failure, Step};

#[derive(Debug, PartialEq)]
enum Event {
    Asked(String),
    Probe(usize, String, Instant),
    Record(usize, ProbeResult, Instant),
}

/// A store whose probes pass, hang until the test sends a result, or panic.
struct Fake {
    excluded: Mutex<Vec<usize>>,
    /// What the next probes of a backend hang on, in order.
    hangs: Mutex<HashMap<usize, VecDeque<Receiver<ProbeResult>>>>,
    panics: Mutex<bool>,
    events: Sender<Event>,
}

impl Recovery for Fake {
    fn excluded(&self) -> Vec<usize> {
        self.events.send(Event::Asked(own_task())).unwrap();
        self.excluded.lock().clone()
    }

    fn probe(&self, backend: usize) -> ProbeResult {
        self.events.send(Event::Probe(backend, own_task(), Instant::now())).unwrap();
        assert!(!std::mem::take(&mut *self.panics.lock()), "as the test wants");
        let hang = self.hangs.lock().get_mut(&backend).and_then(VecDeque::pop_front);
        hang.map_or(Ok(None), |result| result.recv().unwrap())
    }

    fn record(&self, backend: usize, outcome: ProbeResult) {
        self.events.send(Event::Record(backend, outcome, Instant::now())).unwrap();
    }
}

struct Rig {
    fake: Arc<Fake>,
    events: Receiver<Event>,
    unfinished: Unfinished,
    monitor: Monitor,
}

impl Rig {
    fn start(excluded: &[usize], interval_ms: u64, timeout_ms: u64) -> Rig {
        Rig::start_with(excluded, interval_ms, timeout_ms, WORKER_STACK_BYTES)
    }

    fn start_with(excluded: &[usize], interval_ms: u64, timeout_ms: u64, stack: usize) -> Rig {
        let (send, events) = unbounded();
        let fake = Arc::new(Fake {
            excluded: Mutex::new(excluded.to_vec()),
            hangs: Mutex::default(),
            panics: Mutex::default(),
            events: send,
        });
        let unfinished = Unfinished::new(4);
        let clock = Clock::monotonic();
        let executor = Executor::new(clock.clone(), unfinished.clone(), stack);
        let params = MonitorParams {
            interval: Duration::from_millis(interval_ms),
            timeout: Duration::from_millis(timeout_ms),
            cores: vec![last_core()],
            clock,
            unfinished: unfinished.clone(),
        };
        let recovery: Arc<dyn Recovery> = fake.clone();
        let monitor = Monitor::start(params, executor, recovery).unwrap();
        Rig { fake, events, unfinished, monitor }
    }

    /// The next probe of `backend` hangs until something is sent here.
    fn hang(&self, backend: usize) -> Sender<ProbeResult> {
        let (send, receive) = bounded(1);
        self.fake.hangs.lock().entry(backend).or_default().push_back(receive);
        send
    }

    fn set_excluded(&self, excluded: &[usize]) {
        *self.fake.excluded.lock() = excluded.to_vec();
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(LONG).unwrap()
    }

    fn next_asked(&self) -> String {
        loop {
            if let Event::Asked(task) = self.next() {
                return task;
            }
        }
    }

    fn next_probe(&self) -> (usize, String, Instant) {
        loop {
            if let Event::Probe(backend, task, at) = self.next() {
                return (backend, task, at);
            }
        }
    }

    fn next_record(&self) -> (usize, ProbeResult, Instant) {
        loop {
            if let Event::Record(backend, outcome, at) = self.next() {
                return (backend, outcome, at);
            }
        }
    }
}

fn timed_out(limit_ms: u64) -> ProbeResult {
    Err(Failure { step: Step::Verify, cause: Cause::TimedOut(limit_ms) })
}

#[test]
fn r51_sleeps_without_waking_while_nothing_is_excluded() {
    let rig = Rig::start(&[], 20, 10);
    let task = rig.next_asked();
    // Let it get from its question to its sleep: a wake for nothing makes it ask once more.
    rig.monitor.wake();
    assert_eq!(rig.next_asked(), task);
    let asleep = || status(&task, "State").starts_with('S');
    let end = Instant::now() + LONG;
    while !asleep() {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
    let before = status(&task, "voluntary_ctxt_switches");
    assert!(rig.events.recv_timeout(Duration::from_millis(400)).is_err(), "20 intervals");
    assert_eq!(status(&task, "voluntary_ctxt_switches"), before);
    assert_eq!(status(&task, "Name"), MONITOR_NAME);
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
    assert_gone(&task);
}

#[test]
fn r51_first_round_one_interval_after_the_exclusion_then_each_interval_in_order() {
    let rig = Rig::start(&[], 150, 10_000);
    rig.next_asked();
    let excluded_at = Instant::now();
    rig.set_excluded(&[0, 2, 3]);
    rig.monitor.wake();
    for round in 1..=3 {
        let probes: Vec<_> = (0..3).map(|_| rig.next_probe()).collect();
        let order: Vec<usize> = probes.iter().map(|probe| probe.0).collect();
        assert_eq!(order, [0, 2, 3]);
        let since = probes[0].2 - excluded_at;
        assert!(since >= Duration::from_millis(150) * round, "round {round} after {since:?}");
    }
    rig.set_excluded(&[]);
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
}

#[test]
fn r52_one_named_thread_for_all_backends_that_inherits_its_cores() {
    let rig = Rig::start(&[0, 1], 20, 10_000);
    let monitor = rig.next_asked();
    let core = last_core().to_string();
    let (hold, seen) = (rig.hang(0), rig.next_probe());
    // It hangs in its probe, so that it can be looked at.
    for (task, name) in [(&monitor, MONITOR_NAME), (&seen.1, WORKER_NAME)] {
        assert_eq!(status(task, "Name"), name);
        assert_eq!(status(task, "Cpus_allowed_list"), core);
        let blocked = u64::from_str_radix(&status(task, "SigBlk"), 16).unwrap();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGSEGV] {
            assert_ne!(blocked & 1 << (signal - 1), 0, "R74: signal {signal}");
        }
    }
    hold.send(Ok(None)).unwrap();
    for backend in [1, 0, 1, 0] {
        let (found, task, _) = rig.next_probe();
        assert_eq!((found, &task), (backend, &seen.1), "the same thread, in order");
    }
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
    assert_gone(&monitor);
    assert_gone(&seen.1);
}

#[test]
fn r52_a_time_out_replaces_the_thread_and_its_late_result_changes_nothing() {
    let rig = Rig::start(&[1], 450, 400);
    let release = rig.hang(1);
    let (_, hung, _) = rig.next_probe();
    assert_eq!(rig.next_record().1, timed_out(400));
    assert_eq!((rig.unfinished.on(1), rig.unfinished.on(0)), (1, 0));
    // The same backend is probed on while its old probe hangs (so it can recover).
    for _ in 0..3 {
        let (backend, task, _) = rig.next_probe();
        assert_eq!(backend, 1);
        assert_ne!(task, hung);
        assert_eq!(rig.next_record().1, Ok(None));
    }
    release.send(Err(Failure::errno(Step::Read, libc::EIO))).unwrap();
    assert_gone(&hung);
    for _ in 0..2 {
        assert_eq!(rig.next_record().1, Ok(None), "the late failure is not recorded");
    }
    assert_eq!(rig.unfinished.total(), 0, "joined soon after it returned");
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
}

#[test]
fn r52_a_thread_that_returns_while_the_monitor_sleeps_is_joined() {
    let rig = Rig::start(&[0], 200, 100);
    let release = rig.hang(0);
    let (_, hung, _) = rig.next_probe();
    assert!(rig.next_record().1.is_err());
    rig.set_excluded(&[]);
    // Nothing is excluded: the monitor will only wake for the thread.
    release.send(Ok(None)).unwrap();
    assert_gone(&hung);
    let end = Instant::now() + LONG;
    while rig.unfinished.total() > 0 {
        assert!(Instant::now() < end, "not joined");
        std::thread::yield_now();
    }
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
}

#[test]
fn r52_no_number_of_hanging_threads_stops_a_probe() {
    let rig = Rig::start(&[], 30, 20);
    let mut tasks = Vec::new();
    // More than are looked at: probes go on while this thread waits for a core.
    let held: Vec<_> = (0..4_000).map(|_| rig.hang(0)).collect();
    rig.set_excluded(&[0]);
    rig.monitor.wake();
    for _ in 0..40 {
        tasks.push(rig.next_probe().1);
        assert_eq!(rig.next_record().1, timed_out(20));
    }
    tasks.sort();
    tasks.dedup();
    // A further probe may have been given up while this thread waited for a core.
    assert!(tasks.len() == 40 && rig.unfinished.on(0) >= 40);
    rig.monitor.stop();
    for release in &held {
        release.send(Ok(None)).unwrap();
    }
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
    assert_eq!(rig.unfinished.total(), 0);
    tasks.iter().for_each(|task| assert_gone(task));
}

#[test]
fn r51_only_what_is_excluded_when_the_round_begins() {
    // A busy machine may take its time between these steps: the probe must not be over meanwhile.
    let rig = Rig::start(&[0], 3_000, 2_900);
    let release = rig.hang(0);
    assert_eq!(rig.next_probe().0, 0);
    rig.set_excluded(&[0, 1]);
    rig.monitor.wake();
    release.send(Ok(None)).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match rig.next() {
            Event::Asked(_) => seen.push("asked".to_owned()),
            Event::Probe(backend, ..) => seen.push(format!("probe {backend}")),
            Event::Record(..) => {}
        }
    }
    // Asked at the end of the first round and at the beginning of the next; no probe in between.
    assert_eq!(seen, ["asked", "asked", "probe 0"]);
    assert_eq!(rig.next_probe().0, 1);
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
}

#[test]
fn r51_a_round_that_took_longer_is_followed_at_once() {
    let rig = Rig::start(&[0, 1], 1000, 900);
    let _held = [rig.hang(0), rig.hang(1)];
    assert_eq!((rig.next_record().0, rig.next_record().0), (0, 1));
    let end = Instant::now();
    let (backend, _, begin) = rig.next_probe();
    assert_eq!(backend, 0);
    let gap = begin.saturating_duration_since(end);
    assert!(gap < Duration::from_millis(800), "waited {gap:?} although it was late");
    drop(_held);
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
}

#[test]
fn r52_no_thread_is_no_outcome_and_the_next_round_tries_again() {
    let rig = Rig::start_with(&[0, 1], 30, 20, usize::MAX >> 8);
    let mut asked = 0;
    while asked < 6 {
        match rig.next() {
            Event::Asked(_) => asked += 1,
            other => panic!("{other:?} without a thread"),
        }
    }
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
}

#[test]
fn a_probe_that_panics_is_no_outcome_and_does_not_end_recovery() {
    let rig = Rig::start(&[0], 450, 400);
    *rig.fake.panics.lock() = true;
    let (_, dead, _) = rig.next_probe();
    let (_, task, _) = rig.next_probe();
    assert_ne!(task, dead);
    assert_eq!(rig.next_record().1, Ok(None));
    assert_gone(&dead);
    assert_eq!(rig.monitor.join(Some(LONG)), 0);
    assert_eq!(rig.unfinished.total(), 0);
}

#[test]
fn r54_join_with_a_limit_leaves_what_hangs_and_its_return_is_harmless() {
    let rig = Rig::start(&[0], 450, 400);
    let release = rig.hang(0);
    let (_, hung, _) = rig.next_probe();
    assert!(rig.next_record().1.is_err());
    let begin = Instant::now();
    assert_eq!(rig.monitor.join(Some(Duration::from_millis(500))), 1);
    assert!(begin.elapsed() < LONG / 2);
    assert_eq!(rig.monitor.join(None), 0, "joined already");
    let weak = Arc::downgrade(&rig.fake);
    drop(rig.monitor);
    drop(rig.fake);
    assert!(weak.upgrade().is_some(), "the hanging probe still holds the store");
    release.send(Ok(None)).unwrap();
    assert_gone(&hung);
    assert!(weak.upgrade().is_none());
}

#[test]
fn r54_join_waits_for_a_probe_that_runs() {
    let rig = Rig::start(&[0], 20_000, 19_000);
    // The first round is far away: stopping does not wait for it.
    let task = rig.next_asked();
    assert_eq!(rig.monitor.join(None), 0);
    assert_gone(&task);

    let rig = Rig::start(&[0], 50, 40);
    let release = rig.hang(0);
    let (_, hung, _) = rig.next_probe();
    let helper = std::thread::spawn(move || release.send(Ok(None)).unwrap());
    assert_eq!(rig.monitor.join(None), 0);
    helper.join().unwrap();
    assert_gone(&hung);
}

#[test]
fn an_executor_stops_when_told() {
    let unfinished = Unfinished::new(1);
    let clock = Clock::monotonic();
    let mut executor = Executor::new(clock.clone(), unfinished.clone(), WORKER_STACK_BYTES);
    let (stop, stopped) = bounded(0);
    let (release, held) = bounded::<()>(0);
    drop(stop);
    let result = executor.run(0, LONG, &stopped, move || held.recv());
    assert!(matches!(result, Err(NoResult::Stopped)), "{result:?}");
    assert_eq!(unfinished.on(0), 1);
    assert_eq!(executor.join(Some(clock.now().plus(Duration::from_millis(50)))), 1);
    drop(release);
}
