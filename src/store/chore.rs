//! A chore: one file-system step of the collector, which takes the same way as all other work
//! (R84): routed, judged, recorded, tried through the next backend.

use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

use super::chain::{ChainId, Class, Place, Work};
use super::collector::tally::{Plan, Tally};
use super::core::Core;
use super::effects::Effects;
use super::layout::{Layout, QUARANTINE};
use super::step::MARKER_FRESH_FOR_CREATION;
use super::submit::closed;
use super::task::Cell;
use super::types::BlockId;
use crate::clock::Time;
use crate::engine::{Done, OpKind};
use crate::error::{Error, Status};
use crate::reclaim::lease::PREFIX;

/// What to do. Paths are below the root.
#[derive(Debug, Clone)]
pub enum Chore {
    /// Show every name of a directory to a tally of this plan.
    Survey(Arc<Plan>),
    /// Remove a block that was used last at this time.
    RemoveCold {
        /// The block.
        block: BlockId,
        /// Nanoseconds of the storage's clock.
        mtime_ns: i64,
    },
    /// Remove a file.
    RemoveFile(String),
    /// The names of a directory that hold a word, with their times.
    List {
        /// The directory.
        dir: String,
        /// The word.
        filter: &'static str,
    },
    /// Make a directory that nobody else has made.
    Claim(String),
    /// Remove an empty directory.
    RemoveDir(String),
    /// Set a file's mtime to the storage's now.
    Stamp {
        /// The file.
        file: String,
        /// Make it where it is missing.
        create: bool,
    },
    /// Rename.
    Rename {
        /// From.
        from: String,
        /// To.
        to: String,
    },
}

/// What a chore that succeeded gives.
#[derive(Debug)]
pub enum Answer {
    /// What the op gave.
    Done(Done),
    /// What a survey showed.
    Tally(Arc<Tally>),
}

impl Chore {
    /// Decides the route: a block's own (R17), else any that stays the same for the same path.
    fn block(&self) -> BlockId {
        let path = match self {
            Chore::RemoveCold { block, .. } => return *block,
            Chore::Survey(plan) => &plan.dir,
            // All steps of the lease go one way, so that they see what they did.
            Chore::Claim(_) | Chore::RemoveDir(_) | Chore::Stamp { .. } | Chore::Rename { .. } => {
                ""
            }
            Chore::List { .. } => "",
            Chore::RemoveFile(path) if path.starts_with(PREFIX) => "",
            Chore::RemoveFile(path) => path,
        };
        let mut block = [0; 16];
        for (at, byte) in path.bytes().enumerate() {
            block[at % 16] ^= byte;
        }
        BlockId(block)
    }

    /// A step of the lease: short, and let finish, so that what it made is known (R83).
    pub fn is_of_the_lease(&self) -> bool {
        match self {
            Chore::Claim(_) | Chore::RemoveDir(_) | Chore::Stamp { .. } | Chore::Rename { .. } => {
                true
            }
            Chore::List { .. } => true,
            Chore::RemoveFile(path) => path.starts_with(PREFIX),
            Chore::Survey(_) | Chore::RemoveCold { .. } => false,
        }
    }

    /// How old a right marker may be (R24), where the path must show the storage: what makes a
    /// name, or believes that there is none. For the lease none is young enough: two may hold it
    /// that see different file systems, and only one would be told (R83).
    pub fn marker_age(&self) -> Option<Duration> {
        match self {
            Chore::Claim(_) | Chore::Stamp { create: true, .. } | Chore::List { .. } => {
                Some(Duration::ZERO)
            }
            Chore::Survey(_) => Some(MARKER_FRESH_FOR_CREATION),
            Chore::Stamp { create: false, .. }
            | Chore::RemoveCold { .. }
            | Chore::RemoveFile(_)
            | Chore::RemoveDir(_)
            | Chore::Rename { .. } => None,
        }
    }

    /// It removes a file.
    pub fn is_removal(&self) -> bool {
        matches!(self, Chore::RemoveCold { .. } | Chore::RemoveFile(_))
    }

    /// The op that does it through a backend; a survey with a new tally.
    pub fn op(
        &self,
        layout: &Layout,
        lane: usize,
        modes: (u32, u32),
    ) -> (OpKind, Option<Arc<Tally>>) {
        let below = |path: &str| -> CString { layout.below(lane, path) };
        let kind = match self {
            Chore::Survey(plan) => {
                let tally = Arc::new(Tally::new(Arc::clone(plan)));
                let to = Arc::clone(&tally) as _;
                return (OpKind::Survey { path: below(&plan.dir), to }, Some(tally));
            }
            Chore::RemoveCold { block, mtime_ns } => {
                OpKind::RemoveCold { path: layout.block_path(lane, block), mtime_ns: *mtime_ns }
            }
            Chore::RemoveFile(path) => OpKind::Unlink { path: below(path) },
            Chore::List { dir, filter } => OpKind::List { path: below(dir), filter },
            Chore::Claim(dir) => OpKind::Claim { path: below(dir), mode: modes.0 },
            Chore::RemoveDir(dir) => OpKind::RemoveDir { path: below(dir) },
            Chore::Stamp { file, create } => {
                OpKind::Stamp { path: below(file), create: create.then_some(modes.1) }
            }
            Chore::Rename { from, to } => {
                OpKind::Rename { from: below(from), to: below(to), no_replace: false }
            }
        };
        (kind, None)
    }

    /// The words of texts.
    pub fn describe(&self) -> String {
        match self {
            Chore::Survey(plan) if plan.dir.is_empty() => "survey of the root".into(),
            Chore::Survey(plan) => format!("survey of {}", plan.dir),
            Chore::RemoveCold { block, .. } => format!("collection of block {block}"),
            Chore::RemoveFile(path) => format!("removal of {path}"),
            Chore::List { dir, .. } => format!("listing of {dir}"),
            Chore::Claim(dir) => format!("claim of {dir}"),
            Chore::RemoveDir(dir) => format!("removal of directory {dir}"),
            Chore::Stamp { file, .. } => format!("refresh of {file}"),
            Chore::Rename { from, .. } => format!("takeover of {from}"),
        }
    }
}

impl Core {
    /// Begins chores, all at once; their answers are in the call once its cell has finished.
    /// `last`: they are the collector's last, and begin although it was stopped.
    ///
    /// # Errors
    /// `Closed`.
    pub fn begin_chores(
        &mut self,
        chores: Vec<Chore>,
        limit: Option<Duration>,
        last: bool,
        now: Time,
        fx: &mut Effects,
    ) -> Result<(u64, Arc<Cell>), Error> {
        if self.no_last_chores || (self.no_chores && !last) {
            return Err(closed());
        }
        let call = self.calls.add(chores.len(), chores.len(), None);
        let chains = chores.into_iter().enumerate().map(|(position, chore)| {
            let block = chore.block();
            self.add_chain(Work::Chore { call, position, chore, limit, tally: None }, block)
        });
        let chains: Vec<ChainId> = chains.collect();
        Ok((call, self.begin_call(call, chains, now, fx)))
    }

    /// Ends all chores, running ones without waiting for the kernel; no new ones begin (R54). Steps
    /// of the lease are let finish, so that it can be given back, if `lease_limit` does for them.
    pub fn stop_chores(&mut self, lease_limit: Duration, now: Time, fx: &mut Effects) {
        self.no_chores = true;
        self.end_chores(|work| work.ends_with_collector() && work.class() == Class::Idle, now, fx);
        let end = now.plus(lease_limit);
        for chain in self.chains.values_mut().filter(|chain| chain.work.class() == Class::Lease) {
            if let Work::Chore { limit, .. } = &mut chain.work {
                *limit = Some(limit.map_or(lease_limit, |limit| limit.min(lease_limit)));
            }
            if let Place::Running(tag) = chain.place
                && let Some(attempt) = self.attempts.get_mut(&tag)
            {
                attempt.limit = Some(attempt.limit.map_or(end, |limit| limit.min(end)));
            }
        }
        self.arm(Some(end), fx);
    }

    /// Ends chores, running ones without waiting for the kernel.
    pub(super) fn end_chores(&mut self, which: fn(&Work) -> bool, now: Time, fx: &mut Effects) {
        let chores = self.chains.iter().filter(|(_, chain)| which(&chain.work));
        let chores: Vec<ChainId> = chores.map(|(id, _)| *id).collect();
        for id in chores {
            self.terminate(id, closed(), now, fx);
        }
    }

    /// The op of a chore's next attempt.
    pub(super) fn chore_op(&mut self, id: ChainId, lane: usize) -> Option<OpKind> {
        let Work::Chore { chore, .. } = &self.chains.get(&id)?.work else { return None };
        let modes = (self.rules.dir_mode, self.rules.file_mode);
        let (kind, shown) = chore.op(&self.layout, lane, modes);
        if let Work::Chore { tally, .. } = &mut self.chains.get_mut(&id)?.work {
            *tally = shown;
        }
        Some(kind)
    }

    /// The op that moves a block's file to quarantine.
    pub(super) fn aside_op(&self, id: ChainId, lane: usize, now: Time) -> Option<OpKind> {
        let block = self.chains.get(&id)?.block;
        let now_s = i64::try_from(now.0.as_secs()).unwrap_or(i64::MAX);
        let storage_s = now_s.saturating_add(self.lanes[lane].facts.clock_offset_s);
        let name = self.layout.aside_name(&block, storage_s, id.0);
        Some(OpKind::SetAside {
            from: self.layout.block_path(lane, &block),
            dir: self.layout.below(lane, QUARANTINE),
            mode: self.rules.dir_mode,
            to: self.layout.below(lane, &format!("{QUARANTINE}/{name}")),
            bytes: self.rules.shape?.block_bytes,
        })
    }

    /// A chore has succeeded.
    pub(super) fn chore_done(&mut self, id: ChainId, done: Done) {
        let Some(chain) = self.chains.get(&id) else { return };
        debug_assert!(matches!(chain.place, Place::Parked), "its attempt is over");
        let Work::Chore { call, position, tally, .. } = &chain.work else { return };
        let answer = match tally {
            Some(tally) => Answer::Tally(Arc::clone(tally)),
            None => Answer::Done(done),
        };
        if let Some(call) = self.calls.get_mut(*call) {
            call.answers.push((*position, answer));
        }
    }

    /// Moves a file that is no whole block out of the way, if that is wanted (R23).
    pub(super) fn set_aside(&mut self, block: BlockId, now: Time, fx: &mut Effects) {
        let wanted = self.rules.quarantine && !self.closing && !self.no_chores;
        if wanted && self.setting_aside.insert(block) {
            let id = self.add_chain(Work::SetAside, block);
            self.route(id, now, fx);
        }
    }

    /// It has ended.
    pub(super) fn set_aside_ended(
        &mut self,
        block: BlockId,
        result: &Result<(), Error>,
        fx: &mut Effects,
    ) {
        self.setting_aside.remove(&block);
        match result {
            Ok(()) => {}
            Err(error) if matches!(error.status, Status::NotFound | Status::Closed) => {}
            Err(error) => {
                let text = format!("not moved to quarantine: {error}");
                fx.log(crate::log::Level::Warn, "KV4008", text);
            }
        }
    }
}
