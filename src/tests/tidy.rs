//! The house rules that a program can check (CONTRIBUTING.md): sizes, first lines, floors, where
//! `unsafe` and the clock may be, words.

use std::fs;
use std::path::{Path, PathBuf};

const MAX_FILE_LINES: usize = 400;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_LINE_COLUMNS: usize = 100;

/// A floor and the floors that it may name.
const FLOORS: [(&str, &[&str]); 6] = [
    ("ffi", &["store", "posix::fork", "posix::aligned", "engine::Segment", "engine::memory"]),
    ("store", &["engine", "health", "reclaim"]),
    ("engine", &["posix"]),
    ("health", &["posix"]),
    ("posix", &[]),
    ("reclaim", &[]),
];

/// Words that have a better one in the glossary.
const BAD_WORDS: [&str; 4] = ["utils", "helper function", "TODO", "FIXME"];

struct Source {
    path: PathBuf,
    text: String,
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    collect(&root, &mut found);
    assert!(found.len() > 40, "the sources were found");
    found
}

fn collect(dir: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push(Source { path, text });
        }
    }
}

impl Source {
    /// "store/core.rs".
    fn name(&self) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        self.path.strip_prefix(root).unwrap().to_string_lossy().into_owned()
    }

    /// Whether the whole file is test code.
    fn is_test(&self) -> bool {
        let name = self.name();
        ["test", "sim", "conformance", "model", "scratch", "health/observe"]
            .iter()
            .any(|word| name.contains(word))
    }

    /// The lines before the test module, comments left out.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line));
        lines
            .take_while(|(_, line)| {
                !line.starts_with("#[cfg(test)]\nmod tests") && *line != "mod tests {"
            })
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

fn report(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn rule_1_every_file_says_what_it_is_for_and_is_short() {
    let mut problems = Vec::new();
    for source in sources() {
        let name = source.name();
        if !source.text.starts_with("//!") {
            problems.push(format!("{name}: does not begin with //!"));
        }
        let lines = source.text.lines().count();
        if lines > MAX_FILE_LINES {
            problems.push(format!("{name}: {lines} lines, at most {MAX_FILE_LINES}"));
        }
        for (at, line) in source.text.lines().enumerate() {
            if line.chars().count() > MAX_LINE_COLUMNS {
                problems.push(format!("{name}:{}: over {MAX_LINE_COLUMNS} columns", at + 1));
            }
        }
    }
    report(problems);
}

#[test]
fn rule_1_functions_are_short() {
    let mut problems = Vec::new();
    for source in sources() {
        let mut start: Option<(usize, usize, String)> = None;
        for (at, line) in source.text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let words = line.trim_start();
            let begins = ["fn ", "pub fn ", "pub(super) fn ", "pub unsafe extern", "pub extern"];
            if start.is_none() && begins.iter().any(|word| words.starts_with(word)) {
                start = Some((at, indent, words.to_string()));
            }
            if let Some((from, depth, what)) = &start
                && indent == *depth
                && (words == "}" || (from == &at && words.ends_with('}')))
            {
                if at - from + 1 > MAX_FUNCTION_LINES {
                    problems.push(format!("{}:{}: {what}", source.name(), from + 1));
                }
                start = None;
            }
        }
    }
    report(problems);
}

#[test]
fn floors_call_down_only() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let name = source.name();
        let Some((floor, allowed)) = FLOORS.iter().find(|(floor, _)| name.starts_with(floor))
        else {
            continue;
        };
        for (at, line) in source.code() {
            for (other, _) in FLOORS.iter().filter(|(other, _)| other != floor) {
                let named = format!("crate::{other}");
                let Some(position) = line.find(&named) else { continue };
                let rest = &line[position + "crate::".len()..];
                let brought = rest.starts_with("posix::{aligned, fork}");
                if !brought && !allowed.iter().any(|way| rest.starts_with(way)) {
                    problems.push(format!("{name}:{at}: {floor} must not name {rest}"));
                }
            }
        }
    }
    report(problems);
}

#[test]
fn rule_7_unsafe_stays_where_it_belongs() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let name = source.name();
        let at_home = ["ffi/", "engine/", "posix/"].iter().any(|home| name.starts_with(home));
        for (at, line) in source.code() {
            if !at_home && line.contains("unsafe ") {
                problems.push(format!("{name}:{at}: unsafe outside ffi, engine, posix"));
            }
        }
    }
    report(problems);
}

#[test]
fn the_clock_is_read_in_one_place() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        for (at, line) in source.code() {
            if line.contains("Instant::now()") && source.name() != "clock.rs" {
                problems.push(format!("{}:{at}: Instant::now() outside clock.rs", source.name()));
            }
        }
    }
    report(problems);
}

#[test]
fn the_store_names_no_system_call() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        if !source.name().starts_with("store/") {
            continue;
        }
        for (at, line) in source.code() {
            for word in ["std::fs", "libc::open", "nix::", "std::thread::spawn", "thread::sleep"] {
                if line.contains(word) {
                    problems.push(format!("{}:{at}: {word}", source.name()));
                }
            }
        }
    }
    report(problems);
}

#[test]
fn rule_10_words() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| !source.name().ends_with("tidy.rs")) {
        for (at, line) in source.text.lines().enumerate() {
            for word in BAD_WORDS {
                if line.contains(word) {
                    problems.push(format!("{}:{}: {word:?}", source.name(), at + 1));
                }
            }
        }
    }
    report(problems);
}

/// Every id of docs/messages.md has a level, a meaning and what to do about it, and exists.
#[test]
fn every_documented_message_says_what_it_means_and_what_to_do() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/messages.md");
    let docs = fs::read_to_string(path).unwrap();
    let all = sources();
    let mut problems = Vec::new();
    let mut last = String::new();
    for row in docs.lines().filter(|line| line.starts_with("| KV")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, levels, meaning, action] = cells[..] else {
            problems.push(format!("not four cells: {row}"));
            continue;
        };
        let is_level = |word| crate::log::Level::ALL.iter().any(|level| level.word() == word);
        if !levels.split(", ").all(is_level) {
            problems.push(format!("{id}: {levels} is no level"));
        }
        if meaning.len() < 10 || action.len() < 5 {
            problems.push(format!("{id}: no meaning, or nothing to do"));
        }
        let spoken = format!("\"{id}\"");
        if !all.iter().filter(|source| !source.is_test()).any(|s| s.text.contains(&spoken)) {
            problems.push(format!("{id}: nobody says it"));
        }
        if id <= last.as_str() {
            problems.push(format!("{id}: not in order"));
        }
        last = id.to_owned();
    }
    assert!(!last.is_empty(), "the rows were found");
    report(problems);
}

#[test]
fn every_message_is_in_the_docs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/messages.md");
    let docs = fs::read_to_string(path).unwrap();
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        for (at, line) in source.code() {
            for part in line.split("\"KV").skip(1) {
                let id: String = part.chars().take_while(char::is_ascii_digit).collect();
                if id.len() == 4 && !docs.contains(&format!("KV{id}")) {
                    problems
                        .push(format!("{}:{at}: KV{id} is not in docs/messages.md", source.name()));
                }
            }
        }
    }
    report(problems);
}
