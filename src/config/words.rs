//! The keys whose value is one of a few words.

use super::reader::Reader;
use super::{BufferMode, CommitPolicy, CommitSync, EngineChoice, FailureScope, StartupPolicy};
use crate::error::Error;

/// `posix_io_engine`.
pub fn engine(read: &mut Reader) -> Result<EngineChoice, Error> {
    let words = [
        ("auto", EngineChoice::Auto),
        ("psync", EngineChoice::Psync),
        ("aio", EngineChoice::Aio),
        ("io_uring", EngineChoice::IoUring),
    ];
    read.word("posix_io_engine", &words)
}

/// `startup_policy`.
pub fn startup_policy(read: &mut Reader) -> Result<StartupPolicy, Error> {
    read.word("startup_policy", &[("all", StartupPolicy::All), ("any", StartupPolicy::Any)])
}

/// `commit_policy`.
pub fn commit_policy(read: &mut Reader) -> Result<CommitPolicy, Error> {
    let words = [
        ("all_shards", CommitPolicy::AllShards),
        ("last_shard", CommitPolicy::LastShard),
        ("explicit", CommitPolicy::Explicit),
    ];
    read.word("commit_policy", &words)
}

/// `commit_sync`, with `auto` resolved as far as the configuration tells.
pub fn commit_sync(read: &mut Reader, io_direct: bool) -> Result<CommitSync, Error> {
    const KEY: &str = "commit_sync";
    let words = [
        ("auto", None),
        ("none", Some(CommitSync::None)),
        ("data", Some(CommitSync::Data)),
        ("full", Some(CommitSync::Full)),
    ];
    if let Some(sync) = read.word(KEY, &words)? {
        return Ok(sync);
    }
    let (sync, word, why) = match io_direct {
        true => (CommitSync::AsPathsRun, "none", "derived from io_direct; data on a buffered path"),
        false => (CommitSync::Data, "data", "derived from io_direct"),
    };
    read.note(KEY, word, why);
    Ok(sync)
}

/// `buffer_mode`.
pub fn buffer_mode(read: &mut Reader) -> Result<BufferMode, Error> {
    let words = [("isolated", BufferMode::Isolated), ("borrowed", BufferMode::Borrowed)];
    read.word("buffer_mode", &words)
}

/// `failure_scope`.
pub fn failure_scope(read: &mut Reader) -> Result<FailureScope, Error> {
    read.word("failure_scope", &[("path", FailureScope::Path), ("any", FailureScope::Any)])
}
