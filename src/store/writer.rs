//! Who writes: the identity of one open store, and whether another one still lives (R5, R46).

use std::collections::BTreeSet;

use super::layout::Writer;
use crate::engine::host;
use crate::error::{Error, Status};

/// The nonces of the stores that are open in this process.
static OPEN_WRITERS: parking_lot::Mutex<BTreeSet<u64>> = parking_lot::Mutex::new(BTreeSet::new());

/// Says that a writer of this process lives, until it is dropped.
pub struct Alive(u64);

impl Alive {
    /// From now on.
    pub fn new(me: &Writer) -> Alive {
        OPEN_WRITERS.lock().insert(me.nonce);
        Alive(me.nonce)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        OPEN_WRITERS.lock().remove(&self.0);
    }
}

/// Whether a writer of this boot and pid namespace may still write: a store of this process that
/// was closed does not, although its process lives (R46).
pub fn writer_lives(writer: &Writer) -> bool {
    host::alive(writer.pid, writer.started)
        && (writer.pid != std::process::id() || OPEN_WRITERS.lock().contains(&writer.nonce))
}

/// Who this store is, for the names of its temporaries.
pub fn writer() -> Result<Writer, Error> {
    let os = |error: std::io::Error| Error::new(Status::OsError, format!("random: {error}"));
    let nonce = u64::from_le_bytes(host::random_bytes::<8>().map_err(os)?);
    let identity = host::writer_identity();
    // Without /proc nobody can tell whether this writer lives: a boot of 0 is nobody's (R46).
    let (boot, pid_namespace, pid, started) = match identity {
        None => (0, 0, 0, 0),
        Some(found) => {
            let boot: String = found.boot_id.chars().filter(char::is_ascii_hexdigit).collect();
            let boot = boot.get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok());
            (boot.unwrap_or(0), found.pid_namespace, found.pid, found.start)
        }
    };
    Ok(Writer { boot, pid_namespace, pid, started, nonce })
}
