//! R2: what the text itself may be: JSON, an object, without duplicates; and unknown keys.

use serde_json::{Value, json};

use super::super::Config;
use super::super::limits::{KEYS, TEXT_BYTES_MAX, UNKNOWN_KEYS_TOLD_MAX};
use super::{accepted, lookups, nested, refused_with};
use crate::error::Status;

/// `text` must be refused, with each of `parts`, in one line of bounded length.
fn refuse(text: &str, parts: &[&str]) {
    let error = Config::parse(text).expect_err(text);
    assert_eq!(error.status, Status::InvalidParam);
    for part in parts {
        assert!(error.text.contains(part), "no {part:?} in {:?}", error.text);
    }
    assert!(error.text.chars().count() < 500, "{}", error.text);
    assert!(!error.text.contains(['\n', '\0']), "{:?}", error.text);
}

#[test]
fn r2_what_is_no_object_is_refused() {
    refuse("", &["empty", "a JSON object"]);
    refuse(" \n\t ", &["empty", "a JSON object"]);
    for text in ["nonsense", "{", "{]", "{\"a\":1,}", "{'a':1}", "{} x", "\u{feff}{}", "\0", "{\"a"]
    {
        refuse(text, &["not valid JSON", "line 1"]);
    }
    for text in ["[1,2]", "null", "true", "8", "\"/mnt/a\""] {
        refuse(text, &[text, "must be a JSON object"]);
    }
    refuse("{\"timeout_ms\": 1e999}", &["not valid JSON", "out of range"]);
    refuse("{\"timeout_ms\": NaN}", &["not valid JSON"]);
}

#[test]
fn r2_large_and_deep_texts_are_told_apart_without_harm() {
    let mut large = lookups(&json!({})).to_string();
    large.push_str(&" ".repeat(TEXT_BYTES_MAX - large.len()));
    assert!(Config::parse(&large).is_ok());
    large.push(' ');
    refuse(&large, &["1048577 bytes", "at most 1048576"]);
    let deep = TEXT_BYTES_MAX / 8;
    refuse(&"[".repeat(deep), &["not valid JSON", "recursion limit"]);
    refuse(&"{\"a\":".repeat(deep), &["not valid JSON", "recursion limit"]);
    let keys: Vec<String> = (0..50_000).map(|at| format!("\"k{at}\":{at}")).collect();
    let warnings = Config::parse(&format!("{{\"storage_backends\":\"/a\",{}}}", keys.join(",")));
    let warnings = warnings.unwrap().warnings;
    assert_eq!(warnings.len(), UNKNOWN_KEYS_TOLD_MAX + 1);
    assert!(warnings[UNKNOWN_KEYS_TOLD_MAX].contains("49968 more unknown keys"));
    let long = format!("{{\"timeout_ms\":\"{}\"}}", "ä".repeat(100_000));
    refuse(&long.replace('{', "{\"storage_backends\":\"/a\","), &["timeout_ms", "ä", "…"]);
    refuse("{\"strict\":true,\"\\n\\u0000x\":1}", &["unknown key", "\"\\n\\u0000x\""]);
    let name = "k".repeat(500_000);
    refuse(&format!("{{\"{name}\":1,\"{name}\":2}}"), &["kkk", "…", "only once"]);
}

#[test]
fn r2_a_duplicate_of_any_key_is_an_error() {
    for key in KEYS {
        let inner = key.rsplit('.').next().unwrap();
        let pair = format!("\"{inner}\":1,\"{inner}\":null");
        let text = match key.split_once('.') {
            Some((outer, _)) => format!("{{\"storage_backends\":\"/a\",\"{outer}\":{{{pair}}}}}"),
            None => format!("{{{pair}}}"),
        };
        refuse(&text, &[&format!("{key} is 1 and null"), "only once"]);
    }
    let twice = "{\"store_health\":{},\"store_health\":{\"enabled\":true}}";
    refuse(twice, &["store_health is {} and {\"enabled\":true}", "only once"]);
    refuse("{\"a\":[{\"b\":{\"c\":\"x\",\"c\":2}}]}", &["a.b.c is \"x\" and 2", "only once"]);
    refuse("{\"strict\":true,\"str\\u0069ct\":true}", &["strict is true and true", "only once"]);
}

#[test]
fn r2_an_unknown_key_is_a_warning_with_the_nearest_name() {
    for (key, nearest) in [
        ("timeot_ms", "timeout_ms"),
        ("storage_backend", "storage_backends"),
        ("store_health.failure_treshold", "store_health.failure_threshold"),
        ("health_window_size", "store_health.health_window_size"),
        ("ENABLED", "store_health.enabled"),
        ("posix_gc_enabled", "posix_gc_enable"),
        ("", ""),
        ("😀", ""),
        ("unique_id", ""),
    ] {
        let config = accepted(&lookups(&nested(key, &json!(1))));
        let [warning] = &config.warnings[..] else { panic!("{key}: {:?}", config.warnings) };
        let starts =
            format!("configuration: unknown key \"{key}\"; the nearest known key is {nearest}");
        assert!(warning.starts_with(&starts), "{warning}");
        let name = warning.rsplit("nearest known key is ").next().unwrap();
        assert!(KEYS.contains(&name.split(' ').next().unwrap()), "{warning}");
    }
}

#[test]
fn r2_an_unknown_key_is_an_error_when_strict() {
    let strict = |more: Value| lookups(&super::merged(json!({ "strict": true }), &more));
    accepted(&strict(json!({ "timeout_ms": 1 })));
    refused_with(&strict(json!({ "timeot_ms": 1 })), &["\"timeot_ms\"", "timeout_ms", "strict"]);
    let inner = json!({ "store_health": { "enable": true } });
    refused_with(&strict(inner), &["\"store_health.enable\"", "store_health.enabled", "strict"]);
    let off = json!({ "strict": false, "timeot_ms": 1 });
    assert_eq!(accepted(&lookups(&off)).warnings.len(), 1);
}

#[test]
fn r2_a_dotted_name_is_not_a_nested_one() {
    let config = Config::parse("{\"storage_backends\":\"/a\",\"store_health.enabled\":false}");
    let config = config.unwrap();
    assert!(config.health.enabled);
    assert_eq!(config.warnings.len(), 1);
    assert!(config.warnings[0].ends_with("store_health.enabled (in the object store_health)"));
}
