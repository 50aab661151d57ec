//! R3: `storage_backends`.

use serde_json::{Value, json};

use super::{accepted, refused_with};

fn backends(given: &Value) -> Vec<String> {
    accepted(&json!({ "storage_backends": given })).backends
}

fn refuse(given: &Value, parts: &[&str]) {
    refused_with(&json!({ "storage_backends": given }), parts);
}

#[test]
fn r3_paths_are_normalised() {
    for (given, normal) in [
        ("/mnt/a", "/mnt/a/"),
        ("/mnt/a/", "/mnt/a/"),
        ("//mnt///a//", "/mnt/a/"),
        ("/./mnt/././a/.", "/mnt/a/"),
        ("/mnt/x/../a", "/mnt/x/../a/"),
        ("/mnt/.a/a./...", "/mnt/.a/a./.../"),
        ("/", "/"),
        ("/.", "/"),
        ("/mnt/ä ö", "/mnt/ä ö/"),
    ] {
        assert_eq!(backends(&json!([given])), [normal], "{given}");
        assert_eq!(backends(&json!(given)), [normal], "{given}");
    }
}

#[test]
fn r3_only_the_string_is_split_at_colons() {
    assert_eq!(backends(&json!("/b:/a")), ["/b/", "/a/"]);
    assert_eq!(backends(&json!(["/b:/a", "/c"])), ["/b:/a/", "/c/"]);
}

#[test]
fn r3_duplicates_are_dropped_and_the_order_is_kept() {
    assert_eq!(backends(&json!("/c:/a/:/b:/c/.://a:/a/../a")), ["/c/", "/a/", "/b/", "/a/../a/"]);
}

#[test]
fn r3_relative_and_empty_paths_are_errors() {
    let empty = ["storage_backends", "\"\"", "may not be empty"];
    for given in [json!(""), json!("/a:"), json!(":/a"), json!("/a::/b"), json!(["/a", ""])] {
        refuse(&given, &empty);
    }
    for given in [json!("a"), json!("/a:./b"), json!(["/a", "../b"]), json!([" /a"])] {
        refuse(&given, &["storage_backends", "must be absolute"]);
    }
    refuse(&json!(["/a\0b"]), &["storage_backends", "\\u0000", "may not contain NUL"]);
    refuse(&json!([]), &["storage_backends", "[]", "at least one"]);
}

#[test]
fn r3_elements_are_strings() {
    for element in [json!(1), json!(null), json!(true), json!(["/a"]), json!({})] {
        let shown = format!("[\"/a\",{element}], with {element}");
        refuse(&json!(["/a", element]), &["storage_backends", &shown, "a list of absolute paths"]);
    }
}

#[test]
fn r3_at_most_64_after_normalisation() {
    let paths = |count: usize| -> Vec<String> { (0..count).map(|at| format!("/{at}")).collect() };
    let mut most = paths(64);
    assert_eq!(backends(&json!(most)).len(), 64);
    most.push("//63/./".into());
    assert_eq!(backends(&json!(most)).len(), 64, "a duplicate does not count");
    refuse(&json!(paths(65)), &["storage_backends", "65 different paths", "at most 64"]);
}

#[test]
fn r3_a_path_leaves_room_for_the_names_below_it() {
    let path = |bytes: usize| format!("/{}", "a".repeat(bytes - 1));
    assert_eq!(backends(&json!([path(3840)]))[0].len(), 3841);
    let long = json!([path(3841)]);
    refuse(&long, &["storage_backends", "/aaaa", "…", "at most 3840 bytes"]);
}
