//! Makes the library's threads: named, with all signals blocked (R74), with a small stack.

use std::io::Error;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

/// The longest name of a thread that the kernel keeps, in bytes.
pub const NAME_BYTES: usize = 15;

/// Makes a thread. It inherits the CPU set of its maker (R57); a name that is too long is cut.
///
/// # Errors
/// The system's refusal; EAGAIN at a limit of threads.
pub fn spawn(
    name: &str,
    stack_bytes: usize,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let cut = name.get(..NAME_BYTES).unwrap_or(name);
    let builder = Builder::new().name(cut.to_owned()).stack_size(stack_bytes);
    // A thread starts with its maker's mask: blocked before it exists, so that no signal finds it
    // unblocked.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let made = builder.spawn(work);
    before.thread_set_mask()?;
    made
}

/// How long the calling thread has been on a CPU.
#[must_use]
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is ours to write during the call.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    debug_assert_eq!(status, 0, "the clock exists");
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;

    #[test]
    fn r74_a_thread_is_named_and_blocks_all_signals_and_its_maker_does_not() {
        let before = SigSet::thread_get_mask().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = spawn("ucm_posix_test_long_name", 256 << 10, move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            tell.send((name, SigSet::thread_get_mask().unwrap())).unwrap();
        })
        .unwrap();
        thread.join().unwrap();
        let (name, mask) = told.recv().unwrap();
        assert_eq!(name.trim_end(), "ucm_posix_test_");
        for signal in Signal::iterator() {
            let unblockable = matches!(signal, Signal::SIGKILL | Signal::SIGSTOP);
            assert!(unblockable || mask.contains(signal), "{signal}");
        }
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }
}
