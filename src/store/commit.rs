//! Commits: how a written generation becomes a block, step by step and backend by backend
//! (R40–R43).

use super::attempt::Attempt;
use super::chain::{ChainId, Shards, Waiter, Work};
use super::core::Core;
use super::effects::Effects;
use super::step::{Step, Then, Verdict};
use super::types::BlockId;
use crate::clock::Time;
use crate::config::CommitSync;
use crate::engine::{Done, Outcome};
use crate::error::{self, Cause, Error, Failure};

/// The mtime of a block that was written longer ago is refreshed when it is committed.
const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);

impl Work {
    /// A step of a commit has ended. Gives its generation.
    fn commit_goes_on(&mut self, outcome: &Outcome, whole: Option<u64>) -> Option<u64> {
        let Work::Commit { detour, syncing, generation, .. } = self else { return None };
        if !matches!(outcome, Err(failure) if failure.os() != Some(libc::ENOENT)) {
            *syncing = None;
        }
        if matches!(outcome, Ok(Done::Info(info)) if info.bytes == whole) {
            // The temporary has its final name: nothing is left to sync through another path.
            *detour = None;
        }
        Some(*generation)
    }
}

impl Core {
    /// Starts the commit of a generation.
    pub(super) fn begin_commit(
        &mut self,
        block: BlockId,
        generation: u64,
        waiters: Vec<Waiter>,
        rewrite: Option<(Shards, u64)>,
        now: Time,
        fx: &mut Effects,
    ) {
        let tried = rewrite.as_ref().map_or(0, |(_, tried)| *tried);
        let rewrite = rewrite.map(|(shards, _)| shards);
        let work =
            Work::Commit { generation, waiters, rewrite, detour: None, looked: 0, syncing: None };
        let id = self.add_chain(work, block);
        let hung = self.hung_writers(&block, generation);
        if let Some(chain) = self.chains.get_mut(&id) {
            (chain.tried, chain.spared) = (tried | hung, hung & !tried);
        }
        if let Some(progress) = self.blocks.live(&block, generation) {
            (progress.commit, progress.lost) = (Some(id), false);
        }
        self.route(id, now, fx);
    }

    /// A commit has ended.
    pub(super) fn commit_ended(
        &mut self,
        (block, generation): (BlockId, u64),
        waiters: Vec<Waiter>,
        result: &Result<(), Error>,
        vanished: bool,
        now: Time,
        fx: &mut Effects,
    ) {
        // Also of one that failed: its rename may be done late.
        self.suspect(block, generation);
        match result {
            Ok(()) => {
                self.stats.committed_blocks += 1;
                self.named_well(block, now, fx);
                if let Some(progress) = self.blocks.end(&block, generation) {
                    if now.since(progress.touched) >= MINUTE {
                        // R40: written long ago, and asked for now.
                        self.hit(block, now, fx);
                    }
                    for (_, shards) in progress.behind {
                        self.end_positions(shards.task, &shards.positions, &Ok(()), now, fx);
                    }
                }
            }
            Err(_) if vanished => self.give_up(block, generation, now, fx),
            Err(_) if self.may_be_named(&block, generation) => {
                // Done late the rename would name what was lost, or is not written again yet.
                self.give_up(block, generation, now, fx);
            }
            Err(_) => {
                if let Some(progress) = self.blocks.live(&block, generation) {
                    progress.commit = None;
                    progress.touched = now;
                }
                self.named_badly(block, now, fx);
            }
        }
        self.tell(waiters, result, now, fx);
        if result.is_err() {
            self.end_if_bare(block, generation, now, fx);
        }
    }

    /// What a commit begins with.
    pub(super) fn first_commit_step(&self, block: &BlockId, lane: usize) -> Step {
        match self.saw_less(block, lane) {
            true => Step::LookAnew,
            false => self.last_commit_steps(block, lane),
        }
    }

    /// What a commit begins with once its path sees all that was written.
    fn last_commit_steps(&self, block: &BlockId, lane: usize) -> Step {
        match self.needs_sync(block) {
            true => Step::SyncTemporary,
            false => self.naming(block, lane),
        }
    }

    /// How a temporary gets its final name. Where a rename cannot leave alone what is there, that
    /// is looked at before: whoever has a replaced file open, or remembers it, gets ESTALE for it,
    /// which would count against a healthy path.
    pub(super) fn naming(&self, block: &BlockId, lane: usize) -> Step {
        match self.lanes[lane].no_replace {
            // What has the name lacks something, perhaps.
            _ if self.misnamed.contains_key(block) => Step::Rename { replace: true },
            true => Step::Rename { replace: false },
            false => self.look_at_final(lane, true),
        }
    }

    fn needs_sync(&self, block: &BlockId) -> bool {
        let synced = self.blocks.get(block).is_none_or(super::blocks::Progress::synced);
        self.syncs_data() && !synced
    }

    pub(super) fn temporary(&self, id: ChainId, lane: usize) -> Option<std::ffi::CString> {
        let chain = self.chains.get(&id)?;
        let generation = match chain.work {
            Work::Commit { generation, .. }
            | Work::Dump { generation, .. }
            | Work::Discard { generation, .. } => generation,
            _ => return None,
        };
        Some(self.layout.temporary_path(lane, &chain.block, generation))
    }

    /// What the outcome of a commit's present step means.
    pub(super) fn commit_verdict(
        &mut self,
        attempt: &Attempt,
        id: ChainId,
        outcome: Outcome,
        now: Time,
        fx: &mut Effects,
    ) -> Verdict {
        let lane = attempt.lane;
        let Some(chain) = self.chains.get_mut(&id) else { return Verdict::NotFound };
        let (block, looks) = (chain.block, chain.work.looks());
        let block_bytes = self.rules.shape.map(|shape| shape.block_bytes);
        let Some(generation) = chain.work.commit_goes_on(&outcome, block_bytes) else {
            return Verdict::NotFound;
        };
        if looks {
            return Verdict::Looked(outcome);
        }
        match (&attempt.step, outcome) {
            (Step::LookAnew, Ok(_)) => {
                self.blocks.seen(&block, generation, lane);
                Verdict::Next(self.last_commit_steps(&block, lane))
            }
            (Step::SyncTemporary, Ok(_)) => {
                self.blocks.synced(&block, generation, lane);
                self.synced(id, lane)
            }
            (Step::Rename { .. }, Ok(_)) => self.renamed(),
            (Step::DropTemporary, Ok(_)) => {
                // R40: the file that was there already has been asked for again.
                self.hit(block, now, fx);
                self.renamed()
            }
            (Step::DropTemporary, Err(failure)) if failure.os() == Some(libc::ENOENT) => {
                self.renamed()
            }
            (Step::SyncFinal, Ok(_)) => Verdict::Next(Step::DropTemporary),
            // Removed meanwhile by somebody else.
            (Step::SyncFinal, Err(failure)) if failure.os() == Some(libc::ENOENT) => {
                Verdict::Next(Step::DropTemporary)
            }
            (Step::StatFinal { taken }, Ok(Done::Info(info))) => {
                self.final_there(&block, *taken, info.bytes == block_bytes)
            }
            (Step::TouchFinal { taken }, Ok(_)) => Verdict::Next(Step::StatFinal { taken: *taken }),
            (Step::StatFinal { taken: true }, Err(f)) if f.os() == Some(libc::ENOENT) => {
                Verdict::Next(Step::Rename { replace: true })
            }
            (Step::StatFinal { taken: false }, Err(f)) if f.os() == Some(libc::ENOENT) => {
                self.vanished()
            }
            (Step::SyncDir, Ok(_)) => Verdict::Success(Done::Unit),
            (_, Ok(done)) => Verdict::Success(done),
            (step, Err(failure)) => {
                let step = step.clone();
                self.commit_failed(&block, lane, &step, failure)
            }
        }
    }

    /// There may be a file under the final name, or there should be one.
    fn look_at_final(&self, lane: usize, taken: bool) -> Step {
        match self.lanes[lane].facts.coherent {
            true => Step::StatFinal { taken },
            false => Step::TouchFinal { taken },
        }
    }

    /// There is a file under the final name, whole or not. It was there before the rename
    /// (`taken`), or the temporary was not.
    fn final_there(&mut self, block: &BlockId, taken: bool, whole: bool) -> Verdict {
        match (taken, whole) {
            // It may be what lacks something.
            (true, true) if self.misnamed.contains_key(block) => {
                Verdict::Next(Step::Rename { replace: true })
            }
            (false, true) if self.misnamed.contains_key(block) => self.vanished(),
            (true, true) if self.rules.commit_sync == CommitSync::Full => {
                Verdict::Next(Step::SyncFinal)
            }
            (true, true) => Verdict::Next(Step::DropTemporary),
            // A file of another size is in the way: replaced (R40).
            (true, false) => Verdict::Next(Step::Rename { replace: true }),
            // The rename was done before, through this path or another (R42).
            (false, true) => self.renamed(),
            (false, false) => self.vanished(),
        }
    }

    /// The block has its name. Whoever gave it may not have synced the directory.
    fn renamed(&self) -> Verdict {
        match self.rules.commit_sync {
            CommitSync::Full => Verdict::Next(Step::SyncDir),
            CommitSync::None | CommitSync::AsPathsRun | CommitSync::Data => {
                Verdict::Success(Done::Unit)
            }
        }
    }

    fn vanished(&self) -> Verdict {
        let failure = Failure::errno(error::Step::Rename, libc::ENOENT);
        if self.rules.verify_mount {
            return Verdict::Next(Step::Marker(Then::Vanished(failure)));
        }
        Verdict::Vanished(failure)
    }

    fn commit_failed(
        &mut self,
        block: &BlockId,
        lane: usize,
        step: &Step,
        failure: Failure,
    ) -> Verdict {
        let missing = failure.os() == Some(libc::ENOENT);
        match step {
            Step::Rename { replace: false } => match failure.os() {
                Some(libc::EEXIST) => Verdict::Next(self.look_at_final(lane, true)),
                Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => {
                    // The file system cannot tell: the plain form from now on (R22, "unsupported").
                    self.lanes[lane].no_replace = false;
                    Verdict::Next(self.naming(block, lane))
                }
                _ if missing => Verdict::Next(self.look_at_final(lane, false)),
                _ => Verdict::Fail(failure),
            },
            Step::TouchFinal { taken } => match (*taken, failure.os()) {
                (true, Some(libc::ENOENT | libc::ESTALE | libc::EPERM | libc::EACCES)) => {
                    Verdict::Next(Step::Rename { replace: true })
                }
                (false, Some(libc::ENOENT | libc::ESTALE)) => self.vanished(),
                // A file of somebody else's, or one whose times nobody can set: it is there.
                (false, Some(libc::EPERM | libc::EACCES))
                | (_, Some(libc::EROFS | libc::ENOSYS | libc::EOPNOTSUPP)) => {
                    Verdict::Next(Step::StatFinal { taken: *taken })
                }
                _ => Verdict::Fail(failure),
            },
            // Its file has lost something since it was written: as if it were gone.
            Step::LookAnew if matches!(failure.cause, Cause::WrongSize { .. }) => {
                Verdict::Vanished(failure)
            }
            Step::Rename { replace: true } | Step::SyncTemporary | Step::LookAnew if missing => {
                Verdict::Next(self.look_at_final(lane, false))
            }
            _ => Verdict::Fail(failure),
        }
    }
}
