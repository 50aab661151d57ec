//! Whether one thread is the limit of its ring: it is on the CPU nearly all the time, since it
//! copies, or the kernel copies on its behalf (R31).

use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::posix::thread;

/// How many rounds are looked at together: the question costs a system call.
const ROUNDS: u32 = 32;
/// On the CPU for more than this percentage of the time: high.
const HIGH_PERCENT: u128 = 85;
/// For less than this: not high any more.
const LOW_PERCENT: u128 = 50;

/// See the module's text. Owned by the ring's thread.
#[derive(Debug)]
pub(super) struct Pressure {
    clock: Clock,
    rounds: u32,
    since: Time,
    used: Duration,
    high: bool,
}

impl Pressure {
    pub(super) fn new(clock: Clock) -> Pressure {
        let since = clock.now();
        Pressure { clock, rounds: 0, since, used: thread::cpu_time(), high: false }
    }

    pub(super) fn high(&self) -> bool {
        self.high
    }

    /// One round of the loop is over.
    pub(super) fn round(&mut self) {
        self.rounds += 1;
        if self.rounds < ROUNDS {
            return;
        }
        let (now, used) = (self.clock.now(), thread::cpu_time());
        let passed = now.since(self.since);
        self.high = judge(self.high, used.saturating_sub(self.used), passed);
        (self.rounds, self.since, self.used) = (0, now, used);
    }
}

fn judge(high: bool, used: Duration, passed: Duration) -> bool {
    let percent = used.as_nanos() * 100 / passed.as_nanos().max(1);
    percent > if high { LOW_PERCENT } else { HIGH_PERCENT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_late_and_falls_late() {
        let percent = |used| (Duration::from_micros(used), Duration::from_micros(100));
        let judged = |high, used| judge(high, percent(used).0, percent(used).1);
        assert!(!judged(false, 80) && judged(false, 90));
        assert!(judged(true, 60) && !judged(true, 40));
    }
}
