//! What a pass does, in order: take the lease, count a sample, list what must be listed, remove the
//! coldest and the dead, give the lease back (R81–R86).

use std::sync::Arc;

use super::run::{Ended, Run};
use super::tally::{Found, Mortality, Plan, Want};
use crate::engine::{Done, Entry};
use crate::error::{Error, Status};
use crate::log::{self, Level};
use crate::reclaim::capacity::Capacity;
use crate::reclaim::coldest::{CANDIDATES_MAX, Candidate, Coldest};
use crate::reclaim::sample::{estimate, sample};
use crate::store::chore::{Answer, Chore};
use crate::store::layout::{Layout, QUARANTINE};
use crate::store::types::BlockId;

/// Most removals between two looks at the lease (R83).
const BATCH: usize = 64;
/// Directories that are listed before what they showed is taken in.
const DIRECTORIES: usize = 64;
/// Most rounds of one pass: each must have removed something.
const ROUNDS_MAX: usize = 1000;
const SECOND_NS: i64 = 1_000_000_000;

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// Count, and collect where there are too many (R81).
    pub collect: bool,
    /// Sweep temporaries and quarantine (R86).
    pub sweep: bool,
}

/// What is being removed: which counter it goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cold,
    Temporary,
    Quarantined,
}

/// What became of a batch.
#[derive(Debug, Default, Clone, Copy)]
struct Removed {
    removed: u64,
    /// Somebody else was quicker.
    gone: u64,
}

impl Run<'_> {
    /// A whole pass.
    pub(super) fn pass(&mut self, aim: Aim) -> Result<(), Ended> {
        self.acquire()?;
        let result = self.work(aim);
        self.release();
        result
    }

    fn work(&mut self, aim: Aim) -> Result<(), Ended> {
        let now_ns = self.storage_now_ns();
        let ttl = i64::try_from(self.settings.temp_ttl.as_secs()).unwrap_or(i64::MAX);
        let mortality = Arc::new(Mortality {
            me: self.settings.me.clone(),
            alive: self.settings.alive,
            storage_now_ns: now_ns,
            ttl_ns: ttl.saturating_mul(SECOND_NS),
        });
        let root =
            self.survey(&[String::new()], Want { coldest: 0, dead: aim.sweep }, &mortality)?;
        let Some((_, root)) = root.into_iter().next() else { return Ok(()) };
        self.remove_dead("", root.dead)?;
        let layout = Arc::clone(&self.settings.layout);
        let mut dirs: Vec<String> =
            root.dirs.into_iter().filter(|name| layout.is_dir(name)).collect();
        // Not always the same directory first.
        let first = self.collector.random_below(dirs.len());
        dirs.rotate_left(first);
        let capacity = self.settings.collection.capacity.filter(|_| aim.collect);
        let expected = match capacity {
            Some(capacity) => self.surplus_expected(capacity, &dirs, &mortality)?,
            None => None,
        };
        if aim.sweep {
            self.sweep(&dirs, &mortality)?;
        }
        if let (Some(capacity), Some(expected)) = (capacity, expected) {
            self.collect(capacity, expected, &dirs, &mortality)?;
        }
        Ok(())
    }

    /// Counts a sample. `None`: there are few enough blocks.
    fn surplus_expected(
        &mut self,
        capacity: Capacity,
        dirs: &[String],
        mortality: &Arc<Mortality>,
    ) -> Result<Option<u64>, Ended> {
        let chosen = sample(dirs.len(), self.settings.collection.sample, self.collector.random());
        let mut blocks = 0;
        let chosen: Vec<String> = chosen.into_iter().map(|at| dirs[at].clone()).collect();
        for part in chosen.chunks(DIRECTORIES) {
            let shown = self.survey(part, Want { coldest: 0, dead: false }, mortality)?;
            blocks += shown.iter().map(|(_, found)| found.blocks).sum::<u64>();
        }
        let expected = estimate(blocks, chosen.len(), dirs.len());
        self.shared.read(|core| core.stats.estimated_blocks = expected);
        Ok((expected >= capacity.trigger).then_some(expected))
    }

    /// Lists directories. One that fails through every backend ends the pass.
    fn survey(
        &mut self,
        dirs: &[String],
        want: Want,
        mortality: &Arc<Mortality>,
    ) -> Result<Vec<(String, Found)>, Ended> {
        let chores = dirs.iter().map(|dir| {
            Chore::Survey(Arc::new(Plan {
                dir: dir.clone(),
                prefix: self.settings.layout.prefix(dir).to_owned(),
                want,
                mortality: Arc::clone(mortality),
            }))
        });
        let chores = chores.collect();
        let answers = self.all(chores, self.settings.collection.task_timeout)?;
        let mut shown = Vec::with_capacity(answers.len());
        for answer in answers {
            match answer {
                Ok(Answer::Tally(tally)) => shown.push((tally.dir().to_owned(), tally.take())),
                Ok(Answer::Done(_)) => {}
                // Gone since the root was listed.
                Err(error) if error.status == Status::NotFound => {}
                Err(error) => return Err(Ended::of(error)),
            }
        }
        Ok(shown)
    }

    /// Removes what dead writers and expired quarantine left (R86).
    fn sweep(&mut self, dirs: &[String], mortality: &Arc<Mortality>) -> Result<(), Ended> {
        let mut foreign = 0;
        for part in dirs.chunks(DIRECTORIES) {
            for (dir, found) in self.survey(part, Want { coldest: 0, dead: true }, mortality)? {
                foreign += found.foreign;
                self.remove_dead(&dir, found.dead)?;
            }
        }
        self.shared.read(|core| core.stats.foreign_names = foreign);
        self.sweep_quarantine(mortality.storage_now_ns)
    }

    fn remove_dead(&mut self, dir: &str, dead: Vec<String>) -> Result<(), Ended> {
        let path = |name: String| if dir.is_empty() { name } else { format!("{dir}/{name}") };
        let dead: Vec<String> = dead.into_iter().map(path).collect();
        for batch in dead.chunks(BATCH) {
            let chores = batch.iter().map(|path| Chore::RemoveFile(path.clone())).collect();
            self.remove(chores, Kind::Temporary)?;
        }
        Ok(())
    }

    fn sweep_quarantine(&mut self, now_ns: i64) -> Result<(), Ended> {
        let list = Chore::List { dir: QUARANTINE.into(), filter: "" };
        let entries = match self.one(list, self.settings.collection.task_timeout)? {
            Ok(Answer::Done(Done::Entries(entries))) => entries,
            Err(error) if error.status != Status::NotFound => return Err(Ended::of(error)),
            _ => return Ok(()),
        };
        let ttl = i64::try_from(self.settings.collection.quarantine_ttl.as_secs());
        let oldest = now_ns.div_euclid(SECOND_NS).saturating_sub(ttl.unwrap_or(i64::MAX));
        let expired =
            |entry: &Entry| Layout::set_aside_at(&entry.name).is_some_and(|at| at < oldest);
        let names: Vec<String> =
            entries.into_iter().filter(expired).map(|entry| entry.name).collect();
        for batch in names.chunks(BATCH) {
            let path = |name: &String| Chore::RemoveFile(format!("{QUARANTINE}/{name}"));
            self.remove(batch.iter().map(path).collect(), Kind::Quarantined)?;
        }
        Ok(())
    }

    /// Removes the coldest until there are few enough (R81).
    fn collect(
        &mut self,
        capacity: Capacity,
        mut expected: u64,
        dirs: &[String],
        mortality: &Arc<Mortality>,
    ) -> Result<(), Ended> {
        let mut taken = 0;
        for _round in 0..ROUNDS_MAX {
            let (left, removed) = if self.settings.collection.precise {
                self.precise_round(capacity, expected, dirs, mortality)?
            } else {
                self.plain_round(capacity, expected, dirs, mortality)?
            };
            taken += removed;
            expected = left;
            self.shared.read(|core| core.stats.estimated_blocks = left);
            if left < capacity.trigger || removed == 0 {
                break;
            }
        }
        let trigger = capacity.trigger;
        let text =
            format!("collection: {taken} blocks removed, {expected} left; it begins at {trigger}");
        let level = if expected < trigger { Level::Info } else { Level::Warn };
        log::emit(level, if expected < trigger { "KV4001" } else { "KV4005" }, &text);
        Ok(())
    }

    /// A round over the whole store: what is left, and how many went.
    fn precise_round(
        &mut self,
        capacity: Capacity,
        expected: u64,
        dirs: &[String],
        mortality: &Arc<Mortality>,
    ) -> Result<(u64, u64), Ended> {
        let collection = &self.settings.collection;
        let most = capacity.candidates(expected, collection.extra).clamp(1, CANDIDATES_MAX);
        let each = collection.each_directory.min(most);
        let mut coldest = Coldest::new(most);
        let (mut blocks, mut foreign) = (0, 0);
        for part in dirs.chunks(DIRECTORIES) {
            for (_, found) in self.survey(part, Want { coldest: each, dead: false }, mortality)? {
                blocks += found.blocks;
                foreign += found.foreign;
                coldest.merge(found.coldest);
            }
        }
        self.shared.read(|core| core.stats.foreign_names = foreign);
        let removed = self.remove_coldest(
            &coldest.into_sorted(),
            capacity.surplus(blocks),
            mortality.storage_now_ns,
        )?;
        Ok((blocks.saturating_sub(removed), removed))
    }

    /// A round that takes its share of each directory, and remembers nothing of the others.
    fn plain_round(
        &mut self,
        capacity: Capacity,
        expected: u64,
        dirs: &[String],
        mortality: &Arc<Mortality>,
    ) -> Result<(u64, u64), Ended> {
        let each = self.settings.collection.each_directory;
        let (mut blocks, mut removed) = (0, 0);
        for part in dirs.chunks(DIRECTORIES) {
            for (_, found) in self.survey(part, Want { coldest: each, dead: false }, mortality)? {
                blocks += found.blocks;
                let share = capacity.share(found.blocks);
                if expected.saturating_sub(removed) >= capacity.trigger {
                    let (coldest, now_ns) = (found.coldest.into_sorted(), mortality.storage_now_ns);
                    removed += self.remove_coldest(&coldest, share, now_ns)?;
                }
            }
        }
        Ok((blocks.saturating_sub(removed), removed))
    }

    /// Removes `goal` of the candidates, the oldest first; one that is in use again is replaced by
    /// the next.
    fn remove_coldest(
        &mut self,
        candidates: &[Candidate],
        goal: u64,
        now_ns: i64,
    ) -> Result<u64, Ended> {
        // A time in the future was taken for now, and tells nothing about use since then.
        let seen = |mtime_ns: i64| if mtime_ns >= now_ns { i64::MAX } else { mtime_ns };
        let (mut at, mut done) = (0, 0);
        while done < goal && at < candidates.len() {
            let most = usize::try_from(goal - done).unwrap_or(BATCH).min(BATCH);
            let batch = &candidates[at..candidates.len().min(at + most)];
            at += batch.len();
            let chores = batch.iter().map(|one| Chore::RemoveCold {
                block: BlockId(one.block),
                mtime_ns: seen(one.mtime_ns),
            });
            let Removed { removed, gone } = self.remove(chores.collect(), Kind::Cold)?;
            done += removed + gone;
        }
        Ok(done)
    }

    /// One batch of removals, under a lease that was just looked at.
    fn remove(&mut self, chores: Vec<Chore>, kind: Kind) -> Result<Removed, Ended> {
        debug_assert!(chores.len() <= BATCH);
        self.check_lease()?;
        let answers = self.all(chores, self.settings.file_limit)?;
        let mut result = Removed::default();
        let mut unhealthy: Option<Error> = None;
        for answer in answers {
            match answer {
                Ok(Answer::Done(Done::Unit)) => result.removed += 1,
                Ok(_) => {}
                Err(error) if error.status == Status::NotFound => result.gone += 1,
                Err(error) if error.status == Status::OsError => {}
                Err(error) => unhealthy = Some(error),
            }
        }
        self.shared.read(|core| match kind {
            Kind::Cold => core.stats.collected_blocks += result.removed,
            Kind::Temporary => core.stats.swept_temporaries += result.removed,
            Kind::Quarantined => core.stats.expired_quarantine += result.removed,
        });
        unhealthy.map_or(Ok(result), |error| Err(Ended::of(error)))
    }
}
