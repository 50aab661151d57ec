//! Tests of the probe on real file systems; what only a failing file system shows is in CTest.

use super::marker::{self, MakeParams, Marker, Uuid};
use super::probe::{Expect, ProbeParams, any_directory, judge_recovery, probe};
use super::scratch::Scratch;
use crate::config::FailureScope;
use crate::error::{Cause, Failure, Step};

fn storage(root: &str) -> Marker {
    let marker = Marker { uuid: Uuid::random().unwrap(), data_dir_shard_bytes: 2 };
    marker::make(MakeParams { root, marker, file_mode: 0o644, writer: "w1" }).unwrap()
}

fn params(root: &str, expect: Expect, direct: bool) -> ProbeParams {
    ProbeParams {
        root: root.to_owned(),
        directory: "0a".to_owned(),
        expect,
        data_dir_shard_bytes: 2,
        writer: "w1".to_owned(),
        direct,
        dir_mode: 0o774,
        file_mode: 0o644,
    }
}

#[test]
fn r50_passes_direct_and_buffered_and_leaves_nothing() {
    let scratch = Scratch::new();
    let root = scratch.root("a");
    let marker = storage(&root);
    for direct in [true, false] {
        let probed = probe(&params(&root, Expect::Storage(marker.uuid), direct)).unwrap();
        assert_eq!((probed.marker, probed.direct), (marker, direct));
        assert!(probed.memory_align.is_power_of_two() && probed.offset_align.is_power_of_two());
        assert!(probed.clock_ahead_s.abs() <= 5, "the same machine's clock");
        assert!(scratch.names("a/0a").is_empty(), "the file is removed");
    }
}

#[test]
fn r7_a_lost_directory_is_made_again_with_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let root = scratch.root("a");
    let marker = storage(&root);
    probe(&params(&root, Expect::Storage(marker.uuid), true)).unwrap();
    let mode = std::fs::metadata(scratch.path("a/0a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o774);
}

#[test]
fn r7_nothing_is_made_on_a_path_that_is_not_the_storage() {
    let scratch = Scratch::new();
    let root = scratch.root("a");
    let empty = probe(&params(&root, Expect::Any, true)).unwrap_err();
    assert_eq!(empty.failure.step, Step::Verify);
    assert!(matches!(empty.failure.cause, Cause::NotTheStorage(_)), "{}", empty.failure);
    assert_eq!(empty.marker, None);
    assert!(scratch.names("a").is_empty());

    storage(&root);
    let other = Uuid::random().unwrap();
    let failed = probe(&params(&root, Expect::Storage(other), true)).unwrap_err();
    assert!(matches!(failed.failure.cause, Cause::NotTheStorage(_)), "{}", failed.failure);
    assert_eq!(scratch.names("a"), [marker::NAME]);
    assert!(failed.path.ends_with("/.kvpath"));
}

#[test]
fn r8_a_backend_unseen_at_open_shows_its_marker_and_other_digits_fail() {
    let scratch = Scratch::new();
    let root = scratch.root("a");
    let marker = storage(&root);
    let mut params = params(&root, Expect::Any, true);
    assert_eq!(probe(&params).unwrap().marker, marker);
    params.data_dir_shard_bytes = 3;
    let failed = probe(&params).unwrap_err();
    let text = failed.failure.to_string();
    assert!(text.contains("data_dir_shard_bytes 2, the configuration 3"), "{text}");
}

#[test]
fn r50_failing_steps_are_named() {
    let scratch = Scratch::new();
    let root = scratch.root("a");
    let marker = storage(&root);
    let wanted = params(&root, Expect::Storage(marker.uuid), true);
    std::fs::write(scratch.path("a/0a"), "a file in its place").unwrap();
    let failed = probe(&wanted).unwrap_err();
    assert_eq!(failed.failure, Failure::errno(Step::Open, libc::ENOTDIR));
    assert!(!failed.direct_refused);
    assert_eq!(failed.marker, Some(marker));

    std::fs::rename(scratch.path("a"), scratch.path("away")).unwrap();
    let failed = probe(&wanted).unwrap_err();
    assert_eq!(failed.failure, Failure::errno(Step::Open, libc::ENOENT), "R53: a failure");
}

#[test]
fn r50_a_full_disk_passes_in_recovery_and_only_with_scope_path() {
    let scratch = Scratch::new();
    let root = scratch.root("a");
    if !scratch.mount_tmpfs("a", "size=16k") {
        return;
    }
    let marker = storage(&root);
    std::fs::create_dir(scratch.path("a/0a")).unwrap();
    // One page a file; the mount holds four.
    for at in 0.. {
        if std::fs::write(scratch.path(&format!("a/fill{at}")), [0; 4096]).is_err() {
            break;
        }
        assert!(at < 100, "the mount does not fill up");
    }
    let wanted = params(&root, Expect::Storage(marker.uuid), false);
    let failed = probe(&wanted).unwrap_err();
    assert_eq!(failed.failure, Failure::errno(Step::Write, libc::ENOSPC));
    assert!(scratch.names("a/0a").is_empty(), "removed after the failing write");

    assert_eq!(judge_recovery(Err(failed.clone()), FailureScope::Path), Ok(None));
    assert!(judge_recovery(Err(failed), FailureScope::Any).is_err());
    std::fs::remove_file(scratch.path("a/.kvpath")).unwrap();
    let failed = probe(&wanted).unwrap_err();
    assert!(judge_recovery(Err(failed), FailureScope::Path).is_err(), "no marker: a failure");
}

#[test]
fn r50_a_read_only_mount_fails_at_the_create() {
    let scratch = Scratch::new();
    let root = scratch.root("a");
    if !scratch.mount_tmpfs("a", "size=1m") {
        return;
    }
    let marker = storage(&root);
    std::fs::create_dir(scratch.path("a/0a")).unwrap();
    let remounted = std::process::Command::new("mount")
        .args(["-o", "remount,ro", &scratch.path("a")])
        .status()
        .unwrap();
    assert!(remounted.success());
    let failed = probe(&params(&root, Expect::Storage(marker.uuid), false)).unwrap_err();
    assert_eq!(failed.failure, Failure::errno(Step::Open, libc::EROFS));
    assert!(judge_recovery(Err(failed), FailureScope::Path).is_err());
}

#[test]
fn r33_a_refusal_of_direct_is_reported_as_one() {
    // ecryptfs, some FUSE servers and old tmpfs refuse O_DIRECT; a FUSE server does it in CTest.
    // Here the rule alone.
    for (step, errno, refused) in [
        (Step::Open, libc::EINVAL, true),
        (Step::Write, libc::EINVAL, true),
        (Step::Open, libc::EOPNOTSUPP, true),
        (Step::Close, libc::EINVAL, false),
        (Step::Write, libc::EIO, false),
    ] {
        let failure = Failure::errno(step, errno);
        assert_eq!(super::class::refuses_direct(&failure), refused, "{failure}");
    }
}

#[test]
fn a_directory_is_chosen_among_those_that_exist() {
    assert_eq!(any_directory(0).unwrap(), "data");
    assert_eq!(any_directory(4).unwrap(), "0000");
    let chosen: std::collections::HashSet<String> =
        (0..200).map(|_| any_directory(3).unwrap()).collect();
    assert!(chosen.len() > 100, "spread over the directories");
    let is_name = |name: &String| {
        name.len() == 3 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    assert!(chosen.iter().all(is_name));
}
