//! Counters of a store: what `kvpath_stats` copies out. Written by the store's core, read by
//! anybody.

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
}
