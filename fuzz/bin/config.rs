//! Fuzz target: any text as a configuration.
#![no_main]

#[path = "../config.rs"]
mod config;

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::run(data));
