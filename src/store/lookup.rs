//! Lookups (R61–R63): the waiting half, on the caller's thread, which never enters the file system
//! itself.
//!
//! Prefix and last ask in growing slices, so that a miss at the near end costs one question and a
//! long hit keeps all lanes busy. The limit is that of the whole call, not of a slice.

use std::time::Duration;

use super::shared::Shared;
use super::submit::closed;
use super::types::{BlockId, Lookup, LookupIndex};
use crate::clock::Time;
use crate::error::{Error, Status};

/// The first slice of a prefix or last lookup; each further one is this many times larger.
const FIRST_SLICE: usize = 4;
const SLICE_GROWTH: usize = 8;
/// Most ids in one slice.
const MAX_SLICE: usize = 1024;

/// A caller watches so long for an answer before it sleeps: one that a cached name gives is there
/// sooner than a sleeping thread is awake again.
const WATCH: Duration = Duration::from_micros(50);

/// Asks for each id.
///
/// # Errors
/// `Closed`.
pub fn each(shared: &Shared, ids: &[BlockId]) -> Result<Lookup, Error> {
    slice(shared, ids, &mut None)
}

/// Asks for each id, until `deadline` where the slices before have one; it becomes that of the
/// slices that follow.
fn slice(shared: &Shared, ids: &[BlockId], deadline: &mut Option<Time>) -> Result<Lookup, Error> {
    if ids.is_empty() {
        return Ok(Lookup { found: Vec::new(), error: None });
    }
    let begun = shared.with(|core, now, fx| core.begin_lookup(ids, *deadline, now, fx));
    let (call, cell) = match begun {
        Err(error) if error.status == Status::Timeout => {
            return Ok(Lookup { found: vec![false; ids.len()], error: Some(error) });
        }
        begun => begun?,
    };
    if !(shared.watches && cell.watch(&shared.clock, WATCH)) {
        cell.wait(None);
    }
    let call = shared.read(|core| core.take_call(call)).ok_or_else(closed)?;
    *deadline = call.deadline;
    let error = call.first_error();
    match error {
        Some(error) if error.status == Status::Closed => Err(error),
        error => Ok(Lookup { found: call.found, error }),
    }
}

/// The last index before the first absent one. An id that could not be asked counts as absent.
///
/// # Errors
/// `Closed`.
pub fn prefix(shared: &Shared, ids: &[BlockId]) -> Result<LookupIndex, Error> {
    let (mut done, mut deadline) = (0, None);
    let mut length = FIRST_SLICE;
    while done < ids.len() {
        let end = ids.len().min(done + length);
        let answer = slice(shared, &ids[done..end], &mut deadline)?;
        if let Some(absent) = answer.found.iter().position(|found| !found) {
            return Ok(LookupIndex { index: index(done + absent) - 1, error: answer.error });
        }
        done = end;
        length = (length * SLICE_GROWTH).min(MAX_SLICE);
    }
    Ok(LookupIndex { index: index(done) - 1, error: None })
}

/// The highest index that is present.
///
/// # Errors
/// `Closed`.
pub fn last(shared: &Shared, ids: &[BlockId]) -> Result<LookupIndex, Error> {
    let (mut end, mut deadline) = (ids.len(), None);
    let mut length = FIRST_SLICE;
    let mut error = None;
    while end > 0 {
        let start = end.saturating_sub(length);
        let answer = slice(shared, &ids[start..end], &mut deadline)?;
        error = error.or(answer.error);
        if let Some(present) = answer.found.iter().rposition(|found| *found) {
            return Ok(LookupIndex { index: index(start + present), error });
        }
        end = start;
        length = (length * SLICE_GROWTH).min(MAX_SLICE);
    }
    Ok(LookupIndex { index: -1, error })
}

fn index(at: usize) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}
