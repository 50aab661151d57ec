//! What must hold after every step, and at the end.

use std::time::Duration;

use super::model::{BLOCK, SHARD, SHARDS, is_block};
use super::world::{Path, TASK_LIMIT, World, content};
use crate::engine::{Tag, Want};
use crate::health::state::BackendState;
use crate::store::core::Core;
use crate::store::task::Found;
use crate::store::types::{BlockId, TaskKind};

impl World {
    /// Every visible block is whole and of one version.
    pub fn check_blocks(&self) {
        for (name, inode) in &self.storage.names {
            if !is_block(name) {
                continue;
            }
            let bytes = &self.storage.inodes[*inode].bytes;
            assert_eq!(bytes.len(), BLOCK, "{name} is not whole");
            let first = u8::from_str_radix(&name.split_once('/').unwrap().1[..2], 16).unwrap();
            let block = BlockId(std::array::from_fn(|at| if at == 0 { first } else { 0 }));
            let whole = |version: u8| {
                bytes
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| *byte == content(block, version, at / SHARD))
            };
            // A rename that was given up may have named what lacks something: the store knows, and
            // gives it to nobody.
            let known = self.core.misnamed.contains_key(&block);
            assert!(known || (0..=255).any(whole), "{name} is of no version: {bytes:?}");
        }
    }

    /// Tasks that have ended: their results are right, and their memory is never touched again.
    pub fn settle_jobs(&mut self) {
        let now = self.clock.now();
        for (handle, job) in &mut self.jobs {
            match (&job.ended, self.core.tasks.find(*handle)) {
                (Some(ended), _) if job.kind == TaskKind::Load => {
                    assert_eq!(*ended, job.memory, "memory of task {handle} touched after its end");
                }
                (None, Found::Finished) => {
                    let result = self.core.tasks.consume(*handle).unwrap();
                    for (at, index) in job.shards.iter().enumerate() {
                        let range = *index as usize * SHARD..(*index as usize + 1) * SHARD;
                        if job.kind == TaskKind::Load && result.error(at).is_none() {
                            let byte = job.memory[range.start];
                            let same = job.memory[range].iter().all(|other| *other == byte);
                            assert!(
                                same && byte != 0,
                                "shard {index} of task {handle} is not whole"
                            );
                        }
                    }
                    let failed = (0..job.shards.len()).find_map(|at| result.error(at));
                    job.error = failed.map(|error| error.status);
                    job.ended = Some(job.memory.clone());
                    // A whole block that was stored is there, until somebody removes it.
                    let whole = job.kind == TaskKind::Dump && job.shards.len() == SHARDS;
                    if let Some((name, before)) = job.name.as_ref()
                        && whole
                        && failed.is_none()
                    {
                        let removed = self.storage.removed.get(name).copied().unwrap_or(0);
                        let there = self.storage.names.contains_key(name);
                        assert!(there || removed > *before, "{name} is lost");
                    }
                }
                (None, Found::Running(_)) if self.mode.isolated && self.mode.limits => {
                    let task = self.core.tasks.running().find(|(other, _)| other == handle);
                    // Judged and not ended: only a worker inside its memory may be the reason, and
                    // in this world nobody is inside between two steps.
                    let deadline = task.as_ref().unwrap().1.deadline;
                    let Some(deadline) = deadline else {
                        let chains = &self.core.chains;
                        panic!("a judged task goes on: {handle} {task:?} {chains:?}")
                    };
                    let late = now.since(deadline);
                    assert!(late < Duration::from_millis(200), "task {handle} is over its limit");
                }
                _ => {}
            }
        }
    }

    /// All paths come back; everything ends, and nothing is left.
    pub fn finish(&mut self) {
        self.paths.fill(Path::Healthy);
        for _ in 0..20 {
            self.drain();
            for _ in 0..8 {
                self.probe();
            }
            if let Some(armed) = self.core.armed {
                self.clock.advance(armed.since(self.clock.now()).min(TASK_LIMIT));
                self.with(Core::judge);
            }
        }
        assert!(self.core.chains.is_empty(), "{:?} {:?}", self.core.chains, self.core.blocks);
        assert!(self.core.attempts.is_empty(), "{:?}", self.core.attempts);
        let stats = self.core.snapshot();
        assert_eq!((stats.in_flight, stats.abandoned, stats.queued_shards), (0, 0, 0));
        assert!(self.jobs.values().all(|job| job.ended.is_some()), "a task never ended");
        for health in self.core.health.backends() {
            assert_eq!(health.state(), BackendState::Available, "a healthy path stays excluded");
        }
        self.with(Core::begin_close);
        self.with(Core::end_collecting);
        self.with(Core::drop_all_blocks);
        self.drain();
        assert!(self.core.is_quiet());
        let left: Vec<&String> = self.storage.names.keys().filter(|name| !is_block(name)).collect();
        assert!(left.is_empty(), "temporaries are left: {left:?}");
    }

    fn drain(&mut self) {
        loop {
            for lane in 0..self.paths.len() {
                while self.pull_some(lane, Want::Any) {}
            }
            let tags: Vec<Tag> = self.running.keys().copied().collect();
            if tags.is_empty() {
                break;
            }
            for tag in tags {
                self.proceed_with(tag);
            }
        }
    }
}
