//! How often each operation was seen, by path. Owned by `gate.rs`.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::op::{Call, OP_COUNT, OPS, OpSet, glob};

/// Paths that are counted one by one; a test that touches more can still ask for the totals.
const PATHS_MAX: usize = 1 << 20;

type PerOp = [u64; OP_COUNT];

/// The counters.
#[derive(Default)]
pub struct Counts {
    total: PerOp,
    by_path: HashMap<(String, Option<String>), PerOp>,
    overflow: bool,
}

impl Counts {
    /// Counts one call.
    pub fn add(&mut self, call: &Call) {
        let op = call.op as usize;
        self.total[op] += 1;
        let key = (call.path.clone(), call.path_to.clone());
        if let Some(counts) = self.by_path.get_mut(&key) {
            counts[op] += 1;
        } else if self.by_path.len() < PATHS_MAX {
            self.by_path.entry(key).or_default()[op] = 1;
        } else {
            self.overflow = true;
        }
    }

    /// What was counted for paths that match, or for all.
    pub fn of(&self, pattern: Option<&str>) -> Result<PerOp, String> {
        let Some(pattern) = pattern else { return Ok(self.total) };
        if self.overflow {
            return Err(format!("more than {PATHS_MAX} paths were seen"));
        }
        let mut sum = [0; OP_COUNT];
        for ((path, path_to), counts) in &self.by_path {
            if glob(pattern, path) || path_to.as_deref().is_some_and(|path| glob(pattern, path)) {
                for (sum, count) in sum.iter_mut().zip(counts) {
                    *sum += count;
                }
            }
        }
        Ok(sum)
    }

    /// The same, summed over some operations.
    pub fn sum(&self, ops: OpSet, pattern: &str) -> Result<u64, String> {
        let counts = self.of(Some(pattern))?;
        Ok(OPS.iter().filter(|(op, _)| ops.has(*op)).map(|(op, _)| counts[*op as usize]).sum())
    }
}

/// `total=N` and every operation with its number, those of 0 included.
pub fn text(counts: &PerOp) -> String {
    let mut text = format!("total={}", counts.iter().sum::<u64>());
    for (op, name) in OPS {
        // Writing to a String cannot fail.
        write!(text, " {name}={}", counts[op as usize]).unwrap_or_default();
    }
    text
}
