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

/// What the scheduler is asked to give the calling thread at a time.
const SLICE_NS: u64 = 100_000;

/// Asks the scheduler to run the calling thread soon after it wakes, in return for running shortly
/// at a time: for one that feeds a device, between whose answers it has little to do. Kernels
/// before 6.12 take no notice. Where a policy was chosen for the process it stays as it is.
pub fn be_prompt() {
    let Some(mut wish) = schedule() else { return };
    if i32::try_from(wish.sched_policy) != Ok(libc::SCHED_OTHER) {
        return;
    }
    wish.sched_runtime = SLICE_NS;
    // SAFETY: the struct lives during the call.
    let _refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wish, 0) };
}

/// How the calling thread is scheduled; `None`: the system does not tell.
fn schedule() -> Option<libc::sched_attr> {
    let size = u32::try_from(size_of::<libc::sched_attr>()).ok()?;
    // SAFETY: plain numbers, for which zero is a value.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is ours to write during the call, and `size` is its length.
    let told = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) };
    (told == 0).then_some(libc::sched_attr { size, ..now })
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

    /// Policy, and what is told of the slice.
    fn policy_and_slice() -> (u32, u64) {
        let now = schedule().unwrap();
        (now.sched_policy, now.sched_runtime)
    }

    #[test]
    fn a_prompt_thread_has_short_slices_and_keeps_a_policy_that_was_chosen() {
        let (tell, told) = std::sync::mpsc::channel();
        let other = tell.clone();
        let thread = spawn("prompt", 256 << 10, move || {
            let before = policy_and_slice().1;
            be_prompt();
            other.send((before, policy_and_slice())).unwrap();
        });
        thread.unwrap().join().unwrap();
        let (before, (policy, slice)) = told.recv().unwrap();
        assert_eq!(i32::try_from(policy), Ok(libc::SCHED_OTHER));
        // Before Linux 6.12, or where a filter refuses it, it stays as it was.
        assert!([before, SLICE_NS].contains(&slice), "{slice}");
        let thread = spawn("batch", 256 << 10, move || {
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: the struct lives during the call.
            let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const none) };
            assert_eq!(status, 0);
            let before = policy_and_slice().1;
            be_prompt();
            tell.send((before, policy_and_slice())).unwrap();
        });
        thread.unwrap().join().unwrap();
        let (before, (policy, slice)) = told.recv().unwrap();
        assert_eq!((i32::try_from(policy), slice), (Ok(libc::SCHED_BATCH), before));
    }
}
