//! Tests of the configuration: R1–R3, R80, R85, R86 by the letter.

mod defaults;
mod keys;
mod paths;
mod text;

use serde_json::{Value, json};

use super::Config;
use crate::error::{Error, Status};

/// A store for transfers, with `more` keys.
fn transfers(more: &Value) -> Value {
    let base = json!({
        "storage_backends": ["/mnt/a"], "device_id": 0,
        "tensor_size": 4096, "shard_size": 8192, "block_size": 65536,
    });
    merged(base, more)
}

/// A store for lookups, with `more` keys.
fn lookups(more: &Value) -> Value {
    merged(json!({ "storage_backends": ["/mnt/a"] }), more)
}

fn merged(mut base: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

fn parse(value: &Value) -> Result<Config, Error> {
    Config::parse(&value.to_string())
}

fn accepted(value: &Value) -> Config {
    parse(value).unwrap_or_else(|error| panic!("{value}: {error}"))
}

/// The text of the `status` that `value` must give.
fn refused(status: Status, value: &Value) -> String {
    match parse(value) {
        Ok(_) => panic!("accepted: {value}"),
        Err(error) => {
            assert_eq!(error.status, status, "{value}: {error}");
            error.text
        }
    }
}

/// `value` must be refused with a text that has each of `parts`.
fn refused_with(value: &Value, parts: &[&str]) {
    let text = refused(Status::InvalidParam, value);
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
}

/// `{"a.b": v}` as `{"a": {"b": v}}`.
fn nested(key: &str, value: &Value) -> Value {
    match key.split_once('.') {
        Some((outer, inner)) => json!({ outer: { inner: value } }),
        None => json!({ key: value }),
    }
}
