//! Tests of the table of R22, over all errnos.

use super::class::*;
use crate::config::FailureScope;
use crate::error::{Cause, Failure, Status, Step};

const OPERATIONS: [Operation; 10] = [
    Operation::Load,
    Operation::Dump,
    Operation::Commit,
    Operation::Lookup,
    Operation::Remove,
    Operation::Hotness,
    Operation::Collect,
    Operation::Mount,
    Operation::Probe,
    Operation::Startup,
];
const LOCAL_AGAIN: [i32; 5] = [libc::EINTR, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
const LOCAL_NEVER: [i32; 2] = [libc::EFAULT, libc::ENOSYS];
const FULL: [i32; 3] = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG];

fn class(errno: i32, operation: Operation, scope: FailureScope) -> Class {
    classify(&Failure::errno(Step::Open, errno), Context::new(operation, scope))
}

#[test]
fn r22_every_errno_of_a_load_and_of_a_dump() {
    for errno in 1..=133 {
        let load = class(errno, Operation::Load, FailureScope::Path);
        let dump = class(errno, Operation::Dump, FailureScope::Path);
        let expected = if LOCAL_AGAIN.contains(&errno) {
            Class::Local { again: true }
        } else if LOCAL_NEVER.contains(&errno) {
            Class::Local { again: false }
        } else if FULL.contains(&errno) {
            Class::Capacity
        } else {
            Class::Path
        };
        assert_eq!(dump, expected, "dump, errno {errno}");
        let expected = if errno == libc::ENOENT { Class::NotFound } else { expected };
        assert_eq!(load, expected, "load, errno {errno}");
    }
}

#[test]
fn r22_scope_any_counts_every_error_but_not_found() {
    for errno in 1..=133 {
        let load = class(errno, Operation::Load, FailureScope::Any);
        let missing = errno == libc::ENOENT;
        assert_eq!(load, if missing { Class::NotFound } else { Class::Path }, "{errno}");
        assert_eq!(class(errno, Operation::Dump, FailureScope::Any), Class::Path, "{errno}");
    }
}

#[test]
fn r22_a_missing_name_is_a_miss_only_where_a_block_is_asked_for() {
    for operation in OPERATIONS {
        let is_miss = matches!(
            operation,
            Operation::Load
                | Operation::Lookup
                | Operation::Remove
                | Operation::Hotness
                | Operation::Collect
        );
        for scope in [FailureScope::Path, FailureScope::Any] {
            let expected = if is_miss { Class::NotFound } else { Class::Path };
            assert_eq!(class(libc::ENOENT, operation, scope), expected, "{operation:?}");
        }
    }
}

#[test]
fn r22_permission_of_hotness_and_collection_never_counts() {
    for operation in OPERATIONS {
        for scope in [FailureScope::Path, FailureScope::Any] {
            for errno in [libc::EPERM, libc::EACCES] {
                let exempt = matches!(operation, Operation::Hotness | Operation::Collect);
                let class = class(errno, operation, scope);
                assert_eq!(class.counts(), !exempt, "{operation:?} {errno}");
            }
        }
    }
}

#[test]
fn r22_an_errno_of_collection_is_the_file_s_and_a_time_out_or_a_marker_the_path_s() {
    let scope = FailureScope::Path;
    let collect = Context::new(Operation::Collect, scope);
    for errno in 1..=133 {
        let (found, load) =
            (class(errno, Operation::Collect, scope), class(errno, Operation::Load, scope));
        let is_permission = matches!(errno, libc::EPERM | libc::EACCES);
        let expected = match load {
            Class::Path if is_permission => Class::Local { again: false },
            Class::Path => Class::File,
            other => other,
        };
        assert_eq!(found, expected, "{errno}");
        assert!(!found.counts(), "{errno}");
        let any = class(errno, Operation::Collect, FailureScope::Any);
        assert_eq!(any == Class::Path, errno != libc::ENOENT && !is_permission, "{errno}");
    }
    for cause in [Cause::TimedOut(7), Cause::NotTheStorage("no marker".into())] {
        let failure = Failure { step: Step::Remove, cause };
        assert!(classify(&failure, collect).counts(), "{failure}");
    }
    assert!(class(libc::EIO, Operation::Mount, scope).counts(), "the marker itself");
}

#[test]
fn r22_a_refused_optional_call_is_no_failure() {
    let calls = [Optional::RenameFlags, Optional::Reserve, Optional::Alignment, Optional::Link];
    for optional in calls {
        for errno in 1..=133 {
            for scope in [FailureScope::Path, FailureScope::Any] {
                let plain = Context::new(Operation::Commit, scope);
                let context = Context { optional: Some(optional), ..plain };
                let failure = Failure::errno(Step::Rename, errno);
                let refused = matches!(errno, libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)
                    || (errno == libc::EPERM && optional == Optional::Link);
                let expected = if refused { Class::Unsupported } else { classify(&failure, plain) };
                assert_eq!(classify(&failure, context), expected, "{optional:?} {errno}");
            }
        }
    }
}

#[test]
fn r22_causes_without_errno_and_what_the_caller_gets() {
    let wrong = Cause::WrongSize { found: Some(1), expected: 2 };
    let corrupt = (Status::NotFound, Status::Corrupt);
    let os = (Status::OsError, Status::OsError);
    let late = (Status::Timeout, Status::Timeout);
    let full = (Status::NoSpace, Status::NoSpace);
    let none = (Status::NotFound, Status::NotFound);
    let rows = [
        (wrong, Class::WrongSize, corrupt),
        (Cause::WrongSize { found: None, expected: 2 }, Class::WrongSize, corrupt),
        (Cause::NoProgress, Class::Path, os),
        (Cause::Differs("byte 3".into()), Class::Path, os),
        (Cause::NotTheStorage("no marker".into()), Class::Path, os),
        (Cause::TimedOut(7), Class::Path, late),
        (Cause::TooManyAbandoned(9), Class::Path, os),
        (Cause::GivenUp, Class::Local { again: false }, os),
        (Cause::Errno(libc::ENOSPC), Class::Capacity, full),
        (Cause::Errno(libc::ENOENT), Class::NotFound, none),
        (Cause::Errno(libc::EMFILE), Class::Local { again: true }, os),
        (Cause::Errno(libc::EIO), Class::Path, os),
    ];
    for (cause, class, (status, detail)) in rows {
        let failure = Failure { step: Step::Read, cause };
        let found = classify(&failure, Context::new(Operation::Load, FailureScope::Path));
        assert_eq!(found, class, "{failure}");
        let error = caller_error("/mnt/a/", &failure, found);
        assert_eq!((error.status, error.detail), (status, detail), "{failure}");
        assert_eq!(error.text, format!("backend /mnt/a/: {failure}"));
    }
}

#[test]
fn texts_name_backend_step_and_errno() {
    let failure = Failure::errno(Step::Read, libc::EIO);
    assert_eq!(text("/mnt/a/", &failure), "backend /mnt/a/: read: errno 5 (EIO: I/O error)");
    for errno in FULL {
        assert!(remedy(&Failure::errno(Step::Write, errno)).is_some());
    }
    assert_eq!(remedy(&failure), None);
    let full = Failure::errno(Step::Write, libc::ENOSPC);
    assert_eq!(status(&full, Class::Path), Status::NoSpace, "failure_scope any");
}

#[test]
fn only_path_file_and_capacity_go_to_the_next_backend() {
    assert!(Class::Path.fails_over() && Class::Path.counts());
    assert!(Class::File.fails_over() && !Class::File.counts());
    assert!(Class::Capacity.fails_over() && !Class::Capacity.counts());
    let others =
        [Class::NotFound, Class::Local { again: true }, Class::WrongSize, Class::Unsupported];
    for class in others {
        assert!(!class.fails_over() && !class.counts(), "{class:?}");
    }
}
