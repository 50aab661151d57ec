//! Fuzz target: any calls of the C ABI, from several threads.
#![no_main]

#[path = "../calls.rs"]
mod calls;

libfuzzer_sys::fuzz_target!(|data: &[u8]| calls::run(data));
