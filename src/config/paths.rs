//! `storage_backends`: the roots, normalised (R3).

use std::collections::HashSet;

use serde_json::Value;

use super::json::shown;
use super::limits::{BACKENDS_MAX, PATH_BYTES_MAX};
use super::reader::{Reader, wrong};
use crate::error::Error;

const KEY: &str = "storage_backends";
const RULE: &str = "a list of absolute paths, or one string of them separated by \":\"";

/// The backends in their order, each an absolute path with one trailing `/`, none twice.
pub fn read(reader: &mut Reader) -> Result<Vec<String>, Error> {
    let given: Vec<String> = match reader.given(KEY) {
        None => return Err(wrong(KEY, "absent", RULE)),
        Some(Value::String(text)) => text.split(':').map(str::to_string).collect(),
        Some(Value::Array(list)) => {
            let paths = list.iter().map(|element| match element {
                Value::String(path) => Ok(path.clone()),
                other => {
                    let whole = reader.given(KEY).map(shown).unwrap_or_default();
                    Err(wrong(KEY, format!("{whole}, with {}", shown(other)), RULE))
                }
            });
            paths.collect::<Result<_, Error>>()?
        }
        Some(other) => return Err(wrong(KEY, shown(other), RULE)),
    };
    if given.is_empty() {
        return Err(wrong(KEY, "[]", format!("{RULE}; at least one")));
    }
    let mut seen = HashSet::new();
    let mut backends = Vec::new();
    for path in &given {
        let normal = normalise(path)?;
        if seen.insert(normal.clone()) {
            backends.push(normal);
        }
    }
    if backends.len() > BACKENDS_MAX {
        let count = format!("a list of {} different paths", backends.len());
        return Err(wrong(KEY, count, format!("{RULE}; at most {BACKENDS_MAX}")));
    }
    reader.note(KEY, backends.clone(), "config");
    Ok(backends)
}

/// `//` and `/./` folded and one trailing `/`; `..` stays, because it may lead through a symbolic
/// link.
fn normalise(path: &str) -> Result<String, Error> {
    let refuse = |must: String| {
        let given = format!("{} among its paths", shown(&Value::String(path.to_string())));
        Err(Error::invalid(format!("configuration: {KEY} has {given}, but {must}")))
    };
    if path.is_empty() {
        return refuse("a path may not be empty".into());
    }
    if !path.starts_with('/') {
        return refuse("a path must be absolute".into());
    }
    if path.contains('\0') {
        return refuse("a path may not contain NUL".into());
    }
    if path.len() > PATH_BYTES_MAX {
        return refuse(format!("a path may have at most {PATH_BYTES_MAX} bytes"));
    }
    let mut normal = String::from("/");
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        normal.push_str(part);
        normal.push('/');
    }
    Ok(normal)
}
