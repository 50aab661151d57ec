//! One try of one chain through one backend. Plain data; its steps are in `step.rs`, its limits in
//! `timing.rs`.

use std::sync::Arc;

use super::chain::{ChainId, Class};
use super::step::Step;
use super::types::BlockId;
use crate::clock::Time;
use crate::engine::Gate;
use crate::error::Error;
use crate::health::class::Operation;
use crate::health::state::Epoch;

/// How an attempt is to end when its worker leaves the gate.
#[derive(Debug)]
pub enum Pending {
    /// Its time limit passed.
    TimedOut,
    /// Its chain ends with this error.
    End(Error),
}

/// One try of one chain through one backend.
#[derive(Debug)]
pub struct Attempt {
    /// Its chain; `None` once the chain ended without it: it is watched to its limit (R28).
    pub chain: Option<ChainId>,
    /// Its backend.
    pub lane: usize,
    /// Its slot.
    pub class: Class,
    /// Its block.
    pub block: BlockId,
    /// Shared with the op.
    pub gate: Arc<Gate>,
    /// When it began.
    pub started: Time,
    /// When it times out.
    pub limit: Option<Time>,
    /// The present step.
    pub step: Step,
    /// The step waits for an engine to pull it; since when.
    pub waiting: Option<Time>,
    /// It was given up and is in the kernel; the availability epoch of its backend then (R29). Its
    /// slot is free. With `pending` set its chain waits for it all the same.
    pub abandoned: Option<Epoch>,
    /// What happens when its worker leaves the gate.
    pub pending: Option<Pending>,
    /// It writes, or names, the temporary of this generation.
    pub generation: Option<u64>,
    /// It may create the temporary of this generation.
    pub creates: Option<u64>,
    /// A directory was made in this attempt already.
    pub made_dir: bool,
    /// What the store was doing.
    pub work: Operation,
    /// See [`super::chain::Work::is_of_one_file`].
    pub of_one_file: bool,
    /// See [`super::chain::Work::is_chore`].
    pub is_chore: bool,
    /// It is a load that began before another made its path look anew, and has to do so itself.
    pub has_to_look: bool,
    /// It has done so, since the block became suspect.
    pub has_looked: bool,
    /// See [`Core::excused`](super::core::Core::excused).
    pub excused: bool,
}

impl Attempt {
    /// It has a limit that can still pass.
    pub(super) fn is_judged(&self) -> bool {
        self.abandoned.is_none() && self.waiting.is_none()
    }

    /// The block that a failure is remembered by (R22). A marker is the path's: one block that is
    /// asked for again and again is enough to show that the storage is not there.
    pub(super) fn blames(&self) -> Option<BlockId> {
        let of_marker = matches!(self.step, Step::Marker(_));
        (self.of_one_file && !of_marker).then_some(self.block)
    }

    /// As what a failure of the present step is judged (R22): a marker is the path's, whoever asks
    /// for it.
    pub(super) fn judged_as(&self) -> Operation {
        match self.step {
            Step::Marker(_) => Operation::Mount,
            _ => self.work,
        }
    }

    /// Its worker keeps a buffer of the lane's while it is in the kernel: that of a transfer, or of
    /// the last steps of one, which a worker with a buffer may have begun.
    pub(super) fn may_hold_a_buffer(&self) -> bool {
        match &self.step {
            Step::Main => matches!(self.class, Class::Load | Class::Dump),
            Step::LookAnew
            | Step::SyncTemporary
            | Step::SyncFinal
            | Step::SyncDir
            | Step::SyncRoot
            | Step::Rename { .. } => true,
            Step::Marker(_)
            | Step::Room
            | Step::MakeDir
            | Step::TouchFinal { .. }
            | Step::StatFinal { .. }
            | Step::DropTemporary
            | Step::DropFinal
            | Step::Refresh
            | Step::Space => false,
        }
    }
}
