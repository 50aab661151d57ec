//! Beside the floors: the health of paths. Business outcomes exclude a backend (`window`, `state`,
//! `table`, `class`: pure), probes bring it back (`probe`, `recovery`, `executor`), start-up checks
//! decide what may be published at all (`startup`, `marker`), and `breaker` guards callers without a
//! pipeline.
//!
//! Nothing here routes, retries business I/O or knows blocks beyond their 16 bytes.

pub mod class;
#[cfg(test)]
mod model;
pub mod state;
pub mod table;
pub mod window;
