//! What was given up on one path and is still in the kernel (R36): how much of it there is, how
//! much of that is news, and when it is too much.
//!
//! A path that came back starts anew: what hung before its last exclusion says nothing about it (it
//! may hang for ever in a mount that was replaced since), and would exclude it again with its first
//! operation. But each such operation keeps a thread or a place in a ring, and a transfer a buffer,
//! so there is an end to it.
//!
//! Pure counts. Owned by the lane.

use crate::health::state::Epoch;

/// So many operations for each place of a transfer may hang until business I/O fails at once.
const PER_TRANSFER: usize = 2;
/// How often the most that one time of availability leaves hanging may hang altogether.
const TIMES: usize = 2;
/// This part of the transfers that find a buffer must still find one.
const BUFFERS_PART: usize = 8;

/// What one lane has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Transfers in flight.
    pub transfers: usize,
    /// Operations in flight, transfers included.
    pub operations: usize,
    /// Transfers that find a buffer, those that hang included.
    pub buffered: usize,
}

/// Why a path is not used although it may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clog {
    /// So many operations hang.
    Operations(usize),
    /// So many transfers hang, each with a buffer of the path's.
    Buffers(usize),
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Hung {
    total: usize,
    transfers: usize,
    /// Those given up in `epoch`, the last time of availability in which any was.
    recent: usize,
    epoch: Option<Epoch>,
}

impl Hung {
    /// An operation was given up in `epoch`.
    pub fn add(&mut self, is_transfer: bool, epoch: Epoch) {
        if self.epoch != Some(epoch) {
            (self.epoch, self.recent) = (Some(epoch), 0);
        }
        self.recent += 1;
        self.total += 1;
        self.transfers += usize::from(is_transfer);
    }

    /// One that was given up in `epoch` has returned.
    pub fn returned(&mut self, is_transfer: bool, epoch: Epoch) {
        debug_assert!(self.total > 0, "more return than were given up");
        self.recent -= usize::from(self.epoch == Some(epoch));
        self.total -= 1;
        self.transfers -= usize::from(is_transfer);
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Those given up in `epoch`.
    #[must_use]
    pub fn since(&self, epoch: Epoch) -> usize {
        if self.epoch == Some(epoch) { self.recent } else { 0 }
    }

    /// Business I/O fails at once (R36).
    #[must_use]
    pub fn too_many(&self, limits: &Limits, epoch: Epoch) -> bool {
        self.since(epoch) > PER_TRANSFER * limits.transfers || self.clog(limits).is_some()
    }

    /// The path is of no use until some of them return, however well it answers: no probe brings it
    /// back, or it would only be excluded again, or keep transfers waiting for a buffer.
    #[must_use]
    pub fn clog(&self, limits: &Limits) -> Option<Clog> {
        // What is in flight when it becomes too much may hang as well.
        let once = PER_TRANSFER * limits.transfers + limits.operations;
        if self.total > TIMES * once {
            return Some(Clog::Operations(self.total));
        }
        let needed = (limits.buffered / BUFFERS_PART).max(1);
        let clogged = self.transfers > 0 && self.transfers + needed > limits.buffered;
        clogged.then_some(Clog::Buffers(self.transfers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::config::limits::BUFFER_MB;
    use crate::engine::EngineKind;
    use crate::health::state::{BackendHealth, HealthParams, Setting};
    use crate::health::window::Rule;

    const LIMITS: Limits = Limits { transfers: 2, operations: 10, buffered: 1000 };

    /// The epochs of three times of availability.
    fn epochs() -> [Epoch; 3] {
        let rule = Rule { window: 1, threshold: 1 };
        let params = HealthParams { rule, one_bad_block: true };
        let now = Time(std::time::Duration::ZERO);
        let mut health = BackendHealth::available(0, params, now);
        std::array::from_fn(|_| {
            let epoch = health.epoch();
            health.set(Setting::Out, now);
            health.set(Setting::Auto, now);
            epoch
        })
    }

    #[test]
    fn r36_all_that_is_in_flight_by_default_may_hang_and_leaves_buffers() {
        let [first, ..] = epochs();
        for n in 1..=4 {
            for file_bytes in [64 << 10, 1 << 20, 64 << 20] {
                for kind in [EngineKind::Psync, EngineKind::Aio, EngineKind::IoUring] {
                    let buffered = kind.buffered((BUFFER_MB << 20) / n, 128, file_bytes);
                    let limits = Limits { transfers: 128, operations: 1000, buffered };
                    let mut hung = Hung::default();
                    (0..128).for_each(|_| hung.add(true, first));
                    assert_eq!(hung.clog(&limits), None, "{kind:?} {n} {file_bytes} {buffered}");
                }
            }
        }
    }

    #[test]
    fn r36_only_what_was_given_up_since_counts_and_late_returns_take_nothing_from_it() {
        let [first, second, third] = epochs();
        let mut hung = Hung::default();
        (0..5).for_each(|_| hung.add(false, first));
        assert!(hung.too_many(&LIMITS, first), "more than twice two");
        assert!(!hung.too_many(&LIMITS, second));
        (0..4).for_each(|_| hung.add(true, second));
        assert_eq!((hung.total(), hung.since(second), hung.since(first)), (9, 4, 0));
        (0..5).for_each(|_| hung.returned(false, first));
        assert_eq!((hung.total(), hung.since(second)), (4, 4));
        assert!(!hung.too_many(&LIMITS, second));
        hung.add(true, second);
        assert!(hung.too_many(&LIMITS, second) && !hung.too_many(&LIMITS, third));
        (0..5).for_each(|_| hung.returned(true, second));
        assert_eq!((hung.total(), hung.since(second), hung.since(third)), (0, 0, 0));
    }

    #[test]
    fn r36_whatever_one_exclusion_leaves_lets_the_path_come_back_and_there_is_an_end() {
        let epochs = epochs();
        let mut hung = Hung::default();
        for epoch in &epochs[..2] {
            (0..14).for_each(|_| hung.add(false, *epoch));
            assert_eq!(hung.clog(&LIMITS), None);
        }
        hung.add(false, epochs[2]);
        assert_eq!(hung.clog(&LIMITS), Some(Clog::Operations(29)));
        assert!(hung.too_many(&LIMITS, epochs[2]));
        hung.returned(false, epochs[0]);
        assert!(!hung.too_many(&LIMITS, epochs[2]));
    }

    /// The number that the README gives.
    #[test]
    fn r36_with_the_defaults_870_may_hang() {
        let epoch = epochs()[0];
        let operations = 128 + 16 + 32 + 2 + 1;
        let limits = Limits { transfers: 128, operations, buffered: 10_000 };
        let mut hung = Hung::default();
        (0..870).for_each(|_| hung.add(true, epoch));
        assert_eq!(hung.clog(&limits), None);
        hung.add(true, epoch);
        assert_eq!(hung.clog(&limits), Some(Clog::Operations(871)));
    }

    #[test]
    fn r36_transfers_that_hang_with_the_buffers_are_the_end_as_well() {
        let [first, second, _] = epochs();
        for (buffered, most) in [(16, 14), (3, 2)] {
            let limits = Limits { buffered, ..LIMITS };
            let mut hung = Hung::default();
            (0..most).for_each(|_| hung.add(true, first));
            hung.add(false, first);
            assert_eq!(hung.clog(&limits), None);
            hung.add(true, first);
            assert_eq!(hung.clog(&limits), Some(Clog::Buffers(most + 1)));
            assert!(hung.too_many(&limits, second));
        }
        let none = Limits { buffered: 1, ..LIMITS };
        assert_eq!(Hung::default().clog(&none), None, "nothing hangs");
    }
}
