//! The wall between C and Rust: fork check, panic → status, error → status and text (R72, R73), and
//! the checks of raw arguments that every function needs.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::status::{KVPATH_ERROR, kvpath_status_t};
use crate::error::{Error, Status};
use crate::posix::fork;

struct Last {
    text: CString,
    detail: i32,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { text: CString::default(), detail: 0 });
}

fn remember(status: i32, detail: i32, text: &str) -> i32 {
    let clean = text.replace('\0', "\u{fffd}");
    let text = CString::new(clean).unwrap_or_default();
    // A thread that is ending has no slot any more; the status alone must do then.
    match LAST.try_with(|last| last.replace(Last { text, detail })) {
        Ok(_) | Err(_) => status,
    }
}

/// Runs the body of an exported function.
pub fn guard(body: impl FnOnce() -> Result<(), Error>) -> kvpath_status_t {
    if fork::forked() {
        let error = fork_error();
        return remember(error.status.code(), error.detail.code(), &error.text);
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok.code(),
        Ok(Err(error)) => remember(error.status.code(), error.detail.code(), &error.text),
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no text".into());
            // Dropping a panic payload may panic again; leaking it cannot.
            std::mem::forget(panic);
            remember(KVPATH_ERROR, KVPATH_ERROR, &format!("bug in kvpath: panic: {what}"))
        }
    }
}

/// What every call in a forked child gets.
fn fork_error() -> Error {
    Error::new(
        Status::Forked,
        "this process was forked from one that opened kvpath stores; it may only exit or exec",
    )
}

/// The argument `name` as a slice of `count` elements; null is fine where `count` is 0.
///
/// # Safety
/// A non-null `pointer` is valid for reads of `count` elements for as long as the caller uses the
/// slice.
pub unsafe fn slice<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    check_array(pointer, count, name)?;
    // SAFETY: not null, aligned, and at most isize::MAX bytes (checked); the rest is the function's
    // contract.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// An empty list with room for a copy of `count` elements of the argument `name`. Memory for that
/// may be refused, and whoever aborts for it takes the caller along.
pub fn list<T>(count: usize, name: &str) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    let refused = |_| Error::new(Status::OutOfMemory, format!("{name}: no memory for {count}"));
    list.try_reserve_exact(count).map_err(refused)?;
    Ok(list)
}

/// The argument `name` as a slice that is written.
///
/// # Safety
/// As [`slice`], and nobody else uses the memory meanwhile.
pub unsafe fn slice_mut<'a, T>(
    pointer: *mut T,
    count: usize,
    name: &str,
) -> Result<&'a mut [T], Error> {
    if count == 0 {
        return Ok(&mut []);
    }
    check_array(pointer, count, name)?;
    // SAFETY: not null, aligned, and at most isize::MAX bytes (checked); the rest is the function's
    // contract.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

fn check_array<T>(pointer: *const T, count: usize, name: &str) -> Result<(), Error> {
    if pointer.is_null() {
        let many = if count == 1 { String::new() } else { format!(", with a count of {count}") };
        return Err(Error::invalid(format!("{name} is NULL{many}")));
    }
    if !pointer.is_aligned() {
        let need = align_of::<T>();
        return Err(Error::invalid(format!("{name} is not aligned to {need} bytes")));
    }
    let bytes = count.checked_mul(size_of::<T>());
    if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Error::invalid(format!("{name}: a count of {count} is impossible")));
    }
    Ok(())
}

/// Checks that the output argument `name` can be written.
///
/// # Errors
/// `InvalidParam` where it is null or not aligned.
pub fn out<T>(pointer: *mut T, name: &str) -> Result<(), Error> {
    check_array(pointer.cast_const(), 1, name)
}

/// The argument `name` as text.
///
/// # Safety
/// A non-null `pointer` is a NUL-terminated string, valid while the caller uses it.
pub unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Error> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("{name} is NULL")));
    }
    // SAFETY: not null; terminated by the function's contract.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|error| {
        Error::invalid(format!("{name} is not UTF-8: bad byte at offset {}", error.valid_up_to()))
    })
}

/// Writes `text` with its NUL to the caller's buffer and its length without the NUL to `length`. A
/// null buffer of capacity 0 asks for the length only.
///
/// # Safety
/// A non-null `buffer` is valid for writes of `capacity` bytes; `length` was checked by [`out`] and
/// is valid for one write.
pub unsafe fn write_text(
    text: &str,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Error> {
    // SAFETY: the function's contract.
    unsafe { length.write(text.len()) };
    if buffer.is_null() && capacity == 0 {
        return Ok(());
    }
    if capacity <= text.len() {
        let need = text.len() + 1;
        return Err(Error::invalid(format!("the buffer has {capacity} bytes, {need} are needed")));
    }
    // SAFETY: the function's contract.
    let target = unsafe { slice_mut(buffer.cast::<u8>(), capacity, "buffer") }?;
    target[..text.len()].copy_from_slice(text.as_bytes());
    target[text.len()] = 0;
    Ok(())
}

/// The text of the last failing kvpath call of this thread: the operation, the path, errno with its
/// text, or what differed. Empty before the first failure; a call that succeeds leaves it alone.
///
/// Ownership: the string belongs to the library and is valid until this thread's next kvpath call.
/// Threads: any; each sees its own. Blocking: never. Errors: none; works after fork too.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_last_error() -> *const c_char {
    LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.text.as_ptr()))
        .unwrap_or(c"".as_ptr())
}

/// A finer status of the last failing kvpath call of this thread: KVPATH_CORRUPT where a load gave
/// KVPATH_NOT_FOUND because the file is not a whole block, otherwise the status itself. 0 before
/// the first failure.
///
/// Ownership: none. Threads: any; each sees its own. Blocking: never. Errors: none; works after
/// fork too.
#[unsafe(no_mangle)]
pub extern "C" fn kvpath_last_detail() -> kvpath_status_t {
    LAST.try_with(|last| last.try_borrow().map_or(0, |last| last.detail)).unwrap_or(0)
}
