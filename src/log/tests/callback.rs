//! What the callback gets, in which order, and when it is not called.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::bounded;
use parking_lot::Mutex;

use super::super::{
    Callback, LOST_ID, Level, QUEUE_MAX, REPEAT_BURST, REPEAT_WINDOW_S, TEXT_BYTES_MAX,
};
use super::{LONG, callback, emit_apart, held, keeper, log_with_stderr, quiet_log};
use crate::error::Status;

#[test]
fn r91_messages_come_in_order_and_all_before_the_last_lease_is_gone() {
    let (log, clock) = quiet_log();
    let (keep, kept) = keeper();
    log.set_callback(keep).unwrap();
    let lease = log.lease();
    let second = log.lease();
    for at in 0..500 {
        emit_apart(log, &clock, &at.to_string());
    }
    drop(second);
    drop(lease);
    let texts: Vec<String> = kept.lock().iter().map(|got| got.2.clone()).collect();
    let sent: Vec<String> = (0..500).map(|at| at.to_string()).collect();
    assert_eq!(texts, sent);
}

#[test]
fn r91_a_callback_gets_its_levels_only() {
    let (log, _clock) = quiet_log();
    let (keep, kept) = keeper();
    let keep = keep.unwrap();
    log.set_callback(Some(Callback { level: Level::Warn, call: keep.call })).unwrap();
    let lease = log.lease();
    for level in Level::ALL {
        log.emit(level, "KV9001", level.word());
    }
    drop(lease);
    let got = |level: Level| (level, "KV9001".to_string(), level.word().to_string());
    assert_eq!(*kept.lock(), [got(Level::Error), got(Level::Warn)]);
}

#[test]
fn r91_a_text_is_one_c_string_of_bounded_length() {
    let (log, _clock) = quiet_log();
    let (keep, kept) = keeper();
    log.set_callback(keep).unwrap();
    let lease = log.lease();
    log.emit(Level::Info, "KV9002", "a\0b");
    log.emit(Level::Info, "KV9002", &format!("x{}", "ä".repeat(TEXT_BYTES_MAX)));
    drop(lease);
    let kept = kept.lock();
    assert_eq!(kept[0].2, "a\u{fffd}b");
    assert_eq!(kept[1].2.len(), TEXT_BYTES_MAX - 1 + "…".len());
    assert!(kept[1].2.ends_with("ä…"));
}

#[test]
fn r91_what_does_not_fit_into_the_queue_is_counted_and_told() {
    let (log, clock) = quiet_log();
    let (keep, kept) = keeper();
    let (entering, entered) = bounded(1);
    let (hold, held) = bounded::<()>(1);
    let keep = keep.unwrap().call;
    let call = move |level: Level, id: &std::ffi::CStr, text: &std::ffi::CStr| {
        if text.to_bytes() == b"first" {
            entering.send(()).unwrap();
            assert!(held.recv().is_err());
        }
        keep(level, id, text);
    };
    log.set_callback(Some(Callback { level: Level::Debug, call: Box::new(call) })).unwrap();
    let lease = log.lease();
    emit_apart(log, &clock, "first");
    entered.recv_timeout(LONG).unwrap();
    for at in 0..QUEUE_MAX + 50 {
        emit_apart(log, &clock, &at.to_string());
    }
    drop(hold);
    drop(lease);
    let kept = kept.lock();
    assert_eq!(kept.len(), 1 + 1 + QUEUE_MAX);
    assert_eq!(kept[0].2, "first");
    assert_eq!((kept[1].0, kept[1].1.as_str()), (Level::Warn, LOST_ID));
    assert!(kept[1].2.starts_with("50 messages were left out"), "{}", kept[1].2);
    for (at, (_, id, text)) in kept[2..].iter().enumerate() {
        assert_eq!((id.as_str(), text), ("KV9000", &at.to_string()));
    }
}

#[test]
fn r91_repeats_are_limited_by_id_and_say_how_many_were_left_out() {
    let (log, clock) = quiet_log();
    let (keep, kept) = keeper();
    log.set_callback(keep).unwrap();
    let lease = log.lease();
    let burst = usize::try_from(REPEAT_BURST).unwrap();
    for _ in 0..burst + 15 {
        log.emit(Level::Warn, "KV9003", "again");
    }
    log.emit(Level::Warn, "KV9004", "another id");
    clock.advance(Duration::from_secs(REPEAT_WINDOW_S) - Duration::from_nanos(1));
    log.emit(Level::Warn, "KV9003", "still too early");
    clock.advance(Duration::from_nanos(1));
    log.emit(Level::Warn, "KV9003", "later");
    for _ in 0..burst + 2 {
        log.emit(Level::Info, "KV9003", "and again");
    }
    log.emit(Level::Error, "KV9003", "left out as well");
    drop(lease);
    let kept = kept.lock();
    let texts: Vec<&str> = kept.iter().map(|got| got.2.as_str()).collect();
    let mut wanted = vec!["again"; burst];
    wanted.push("another id");
    wanted.push("later (16 more of KV9003 were left out before)");
    wanted.extend(vec!["and again"; burst - 1]);
    wanted.push("4 more of KV9003 were left out");
    assert_eq!(texts, wanted);
    // The last line is as important as the most important one that it stands for.
    assert_eq!(kept.last().unwrap().0, Level::Error);
}

#[test]
fn r91_an_unset_callback_is_never_called_again() {
    // The thread stays for stderr, so nothing but the callback itself can be waited for.
    let (log, clock) = log_with_stderr(|| Some(Level::Error));
    let lease = log.lease();
    let stop = AtomicBool::new(false);
    let calls = Arc::new(AtomicUsize::new(0));
    let (mut still_held, mut watched) = (0, Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    emit_apart(log, &clock, "race");
                }
            });
        }
        for _ in 0..300 {
            let (called, first_call) = bounded(1);
            let (gone, late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let (seen_gone, count_late, count) =
                (Arc::clone(&gone), Arc::clone(&late), Arc::clone(&calls));
            let racing = callback(move |_, _, _| {
                count.fetch_add(1, Ordering::SeqCst);
                match called.try_send(()) {
                    // Full after the first call, which is all that is waited for.
                    Ok(()) | Err(_) => {}
                }
                std::thread::yield_now();
                if seen_gone.load(Ordering::SeqCst) {
                    count_late.fetch_add(1, Ordering::SeqCst);
                }
            });
            log.set_callback(racing).unwrap();
            first_call.recv_timeout(LONG).unwrap();
            log.set_callback(None).unwrap();
            gone.store(true, Ordering::SeqCst);
            // Only the test's own clone is left where the log has dropped the callback.
            still_held += usize::from(Arc::strong_count(&gone) != 1);
            watched.push(late);
        }
        stop.store(true, Ordering::SeqCst);
    });
    drop(lease);
    let late: usize = watched.iter().map(|late| late.load(Ordering::SeqCst)).sum();
    assert_eq!((still_held, late), (0, 0));
    assert!(calls.load(Ordering::SeqCst) >= 300);
}

#[test]
fn r91_unsetting_waits_for_the_running_callback() {
    // The thread stays for stderr, so nothing but the callback itself can be waited for.
    let (log, clock) = log_with_stderr(|| Some(Level::Error));
    let (holding, mut held) = held();
    log.set_callback(holding).unwrap();
    let lease = log.lease();
    emit_apart(log, &clock, "held");
    held.entered.recv_timeout(LONG).unwrap();
    let (telling, unset) = bounded(1);
    let setter = std::thread::spawn(move || {
        log.set_callback(None).unwrap();
        telling.send(()).unwrap();
    });
    let early = unset.recv_timeout(Duration::from_millis(100));
    drop(held.hold.take());
    assert!(early.is_err(), "did not wait");
    unset.recv_timeout(LONG).unwrap();
    setter.join().unwrap();
    drop(lease);
}

#[test]
fn r91_a_callback_may_take_a_lock_that_the_emitter_holds() {
    let (log, clock) = quiet_log();
    let shared = Arc::new(Mutex::new(0_usize));
    let in_callback = Arc::clone(&shared);
    log.set_callback(callback(move |_, _, _| *in_callback.lock() += 1)).unwrap();
    let lease = log.lease();
    let guard = shared.lock();
    for at in 0..2 * QUEUE_MAX {
        emit_apart(log, &clock, &at.to_string());
    }
    assert_eq!(*guard, 0);
    drop(guard);
    drop(lease);
    // What fitted, one that the thread held or not, and the line about the rest.
    let calls = *shared.lock();
    assert!((QUEUE_MAX + 1..=QUEUE_MAX + 3).contains(&calls), "{calls}");
}

#[test]
fn r91_the_callback_may_not_call_back() {
    let (log, clock) = quiet_log();
    let (telling, told) = bounded(1);
    let calling = callback(move |_, _, _| {
        let set = log.set_callback(None).map_err(|error| error.status);
        let close = super::super::refuse_in_callback("kvpath_close").map_err(|error| error.text);
        drop(log.lease());
        telling.send((set, close)).unwrap();
    });
    log.set_callback(calling).unwrap();
    let lease = log.lease();
    emit_apart(log, &clock, "in");
    let (set, close) = told.recv_timeout(LONG).unwrap();
    assert_eq!(set, Err(Status::InvalidParam));
    assert!(close.unwrap_err().starts_with("kvpath_close was called from the log callback"));
    drop(lease);
    assert!(super::super::refuse_in_callback("kvpath_close").is_ok());
}

#[test]
fn r91_a_panicking_callback_does_not_end_the_log() {
    let (log, clock) = quiet_log();
    let (keep, kept) = keeper();
    let keep = keep.unwrap().call;
    let call = move |level: Level, id: &std::ffi::CStr, text: &std::ffi::CStr| {
        keep(level, id, text);
        assert_ne!(text.to_bytes(), b"bad", "as the test wants it");
    };
    log.set_callback(Some(Callback { level: Level::Debug, call: Box::new(call) })).unwrap();
    let lease = log.lease();
    emit_apart(log, &clock, "bad");
    emit_apart(log, &clock, "good");
    drop(lease);
    let texts: Vec<String> = kept.lock().iter().map(|got| got.2.clone()).collect();
    assert_eq!(texts, ["bad", "good"]);
}
