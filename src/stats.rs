//! Counters of a store: what `kvpath_stats` copies out, and what `kvpath_metrics` tells of each
//! path. Written by the store's core, read by anybody.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ErrorWord;

/// A copy of all counters. The fields are described at `kvpath_stats_t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "described once, at kvpath_stats_t")]
pub struct Snapshot {
    pub threads: u32,
    pub tasks: u64,
    pub tasks_finished: u64,
    pub loaded_shards: u64,
    pub loaded_bytes: u64,
    pub dumped_shards: u64,
    pub dumped_bytes: u64,
    pub committed_blocks: u64,
    pub lookups: u64,
    pub lookup_hits: u64,
    pub load_misses: u64,
    pub retries: u64,
    pub failovers: u64,
    pub timeouts: u64,
    pub late_results: u64,
    pub corrupt: u64,
    pub removed_blocks: u64,
    pub swept_temporaries: u64,
    pub expired_blocks: u64,
    pub closed_generations: u64,
    pub dropped_results: u64,
    pub queued_shards: u64,
    pub in_flight: u64,
    pub abandoned: u64,
    pub unfinished_blocks: u64,
    pub hotness_refreshed: u64,
    pub hotness_left_out: u64,
    pub lookup_misses: u64,
    pub collected_blocks: u64,
    pub collector_passes: u64,
    pub sweep_passes: u64,
    pub failed_passes: u64,
    pub quarantined_files: u64,
    pub expired_quarantine: u64,
    pub estimated_blocks: u64,
    pub foreign_names: u64,
}

/// Upper bounds of a [`Histogram`]'s buckets, in microseconds; one more bucket has no bound.
pub const BOUNDS_US: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
];

/// How long things took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Histogram {
    buckets: [u64; BOUNDS_US.len() + 1],
    sum: Duration,
}

impl Histogram {
    /// One more took this long.
    pub fn observe(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < micros)] += 1;
        self.sum = self.sum.saturating_add(took);
    }

    /// How many took at most each bound; the last is how many there were.
    #[must_use]
    pub fn cumulative(&self) -> [u64; BOUNDS_US.len() + 1] {
        let mut sum = 0;
        self.buckets.map(|count| {
            sum += count;
            sum
        })
    }

    /// How long they took together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

/// What attempts are told apart by in histograms: the words of [`PathStats::attempts`].
pub const ATTEMPTS: [&str; 7] =
    ["load", "dump", "commit", "lookup", "remove", "hotness", "collect"];

/// Kinds of errors that are told apart on one path; further ones are counted together.
const ERROR_KINDS_MAX: usize = 64;

/// Counters of one path. Sums over all paths are in [`Snapshot`].
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "described once, in the metrics' help")]
pub struct PathStats {
    pub loaded_shards: u64,
    pub loaded_bytes: u64,
    pub dumped_shards: u64,
    pub dumped_bytes: u64,
    pub committed_blocks: u64,
    pub removed_blocks: u64,
    pub lookup_hits: u64,
    pub lookup_misses: u64,
    pub load_hits: u64,
    pub load_misses: u64,
    pub retries: u64,
    pub failovers: u64,
    pub timeouts: u64,
    pub late_results: u64,
    pub corrupt: u64,
    /// By class (R22), and by what it was: errno, or a word.
    pub errors: BTreeMap<(&'static str, ErrorWord), u64>,
    /// By the words of [`ATTEMPTS`].
    pub attempts: [Histogram; ATTEMPTS.len()],
}

impl PathStats {
    /// An attempt failed.
    pub fn error(&mut self, class: &'static str, word: ErrorWord) {
        let known = self.errors.contains_key(&(class, word));
        let room = known || self.errors.len() < ERROR_KINDS_MAX;
        let key = if room { (class, word) } else { ("other", ErrorWord::Word("other")) };
        *self.errors.entry(key).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r90_a_duration_falls_into_the_bucket_whose_bound_it_does_not_pass() {
        let mut histogram = Histogram::default();
        for micros in [0, 100, 101, 30_000_000, 30_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        histogram.observe(Duration::from_nanos(100_999));
        let cumulative = histogram.cumulative();
        assert_eq!((cumulative[0], cumulative[1]), (3, 4));
        assert_eq!(cumulative[BOUNDS_US.len() - 1], 5);
        assert_eq!(cumulative[BOUNDS_US.len()], 6);
        assert_eq!(histogram.sum(), Duration::from_nanos(60_000_302_999));
        assert!(BOUNDS_US.is_sorted());
    }

    #[test]
    fn r90_kinds_of_errors_are_bounded_and_none_is_lost() {
        let mut stats = PathStats::default();
        for errno in 0..1000 {
            stats.error("path", ErrorWord::Errno(errno));
        }
        assert_eq!(stats.errors.len(), ERROR_KINDS_MAX + 1);
        assert_eq!(stats.errors.values().sum::<u64>(), 1000);
    }
}
