//! How many transfers a lane runs at once with blocking calls: as many as it is allowed, but on a
//! local file system no more than are any use.
//!
//! A device of this host is busy with a few. More of them gain nothing there, and cost a sleep and
//! a wake for each block, since every worker has a block and none is left for whoever is done. A
//! worker that finds the next one waiting does not sleep. A server may answer many at once, so any
//! other file system gets all.

use std::ffi::CStr;
use std::sync::{Arc, OnceLock, Weak};

use crate::clock::Time;
use crate::engine::EngineParams;
use crate::engine::habits::{Habits, Kind};
use crate::engine::pool::Pool;

/// What keeps a device of this host busy.
const DEVICE_TRANSFERS: usize = 16;
/// Copies from memory to memory, beyond which the processors' caches are what is fought for.
const MEMORY_TRANSFERS: usize = 16;

/// See the module's text. Shared by the engine and its workers.
pub(super) struct Most {
    transfers: usize,
    metadata: usize,
    habits: Habits,
    pool: OnceLock<Weak<Pool>>,
}

impl Most {
    /// As many as the lane is allowed.
    pub(super) fn new(params: &EngineParams) -> Most {
        Most {
            transfers: params.transfers,
            metadata: params.metadata,
            habits: Habits::new(),
            pool: OnceLock::new(),
        }
    }

    /// Gives the pool. Called once.
    pub(super) fn set_pool(&self, pool: &Arc<Pool>) {
        if self.pool.set(Arc::downgrade(pool)).is_err() {
            debug_assert!(false, "the pool is made once");
        }
    }

    /// A transfer has moved the bytes of this file: looks what it is on, if that is due. Says
    /// whether it is local. May hang as any call on a path.
    pub(super) fn learn(&self, path: &CStr, now: Time) -> bool {
        if let Some(kind) = self.habits.learn(path, now) {
            self.allow(kind);
        }
        self.habits.kind().is_local()
    }

    /// An op was given up: what is mounted there may be something else by now.
    pub(super) fn forget(&self) {
        self.habits.forget();
        self.allow(Kind::Unknown);
    }

    fn allow(&self, kind: Kind) {
        if let Some(pool) = self.pool.get().and_then(Weak::upgrade) {
            pool.set_limits(most(kind, self.transfers), self.metadata);
        }
    }
}

fn most(kind: Kind, transfers: usize) -> usize {
    match kind {
        Kind::Unknown | Kind::Remote => transfers,
        Kind::Extent | Kind::Local => transfers.min(DEVICE_TRANSFERS),
        Kind::Memory => {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            transfers.min(cores.clamp(2, MEMORY_TRANSFERS))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_local_gets_less_than_it_is_allowed() {
        for kind in [Kind::Unknown, Kind::Remote] {
            assert_eq!(most(kind, 128), 128);
        }
        assert_eq!((most(Kind::Extent, 128), most(Kind::Local, 4)), (DEVICE_TRANSFERS, 4));
        assert!((2..=MEMORY_TRANSFERS).contains(&most(Kind::Memory, 128)));
        assert_eq!(most(Kind::Memory, 1), 1);
    }
}
