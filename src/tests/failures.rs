//! The one table of failures, `ctest/matrix/TABLE.md`: the README shows its rows word by word, each
//! row has a case of its name, or names one of `ctest/ha/` that proves it, and every word and
//! operation of the matrix is there on both sides.
//!
//! With `KVPATH_BLESS=1` the README's rows are written again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::cases::{cases, named_cases};

const HEADER: &str = "| name | state | operation | result |\n| --- | --- | --- | --- |\n";
const ELSEWHERE: &str = "| row | case |\n| --- | --- |\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn table() -> String {
    fs::read_to_string(root().join("ctest/matrix/TABLE.md")).unwrap()
}

/// The rows that follow `header`, from their first byte to their last.
fn rows<'a>(text: &'a str, header: &str) -> &'a str {
    let from = text.find(header).map(|at| at + header.len()).unwrap();
    let to = text[from..].find("\n\n").unwrap();
    &text[from..=from + to]
}

/// The columns of each line.
fn columns(rows: &str) -> Vec<Vec<&str>> {
    rows.lines().map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

fn names() -> BTreeSet<String> {
    let text = table();
    let names = columns(rows(&text, HEADER));
    names.iter().map(|row| row[0].trim_matches('`').to_owned()).collect()
}

#[test]
fn the_readme_shows_the_table_of_failures() {
    let (table, path) = (table(), root().join("README.md"));
    let readme = fs::read_to_string(&path).unwrap();
    let (wanted, shown) = (rows(&table, HEADER), rows(&readme, HEADER));
    if std::env::var("KVPATH_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, readme.replace(shown, wanted)).unwrap();
        return;
    }
    assert!(
        wanted == shown,
        "the README's failure table is not that of ctest/matrix/TABLE.md: change the latter, then \
         KVPATH_BLESS=1 cargo test --lib failures"
    );
}

#[test]
fn every_row_of_failures_has_a_case_of_its_name() {
    let rows: BTreeSet<String> = names().iter().map(|name| name.replace('-', "_")).collect();
    let here = named_cases("rows");
    assert!(rows.len() > 50, "the rows are found at all");
    assert_eq!(here.difference(&rows).collect::<Vec<_>>(), Vec::<&String>::new(), "no row");
    let text = table();
    let (proofs, mut elsewhere) = (cases("ha"), BTreeSet::new());
    for line in columns(self::rows(&text, ELSEWHERE)) {
        assert!(proofs.contains(line[1]), "{}: no case {} in ctest/ha/", line[0], line[1]);
        elsewhere.insert(line[0].trim_matches('`').replace('-', "_"));
    }
    // One proof each, so that none is kept that nobody looks at.
    assert_eq!(rows.difference(&here).collect::<Vec<_>>(), elsewhere.iter().collect::<Vec<_>>());
}

#[test]
fn every_cell_of_the_failure_matrix_is_explained_and_run() {
    let text = table();
    let word_header = text.lines().find(|line| line.starts_with("| word |")).unwrap();
    let grid_header = text.lines().find(|line| line.starts_with("| operation |")).unwrap();
    let words = columns(rows(&text, &format!("{word_header}\n")));
    let grid = columns(rows(&text, &format!("{grid_header}\n")));
    let (words, grid) = (&words[1..], &grid[1..]); // without the rulers
    let faults = columns(grid_header)[0].len();
    let rows = names();
    let mut used = BTreeSet::new();
    for row in grid {
        assert_eq!(row.len(), faults, "{}", row[0]);
        used.extend(row[1..].iter().copied());
    }
    let known: BTreeSet<&str> = words.iter().map(|word| word[0]).collect();
    assert_eq!(used, known, "words that are used, and words that are explained");
    for word in words {
        assert_eq!(word.len(), 6, "{}", word[0]);
        assert!(!word[5].is_empty(), "{}: says what it is, or why it makes no sense", word[0]);
        for row in word[4].split_whitespace().filter(|row| *row != "-") {
            assert!(rows.contains(row), "{}: no row {row}", word[0]);
        }
    }
    let operations: BTreeSet<String> = grid.iter().map(|row| row[0].replace('.', "_")).collect();
    assert_eq!(operations, named_cases("matrix"), "operations, and cases that run them");
}
