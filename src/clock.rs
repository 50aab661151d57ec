//! Time as the store sees it: nanoseconds since the clock was made.
//!
//! The only place that reads the system's monotonic clock. Everything that decides by time takes
//! `now: Time` as an argument, so a test moves a manual clock instead of sleeping. It is not
//! wall-clock time; ages of files use the storage's own clock (R46, R83).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A moment: the time since the clock was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub Duration);

impl Time {
    /// The moment at which the clock was made.
    pub const ZERO: Time = Time(Duration::ZERO);

    /// This moment moved later by `by`; saturates, so "never" is `Time(Duration::MAX)`.
    #[must_use]
    pub fn plus(self, by: Duration) -> Time {
        Time(self.0.saturating_add(by))
    }

    /// How much later this moment is than `earlier`; zero where it is not later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where `now` comes from. Cheap to clone; clones show the same time.
#[derive(Debug, Clone)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`, from the instant held here.
    Monotonic(Instant),
    /// A clock that moves only when told to, in nanoseconds.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The real clock, starting now.
    #[must_use]
    pub fn monotonic() -> Clock {
        Clock::Monotonic(Instant::now())
    }

    /// A clock for tests that stands at zero until [`Clock::advance`].
    #[must_use]
    pub fn manual() -> Clock {
        Clock::Manual(Arc::new(AtomicU64::new(0)))
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Time {
        match self {
            Clock::Monotonic(start) => Time(start.elapsed()),
            Clock::Manual(nanos) => Time(Duration::from_nanos(nanos.load(Ordering::SeqCst))),
        }
    }

    /// Moves a manual clock; the real one moves by itself and ignores this.
    pub fn advance(&self, by: Duration) {
        if let Clock::Manual(nanos) = self {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            nanos.fetch_add(by, Ordering::SeqCst);
        }
    }
}
