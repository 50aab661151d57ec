//! Closing a store (R54): in which order its threads end, and what is left where some hang.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::open::Threads;
use super::shared::Shared;
use super::submit;
use crate::clock::{Clock, Time};
use crate::config::Config;
use crate::error::{Error, Status};
use crate::log::{self, Level};

/// The log's thread gets this long to end where the limit has passed already.
const LOG_PATIENCE: Duration = Duration::from_millis(100);

/// What is left of a limit; `None` stays `None`.
fn left(clock: &Clock, deadline: Option<Time>) -> Option<Duration> {
    deadline.map(|deadline| deadline.since(clock.now()))
}

/// Ends the log's thread, if nobody else needs it. A stderr that nobody reads may keep it for ever,
/// and is not waited for beyond the limit. A callback that runs is: what it uses may be freed when
/// close has returned (R91). Says whether the thread has ended.
fn end_log(lease: log::Lease, limit: Option<Duration>) -> bool {
    match limit {
        Some(left) if !log::has_callback() => lease.end_within(left.max(LOG_PATIENCE)),
        Some(_) | None => {
            drop(lease);
            true
        }
    }
}

impl Threads {
    /// Closes a store (R54) that has begun to ([`Core::begin_close`]). Consumes the threads: what
    /// hangs after the limit is detached and harmless.
    pub fn close(self, shared: &Arc<Shared>, config: &Config) -> Result<(), Error> {
        let clock = shared.clock.clone();
        let limit = config.close_timeout_ms;
        let deadline = (limit > 0).then(|| clock.now().plus(Duration::from_millis(limit)));
        self.collector.close(shared, left(&clock, deadline));
        shared.with(Core::end_collecting);
        self.monitor.stop();
        let mut quiet = shared.wait_quiet(left(&clock, deadline), Core::is_quiet);
        if quiet {
            shared.with(Core::drop_all_blocks);
            quiet = shared.wait_quiet(left(&clock, deadline), Core::is_quiet);
        }
        // A creation that outlived its chain may still make a temporary, which then goes too. A
        // part of the limit is left for threads to end.
        let patience = left(&clock, deadline).map(|left| left - left / 4);
        if quiet && shared.wait_quiet(patience, Core::creates_nothing) {
            shared.with(Core::discard_leftovers);
            quiet = shared.wait_quiet(left(&clock, deadline), Core::is_quiet);
        }
        if !quiet {
            shared.with(|core, now, fx| core.terminate_all(&submit::closed(), now, fx));
        }
        for engine in shared.engines() {
            engine.stop();
        }
        let mut hanging = self.collector.join(left(&clock, deadline));
        for engine in shared.engines() {
            if !engine.join(left(&clock, deadline)) {
                hanging += engine.threads();
            }
        }
        if let Some(breaker) = &self.breaker {
            hanging += breaker.join(left(&clock, deadline));
        }
        hanging += self.monitor.join(left(&clock, deadline));
        self.supervisor.stop();
        shared.forget_recovery();
        let result = if hanging == 0 {
            Ok(())
        } else {
            let text = format!(
                "close: {hanging} threads hang in the kernel after close_timeout_ms ({limit} ms); \
                 they are detached"
            );
            log::emit(Level::Error, "KV1004", &text);
            Err(Error::new(Status::Timeout, text))
        };
        log::emit(Level::Info, "KV1008", "closed");
        drop(self.alive);
        if end_log(self.lease, left(&clock, deadline)) {
            return result;
        }
        let text =
            format!("close: stderr took no lines of the log in close_timeout_ms ({limit} ms)");
        result.and(Err(Error::new(Status::Timeout, text)))
    }
}
