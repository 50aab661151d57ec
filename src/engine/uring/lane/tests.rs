//! When the threads of a lane are over.

use super::super::worker;
use super::*;
use crate::engine::{Outcome, Want};

/// Nothing to do.
struct Empty;

impl Source for Empty {
    fn pull(&self, _: Want) -> Option<Op> {
        None
    }

    fn complete(&self, _: Tag, _: Outcome) {
        unreachable!("nothing was pulled");
    }
}

fn lane() -> Arc<Lane> {
    let params = EngineParams {
        index: 0,
        transfers: 4,
        metadata: 2,
        buffer_bytes: 1 << 20,
        file_bytes: 1 << 20,
        bell: Arc::new(|| {}),
    };
    Lane::new(params, Arc::new(Empty))
}

/// Close waits for the last instruction of each thread (R54), and that of one which has left before
/// its maker could store the handle is not over yet: it still has a descriptor.
#[test]
fn a_thread_that_leaves_before_its_handle_is_stored_is_joined() {
    let lane = lane();
    lane.wake(1);
    let number = lane.begin_making().unwrap();
    let its_own = Arc::clone(&lane);
    let thread = std::thread::spawn(move || worker::work(its_own, number));
    lane.stop();
    while lane.alive() > 0 {
        std::thread::yield_now();
    }
    assert!(!lane.join(Some(Duration::ZERO)), "its handle is still to come");
    lane.end_making(thread);
    assert!(lane.join(None));
    assert_eq!(Arc::strong_count(&lane), 1, "the thread has dropped what it had");
}

#[test]
fn a_thread_that_cannot_be_made_is_not_waited_for() {
    let lane = lane();
    lane.wake(1);
    let number = lane.begin_making().unwrap();
    lane.not_made(number, &std::io::Error::from_raw_os_error(libc::EAGAIN));
    lane.stop();
    assert!(lane.join(Some(Duration::ZERO)));
}
