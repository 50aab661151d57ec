//! Which engine a store runs, and why (R1 `posix_io_engine`, R92).

use std::sync::Arc;

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

/// Chooses. `auto` takes `io_uring` where the kernel gives it, else psync.
///
/// # Errors
/// `Unsupported`, with cause and remedy, where the engine asked for by name cannot be had.
pub fn choose(asked: EngineChoice) -> Result<Choice, Error> {
    let named = |kind| Ok(Choice { kind, reason: "posix_io_engine".into() });
    match asked {
        EngineChoice::Psync => named(EngineKind::Psync),
        EngineChoice::IoUring => match uring::check() {
            Ok(()) => named(EngineKind::IoUring),
            Err(refusal) => {
                let text = format!("posix_io_engine \"io_uring\": {refusal}");
                Err(Error::new(Status::Unsupported, text))
            }
        },
        EngineChoice::Aio => {
            let text = "posix_io_engine \"aio\": this version does not have it";
            Err(Error::new(Status::Unsupported, text))
        }
        EngineChoice::Auto => Ok(match uring::check() {
            Ok(()) => Choice {
                kind: EngineKind::IoUring,
                reason: "auto: the kernel gives io_uring".into(),
            },
            Err(refusal) => Choice {
                kind: EngineKind::Psync,
                reason: format!("auto: no io_uring here: {refusal}"),
            },
        }),
    }
}

/// Makes an engine of a kind that was chosen.
#[must_use]
pub fn make(kind: EngineKind, params: EngineParams, source: Arc<dyn Source>) -> Arc<dyn Engine> {
    match kind {
        EngineKind::IoUring => UringEngine::build(params, source),
        EngineKind::Psync | EngineKind::Aio => PsyncEngine::new(params, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r92_a_choice_has_a_reason_and_a_missing_engine_a_text() {
        let auto = choose(EngineChoice::Auto).unwrap();
        assert!(auto.reason.starts_with("auto: "), "{}", auto.reason);
        assert_eq!(choose(EngineChoice::Psync).unwrap().kind, EngineKind::Psync);
        let refused = choose(EngineChoice::Aio).unwrap_err();
        assert_eq!(refused.status, Status::Unsupported);
        match choose(EngineChoice::IoUring) {
            Ok(choice) => assert_eq!(choice.kind, EngineKind::IoUring),
            Err(refused) => assert!(refused.text.contains("io_uring"), "{}", refused.text),
        }
    }
}
