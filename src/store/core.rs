//! The core: every table of a store and every decision about them, behind one lock. Pure: it takes
//! inputs and `now`, and what must happen outside comes back in [`Effects`], to be done after the
//! lock was let go. It never waits, never does I/O, never wakes anybody itself.
//!
//! Its parts: `core.rs` the tables and what engines ask (pull, complete) · `step.rs` the steps of
//! an attempt · `flow.rs` chains from backend to backend · `dump.rs` blocks in progress ·
//! `submit.rs` tasks and calls begin · `timing.rs` limits.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::attempt::Attempt;
use super::backend::{LaneState, PathFacts, Slots};
use super::blocks::Blocks;
use super::call::Calls;
use super::chain::{Chain, ChainId, Class, Place, Work};
use super::counts::TaskTimes;
use super::effects::Effects;
use super::generations::{Leftover, Misnamed};
use super::hotness::Hotness;
use super::layout::Layout;
use super::rules::Rules;
use super::starved::Starved;
use super::suspects::Suspects;
use super::task::Tasks;
use super::types::BlockId;
use crate::clock::{Clock, Time};
use crate::config::FailureScope;
use crate::engine::{Gate, Op, Outcome, Tag, Want};
use crate::error::Failure;
use crate::health::class::Operation;
use crate::health::state::{BackendHealth, Blame, HealthParams};
use crate::health::table::HealthTable;
use crate::health::window::Rule;
use crate::stats::Snapshot;

/// The tables of a store. Everything in here has one owner: the lock around it.
#[derive(Debug)]
pub struct Core {
    pub(super) rules: Rules,
    /// Handed on to lists of files; never read here.
    pub(super) clock: Clock,
    pub(super) layout: Arc<Layout>,
    pub(super) lanes: Vec<LaneState>,
    pub(super) health: HealthTable,
    pub(super) mask: Arc<AtomicU64>,
    pub(super) tasks: Tasks,
    pub(super) calls: Calls,
    pub(super) chains: HashMap<ChainId, Chain>,
    pub(super) attempts: HashMap<Tag, Attempt>,
    pub(super) blocks: Blocks,
    /// Temporaries of ended generations that could not be removed.
    pub(super) leftovers: BTreeSet<Leftover>,
    pub(super) stats: Snapshot,
    pub(super) task_times: TaskTimes,
    pub(super) closing: bool,
    /// The limit of close has passed: no engine takes anything any more.
    pub(super) over: bool,
    pub(super) hotness: Hotness,
    /// Names that may stand for a file with shards lost.
    pub(super) misnamed: HashMap<BlockId, Misnamed>,
    /// The collector was stopped.
    pub(super) no_chores: bool,
    /// Nor may it do its last any more.
    pub(super) no_last_chores: bool,
    /// Blocks that a lookup found to be no whole blocks, until its outcome has been taken in.
    pub(super) wrong: Vec<BlockId>,
    /// Blocks that some paths must look at anew.
    pub(super) suspects: Suspects,
    /// Blocks whose files are being set aside.
    pub(super) setting_aside: HashSet<BlockId>,
    /// When the judge wakes next, as far as it knows.
    pub(super) armed: Option<Time>,
    /// Lanes that get no thread.
    pub(super) starved: Starved,
    last_chain: u64,
    last_tag: u64,
}

/// A path that has not shown itself yet (R13).
fn unknown(direct: bool) -> PathFacts {
    let (storage, coherent) = (None, false);
    PathFacts { direct, offset_align: 4096, storage, clock_offset_s: 0, coherent }
}

impl Core {
    /// A core with nothing to do. A path that failed its check starts excluded (R13); `mask` is
    /// where the availability mask is published (R18).
    #[must_use]
    pub fn new(
        rules: Rules,
        clock: Clock,
        layout: Arc<Layout>,
        paths: Vec<Result<PathFacts, Failure>>,
        direct: bool,
        slots: Slots,
        mask: Arc<AtomicU64>,
    ) -> Core {
        let shards = rules.shape.map_or(0, |shape| shape.shards());
        let params = HealthParams {
            rule: Rule { window: rules.window, threshold: rules.threshold },
            one_bad_block: rules.scope == FailureScope::Path,
        };
        let (now, n) = (clock.now(), paths.len());
        let health = paths.iter().enumerate().map(|(lane, path)| match path {
            Ok(_) => BackendHealth::available(lane, params, now),
            Err(failure) => {
                let blame = Blame::new(Operation::Startup, failure);
                BackendHealth::excluded(lane, params, now, blame)
            }
        });
        let health = HealthTable::new(health.collect());
        let facts = paths.into_iter().map(|path| path.unwrap_or_else(|_| unknown(direct)));
        mask.store(health.available_mask(), Ordering::Release);
        Core {
            clock,
            layout,
            lanes: facts.map(|facts| LaneState::new(facts, slots)).collect(),
            health,
            mask,
            tasks: Tasks::default(),
            calls: Calls::default(),
            chains: HashMap::new(),
            attempts: HashMap::new(),
            blocks: Blocks::new(usize::try_from(shards).unwrap_or(0)),
            leftovers: BTreeSet::new(),
            stats: Snapshot::default(),
            task_times: TaskTimes::default(),
            closing: false,
            over: false,
            hotness: Hotness::new(n),
            misnamed: HashMap::new(),
            no_chores: false,
            no_last_chores: false,
            wrong: Vec::new(),
            suspects: Suspects::default(),
            setting_aside: HashSet::new(),
            armed: None,
            starved: Starved::default(),
            last_chain: 0,
            last_tag: 0,
            rules,
        }
    }

    /// What makes the paths.
    #[must_use]
    pub fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    /// How many backends are configured.
    #[must_use]
    pub fn n(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn new_tag(&mut self) -> Tag {
        self.last_tag += 1;
        Tag(self.last_tag)
    }

    /// Adds a chain that is in no place yet; the caller parks or routes it.
    pub(super) fn add_chain(&mut self, work: Work, block: BlockId) -> ChainId {
        self.last_chain += 1;
        let id = ChainId(self.last_chain);
        let primary = super::routing::primary(&block, self.n());
        let chain = Chain {
            work,
            block,
            primary,
            tried: 0,
            attempts: 0,
            first_lane: None,
            last: None,
            place: Place::Parked,
            in_kernel: HashSet::new(),
            vanished: false,
            looked_again: false,
            spared: 0,
        };
        self.chains.insert(id, chain);
        id
    }

    /// An engine of `lane` can start an op (R28: from now on its time runs).
    pub fn pull(&mut self, lane: usize, want: Want, now: Time, fx: &mut Effects) -> Option<Op> {
        if let Some(op) = self.pull_continuation(lane, want, now) {
            return Some(op);
        }
        loop {
            let id = self.lanes[lane].pop(want)?;
            let valid = self.chains.get(&id).is_some_and(|c| c.place == Place::Queued(lane));
            if valid && let Some(op) = self.start(id, lane, want, now, fx) {
                return Some(op);
            }
        }
    }

    fn pull_continuation(&mut self, lane: usize, want: Want, now: Time) -> Option<Op> {
        loop {
            let queue = &mut self.lanes[lane].continuations;
            let attempts = &self.attempts;
            let at = queue.iter().position(|(tag, class)| {
                let moves = attempts.get(tag).is_some_and(|attempt| attempt.step.moves_bytes());
                let transfer = moves && matches!(class, Class::Load | Class::Dump);
                match want {
                    Want::Any => true,
                    Want::Transfers => transfer,
                    Want::Metadata => !transfer,
                    Want::Lease => *class == Class::Lease,
                }
            })?;
            let (tag, _) = queue.remove(at)?;
            let Some(attempt) = self.attempts.get_mut(&tag) else { continue };
            if let Some(since) = attempt.waiting.take() {
                // Waiting here is never held against the backend.
                attempt.limit = attempt.limit.map(|limit| limit.plus(now.since(since)));
            }
            if let Some(op) = self.make_op(tag) {
                return Some(op);
            }
        }
    }

    /// Begins the next attempt of a queued chain.
    fn start(
        &mut self,
        id: ChainId,
        lane: usize,
        want: Want,
        now: Time,
        fx: &mut Effects,
    ) -> Option<Op> {
        let tag = self.new_tag();
        self.begin_anew(id, lane, now, fx);
        let step = self.first_step(id, lane, now)?;
        let limit = self.limit_of(&self.chains.get(&id)?.work);
        self.step_begins(id, lane, &step);
        let chain = self.chains.get_mut(&id)?;
        if !chain.work.looks() {
            chain.attempts += 1;
            chain.first_lane.get_or_insert(lane);
            if chain.attempts > 1 {
                self.stats.retries += 1;
                self.lanes[lane].stats.retries += 1;
            }
        }
        chain.place = Place::Running(tag);
        let (generation, creates) = match chain.work {
            Work::Dump { generation, create, .. } => {
                (Some(generation), create.then_some(generation))
            }
            Work::Commit { generation, .. } => (Some(generation), None),
            _ => (None, None),
        };
        let mut attempt = Attempt {
            chain: Some(id),
            lane,
            class: chain.work.class(),
            block: chain.block,
            gate: Arc::new(Gate::new(self.clock.clone())),
            started: now,
            limit: limit.map(|limit| now.plus(limit)),
            step,
            waiting: None,
            abandoned: None,
            pending: None,
            generation,
            creates,
            made_dir: false,
            work: super::flow::operation(&chain.work),
            of_one_file: chain.work.is_of_one_file(),
            is_chore: chain.work.is_chore(),
            has_to_look: false,
            has_looked: false,
            excused: false,
        };
        self.lanes[lane].take_slot(attempt.class);
        self.arm(attempt.limit, fx);
        if want == Want::Transfers && !attempt.step.moves_bytes() {
            // A transfer that begins with another step: that step is for whoever takes metadata.
            attempt.waiting = Some(now);
            self.lanes[lane].continuations.push_back((tag, attempt.class));
            self.attempts.insert(tag, attempt);
            fx.wake_one(lane);
            return None;
        }
        self.attempts.insert(tag, attempt);
        self.make_op(tag)
    }

    /// An op has ended. Everything it leads to is decided here.
    pub fn complete(&mut self, tag: Tag, outcome: Outcome, now: Time, fx: &mut Effects) {
        let Some(attempt) = self.attempts.remove(&tag) else {
            debug_assert!(false, "an op completed twice");
            return;
        };
        if attempt.abandoned.is_some() && attempt.pending.is_none() {
            self.late(tag, attempt, &outcome, now, fx);
        } else if attempt.chain.is_none() {
            self.watched(&attempt, &outcome, now, fx);
        } else {
            self.advance(tag, attempt, outcome, now, fx);
        }
        for block in std::mem::take(&mut self.wrong) {
            self.set_aside(block, now, fx);
        }
        self.note_quiet(fx);
    }

    /// Frees the slot of an attempt that ended.
    pub(super) fn free_slot(&mut self, attempt: &Attempt) {
        let lane = &mut self.lanes[attempt.lane];
        match attempt.abandoned {
            Some(epoch) => lane.hung.returned(attempt.may_hold_a_buffer(), epoch),
            None => lane.free_slot(attempt.class),
        }
    }

    /// Makes sure that the judge looks at `limit`.
    pub(super) fn arm(&mut self, limit: Option<Time>, fx: &mut Effects) {
        if let Some(limit) = limit
            && self.armed.is_none_or(|armed| limit < armed)
        {
            self.armed = Some(limit);
            fx.arm = Some(fx.arm.map_or(limit, |other| other.min(limit)));
        }
    }

    /// Notes when nothing is left to do, for `close`.
    pub(super) fn note_quiet(&self, fx: &mut Effects) {
        fx.quiet |= self.closing && self.is_quiet();
    }

    /// No chain is left; operations that outlive theirs may be.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.chains.is_empty()
    }

    /// Nothing outlives its chain that may still make a temporary.
    #[must_use]
    pub fn creates_nothing(&self) -> bool {
        self.attempts.values().all(|attempt| attempt.creates.is_none())
    }

    /// A copy of the counters.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Snapshot {
            dropped_results: self.tasks.dropped,
            queued_shards: count(self.open_shards()),
            in_flight: count(self.lanes.iter().map(LaneState::running).sum()),
            abandoned: count(self.lanes.iter().map(|lane| lane.hung.total()).sum()),
            unfinished_blocks: count(self.blocks.len()),
            ..self.stats
        }
    }

    /// Shards accepted and not ended.
    #[must_use]
    pub fn open_shards(&self) -> usize {
        self.tasks.open_positions()
    }

    /// "load of block …, shards 0–3".
    pub(super) fn describe(&self, work: &Work, block: &BlockId) -> String {
        let range = |shards: &super::chain::Shards| {
            let last = u64::from(shards.first) + shards.count() as u64 - 1;
            if shards.count() == 1 {
                format!("shard {last}")
            } else {
                format!("shards {}–{last}", shards.first)
            }
        };
        match work {
            Work::Load(shards) => format!("load of block {block}, {}", range(shards)),
            Work::Dump { shards, .. } => format!("dump of block {block}, {}", range(shards)),
            Work::Commit { .. } => format!("commit of block {block}"),
            Work::Remove { .. } => format!("remove of block {block}"),
            Work::Lookup { .. } => "lookup".into(),
            Work::Discard { .. } => format!("removal of a temporary of block {block}"),
            Work::Refresh { hits, .. } => format!("hotness of {hits} blocks"),
            Work::Space { .. } => "question about room".into(),
            Work::Chore { chore, .. } => chore.describe(),
            Work::SetAside => format!("quarantine of block {block}"),
        }
    }

    /// The text of a failure on a backend.
    pub(super) fn failure_text(&self, lane: usize, failure: &Failure) -> String {
        format!("backend {}: {failure}", self.layout.root(lane))
    }
}
