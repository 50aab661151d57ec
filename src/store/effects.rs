//! What the core asks for, to be done once its lock is free. Plain data.

use std::sync::Arc;

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

impl Effects {
    /// One more op can be pulled from `lane`.
    pub fn wake_one(&mut self, lane: usize) {
        match self.wake.iter_mut().find(|(index, _)| *index == lane) {
            Some((_, jobs)) => *jobs += 1,
            None => self.wake.push((lane, 1)),
        }
    }

    /// Logs.
    pub fn log(&mut self, level: Level, id: &'static str, text: String) {
        self.messages.push(Message { level, id, text });
    }
}
