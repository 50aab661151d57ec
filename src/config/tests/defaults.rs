//! What a key is when nobody sets it, where values come from, and what a capacity must be.

use std::process::Command;

use serde_json::{Value, json};

use super::super::limits::{HEALTH_WINDOW, KEYS};
use super::super::{
    BufferMode, CommitPolicy, CommitSync, EngineChoice, FailureScope, Shape, StartupPolicy,
};
use super::{accepted, lookups, merged, refused, refused_with, transfers};
use crate::error::Status;

#[test]
fn r1_defaults() {
    let config = accepted(&transfers(&json!({})));
    assert_eq!(config.backends, ["/mnt/a/"]);
    assert_eq!((config.device_id, config.transfers), (0, true));
    let shape = Shape { tensor_bytes: 4096, shard_bytes: 8192, block_bytes: 65536 };
    assert_eq!(config.shape, Some(shape));
    assert_eq!((shape.shards(), shape.tensors()), (8, 2));
    assert_eq!((config.engine, config.io_direct), (EngineChoice::Auto, true));
    assert_eq!((config.timeout_ms, config.lookup_timeout_ms), (30_000, 30_000));
    assert_eq!((config.open_timeout_ms, config.close_timeout_ms), (0, 0));
    assert_eq!(config.data_dir_shard_bytes, 3);
    assert_eq!((config.trans_concurrency, config.lookup_concurrency), (128, 16));
    assert_eq!((config.open_concurrency, config.commit_concurrency), (32, 4));
    assert_eq!((config.max_queued_shards, config.buffer_mb_max), (1_048_576, 1024));
    assert!(config.cpu_affinity_cores.is_empty() && config.health_cores.is_empty());
    assert!(config.health.enabled);
    assert_eq!((config.health.interval.as_secs(), config.health.timeout.as_secs()), (10, 3));
    assert_eq!((config.health.window, config.health.threshold), (HEALTH_WINDOW, 2));
    assert_eq!(config.startup_policy, StartupPolicy::All);
    assert!(!config.require_same_storage && config.create_storage);
    assert_eq!(config.commit_policy, CommitPolicy::AllShards);
    assert_eq!(config.commit_sync, CommitSync::AsPathsRun);
    assert_eq!(config.buffer_mode, BufferMode::Isolated);
    assert_eq!(config.failure_scope, FailureScope::Path);
    assert!(config.verify_mount && config.metadata_time_limits);
    assert!(!config.io_direct_fallback && !config.quarantine && !config.strict);
    assert!(!config.lookup_checks_size);
    assert_eq!(config.temp_ttl_s, 3600);
    assert_eq!((config.dir_mode, config.file_mode), (0o774, 0o644));
    assert!(config.warnings.is_empty());
}

#[test]
fn r80_defaults() {
    let config = accepted(&lookups(&json!({})));
    let value = |key: &str| config.effective[key]["value"].clone();
    assert_eq!(value("posix_gc_enable"), true);
    assert_eq!(value("posix_capacity_gb"), 0.0);
    assert_eq!(value("posix_gc_recycle_percent"), 0.1);
    assert_eq!(value("posix_gc_precise_mode"), true);
    assert_eq!(value("posix_gc_candidate_extra_percent"), 0.1);
    assert_eq!(value("posix_gc_concurrency"), 16);
    assert_eq!(value("posix_gc_check_interval_sec"), 30);
    assert_eq!(value("posix_gc_trigger_threshold_ratio"), 0.7);
    assert_eq!(value("posix_gc_max_recycle_count_per_shard"), 50_000);
    assert_eq!(value("posix_gc_shard_sample_ratio"), 0.1);
    assert_eq!(value("posix_gc_task_timeout_ms"), 300_000);
    assert_eq!(value("posix_gc_cross_instance_lock"), true);
    assert_eq!(value("posix_gc_heartbeat_interval_sec"), 7);
    assert_eq!(value("posix_gc_stale_threshold_sec"), 60);
    assert_eq!(value("reserve_free_percent"), 0.0);
    assert_eq!(value("quarantine_ttl_s"), 604_800);
}

#[test]
fn r1_device_id_says_the_role() {
    let role = |more: Value| {
        let config = accepted(&lookups(&more));
        (config.device_id, config.transfers, config.shape)
    };
    let shape =
        |tensor_bytes, shard_bytes, block_bytes| Shape { tensor_bytes, shard_bytes, block_bytes };
    assert_eq!(role(json!({})), (-1, false, None));
    let all = json!({ "tensor_size": 2, "shard_size": 4, "block_size": 8 });
    assert_eq!(role(all.clone()), (0, true, Some(shape(2, 4, 8))));
    assert_eq!(role(merged(all.clone(), &json!({ "device_id": 3 }))).0, 3);
    let off = json!({ "device_id": -1 });
    assert_eq!(role(merged(all, &off)), (-1, false, Some(shape(2, 4, 8))));
    // Without device_id, a missing shard_size means lookups only, whatever else is there.
    assert_eq!(role(json!({ "block_size": 8 })), (-1, false, Some(shape(8, 8, 8))));
    let two = json!({ "tensor_size": 2, "block_size": 8 });
    assert_eq!(role(two), (-1, false, Some(shape(2, 8, 8))));
    let two = json!({ "device_id": -1, "shard_size": 4, "block_size": 8 });
    assert_eq!(role(two), (-1, false, Some(shape(4, 4, 8))));
    let two = json!({ "device_id": -1, "tensor_size": 2, "shard_size": 4 });
    assert_eq!(role(two), (-1, false, None));
}

#[test]
fn r43_auto_is_resolved_by_io_direct() {
    let sync = |more: Value| {
        let config = accepted(&lookups(&more));
        (config.commit_sync, config.effective["commit_sync"]["origin"].clone())
    };
    let direct = json!("derived from io_direct; data on a buffered path");
    assert_eq!(sync(json!({})), (CommitSync::AsPathsRun, direct));
    let buffered = json!({ "io_direct": false, "commit_sync": "auto" });
    assert_eq!(sync(buffered), (CommitSync::Data, json!("derived from io_direct")));
    let given = json!({ "io_direct": false, "commit_sync": "none" });
    assert_eq!(sync(given), (CommitSync::None, json!("config")));
    assert_eq!(sync(json!({ "commit_sync": "full" })).0, CommitSync::Full);
}

#[test]
fn r1_lookup_timeout_is_timeout_ms_unless_given() {
    let limits = |more: Value| {
        let config = accepted(&lookups(&more));
        let origin = config.effective["lookup_timeout_ms"]["origin"].clone();
        (config.timeout_ms, config.lookup_timeout_ms, origin)
    };
    assert_eq!(limits(json!({ "timeout_ms": 7 })), (7, 7, json!("derived from timeout_ms")));
    let both = json!({ "timeout_ms": 7, "lookup_timeout_ms": 0 });
    assert_eq!(limits(both), (7, 0, json!("config")));
}

#[test]
fn r92_effective_has_every_key_with_its_origin() {
    for config in [accepted(&transfers(&json!({}))), accepted(&lookups(&json!({})))] {
        let effective = config.effective.as_object().unwrap();
        let mut known: Vec<&str> = KEYS.to_vec();
        known.sort_unstable();
        assert_eq!(effective.keys().collect::<Vec<_>>(), known);
        for (key, entry) in effective {
            let origin = entry["origin"].as_str().unwrap();
            assert!(
                ["default", "config"].contains(&origin) || origin.starts_with("derived from "),
                "{key}: {origin}"
            );
            assert!(entry.get("value").is_some(), "{key}");
        }
    }
    let config = accepted(&lookups(&json!({ "timeout_ms": 30_000, "block_size": 4096 })));
    let entry = |key: &str| config.effective[key].clone();
    assert_eq!(entry("timeout_ms"), json!({ "value": 30_000, "origin": "config" }));
    assert_eq!(entry("io_direct"), json!({ "value": true, "origin": "default" }));
    let device = json!({ "value": -1, "origin": "derived from shard_size" });
    assert_eq!(entry("device_id"), device);
    let tensor = json!({ "value": 4096, "origin": "derived from block_size" });
    assert_eq!(entry("tensor_size"), tensor);
    assert_eq!(entry("storage_backends"), json!({ "value": ["/mnt/a/"], "origin": "config" }));
    assert_eq!(entry("dir_mode"), json!({ "value": "0774", "origin": "default" }));
}

#[test]
fn r80_a_capacity_that_never_collects_is_refused_with_the_least_that_does() {
    let with = |gb: Value| transfers(&json!({ "posix_capacity_gb": gb, "block_size": 1 << 20 }));
    // 10 blocks of a trigger of 0.7 × 15 make one block of a round of 0.1.
    let least = 15.0 / 1024.0;
    let text = refused(Status::InvalidParam, &with(json!(0.001)));
    assert!(text.contains("posix_capacity_gb is 0.001"), "{text}");
    let named = text.split("at least ").nth(1).and_then(|rest| rest.split(' ').next());
    let named: f64 = named.unwrap().parse().unwrap();
    assert!((least..least + 2e-6).contains(&named), "{named}, not {least}");
    let config = accepted(&with(json!(named)));
    assert_eq!(config.collection.capacity.unwrap().trigger, 10);
    refused(Status::InvalidParam, &with(json!(named - 2e-6)));
    assert_eq!(accepted(&with(json!(0))).collection.capacity, None);
    let off = json!({ "posix_capacity_gb": 1e-9, "posix_gc_enable": false });
    assert_eq!(accepted(&transfers(&off)).collection.capacity, None);
    refused_with(
        &lookups(&json!({ "posix_capacity_gb": 100 })),
        &["block_size", "posix_capacity_gb"],
    );
    let sized = json!({ "posix_capacity_gb": 100, "block_size": 1 << 20 });
    assert!(accepted(&lookups(&sized)).collection.capacity.is_some());
}

#[test]
fn r1_a_pipeline_dictionary_passes_through() {
    let config = accepted(&json!({
        "storage_backends": "/mnt/path0:/mnt/path1:/mnt/path2", "device_id": 2,
        "tensor_size": 32768, "shard_size": 65536, "block_size": 1_048_576,
        "posix_io_engine": "psync", "io_direct": true, "timeout_ms": 30000,
        "data_dir_shard_bytes": 3, "posix_data_trans_concurrency": 128,
        "posix_lookup_concurrency": 16, "posix_open_concurrency": 32,
        "posix_commit_concurrency": 4, "cpu_affinity_cores": [],
        "store_health": {
            "enabled": true, "health_check_interval_s": 10, "health_check_timeout_s": 3,
            "health_window_size": 8, "failure_threshold": 2,
        },
        "posix_gc_enable": true, "posix_capacity_gb": 0, "posix_gc_recycle_percent": 0.2,
        "posix_gc_precise_mode": false, "posix_gc_candidate_extra_percent": 0.2,
        "posix_gc_concurrency": 8, "posix_gc_check_interval_sec": 60,
        "posix_gc_trigger_threshold_ratio": 0.8, "posix_gc_max_recycle_count_per_shard": 100,
        "posix_gc_shard_sample_ratio": 0.5, "posix_gc_task_timeout_ms": 0,
        "posix_gc_cross_instance_lock": false, "posix_gc_heartbeat_interval_sec": 5,
        "posix_gc_stale_threshold_sec": 90,
    }));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    assert_eq!(config.backends.len(), 3);
    assert_eq!(config.device_id, 2);
}

/// Run by the next test in processes of its own, because the environment belongs to the whole
/// process.
#[test]
#[ignore = "run by r57_the_environment_is_read_at_open"]
fn child_tells_affinity() {
    let wanted = std::env::var("WANTED").unwrap();
    assert_eq!(accepted(&lookups(&json!({}))).vllm_affinity.to_string(), wanted);
}

#[test]
fn r57_the_environment_is_read_at_open() {
    let run = |value: Option<&str>, wanted: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "config::tests::defaults::child_tells_affinity", "--ignored"]);
        child.env_remove("VLLM_CPU_AFFINITY").env("WANTED", wanted);
        child.envs(value.map(|value| ("VLLM_CPU_AFFINITY", value)));
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{value:?}: {text}");
    };
    run(Some("1"), "true");
    run(Some("0"), "false");
    run(Some(""), "false");
    run(Some("true"), "false");
    run(None, "false");
}
