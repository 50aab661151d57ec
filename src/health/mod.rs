//! Beside the floors: the health of paths. Business outcomes exclude a backend (`window`, `state`,
//! `table`, `class`: pure), probes bring it back (`probe`, `recovery`, `executor`), start-up checks
//! decide what may be published at all (`startup`, `marker`), and `breaker` guards callers without
//! a pipeline.
//!
//! Nothing here routes, retries business I/O or knows blocks beyond their 16 bytes.

pub mod breaker;
#[cfg(test)]
mod breaker_tests;
pub mod class;
#[cfg(test)]
mod class_tests;
pub mod executor;
pub mod marker;
#[cfg(test)]
mod model;
#[cfg(test)]
mod observe;
pub mod probe;
#[cfg(test)]
mod probe_tests;
pub mod recovery;
#[cfg(test)]
mod scratch;
pub mod startup;
#[cfg(test)]
mod startup_tests;
pub mod state;
pub mod storage;
pub mod table;
#[cfg(test)]
mod thread_tests;
pub mod window;
