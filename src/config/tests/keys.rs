//! Every key: absent, null, of each wrong type, at both ends of its range and beyond them.

use serde_json::{Value, json};

use super::super::limits::{
    BUFFER_MB_MAX, CONCURRENCY_MAX, CORES, DEVICE_MAX, GC_RECYCLE_COUNT_MAX, HEALTH_WINDOW_MAX,
    KEYS, QUEUED_SHARDS_MAX, SIZE_MAX, TIME_MS_MAX, TIME_S_MAX,
};
use super::{Config, accepted, lookups, merged, nested, refused_with, transfers};

/// What a key takes.
enum Takes {
    Whole(i128, i128),
    /// Numbers that are just inside and just outside.
    Number(&'static [f64], &'static [f64]),
    Flag,
    Words(&'static [&'static str]),
    Cores,
    Mode,
    Paths,
}

fn whole(least: i128, most: impl TryInto<i128>) -> Takes {
    Takes::Whole(least, most.try_into().ok().unwrap())
}

fn takes(key: &str) -> Takes {
    const SHARE: Takes = Takes::Number(&[1e-9, 1.0], &[0.0, -0.1, 1.000_001]);
    match key {
        "storage_backends" => Takes::Paths,
        "device_id" => whole(-1, DEVICE_MAX),
        "tensor_size" | "shard_size" | "block_size" => whole(1, SIZE_MAX),
        "posix_io_engine" => Takes::Words(&["auto", "psync", "aio", "io_uring"]),
        "timeout_ms"
        | "lookup_timeout_ms"
        | "open_timeout_ms"
        | "close_timeout_ms"
        | "posix_gc_task_timeout_ms" => whole(0, TIME_MS_MAX),
        "data_dir_shard_bytes" => whole(0, 5),
        "posix_data_trans_concurrency"
        | "posix_lookup_concurrency"
        | "posix_open_concurrency"
        | "posix_commit_concurrency"
        | "posix_gc_concurrency" => whole(1, CONCURRENCY_MAX),
        "max_queued_shards" => whole(1, QUEUED_SHARDS_MAX),
        "buffer_mb_max" => whole(1, BUFFER_MB_MAX),
        "cpu_affinity_cores" | "health_cores" => Takes::Cores,
        "store_health.health_check_interval_s" => Takes::Number(&[3.001, 9e9], &[0.0, -1.0, 9.1e9]),
        "store_health.health_check_timeout_s" => Takes::Number(&[1e-12, 9.99], &[0.0, -1.0, 10.0]),
        "store_health.health_window_size" => whole(2, HEALTH_WINDOW_MAX),
        "store_health.failure_threshold" => whole(1, 8),
        "posix_capacity_gb" => Takes::Number(&[0.0, 0.5, 8e9], &[-1.0, 8.1e9]),
        "posix_gc_recycle_percent" => Takes::Number(&[1e-9, 0.9], &[0.0, -0.1, 0.91, 1.01]),
        "posix_gc_candidate_extra_percent" => Takes::Number(&[1e-9, 0.9], &[0.0, 0.91, 1.0]),
        "posix_gc_trigger_threshold_ratio" | "posix_gc_shard_sample_ratio" => SHARE,
        "posix_gc_check_interval_sec" => whole(1, TIME_S_MAX),
        "posix_gc_max_recycle_count_per_shard" => whole(1, GC_RECYCLE_COUNT_MAX),
        "posix_gc_heartbeat_interval_sec" => whole(0, 59),
        "posix_gc_stale_threshold_sec" => whole(0, TIME_S_MAX),
        "reserve_free_percent" => Takes::Number(&[0.0, 0.5, 99.9], &[-1.0, 100.0]),
        "temp_ttl_s" | "quarantine_ttl_s" => whole(1, TIME_S_MAX),
        "startup_policy" => Takes::Words(&["all", "any"]),
        "commit_policy" => Takes::Words(&["all_shards", "last_shard", "explicit"]),
        "commit_sync" => Takes::Words(&["auto", "none", "data", "full"]),
        "buffer_mode" => Takes::Words(&["isolated", "borrowed"]),
        "failure_scope" => Takes::Words(&["path", "any"]),
        "dir_mode" | "file_mode" => Takes::Mode,
        _ => Takes::Flag,
    }
}

/// A configuration in which nothing but the value of `key` can be wrong.
fn with(key: &str, value: &Value) -> Value {
    let own = nested(key, value);
    if key.ends_with("_size") && !key.contains('.') {
        return lookups(&merged(json!({ "device_id": -1 }), &own));
    }
    if key == "device_id" {
        return transfers(&own);
    }
    // Without blocks of a known size there is nothing to collect.
    merged(lookups(&json!({ "posix_gc_enable": false })), &own)
}

fn valid(key: &str, value: &Value) {
    accepted(&with(key, value));
}

fn invalid(key: &str, value: &Value) {
    let shown = value.to_string();
    refused_with(&with(key, value), &[key, &shown, "but must be"]);
}

#[test]
fn r1_every_key_takes_its_range_and_nothing_beyond() {
    for key in KEYS {
        match takes(key) {
            Takes::Whole(least, most) => {
                for inside in [least, most] {
                    valid(key, &json!(i64::try_from(inside).unwrap()));
                }
                invalid(key, &json!(i64::try_from(least - 1).unwrap()));
                invalid(key, &json!(u64::try_from(most + 1).unwrap()));
                invalid(key, &json!(1e300));
                invalid(key, &json!(-1e300));
            }
            Takes::Number(inside, outside) => {
                inside.iter().for_each(|number| valid(key, &json!(number)));
                outside.iter().for_each(|number| invalid(key, &json!(number)));
            }
            Takes::Flag => [true, false].iter().for_each(|flag| valid(key, &json!(flag))),
            Takes::Words(words) => {
                words.iter().for_each(|word| valid(key, &json!(word)));
                ["", "AUTO", "All", "x"].iter().for_each(|word| invalid(key, &json!(word)));
            }
            Takes::Cores => {
                valid(key, &json!([]));
                valid(key, &json!([0, 1.0, CORES - 1]));
                for list in [json!([0, CORES]), json!([-1]), json!([0.5]), json!(["1"])] {
                    invalid(key, &list);
                }
                invalid(key, &json!([true]));
                invalid(key, &json!([null]));
                refused_with(&with(key, &json!(vec![0; CORES + 1])), &[key, "1024", "[0,0,0"]);
            }
            Takes::Mode | Takes::Paths => {}
        }
    }
}

#[test]
fn r2_every_key_refuses_every_wrong_type() {
    let samples = [json!(true), json!("8"), json!(8.5), json!([8]), json!({ "a": 8 }), json!(8)];
    for key in KEYS {
        let takes = takes(key);
        for sample in &samples {
            let right = match takes {
                Takes::Whole(..) => sample == &json!(8),
                Takes::Number(..) => sample.is_number(),
                Takes::Flag => sample.is_boolean(),
                Takes::Words(_) => false,
                Takes::Cores => sample.is_array(),
                // 8 is a number, but no mode that gives its owner access.
                Takes::Mode => false,
                Takes::Paths => sample == &json!("8"),
            };
            if !right {
                invalid(key, sample);
            }
        }
    }
}

#[test]
fn r2_a_null_is_as_if_the_key_were_absent() {
    let without = accepted(&lookups(&json!({})));
    for key in KEYS.iter().filter(|key| **key != "storage_backends") {
        assert_eq!(accepted(&lookups(&nested(key, &Value::Null))), without, "{key}");
    }
    assert_eq!(accepted(&lookups(&json!({ "store_health": null }))), without);
    assert_eq!(accepted(&lookups(&json!({ "store_health": {} }))), without);
    assert_eq!(accepted(&lookups(&json!({ "whatever": null, "strict": null }))), without);
    let absent = ["storage_backends", "absent", "a list of absolute paths"];
    refused_with(&json!({ "storage_backends": null }), &absent);
    refused_with(&json!({}), &absent);
}

#[test]
fn r2_eight_point_zero_is_an_integer() {
    let config = accepted(&lookups(&json!({
        "timeout_ms": 8.0, "data_dir_shard_bytes": 0.0, "posix_lookup_concurrency": 1e3,
        "device_id": -1.0, "close_timeout_ms": -0.0,
    })));
    assert_eq!(
        (config.timeout_ms, config.data_dir_shard_bytes, config.lookup_concurrency),
        (8, 0, 1000)
    );
    assert_eq!((config.device_id, config.close_timeout_ms), (-1, 0));
}

#[test]
fn r1_the_sizes_are_required_where_transfers_are_on() {
    for missing in ["tensor_size", "shard_size", "block_size"] {
        let mut config = transfers(&json!({}));
        config.as_object_mut().unwrap().remove(missing);
        refused_with(&config, &[missing, "absent", "an integer from 1", "device_id is 0"]);
    }
    // Without device_id, shard_size says that transfers are on.
    let config = lookups(&json!({ "shard_size": 8, "tensor_size": 8 }));
    refused_with(&config, &["block_size", "absent", "derived from shard_size"]);
}

#[test]
fn r1_sizes_divide_each_other() {
    fn sizes(tensor: u64, shard: u64, block: u64) -> Value {
        json!({ "tensor_size": tensor, "shard_size": shard, "block_size": block })
    }
    for role in [transfers, lookups] {
        refused_with(
            &role(&sizes(3, 10, 20)),
            &["shard_size is 10", "a multiple of tensor_size, 3"],
        );
        refused_with(&role(&sizes(3, 9, 20)), &["block_size is 20", "a multiple of shard_size, 9"]);
        let many = sizes(1, 1, (1 << 20) + 1);
        refused_with(&role(&many), &["shard_size is 1", "block_size / 1048576"]);
        assert_eq!(accepted(&role(&sizes(1, 1, 1 << 20))).shape.unwrap().shards(), 1 << 20);
    }
    let pair = json!({ "device_id": -1, "tensor_size": 3, "block_size": 10 });
    refused_with(&lookups(&pair), &["block_size is 10", "a multiple of tensor_size, 3"]);
    let pair = json!({ "device_id": -1, "tensor_size": 3, "shard_size": 10 });
    refused_with(&lookups(&pair), &["shard_size is 10", "a multiple of tensor_size, 3"]);
}

#[test]
fn r1_health_keys_hold_against_each_other() {
    let health = |inner: Value| lookups(&json!({ "store_health": inner }));
    refused_with(
        &health(json!({ "health_check_interval_s": 2 })),
        &["store_health.health_check_timeout_s is 3.0 (default)", "less than", "interval_s, 2"],
    );
    refused_with(
        &health(json!({ "health_window_size": 1 })),
        &["store_health.failure_threshold is 2 (default)", "at most", "1"],
    );
    refused_with(
        &health(json!({ "health_window_size": 3, "failure_threshold": 4 })),
        &["store_health.failure_threshold is 4", "store_health.health_window_size, 3"],
    );
    let config = accepted(&health(json!({
        "health_check_interval_s": 0.5, "health_check_timeout_s": 1e-12,
        "health_window_size": 3, "failure_threshold": 3,
    })));
    assert_eq!(config.health.interval.as_millis(), 500);
    assert_eq!(config.health.timeout.as_nanos(), 1);
    assert_eq!((config.health.window, config.health.threshold), (3, 3));
    for (given, shown) in [(json!([1]), "[1]"), (json!(true), "true"), (json!("x"), "\"x\"")] {
        refused_with(&health(given), &["store_health is", shown, "an object"]);
    }
}

#[test]
fn r80_collection_keys_hold_against_each_other() {
    let sum = json!({ "posix_gc_recycle_percent": 0.6, "posix_gc_candidate_extra_percent": 0.41 });
    let parts = ["posix_gc_candidate_extra_percent is 0.41", "posix_gc_recycle_percent, 0.6"];
    refused_with(&lookups(&sum), &parts);
    for tenths in 1..10 {
        let (recycle, extra) = (f64::from(tenths) / 10.0, f64::from(10 - tenths) / 10.0);
        let config = json!({
            "posix_gc_recycle_percent": recycle, "posix_gc_candidate_extra_percent": extra,
        });
        accepted(&lookups(&config));
    }
    for (limit, fine) in [(0, true), (1, false), (999, false), (1000, true)] {
        let config = lookups(&json!({ "posix_gc_task_timeout_ms": limit }));
        match fine {
            true => drop(accepted(&config)),
            false => refused_with(&config, &["posix_gc_task_timeout_ms", "0, or at least 1000"]),
        }
    }
    let beats = json!({ "posix_gc_heartbeat_interval_sec": 60 });
    let parts = ["posix_gc_stale_threshold_sec is 60 (derived from", "interval_sec, 60"];
    refused_with(&lookups(&beats), &parts);
    let beats = json!({ "posix_gc_heartbeat_interval_sec": 9, "posix_gc_stale_threshold_sec": 9 });
    refused_with(&lookups(&beats), &["posix_gc_stale_threshold_sec is 9", "above"]);
    let config = accepted(&lookups(&json!({ "posix_gc_check_interval_sec": 100 })));
    let value = |key: &str| config.effective[key]["value"].clone();
    assert_eq!(value("posix_gc_heartbeat_interval_sec"), 25);
    assert_eq!(value("posix_gc_stale_threshold_sec"), 200);
}

#[test]
fn r9_modes_are_octal_strings_or_their_number() {
    let modes = |dir: Value, file: Value| lookups(&json!({ "dir_mode": dir, "file_mode": file }));
    let read = |config: &Config| (config.dir_mode, config.file_mode);
    assert_eq!(read(&accepted(&modes(json!("0770"), json!("600")))), (0o770, 0o600));
    assert_eq!(read(&accepted(&modes(json!(0o2775), json!(0o777)))), (0o2775, 0o777));
    assert_eq!(read(&accepted(&modes(json!("0o7777"), json!("0664")))), (0o7777, 0o664));
    // 774 as a number is not what was meant, 0574 would lock the store out, and so on.
    for dir in [json!(774), json!("0574"), json!("010777"), json!("+774"), json!("89"), json!("")] {
        let shown = dir.to_string();
        refused_with(&modes(dir, Value::Null), &["dir_mode", &shown, "\"0774\"", "508"]);
    }
    for file in [json!(644), json!("0444"), json!("01644"), json!(-1), json!([])] {
        let shown = file.to_string();
        refused_with(&modes(Value::Null, file), &["file_mode", &shown, "\"0644\"", "420"]);
    }
}
