//! What the core asks for, to be done once its lock is free. Plain data.

use std::sync::Arc;

use super::chain::Class;
use super::task::Cell;
use crate::clock::Time;
use crate::engine::Tag;
use crate::log::Level;

/// A message for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// How important.
    pub level: Level,
    /// Stable id.
    pub id: &'static str,
    /// Text.
    pub text: String,
}

/// What must happen once the core's lock is free.
#[derive(Debug, Default)]
pub struct Effects {
    /// More ops can be pulled: (lane, how many).
    pub wake: Vec<(usize, usize)>,
    /// The same for lookups and sweeps.
    pub wake_metadata: Vec<(usize, usize)>,
    /// Of these, sweeps.
    idle: Vec<(usize, usize)>,
    /// The same for steps of the collector's lease.
    pub wake_lease: Vec<(usize, usize)>,
    /// Tasks and calls that ended.
    pub finished: Vec<Arc<Cell>>,
    /// Ops that were given up in the kernel.
    pub abandon: Vec<(usize, Tag)>,
    /// For the log.
    pub messages: Vec<Message>,
    /// A backend's state changed: recovery has work, or the breaker something to look at.
    pub health_changed: bool,
    /// The judge must wake no later than this.
    pub arm: Option<Time>,
    /// A task ended that `finished` can list.
    pub listed: bool,
    /// Nothing is left to do.
    pub quiet: bool,
}

fn add(wake: &mut Vec<(usize, usize)>, lane: usize) {
    match wake.iter_mut().find(|(index, _)| *index == lane) {
        Some((_, jobs)) => *jobs += 1,
        None => wake.push((lane, 1)),
    }
}

impl Effects {
    /// One more op can be pulled from `lane`.
    pub fn wake_one(&mut self, lane: usize) {
        add(&mut self.wake, lane);
    }

    /// One more op for a chain of this class can be pulled.
    pub fn wake_class(&mut self, lane: usize, class: Class) {
        match class {
            Class::Lookup | Class::Idle => add(&mut self.wake_metadata, lane),
            Class::Lease => add(&mut self.wake_lease, lane),
            Class::Load | Class::Dump | Class::Metadata => add(&mut self.wake, lane),
        }
    }

    /// One more op that can wait is queued, of which `most` run at once: workers that would find
    /// nothing to do are not made. The others are told of when one has ended.
    pub fn wake_idle(&mut self, lane: usize, most: usize) {
        add(&mut self.idle, lane);
        if self.idle.iter().any(|(index, queued)| *index == lane && *queued <= most) {
            self.wake_class(lane, Class::Idle);
        }
    }

    /// Logs.
    pub fn log(&mut self, level: Level, id: &'static str, text: String) {
        self.messages.push(Message { level, id, text });
    }
}
