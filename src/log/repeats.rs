//! Which messages pass and which are left out because they repeat: pure arithmetic on moments.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Level, REPEAT_BURST, REPEAT_WINDOW_S};
use crate::clock::Time;

/// The messages of one id.
struct Repeat {
    window_start: Time,
    passed: u32,
    left_out: u64,
    /// The most important level among those that were left out.
    level: Level,
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes; so many of its id were left out since the last one that passed.
    Pass(u64),
    /// It is left out.
    LeaveOut,
}

/// One entry for each id that was seen. Ids are literals of this library, so there are few.
pub struct Repeats {
    ids: BTreeMap<&'static str, Repeat>,
}

impl Repeats {
    /// Nothing was seen yet.
    pub const fn new() -> Repeats {
        Repeats { ids: BTreeMap::new() }
    }

    /// Judges a message.
    pub fn judge(&mut self, level: Level, id: &'static str, now: Time) -> Verdict {
        let fresh = Repeat { window_start: now, passed: 0, left_out: 0, level };
        let repeat = self.ids.entry(id).or_insert(fresh);
        if now.since(repeat.window_start) >= Duration::from_secs(REPEAT_WINDOW_S) {
            repeat.window_start = now;
            repeat.passed = 0;
        }
        if repeat.passed >= REPEAT_BURST {
            repeat.level = if repeat.left_out == 0 { level } else { repeat.level.min(level) };
            repeat.left_out += 1;
            return Verdict::LeaveOut;
        }
        repeat.passed += 1;
        Verdict::Pass(std::mem::take(&mut repeat.left_out))
    }

    /// What was left out and not told yet, by id; told now.
    pub fn take_left_out(&mut self) -> Vec<(Level, &'static str, u64)> {
        let open = self.ids.iter_mut().filter(|(_, repeat)| repeat.left_out > 0);
        open.map(|(id, repeat)| (repeat.level, *id, std::mem::take(&mut repeat.left_out))).collect()
    }
}
