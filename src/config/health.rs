//! `store_health`.

use std::time::Duration;

use super::HealthConfig;
use super::limits::{
    HEALTH_INTERVAL_S, HEALTH_THRESHOLD, HEALTH_TIMEOUT_S, HEALTH_WINDOW, HEALTH_WINDOW_MAX,
    TIME_S_MAX_F,
};
use super::reader::{Reader, Span, wrong};
use crate::error::Error;

const SECONDS: Span = Span {
    rule: "of seconds above 0 and at most 9000000000",
    holds: |seconds| seconds > 0.0 && seconds <= TIME_S_MAX_F,
};
const INTERVAL: &str = "store_health.health_check_interval_s";
const TIMEOUT: &str = "store_health.health_check_timeout_s";
const WINDOW: &str = "store_health.health_window_size";
const THRESHOLD: &str = "store_health.failure_threshold";

/// Reads the five keys and checks them against each other.
pub fn read(reader: &mut Reader) -> Result<HealthConfig, Error> {
    let enabled = reader.flag("store_health.enabled", true)?;
    let interval = reader.number(INTERVAL, &SECONDS, HEALTH_INTERVAL_S)?;
    let timeout = reader.number(TIMEOUT, &SECONDS, HEALTH_TIMEOUT_S)?;
    if timeout >= interval {
        let must = format!("less than {INTERVAL}, {}", reader.shown(INTERVAL));
        return Err(wrong(TIMEOUT, reader.shown(TIMEOUT), must));
    }
    let window = reader.whole(WINDOW, 1..=HEALTH_WINDOW_MAX, HEALTH_WINDOW)?;
    let threshold = reader.whole(THRESHOLD, 1..=HEALTH_WINDOW_MAX, HEALTH_THRESHOLD)?;
    if threshold > window {
        let must = format!("at most {WINDOW}, {}", reader.shown(WINDOW));
        return Err(wrong(THRESHOLD, reader.shown(THRESHOLD), must));
    }
    Ok(HealthConfig {
        enabled,
        interval: duration(interval),
        timeout: duration(timeout),
        window,
        threshold,
    })
}

/// Never zero: a positive time below a nanosecond is one nanosecond.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds)
        .unwrap_or(Duration::from_secs(u64::MAX))
        .max(Duration::from_nanos(1))
}
