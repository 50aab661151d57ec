//! Floor 4: C outside, Rust inside. Every exported function is one `guard(|| …)` around checks and
//! one call down; no panic passes, no pointer is kept, and outputs are written on success only,
//! unless a function's text says otherwise.

pub mod block;
#[cfg(feature = "fault")]
pub mod fault;
pub mod guard;
pub mod handle;
pub mod observe;
pub mod status;
pub mod store;
pub mod table;
pub mod task;
pub mod types;
