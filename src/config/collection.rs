//! The keys of garbage collection (R80) and of keeping within the space (R85, R86): checked,
//! whether or not they have an effect.

use std::time::Duration;

use super::Shape;
use super::limits::{
    CAPACITY_GB_MAX, CONCURRENCY_MAX, GC_CONCURRENCY, GC_INTERVAL_S, GC_RECYCLE_COUNT,
    GC_RECYCLE_COUNT_MAX, GC_STALE_S_MIN, GC_TASK_TIMEOUT_MS, GC_TASK_TIMEOUT_MS_MIN,
    QUARANTINE_TTL_S, TIME_MS_MAX, TIME_S_MAX,
};
use super::reader::{Reader, Span, wrong};
use crate::error::Error;
use crate::reclaim::capacity::Capacity;

/// How a store keeps within its space.
#[derive(Debug, Clone, PartialEq)]
pub struct Collection {
    /// `None`: nothing is collected.
    pub capacity: Option<Capacity>,
    /// The coldest of the whole store; `false`: a share of each directory.
    pub precise: bool,
    /// Candidates beside those of a round, as a share of all blocks.
    pub extra: f64,
    /// Directories listed, or files removed, at a time.
    pub concurrency: usize,
    /// From the end of one pass to the next.
    pub interval: Duration,
    /// Most blocks that a directory gives in one round.
    pub each_directory: u64,
    /// The share of the directories that is counted each interval.
    pub sample: f64,
    /// Limit of one listing; `None`: no limit.
    pub task_timeout: Option<Duration>,
    /// One instance at a time (R83).
    pub lease: bool,
    /// How often the holder of the lease shows that it lives.
    pub heartbeat: Duration,
    /// How old the holder's entry is when it is believed to be dead.
    pub stale: Duration,
    /// Dumps are refused where less is free; 0: off (R85).
    pub reserve_free_percent: f64,
    /// How long a file stays in quarantine (R86).
    pub quarantine_ttl: Duration,
}

const CAPACITY_KEY: &str = "posix_capacity_gb";
const SHARE: Span =
    Span { rule: "above 0 and at most 1", holds: |share| share > 0.0 && share <= 1.0 };
const INNER_SHARE: Span =
    Span { rule: "above 0 and below 1", holds: |share| share > 0.0 && share < 1.0 };
const CAPACITY: Span =
    Span { rule: "from 0 to 8000000000", holds: |gb| (0.0..=CAPACITY_GB_MAX).contains(&gb) };
const RESERVE: Span =
    Span { rule: "from 0 to below 100", holds: |percent| (0.0..100.0).contains(&percent) };

/// Checks all of them.
pub fn read(reader: &mut Reader, shape: Option<Shape>) -> Result<Collection, Error> {
    let on = reader.flag("posix_gc_enable", true)?;
    let gb = reader.number(CAPACITY_KEY, &CAPACITY, 0.0)?;
    let precise = reader.flag("posix_gc_precise_mode", true)?;
    let concurrency = reader.whole("posix_gc_concurrency", 1..=CONCURRENCY_MAX, GC_CONCURRENCY)?;
    let ratio = reader.number("posix_gc_trigger_threshold_ratio", &SHARE, 0.7)?;
    let count = 1..=GC_RECYCLE_COUNT_MAX;
    let each_directory =
        reader.whole("posix_gc_max_recycle_count_per_shard", count, GC_RECYCLE_COUNT)?;
    let sample = reader.number("posix_gc_shard_sample_ratio", &SHARE, 0.1)?;
    let lease = reader.flag("posix_gc_cross_instance_lock", true)?;
    let (recycle, extra) = shares(reader)?;
    let task_timeout = task_timeout(reader)?;
    let (interval, heartbeat, stale) = lease_times(reader)?;
    let reserve_free_percent = reader.number("reserve_free_percent", &RESERVE, 0.0)?;
    let ttl = reader.whole("quarantine_ttl_s", 1..=TIME_S_MAX, QUARANTINE_TTL_S)?;
    let capacity =
        if on && gb > 0.0 { Some(capacity(reader, gb, shape, ratio, recycle)?) } else { None };
    Ok(Collection {
        capacity,
        precise,
        extra,
        concurrency,
        interval,
        each_directory,
        sample,
        task_timeout,
        lease,
        heartbeat,
        stale,
        reserve_free_percent,
        quarantine_ttl: Duration::from_secs(ttl),
    })
}

fn capacity(
    reader: &Reader,
    gb: f64,
    shape: Option<Shape>,
    ratio: f64,
    recycle: f64,
) -> Result<Capacity, Error> {
    let Some(shape) = shape else {
        let must =
            format!("given where {CAPACITY_KEY} is above 0: it says how many blocks that is");
        return Err(wrong("block_size", "absent", must));
    };
    Capacity::new(gb, shape.block_bytes, ratio, recycle).map_err(|least| {
        // Rounded up, so that what the text names is enough.
        let least = (least * 1e6).ceil() / 1e6;
        let must = format!("at least {least} (GiB), or no block is ever collected");
        wrong(CAPACITY_KEY, reader.shown(CAPACITY_KEY), must)
    })
}

fn shares(reader: &mut Reader) -> Result<(f64, f64), Error> {
    const RECYCLE: &str = "posix_gc_recycle_percent";
    const EXTRA: &str = "posix_gc_candidate_extra_percent";
    let recycle = reader.number(RECYCLE, &SHARE, 0.1)?;
    let extra = reader.number(EXTRA, &INNER_SHARE, 0.1)?;
    // Decimal shares that add up to 1 on paper may be one step above it in binary.
    if recycle + extra > 1.0 + f64::EPSILON {
        let must = format!("at most 1 together with {RECYCLE}, {}", reader.shown(RECYCLE));
        return Err(wrong(EXTRA, reader.shown(EXTRA), must));
    }
    Ok((recycle, extra))
}

fn task_timeout(reader: &mut Reader) -> Result<Option<Duration>, Error> {
    const KEY: &str = "posix_gc_task_timeout_ms";
    let limit = reader.whole(KEY, 0..=TIME_MS_MAX, GC_TASK_TIMEOUT_MS)?;
    if limit != 0 && limit < GC_TASK_TIMEOUT_MS_MIN {
        let must = format!("0, or at least {GC_TASK_TIMEOUT_MS_MIN}");
        return Err(wrong(KEY, reader.shown(KEY), must));
    }
    Ok((limit > 0).then(|| Duration::from_millis(limit)))
}

fn lease_times(reader: &mut Reader) -> Result<(Duration, Duration, Duration), Error> {
    const INTERVAL: &str = "posix_gc_check_interval_sec";
    const HEARTBEAT: &str = "posix_gc_heartbeat_interval_sec";
    const STALE: &str = "posix_gc_stale_threshold_sec";
    let interval = reader.whole(INTERVAL, 1..=TIME_S_MAX, GC_INTERVAL_S)?;
    let mut heartbeat = reader.whole(HEARTBEAT, 0..=TIME_S_MAX, 0)?;
    let mut stale = reader.whole(STALE, 0..=TIME_S_MAX, 0)?;
    if heartbeat == 0 {
        heartbeat = (interval / 4).max(1);
        reader.note(HEARTBEAT, heartbeat, format!("derived from {INTERVAL}"));
    }
    if stale == 0 {
        stale = (2 * interval).max(GC_STALE_S_MIN);
        reader.note(STALE, stale, format!("derived from {INTERVAL}"));
    }
    if stale <= heartbeat {
        let must = format!("above {HEARTBEAT}, {}", reader.shown(HEARTBEAT));
        return Err(wrong(STALE, reader.shown(STALE), must));
    }
    let seconds = Duration::from_secs;
    Ok((seconds(interval), seconds(heartbeat), seconds(stale)))
}
