//! The start-up check (R8, R10–R13): what must hold before a store is published, and in which
//! order.
//!
//! Runs on a thread of the library that may hang; the limit of the whole is the caller's, who
//! raises [`StartupParams::cancel`] and leaves. Nothing is written through a backend before those
//! before it have passed, where the policy wants all of them. The steps themselves are in
//! `storage`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::executor::{Executor, NoResult, StopSignal};
use super::marker::{NAME, Uuid};
use super::recovery::timed_out;
use super::storage::{self, Halt, Listing, Seen};
pub use super::storage::{CheckFailure, Checked, RootId};
use crate::config::{CommitSync, Config};
use crate::error::{Error, Status};

/// Directories made in one step, so that a limit is not held against their number.
const DIRECTORIES_A_STEP: usize = 64;

/// What to check, and how.
#[derive(Debug, Clone)]
pub struct StartupParams {
    /// The roots in order, each with its trailing `/`.
    pub roots: Vec<String>,
    /// Digits of a data directory.
    pub data_dir_shard_bytes: usize,
    /// Mode of data directories (R9).
    pub dir_mode: u32,
    /// Mode of files, less the umask (R9).
    pub file_mode: u32,
    /// `io_direct`.
    pub direct: bool,
    /// `io_direct_fallback` (R33).
    pub direct_fallback: bool,
    /// `commit_sync` is `full`: the names of the `dir`s must survive a power loss, too.
    pub sync_names: bool,
    /// `create_storage` (R8).
    pub create_storage: bool,
    /// `require_same_storage` (R8).
    pub require_same_storage: bool,
    /// The identity of this open store, for names of temporaries.
    pub writer: String,
    /// Raised by a caller who waits no longer; looked at between steps.
    pub cancel: Arc<AtomicBool>,
}

impl StartupParams {
    /// What `config` says.
    #[must_use]
    pub fn new(config: &Config, writer: String, cancel: Arc<AtomicBool>) -> StartupParams {
        StartupParams {
            roots: config.backends.clone(),
            data_dir_shard_bytes: config.data_dir_shard_bytes,
            dir_mode: config.dir_mode,
            file_mode: config.file_mode,
            direct: config.io_direct,
            direct_fallback: config.io_direct_fallback,
            sync_names: config.commit_sync == CommitSync::Full,
            create_storage: config.create_storage,
            require_same_storage: config.require_same_storage,
            writer,
            cancel,
        }
    }
}

/// What start-up has found.
#[derive(Debug)]
pub struct StartupReport {
    /// The backends in order. An error only where one passing backend is enough (R13).
    pub backends: Vec<Result<Checked, CheckFailure>>,
    /// All that passed show the same storage.
    pub same_storage: bool,
    /// Texts for the log.
    pub warnings: Vec<String>,
}

/// How far a failing backend goes.
pub enum Policy<'a> {
    /// The first failure ends the open (R10).
    All,
    /// One passing backend is enough; each step of one backend under a limit (R13).
    Any {
        /// Runs the steps; afterwards it holds those that hang.
        executor: &'a mut Executor,
        /// Of each step.
        limit: Duration,
    },
}

/// Checks all backends in order. The caller logs the warnings, or the error.
///
/// # Errors
/// What ends the open, as its caller gets it.
pub fn check_all(params: &Arc<StartupParams>, policy: Policy<'_>) -> Result<StartupReport, Error> {
    let (_keep, stop) = crossbeam_channel::bounded(0);
    let mut run = Run { params, policy, stop, seen: Vec::new(), warnings: Vec::new() };
    run.look()?;
    let storage = run.storage()?;
    let backends = run.check(storage)?;
    let uuid = |checked: &Checked| checked.probed.marker.uuid;
    let passed: HashSet<Uuid> = backends.iter().flatten().map(uuid).collect();
    Ok(StartupReport { backends, same_storage: passed.len() == 1, warnings: run.warnings })
}

/// One start-up check under way.
struct Run<'a> {
    params: &'a Arc<StartupParams>,
    policy: Policy<'a>,
    stop: StopSignal,
    /// What each root showed, or why it is out.
    seen: Vec<Result<Seen, CheckFailure>>,
    warnings: Vec<String>,
}

impl Run<'_> {
    /// (1) Reads each root's marker in order.
    fn look(&mut self) -> Result<(), Error> {
        for index in 0..self.params.roots.len() {
            let seen = self.step(index, move |params, halt| storage::look(params, index, halt))?;
            if let Ok(Seen { marker: Some(marker), .. }) = &seen {
                let (has, wants) = (marker.data_dir_shard_bytes, self.params.data_dir_shard_bytes);
                if has != wants {
                    return Err(Error::invalid(format!(
                        "data_dir_shard_bytes is {wants}, but the storage at {} was made \
                         with {has}",
                        self.params.roots[index]
                    )));
                }
            }
            self.seen.push(seen);
        }
        self.any_left()
    }

    /// Which storage this is: the first that is shown, or (2) one that is made.
    fn storage(&mut self) -> Result<Uuid, Error> {
        let params = self.params;
        let shown: Vec<(&str, Uuid)> = std::iter::zip(&params.roots, &self.seen)
            .filter_map(|(root, seen)| Some((root.as_str(), seen.as_ref().ok()?.marker?.uuid)))
            .collect();
        let Some((_, first)) = shown.first().copied() else { return self.make_storage() };
        if shown.iter().any(|(_, uuid)| *uuid != first) {
            let list: Vec<String> =
                shown.iter().map(|(root, uuid)| format!("{root} shows {uuid}")).collect();
            let text = format!("the backends show different storages: {}", list.join(", "));
            if params.require_same_storage {
                let text = format!("{text}; require_same_storage is true");
                return Err(Error::new(Status::StoreUnhealthy, text));
            }
            self.warnings.push(text);
        }
        Ok(first)
    }

    fn make_storage(&mut self) -> Result<Uuid, Error> {
        let params = self.params;
        if !params.create_storage {
            let text = format!(
                "no backend shows a storage (a marker {NAME} in the root), and create_storage is \
                 false: {}",
                params.roots.join(", ")
            );
            return Err(Error::new(Status::StoreUnhealthy, text));
        }
        for index in 0..params.roots.len() {
            if self.seen[index].is_err() {
                continue;
            }
            match self.step(index, move |params, halt| storage::make(params, index, halt))? {
                Ok(marker) => {
                    self.warn_of_unread(index);
                    return Ok(marker.uuid);
                }
                Err(failed) => self.seen[index] = Err(failed),
            }
        }
        self.any_left()?;
        Err(Error::new(Status::StoreUnhealthy, "no backend could make the storage"))
    }

    fn warn_of_unread(&mut self, maker: usize) {
        let unread: Vec<&str> = std::iter::zip(&self.params.roots, &self.seen)
            .filter(|(_, seen)| seen.is_err())
            .map(|(root, _)| root.as_str())
            .collect();
        if !unread.is_empty() {
            self.warnings.push(format!(
                "a new storage was made through {}, though these backends could not be asked for \
                 one: {}",
                self.params.roots[maker],
                unread.join(", ")
            ));
        }
    }

    /// (3) Makes the `dir`s, once a storage, and (4) checks each backend in order.
    fn check(&mut self, storage: Uuid) -> Result<Vec<Result<Checked, CheckFailure>>, Error> {
        let mut made = HashSet::new();
        let mut backends = Vec::new();
        for index in 0..self.params.roots.len() {
            let checked = match self.seen[index].clone() {
                Ok(seen) => self.check_one(index, seen, storage, &mut made)?,
                Err(failed) => Err(failed),
            };
            self.seen[index] = checked
                .clone()
                .map(|checked| Seen { root: checked.root, marker: Some(checked.probed.marker) });
            backends.push(checked);
        }
        self.any_left()?;
        for (index, failed) in backends.iter().enumerate() {
            if let Err(failed) = failed {
                let text = failed.text(&self.params.roots[index], index, backends.len());
                self.warnings.push(format!("excluded at open: {text}"));
            }
        }
        Ok(backends)
    }

    fn check_one(
        &mut self,
        index: usize,
        seen: Seen,
        storage: Uuid,
        made: &mut HashSet<Uuid>,
    ) -> Result<Result<Checked, CheckFailure>, Error> {
        let expected = seen.marker.map_or(storage, |marker| marker.uuid);
        let mut listed = None;
        if !made.contains(&expected) {
            match self.make_directories(index, expected)? {
                Ok(complete) => listed = complete,
                Err(failed) => return Ok(Err(failed)),
            }
            made.insert(expected);
        }
        let checked = self.step(index, move |params, halt| {
            storage::check_one(params, index, expected, listed, halt)
        })?;
        if checked.as_ref().is_ok_and(|checked| self.params.direct && !checked.probed.direct) {
            self.warnings.push(format!(
                "backend {}: the file system refuses O_DIRECT; it runs buffered \
                 (io_direct_fallback)",
                self.params.roots[index]
            ));
        }
        Ok(checked)
    }

    /// Makes the `dir`s that are missing. Gives the listing where none was.
    fn make_directories(
        &mut self,
        index: usize,
        expected: Uuid,
    ) -> Result<Result<Option<Listing>, CheckFailure>, Error> {
        let missing = self.step(index, move |params, halt| {
            storage::missing_directories(params, index, expected, halt)
        })?;
        let (missing, listed) = match missing {
            Ok(found) => found,
            Err(failed) => return Ok(Err(failed)),
        };
        for part in missing.chunks(DIRECTORIES_A_STEP) {
            let part = part.to_vec();
            let done = self.step(index, move |params, halt| {
                storage::make_directories(params, index, &part, halt)
            })?;
            if let Err(failed) = done {
                return Ok(Err(failed));
            }
        }
        if self.params.sync_names {
            // Not only where some were made: whoever made the others may not have synced them.
            let synced = self.step(index, move |params, _| storage::sync_names(params, index))?;
            return Ok(synced.map(|()| listed));
        }
        Ok(Ok(listed))
    }

    /// Runs one step on one backend. The outer error ends the open, the inner one this backend.
    fn step<R: Send + 'static>(
        &mut self,
        index: usize,
        job: impl FnOnce(&StartupParams, &Halt) -> Result<R, CheckFailure> + Send + 'static,
    ) -> Result<Result<R, CheckFailure>, Error> {
        let given_up = Arc::new(AtomicBool::new(false));
        let halt = Halt { cancel: Arc::clone(&self.params.cancel), given_up: given_up.clone() };
        self.cancelled()?;
        let result = match &mut self.policy {
            Policy::All => job(self.params, &halt),
            Policy::Any { executor, limit } => {
                let params = Arc::clone(self.params);
                match executor.run(index, *limit, &self.stop, move || job(&params, &halt)) {
                    Ok(result) => result,
                    Err(NoResult::TimedOut | NoResult::Stopped) => {
                        given_up.store(true, Ordering::Relaxed);
                        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                        Err(CheckFailure::new(timed_out(limit_ms), ""))
                    }
                    Err(NoResult::NoThread(error)) => {
                        let text = format!("no thread for the start-up check: {error}");
                        return Err(Error::new(Status::OsError, text));
                    }
                    Err(NoResult::Died) => {
                        let text = "the start-up check ended without a result";
                        return Err(Error::new(Status::Error, text));
                    }
                }
            }
        };
        self.cancelled()?;
        match (result, &self.policy) {
            (Err(failed), Policy::All) => {
                let count = self.params.roots.len();
                let text = failed.text(&self.params.roots[index], index, count);
                Err(Error::new(Status::StoreUnhealthy, text))
            }
            (result, _) => Ok(result),
        }
    }

    fn cancelled(&self) -> Result<(), Error> {
        if self.params.cancel.load(Ordering::Relaxed) {
            let text = "the start-up check was ended from outside (open_timeout_ms)";
            return Err(Error::new(Status::Timeout, text));
        }
        Ok(())
    }

    /// Ends the open where no backend is left (R13).
    fn any_left(&self) -> Result<(), Error> {
        if self.seen.iter().any(Result::is_ok) {
            return Ok(());
        }
        let count = self.seen.len();
        let text = |(index, seen): (usize, &Result<Seen, CheckFailure>)| {
            let failed = seen.as_ref().err()?;
            Some(failed.text(&self.params.roots[index], index, count))
        };
        let reasons: Vec<String> = self.seen.iter().enumerate().filter_map(text).collect();
        let text = format!("no backend passed its start-up check: {}", reasons.join("; "));
        Err(Error::new(Status::StoreUnhealthy, text))
    }
}
