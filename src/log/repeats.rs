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
    /// That some were left out in this window was told without a message that passed.
    told: bool,
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
        let fresh = Repeat { window_start: now, passed: 0, left_out: 0, told: false, level };
        let repeat = self.ids.entry(id).or_insert(fresh);
        if now.since(repeat.window_start) >= Duration::from_secs(REPEAT_WINDOW_S) {
            repeat.window_start = now;
            repeat.passed = 0;
            repeat.told = false;
        }
        if repeat.passed >= REPEAT_BURST {
            repeat.level = if repeat.left_out == 0 { level } else { repeat.level.min(level) };
            repeat.left_out += 1;
            return Verdict::LeaveOut;
        }
        repeat.passed += 1;
        Verdict::Pass(std::mem::take(&mut repeat.left_out))
    }

    /// What was left out and not told yet, by id; told now. Once a window: whoever opens in vain
    /// again and again ends the log each time, and would hear of nothing but what was left out.
    pub fn take_left_out(&mut self) -> Vec<(Level, &'static str, u64)> {
        let open = self.ids.iter_mut().filter(|(_, repeat)| repeat.left_out > 0 && !repeat.told);
        open.map(|(id, repeat)| {
            repeat.told = true;
            (repeat.level, *id, std::mem::take(&mut repeat.left_out))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_told_once_a_window_and_lost_never() {
        let mut repeats = Repeats::new();
        let at = |s: u64| Time(Duration::from_secs(s));
        let many = |repeats: &mut Repeats, now| {
            (0..1000).map(|_| repeats.judge(Level::Error, "KV1002", now)).fold(
                0,
                |told, verdict| {
                    told + if let Verdict::Pass(count) = verdict { count + 1 } else { 0 }
                },
            )
        };
        assert_eq!(many(&mut repeats, at(0)), u64::from(REPEAT_BURST));
        let left = 1000 - u64::from(REPEAT_BURST);
        assert_eq!(repeats.take_left_out(), [(Level::Error, "KV1002", left)]);
        assert_eq!(repeats.judge(Level::Error, "KV1002", at(1)), Verdict::LeaveOut);
        assert_eq!(repeats.take_left_out(), []);
        let next = at(REPEAT_WINDOW_S);
        assert_eq!(repeats.judge(Level::Error, "KV1002", next), Verdict::Pass(1));
        assert_eq!(many(&mut repeats, next), u64::from(REPEAT_BURST) - 1);
        assert_eq!(repeats.take_left_out().len(), 1);
    }
}
