//! kvpath: KV-cache blocks as files, over several mount paths that may fail or hang.
//! (The architecture page; written with the house.)

pub mod clock;
pub mod config;
pub mod engine;
pub mod error;
pub mod ffi;
pub mod health;
pub mod log;
pub mod posix;
pub mod stats;
pub mod store;
#[cfg(test)]
mod tests;
