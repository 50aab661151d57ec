//! The desk's decisions, step by step, in orders that threads rarely meet.

use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

use super::{Ask, Desk, Flight, KICK, Leg, Todo};
use crate::clock::Clock;
use crate::engine::{Gate, Op, OpKind, Tag, Want};

fn flight(tag: u64) -> Flight {
    let kind = OpKind::Stat { path: CString::default() };
    let gate = Arc::new(Gate::new(Clock::monotonic()));
    let op = Op { tag: Tag(tag), kind, gate, local_limit: Duration::ZERO };
    let file = std::fs::File::open("/dev/null").unwrap();
    Flight::new(Arc::new(op), Box::new(Leg::new(file.into(), false)))
}

fn reserved(desk: &mut Desk) -> bool {
    matches!(desk.ask(Want::Any), Ask::Reserved(Want::Any))
}

#[test]
fn an_event_that_comes_late_is_never_taken_for_another_op() {
    let mut desk = Desk::new(4);
    let first = desk.enter(flight(1), true);
    assert_eq!(desk.leave(first).map(|flight| flight.op.tag), Some(Tag(1)));
    let second = desk.enter(flight(2), true);
    assert_ne!(first, second);
    assert!(desk.leave(first).is_none(), "the same slot, an earlier generation");
    assert!(desk.leave(KICK).is_none());
    assert!(desk.in_kernel());
    assert_eq!(desk.leave(second).map(|flight| flight.op.tag), Some(Tag(2)));
    assert!(desk.leave(second).is_none());
    assert!(!desk.in_kernel());
}

#[test]
fn transfers_in_flight_are_limited_though_no_worker_has_them() {
    let mut desk = Desk::new(2);
    for tag in [1, 2] {
        assert!(reserved(&mut desk));
        assert!(!desk.answered(Ok(Tag(tag))));
    }
    assert!(matches!(desk.ask(Want::Any), Ask::Source(Want::Metadata)));
    assert!(matches!(desk.ask(Want::Transfers), Ask::Nothing));
    assert!(desk.ended(Tag(1)), "somebody was refused and must look again");
    assert!(reserved(&mut desk));
    assert!(!desk.answered(Err(false)));
    assert!(!desk.ended(Tag(2)), "the source had nothing more");
}

#[test]
fn a_place_that_a_metadata_op_did_not_need_is_offered_again() {
    let mut desk = Desk::new(1);
    assert!(reserved(&mut desk));
    assert!(matches!(desk.ask(Want::Transfers), Ask::Nothing));
    assert!(desk.answered(Err(true)));
    assert!(reserved(&mut desk));
}

#[test]
fn r36_an_abandoned_transfer_frees_its_place_once() {
    let mut desk = Desk::new(1);
    assert!(reserved(&mut desk));
    desk.answered(Ok(Tag(1)));
    assert!(matches!(desk.ask(Want::Transfers), Ask::Nothing));
    assert!(desk.abandon(Tag(1)));
    assert!(!desk.abandon(Tag(1)));
    assert!(desk.is_abandoned(Tag(1)));
    assert!(reserved(&mut desk));
    // It is given up before its pull has come back.
    assert!(!desk.abandon(Tag(2)));
    assert!(desk.answered(Ok(Tag(2))));
    assert!(desk.is_abandoned(Tag(2)));
    assert!(!desk.ended(Tag(1)) && !desk.ended(Tag(2)));
    assert!(reserved(&mut desk));
    assert!(matches!(desk.ask(Want::Transfers), Ask::Nothing));
}

#[test]
fn a_flight_that_came_back_goes_before_anything_new() {
    let mut desk = Desk::new(1);
    let data = desk.enter(flight(7), true);
    let back = desk.leave(data).unwrap();
    desk.resume(back, Todo::Submit);
    assert!(matches!(desk.ask(Want::Metadata), Ask::Resumed(op) if op.tag == Tag(7)));
    assert!(matches!(desk.take_held(Tag(7)), Some((_, Todo::Submit))));
    assert!(desk.take_held(Tag(7)).is_none());
    desk.stopping = true;
    assert!(desk.landed(), "the last one tells the reaper");
}

#[test]
fn r36_flights_that_hang_fill_a_context_until_they_have_landed() {
    let mut desk = Desk::new(1);
    let hung = [desk.enter(flight(1), true), desk.enter(flight(2), true)];
    assert!(desk.has_room(4) && !desk.has_room(3), "one is left for a kick");
    desk.leave(hung[0]);
    assert!(!desk.has_room(3), "it may go back to the kernel");
    desk.landed();
    assert!(desk.has_room(3));
}
