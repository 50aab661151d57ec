//! What an operator sees: health and statistics, as structs and JSON (R56, R92); metrics are in
//! `metrics.rs`. Reads; decides nothing.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::collector::Collector;
use super::shared::Shared;
use super::types::BackendReport;
use crate::config::Config;
use crate::engine::EngineKind;
use crate::health::breaker::BreakerThread;
use crate::health::executor::Unfinished;
use crate::health::state::{Transition, Why};
use crate::stats::Snapshot;

/// Supervisor, monitor: always there. The breaker is counted where it runs, workers by their
/// engines.
const PERMANENT_THREADS: usize = 2;

/// What does not change while a store is open.
pub struct Facts {
    /// The engine that runs.
    pub engine: EngineKind,
    /// Why this one.
    pub engine_reason: String,
    /// The backends.
    pub paths: Vec<String>,
    /// Probe threads that hang.
    pub unfinished: Unfinished,
    /// The outer breaker, where it runs.
    pub breaker: OnceLock<Arc<BreakerThread>>,
    /// The collector.
    pub collector: OnceLock<Arc<Collector>>,
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Threads alive now.
pub fn threads(shared: &Shared, facts: &Facts) -> u32 {
    let workers: usize = shared.engines().iter().map(|engine| engine.threads()).sum();
    let breaker = usize::from(facts.breaker.get().is_some());
    let passes = facts.collector.get().map_or(0, |collector| collector.threads());
    narrow(workers + PERMANENT_THREADS + breaker + passes) + facts.unfinished.total()
}

/// One report a backend.
pub fn health(shared: &Shared, facts: &Facts) -> Vec<BackendReport> {
    let now = shared.clock.now();
    shared.read(|core| {
        let backends = core.health.backends().iter().zip(&core.lanes).enumerate();
        let reports = backends.map(|(index, (health, lane))| {
            let counters = health.counters();
            let last = health.last_failure();
            BackendReport {
                path: facts.paths[index].clone(),
                state: health.state(),
                since_ms: millis(now.since(health.since())),
                samples: narrow(health.samples()),
                failures: narrow(health.failures()),
                in_flight: wide(lane.running()),
                abandoned: wide(lane.hung.total()),
                direct: lane.facts.direct,
                probe_threads: facts.unfinished.on(index),
                probes: counters.probes,
                probe_failures: counters.probe_failures,
                transitions: counters.transitions,
                last_errno: last.and_then(|blame| blame.errno).unwrap_or(0),
                last_error: last.map_or_else(String::new, |blame| {
                    format!("{}: {}", blame.operation.word(), blame.text)
                }),
            }
        });
        reports.collect()
    })
}

fn transition_json(transition: &Transition, path: &str, now: crate::clock::Time) -> Value {
    let cause = match &transition.why {
        Why::Failure(blame) => json!({
            "operation": blame.operation.word(),
            "step": blame.step.word(),
            "errno": blame.errno,
            "text": blame.text,
        }),
        Why::Recovered => json!({"text": "the window is full and holds no failure"}),
        Why::Operator(setting) => json!({"text": format!("operator: {}", setting.word())}),
    };
    json!({
        "backend": path,
        "from": transition.from.word(),
        "to": transition.to.word(),
        "ago_ms": millis(now.since(transition.at)),
        "at_ms": millis(transition.at.0),
        "samples": transition.samples,
        "failures": transition.failures,
        "cause": cause,
    })
}

fn transitions_json(shared: &Shared, facts: &Facts) -> Vec<Value> {
    let now = shared.clock.now();
    shared.read(|core| {
        let all = core.health.transitions();
        all.map(|one| transition_json(one, &facts.paths[one.backend], now)).collect()
    })
}

fn engine_json(facts: &Facts) -> Value {
    json!({"name": facts.engine.word(), "reason": facts.engine_reason})
}

/// The health report.
pub fn health_json(shared: &Shared, config: &Config, facts: &Facts) -> String {
    let backends: Vec<Value> = health(shared, facts)
        .into_iter()
        .map(|report| {
            json!({
                "path": report.path,
                "state": report.state.word(),
                "since_ms": report.since_ms,
                "samples": report.samples,
                "failures": report.failures,
                "in_flight": report.in_flight,
                "abandoned": report.abandoned,
                "mode": if report.direct { "direct" } else { "buffered" },
                "probe_threads": report.probe_threads,
                "probes": report.probes,
                "probe_failures": report.probe_failures,
                "transitions": report.transitions,
                "last_errno": report.last_errno,
                "last_error": report.last_error,
            })
        })
        .collect();
    let now = shared.clock.now();
    let breaker =
        facts.breaker.get().map(|breaker| if breaker.is_open() { "open" } else { "closed" });
    json!({
        "backends": backends,
        "same_storage": shared.read(|core| core.same_storage()),
        "breaker": breaker,
        "engine": engine_json(facts),
        "transitions": transitions_json(shared, facts),
        "config": config.effective,
        "now_ms": millis(now.0),
    })
    .to_string()
}

/// Name, whether it only grows, help, value.
type Figure = (&'static str, bool, &'static str, u64);

/// The counters of the statistics, as JSON and metrics name them.
pub(super) fn figures(stats: &Snapshot) -> [Figure; 36] {
    [
        ("threads", false, "Threads of the store.", u64::from(stats.threads)),
        ("tasks", true, "Tasks accepted.", stats.tasks),
        ("tasks_finished", true, "Tasks finished.", stats.tasks_finished),
        ("loaded_shards", true, "Shards loaded whole.", stats.loaded_shards),
        ("loaded_bytes", true, "Bytes loaded.", stats.loaded_bytes),
        ("dumped_shards", true, "Shards written.", stats.dumped_shards),
        ("dumped_bytes", true, "Bytes written.", stats.dumped_bytes),
        ("committed_blocks", true, "Blocks made visible.", stats.committed_blocks),
        ("lookups", true, "Ids asked by lookups.", stats.lookups),
        ("lookup_hits", true, "Ids found by lookups.", stats.lookup_hits),
        ("load_misses", true, "Transfers that found no block.", stats.load_misses),
        ("retries", true, "Attempts after the first of their chain.", stats.retries),
        ("failovers", true, "Chains that succeeded on another backend.", stats.failovers),
        ("timeouts", true, "Attempts that passed their limit.", stats.timeouts),
        ("late_results", true, "Results of attempts given up before.", stats.late_results),
        ("corrupt", true, "Files found that are no whole blocks.", stats.corrupt),
        ("removed_blocks", true, "Blocks removed.", stats.removed_blocks),
        (
            "swept_temporaries",
            true,
            "Temporaries of dead writers removed.",
            stats.swept_temporaries,
        ),
        ("expired_blocks", true, "Unfinished blocks dropped by age.", stats.expired_blocks),
        ("closed_generations", true, "Unfinished files given up.", stats.closed_generations),
        ("dropped_results", true, "Results nobody asked for.", stats.dropped_results),
        ("queued_shards", false, "Shards accepted and not ended.", stats.queued_shards),
        ("in_flight", false, "Operations running.", stats.in_flight),
        ("abandoned", false, "Operations given up, still in the kernel.", stats.abandoned),
        ("unfinished_blocks", false, "Blocks begun, not visible.", stats.unfinished_blocks),
        ("hotness_refreshed", true, "Blocks made warm again.", stats.hotness_refreshed),
        ("hotness_left_out", true, "Hits that made no block warm.", stats.hotness_left_out),
        ("lookup_misses", true, "Ids not found by lookups.", stats.lookup_misses),
        ("collected_blocks", true, "Blocks removed for space.", stats.collected_blocks),
        ("collector_passes", true, "Passes that looked for space.", stats.collector_passes),
        ("sweep_passes", true, "Passes that swept.", stats.sweep_passes),
        ("failed_passes", true, "Passes that ended with an error.", stats.failed_passes),
        ("quarantined_files", true, "Files moved to quarantine.", stats.quarantined_files),
        ("expired_quarantine", true, "Files removed from quarantine.", stats.expired_quarantine),
        ("estimated_blocks", false, "Blocks of the storage.", stats.estimated_blocks),
        ("foreign_names", false, "Names that are no blocks.", stats.foreign_names),
    ]
}

/// Counters, configuration, engine and transitions.
pub fn stats_json(shared: &Shared, stats: &Snapshot, config: &Config, facts: &Facts) -> String {
    let counters: serde_json::Map<String, Value> =
        figures(stats).into_iter().map(|(name, _, _, value)| (name.into(), value.into())).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "engine": engine_json(facts),
        "counters": counters,
        "transitions": transitions_json(shared, facts),
        "config": config.effective,
    })
    .to_string()
}
