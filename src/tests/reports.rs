//! What an operator reads, of a store that runs: what both JSON reports carry (R92), and metrics
//! against what the docs, the dashboard and the alert rules say of them (R90). The schemas of the
//! reports, and a real parser of the metrics, are CTest's (`observe_test.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::store::{Setting, Store};

fn docs(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// A store of two paths to one storage, which have changed state more often than is kept.
struct Rig {
    store: Option<Arc<Store>>,
    root: PathBuf,
}

impl Rig {
    fn new(name: &str) -> Rig {
        let root = std::env::temp_dir().join(format!("kvpath-{name}-{}", std::process::id()));
        std::fs::create_dir_all(root.join("storage")).unwrap();
        let paths = ["a", "b \"quoted\\\" é"].map(|link| root.join(link));
        for path in &paths {
            std::os::unix::fs::symlink(root.join("storage"), path).unwrap();
        }
        let config = serde_json::json!({
            "storage_backends": paths,
            "tensor_size": 4096, "shard_size": 4096, "block_size": 8192,
            "data_dir_shard_bytes": 0, "io_direct": false, "posix_io_engine": "psync",
        });
        let store = Store::open(&config.to_string()).unwrap();
        for _ in 0..40 {
            for setting in [Setting::Out, Setting::Auto] {
                store.backend_set(paths[1].to_str().unwrap(), setting).unwrap();
            }
        }
        Rig { store: Some(store), root }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            store.close(|| ()).unwrap();
        }
        std::fs::remove_dir_all(&self.root).unwrap();
    }
}

/// What both reports carry (R92).
fn check_common(report: &Value) {
    let config = report["config"].as_object().unwrap();
    assert_eq!(config["block_size"]["value"], 8192);
    for (key, origin) in [("block_size", "config"), ("timeout_ms", "default")] {
        assert_eq!(config[key]["origin"], origin, "{key}");
    }
    for key in crate::config::limits::KEYS {
        let absent = ["health_cores", "cpu_affinity_cores"].contains(key);
        assert!(config.contains_key(*key) || absent, "{key} has no effective value");
    }
    assert_eq!(report["engine"]["name"], "psync");
    assert!(!report["engine"]["reason"].as_str().unwrap().is_empty());
    let transitions = report["transitions"].as_array().unwrap();
    assert_eq!(transitions.len(), 64, "the last 64, no more");
    let times: Vec<u64> = transitions.iter().map(|one| one["at_ms"].as_u64().unwrap()).collect();
    assert!(times.is_sorted());
    let last = transitions.last().unwrap();
    assert_eq!((&last["from"], &last["to"]), (&"out".into(), &"available".into()));
}

#[test]
fn r92_both_reports_carry_configuration_engine_and_transitions() {
    let rig = Rig::new("reports");
    let report: Value = serde_json::from_str(&rig.store().health_json()).unwrap();
    check_common(&report);
    assert_eq!(report["backends"][1]["transitions"], 80);
    check_common(&serde_json::from_str(&rig.store().stats_json()).unwrap());
}

/// Names and types of all families, from the text itself.
fn families(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split_once(' ').unwrap()).map(|(a, b)| (a.into(), b.into())).collect()
}

/// Names of metrics in a text, as they are written there.
fn mentioned(text: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_' || letter == ':';
    let starts = text.match_indices("kvpath_").map(|(at, _)| &text[at..]);
    starts.map(|rest| rest.chars().take_while(|letter| is_name(*letter)).collect()).collect()
}

/// The family that a name of a sample belongs to.
fn family(name: &str, families: &BTreeMap<String, String>) -> Option<String> {
    if families.get(name).is_some_and(|kind| kind != "histogram") {
        return Some(name.into());
    }
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end))?;
    (families.get(base)? == "histogram").then(|| base.into())
}

#[test]
fn r90_dashboard_and_alerts_use_only_metrics_that_exist() {
    let rig = Rig::new("names");
    let families = families(&rig.store().metrics());
    let dashboard: Value = serde_json::from_str(&docs("grafana.json")).unwrap();
    let mut expressions = Vec::new();
    let mut open = vec![&dashboard];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(values) => open.extend(values),
            Value::Object(fields) => {
                let texts = ["expr", "query"].iter().filter_map(|key| fields.get(*key)?.as_str());
                expressions.extend(texts.map(str::to_owned));
                open.extend(fields.values());
            }
            _ => {}
        }
    }
    assert!(expressions.len() > 25, "the expressions were found");
    // Function names in the alerts' help are none of metrics.
    let alerts = docs("alerts.yaml").replace("kvpath_backend_set(", "");
    for (what, text) in [("grafana.json", expressions.join("\n")), ("alerts.yaml", alerts)] {
        let names = mentioned(&text);
        assert!(names.len() > 12, "{what}: {names:?}");
        for name in names {
            let known = family(&name, &families).is_some() || families.contains_key(&name);
            assert!(known, "{what} uses {name}, which does not exist");
        }
    }
}

#[test]
fn r90_every_metric_is_in_the_docs_and_the_docs_have_no_other() {
    let rig = Rig::new("docs");
    let families = families(&rig.store().metrics());
    let rows = docs("metrics.md");
    let documented: BTreeMap<String, String> = rows
        .lines()
        .filter_map(|line| line.strip_prefix("| `kvpath_"))
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let name = format!("kvpath_{}", cells.next().unwrap().trim_end_matches('`'));
            (name, cells.next().unwrap().to_owned())
        })
        .collect();
    assert_eq!(documented, families);
}

#[test]
fn r90_labels_are_escaped_and_every_family_has_help() {
    let rig = Rig::new("labels");
    let text = rig.store().metrics();
    assert!(text.contains("/b \\\"quoted\\\\\\\" é/\",state=\"available\"} 1"), "{text}");
    for name in families(&text).keys() {
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
    }
}

#[test]
fn r90_room_is_known_from_the_start() {
    let rig = Rig::new("room");
    let text = rig.store().metrics();
    let sample = |name: &str| {
        let lines = text.lines().filter(|line| line.starts_with(&format!("kvpath_{name}{{")));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).next().unwrap()
    };
    let size = sample("backend_space_bytes");
    let (used, free) = (sample("backend_space_used_bytes"), sample("backend_space_free_bytes"));
    assert!(size > 0.0 && used + free <= size);
}
