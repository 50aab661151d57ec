//! Limits that pass while this host is short of something (R22): the path is not to blame, and what
//! waited ends with the errno of the shortage. Whoever waits for a resource looks every few moments
//! whether he was given up, so an attempt that is still there at a second look hangs after all.

use super::attempt::Pending;
use super::chain::Class;
use super::core::Core;
use super::effects::Effects;
use crate::clock::Time;
use crate::config::FailureScope;
use crate::engine::Tag;
use crate::engine::gate::HANGS_AFTER;
use crate::error::{Error, Failure, Status};
use crate::health::class;

impl Core {
    /// The limit of an attempt has passed. `true`: during a shortage, and its chain ends, or will
    /// when the worker leaves the caller's memory (`alone`: it is not there).
    pub(super) fn excused(&mut self, tag: Tag, alone: bool, now: Time, fx: &mut Effects) -> bool {
        let scope = self.rules.scope;
        let Some(attempt) = self.attempts.get_mut(&tag) else { return false };
        if attempt.excused || scope != FailureScope::Path {
            return false;
        }
        let Some(errno) = attempt.gate.local(now) else { return false };
        attempt.excused = true;
        attempt.limit = Some(now.plus(HANGS_AFTER));
        let lane = attempt.lane;
        let failure = Failure::errno(attempt.word(), errno);
        let may_write = attempt.class == Class::Dump && attempt.gate.is_in_call();
        let chain = attempt.chain;
        self.count_error(lane, class::Class::Local { again: true }, &failure);
        let Some(id) = chain else { return true };
        let Some(chain) = self.chains.get(&id) else { return true };
        let what = self.describe(&chain.work, &chain.block);
        let text = class::text(self.layout.root(lane), &failure);
        let error = Error::new(Status::OsError, format!("{what}: {text} (this host)"));
        let Some(attempt) = self.attempts.get_mut(&tag) else { return true };
        if !alone {
            attempt.pending = Some(Pending::End(error));
            return true;
        }
        attempt.chain = None;
        if let Some(chain) = self.chains.get_mut(&id).filter(|_| may_write) {
            // R5: the call that was made again may create or write yet.
            chain.in_kernel.insert(tag);
        }
        self.end(id, Err(error), now, fx);
        true
    }
}
