//! The life of threads on the roster: asked for, made, retired, left, joined. Pure bookkeeping as
//! the rest.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::super::{Look, Parker};
use super::{Calls, Member, Roster};

impl Roster {
    /// A parked worker's idle time is over. `false`: somebody woke it first.
    pub(in crate::engine::pool) fn retire(&mut self, parker: &Arc<Parker>) -> bool {
        match self.idle.iter().position(|other| Arc::ptr_eq(other, parker)) {
            Some(at) => {
                self.idle.remove(at);
                true
            }
            None => false,
        }
    }

    /// The supervisor makes one of the threads that were asked for, if one is still needed: its
    /// number.
    pub(in crate::engine::pool) fn begin_making(&mut self) -> Option<usize> {
        let wanted = self.asked + self.refused;
        self.refused = 0;
        let needed = wanted.min(self.waiting.saturating_sub(self.seeking)).min(self.room());
        if needed == 0 || self.stopping {
            self.asked = 0;
            return None;
        }
        self.asked = needed - 1;
        self.seeking += 1;
        self.threads += 1;
        self.making += 1;
        let number = self.members.iter().position(Option::is_none).unwrap_or(self.members.len());
        if number == self.members.len() {
            self.members.push(None);
        }
        self.members[number] = Some(Member::default());
        Some(number)
    }

    /// The thread could not be made, and no other will be for now: whoever idles does the work.
    pub(in crate::engine::pool) fn not_made(&mut self, number: usize, available: bool) -> Calls {
        self.making -= 1;
        self.members[number] = None;
        self.threads -= 1;
        self.seeking -= 1;
        self.refused = std::mem::take(&mut self.asked) + 1;
        self.rouse(available, Look::Both)
    }

    /// The thread is there.
    pub(in crate::engine::pool) fn end_making(&mut self, number: usize, handle: JoinHandle<()>) {
        self.making -= 1;
        match self.member(number) {
            Some(member) if !member.left => member.handle = Some(handle),
            _ => {
                self.ended.push(handle);
                self.members[number] = None;
            }
        }
    }

    /// The worker ends now. Gives the handles of those that ended before.
    pub(in crate::engine::pool) fn leave(&mut self, number: usize) -> Vec<JoinHandle<()>> {
        self.threads -= 1;
        let before = std::mem::take(&mut self.ended);
        let handle = self.member(number).and_then(|member| {
            member.left = true;
            member.handle.take()
        });
        // Without a handle its maker is about to bring one, and needs the entry to see that it has
        // left.
        if let Some(handle) = handle {
            self.ended.push(handle);
            self.members[number] = None;
        }
        before
    }

    /// Handles to join.
    pub(in crate::engine::pool) fn take_ended(&mut self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.ended)
    }

    /// Nothing is pulled any more; gives the parked workers, which are to end.
    pub(in crate::engine::pool) fn stop(&mut self) -> Vec<Arc<Parker>> {
        self.stopping = true;
        (self.asked, self.refused) = (0, 0);
        self.seeking += self.idle.len();
        std::mem::take(&mut self.idle)
    }
}
