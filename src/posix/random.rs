//! Random bytes from the kernel: names that nobody else has.

/// Fills `bytes`.
///
/// # Errors
/// errno; ENOSYS on a kernel without the call.
pub fn fill(bytes: &mut [u8]) -> Result<(), i32> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        // SAFETY: `rest` is ours for the call, and at most its length is written.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => done += got,
            Err(_) => match nix::errno::Errno::last_raw() {
                libc::EINTR => {}
                errno => return Err(errno),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_fills_differ() {
        let (mut one, mut two) = ([0; 16], [0; 16]);
        fill(&mut one).unwrap();
        fill(&mut two).unwrap();
        assert_ne!(one, two);
    }
}
