//! Which CPUs the calling thread may run on (R57).

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread: the kernel reads pid 0 so.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// The CPUs that the calling thread may run on, in order.
///
/// # Errors
/// errno.
pub fn allowed() -> Result<Vec<usize>, i32> {
    let set = sched_getaffinity(THIS_THREAD).map_err(|errno| errno as i32)?;
    Ok((0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect())
}

/// The same, in the form that the kernel takes.
///
/// # Errors
/// errno.
pub fn cpu_set() -> Result<libc::cpu_set_t, i32> {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    let bytes = size_of::<libc::cpu_set_t>();
    // SAFETY: `set` is ours, and as many bytes as its type has are written.
    let result = unsafe { libc::sched_getaffinity(0, bytes, set.as_mut_ptr()) };
    if result != 0 {
        return Err(nix::errno::Errno::last_raw());
    }
    // SAFETY: zeroed is a valid value of this plain struct, and the kernel has filled it.
    Ok(unsafe { set.assume_init() })
}

/// Lets the calling thread, and the threads that it makes later, run on `cores` alone. Cores that
/// the system does not have or does not allow are left out by the kernel; where none is left it
/// refuses.
///
/// # Errors
/// errno; EINVAL where no core of the list can be used.
pub fn pin(cores: &[usize]) -> Result<(), i32> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core).map_err(|errno| errno as i32)?;
    }
    sched_setaffinity(THIS_THREAD, &set).map_err(|errno| errno as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r57_a_pin_holds_for_the_thread_and_for_those_it_makes() {
        let last = *allowed().unwrap().last().unwrap();
        let before = allowed().unwrap();
        let (own, child) = std::thread::spawn(move || {
            pin(&[last]).unwrap();
            let child = std::thread::spawn(|| allowed().unwrap()).join().unwrap();
            (allowed().unwrap(), child)
        })
        .join()
        .unwrap();
        assert_eq!((own, child), (vec![last], vec![last]));
        assert_eq!(allowed().unwrap(), before);
    }

    #[test]
    fn cores_that_cannot_be_used_are_an_error() {
        assert_eq!(pin(&[]), Err(libc::EINVAL));
        assert_eq!(pin(&[CpuSet::count()]), Err(libc::EINVAL));
    }
}
