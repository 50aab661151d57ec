//! The committed `include/kvpath.h` is what cbindgen makes of `src/ffi` today, and the structs have
//! the sizes and offsets of `ctest/layout.def`. `KVPATH_BLESS=1 cargo test header` writes it anew.

use std::mem::offset_of;
use std::path::{Path, PathBuf};

use crate::ffi::table::kvpath_api_t;
use crate::ffi::types::{
    kvpath_backend_health_t, kvpath_block_id_t, kvpath_shard_t, kvpath_stats_t,
};

/// What the header declares, in its order. `fault.rs` is not for everybody, and has its own header.
const FILES: [&str; 8] = [
    "status.rs",
    "types.rs",
    "store.rs",
    "guard.rs",
    "task.rs",
    "block.rs",
    "observe.rs",
    "table.rs",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The header as it should be: what Rust calls a safety section is a note on pointers for C, a
/// comment of one line takes one line, and negative numbers stand in parentheses so that they work
/// in any expression.
fn render(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("include/cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in FILES {
        builder = builder.with_src(root.join("src/ffi").join(file));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    let text = String::from_utf8(text).unwrap();
    let text = text.replace(" * # Safety\n * ", " * Pointers: ").replace("\n\n\n", "\n\n");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut polished = String::new();
    let mut at = 0;
    while at < lines.len() {
        let (line, used) = match lines[at..] {
            [open, text, close, ..] if open.ends_with("/**") && close.trim() == "*/" => {
                (format!("{} {} */", open, text.trim().trim_start_matches("* ")), 3)
            }
            _ => (parenthesised(lines[at]), 1),
        };
        polished += &line;
        polished.push('\n');
        at += used;
    }
    polished
}

fn parenthesised(line: &str) -> String {
    match line.split_once(" -") {
        Some((start, number)) if line.starts_with("#define KVPATH_") => {
            format!("{start} (-{number})")
        }
        _ => line.to_string(),
    }
}

#[test]
fn the_committed_header_is_fresh() {
    let path = root().join("include/kvpath.h");
    let fresh = render(&root());
    if std::env::var_os("KVPATH_BLESS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    let differs = fresh.lines().zip(committed.lines()).position(|(a, b)| a != b);
    assert!(
        fresh == committed,
        "include/kvpath.h is stale from line {}; run KVPATH_BLESS=1 cargo test header",
        differs.map_or(fresh.lines().count().min(committed.lines().count()), |at| at) + 1
    );
}

#[test]
fn the_header_shows_nothing_of_the_inside() {
    for line in render(&root()).lines() {
        let mut words = line.split_whitespace();
        let name = match words.next() {
            Some("#define") => words.next().unwrap_or_default(),
            Some("}") => words.next().unwrap_or_default().trim_end_matches(';'),
            _ => continue,
        };
        let ours = name.starts_with("KVPATH_") || name.starts_with("kvpath_");
        assert!(ours || name.is_empty() || name == "//", "{name} does not belong in the header");
    }
}

/// What Rust makes of one line of `ctest/layout.def`.
fn measured(what: &str, of: &str, field: &str) -> Option<usize> {
    macro_rules! measure {
        ($($name:ident { $($field:ident),* })*) => {
            match (what, of, field) {
                $(
                    ("SIZE", stringify!($name), _) => Some(size_of::<$name>()),
                    $(("OFFSET", stringify!($name), stringify!($field)) =>
                        Some(offset_of!($name, $field)),)*
                )*
                _ => None,
            }
        };
    }
    measure! {
        kvpath_block_id_t { bytes }
        kvpath_shard_t { block, index, addr_count, addrs }
        kvpath_backend_health_t {
            size, state, path, since_ms, samples, failures, in_flight, abandoned, direct,
            probe_threads, probes, probe_failures, transitions, last_errno, reserved, last_error
        }
        kvpath_stats_t {
            size, threads, tasks, tasks_finished, loaded_shards, loaded_bytes, dumped_shards,
            dumped_bytes, committed_blocks, lookups, lookup_hits, load_misses, retries, failovers,
            timeouts, late_results, corrupt, removed_blocks, swept_temporaries, expired_blocks,
            closed_generations, dropped_results, queued_shards, in_flight, abandoned,
            unfinished_blocks, hotness_refreshed, hotness_left_out, lookup_misses,
            collected_blocks, collector_passes, sweep_passes, failed_passes, quarantined_files,
            expired_quarantine, estimated_blocks, foreign_names
        }
        kvpath_api_t {
            size, table_version, open, close, set_log_callback, alloc, free, version, abi_version,
            status_name, status_text, last_error, last_detail, load, dump, check, wait,
            wait_results, cancel, forget, finished, event_fd, lookup, lookup_prefix, lookup_last,
            commit, remove, check_health, health, health_json, backend_set, stats, stats_json,
            metrics
        }
    }
}

#[test]
fn rust_lays_the_structs_out_as_ctest_layout_def_says() {
    let table = std::fs::read_to_string(root().join("ctest/layout.def")).unwrap();
    let mut lines = 0;
    for line in table.lines().filter(|line| line.ends_with(')')) {
        let (what, rest) = line.trim_end_matches(')').split_once('(').unwrap();
        let parts: Vec<&str> = rest.split(',').map(str::trim).collect();
        let field = if what == "OFFSET" { parts[1] } else { "" };
        let stated: usize = parts[parts.len() - 1].parse().unwrap();
        assert_eq!(measured(what, parts[0], field), Some(stated), "{line}");
        lines += 1;
    }
    assert!(lines > 80, "only {lines} lines were understood");
}
