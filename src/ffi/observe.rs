//! Health, counters and metrics over the C ABI (R55, R56, R90, R92).

use std::ffi::c_char;

use super::guard::{guard, out, text, write_text};
use super::handle;
use super::status::kvpath_status_t;
use super::types::{
    KVPATH_BACKEND_SET_AUTO, KVPATH_BACKEND_SET_IN, KVPATH_BACKEND_SET_OUT,
    kvpath_backend_health_t, kvpath_stats_t, kvpath_store_t,
};
use crate::error::Error;
use crate::stats::Snapshot;
use crate::store::{BackendReport, Setting};

/// Reads the list of available backends: KVPATH_OK, or KVPATH_STORE_UNHEALTHY where it is empty.
/// It tells of the paths alone: the outer breaker (store_health.enabled) refuses calls for some
/// time after a path is back, and "breaker" in kvpath_health_json() says "open" until then.
///
/// Ownership: none. Threads: any. Blocking: never; no I/O. Errors: as above, KVPATH_CLOSED.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_check_health(store: kvpath_store_t) -> kvpath_status_t {
    guard(|| handle::find(store)?.check_health())
}

/// The health of each backend, in the order of the configuration. *count becomes the number of
/// backends; at most `capacity` elements are filled. Set backends[0].size to
/// sizeof(kvpath_backend_health_t) first.
///
/// Ownership: none. Threads: any. Blocking: never; no I/O. Errors: KVPATH_INVALID_PARAM,
/// KVPATH_CLOSED.
///
/// # Safety
/// `backends` is valid for `capacity` elements of the stated size, `count` for one write.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_health(
    store: kvpath_store_t,
    backends: *mut kvpath_backend_health_t,
    capacity: usize,
    count: *mut usize,
) -> kvpath_status_t {
    guard(|| {
        out(count, "count")?;
        let reports = handle::find(store)?.health();
        if capacity > 0 {
            out(backends, "backends")?;
            // SAFETY: valid by this function's contract; `size` is the first field of any version.
            let stride = unsafe { backends.cast::<u32>().read() } as usize;
            let known = size_of::<kvpath_backend_health_t>();
            if stride < size_of::<u32>() || !stride.is_multiple_of(align_of::<u64>()) {
                return Err(Error::invalid(format!(
                    "backends[0].size is {stride}; set it to sizeof(kvpath_backend_health_t), \
                     {known} here"
                )));
            }
            for (at, report) in reports.iter().take(capacity).enumerate() {
                let filled = fill(report);
                // SAFETY: `at < capacity`, elements are `stride` bytes apart by this function's
                // contract.
                let target = unsafe { backends.cast::<u8>().add(at * stride) };
                // SAFETY: at most `stride` bytes are written to an element, and at most `known` are
                // read.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        (&raw const filled).cast::<u8>(),
                        target,
                        stride.min(known),
                    );
                };
            }
        }
        // SAFETY: checked by `out`; valid by this function's contract.
        unsafe { count.write(reports.len()) };
        Ok(())
    })
}

fn cut<const N: usize>(text: &str) -> [c_char; N] {
    let mut target = [0; N];
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (slot, byte) in target.iter_mut().zip(&text.as_bytes()[..end]) {
        *slot = byte.cast_signed();
    }
    target
}

fn fill(report: &BackendReport) -> kvpath_backend_health_t {
    kvpath_backend_health_t {
        size: u32::try_from(size_of::<kvpath_backend_health_t>()).unwrap_or(0),
        state: report.state.code(),
        path: cut(&report.path),
        since_ms: report.since_ms,
        samples: report.samples,
        failures: report.failures,
        in_flight: report.in_flight,
        abandoned: report.abandoned,
        direct: u32::from(report.direct),
        probe_threads: report.probe_threads,
        probes: report.probes,
        probe_failures: report.probe_failures,
        transitions: report.transitions,
        last_errno: report.last_errno,
        reserved: 0,
        last_error: cut(&report.last_error),
    }
}

/// The health report as JSON (docs/health.schema.json): backends, same_storage, breaker, engine,
/// the effective configuration with the origin of each value, and the last 64 transitions with
/// their causes. *length becomes the length without the NUL, also when the buffer is too small;
/// NULL with capacity 0 asks for it.
///
/// Ownership: the buffer is the caller's. Threads: any. Blocking: never; no I/O.
/// Errors: KVPATH_INVALID_PARAM (the buffer is too small), KVPATH_CLOSED.
///
/// # Safety
/// `buffer` is NULL with capacity 0, or valid for `capacity` writes; `length` is valid for one
/// write.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_health_json(
    store: kvpath_store_t,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> kvpath_status_t {
    guard(|| {
        out(length, "length")?;
        let report = handle::find(store)?.health_json();
        // SAFETY: this function's contract; `length` was checked.
        unsafe { write_text(&report, buffer, capacity, length) }
    })
}

/// Lets an operator take a backend out of routing (KVPATH_BACKEND_SET_OUT), force it in
/// (KVPATH_BACKEND_SET_IN), or give it back to its window (KVPATH_BACKEND_SET_AUTO). `path` is as
/// configured. Calls that hang there already are not held against a backend that is forced in.
///
/// Ownership: none. Threads: any. Blocking: never.
/// Errors: KVPATH_INVALID_PARAM (no such backend or setting), KVPATH_CLOSED.
///
/// # Safety
/// `path` is NULL or a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_backend_set(
    store: kvpath_store_t,
    path: *const c_char,
    setting: i32,
) -> kvpath_status_t {
    guard(|| {
        let setting = match setting {
            KVPATH_BACKEND_SET_OUT => Setting::Out,
            KVPATH_BACKEND_SET_IN => Setting::In,
            KVPATH_BACKEND_SET_AUTO => Setting::Auto,
            other => return Err(Error::invalid(format!("setting {other} is not 0, 1 or 2"))),
        };
        // SAFETY: this function's contract.
        let path = unsafe { text(path, "path") }?;
        handle::find(store)?.backend_set(path, setting)
    })
}

/// The counters of a store. Set stats->size to sizeof(kvpath_stats_t) first; no more than that is
/// filled.
///
/// Ownership: none. Threads: any. Blocking: never; no I/O. Errors: KVPATH_INVALID_PARAM,
/// KVPATH_CLOSED.
///
/// # Safety
/// `stats` is NULL or valid for stats->size bytes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_stats(
    store: kvpath_store_t,
    stats: *mut kvpath_stats_t,
) -> kvpath_status_t {
    guard(|| {
        out(stats, "stats")?;
        let known = size_of::<kvpath_stats_t>();
        // SAFETY: `size` is the first field of any version; valid by this function's contract.
        let size = unsafe { stats.cast::<u32>().read() };
        if (size as usize) < size_of::<u32>() {
            return Err(Error::invalid(format!(
                "stats->size is {size}; set it to sizeof(kvpath_stats_t), {known} here"
            )));
        }
        let mut filled = counters(&handle::find(store)?.stats());
        filled.size = u32::try_from(known.min(size as usize)).unwrap_or(size);
        let bytes = known.min(size as usize);
        // SAFETY: at most stats->size bytes are written, and at most `known` are read.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const filled).cast::<u8>(),
                stats.cast::<u8>(),
                bytes,
            );
        };
        Ok(())
    })
}

fn counters(from: &Snapshot) -> kvpath_stats_t {
    kvpath_stats_t {
        size: 0,
        threads: from.threads,
        tasks: from.tasks,
        tasks_finished: from.tasks_finished,
        loaded_shards: from.loaded_shards,
        loaded_bytes: from.loaded_bytes,
        dumped_shards: from.dumped_shards,
        dumped_bytes: from.dumped_bytes,
        committed_blocks: from.committed_blocks,
        lookups: from.lookups,
        lookup_hits: from.lookup_hits,
        load_misses: from.load_misses,
        retries: from.retries,
        failovers: from.failovers,
        timeouts: from.timeouts,
        late_results: from.late_results,
        corrupt: from.corrupt,
        removed_blocks: from.removed_blocks,
        swept_temporaries: from.swept_temporaries,
        expired_blocks: from.expired_blocks,
        closed_generations: from.closed_generations,
        dropped_results: from.dropped_results,
        queued_shards: from.queued_shards,
        in_flight: from.in_flight,
        abandoned: from.abandoned,
        unfinished_blocks: from.unfinished_blocks,
        hotness_refreshed: from.hotness_refreshed,
        hotness_left_out: from.hotness_left_out,
        lookup_misses: from.lookup_misses,
        collected_blocks: from.collected_blocks,
        collector_passes: from.collector_passes,
        sweep_passes: from.sweep_passes,
        failed_passes: from.failed_passes,
        quarantined_files: from.quarantined_files,
        expired_quarantine: from.expired_quarantine,
        estimated_blocks: from.estimated_blocks,
        foreign_names: from.foreign_names,
    }
}

/// Counters, the effective configuration with the origin of each value, the engine with the reason
/// of its choice, and the last 64 transitions, as JSON (docs/stats.schema.json). Lengths as
/// kvpath_health_json().
///
/// Ownership: the buffer is the caller's. Threads: any. Blocking: never; no I/O.
/// Errors: KVPATH_INVALID_PARAM (the buffer is too small), KVPATH_CLOSED.
///
/// # Safety
/// As kvpath_health_json().
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_stats_json(
    store: kvpath_store_t,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> kvpath_status_t {
    guard(|| {
        out(length, "length")?;
        let report = handle::find(store)?.stats_json();
        // SAFETY: this function's contract; `length` was checked.
        unsafe { write_text(&report, buffer, capacity, length) }
    })
}

/// The same counters as Prometheus text (exposition format 0.0.4), and by path: counters, errors,
/// durations, state, and the room that was learned last. docs/metrics.md lists them. The length
/// differs from call to call, so give room to spare. Lengths as kvpath_health_json().
///
/// Ownership: the buffer is the caller's. Threads: any. Blocking: never; no I/O.
/// Errors: KVPATH_INVALID_PARAM (the buffer is too small), KVPATH_CLOSED.
///
/// # Safety
/// As kvpath_health_json().
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvpath_metrics(
    store: kvpath_store_t,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> kvpath_status_t {
    guard(|| {
        out(length, "length")?;
        let report = handle::find(store)?.metrics();
        // SAFETY: this function's contract; `length` was checked.
        unsafe { write_text(&report, buffer, capacity, length) }
    })
}
