//! Tells a forked child from its parent without a system call (R73): one page that the kernel wipes
//! in the child.
//!
//! `MADV_WIPEONFORK` works for `fork`, for a raw `clone` and for whatever else copies the address
//! space, where `pthread_atfork` handlers would be bypassed. A child that shares the memory
//! (`vfork`) is not told apart; it may only exec anyway.

use std::io::Error;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use parking_lot::Mutex;

const PAGE_BYTES: usize = 4096;
/// What stands in the page of the process that armed it; the kernel makes it 0 in a child.
const ARMED: u8 = 1;

/// The page; null until armed, then never changed and never unmapped.
static PAGE: AtomicPtr<AtomicU8> = AtomicPtr::new(null_mut());
/// Held while the page is made, so that two threads make one. Never taken by [`forked`].
static MAKING: Mutex<()> = Mutex::new(());

/// Makes the page, once. Later calls do nothing, in a child as well: it stays a child.
///
/// # Errors
/// The system's refusal of the page.
pub fn arm() -> Result<(), Error> {
    if !PAGE.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let _making = MAKING.lock();
    if !PAGE.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let page = map_page()?;
    // SAFETY: the page was just mapped writable and zeroed, is aligned for any type, and is never
    // unmapped.
    let flag: &'static AtomicU8 = unsafe { &*page };
    flag.store(ARMED, Ordering::Release);
    PAGE.store(page, Ordering::Release);
    Ok(())
}

fn map_page() -> Result<*mut AtomicU8, Error> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address that the kernel chooses touches nothing that
    // exists.
    let page = unsafe { libc::mmap(null_mut(), PAGE_BYTES, access, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    // SAFETY: the advice is for the page that was just mapped, and nothing else.
    if unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) } != 0 {
        let refusal = Error::last_os_error();
        // SAFETY: nobody has seen the page yet.
        unsafe { libc::munmap(page, PAGE_BYTES) };
        return Err(refusal);
    }
    Ok(page.cast())
}

/// Whether this process was forked after [`arm`]. No lock, no system call.
#[must_use]
pub fn forked() -> bool {
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        return false;
    }
    // SAFETY: a page that was published stays mapped for the life of the process and of its
    // children.
    let flag = unsafe { &*page };
    flag.load(Ordering::Acquire) != ARMED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exits the child with `forked()` as its status; gives that status in the parent.
    fn status_of_child(child: libc::pid_t) -> i32 {
        assert!(child >= 0, "{}", Error::last_os_error());
        if child == 0 {
            let status = i32::from(forked());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: our own child, and a variable of ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status)
    }

    #[test]
    fn r73_a_child_knows_that_it_is_one_whichever_call_made_it() {
        arm().unwrap();
        arm().unwrap();
        assert!(!forked());
        // SAFETY: the child calls nothing but `forked` and `_exit`.
        assert_eq!(status_of_child(unsafe { libc::fork() }), 1);
        let flags = libc::c_long::from(libc::SIGCHLD);
        // SAFETY: a raw clone without shared memory and without a new stack is a fork; the child as
        // above.
        let raw = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        assert_eq!(status_of_child(libc::pid_t::try_from(raw).unwrap()), 1);
        assert!(!forked());
    }

    #[test]
    fn many_threads_arm_one_page() {
        let pages: Vec<usize> = std::thread::scope(|scope| {
            let arms: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        arm().unwrap();
                        PAGE.load(Ordering::Acquire) as usize
                    })
                })
                .collect();
            arms.into_iter().map(|arm| arm.join().unwrap()).collect()
        });
        assert!(pages.iter().all(|page| *page == pages[0] && *page != 0));
    }
}
