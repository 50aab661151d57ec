//! Which engine a store runs, and why (R1 `posix_io_engine`, R92).

use std::sync::Arc;

use super::aio::{AioEngine, Workers};
use super::psync::PsyncEngine;
use super::uring::{self, UringEngine};
use super::{Engine, EngineKind, EngineParams, Source};
use crate::config::EngineChoice;
use crate::error::{Error, Status};

/// An engine that this system has, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The engine.
    pub kind: EngineKind,
    /// For the log and the statistics.
    pub reason: String,
}

/// What a choice depends on.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// `posix_io_engine`.
    pub engine: EngineChoice,
    /// `io_direct`: without it Linux AIO gains nothing.
    pub direct: bool,
    /// Most transfers in flight on one backend.
    pub transfers: usize,
}

/// Chooses. `auto` takes `io_uring` where the kernel gives it, else Linux AIO where transfers are
/// direct, else psync.
///
/// # Errors
/// `Unsupported`, with cause and remedy, where the engine asked for by name cannot be had.
pub fn choose(wish: Wish) -> Result<Choice, Error> {
    let named = |kind| Ok(Choice { kind, reason: "posix_io_engine".into() });
    match wish.engine {
        EngineChoice::Psync => named(EngineKind::Psync),
        EngineChoice::IoUring => match uring::check() {
            Ok(()) => named(EngineKind::IoUring),
            Err(refusal) => {
                let text = format!("posix_io_engine \"io_uring\": {refusal}");
                Err(Error::new(Status::Unsupported, text))
            }
        },
        EngineChoice::Aio => {
            AioEngine::check(wish.transfers)?;
            named(EngineKind::Aio)
        }
        EngineChoice::Auto => Ok(match uring::check() {
            Ok(()) => Choice {
                kind: EngineKind::IoUring,
                reason: "auto: the kernel gives io_uring".into(),
            },
            Err(refusal) => without_ring(wish, &refusal.to_string()),
        }),
    }
}

fn without_ring(wish: Wish, refusal: &str) -> Choice {
    let because = format!("auto: no io_uring here: {refusal}");
    if !wish.direct {
        let reason = format!("{because}; and io_direct is off");
        return Choice { kind: EngineKind::Psync, reason };
    }
    match AioEngine::check(wish.transfers) {
        Ok(()) => Choice { kind: EngineKind::Aio, reason: because },
        Err(error) => {
            Choice { kind: EngineKind::Psync, reason: format!("{because}; and no aio: {error}") }
        }
    }
}

/// Makes an engine of a kind that was chosen.
#[must_use]
pub fn make(
    kind: EngineKind,
    workers: Workers,
    params: EngineParams,
    source: Arc<dyn Source>,
) -> Arc<dyn Engine> {
    match kind {
        EngineKind::IoUring => UringEngine::build(params, source),
        EngineKind::Aio => AioEngine::build(params, workers, source),
        EngineKind::Psync => PsyncEngine::new(params, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r92_a_choice_has_a_reason_and_a_missing_engine_a_text() {
        let wish = |engine| Wish { engine, direct: true, transfers: 128 };
        let auto = choose(wish(EngineChoice::Auto)).unwrap();
        assert!(auto.reason.starts_with("auto: "), "{}", auto.reason);
        assert_eq!(choose(wish(EngineChoice::Psync)).unwrap().kind, EngineKind::Psync);
        match choose(wish(EngineChoice::Aio)) {
            Ok(choice) => assert_eq!(choice.kind, EngineKind::Aio),
            Err(refused) => assert!(refused.text.contains("aio"), "{}", refused.text),
        }
        let buffered = Wish { engine: EngineChoice::Auto, direct: false, transfers: 1 };
        let choice = without_ring(buffered, "seccomp");
        assert_eq!(choice.kind, EngineKind::Psync);
        assert!(choice.reason.contains("seccomp") && choice.reason.contains("io_direct"));
        match choose(wish(EngineChoice::IoUring)) {
            Ok(choice) => assert_eq!(choice.kind, EngineKind::IoUring),
            Err(refused) => assert!(refused.text.contains("io_uring"), "{}", refused.text),
        }
    }
}
