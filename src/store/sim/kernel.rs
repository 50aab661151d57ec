//! The kernel's part: one running op goes one phase further, or hangs, or fails.

use super::model::Phase;
use super::world::{Path, Running, World};
use crate::engine::{Done, OpKind, Outcome, Tag};
use crate::error::{Cause, Failure, Step};

impl World {
    /// One running op goes one phase further.
    pub fn proceed(&mut self) {
        let mut tags: Vec<Tag> = self.running.keys().copied().collect();
        tags.sort_unstable();
        if tags.is_empty() {
            return self.pull();
        }
        let tag = tags[self.below(tags.len())];
        self.proceed_with(tag);
    }

    pub fn proceed_with(&mut self, tag: Tag) {
        let Some(mut running) = self.running.remove(&tag) else { return };
        let lane = running.lane;
        let fails = self.below(3) > 0;
        let outcome = match self.paths[lane] {
            Path::Hang => None,
            Path::Fail(errno) if fails => {
                if let OpKind::Sync { path, directory: false } = &running.op.kind {
                    self.storage.forget(path, lane);
                }
                let step = if matches!(running.op.kind, OpKind::Write(_)) {
                    Step::Write
                } else {
                    Step::Read
                };
                Some(Err(Failure::errno(step, errno)))
            }
            _ => self.phase(&mut running),
        };
        match outcome {
            None => {
                self.running.insert(tag, running);
            }
            Some(outcome) => {
                if running.inside {
                    let _still_current = running.op.gate.leave();
                }
                self.with(|core, now, fx| core.complete(tag, outcome, now, fx));
            }
        }
    }

    fn phase(&mut self, running: &mut Running) -> Option<Outcome> {
        let gate = &running.op.gate;
        let isolated = self.mode.isolated;
        let given_up = Err(Failure { step: Step::Write, cause: Cause::GivenUp });
        if !isolated && !running.inside && matches!(running.phase, Phase::New) {
            if !gate.enter() {
                return Some(given_up);
            }
            running.inside = true;
        }
        match (&running.op.kind, &running.phase) {
            (OpKind::Read(transfer), Phase::New) => match self.storage.open_read(transfer) {
                Ok(inode) => running.phase = Phase::Open(inode),
                Err(failure) => return Some(Err(failure)),
            },
            (OpKind::Write(transfer), Phase::New) => {
                if isolated && gate.revoked() && self.random & 64 == 0 {
                    return Some(given_up);
                }
                // A create that hung happens now, whoever gave it up.
                match self.storage.open_write(transfer) {
                    Ok(inode) => {
                        self.storage.remember(inode, running.lane);
                        running.phase = Phase::Open(inode);
                    }
                    Err(failure) => return Some(Err(failure)),
                }
            }
            (OpKind::Read(transfer), Phase::Open(inode)) => {
                if isolated && !gate.enter() {
                    return Some(given_up);
                }
                let start = usize::try_from(transfer.offset).unwrap();
                let end = start + usize::try_from(transfer.memory.bytes()).unwrap();
                let bytes = &self.storage.loaded(*inode, running.lane)[start..end];
                // SAFETY: inside the gate; jobs keep their memory until the end of the run.
                unsafe { transfer.memory.copy_in(0, bytes) };
                if isolated && !gate.leave() {
                    return Some(given_up);
                }
                return Some(Ok(Done::Unit));
            }
            (OpKind::Write(transfer), Phase::Open(inode)) => {
                if isolated && !gate.enter() {
                    return Some(given_up);
                }
                let mut bytes = vec![0; usize::try_from(transfer.memory.bytes()).unwrap()];
                // SAFETY: as above.
                unsafe { transfer.memory.copy_out(0, &mut bytes) };
                if isolated && !gate.leave() {
                    return Some(given_up);
                }
                running.phase = Phase::InKernel(*inode, bytes);
            }
            (OpKind::Write(transfer), Phase::InKernel(inode, bytes)) => {
                self.storage.land(*inode, transfer, bytes, running.lane);
                let durable = transfer.direct || transfer.sync;
                return Some(Ok(Done::Written { durable }));
            }
            (OpKind::Rename { .. }, Phase::New) => {
                let answer = self.storage.metadata(&running.op.kind, running.lane);
                running.phase = Phase::Answered(answer.map(drop));
            }
            (_, Phase::Answered(answer)) => return Some(answer.clone().map(|()| Done::Unit)),
            (kind, _) => return Some(self.storage.metadata(kind, running.lane)),
        }
        None
    }
}
