//! The log's thread: when it exists, what it inherits, and that it sleeps.

use std::fs;
use std::time::{Duration, Instant};

use super::super::logger::Logger;
use super::super::{Level, THREAD_NAME};
use super::{LONG, emit_apart, held, keeper, log_with_stderr, quiet_log};
use crate::clock::Clock;
use crate::error::Status;

/// Waits until `done`; /proc has no events.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn of_task(tid: i32, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/self/task/{tid}/{file}")).ok()
}

/// The thread's id, once it has begun.
fn running(log: &Logger) -> i32 {
    wait_until("the thread begins", || log.tid().is_some_and(|tid| tid != 0));
    let tid = log.tid().unwrap();
    wait_until("the thread has its name", || {
        of_task(tid, "comm").is_some_and(|name| name.trim() == THREAD_NAME)
    });
    tid
}

/// Joined means gone from the process; /proc may show it a moment longer.
fn is_gone(tid: i32) {
    wait_until("the thread is gone", || {
        of_task(tid, "comm").is_none_or(|name| name.trim() != THREAD_NAME)
    });
}

fn status(tid: i32, field: &str) -> String {
    let status = of_task(tid, "status").unwrap();
    let line = status.lines().find(|line| line.starts_with(&format!("{field}:"))).unwrap();
    line.split(':').nth(1).unwrap().trim().to_string()
}

#[test]
fn r91_the_thread_lives_while_somebody_listens_and_somebody_speaks() {
    let (log, _clock) = quiet_log();
    let lease = log.lease();
    assert_eq!(log.tid(), None, "nobody listens");
    log.set_callback(keeper().0).unwrap();
    let tid = running(log);
    let second = log.lease();
    drop(lease);
    assert_eq!(log.tid(), Some(tid));
    log.set_callback(None).unwrap();
    assert_eq!(log.tid(), None);
    is_gone(tid);
    log.set_callback(keeper().0).unwrap();
    let tid = running(log);
    drop(second);
    assert_eq!(log.tid(), None);
    is_gone(tid);
    log.set_callback(keeper().0).unwrap();
    assert_eq!(log.tid(), None, "nobody speaks");

    let (log, _clock) = log_with_stderr(|| Some(Level::Error));
    let lease = log.lease();
    let tid = running(log);
    log.set_callback(keeper().0).unwrap();
    log.set_callback(None).unwrap();
    assert_eq!(log.tid(), Some(tid), "stderr listens");
    drop(lease);
    is_gone(tid);
}

#[test]
fn r91_a_hundred_leases_leave_no_thread() {
    let (log, clock) = quiet_log();
    let (keep, kept) = keeper();
    log.set_callback(keep).unwrap();
    let mut tids = Vec::new();
    for at in 0..100 {
        let lease = log.lease();
        tids.push(running(log));
        emit_apart(log, &clock, &at.to_string());
        drop(lease);
    }
    tids.into_iter().for_each(is_gone);
    assert_eq!(kept.lock().len(), 100);
}

#[test]
fn r91_a_lease_does_not_wait_for_the_thread_of_the_one_before() {
    let (log, clock) = quiet_log();
    let (holding, mut held) = held();
    log.set_callback(holding).unwrap();
    let lease = log.lease();
    emit_apart(log, &clock, "first");
    assert_eq!(held.entered.recv_timeout(LONG).unwrap(), "first");
    let first = running(log);
    let leaving = std::thread::spawn(move || drop(lease));
    wait_until("the first thread was told to end", || log.tid().is_none());
    let again = log.lease();
    let second = running(log);
    assert_ne!(first, second);
    emit_apart(log, &clock, "second");
    let early = held.entered.recv_timeout(Duration::from_millis(100));
    drop(held.hold.take());
    assert!(early.is_err(), "two callbacks at a time");
    leaving.join().unwrap();
    assert_eq!(held.entered.recv_timeout(LONG).unwrap(), "second");
    drop(again);
    [first, second].into_iter().for_each(is_gone);
}

#[test]
fn r74_the_thread_blocks_all_signals_and_others_keep_theirs() {
    let (log, _clock) = quiet_log();
    log.set_callback(keeper().0).unwrap();
    let own = || status(nix::unistd::gettid().as_raw(), "SigBlk");
    let before = own();
    let lease = log.lease();
    assert_eq!(own(), before);
    let blocked = u64::from_str_radix(&status(running(log), "SigBlk"), 16).unwrap();
    // All but SIGKILL, SIGSTOP, and the two that the C library keeps for itself (32 and 33).
    let never = [9, 19, 32, 33].iter().fold(0_u64, |set, signal| set | 1 << (signal - 1));
    assert_eq!(blocked | never, u64::MAX);
    drop(lease);
}

#[test]
fn r74_an_idle_thread_sleeps_without_a_limit() {
    let (log, clock) = quiet_log();
    let (keep, kept) = keeper();
    log.set_callback(keep).unwrap();
    let lease = log.lease();
    emit_apart(log, &clock, "one");
    let tid = running(log);
    wait_until("delivered", || kept.lock().len() == 1);
    // "number arg1 arg2 arg3 arg4 …": a futex wait, whose fourth argument is its limit.
    let futex = libc::SYS_futex.to_string();
    wait_until("asleep in a futex without a limit", || {
        let call = of_task(tid, "syscall").unwrap();
        let words: Vec<&str> = call.split_whitespace().collect();
        words.first() == Some(&futex.as_str()) && words.get(4) == Some(&"0x0")
    });
    drop(lease);
}

#[test]
fn r57_the_thread_is_pinned_until_the_last_lease_is_gone() {
    let (log, _clock) = quiet_log();
    log.set_callback(keeper().0).unwrap();
    let lease = log.lease();
    let tid = running(log);
    let all = status(tid, "Cpus_allowed_list");
    let first = all.split(['-', ',']).next().unwrap().to_string();
    log.pin(&[first.parse().unwrap()]).unwrap();
    assert_eq!(status(tid, "Cpus_allowed_list"), first);
    log.set_callback(None).unwrap();
    log.set_callback(keeper().0).unwrap();
    let tid = running(log);
    wait_until("the next thread is pinned", || status(tid, "Cpus_allowed_list") == first);
    let error = log.pin(&[1023]).unwrap_err();
    assert_eq!(error.status, Status::OsError);
    assert!(error.text.contains("[1023]") && error.text.contains("EINVAL"), "{error}");
    assert!(log.pin(&[usize::MAX]).is_err());
    log.pin(&[]).unwrap();
    drop(lease);
    let lease = log.lease();
    assert_eq!(status(running(log), "Cpus_allowed_list"), all);
    drop(lease);
}

#[test]
fn r91_a_thread_that_cannot_be_made_is_an_error_and_its_messages_are_counted() {
    let log: &'static Logger = Box::leak(Box::new(Logger::new(|| Some(Level::Debug))));
    let clock = Clock::manual();
    log.set_clock(clock.clone());
    log.set_stack_bytes(1 << 46);
    let lease = log.lease();
    assert_eq!(log.tid(), None);
    emit_apart(log, &clock, "lost");
    emit_apart(log, &clock, "lost");
    let (keep, kept) = keeper();
    let error = log.set_callback(keep).unwrap_err();
    assert_eq!(error.status, Status::OsError);
    assert!(error.text.contains(THREAD_NAME), "{error}");
    log.set_callback(None).unwrap();
    drop(lease);
    // As soon as it can be made, it tells.
    log.set_stack_bytes(1 << 20);
    let (keep, again) = keeper();
    log.set_callback(keep).unwrap();
    drop(log.lease());
    assert_eq!(kept.lock().len(), 0, "the refused callback was not set");
    let told = again.lock();
    assert_eq!(told.len(), 1);
    assert!(told[0].2.starts_with("2 messages were left out"), "{}", told[0].2);
}
