//! STUB. Tells a forked child from its parent without a system call: a page that the kernel wipes on fork.

/// Makes the page, once.
///
/// # Errors
/// The system's refusal.
pub fn arm() -> Result<(), std::io::Error> {
    Ok(())
}

/// Whether this process was forked after [`arm`].
#[must_use]
pub fn forked() -> bool {
    false
}
