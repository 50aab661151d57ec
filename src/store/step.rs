//! The steps of an attempt: which op comes first, which comes next, and what an outcome means (R7,
//! R23, R24, R40–R43). Every engine runs the same steps, because they are decided here.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::chain::{Chain, ChainId, Detour, Work};
use super::core::Core;
use super::effects::Effects;
use super::layout::MARKER;
use super::outcome::{is_missing, is_refused, may_be_stale};
use crate::clock::Time;
use crate::config::CommitSync;
use crate::engine::{Done, FileList, Op, OpKind, Outcome, Tag};
use crate::error::{self, Cause, Failure};
use crate::health::marker::{self, Marker};

/// How long a right marker stands for a block that was not found (R24).
const MARKER_FRESH_FOR_MISS: Duration = Duration::from_millis(100);
/// How long a right marker stands for the creation of a temporary (R24).
pub const MARKER_FRESH_FOR_CREATION: Duration = Duration::from_secs(1);
/// How long a local shortage is waited out where an attempt has no limit (R22).
const LOCAL_LIMIT: Duration = Duration::from_secs(30);

/// One step of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read the marker, then do this.
    Marker(Then),
    /// The read, write, list of questions, removal or listing itself.
    Main,
    /// Ask what the file system has left (R85), then the main step.
    Room,
    /// Make the block's `dir` again (R7), then create again.
    MakeDir,
    /// Sync the root, in which the `dir` was made (`commit_sync: full`).
    SyncRoot,
    /// Make the path's client look at the temporary anew before it names it ([`Core::saw_less`]),
    /// or at the block before its first load ([`super::suspects`]).
    LookAnew,
    /// Sync the temporary.
    SyncTemporary,
    /// Give the temporary its final name, replacing what is there or not.
    Rename {
        /// Replace.
        replace: bool,
    },
    /// Ask the server whether there is a file under the final name, by setting its times (R40):
    /// what a client remembers of it says nothing. As [`Step::StatFinal`], which follows.
    TouchFinal {
        /// The name was taken.
        taken: bool,
    },
    /// Look what is under the final name: it was there before the rename (`true`), or the temporary
    /// was not.
    StatFinal {
        /// The name was taken.
        taken: bool,
    },
    /// Sync the file that was there already (`commit_sync: full`): its writer may not have.
    SyncFinal,
    /// Remove the temporary: the file that was there already wins (R40).
    DropTemporary,
    /// Remove what a late rename has made of a temporary of which shards were lost.
    DropFinal,
    /// Sync the directory (`commit_sync: full`).
    SyncDir,
    /// Refresh mtimes (R64).
    Refresh,
    /// Ask for room (R90).
    Space,
}

impl Step {
    /// The step reads or writes block data.
    #[must_use]
    pub fn moves_bytes(&self) -> bool {
        *self == Step::Main
    }
}

/// What follows a marker that is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// The attempt's main step.
    Main,
    /// The block is really not there.
    NotFound,
    /// Make the `dir`.
    MakeDir,
    /// The temporary has really vanished.
    Vanished(Failure),
}

/// What an outcome means for its attempt.
#[derive(Debug)]
pub enum Verdict {
    /// Go on with this step, in the same attempt.
    Next(Step),
    /// The attempt has done its work.
    Success(Done),
    /// The block is not there: no outcome for the window.
    NotFound,
    /// The temporary is gone from a path that shows the storage: no outcome for the window, but the
    /// next backend is asked.
    Vanished(Failure),
    /// A commit's turn through another path, to look anew, is over.
    Looked(Outcome),
    /// The attempt failed.
    Fail(Failure),
}

impl Core {
    /// The first step of the next attempt of a chain.
    pub(super) fn first_step(&self, id: ChainId, lane: usize, now: Time) -> Option<Step> {
        let chain = self.chains.get(&id)?;
        Some(match &chain.work {
            Work::Dump { create: true, .. }
                if self.marker_needed(lane, MARKER_FRESH_FOR_CREATION, now) =>
            {
                Step::Marker(Then::Main)
            }
            Work::Dump { create: true, .. } if self.room_needed(lane, now) => Step::Room,
            Work::Chore { chore, .. }
                if chore.marker_age().is_some_and(|age| self.marker_needed(lane, age, now)) =>
            {
                Step::Marker(Then::Main)
            }
            Work::Commit { detour: Some(Detour::Sync(_)), .. } => Step::SyncTemporary,
            Work::Commit { detour: Some(Detour::Look(_)), .. } => Step::LookAnew,
            Work::Commit { .. } => self.first_commit_step(&chain.block, lane),
            Work::Load(_) if self.suspects.has(&chain.block, lane) => Step::LookAnew,
            Work::Refresh { .. } => Step::Refresh,
            Work::Space { .. } => Step::Space,
            _ => Step::Main,
        })
    }

    fn marker_needed(&self, lane: usize, fresh_for: Duration, now: Time) -> bool {
        let seen = self.lanes[lane].marker_seen;
        self.rules.verify_mount && seen.is_none_or(|seen| now.since(seen) >= fresh_for)
    }

    /// The op of an attempt's present step.
    pub(super) fn make_op(&mut self, tag: Tag) -> Option<Op> {
        let attempt = self.attempts.get(&tag)?;
        let gate = Arc::clone(&attempt.gate);
        let (lane, step, block) = (attempt.lane, attempt.step.clone(), attempt.block);
        let started = attempt.started;
        let id = attempt.chain?;
        let kind = match step {
            Step::Main => self.main_op(id, lane, started)?,
            Step::Refresh => self.refresh_op(id, lane)?,
            Step::Space => OpKind::Space { path: self.layout.below(lane, "") },
            Step::Marker(_) => OpKind::ReadSmall { path: self.layout.below(lane, MARKER) },
            Step::Room => OpKind::Space { path: self.layout.below(lane, "") },
            Step::MakeDir => OpKind::MakeDir {
                path: self.layout.dir_path(lane, &block),
                mode: self.rules.dir_mode,
            },
            Step::LookAnew => {
                let temporary = self.temporary(id, lane);
                let path = temporary.unwrap_or_else(|| self.layout.block_path(lane, &block));
                OpKind::SetLength(path, self.rules.shape?.block_bytes)
            }
            Step::SyncTemporary => {
                OpKind::Sync { path: self.temporary(id, lane)?, directory: false }
            }
            Step::Rename { replace } => OpKind::Rename {
                from: self.temporary(id, lane)?,
                to: self.layout.block_path(lane, &block),
                no_replace: !replace,
            },
            Step::TouchFinal { .. } => OpKind::Touch { path: self.layout.block_path(lane, &block) },
            Step::StatFinal { .. } => OpKind::Stat { path: self.layout.block_path(lane, &block) },
            Step::SyncFinal => {
                OpKind::Sync { path: self.layout.block_path(lane, &block), directory: false }
            }
            Step::SyncRoot => OpKind::Sync { path: self.layout.below(lane, ""), directory: true },
            Step::DropTemporary => OpKind::Unlink { path: self.temporary(id, lane)? },
            Step::DropFinal => OpKind::Unlink { path: self.layout.block_path(lane, &block) },
            Step::SyncDir => {
                OpKind::Sync { path: self.layout.dir_path(lane, &block), directory: true }
            }
        };
        // What only looks for others does not wait for what this host is short of.
        let looks = self.chains.get(&id).is_some_and(|chain| chain.work.looks());
        let local_limit = match looks {
            true => Duration::ZERO,
            false => self.rules.attempt_limit.unwrap_or(LOCAL_LIMIT),
        };
        Some(Op { tag, kind, gate, local_limit })
    }

    fn main_op(&mut self, id: ChainId, lane: usize, now: Time) -> Option<OpKind> {
        let chain = self.chains.get(&id)?;
        let block = chain.block;
        match &chain.work {
            Work::Load(shards) => {
                Some(OpKind::Read(self.transfer(shards, lane, &block, None, false)?))
            }
            Work::Dump { shards, generation, create, .. } => {
                if let Some(progress) = self.blocks.live(&block, *generation) {
                    progress.begun_on |= 1 << lane;
                }
                let temporary = Some(*generation);
                Some(OpKind::Write(self.transfer(shards, lane, &block, temporary, *create)?))
            }
            Work::Remove { .. } => {
                Some(OpKind::Unlink { path: self.layout.block_path(lane, &block) })
            }
            Work::Discard { .. } => Some(OpKind::Unlink { path: self.temporary(id, lane)? }),
            Work::Lookup { open, .. } => {
                let paths = open.iter().map(|(_, id)| self.layout.block_path(lane, id)).collect();
                let list = FileList::new(paths, self.clock.clone());
                let list = Arc::new(list.below(self.layout.below(lane, "")));
                let chain = self.chains.get_mut(&id)?;
                if let Work::Lookup { asked, .. } = &mut chain.work {
                    *asked = Some(Arc::clone(&list));
                }
                Some(OpKind::StatMany(list))
            }
            Work::Chore { .. } => self.chore_op(id, lane),
            Work::SetAside => self.aside_op(id, lane, now),
            Work::Commit { .. } | Work::Refresh { .. } | Work::Space { .. } => None,
        }
    }

    /// What the outcome of an attempt's present step means.
    pub(super) fn verdict(
        &mut self,
        attempt: &mut Attempt,
        id: ChainId,
        outcome: Outcome,
        now: Time,
        fx: &mut Effects,
    ) -> Verdict {
        if let Step::Marker(then) = attempt.step.clone() {
            let verdict = self.marker_verdict(attempt.lane, then, outcome, now);
            let begins = matches!(verdict, Verdict::Next(Step::Main)) && attempt.creates.is_some();
            let asks = begins && self.room_needed(attempt.lane, now);
            return if asks { Verdict::Next(Step::Room) } else { verdict };
        }
        if attempt.step == Step::Room {
            return self.room_verdict(attempt.lane, outcome, now);
        }
        let Some(chain) = self.chains.get_mut(&id) else {
            return Verdict::NotFound;
        };
        let is_commit = matches!(chain.work, Work::Commit { .. });
        let is_dump = matches!(chain.work, Work::Dump { .. });
        if is_commit {
            return self.commit_verdict(attempt, id, outcome, now, fx);
        }
        if is_dump {
            return self.dump_verdict(attempt, id, outcome, now);
        }
        self.plain_verdict(attempt, id, outcome, now, fx)
    }

    fn marker_verdict(&mut self, lane: usize, then: Then, outcome: Outcome, now: Time) -> Verdict {
        let expected = self.expected_storage(lane);
        let state = &mut self.lanes[lane];
        // Until it is seen to be right again, nothing is created here on an older word.
        state.marker_seen = None;
        let away = |text: String| {
            let cause = Cause::NotTheStorage(text);
            Verdict::Fail(Failure { step: error::Step::Verify, cause })
        };
        let found = match outcome {
            Ok(Done::Bytes(bytes)) => match Marker::parse(&bytes) {
                Ok(marker) => Some(marker),
                Err(text) => return away(text),
            },
            Ok(_) => None,
            Err(failure) if failure.os() == Some(libc::ENOENT) => None,
            Err(failure) => return Verdict::Fail(failure),
        };
        if let Some(expected) = expected
            && let Err(failure) = marker::verify(found.as_ref(), expected)
        {
            return Verdict::Fail(failure);
        }
        state.marker_seen = Some(now);
        match then {
            Then::Main => Verdict::Next(Step::Main),
            Then::NotFound => Verdict::NotFound,
            Then::MakeDir => Verdict::Next(Step::MakeDir),
            Then::Vanished(failure) => Verdict::Vanished(failure),
        }
    }

    /// Loads, lookups, removals, discards, chores, hotness, room.
    fn plain_verdict(
        &mut self,
        attempt: &mut Attempt,
        id: ChainId,
        outcome: Outcome,
        now: Time,
        fx: &mut Effects,
    ) -> Verdict {
        let fresh = !self.marker_needed(attempt.lane, MARKER_FRESH_FOR_MISS, now);
        let drops_final = attempt.step == Step::Main && self.drops_final(&attempt.block);
        let (suspect, misnamed) = (self.is_suspect(attempt), self.is_misnamed(attempt));
        let Some(chain) = self.chains.get_mut(&id) else {
            return Verdict::NotFound;
        };
        let not_found = || {
            if fresh { Verdict::NotFound } else { Verdict::Next(Step::Marker(Then::NotFound)) }
        };
        match outcome {
            Ok(_) if misnamed => Verdict::NotFound,
            Ok(_) if suspect => Verdict::Next(Step::LookAnew),
            Err(failure) if suspect && may_be_stale(&failure) => Verdict::Next(Step::LookAnew),
            Ok(_) if attempt.step == Step::LookAnew => {
                (attempt.has_to_look, attempt.has_looked) = (false, true);
                self.looked_anew(&attempt.block, attempt.lane);
                Verdict::Next(Step::Main)
            }
            // Another's file, or a storage that takes no writes: no fault of the path, but what it
            // remembers cannot be told from what is there.
            Err(failure) if attempt.step == Step::LookAnew && is_refused(&failure) => {
                Verdict::Vanished(failure)
            }
            Ok(Done::Infos(infos, failure)) => {
                let (verdict, hits) = self.lookup_verdict(id, attempt.lane, &infos, failure, fresh);
                hits.into_iter().for_each(|block| self.hit(block, now, fx));
                verdict
            }
            Ok(Done::Touched(answers, failure)) => self.refresh_verdict(id, &answers, failure),
            Ok(done) => Verdict::Success(done),
            Err(failure)
                if is_missing(&failure)
                    && drops_final
                    && matches!(chain.work, Work::Discard { named: true, .. }) =>
            {
                Verdict::Next(Step::DropFinal)
            }
            Err(failure) if is_missing(&failure) => not_found(),
            Err(failure) if may_be_stale(&failure) && !chain.looked_again => {
                // R23: a stale view may be the reason, so look afresh once.
                chain.looked_again = true;
                Verdict::Next(Step::Main)
            }
            Err(failure) => Verdict::Fail(failure),
        }
    }

    fn dump_verdict(
        &mut self,
        attempt: &mut Attempt,
        id: ChainId,
        outcome: Outcome,
        now: Time,
    ) -> Verdict {
        let check = self.rules.verify_mount;
        let Some(Chain { work: Work::Dump { create, .. }, .. }) = self.chains.get_mut(&id) else {
            return Verdict::NotFound;
        };
        let failure = match outcome {
            Ok(Done::Unit)
                if attempt.step == Step::MakeDir && self.rules.commit_sync == CommitSync::Full =>
            {
                return Verdict::Next(Step::SyncRoot);
            }
            Ok(Done::Unit) if matches!(attempt.step, Step::MakeDir | Step::SyncRoot) => {
                // Once more: the path may have fallen off before the `dir` was made (R24).
                let again = if check { Step::Marker(Then::Main) } else { Step::Main };
                return Verdict::Next(again);
            }
            Ok(done) => return Verdict::Success(done),
            Err(failure) => failure,
        };
        let at_open = failure.step == error::Step::Open && attempt.step == Step::Main;
        match failure.os() {
            // Our own name, from an earlier attempt of this chain (R5).
            Some(libc::EEXIST) if at_open && *create => {
                *create = false;
                Verdict::Next(Step::Main)
            }
            Some(libc::ENOENT) if at_open && *create && !attempt.made_dir => {
                attempt.made_dir = true;
                let fresh = self.lanes[attempt.lane].marker_seen == Some(now);
                if check && !fresh {
                    return Verdict::Next(Step::Marker(Then::MakeDir));
                }
                Verdict::Next(Step::MakeDir)
            }
            Some(libc::ENOENT) if at_open && !*create => {
                if check {
                    return Verdict::Next(Step::Marker(Then::Vanished(failure)));
                }
                Verdict::Vanished(failure)
            }
            _ => Verdict::Fail(failure),
        }
    }
}
