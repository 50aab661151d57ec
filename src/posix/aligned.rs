//! STUB. Aligned memory, on huge pages where possible.

use crate::error::Error;

/// Allocates `bytes`.
///
/// # Errors
/// `OutOfMemory`.
pub fn allocate(_bytes: usize) -> Result<*mut u8, Error> {
    Err(Error::new(crate::error::Status::OutOfMemory, "stub"))
}

/// Frees what `allocate` gave.
///
/// # Errors
/// `InvalidParam` for an unknown address.
///
/// # Safety
/// Nobody uses it any more.
pub unsafe fn release(_memory: *mut u8) -> Result<(), Error> {
    Ok(())
}
