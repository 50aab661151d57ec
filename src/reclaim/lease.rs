//! The lease by which one instance of a storage collects (R83): its names, and when a holder is
//! believed to be dead. The existing C++ store takes the same lease, so both exclude each other.

use std::time::Duration;

use crate::clock::Time;

/// How every name of the lease begins.
pub const PREFIX: &str = ".ucm_gc.";
/// The lease, a directory in the root: who makes it holds it.
pub const LOCK: &str = ".ucm_gc.lock";
/// A file whose times tell the storage's clock.
pub const CHECK_TIME: &str = ".ucm_gc.checktime";
/// How the holder's entry in the lease begins.
pub const HEARTBEAT: &str = "hb.";
/// What a lease that was taken from a dead holder is called until it is deleted.
pub const PARKED: &str = ".ucm_gc.stale.";

/// The name of an instance's entry: `hb.<host>.<pid>.<8 hex>`.
#[must_use]
pub fn identity(host: &str, pid: u32, nonce: u32) -> String {
    let host = host.replace(['/', '.'], "_");
    let host = if host.is_empty() { "unknown" } else { &host };
    format!("{HEARTBEAT}{host}.{pid}.{nonce:08x}")
}

/// What a holder's entry shows. `None`: the lease holds no entry.
pub type Seen = Option<(String, i64)>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspect {
    seen: Seen,
    since: Time,
}

/// Who is suspected to be dead. Kept from one try for the lease to the next.
#[derive(Debug, Default)]
pub struct Suspicion(Option<Suspect>);

impl Suspicion {
    /// Judges the holder: its entry and that entry's mtime, both by the storage's clock. Dead is
    /// only who was old on two checks running and did not move between them, a heartbeat apart.
    pub fn dead(
        &mut self,
        seen: &Seen,
        storage_now_s: i64,
        stale: Duration,
        heartbeat: Duration,
        now: Time,
    ) -> bool {
        let stale_s = i64::try_from(stale.as_secs()).unwrap_or(i64::MAX);
        let old = seen.as_ref().is_none_or(|(_, mtime_s)| {
            // A future mtime is no age.
            storage_now_s.saturating_sub(*mtime_s) >= stale_s
        });
        if !old {
            self.0 = None;
            return false;
        }
        if let Some(suspect) = &self.0
            && suspect.seen == *seen
        {
            return now.since(suspect.since) >= heartbeat;
        }
        self.0 = Some(Suspect { seen: seen.clone(), since: now });
        false
    }

    /// Nobody is suspected any more.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: Duration = Duration::from_secs(60);
    const BEAT: Duration = Duration::from_secs(7);

    fn at(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    #[test]
    fn r83_an_entry_is_named_after_host_process_and_chance() {
        assert_eq!(identity("a.b/c", 12, 0xbeef), "hb.a_b_c.12.0000beef");
        assert_eq!(identity("", 1, 0), "hb.unknown.1.00000000");
    }

    #[test]
    fn r83_dead_is_old_and_unchanged_on_two_checks_a_heartbeat_apart() {
        let mut suspicion = Suspicion::default();
        let mut check = |seen: &Seen, storage, now| suspicion.dead(seen, storage, STALE, BEAT, now);
        let entry = |mtime| Some(("hb.a.1.0".to_owned(), mtime));
        assert!(!check(&entry(1000), 1059, at(0)), "young");
        assert!(!check(&entry(1000), 1060, at(10)), "the first check");
        assert!(!check(&entry(1000), 1061, at(11)), "too soon after it");
        assert!(check(&entry(1000), 1070, at(17)));
        // It moved.
        assert!(!check(&entry(1005), 1070, at(30)));
        assert!(check(&entry(1005), 1080, at(40)));
        // Another holder.
        assert!(!check(&Some(("hb.b.1.0".into(), 1005)), 1090, at(50)));
        // A holder that was young in between.
        assert!(!check(&entry(1089), 1090, at(60)));
        assert!(!check(&entry(1000), 1090, at(61)));
    }

    #[test]
    fn r83_a_lease_without_an_entry_and_a_future_mtime() {
        let mut suspicion = Suspicion::default();
        assert!(!suspicion.dead(&None, 0, STALE, BEAT, at(0)));
        assert!(suspicion.dead(&None, 0, STALE, BEAT, at(7)));
        suspicion.forget();
        assert!(!suspicion.dead(&None, 0, STALE, BEAT, at(14)));
        let future = Some(("hb.a.1.0".to_owned(), 5000));
        assert!(!suspicion.dead(&future, 1000, STALE, BEAT, at(30)));
        assert!(!suspicion.dead(&future, 1000, STALE, BEAT, at(60)));
    }
}
