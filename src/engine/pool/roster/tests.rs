//! The decisions of the roster, step by step, in the orders that threads rarely meet.

use std::sync::Arc;

use super::super::{Look, Parker};
use super::{After, Claim, Kind, Next, Roster};
use crate::engine::{Tag, Want};

const TRANSFER: Option<(Tag, Kind)> = Some((Tag(1), Kind::Transfer));
const METADATA: Option<(Tag, Kind)> = Some((Tag(2), Kind::Metadata));

/// A roster of `workers` made workers, each on its way to its first pull.
fn roster(transfers: usize, metadata: usize, workers: usize) -> (Roster, Vec<Arc<Parker>>) {
    let mut roster = Roster::new(transfers, metadata);
    assert!(workers == 0 || roster.arrived(workers, true, Look::Both).ring);
    let parkers = (0..workers)
        .map(|_| {
            let number = roster.begin_making().unwrap();
            Arc::new(Parker::new(number))
        })
        .collect();
    (roster, parkers)
}

fn settle(
    roster: &mut Roster,
    who: &Arc<Parker>,
    claim: &Claim,
    op: Option<(Tag, Kind)>,
) -> (Next, usize) {
    let (next, calls) = roster.settle(who, claim, op, claim.transfer, true);
    (next, calls.wake.len())
}

#[test]
fn no_more_threads_are_asked_for_than_there_is_work_or_room() {
    let mut roster = Roster::new(2, 1);
    assert!(roster.arrived(1, true, Look::Both).ring);
    assert_eq!(roster.asked, 1);
    assert!(roster.arrived(9, true, Look::Both).ring);
    assert_eq!(roster.asked, 3);
    assert!(!roster.arrived(9, true, Look::Both).ring);
    // Without a buffer only metadata could be pulled: one looks.
    let mut roster = Roster::new(2, 4);
    assert!(roster.arrived(9, false, Look::Both).ring);
    assert_eq!(roster.asked, 1);
}

#[test]
fn a_thread_that_cannot_be_made_is_nobody_on_his_way() {
    let (mut roster, workers) = roster(4, 1, 1);
    let claim = roster.claim().unwrap();
    assert_eq!(settle(&mut roster, &workers[0], &claim, None).0, Next::Park);
    // The idle one is woken, and three more are asked for.
    assert_eq!((roster.arrived(4, true, Look::Both).wake.len(), roster.asked), (1, 3));
    let number = roster.begin_making().unwrap();
    assert!(roster.not_made(number, true).wake.is_empty());
    let claim = roster.claim().unwrap();
    assert_eq!(settle(&mut roster, &workers[0], &claim, None).0, Next::Park);
    // What comes later is for whoever idles; the three are not asked for again at once.
    let calls = roster.arrived(2, true, Look::Both);
    assert_eq!((calls.wake.len(), calls.ring), (1, false));
    // The supervisor tries again what is still needed.
    roster.arrived(5, true, Look::Both);
    assert!(roster.begin_making().is_some());
}

#[test]
fn threads_that_nobody_needs_any_more_are_not_made() {
    let (mut roster, workers) = roster(4, 1, 1);
    roster.arrived(3, true, Look::Both);
    assert!(roster.asked > 0);
    let claim = roster.claim().unwrap();
    // Somebody else took it all: the worker finds nothing.
    assert_eq!(settle(&mut roster, &workers[0], &claim, None).0, Next::Park);
    assert_eq!(roster.begin_making(), None);
    assert_eq!(roster.asked, 0);
}

#[test]
fn a_wake_during_a_pull_makes_the_worker_look_again() {
    let (mut roster, workers) = roster(2, 1, 1);
    let claim = roster.claim().unwrap();
    assert_eq!(claim.want(true), Some(Want::Any));
    // What it was made for has gone already.
    roster.waiting = 0;
    let calls = roster.arrived(1, true, Look::Both);
    assert!(!calls.ring && calls.wake.is_empty(), "it will look again by itself");
    assert_eq!(settle(&mut roster, &workers[0], &claim, None).0, Next::Again);
    let claim = roster.claim().unwrap();
    assert_eq!(settle(&mut roster, &workers[0], &claim, None).0, Next::Park);
}

#[test]
fn metadata_is_looked_for_when_the_last_place_for_transfers_is_taken() {
    let (mut roster, workers) = roster(1, 4, 2);
    let idle = roster.claim().unwrap();
    let claim = roster.claim().unwrap();
    assert_eq!(settle(&mut roster, &workers[0], &idle, None).0, Next::Park);
    // A transfer and a metadata op come while the second worker finds nothing.
    roster.waiting = 0;
    assert!(roster.arrived(1, true, Look::Both).wake.is_empty());
    assert_eq!(settle(&mut roster, &workers[1], &claim, None).0, Next::Again);
    assert_eq!(roster.arrived(1, true, Look::Both).wake.len(), 1);
    let (claim, woken) = (roster.claim().unwrap(), roster.claim().unwrap());
    assert_eq!(woken.want(true), Some(Want::Metadata));
    assert_eq!(settle(&mut roster, &workers[1], &claim, TRANSFER), (Next::Run, 0));
    assert_eq!(settle(&mut roster, &workers[0], &woken, METADATA), (Next::Run, 0));
}

#[test]
fn a_scout_is_sent_once_for_each_wake_and_not_for_each_transfer() {
    let (mut roster, workers) = roster(1, 4, 2);
    let (claim, idle) = (roster.claim().unwrap(), roster.claim().unwrap());
    assert_eq!(settle(&mut roster, &workers[1], &idle, None).0, Next::Park);
    // The wake for eight counts on the one that pulls; it comes back with the only transfer.
    roster.waiting = 0;
    assert!(roster.arrived(8, true, Look::Both).wake.is_empty());
    assert_eq!(settle(&mut roster, &workers[0], &claim, TRANSFER), (Next::Run, 1));
    let scout = roster.claim().unwrap();
    assert_eq!(scout.want(true), Some(Want::Metadata));
    assert_eq!(settle(&mut roster, &workers[1], &scout, None).0, Next::Park);
    for _ in 0..6 {
        roster.reporting();
        roster.finished(0, true);
        let claim = roster.claim().unwrap();
        assert_eq!(settle(&mut roster, &workers[0], &claim, TRANSFER), (Next::Run, 0));
    }
}

#[test]
fn a_place_that_was_claimed_for_nothing_is_not_lost_on_others() {
    let (mut roster, workers) = roster(1, 1, 2);
    let first = roster.claim().unwrap();
    let second = roster.claim().unwrap();
    assert_eq!(second.want(true), None, "the first holds both places");
    assert_eq!(settle(&mut roster, &workers[1], &second, None).0, Next::Park);
    let (next, woken) = settle(&mut roster, &workers[0], &first, METADATA);
    assert_eq!((next, woken), (Next::Run, 1));
}

#[test]
fn an_op_abandoned_before_it_is_on_record_does_not_count_either() {
    let (mut roster, workers) = roster(1, 1, 1);
    let claim = roster.claim().unwrap();
    roster.abandon(Tag(1), true);
    assert_eq!(settle(&mut roster, &workers[0], &claim, TRANSFER).0, Next::Run);
    assert_eq!((roster.abandoned, roster.transfers), (1, 0));
    roster.reporting();
    assert_eq!(roster.finished(0, true).0, After::Stay, "it was not replaced");
    assert_eq!((roster.abandoned, roster.transfers, roster.seeking), (0, 0, 1));
    // One that nobody runs is forgotten.
    roster.abandon(Tag(9), true);
    assert!(roster.early.is_empty());
}

#[test]
fn one_that_returns_to_a_full_roster_leaves() {
    let (mut roster, workers) = roster(1, 1, 1);
    let claim = roster.claim().unwrap();
    settle(&mut roster, &workers[0], &claim, TRANSFER);
    roster.abandon(Tag(1), true);
    roster.arrived(2, true, Look::Both);
    assert!(roster.begin_making().is_some() && roster.begin_making().is_some());
    roster.reporting();
    assert_eq!(roster.finished(0, true).0, After::Leave);
    assert_eq!((roster.abandoned, roster.seeking), (0, 2));
}

#[test]
fn an_op_of_the_other_kind_counts_on_the_place_that_it_was_pulled_on() {
    let (mut roster, workers) = roster(2, 1, 2);
    let first = roster.claim().unwrap();
    assert_eq!(settle(&mut roster, &workers[0], &first, METADATA).0, Next::Run);
    let second = roster.claim().unwrap();
    assert_eq!(second.want(true), Some(Want::Transfers));
    // A dump may begin with a look at the storage's marker, which moves no block.
    let look = Some((Tag(3), Kind::Metadata));
    assert_eq!(settle(&mut roster, &workers[1], &second, look).0, Next::Run);
    assert_eq!((roster.transfers, roster.metadata), (1, 1));
    for number in [0, 1] {
        roster.reporting();
        roster.finished(number, true);
    }
    assert_eq!((roster.transfers, roster.metadata), (0, 0));
}

#[test]
fn transfers_that_arrive_wake_no_more_workers_than_have_a_place() {
    let (mut roster, workers) = roster(2, 8, 4);
    let claims: Vec<Claim> = workers[1..].iter().map(|_| roster.claim().unwrap()).collect();
    for (worker, claim) in std::iter::zip(&workers[1..], &claims) {
        assert_eq!(settle(&mut roster, worker, claim, None).0, Next::Park);
    }
    let claim = roster.claim().unwrap();
    assert_eq!(settle(&mut roster, &workers[0], &claim, TRANSFER).0, Next::Run);
    assert_eq!(roster.arrived(5, true, Look::Scout).wake.len(), 1);
    // That one is on his way to the only place.
    assert_eq!(roster.arrived(5, true, Look::Scout).wake.len(), 0);
    let claim = roster.claim().unwrap();
    let second = Some((Tag(3), Kind::Transfer));
    // Nobody knows whether metadata is among the rest: one looks, and one alone.
    assert_eq!(settle(&mut roster, &workers[3], &claim, second), (Next::Run, 1));
    let claim = roster.claim().unwrap();
    assert_eq!(claim.want(true), Some(Want::Metadata));
    assert_eq!(settle(&mut roster, &workers[2], &claim, METADATA), (Next::Run, 1));
}
