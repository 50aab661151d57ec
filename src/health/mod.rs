//! Beside the floors: the health of paths. Business outcomes exclude a backend (`window`, `state`,
//! `table`, `class`: pure), probes bring it back (`probe`, `recovery`, `executor`), start-up checks
//! decide what may be published at all (`startup`, `marker`), and `breaker` guards callers without a
//! pipeline.
//!
//! Nothing here routes, retries business I/O or knows blocks beyond their 16 bytes.

pub mod breaker;
pub mod class;
pub mod executor;
pub mod marker;
#[cfg(test)]
mod model;
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
pub mod window;
