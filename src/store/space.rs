//! How much room each path's file system has (R90): asked in the background, through the path's own
//! lane, since `statvfs` hangs on a dead mount as everything does. Whoever reads gets what was
//! learned last. It says nothing about a path's health.

use std::time::Duration;

use super::chain::Work;
use super::core::Core;
use super::effects::Effects;
use super::types::BlockId;
use crate::clock::Time;
use crate::engine::Space;

/// Room that was learned longer ago is asked for again when somebody reads it.
const FRESH: Duration = Duration::from_secs(1);

/// What is known of one path's room.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    /// What was learned last; `None`: nothing, or the last question failed.
    pub known: Option<Space>,
    /// When it was asked for last.
    pub asked: Option<Time>,
    /// It is being asked for.
    pub running: bool,
}

impl Core {
    /// What the start-up check learned.
    pub fn learn_room(&mut self, lane: usize, space: Option<Space>, now: Time) {
        self.lanes[lane].room = Room { known: space, asked: Some(now), running: false };
    }

    /// Somebody reads: what is old is asked for again, where it is not hopeless. The answer is for
    /// the next reader.
    pub fn ask_room(&mut self, now: Time, fx: &mut Effects) {
        if self.closing {
            return;
        }
        for lane in 0..self.n() {
            let epoch = self.health.backends()[lane].epoch();
            let state = &mut self.lanes[lane];
            let fresh = state.room.asked.is_some_and(|asked| now.since(asked) < FRESH);
            if fresh || state.room.running || state.hung.since(epoch) > 0 {
                continue;
            }
            state.room.asked = Some(now);
            state.room.running = true;
            let id = self.add_chain(Work::Space { lane }, BlockId([0; 16]));
            if let Some(chain) = self.chains.get_mut(&id) {
                // This path and no other.
                chain.primary = lane;
                chain.tried = !(1 << lane);
            }
            self.route(id, now, fx);
        }
    }

    /// The question has ended without an answer, or after it.
    pub(super) fn room_ended(&mut self, lane: usize, answered: bool) {
        let room = &mut self.lanes[lane].room;
        room.running = false;
        if !answered {
            room.known = None;
        }
    }
}
