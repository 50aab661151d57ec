//! The reserve of free space (R85): before a file is begun through a path, its file system is asked
//! what it has left. The answer holds a second; one that refused is asked again each time.

use std::time::Duration;

use super::core::Core;
use super::step::{Step, Verdict};
use crate::clock::Time;
use crate::engine::{Done, Outcome, Space};
use crate::error::{self, Cause, Failure};

/// How long an answer stands.
const FRESH: Duration = Duration::from_secs(1);

/// A part of a whole in percent.
#[expect(clippy::cast_precision_loss, reason = "a text and a comparison of shares")]
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Whether less than `reserve` percent is free: both figures in words.
fn short(space: Space, reserve: f64) -> Option<String> {
    let bytes = percent(space.available_bytes, space.bytes);
    // A file system that does not count inodes cannot run out of them.
    let inodes = (space.inodes > 0).then(|| percent(space.available_inodes, space.inodes));
    if bytes >= reserve && inodes.is_none_or(|inodes| inodes >= reserve) {
        return None;
    }
    let inodes = match inodes {
        None => "inodes are not counted".into(),
        Some(share) => {
            format!("{share:.2} % of its inodes ({} of {})", space.available_inodes, space.inodes)
        }
    };
    Some(format!(
        "the file system has {bytes:.2} % of its bytes free ({} of {}), and {inodes}; \
         reserve_free_percent is {reserve}",
        space.available_bytes, space.bytes
    ))
}

impl Core {
    /// Whether the file system must be asked before a file is begun.
    pub(super) fn room_needed(&self, lane: usize, now: Time) -> bool {
        let reserve = self.rules.reserve_free_percent;
        let known = self.lanes[lane].left.filter(|(at, _)| now.since(*at) < FRESH);
        reserve > 0.0 && known.is_none_or(|(_, space)| short(space, reserve).is_some())
    }

    /// What the answer means for the dump.
    pub(super) fn room_verdict(&mut self, lane: usize, outcome: Outcome, now: Time) -> Verdict {
        let space = match outcome {
            Ok(Done::Space(space)) => space,
            Ok(_) => return Verdict::Next(Step::Main),
            Err(failure) => return Verdict::Fail(failure),
        };
        self.lanes[lane].left = Some((now, space));
        match short(space, self.rules.reserve_free_percent) {
            None => Verdict::Next(Step::Main),
            Some(text) => {
                let cause = Cause::Reserve(text);
                Verdict::Fail(Failure { step: error::Step::Write, cause })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r85_bytes_and_inodes_and_what_is_not_counted() {
        let space = Space {
            bytes: 1000,
            available_bytes: 100,
            inodes: 50,
            available_inodes: 10,
            ..Space::default()
        };
        assert_eq!(short(space, 10.0), None);
        let text = short(space, 10.1).unwrap();
        assert!(text.contains("10.00 % of its bytes free (100 of 1000)"), "{text}");
        assert!(text.contains("20.00 % of its inodes (10 of 50)"), "{text}");
        let text = short(Space { available_inodes: 4, ..space }, 10.0).unwrap();
        assert!(text.contains("8.00 % of its inodes (4 of 50)"), "{text}");
        assert_eq!(short(Space { inodes: 0, available_inodes: 0, ..space }, 10.0), None);
        assert!(short(Space { bytes: 0, available_bytes: 0, ..space }, 1.0).is_some());
    }
}
