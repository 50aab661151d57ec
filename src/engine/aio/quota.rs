//! How large a context a lane asks for, and what a refusal says.

use crate::error::{Error, Status};
use crate::posix::linux_aio::{self, Context};

/// A smaller context is no use.
pub const EVENTS_MIN: u32 = 8;

/// What a lane would like: room for its transfers, for twice as many that were abandoned (R36), and
/// for a kick.
pub fn wanted(transfers: usize) -> u32 {
    u32::try_from(3 * transfers + 1).unwrap_or(u32::MAX).max(EVENTS_MIN)
}

/// Whether a context can be had at all, without making one: ending one takes long.
///
/// # Errors
/// `Unsupported`, with the cause and the remedy.
pub fn check(wanted: u32) -> Result<(), Error> {
    linux_aio::allowed().map_err(|errno| refusal(errno, None))?;
    match linux_aio::quota() {
        Some((used, max)) if halved(wanted, max.saturating_sub(used)).is_none() => {
            Err(refusal(libc::EAGAIN, Some((used, max))))
        }
        _ => Ok(()),
    }
}

/// `wanted`, or half of it, and so on, until it fits.
fn halved(wanted: u32, free: u64) -> Option<u32> {
    let sizes = std::iter::successors(Some(wanted), |events| Some(events / 2));
    sizes.take_while(|events| *events >= EVENTS_MIN).find(|events| u64::from(*events) <= free)
}

/// Makes a context, a smaller one where the system has no room for the wanted one.
///
/// # Errors
/// `Unsupported`, with the cause and the remedy.
pub fn make(wanted: u32) -> Result<Context, Error> {
    let mut events = wanted;
    loop {
        match Context::new(events) {
            Ok(context) => return Ok(context),
            Err(libc::EAGAIN | libc::ENOMEM) if events / 2 >= EVENTS_MIN => events /= 2,
            Err(errno) => return Err(refusal(errno, linux_aio::quota())),
        }
    }
}

fn refusal(errno: i32, quota: Option<(u64, u64)>) -> Error {
    let known = nix::errno::Errno::from_raw(errno);
    let other = "choose posix_io_engine \"psync\"";
    let remedy = match errno {
        libc::EAGAIN => {
            let values = match quota {
                Some((used, max)) => format!("fs.aio-nr is {used} of fs.aio-max-nr {max}"),
                None => "fs.aio-nr has reached fs.aio-max-nr".to_owned(),
            };
            format!("{values}: raise it (sysctl -w fs.aio-max-nr=1048576), or {other}")
        }
        libc::ENOSYS => format!("the kernel has no Linux AIO (CONFIG_AIO): {other}"),
        libc::EPERM | libc::EACCES => format!(
            "a filter (seccomp) forbids it: allow io_setup, io_submit, io_getevents and \
             io_destroy, or {other}"
        ),
        libc::EMFILE | libc::ENFILE => format!("raise ulimit -n, or {other}"),
        _ => other.to_owned(),
    };
    let text = format!("posix_io_engine aio: io_setup: {known:?} ({}): {remedy}", known.desc());
    Error::new(Status::Unsupported, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_halved_down_to_the_floor_and_no_further() {
        assert_eq!(halved(400, 1000), Some(400));
        assert_eq!(halved(400, 399), Some(200));
        assert_eq!(halved(400, 13), Some(12));
        assert_eq!(halved(400, 11), None);
        assert_eq!(halved(400, 0), None);
    }

    #[test]
    fn a_refusal_names_the_values_and_the_remedy() {
        let text = refusal(libc::EAGAIN, Some((65530, 65536))).text;
        for part in ["EAGAIN", "fs.aio-nr is 65530", "fs.aio-max-nr 65536", "sysctl", "psync"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(refusal(libc::EPERM, None).text.contains("seccomp"));
        assert!(refusal(libc::ENOSYS, None).text.contains("CONFIG_AIO"));
    }
}
