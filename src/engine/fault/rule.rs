//! The rules of injected faults, and the words they are written in.
//!
//! ```text
//! fail  OP ERRNO [filters]      the op ends with this errno and does nothing
//! delay OP MS    [filters]      the op begins so much later
//! hang  OP       [filters]      the op begins when it is released, or never
//! short OP       [filters]      read: the file is too short; write: no progress
//! flip  OP       [filters]      read: a byte of memory, write: a byte of the file, is inverted
//! ```
//!
//! `OP` is `open`, `read`, `write`, `rename`, `fsync`, `getattr`, `unlink`, `mkdir`, `readdir`,
//! `setattr` or `any`; an op that opens and then does something else matches both words. Filters:
//! `path=TEXT` (a part of the path), `after=N` (the first N matches pass), `count=N` (so many hits,
//! then spent), `prob=P` with `seed=N`. These are the words of faultfs (`ctest/faultfs/README.md`),
//! for what both have; a rule of faultfs has them in another order, a pattern for the path, and
//! hits requests of a file system, of which one op here may make several.

use crate::engine::{Op, OpKind};
use crate::error::Step;

/// What a rule does to an op that it hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Ends it with an errno.
    Fail(i32),
    /// Lets it begin so many milliseconds later.
    Delay(u64),
    /// Keeps it until it is released.
    Hang,
    /// Moves fewer bytes than asked.
    Short,
    /// Inverts one byte of what was moved.
    Flip,
}

/// Which ops a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Any,
    Step(Step),
}

/// One rule with its counters.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    action: Action,
    word: Word,
    path: Option<Vec<u8>>,
    after: u64,
    count: Option<u64>,
    prob: f64,
    random: u64,
    matched: u64,
    hits: u64,
}

const WORDS: [(&str, Step); 10] = [
    ("open", Step::Open),
    ("read", Step::Read),
    ("write", Step::Write),
    ("rename", Step::Rename),
    ("fsync", Step::Fsync),
    ("getattr", Step::Stat),
    ("unlink", Step::Remove),
    ("mkdir", Step::Mkdir),
    ("readdir", Step::List),
    ("setattr", Step::Touch),
];

/// The largest errno that Linux has a name for.
const ERRNO_MAX: i32 = 133;

/// The number of `EIO`, or of `5`.
fn errno(word: &str) -> Option<i32> {
    let named = |errno: &i32| format!("{:?}", nix::errno::Errno::from_raw(*errno)) == word;
    match word.parse() {
        Ok(number) => Some(number).filter(|number| (1..=ERRNO_MAX).contains(number)),
        Err(_) => (1..=ERRNO_MAX).find(named),
    }
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key} must be a number, not {value:?}"))
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Rule, String> {
        let mut words = text.split_ascii_whitespace();
        let mut next = |what: &str| words.next().ok_or(format!("{text:?}: {what} is missing"));
        let (action, op) = (next("the action")?, next("the op")?);
        let action = match action {
            "fail" => {
                let word = next("the errno")?;
                Action::Fail(errno(word).ok_or(format!("{word:?} is no errno"))?)
            }
            "delay" => Action::Delay(number("the delay", next("the delay in ms")?)?),
            "hang" => Action::Hang,
            "short" => Action::Short,
            "flip" => Action::Flip,
            other => return Err(format!("{other:?} is no action")),
        };
        let known = WORDS.iter().find(|(word, _)| *word == op).map(|(_, step)| Word::Step(*step));
        let word = known.or((op == "any").then_some(Word::Any));
        let word = word.ok_or(format!("{op:?} is no op"))?;
        let moves = matches!(word, Word::Step(Step::Read | Step::Write));
        if matches!(action, Action::Short | Action::Flip) && !moves {
            return Err(format!("{text:?}: only read and write move bytes"));
        }
        let mut rule = Rule {
            action,
            word,
            path: None,
            after: 0,
            count: None,
            prob: 1.0,
            random: 1,
            matched: 0,
            hits: 0,
        };
        words.try_for_each(|filter| rule.filter(filter))?;
        Ok(rule)
    }

    fn filter(&mut self, filter: &str) -> Result<(), String> {
        let (key, value) = filter.split_once('=').ok_or(format!("{filter:?} is no filter"))?;
        match key {
            "path" => self.path = Some(value.as_bytes().to_vec()),
            "after" => self.after = number(key, value)?,
            "count" => self.count = Some(number(key, value)?),
            "prob" => self.prob = number(key, value)?,
            // Never 0, where this kind of random number would stay.
            "seed" => self.random = number::<u64>(key, value)?.wrapping_mul(2) | 1,
            other => return Err(format!("{other:?} is no filter")),
        }
        if (0.0..=1.0).contains(&self.prob) {
            Ok(())
        } else {
            Err(format!("prob must be 0 to 1, not {}", self.prob))
        }
    }

    /// What to do with `op`, if the rule hits it, and the step that fails then. Counts.
    pub fn strike(&mut self, op: &Op) -> Option<(Action, Step)> {
        let step = self.step_of(&op.kind)?;
        if !self.matches_path(&op.kind) || self.count.is_some_and(|count| self.hits >= count) {
            return None;
        }
        self.matched += 1;
        if self.matched <= self.after || !self.drawn() {
            return None;
        }
        self.hits += 1;
        Some((self.action, step))
    }

    /// How often it has hit.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// The step of the op that the rule's word names; `None`: the op has no such step.
    fn step_of(&self, kind: &OpKind) -> Option<Step> {
        let main = match kind {
            OpKind::Read(_) | OpKind::ReadSmall { .. } => Step::Read,
            OpKind::Write(_) | OpKind::SetLength(..) => Step::Write,
            OpKind::Rename { .. } | OpKind::SetAside { .. } => Step::Rename,
            OpKind::Sync { .. } => Step::Fsync,
            OpKind::Stat { .. } | OpKind::StatMany(_) | OpKind::Space { .. } => Step::Stat,
            OpKind::Unlink { .. } | OpKind::RemoveCold { .. } | OpKind::RemoveDir { .. } => {
                Step::Remove
            }
            OpKind::MakeDir { .. } | OpKind::Claim { .. } => Step::Mkdir,
            OpKind::List { .. } | OpKind::Survey { .. } => Step::List,
            OpKind::Touch { .. } | OpKind::TouchMany(_) | OpKind::Stamp { .. } => Step::Touch,
        };
        // Only these move the caller's bytes.
        let transfer = matches!(kind, OpKind::Read(_) | OpKind::Write(_));
        if matches!(self.action, Action::Short | Action::Flip) && !transfer {
            return None;
        }
        let opens = matches!(main, Step::Read | Step::Write | Step::Fsync);
        match self.word {
            Word::Any => Some(main),
            Word::Step(step) if step == main => Some(main),
            Word::Step(Step::Open) if opens => Some(Step::Open),
            Word::Step(_) => None,
        }
    }

    fn matches_path(&self, kind: &OpKind) -> bool {
        let Some(part) = &self.path else { return true };
        let contains = |path: &std::ffi::CString| {
            part.is_empty() || path.to_bytes().windows(part.len()).any(|window| window == part)
        };
        match kind {
            OpKind::Read(transfer) | OpKind::Write(transfer) => contains(&transfer.path),
            OpKind::Rename { from, to, .. } | OpKind::SetAside { from, to, .. } => {
                contains(from) || contains(to)
            }
            OpKind::StatMany(many) | OpKind::TouchMany(many) => many.paths.iter().any(contains),
            OpKind::Sync { path, .. }
            | OpKind::SetLength(path, _)
            | OpKind::Stat { path }
            | OpKind::Unlink { path }
            | OpKind::MakeDir { path, .. }
            | OpKind::ReadSmall { path }
            | OpKind::List { path, .. }
            | OpKind::Touch { path }
            | OpKind::Survey { path, .. }
            | OpKind::Claim { path, .. }
            | OpKind::RemoveDir { path }
            | OpKind::Stamp { path, .. }
            | OpKind::RemoveCold { path, .. }
            | OpKind::Space { path } => contains(path),
        }
    }

    /// One draw of the rule's own random numbers (xorshift): the same seed gives the same faults.
    fn drawn(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // The upper 53 bits are what a double holds exactly.
        let upper = self.random >> 11;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let draw = upper as f64 / (1_u64 << 53) as f64;
        draw < self.prob
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::engine::{Gate, Tag};
    use std::ffi::CString;
    use std::sync::Arc;
    use std::time::Duration;

    fn stat(path: &str) -> Op {
        Op {
            tag: Tag(1),
            kind: OpKind::Stat { path: CString::new(path).unwrap() },
            gate: Arc::new(Gate::new(Clock::monotonic())),
            local_limit: Duration::ZERO,
        }
    }

    #[test]
    fn a_rule_hits_what_its_filters_say() {
        let mut rule = Rule::parse("fail getattr EIO path=abc after=1 count=2").unwrap();
        let strikes: Vec<bool> = ["x/abc", "x", "abc/1", "2abc2", "abc"]
            .iter()
            .map(|path| rule.strike(&stat(path)).is_some())
            .collect();
        assert_eq!(strikes, [false, false, true, true, false]);
        assert_eq!(rule.hits(), 2);
        let mut other = Rule::parse("fail write EIO").unwrap();
        assert_eq!(other.strike(&stat("abc")), None);
        let mut any = Rule::parse("fail any 28").unwrap();
        assert_eq!(any.strike(&stat("abc")), Some((Action::Fail(libc::ENOSPC), Step::Stat)));
    }

    #[test]
    fn a_seed_gives_the_same_faults_again_and_a_probability_its_share() {
        let run = |text: &str| {
            let mut rule = Rule::parse(text).unwrap();
            (0..1000).map(|_| rule.strike(&stat("x")).is_some()).collect::<Vec<_>>()
        };
        let hits = run("hang getattr prob=0.3 seed=7");
        assert_eq!(hits, run("hang getattr prob=0.3 seed=7"));
        assert_ne!(hits, run("hang getattr prob=0.3 seed=8"));
        let share = hits.iter().filter(|hit| **hit).count();
        assert!((200..400).contains(&share), "{share}");
        assert!(run("hang getattr prob=0").iter().all(|hit| !hit));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "fail",
            "fail read",
            "fail read EWHAT",
            "fail read 0",
            "crash read",
            "hang walk",
            "delay read soon",
            "short getattr",
            "fail stat EIO",
            "hang list",
            "hang touch",
            "flip any",
            "hang read prob=2",
            "hang read path",
            "hang read chance=1",
            "hang read colour=red",
            "hang read count=-1",
        ] {
            assert!(Rule::parse(text).is_err(), "{text:?}");
        }
    }
}
