//! A descriptor that another thread, or the caller's own `poll(2)`, can wait on.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Makes one, not readable yet, non-blocking, closed on exec.
///
/// # Errors
/// errno.
pub fn create() -> Result<OwnedFd, i32> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    EventFd::from_value_and_flags(0, flags).map(OwnedFd::from).map_err(|errno| errno as i32)
}

/// Makes it readable. One that is readable stays so.
pub fn signal(fd: &OwnedFd) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: eight bytes of ours are read during the call. The only errors are a full counter,
    // which is as readable as can be, and a descriptor of another kind, which `create` excludes.
    let _full = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Makes it not readable; says whether it was.
#[must_use]
pub fn drain(fd: &OwnedFd) -> bool {
    let mut count = [0_u8; 8];
    // SAFETY: eight bytes of ours are written during the call.
    let got = unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    got == 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    fn readable(fd: &OwnedFd) -> bool {
        let mut polled = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn signals_add_up_to_one_and_a_drain_takes_them_all() {
        let fd = create().unwrap();
        assert!(!readable(&fd));
        assert!(!drain(&fd));
        signal(&fd);
        signal(&fd);
        assert!(readable(&fd));
        assert!(drain(&fd));
        assert!(!readable(&fd));
    }
}
