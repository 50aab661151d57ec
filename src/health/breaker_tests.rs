//! A test of the breaker's thread; its arithmetic is tested beside it.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, unbounded};
use parking_lot::Mutex;

use super::breaker::{BREAKER_NAME, BreakerChange, BreakerParams, BreakerThread, Watched};
use super::observe::{LONG, assert_gone, last_core, own_task, status};
use super::window::Rule;
use crate::clock::Clock;

struct Guarded {
    healthy: Mutex<bool>,
    changes: Sender<BreakerChange>,
    tasks: Sender<String>,
}

impl Watched for Guarded {
    fn is_healthy(&self) -> bool {
        self.tasks.send(own_task()).unwrap();
        *self.healthy.lock()
    }

    fn changed(&self, change: BreakerChange) {
        self.changes.send(change).unwrap();
    }
}

#[test]
fn r60_opens_and_closes_by_its_window_and_sleeps_otherwise() {
    let (changes, changed) = unbounded();
    let (tasks, asked) = unbounded();
    let guarded = Arc::new(Guarded { healthy: Mutex::new(true), changes, tasks });
    let params = BreakerParams {
        interval: Duration::from_millis(20),
        timeout: LONG,
        rule: Rule { window: 4, threshold: 2 },
        cores: vec![last_core()],
        clock: Clock::monotonic(),
    };
    let watched: Arc<dyn Watched> = guarded.clone();
    let breaker = BreakerThread::start(params, watched).unwrap();
    let task = asked.recv_timeout(LONG).unwrap();
    assert_eq!(status(&task, "Name"), BREAKER_NAME);
    assert_eq!(status(&task, "Cpus_allowed_list"), last_core().to_string());
    assert!(asked.recv_timeout(Duration::from_millis(200)).is_err(), "settled: asleep");

    *guarded.healthy.lock() = false;
    breaker.wake();
    let opened = changed.recv_timeout(LONG).unwrap();
    assert_eq!(opened, BreakerChange { open: true, samples: 2, failures: 2 });
    assert!(breaker.is_open());
    while asked.recv_timeout(Duration::from_millis(300)).is_ok() {}
    let before = status(&task, "voluntary_ctxt_switches");
    assert!(asked.recv_timeout(Duration::from_millis(200)).is_err(), "open, unhealthy: asleep");
    assert_eq!(status(&task, "voluntary_ctxt_switches"), before);

    *guarded.healthy.lock() = true;
    breaker.wake();
    let closed = changed.recv_timeout(LONG).unwrap();
    assert_eq!(closed, BreakerChange { open: false, samples: 4, failures: 0 });
    assert!(!breaker.is_open());
    assert_eq!(breaker.join(Some(LONG)), 0);
    assert_gone(&task);
}
