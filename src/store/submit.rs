//! How work begins: tasks, lookups, removals, commits (R26, R38, R42, R61), and how the store stops
//! taking it (R54).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::blocks::{Blocks, MAX_UNFINISHED_BLOCKS};
use super::call::Call;
use super::chain::{ChainId, Place, Shards, Waiter, Work};
use super::core::Core;
use super::dump::join_memory;
use super::effects::Effects;
use super::plan::{Plan, runs};
use super::task::{Cell, Task};
use super::types::{BlockId, TaskKind};
use crate::clock::Time;
use crate::config::Shape;
use crate::error::{Error, Status};
use crate::log::Level;

/// Most blocks of one chain of a lookup.
const MAX_LOOKUP_CHAIN: usize = 64;

/// What a handle gets that is none.
#[must_use]
pub fn unknown_task(handle: u64) -> Error {
    let text = format!("task {handle}: consumed, forgotten, dropped, or never given");
    Error::new(Status::NotFound, text)
}

/// What a call gets once the store closes.
#[must_use]
pub fn closed() -> Error {
    Error::new(Status::Closed, "the store is closing")
}

/// One task may be as large as the queue.
pub(super) fn fits_queue(shards: usize, most: usize) -> Result<(), Error> {
    if shards <= most {
        return Ok(());
    }
    Err(Error::invalid(format!("{shards} shards in one task, max_queued_shards is {most}")))
}

impl Core {
    /// Accepts a task.
    ///
    /// # Errors
    /// `Closed`, `Retry` (too much is queued, or too many blocks are unfinished), `StoreUnhealthy`,
    /// `InvalidParam`.
    pub fn submit(
        &mut self,
        kind: TaskKind,
        plan: Plan,
        now: Time,
        fx: &mut Effects,
    ) -> Result<u64, Error> {
        self.check_open()?;
        let Some(shape) = self.rules.shape else {
            return Err(Error::new(Status::Unsupported, "transfers are off (device_id is -1)"));
        };
        self.check_room(kind, &plan)?;
        let shards = plan.shards();
        self.stats.tasks += 1;
        let task = Task {
            shards,
            open: shards,
            errors: Vec::new(),
            deadline: self.rules.task_limit.map(|limit| now.plus(limit)),
            chains: Vec::new(),
            forgotten: false,
            cell: Arc::default(),
            kind,
            began: now,
        };
        self.arm(task.deadline.filter(|_| shards > 0), fx);
        let handle = self.tasks.add(task);
        if shards == 0 {
            self.end_positions(handle, &[], &Ok(()), now, fx);
            return Ok(handle);
        }
        match kind {
            TaskKind::Load => self.submit_load(handle, shape, plan, now, fx),
            TaskKind::Dump => self.submit_dump(handle, shape, plan, now, fx),
        }
        Ok(handle)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closing { Err(closed()) } else { Ok(()) }
    }

    fn check_room(&self, kind: TaskKind, plan: &Plan) -> Result<(), Error> {
        if plan.shards() == 0 {
            return Ok(());
        }
        if self.mask.load(Ordering::Acquire) == 0 {
            return Err(Error::new(Status::StoreUnhealthy, "no backend is available"));
        }
        let (open, most) = (self.open_shards(), self.rules.max_queued_shards);
        fits_queue(plan.shards(), most)?;
        if open + plan.shards() > most {
            return Err(Error::new(
                Status::Retry,
                format!("{open} shards are queued or in flight, max_queued_shards is {most}"),
            ));
        }
        if kind == TaskKind::Dump {
            let new = plan.blocks().filter(|block| self.blocks.get(block).is_none()).count();
            if self.blocks.len() + new > MAX_UNFINISHED_BLOCKS {
                let count = self.blocks.len();
                return Err(Error::new(
                    Status::Retry,
                    format!(
                        "{count} blocks are unfinished, at most {MAX_UNFINISHED_BLOCKS} may be"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn submit_load(&mut self, handle: u64, shape: Shape, plan: Plan, now: Time, fx: &mut Effects) {
        let mut chains = Vec::new();
        for (block, shards) in runs(handle, shape, plan.requests) {
            chains.push(self.add_chain(Work::Load(shards), block));
        }
        self.begin_chains(handle, chains, now, fx);
    }

    fn begin_chains(&mut self, handle: u64, chains: Vec<ChainId>, now: Time, fx: &mut Effects) {
        if let Some(task) = self.tasks.get_mut(handle) {
            task.chains.extend(&chains);
        }
        for id in chains {
            self.route(id, now, fx);
        }
    }

    fn submit_dump(&mut self, handle: u64, shape: Shape, plan: Plan, now: Time, fx: &mut Effects) {
        let mut fresh = Vec::new();
        for (at, request) in plan.requests {
            let (block, index) = (request.block, request.index);
            if self.nobody_writes(block, index, now) {
                fresh.push((at, request));
                continue;
            }
            let memory = join_memory(vec![request.memory]);
            let one = Shards { task: handle, first: index, positions: vec![at], memory };
            self.join_dump(block, one, now, fx);
        }
        for (block, shards) in runs(handle, shape, fresh) {
            if let Some(id) = self.begin_dump(block, shards, now, fx)
                && let Some(task) = self.tasks.get_mut(handle)
            {
                task.chains.push(id);
            }
        }
    }

    /// Begins a lookup; the answer is in the call once its cell has finished. `until`: it goes on
    /// with a call whose limit runs already (R63).
    ///
    /// # Errors
    /// `Closed`; `Timeout` where that limit has passed.
    pub fn begin_lookup(
        &mut self,
        ids: &[BlockId],
        until: Option<Time>,
        now: Time,
        fx: &mut Effects,
    ) -> Result<(u64, Arc<Cell>), Error> {
        self.check_open()?;
        if until.is_some_and(|until| until <= now) {
            return Err(self.limit_error("call"));
        }
        self.stats.lookups += ids.len() as u64;
        let mut by_lane: Vec<Vec<(usize, BlockId)>> = vec![Vec::new(); self.n()];
        for (at, id) in ids.iter().enumerate() {
            by_lane[super::routing::primary(id, self.n())].push((at, *id));
        }
        let mut parts = Vec::new();
        for lane in by_lane {
            let share = lane.len().div_ceil(self.rules.lookup_concurrency.max(1));
            let size = share.clamp(1, MAX_LOOKUP_CHAIN);
            parts.extend(lane.chunks(size).map(<[_]>::to_vec));
        }
        let deadline = until.or(self.rules.lookup_limit.map(|(limit, _)| now.plus(limit)));
        let call = self.calls.add(ids.len(), parts.len(), deadline);
        self.arm(deadline.filter(|_| !parts.is_empty()), fx);
        let chains = parts.into_iter().map(|open| {
            let block = open[0].1;
            self.add_chain(Work::Lookup { call, open, asked: None }, block)
        });
        let chains: Vec<ChainId> = chains.collect();
        Ok((call, self.begin_call(call, chains, now, fx)))
    }

    pub(super) fn begin_call(
        &mut self,
        call: u64,
        chains: Vec<ChainId>,
        now: Time,
        fx: &mut Effects,
    ) -> Arc<Cell> {
        let cell = match self.calls.get_mut(call) {
            Some(entry) => {
                entry.chains.clone_from(&chains);
                Arc::clone(&entry.cell)
            }
            None => Arc::default(),
        };
        if chains.is_empty() {
            fx.finished.push(Arc::clone(&cell));
        }
        for id in chains {
            self.route(id, now, fx);
        }
        cell
    }

    /// Begins removals of blocks.
    ///
    /// # Errors
    /// `Closed`.
    pub fn begin_remove(
        &mut self,
        ids: &[BlockId],
        now: Time,
        fx: &mut Effects,
    ) -> Result<(u64, Arc<Cell>), Error> {
        self.check_open()?;
        let mut seen = HashSet::new();
        let unique: Vec<_> = ids.iter().enumerate().filter(|(_, id)| seen.insert(**id)).collect();
        let deadline = self.rules.metadata_limit.and(self.rules.task_limit);
        let deadline = deadline.map(|limit| now.plus(limit));
        let call = self.calls.add(ids.len(), unique.len(), deadline);
        self.arm(deadline.filter(|_| !unique.is_empty()), fx);
        let chains = unique
            .into_iter()
            .map(|(position, id)| self.add_chain(Work::Remove { call, position }, *id));
        let chains: Vec<ChainId> = chains.collect();
        Ok((call, self.begin_call(call, chains, now, fx)))
    }

    /// Begins `kvpath_commit(id, true)`. `None`: there is no such unfinished block.
    ///
    /// # Errors
    /// `Closed`; `InvalidParam` where shards are missing.
    pub fn begin_commit_call(
        &mut self,
        id: BlockId,
        now: Time,
        fx: &mut Effects,
    ) -> Result<Option<(u64, Arc<Cell>)>, Error> {
        self.check_open()?;
        let Some(progress) = self.blocks.get(&id) else { return Ok(None) };
        let missing = progress.missing();
        if !missing.is_empty() {
            return Err(Error::invalid(format!(
                "block {id}: {} of its shards are not written: {}",
                missing.len(),
                ranges(&missing)
            )));
        }
        let (generation, running) = (progress.generation, progress.commit);
        let deadline = self.rules.metadata_limit.and(self.rules.task_limit);
        let deadline = deadline.map(|limit| now.plus(limit));
        let call = self.calls.add(1, 1, deadline);
        self.arm(deadline, fx);
        let cell = self.calls.get_mut(call).map(|entry| Arc::clone(&entry.cell));
        let waiter = Waiter::Call { call, position: 0 };
        match running.and_then(|chain| self.chains.get_mut(&chain)) {
            Some(chain) => {
                if let Work::Commit { waiters, .. } = &mut chain.work {
                    waiters.push(waiter);
                }
            }
            None => self.begin_commit(id, generation, vec![waiter], None, now, fx),
        }
        Ok(Some((call, cell.unwrap_or_default())))
    }

    /// `kvpath_commit(id, false)`: drops what was written of a block. Says whether there was
    /// anything.
    ///
    /// # Errors
    /// `Closed`.
    pub fn drop_block(&mut self, id: BlockId, now: Time, fx: &mut Effects) -> Result<bool, Error> {
        self.check_open()?;
        let Some(generation) = self.blocks.get(&id).map(|progress| progress.generation) else {
            return Ok(false);
        };
        self.end_generation(id, generation, now, fx);
        Ok(true)
    }

    /// Takes the answer of a call.
    pub fn take_call(&mut self, call: u64) -> Option<Call> {
        self.calls.take(call)
    }

    /// Stops taking work (R54): what is queued ends with CLOSED, commits apart; what runs goes on
    /// without retry. The collector may still give its lease back, until [`Core::end_collecting`].
    pub fn begin_close(&mut self, now: Time, fx: &mut Effects) {
        self.closing = true;
        self.no_chores = true;
        let waiting: Vec<ChainId> = self
            .chains
            .iter()
            .filter(|(_, chain)| !matches!(chain.place, Place::Running(_)))
            .filter(|(_, chain)| !chain.work.outlives_close() && !chain.work.ends_with_collector())
            .map(|(id, _)| *id)
            .collect();
        for id in waiting {
            self.end(id, Err(closed()), now, fx);
        }
        self.refresh_all(now, fx);
        self.note_quiet(fx);
    }

    /// What the collector has not done by now it does not do any more.
    pub fn end_collecting(&mut self, now: Time, fx: &mut Effects) {
        self.no_last_chores = true;
        self.end_chores(Work::ends_with_collector, now, fx);
        self.note_quiet(fx);
    }

    /// Drops the unfinished blocks of a store that has nothing running any more, and removes their
    /// files.
    pub fn drop_all_blocks(&mut self, now: Time, fx: &mut Effects) {
        let all = self.blocks.all();
        if !all.is_empty() {
            let text = format!("close: {} unfinished blocks are dropped", all.len());
            fx.log(Level::Info, "KV3003", text);
        }
        for (block, generation) in all {
            self.end_generation(block, generation, now, fx);
        }
        self.blocks = Blocks::new(0);
        self.discard_leftovers(now, fx);
        self.note_quiet(fx);
    }
}

/// "0–3, 7".
fn ranges(indexes: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for index in indexes {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => parts.push((*index, *index)),
        }
    }
    let words = parts.iter().map(|(first, last)| {
        if first == last { first.to_string() } else { format!("{first}–{last}") }
    });
    words.collect::<Vec<_>>().join(", ")
}
