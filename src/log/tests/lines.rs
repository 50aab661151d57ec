//! Lines on stderr, and the log of the process.

use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crossbeam_channel::unbounded;

use super::super::{Level, emit, lease, set_callback, stderr};
use super::{LONG, callback};

#[test]
fn r91_a_line_has_its_moment_in_utc() {
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399, "2000-02-28T23:59:59.000Z"),
        (951_782_400, "2000-02-29T00:00:00.000Z"),
        (951_868_800, "2000-03-01T00:00:00.000Z"),
        (1_709_251_199, "2024-02-29T23:59:59.000Z"),
        (1_767_225_599, "2025-12-31T23:59:59.000Z"),
        (1_767_225_600, "2026-01-01T00:00:00.000Z"),
        (4_107_542_400, "2100-03-01T00:00:00.000Z"),
    ] {
        assert_eq!(stderr::utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
    }
    assert_eq!(stderr::utc(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
}

#[test]
fn r91_a_line_is_one_line() {
    let at = UNIX_EPOCH + Duration::from_millis(1_500);
    assert_eq!(
        stderr::line(at, Level::Warn, "KV1001", "a\nb\tä\u{1b}[0m"),
        "1970-01-01T00:00:01.500Z kvpath warn KV1001 a\\nb\\tä\\u{1b}[0m\n"
    );
}

/// Run by the next test in processes of its own, because the environment belongs to all of one.
#[test]
#[ignore = "run by r91_the_environment_says_what_goes_to_stderr"]
fn child_writes_lines() {
    let held = lease();
    for level in Level::ALL {
        emit(level, "KV9100", level.word());
    }
    drop(held);
}

#[test]
fn r91_the_environment_says_what_goes_to_stderr() {
    let words = |value: Option<&str>| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "log::tests::lines::child_writes_lines", "--ignored"]);
        child.env_remove("KVPATH_LOG").envs(value.map(|value| ("KVPATH_LOG", value)));
        let output = child.output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        let lines = text.lines().filter(|line| line.contains("KV9100"));
        let words = lines.map(|line| {
            let parts: Vec<&str> = line.split(' ').collect();
            let [moment, "kvpath", level, "KV9100", word] = parts[..] else { panic!("{line}") };
            assert!(moment.len() == 24 && moment.starts_with("20") && moment.ends_with('Z'));
            assert_eq!(level, word);
            word.to_string()
        });
        words.collect::<Vec<String>>().join(" ")
    };
    assert_eq!(words(None), "error warn");
    assert_eq!(words(Some("error")), "error");
    assert_eq!(words(Some("warn")), "error warn");
    assert_eq!(words(Some("info")), "error warn info");
    assert_eq!(words(Some("debug")), "error warn info debug");
    assert_eq!(words(Some("off")), "");
    assert_eq!(words(Some("nonsense")), "error warn");
}

#[test]
fn r91_the_process_has_one_log() {
    // Other tests of this process may speak too, so only this one's id counts.
    let (telling, told) = unbounded();
    let tell = callback(move |level, id, text| {
        if id == "KV9101" {
            telling.send((level, text.to_string())).unwrap();
        }
    });
    set_callback(tell).unwrap();
    let held = lease();
    emit(Level::Debug, "KV9101", "hello");
    assert_eq!(told.recv_timeout(LONG).unwrap(), (Level::Debug, "hello".into()));
    set_callback(None).unwrap();
    drop(held);
}
