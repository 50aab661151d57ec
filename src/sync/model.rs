//! `loom`'s primitives in the clothes of those that the library uses otherwise.
//!
//! A wait with a limit is one without: where a model needs the limit to end, a wake was lost.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

pub use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering, fence};
/// What a thread parks on. Loom's own `park` forgets an `unpark` that comes before it.
#[derive(Debug, Default)]
struct Token {
    set: Mutex<bool>,
    changed: Condvar,
}

loom::thread_local! {
    static TOKEN: Arc<Token> = Arc::default();
}

/// As `std::thread::Thread`.
#[derive(Debug)]
pub struct Thread(Arc<Token>);

impl Thread {
    /// Ends the thread's next park, or the one that it is in.
    pub fn unpark(&self) {
        *self.0.set.lock() = true;
        self.0.changed.notify_one();
    }
}

/// The calling thread.
pub fn current() -> Thread {
    Thread(TOKEN.with(Arc::clone))
}

/// As `std::thread::park`, without its empty wakes.
pub fn park() {
    let token = current().0;
    let mut set = token.set.lock();
    while !*set {
        token.changed.wait(&mut set);
    }
    *set = false;
}

/// As `std::thread::park_timeout`, without the limit.
pub fn park_timeout(_limit: Duration) {
    park();
}

/// As `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// As `parking_lot::MutexGuard`. Empty only while its thread waits.
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// Guards `value`.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    /// Locks.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

/// As `parking_lot::Condvar`.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    /// One that nobody waits for.
    pub fn new() -> Condvar {
        Condvar::default()
    }

    /// Waits to be told.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(inner).unwrap());
    }

    /// Waits to be told.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _limit: Duration) {
        self.wait(guard);
    }

    /// Tells one of those that wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}
