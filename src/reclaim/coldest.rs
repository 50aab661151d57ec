//! The coldest blocks of a whole store in bounded memory (R81): directories are shown one after
//! another, in any order, and what is left at the end are the oldest of all of them.

use std::collections::BinaryHeap;

/// Most candidates at a time, whatever was asked for: 32 bytes each. What does not fit waits for
/// the next round.
pub const CANDIDATES_MAX: u64 = 1 << 20;

/// A block that may go. Ordered by age: the oldest is the least; blocks of one age in order of
/// their names, so that a choice does not depend on the order of listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// When it was used last: nanoseconds of the storage's clock.
    pub mtime_ns: i64,
    /// Its id.
    pub block: [u8; 16],
}

/// The `most` oldest of all candidates that were shown.
#[derive(Debug, Clone, Default)]
pub struct Oldest {
    most: usize,
    /// The youngest on top.
    heap: BinaryHeap<Candidate>,
    left_out: bool,
}

impl Oldest {
    /// Keeps at most `most`.
    #[must_use]
    pub fn new(most: u64) -> Oldest {
        let most = usize::try_from(most.min(CANDIDATES_MAX)).unwrap_or(usize::MAX);
        Oldest { most, heap: BinaryHeap::new(), left_out: false }
    }

    /// Shows one.
    pub fn see(&mut self, candidate: Candidate) {
        if self.heap.len() < self.most {
            self.heap.push(candidate);
            return;
        }
        self.left_out = true;
        if let Some(mut youngest) = self.heap.peek_mut()
            && candidate < *youngest
        {
            *youngest = candidate;
        }
    }

    /// Those that are kept, the oldest first.
    #[must_use]
    pub fn into_sorted(self) -> Vec<Candidate> {
        self.heap.into_sorted_vec()
    }
}

/// The choice over all directories.
#[derive(Debug, Clone)]
pub struct Coldest {
    oldest: Oldest,
    /// A directory had more than it may give: nothing younger than what it gave goes in this round,
    /// for what it kept back is older.
    cut: Option<Candidate>,
}

impl Coldest {
    /// Keeps at most `most`.
    #[must_use]
    pub fn new(most: u64) -> Coldest {
        Coldest { oldest: Oldest::new(most), cut: None }
    }

    /// Takes in what one directory gave.
    pub fn merge(&mut self, directory: Oldest) {
        if directory.left_out
            && let Some(youngest) = directory.heap.peek()
        {
            self.cut = Some(self.cut.map_or(*youngest, |cut| cut.min(*youngest)));
        }
        for candidate in directory.heap {
            self.oldest.see(candidate);
        }
    }

    /// The candidates, the oldest first; nothing is left out that is older than any of them.
    #[must_use]
    pub fn into_sorted(self) -> Vec<Candidate> {
        let mut all = self.oldest.into_sorted();
        if let Some(cut) = self.cut {
            all.retain(|candidate| *candidate <= cut);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(mtime_ns: i64, number: u64) -> Candidate {
        let mut block = [0; 16];
        block[..8].copy_from_slice(&number.to_be_bytes());
        Candidate { mtime_ns, block }
    }

    fn next(random: &mut u64) -> u64 {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *random >> 33
    }

    /// What a directory gives, and what it kept back.
    fn directory(all: &[Candidate], most: u64) -> Oldest {
        let mut oldest = Oldest::new(most);
        for one in all {
            oldest.see(*one);
        }
        oldest
    }

    #[test]
    fn r81_the_coldest_of_the_whole_store_and_not_of_each_directory() {
        for seed in 1..200 {
            let mut random = seed;
            // Skewed: directories differ in size and in age.
            let directories: Vec<Vec<Candidate>> = (0..1 + next(&mut random) % 12)
                .map(|_| {
                    let (size, base) = (next(&mut random) % 200, next(&mut random) % 1000);
                    let age = |random: &mut u64| i64::try_from(base + next(random) % 300).unwrap();
                    (0..size).map(|_| candidate(age(&mut random), next(&mut random))).collect()
                })
                .collect();
            let (most, each) = (1 + next(&mut random) % 300, 1 + next(&mut random) % 120);
            let mut coldest = Coldest::new(most);
            for one in &directories {
                coldest.merge(directory(one, each));
            }
            let chosen = coldest.into_sorted();
            let mut all: Vec<Candidate> = directories.concat();
            all.sort_unstable();
            assert_eq!(chosen[..], all[..chosen.len()], "seed {seed}");
            let full = directories.iter().all(|one| one.len() as u64 <= each);
            if full {
                let expected = all.len().min(usize::try_from(most).unwrap());
                assert_eq!(chosen.len(), expected, "seed {seed}");
            } else {
                assert!(!chosen.is_empty(), "seed {seed}: every round gets on");
            }
        }
    }
}
