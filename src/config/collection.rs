//! The keys of garbage collection (R80) and of keeping within the space (R85, R86): checked,
//! whether or not they have an effect.

use super::limits::{
    CAPACITY_GB_MAX, CONCURRENCY_MAX, GC_CONCURRENCY, GC_INTERVAL_S, GC_RECYCLE_COUNT,
    GC_RECYCLE_COUNT_MAX, GC_STALE_S_MIN, GC_TASK_TIMEOUT_MS, GC_TASK_TIMEOUT_MS_MIN,
    QUARANTINE_TTL_S, TIME_MS_MAX, TIME_S_MAX,
};
use super::reader::{Reader, Span, wrong};
use crate::error::Error;

const SHARE: Span =
    Span { rule: "above 0 and at most 1", holds: |share| share > 0.0 && share <= 1.0 };
const INNER_SHARE: Span =
    Span { rule: "above 0 and below 1", holds: |share| share > 0.0 && share < 1.0 };
const CAPACITY: Span =
    Span { rule: "from 0 to 8000000000", holds: |gb| (0.0..=CAPACITY_GB_MAX).contains(&gb) };
const RESERVE: Span =
    Span { rule: "from 0 to below 100", holds: |percent| (0.0..100.0).contains(&percent) };

/// Checks all of them.
pub fn read(reader: &mut Reader) -> Result<(), Error> {
    reader.flag("posix_gc_enable", true)?;
    reader.number("posix_capacity_gb", &CAPACITY, 0.0)?;
    reader.flag("posix_gc_precise_mode", true)?;
    reader.whole("posix_gc_concurrency", 1..=CONCURRENCY_MAX, GC_CONCURRENCY)?;
    reader.number("posix_gc_trigger_threshold_ratio", &SHARE, 0.7)?;
    let count = 1..=GC_RECYCLE_COUNT_MAX;
    reader.whole("posix_gc_max_recycle_count_per_shard", count, GC_RECYCLE_COUNT)?;
    reader.number("posix_gc_shard_sample_ratio", &SHARE, 0.1)?;
    reader.flag("posix_gc_cross_instance_lock", true)?;
    shares(reader)?;
    task_timeout(reader)?;
    lease_times(reader)?;
    reader.number("reserve_free_percent", &RESERVE, 0.0)?;
    reader.whole("quarantine_ttl_s", 1..=TIME_S_MAX, QUARANTINE_TTL_S)?;
    Ok(())
}

fn shares(reader: &mut Reader) -> Result<(), Error> {
    const RECYCLE: &str = "posix_gc_recycle_percent";
    const EXTRA: &str = "posix_gc_candidate_extra_percent";
    let recycle = reader.number(RECYCLE, &SHARE, 0.1)?;
    let extra = reader.number(EXTRA, &INNER_SHARE, 0.1)?;
    // Decimal shares that add up to 1 on paper may be one step above it in binary.
    if recycle + extra > 1.0 + f64::EPSILON {
        let must = format!("at most 1 together with {RECYCLE}, {}", reader.shown(RECYCLE));
        return Err(wrong(EXTRA, reader.shown(EXTRA), must));
    }
    Ok(())
}

fn task_timeout(reader: &mut Reader) -> Result<(), Error> {
    const KEY: &str = "posix_gc_task_timeout_ms";
    let limit = reader.whole(KEY, 0..=TIME_MS_MAX, GC_TASK_TIMEOUT_MS)?;
    if limit != 0 && limit < GC_TASK_TIMEOUT_MS_MIN {
        let must = format!("0, or at least {GC_TASK_TIMEOUT_MS_MIN}");
        return Err(wrong(KEY, reader.shown(KEY), must));
    }
    Ok(())
}

fn lease_times(reader: &mut Reader) -> Result<(), Error> {
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
    Ok(())
}
