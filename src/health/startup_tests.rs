//! Tests of the start-up check on real directories and mounts.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::executor::{Executor, Unfinished, WORKER_STACK_BYTES};
use super::marker::{self, NAME};
use super::scratch::Scratch;
use super::startup::{Policy, StartupParams, StartupReport, check_all};
use super::storage::{Remade, directories, remake_marker, root_id};
use crate::clock::Clock;
use crate::error::{Error, Status};

fn params(roots: &[&str]) -> StartupParams {
    StartupParams {
        roots: roots.iter().map(|root| (*root).to_owned()).collect(),
        data_dir_shard_bytes: 1,
        dir_mode: 0o774,
        file_mode: 0o644,
        direct: true,
        direct_fallback: false,
        sync_names: false,
        create_storage: true,
        require_same_storage: false,
        writer: "w1".to_owned(),
        cancel: Arc::new(AtomicBool::new(false)),
    }
}

fn all(params: StartupParams) -> Result<StartupReport, Error> {
    check_all(&Arc::new(params), Policy::All)
}

fn any(params: StartupParams) -> Result<StartupReport, Error> {
    let counts = Unfinished::new(params.roots.len());
    let mut executor = Executor::new(Clock::monotonic(), counts, WORKER_STACK_BYTES);
    let limit = Duration::from_secs(20);
    let report = check_all(&Arc::new(params), Policy::Any { executor: &mut executor, limit });
    assert_eq!(executor.join(None), 0);
    report
}

/// Two paths to one directory: `a` and a link to it.
fn two_paths(scratch: &Scratch) -> (String, String) {
    let a = scratch.root("a");
    std::os::unix::fs::symlink(&a, scratch.path("b")).unwrap();
    (a, format!("{}/", scratch.path("b")))
}

#[test]
fn r10_a_fresh_storage_is_made_and_checked_and_an_old_one_is_kept() {
    let scratch = Scratch::new();
    let (a, b) = two_paths(&scratch);
    let report = all(params(&[&a, &b])).unwrap();
    assert!(report.same_storage && report.warnings.is_empty(), "{:?}", report.warnings);
    let first = report.backends[0].clone().unwrap();
    assert_eq!(report.backends[1].clone().unwrap().probed.marker, first.probed.marker);
    assert!(first.probed.direct);
    assert_eq!(first.root, root_id(&a).unwrap());
    let names = scratch.names("a");
    assert_eq!(names.len(), 17, "the marker and 16 directories: {names:?}");
    for name in &names[1..] {
        let path = scratch.path(&format!("a/{name}"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o774, "R9");
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "R12: no probe file stays");
    }
    let again = all(params(&[&b, &a])).unwrap();
    assert_eq!(again.backends[0].clone().unwrap().probed.marker, first.probed.marker);
}

#[test]
fn r6_directories_follow_the_digits() {
    assert_eq!(directories(0), ["data"]);
    assert_eq!(directories(1).len(), 16);
    assert_eq!((directories(2)[10].as_str(), directories(2).len()), ("0a", 256));
    assert_eq!((directories(3)[4095].as_str(), directories(3).len()), ("fff", 4096));
    assert!(directories(4).is_empty() && directories(5).is_empty());
    for digits in [0, 2, 3, 4, 5] {
        let scratch = Scratch::new();
        let a = scratch.root("a");
        let mut params = params(&[&a]);
        params.data_dir_shard_bytes = digits;
        all(params).unwrap();
        let expected = directories(digits).len().max(1) + 1;
        assert_eq!(scratch.names("a").len(), expected, "{digits} digits: dirs and the marker");
    }
}

#[test]
fn r10_the_first_failure_ends_it_and_names_backend_step_and_errno() {
    let scratch = Scratch::new();
    let a = scratch.root("a");
    let missing = format!("{}/", scratch.path("missing"));
    let error = all(params(&[&a, &missing])).unwrap_err();
    assert_eq!(error.status, Status::StoreUnhealthy);
    let expected = format!(
        "backend {missing}: open: errno 2 (ENOENT: No such file or directory) (backend 2 of 2)"
    );
    assert_eq!(error.text, expected);
    assert!(scratch.names("a").is_empty(), "R8: a root that cannot be read ends it before writes");

    let error = all(params(&[&missing, &a])).unwrap_err();
    assert!(error.text.ends_with("(backend 1 of 2)"), "{error}");
    std::fs::write(scratch.path("file"), "").unwrap();
    let file = format!("{}/", scratch.path("file"));
    let error = all(params(&[&file])).unwrap_err();
    assert!(error.text.contains("errno 20 (ENOTDIR"), "{error}");
}

#[test]
fn r8_a_backend_without_the_marker_is_not_the_storage_and_stays_untouched() {
    let scratch = Scratch::new();
    let (a, other) = (scratch.root("a"), scratch.root("other"));
    all(params(&[&a])).unwrap();
    let error = all(params(&[&a, &other])).unwrap_err();
    assert_eq!(error.status, Status::StoreUnhealthy);
    assert!(error.text.contains(&format!("backend {other}: verify: not the storage")), "{error}");
    let error = all(params(&[&other, &a])).unwrap_err();
    assert!(error.text.contains("(backend 1 of 2)"), "{error}");
    assert!(scratch.names("other").is_empty());
    // Fresh: the marker is made through the first, and the second is another directory.
    let fresh = scratch.root("fresh");
    let error = all(params(&[&fresh, &other])).unwrap_err();
    assert!(error.text.contains("not the storage"), "{error}");
}

#[test]
fn r8_different_storages_are_a_warning_or_an_error() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.root("a"), scratch.root("b"));
    all(params(&[&a])).unwrap();
    all(params(&[&b])).unwrap();
    for name in ["a/3", "b/7"] {
        std::fs::remove_dir(scratch.path(name)).unwrap();
    }
    let mut strict = params(&[&a, &b]);
    strict.require_same_storage = true;
    let error = all(strict).unwrap_err();
    assert!(error.text.contains("require_same_storage"), "{error}");
    assert!(!scratch.names("a").contains(&"3".to_owned()), "nothing was made");

    let report = all(params(&[&a, &b])).unwrap();
    assert!(!report.same_storage);
    assert_eq!(report.warnings.len(), 1);
    assert!(report.warnings[0].contains(&a) && report.warnings[0].contains(&b));
    assert_eq!((scratch.names("a").len(), scratch.names("b").len()), (17, 17), "once a UUID");
}

#[test]
fn r8_other_digits_and_create_storage_false_are_refused() {
    let scratch = Scratch::new();
    let a = scratch.root("a");
    let mut never = params(&[&a]);
    never.create_storage = false;
    let error = all(never).unwrap_err();
    assert!(error.text.contains("create_storage is false"), "{error}");
    assert!(scratch.names("a").is_empty());

    all(params(&[&a])).unwrap();
    let mut other = params(&[&a]);
    other.data_dir_shard_bytes = 3;
    for error in [all(other.clone()).unwrap_err(), any(other).unwrap_err()] {
        assert_eq!(error.status, Status::InvalidParam);
        assert!(error.text.contains("is 3") && error.text.contains("with 1"), "{error}");
    }
}

#[test]
fn r9_a_data_directory_that_is_a_link_or_a_file_fails_the_check() {
    for is_link in [true, false] {
        let scratch = Scratch::new();
        let (a, away) = (scratch.root("a"), scratch.root("away"));
        all(params(&[&a])).unwrap();
        std::fs::remove_dir(scratch.path("a/5")).unwrap();
        if is_link {
            std::os::unix::fs::symlink(away, scratch.path("a/5")).unwrap();
        } else {
            std::fs::write(scratch.path("a/5"), "").unwrap();
        }
        let error = all(params(&[&a])).unwrap_err();
        let expected = format!("backend {a}: verify: 5 is a symbolic link, or no directory");
        assert!(error.text.starts_with(&expected), "{error}");
    }
}

#[test]
fn r10_a_full_storage_fails_and_the_text_names_the_remedy() {
    let scratch = Scratch::new();
    let a = scratch.root("a");
    if !scratch.mount_tmpfs("a", "size=64k,nr_inodes=10") {
        return;
    }
    let error = all(params(&[&a])).unwrap_err();
    assert!(error.text.contains("mkdir: errno 28 (ENOSPC"), "{error}");
    assert!(error.text.ends_with("or enlarge it, and open again"), "{error}");
}

#[test]
fn r13_any_lists_what_fails_and_fails_only_without_any() {
    let scratch = Scratch::new();
    let (a, empty) = (scratch.root("a"), scratch.root("empty"));
    let missing = format!("{}/", scratch.path("missing"));
    all(params(&[&a])).unwrap();
    let report = any(params(&[&missing, &a, &empty])).unwrap();
    assert!(report.backends[1].is_ok());
    let texts: Vec<String> = [0, 2]
        .into_iter()
        .map(|at| report.backends[at].as_ref().unwrap_err().failure.to_string())
        .collect();
    assert!(texts[0].starts_with("open: errno 2"), "{texts:?}");
    assert!(texts[1].starts_with("verify: not the storage"), "{texts:?}");
    assert_eq!(report.warnings.len(), 2);
    assert!(report.same_storage);

    let error = any(params(&[&missing])).unwrap_err();
    assert_eq!(error.status, Status::StoreUnhealthy);
    assert!(error.text.starts_with("no backend passed its start-up check: backend"), "{error}");
    std::fs::write(scratch.path("a/7/x"), "").unwrap();
    std::fs::remove_file(scratch.path("a/.kvpath")).unwrap();
    std::fs::write(scratch.path("a/.kvpath"), "no marker").unwrap();
    let error = any(params(&[&a, &missing])).unwrap_err();
    assert!(error.text.contains("(backend 1 of 2)") && error.text.contains("(backend 2 of 2)"));
}

#[test]
fn r13_any_makes_a_storage_past_a_path_that_fails_and_says_so() {
    let scratch = Scratch::new();
    let (a, missing) = (scratch.root("a"), format!("{}/", scratch.path("missing")));
    let report = any(params(&[&missing, &a])).unwrap();
    assert!(report.backends[0].is_err() && report.backends[1].is_ok());
    assert!(report.warnings[0].contains("could not be asked"), "{:?}", report.warnings);
}

#[test]
fn r13_any_gives_a_hanging_backend_up_at_its_limit() {
    let scratch = Scratch::new();
    let (hangs, a) = (scratch.root("hangs"), scratch.root("a"));
    all(params(&[&a])).unwrap();
    // Opening a FIFO for reading blocks until somebody opens it for writing.
    let fifo = scratch.path("hangs/.kvpath");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let counts = Unfinished::new(2);
    let mut executor = Executor::new(Clock::monotonic(), counts.clone(), WORKER_STACK_BYTES);
    let limit = Duration::from_millis(300);
    let policy = Policy::Any { executor: &mut executor, limit };
    let report = check_all(&Arc::new(params(&[&hangs, &a])), policy).unwrap();
    let failed = report.backends[0].as_ref().unwrap_err();
    assert_eq!(failed.failure.to_string(), "verify: timed out after 300 ms");
    assert!(report.backends[1].is_ok());
    assert_eq!((counts.on(0), counts.on(1)), (1, 0));
    drop(std::fs::OpenOptions::new().write(true).open(&fifo).unwrap());
    assert_eq!(executor.join(None), 0, "it has returned");
    assert_eq!(counts.total(), 0);
}

#[test]
fn open_timeout_ends_the_check_between_steps() {
    let scratch = Scratch::new();
    let a = scratch.root("a");
    let params = params(&[&a]);
    params.cancel.store(true, Ordering::Relaxed);
    let error = any(params.clone()).unwrap_err();
    assert_eq!(error.status, Status::Timeout);
    assert_eq!(all(params).unwrap_err().status, Status::Timeout);
    assert!(scratch.names("a").is_empty());
}

#[test]
fn r8_a_wiped_storage_gets_its_marker_again_and_a_lost_mount_does_not() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.root("a"), scratch.root("b"));
    if !scratch.mount_bind("a", "b") {
        return;
    }
    let params = params(&[&a, &b]);
    let report = all(params.clone()).unwrap();
    let ids: Vec<_> = report.backends.iter().map(|b| b.as_ref().ok().map(|c| c.root)).collect();
    let marker = report.backends[0].as_ref().unwrap().probed.marker;
    let remake = || remake_marker(&params, &ids, marker.uuid).unwrap();
    assert!(matches!(remake(), Remade::NotWiped(text) if text.contains("it has a marker")));

    std::fs::remove_file(format!("{a}{NAME}")).unwrap();
    assert_eq!(remake(), Remade::Made);
    assert_eq!(marker::read(&b), Ok(Some(marker)), "the same UUID");

    std::fs::remove_file(format!("{a}{NAME}")).unwrap();
    scratch.unmount();
    assert!(matches!(remake(), Remade::NotWiped(text) if text.contains("another directory")));
    assert_eq!(marker::read(&a), Ok(None));
}
