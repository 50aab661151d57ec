//! The table `ctest/ha/CASES.md`: every case that it names is there, and every case of `ctest/ha/`
//! is named.

use std::collections::BTreeSet;
use std::path::Path;

/// The names alone.
pub(super) fn named_cases(directory: &str) -> BTreeSet<String> {
    let names = cases(directory);
    names.iter().filter_map(|case| Some(case.split_once('.')?.1.to_owned())).collect()
}

/// `file.name` of each `CASE(name)` in the `*_test.c` of a directory below `ctest/`.
pub(super) fn cases(directory: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("ctest").join(directory);
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(file) = name.strip_suffix("_test.c") else { continue };
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let case = line.strip_prefix("CASE(").and_then(|rest| rest.split(')').next());
            found.extend(case.map(|case| format!("{file}.{case}")));
        }
    }
    found
}

/// What stands in the second column of the table's rows.
fn named() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ctest/ha/CASES.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what"));
    let cells = rows.filter_map(|row| row.trim_end_matches(['|', ' ']).rsplit('|').next());
    cells.flat_map(str::split_whitespace).filter(|word| *word != "---").map(str::to_owned).collect()
}

#[test]
fn every_requirement_has_its_case_and_every_case_its_requirement() {
    let (named, here) = (named(), cases("ha"));
    let mut all = here.clone();
    all.extend(cases("."));
    assert!(here.len() > 50, "the cases are found at all: {here:?}");
    let missing: Vec<_> = named.difference(&all).collect();
    assert!(missing.is_empty(), "named, but not there: {missing:?}");
    let unnamed: Vec<_> = here.difference(&named).collect();
    assert!(unnamed.is_empty(), "not named: {unnamed:?}");
}
