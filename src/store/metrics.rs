//! Metrics as Prometheus text, exposition format 0.0.4 (R90). Sums over the whole store are the
//! figures of the statistics; what belongs to one path begins with `kvpath_backend_` or has the
//! label `backend`. Makes text, reads nothing.

use std::fmt::{Display, Write as _};

use super::counts::{PathFigures, TaskTimes};
use super::report::{Facts, figures};
use super::types::BackendReport;
use crate::engine::Space;
use crate::health::state::BackendState;
use crate::stats::{ATTEMPTS, BOUNDS_US, Histogram, PathStats, Snapshot};

/// Everything that the text is made of.
pub struct Sources<'a> {
    /// Sums.
    pub stats: &'a Snapshot,
    /// Health of each path.
    pub health: &'a [BackendReport],
    /// What else is known of each path.
    pub paths: &'a [PathFigures],
    /// How long tasks took.
    pub tasks: &'a TaskTimes,
    /// What does not change.
    pub facts: &'a Facts,
}

/// The text.
struct Page(String);

impl Page {
    fn line(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let written = writeln!(self.0, "{arguments}");
        debug_assert!(written.is_ok());
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP kvpath_{name} {help}"));
        self.line(format_args!("# TYPE kvpath_{name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(key, text)| format!("{key}=\"{}\"", escaped(text))).collect();
        let labels =
            if labels.is_empty() { "".into() } else { format!("{{{}}}", labels.join(",")) };
        self.line(format_args!("kvpath_{name}{labels} {value}"));
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], times: &Histogram) {
        let counts = times.cumulative();
        let bucket = format!("{name}_bucket");
        let bounds = BOUNDS_US.iter().map(|us| seconds(std::time::Duration::from_micros(*us)));
        for (bound, count) in bounds.chain(["+Inf".into()]).zip(counts) {
            self.sample(&bucket, &[labels, &[("le", bound.as_str())]].concat(), count);
        }
        self.sample(&format!("{name}_sum"), labels, seconds(times.sum()));
        self.sample(&format!("{name}_count"), labels, counts[BOUNDS_US.len()]);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(duration: std::time::Duration) -> String {
    duration.as_secs_f64().to_string()
}

/// Name, help, value of one path's counter.
type Counter = (&'static str, &'static str, fn(&PathStats) -> u64);

const COUNTERS: [Counter; 15] = [
    ("loaded_shards", "Shards loaded whole through this path.", |s| s.loaded_shards),
    ("loaded_bytes", "Bytes loaded through this path.", |s| s.loaded_bytes),
    ("dumped_shards", "Shards written through this path.", |s| s.dumped_shards),
    ("dumped_bytes", "Bytes written through this path.", |s| s.dumped_bytes),
    ("committed_blocks", "Blocks made visible through this path.", |s| s.committed_blocks),
    ("removed_blocks", "Blocks removed through this path.", |s| s.removed_blocks),
    ("lookup_hits", "Ids that lookups found through this path.", |s| s.lookup_hits),
    ("lookup_misses", "Ids that lookups did not find through this path.", |s| s.lookup_misses),
    ("load_hits", "Transfers that were loaded through this path.", |s| s.load_hits),
    ("load_misses", "Transfers that found no whole block through this path.", |s| s.load_misses),
    ("retries", "Attempts on this path after the first of their chain.", |s| s.retries),
    ("failovers", "Chains that came from another path and succeeded here.", |s| s.failovers),
    ("timeouts", "Attempts that passed their limit.", |s| s.timeouts),
    ("late_results", "Results of attempts that were given up before.", |s| s.late_results),
    ("corrupt", "Files found that are no whole blocks.", |s| s.corrupt),
];

/// Name, help, value of one path's gauge.
type Gauge = (&'static str, &'static str, fn(&BackendReport, &PathFigures) -> u64);

const GAUGES: [Gauge; 4] = [
    ("available", "1: takes part in routing.", |health, _| {
        u64::from(health.state == BackendState::Available)
    }),
    ("in_flight", "Operations running.", |health, _| health.in_flight),
    ("queued", "Operations that wait for a free place.", |_, path| path.queued as u64),
    ("abandoned", "Operations given up, still in the kernel.", |health, _| health.abandoned),
];

/// Name, help, value of what the health report counts.
type Probed = (&'static str, &'static str, fn(&BackendReport) -> u64);

const PROBED: [Probed; 3] = [
    ("probes", "Probes with an outcome.", |health| health.probes),
    ("probe_failures", "Probes that failed or timed out.", |health| health.probe_failures),
    ("transitions", "Changes of state.", |health| health.transitions),
];

/// Name, help, value of what `statvfs` told.
type Room = (&'static str, &'static str, fn(&Space) -> u64);

const ROOM: [Room; 5] = [
    ("space_bytes", "Size of the path's file system.", |space| space.bytes),
    ("space_used_bytes", "Bytes used on it.", |space| space.bytes.saturating_sub(space.free_bytes)),
    ("space_free_bytes", "Bytes that may still be used on it.", |space| space.available_bytes),
    ("inodes", "Inodes of it; 0 where it does not count them.", |space| space.inodes),
    ("inodes_free", "Inodes that nobody uses.", |space| space.free_inodes),
];

/// The whole text.
#[must_use]
pub fn text(from: &Sources<'_>) -> String {
    let mut page = Page(String::new());
    let engine = from.facts.engine.word();
    page.family("info", "gauge", "Always 1; version and engine of the store.");
    page.sample("info", &[("version", env!("CARGO_PKG_VERSION")), ("engine", engine)], 1);
    for (name, grows, help, value) in figures(from.stats) {
        let (kind, suffix) = if grows { ("counter", "_total") } else { ("gauge", "") };
        let name = format!("{name}{suffix}");
        page.family(&name, kind, help);
        page.sample(&name, &[], value);
    }
    if let Some(breaker) = from.facts.breaker.get() {
        page.family("breaker_open", "gauge", "1: the outer breaker refuses work.");
        page.sample("breaker_open", &[], u32::from(breaker.is_open()));
    }
    paths(&mut page, from);
    errors(&mut page, from);
    times(&mut page, from);
    page.0
}

fn paths(page: &mut Page, from: &Sources<'_>) {
    let all = || from.health.iter().zip(from.paths);
    for (name, help, value) in COUNTERS {
        let name = format!("backend_{name}_total");
        page.family(&name, "counter", help);
        for (health, path) in all() {
            page.sample(&name, &[("backend", &health.path)], value(&path.stats));
        }
    }
    for (name, help, value) in PROBED {
        let name = format!("backend_{name}_total");
        page.family(&name, "counter", help);
        for health in from.health {
            page.sample(&name, &[("backend", &health.path)], value(health));
        }
    }
    for (name, help, value) in GAUGES {
        let name = format!("backend_{name}");
        page.family(&name, "gauge", help);
        for (health, path) in all() {
            page.sample(&name, &[("backend", &health.path)], value(health, path));
        }
    }
    page.family("backend_state", "gauge", "1 for the state that the path has, else 0.");
    for health in from.health {
        for state in [BackendState::Available, BackendState::Excluded, BackendState::Out] {
            let labels = [("backend", health.path.as_str()), ("state", state.word())];
            page.sample("backend_state", &labels, u32::from(health.state == state));
        }
    }
    page.family("backend_mode", "gauge", "1 for the mode that the path runs in, else 0.");
    for health in from.health {
        for (mode, runs) in [("direct", health.direct), ("buffered", !health.direct)] {
            let labels = [("backend", health.path.as_str()), ("mode", mode)];
            page.sample("backend_mode", &labels, u32::from(runs));
        }
    }
    for (name, help, value) in ROOM {
        let name = format!("backend_{name}");
        page.family(&name, "gauge", help);
        for (health, path) in all() {
            if let Some(space) = &path.room.known {
                page.sample(&name, &[("backend", &health.path)], value(space));
            }
        }
    }
}

fn errors(page: &mut Page, from: &Sources<'_>) {
    page.family("errors_total", "counter", "Attempts that failed, by class and errno or cause.");
    for (health, path) in from.health.iter().zip(from.paths) {
        for ((class, word), count) in &path.stats.errors {
            let word = word.to_string();
            let labels = [("backend", health.path.as_str()), ("class", class), ("errno", &word)];
            page.sample("errors_total", &labels, count);
        }
    }
}

fn times(page: &mut Page, from: &Sources<'_>) {
    let name = "attempt_duration_seconds";
    page.family(name, "histogram", "From the beginning of an attempt to its end.");
    for (health, path) in from.health.iter().zip(from.paths) {
        for (operation, times) in ATTEMPTS.iter().zip(&path.stats.attempts) {
            let labels = [("backend", health.path.as_str()), ("operation", operation)];
            page.histogram(name, &labels, times);
        }
    }
    let name = "task_duration_seconds";
    page.family(name, "histogram", "From the acceptance of a task to its end.");
    for (operation, times) in ["load", "dump"].iter().zip(from.tasks) {
        page.histogram(name, &[("operation", operation)], times);
    }
}
