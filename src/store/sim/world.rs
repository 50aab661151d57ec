//! Random callers, random paths, and the checks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::model::{BLOCK, Phase, SHARD, Storage, relative};
use crate::clock::Clock;
use crate::config::{CommitPolicy, CommitSync, FailureScope, Shape};
use crate::engine::{Op, Segment, Tag, Want};
use crate::error::{Failure, Status, Step};
use crate::health::marker::{Marker, Uuid};
use crate::store::backend::{PathFacts, Slots};
use crate::store::core::Core;
use crate::store::effects::Effects;
use crate::store::layout::{Layout, Writer};
use crate::store::plan::Plan;
use crate::store::rules::Rules;
use crate::store::types::{BlockId, ShardRequest, TaskKind};

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub struct Mode {
    pub paths: usize,
    pub direct: bool,
    pub hangs: bool,
    pub limits: bool,
    pub isolated: bool,
    pub sync: bool,
    /// A task's limit, where there are limits.
    pub limit: Duration,
}

/// One path with limits, which never hangs by itself.
pub const STEADY: Mode = Mode {
    paths: 1,
    direct: true,
    hangs: false,
    limits: true,
    isolated: true,
    sync: true,
    limit: Duration::from_secs(2),
};

impl Default for Mode {
    fn default() -> Mode {
        Mode {
            paths: 2,
            direct: true,
            hangs: true,
            limits: true,
            isolated: true,
            sync: true,
            limit: TASK_LIMIT,
        }
    }
}

const BLOCKS: u8 = 6;
const ALL: u32 = 4;
pub const TASK_LIMIT: Duration = Duration::from_millis(3_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    Healthy,
    Fail(i32),
    Hang,
}

pub struct Running {
    pub op: Op,
    pub lane: usize,
    pub phase: Phase,
    /// Its gate was entered for the whole op (`borrowed`).
    pub inside: bool,
}

pub struct Job {
    pub kind: TaskKind,
    pub memory: Vec<u8>,
    pub shards: Vec<u32>,
    /// The bytes when the task had ended.
    pub ended: Option<Vec<u8>>,
    /// Its first error in shard order.
    pub error: Option<Status>,
    /// The name of its block, and how often that was asked to go before.
    pub name: Option<(String, u64)>,
}

pub struct World {
    pub core: Core,
    pub clock: Clock,
    pub mode: Mode,
    pub random: u64,
    pub storage: Storage,
    pub paths: Vec<Path>,
    pub running: HashMap<Tag, Running>,
    pub jobs: HashMap<u64, Job>,
    versions: HashMap<BlockId, (u64, u8)>,
    last_version: u8,
}

/// The byte of a shard of a version; 0 is what holes have.
pub fn content(block: BlockId, version: u8, shard: usize) -> u8 {
    1 + (version.wrapping_mul(31) ^ block.0[0].wrapping_mul(7) ^ u8::try_from(shard).unwrap()) % 250
}

impl Mode {
    fn rules(&self, window: usize, threshold: usize) -> Rules {
        let attempt = self.limit / u32::try_from(self.paths).unwrap();
        let shape = Shape {
            tensor_bytes: SHARD as u64,
            shard_bytes: SHARD as u64,
            block_bytes: BLOCK as u64,
        };
        Rules {
            shape: Some(shape),
            task_limit: self.limits.then_some(self.limit),
            attempt_limit: self.limits.then_some(attempt),
            metadata_limit: self.limits.then_some(attempt),
            lookup_limit: self.limits.then_some((self.limit, attempt)),
            commit_policy: CommitPolicy::AllShards,
            commit_sync: if self.direct || !self.sync {
                CommitSync::None
            } else {
                CommitSync::Data
            },
            scope: FailureScope::Path,
            verify_mount: true,
            same_storage: false,
            isolated: self.isolated,
            hot_on_lookup: false,
            lookup_size: true,
            max_queued_shards: 10_000,
            lookup_concurrency: 4,
            dir_mode: 0o774,
            file_mode: 0o644,
            temp_ttl: Duration::from_secs(3_600),
            quarantine: false,
            reserve_free_percent: 0.0,
            window,
            threshold,
        }
    }
}

impl World {
    pub fn new(seed: u64, mode: Mode) -> World {
        World::with_rule(seed, mode, 4, 2)
    }

    pub fn with_rule(seed: u64, mode: Mode, window: usize, threshold: usize) -> World {
        let clock = Clock::manual();
        let n = mode.paths;
        let roots: Vec<String> = (0..n).map(|lane| format!("/p{lane}/")).collect();
        let writer = Writer { boot: 1, pid_namespace: 1, pid: 1, started: 1, nonce: seed };
        let layout = Arc::new(Layout::new(&roots, 1, &writer));
        let marker = Marker { uuid: Uuid([7; 16]), data_dir_shard_bytes: 1 };
        let coherent = seed.is_multiple_of(2);
        let facts = PathFacts {
            direct: mode.direct,
            offset_align: SHARD as u64,
            storage: Some(marker.uuid),
            clock_offset_s: 0,
            coherent,
        };
        let rules = mode.rules(window, threshold);
        let slots = Slots { transfers: 4, lookups: 4, idle: 1, buffered: 100 };
        let mask = Arc::new(AtomicU64::new(0));
        let paths = (0..n).map(|_| Ok(facts.clone())).collect();
        let mut core = Core::new(rules, clock.clone(), layout, paths, mode.direct, slots, mask);
        if seed / 4 % 2 == 1 {
            // Their renames cannot tell that there is a block.
            core.lanes.iter_mut().for_each(|lane| lane.no_replace = false);
        }
        let marker = marker.to_text().into_bytes();
        let storage = Storage { marker, remembers: !coherent, ..Storage::default() };
        World {
            core,
            clock,
            mode,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            storage,
            paths: vec![Path::Healthy; n],
            running: HashMap::new(),
            jobs: HashMap::new(),
            versions: HashMap::new(),
            last_version: 0,
        }
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from((self.random >> 16) % limit as u64).unwrap()
    }

    fn block(&mut self) -> BlockId {
        let mut id = [0; 16];
        id[0] = u8::try_from(self.below(usize::from(BLOCKS))).unwrap();
        BlockId(id)
    }

    /// Every path showed the storage just now.
    pub fn all_verified(&mut self) {
        let now = self.clock.now();
        for lane in &mut self.core.lanes {
            lane.marker_seen = Some(now);
        }
    }

    /// The next op that an engine would be given, and of which lane.
    pub fn next_op(&mut self) -> Option<(usize, Op)> {
        (0..self.core.n()).find_map(|lane| {
            let op = self.with(|core, now, fx| core.pull(lane, Want::Any, now, fx));
            op.map(|op| (lane, op))
        })
    }

    /// Runs something on the core.
    pub fn with<R>(
        &mut self,
        body: impl FnOnce(&mut Core, crate::clock::Time, &mut Effects) -> R,
    ) -> R {
        let mut fx = Effects::default();
        let result = body(&mut self.core, self.clock.now(), &mut fx);
        self.settle_jobs();
        result
    }

    pub fn step(&mut self) {
        match self.below(100) {
            0..12 => self.submit(TaskKind::Dump),
            12..20 => self.submit(TaskKind::Load),
            20..22 => self.lookup_and_remove(),
            22..23 => self.drop_block(),
            23..24 => self.cancel(),
            24..27 => self.change_path(),
            27..32 => self.advance(),
            32..34 => self.probe(),
            34..55 => self.pull(),
            _ => self.proceed(),
        }
        self.check_blocks();
    }

    fn submit(&mut self, kind: TaskKind) {
        let block = self.block();
        let version = self.version(block);
        let whole = self.below(2) == 0;
        let shards: Vec<u32> = match whole {
            true => (0..ALL).collect(),
            false => (0..ALL).filter(|_| self.below(2) == 0).collect(),
        };
        self.submit_shards(kind, block, version, shards);
    }

    /// A task of all shards of one block.
    pub fn submit_whole(&mut self, kind: TaskKind) -> u64 {
        let block = self.block();
        let version = self.version(block);
        self.submit_shards(kind, block, version, (0..ALL).collect()).unwrap()
    }

    /// A dump of some shards of a block.
    pub fn dump_of(&mut self, block: BlockId, shards: &[u32]) -> u64 {
        let version = self.version(block);
        self.submit_shards(TaskKind::Dump, block, version, shards.to_vec()).unwrap()
    }

    pub fn submit_shards(
        &mut self,
        kind: TaskKind,
        block: BlockId,
        version: u8,
        shards: Vec<u32>,
    ) -> Option<u64> {
        let mut memory = vec![0; BLOCK];
        if kind == TaskKind::Dump {
            for (at, byte) in memory.iter_mut().enumerate() {
                *byte = content(block, version, at / SHARD);
            }
        }
        let base = memory.as_mut_ptr();
        let requests = shards.iter().map(|index| {
            let start = base.wrapping_add(*index as usize * SHARD);
            ShardRequest { block, index: *index, memory: vec![Segment::new(start, SHARD)] }
        });
        let plan = Plan::new(kind, requests.collect()).unwrap();
        let mut fx = Effects::default();
        let now = self.clock.now();
        // One that joins a commit gets its result, also where the block was removed just then.
        let joins = self.core.blocks.get(&block).is_some_and(|known| known.commit.is_some());
        let handle = self.core.submit(kind, plan, now, &mut fx).ok();
        if let Some(handle) = handle {
            let name = relative(&self.core.layout.block_path(0, &block));
            let removed = self.storage.removed.get(&name).copied().unwrap_or(0);
            let name = (!joins).then_some((name, removed));
            let job = Job { kind, memory, shards, ended: None, error: None, name };
            self.jobs.insert(handle, job);
        }
        self.settle_jobs();
        handle
    }

    /// A caller uses new bytes only for a generation that it has not begun.
    fn version(&mut self, block: BlockId) -> u8 {
        let present = self.core.blocks.get(&block).map(|progress| progress.first_generation);
        if let (Some(generation), Some((known, version))) = (present, self.versions.get(&block))
            && *known == generation
        {
            return *version;
        }
        self.last_version = self.last_version.wrapping_add(1);
        let version = self.last_version;
        // The generation that the next dump begins, or that a running one has.
        let generation = present.unwrap_or_else(|| self.core.blocks.next_generation());
        self.versions.insert(block, (generation, version));
        version
    }

    fn lookup_and_remove(&mut self) {
        let ids = [self.block(), self.block()];
        let remove = self.below(2) == 0;
        let begun = self.with(|core, now, fx| match remove {
            true => core.begin_remove(&ids, now, fx),
            false => core.begin_lookup(&ids, None, now, fx),
        });
        drop(begun);
    }

    fn drop_block(&mut self) {
        let block = self.block();
        drop(self.with(|core, now, fx| core.drop_block(block, now, fx)));
    }

    fn cancel(&mut self) {
        let running: Vec<u64> = self.core.tasks.running().map(|(handle, _)| handle).collect();
        if !running.is_empty() {
            let handle = running[self.below(running.len())];
            self.with(|core, now, fx| core.cancel(handle, now, fx)).unwrap();
        }
    }

    fn change_path(&mut self) {
        let lane = self.below(self.paths.len());
        self.paths[lane] = match self.below(6) {
            0 => Path::Fail(libc::EIO),
            1 => Path::Fail(libc::ENOSPC),
            2 if self.mode.hangs => Path::Hang,
            _ => Path::Healthy,
        };
    }

    fn advance(&mut self) {
        let jump = self.below(2) == 0;
        let target = match self.core.armed {
            Some(armed) if jump => armed.since(self.clock.now()),
            _ => Duration::from_millis(self.below(90) as u64),
        };
        let next = self.core.armed.map(|armed| armed.since(self.clock.now()));
        // The judge wakes in time, as the supervisor sees to.
        self.clock.advance(next.map_or(target, |next| next.min(target)));
        if self.core.armed.is_some_and(|armed| armed <= self.clock.now()) {
            self.with(Core::judge);
        }
    }

    pub fn probe(&mut self) {
        for lane in self.core.health.excluded() {
            let outcome = match self.paths[lane] {
                Path::Healthy => Ok(None),
                _ => Err(Failure::errno(Step::Write, libc::EIO)),
            };
            self.with(|core, now, fx| core.probed(lane, outcome, now, fx));
        }
    }

    pub fn pull(&mut self) {
        let lane = self.below(self.paths.len());
        self.pull_from(lane);
    }

    pub fn pull_from(&mut self, lane: usize) -> bool {
        let want = [Want::Any, Want::Transfers, Want::Metadata][self.below(3)];
        self.pull_some(lane, want)
    }

    /// One op that an engine wants; says whether there was one.
    pub fn pull_some(&mut self, lane: usize, want: Want) -> bool {
        let op = self.with(|core, now, fx| core.pull(lane, want, now, fx));
        let Some(op) = op else { return false };
        let tag = op.tag;
        let running = Running { op, lane, phase: Phase::New, inside: false };
        assert!(self.running.insert(tag, running).is_none(), "a tag was used twice");
        true
    }
}
