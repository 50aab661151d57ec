//! Keeping within the space, the deciding half (R80–R83, R86): how many blocks are too many, which
//! are the coldest, who may collect. Pure arithmetic on names, counts and times.
//!
//! What lists, removes and waits is `store/collector`.

pub mod capacity;
pub mod coldest;
pub mod lease;
pub mod names;
pub mod sample;
