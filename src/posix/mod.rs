//! Floor 1: system calls and nothing else. Every function names the step it failed at; EINTR is
//! continued here. Nothing here decides, retries otherwise, or keeps state.

pub mod affinity;
pub mod aligned;
pub mod eventfd;
pub mod file;
pub mod fork;
pub mod linux_aio;
pub mod listing;
pub mod medium;
pub mod process;
pub mod random;
pub mod space;
pub mod thread;
