//! Whole-library tests that need the inside.

mod header;
mod tidy;
