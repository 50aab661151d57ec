//! What threads share without a lock, and some locks, under names that a model checker can take
//! over: with `--cfg loom` they are `loom`'s, which tries every order in which threads can meet
//! (`make loom`). Only what is model-checked uses them.

#[cfg(loom)]
pub use self::model::*;
#[cfg(not(loom))]
pub use self::real::*;

#[cfg(not(loom))]
mod real {
    pub use parking_lot::{Condvar, Mutex};
    pub use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering, fence};
    pub use std::thread::{Thread, current, park, park_timeout};
}

#[cfg(loom)]
#[path = "sync/model.rs"]
mod model;
