//! kvpath: KV-cache blocks as files, reached through several mount paths ("backends") that may fail
//! or hang.
//!
//! This page is the architecture. What the store promises to its callers stands in
//! `include/kvpath.h` and in the README; the numbers in comments (R28) are the rules of the
//! specification that the code serves.
//!
//! # Four floors, and health beside them
//!
//! ```text
//! ffi/      floor 4  C outside, Rust inside: one guard, one table of handles, no panic passes
//! store/    floor 3  what a block store means: tasks, chains, commits, lookups, routing
//! engine/   floor 2  how bytes move: one trait, one instance a backend
//! posix/    floor 1  system calls and nothing else
//! health/   beside   windows (pure), probes, recovery, the outer breaker, start-up checks
//! reclaim/  beside   which blocks are the coldest, who may collect (all pure)
//! config, error, clock, stats, log, sync      for everyone
//! ```
//!
//! Calls go down only: `ffi → store → engine → posix`, `store → health → posix`, `store → reclaim`.
//! An engine knows no health, `ffi` names no engine, `store` names no system call.
//! `tests/tidy.rs` checks this.
//!
//! # How a load or a dump goes
//!
//! 1. `ffi/task.rs` copies the caller's list; `store/plan.rs` joins adjacent shards into transfers
//!    (R38).
//! 2. `store/submit.rs` makes a *chain* of each transfer; `store/flow.rs` routes it: hash,
//!    availability mask, what was tried (R14–R18). It stands in the queue of a lane.
//! 3. The lane's engine *pulls* it when it can start it: only then its time runs (R28). Pulling and
//!    completing are the two calls between floors 2 and 3 ([`engine::Source`]).
//! 4. Each outcome means one of: go on with the next step of the same attempt, success, not found,
//!    failure (`store/step.rs`, `store/commit.rs`). A failure goes into the backend's window and
//!    the chain on to the next candidate (`store/outcome.rs`, R20–R22, R27).
//! 5. The last position of a task that ends wakes who waits for it.
//!
//! # Who owns what
//!
//! * **The core** (`store/core.rs`) owns every table and takes every decision, behind one lock. It
//!   is pure: inputs and `now` in, [`store`]'s `Effects` out, which are carried out after the lock
//!   was let go. It touches no clock, no thread and no file, so `store/sim` runs it on a manual
//!   clock against a model storage with random faults.
//! * **An engine** owns its threads, its buffers and, until the kernel lets go of them, the ops
//!   that it pulled. An attempt that is given up loses its task, not its memory.
//! * **A [`engine::Gate`]** guards the caller's memory of one attempt: a worker is inside while it
//!   copies; whoever ends the attempt revokes the gate, and nobody enters afterwards (R30). In
//!   `borrowed` mode the worker is inside for the whole op, so the end waits for the kernel (R32).
//! * **The supervisor** (`store/supervisor.rs`) judges limits and makes threads. It never touches
//!   the file system, so it can always judge. It sleeps without waking while there is nothing to
//!   judge.
//! * **Chores** (`store/hotness.rs`, `store/space.rs`, sweeps) are chains as any other, in the one
//!   slot of a lane that is for what can wait. Hits are collected into lists, so that they cost
//!   their loads neither a call nor a wake-up; nothing is armed while nothing is hot.
//! * **The collector** (`store/collector`) keeps the store within its space and sweeps (R80–R86).
//!   Its thread lives as long as a pass, and waits for *chores*: single steps that go through the
//!   core and the lanes as all other work does. What goes is chosen in `reclaim`.
//! * **A block in progress** is a *generation* of one temporary file (`store/blocks.rs`). A
//!   generation whose chain ended with a create or write still in the kernel is closed: bytes may
//!   still arrive in it, so it is never committed (R5). One that was only created there, perhaps,
//!   gets another name instead (`store/generations.rs`).
//! * **Clients that remember** a file as it was before other paths wrote into it are made to look
//!   anew: before the block has its name (`store/detour.rs`), or for a load
//!   (`store/suspects.rs`).
//!
//! # Threads
//!
//! `ucm_posix_sup` (supervisor) · `ucm_posix_<lane>_<n>` (workers, made when needed, gone when
//! idle) · `ucm_health_pmon` (recovery) · `ucm_health_io` (probes) · `ucm_health_mon` (outer
//! breaker) · `ucm_posix_log` (delivers the log) · `ucm_posix_open` (checks the backends, while a
//! store is opened) · `ucm_posix_gc` (a pass of the collector, as long as it lasts).

pub mod clock;
pub mod config;
pub mod engine;
pub mod error;
pub mod ffi;
pub mod health;
pub mod log;
pub mod posix;
pub mod reclaim;
pub mod stats;
pub mod store;
mod sync;
#[cfg(test)]
mod tests;
