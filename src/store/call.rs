//! Calls that a thread waits in: lookups, commits, removals. A call is split into chains; the last
//! one to end wakes the thread, which then takes the answer. Pure table, owned by the core.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::chain::ChainId;
use super::chore::Answer;
use super::task::Cell;
use crate::clock::Time;
use crate::error::Error;

/// One waiting call.
#[derive(Debug)]
pub struct Call {
    /// Parts that have not ended.
    pub open: usize,
    /// By position: the block is there (lookups).
    pub found: Vec<bool>,
    /// Errors by position.
    pub errors: Vec<(usize, Error)>,
    /// By position: what chores gave.
    pub answers: Vec<(usize, Answer)>,
    /// When it ends with TIMEOUT.
    pub deadline: Option<Time>,
    /// Its chains.
    pub chains: Vec<ChainId>,
    /// Where the thread waits.
    pub cell: Arc<Cell>,
}

impl Call {
    /// The first error by position.
    #[must_use]
    pub fn first_error(&self) -> Option<Error> {
        self.errors.iter().min_by_key(|(at, _)| *at).map(|(_, error)| error.clone())
    }
}

/// All calls of one store.
#[derive(Debug, Default)]
pub struct Calls {
    last: u64,
    table: HashMap<u64, Call>,
}

impl Calls {
    /// Adds a call of `positions` positions in `parts` parts.
    pub fn add(&mut self, positions: usize, parts: usize, deadline: Option<Time>) -> u64 {
        self.last += 1;
        let call = Call {
            open: parts,
            found: vec![false; positions],
            errors: Vec::new(),
            answers: Vec::new(),
            deadline,
            chains: Vec::new(),
            cell: Arc::default(),
        };
        self.table.insert(self.last, call);
        self.last
    }

    /// Moves every deadline later.
    pub fn postpone(&mut self, by: Duration) {
        for call in self.table.values_mut() {
            call.deadline = call.deadline.map(|deadline| deadline.plus(by));
        }
    }

    /// The call.
    pub fn get_mut(&mut self, call: u64) -> Option<&mut Call> {
        self.table.get_mut(&call)
    }

    /// All calls.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Call)> {
        self.table.iter().map(|(id, call)| (*id, call))
    }

    /// Takes a call away, finished or not.
    pub fn take(&mut self, call: u64) -> Option<Call> {
        self.table.remove(&call)
    }

    /// Ends one part; gives the cell to tell where that was the last.
    pub fn end_part(&mut self, call: u64, errors: Vec<(usize, Error)>) -> Option<Arc<Cell>> {
        let call = self.table.get_mut(&call)?;
        call.open = call.open.saturating_sub(1);
        call.errors.extend(errors);
        (call.open == 0).then(|| Arc::clone(&call.cell))
    }
}
