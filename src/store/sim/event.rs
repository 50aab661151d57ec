//! A model of the descriptor of `kvpath_event_fd`: whatever order threads meet in, it is readable
//! exactly while there is something to list. The real core and the real descriptor, under loom.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::world::{Mode, World};
use crate::store::TaskKind;
use crate::store::plan::Plan;
use crate::store::shared::Shared;
use crate::store::supervisor::Alarm;

fn shared() -> Arc<Shared> {
    let World { core, clock, .. } = World::new(1, Mode { paths: 1, ..Mode::default() });
    let alarm = Arc::new(Alarm::new(clock.clone()));
    Arc::new(Shared::new(core, clock, Arc::new(AtomicU64::new(1)), alarm))
}

/// A task without shards: it has finished when it was submitted.
fn submit(shared: &Shared) -> u64 {
    let plan = Plan::new(TaskKind::Load, Vec::new()).unwrap();
    shared.with(|core, now, fx| core.submit(TaskKind::Load, plan, now, fx)).unwrap()
}

fn check_readable(shared: &Shared) {
    let raw = shared.event_fd().unwrap();
    // SAFETY: the descriptor is the store's, which lives.
    let fd = unsafe { BorrowedFd::borrow_raw(raw) };
    let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
    let readable = poll(&mut polled, PollTimeout::ZERO).unwrap() == 1;
    assert_eq!(readable, shared.read(|core| core.tasks.has_unlisted()));
}

#[test]
fn loom_readable_while_there_is_something_to_list() {
    loom::model(|| {
        let shared = shared();
        shared.event_fd().unwrap();
        let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
        let submitter = loom::thread::spawn(move || submit(&one));
        let lister = loom::thread::spawn(move || other.finished(1).len());
        let task = submit(&shared);
        assert!(shared.read(|core| core.tasks.consume(task)).is_some());
        shared.consumed();
        submitter.join().unwrap();
        assert!(lister.join().unwrap() <= 1);
        check_readable(&shared);
        shared.finished(8);
        check_readable(&shared);
    });
}

#[test]
fn loom_made_while_tasks_finish() {
    loom::model(|| {
        let shared = shared();
        let one = Arc::clone(&shared);
        let submitter = loom::thread::spawn(move || submit(&one));
        shared.event_fd().unwrap();
        submitter.join().unwrap();
        check_readable(&shared);
    });
}
