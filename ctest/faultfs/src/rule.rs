//! Fault rules: which calls, when, and what happens to them. Pure arithmetic; the list is
//! `gate.rs`'s.

use std::time::Duration;

use nix::errno::Errno;

use crate::op::{Call, Op, OpSet, glob};

/// The highest errno of Linux.
const ERRNO_LAST: i32 = 133;

/// What happens to a call that a rule hits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// It ends with this errno and is not run.
    Fail(Errno),
    /// It runs that much later.
    Delay(Duration),
    /// It waits until it is released.
    Hang,
    /// It reads or writes at most so many bytes.
    Short(usize),
    /// One byte of the data is flipped.
    Flip,
    /// It is answered as the first time.
    Remember,
}

/// Which of the calls that match are hit.
#[derive(Debug, Clone, Default)]
struct When {
    after: u64,
    count: Option<u64>,
    /// In millionths, with the state of the generator.
    probability: Option<(u64, u64)>,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The number by which the caller names it.
    pub id: u64,
    /// How many calls it has hit.
    pub fired: u64,
    ops: OpSet,
    pattern: String,
    when: When,
    action: Action,
    seen: u64,
}

/// What all rules together decide for one call: first the delay, then the hang, then the rest.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// The sum of all delays.
    pub delay: Duration,
    /// The rule that makes it hang.
    pub hang: Option<u64>,
    /// The errno that it ends with.
    pub fail: Option<Errno>,
    /// What is done to its data.
    pub tweak: Tweak,
}

/// What is done to the data of a read or write, or to the answer about a name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tweak {
    /// At most so many bytes.
    pub short: Option<usize>,
    /// Flip one byte.
    pub flip: bool,
    /// Answer from memory.
    pub remember: bool,
}

impl Rule {
    /// Reads `OP PATTERN WHEN ACTION`.
    pub fn parse(id: u64, words: &[&str]) -> Result<Self, String> {
        let [ops, pattern, rest @ ..] = words else {
            return Err("rule add OP PATTERN WHEN ACTION".to_owned());
        };
        let ops = OpSet::parse(ops)?;
        let conditions = rest.iter().take_while(|word| word.contains('=')).count();
        let (when, action) = match rest {
            ["always", action @ ..] => (When::default(), action),
            _ if conditions > 0 => (When::parse(&rest[..conditions])?, &rest[conditions..]),
            _ => return Err("WHEN is always, count=N, after=N, prob=P, seed=S".to_owned()),
        };
        let action = Action::parse(action)?;
        let data = ops.has(Op::Read) || ops.has(Op::Write);
        if !data && matches!(action, Action::Short(_) | Action::Flip) {
            return Err("short and flip are for read and write".to_owned());
        }
        if action == Action::Remember && !(ops.has(Op::Lookup) || ops.has(Op::Getattr)) {
            return Err("remember is for lookup and getattr".to_owned());
        }
        Ok(Self { id, fired: 0, ops, pattern: (*pattern).to_owned(), when, action, seen: 0 })
    }

    /// Counts a call and adds to `plan` what this rule does to it.
    pub fn apply(&mut self, call: &Call, plan: &mut Plan) {
        if !self.ops.matches(call) || !self.names(call) {
            return;
        }
        let data = matches!(call.op, Op::Read | Op::Write);
        if !data && matches!(self.action, Action::Short(_) | Action::Flip) {
            return;
        }
        self.seen += 1;
        if !self.when.hits(self.seen, self.fired) {
            return;
        }
        self.fired += 1;
        match self.action {
            Action::Delay(delay) => plan.delay += delay,
            Action::Hang => plan.hang = plan.hang.or(Some(self.id)),
            Action::Fail(errno) => plan.fail = plan.fail.or(Some(errno)),
            Action::Short(bytes) => plan.tweak.short = plan.tweak.short.or(Some(bytes)),
            Action::Flip => plan.tweak.flip = true,
            Action::Remember => plan.tweak.remember = true,
        }
    }

    fn names(&self, call: &Call) -> bool {
        glob(&self.pattern, &call.path)
            || call.path_to.as_deref().is_some_and(|path| glob(&self.pattern, path))
    }
}

impl When {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut when = Self::default();
        let mut seed = 0;
        let mut probability = None;
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "after" => when.after = number(key, value)?,
                "count" => when.count = Some(number(key, value)?),
                "seed" => seed = number(key, value)?,
                "prob" => probability = Some(millionths(value)?),
                _ => return Err(format!("unknown condition '{key}'")),
            }
        }
        when.probability = probability.map(|p| (p, seed));
        Ok(when)
    }

    fn hits(&mut self, seen: u64, fired: u64) -> bool {
        if seen <= self.after || self.count.is_some_and(|count| fired >= count) {
            return false;
        }
        match &mut self.probability {
            None => true,
            Some((probability, state)) => next_random(state) % 1_000_000 < *probability,
        }
    }
}

impl Action {
    fn parse(words: &[&str]) -> Result<Self, String> {
        match words {
            ["fail", name] => Ok(Self::Fail(parse_errno(name)?)),
            ["delay", ms] => Ok(Self::Delay(parse_ms(ms)?)),
            ["hang"] => Ok(Self::Hang),
            ["short", bytes] => Ok(Self::Short(number("short", bytes)?)),
            ["flip"] => Ok(Self::Flip),
            ["remember"] => Ok(Self::Remember),
            _ => Err("ACTION is fail ERRNO, delay MS, hang, short N, flip or remember".to_owned()),
        }
    }
}

/// Reads a name such as `EIO`.
pub fn parse_errno(name: &str) -> Result<Errno, String> {
    // The kernel takes ENOSYS for "this file system never will" and stops asking, in some places
    // with success: the rule would outlive its removal.
    if name == "ENOSYS" {
        return Err("ENOSYS would be remembered by the kernel; use EOPNOTSUPP".to_owned());
    }
    let name = if name == "ENOTSUP" { "EOPNOTSUPP" } else { name };
    (1..=ERRNO_LAST)
        .map(Errno::from_raw)
        .find(|errno| *errno != Errno::UnknownErrno && format!("{errno:?}") == name)
        .ok_or_else(|| format!("unknown errno '{name}'"))
}

/// Reads milliseconds, fractions allowed.
pub fn parse_ms(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok())
        .ok_or_else(|| format!("'{text}' is no number of milliseconds"))
}

/// Reads a whole number.
pub fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name}: '{text}' is no whole number in range"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1 million")]
fn millionths(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok((p * 1e6).round() as u64),
        _ => Err(format!("prob: '{text}' is not between 0 and 1")),
    }
}

/// `SplitMix64`: the same seed gives the same faults.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<Rule, String> {
        Rule::parse(1, &text.split_whitespace().collect::<Vec<_>>())
    }

    fn hits(text: &str, calls: usize) -> Vec<bool> {
        let mut rule = rule(text).unwrap();
        (0..calls)
            .map(|_| {
                let mut plan = Plan::default();
                rule.apply(&Call::new(Op::Read, "a".into()), &mut plan);
                plan.fail.is_some()
            })
            .collect()
    }

    #[test]
    fn conditions_choose_calls() {
        assert_eq!(hits("read * always fail EIO", 2), [true, true]);
        assert_eq!(hits("read * count=1 fail EIO", 3), [true, false, false]);
        assert_eq!(hits("any * after=1 count=1 fail EIO", 4), [false, true, false, false]);
        assert_eq!(hits("read b always fail EIO", 1), [false]);
        assert_eq!(hits("write * always fail EIO", 1), [false]);
    }

    #[test]
    fn a_seed_repeats_its_faults() {
        let first = hits("read * prob=0.5 seed=7 fail EIO", 1000);
        assert_eq!(first, hits("read * prob=0.5 seed=7 fail EIO", 1000));
        assert_ne!(first, hits("read * prob=0.5 seed=8 fail EIO", 1000));
        let count = first.iter().filter(|hit| **hit).count();
        assert!((400..600).contains(&count), "{count}");
        assert!(hits("read * prob=1 fail EIO", 100).iter().all(|hit| *hit));
        assert!(!hits("read * prob=0 fail EIO", 100).contains(&true));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "read",
            "read *",
            "read * always",
            "read * hang",
            "read * always fail EFOO",
            "read * always fail ENOSYS",
            "read * prob=2 hang",
            "read * often=1 hang",
            "read * count=x hang",
            "open * always flip",
            "open * always remember",
            "mkdir * always short 1",
            "read * always hang now",
            "read * always delay -1",
        ] {
            assert!(rule(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_name_of_an_errno_is_known() {
        assert_eq!(parse_errno("EIO"), Ok(Errno::EIO));
        assert_eq!(parse_errno("ESTALE"), Ok(Errno::ESTALE));
        assert_eq!(parse_errno("EDQUOT"), Ok(Errno::EDQUOT));
        assert_eq!(parse_errno("ENOTSUP"), Ok(Errno::EOPNOTSUPP));
    }
}
