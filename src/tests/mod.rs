//! Whole-library tests that need the inside.

mod cases;
mod closing;
mod failures;
mod header;
mod reports;
mod tidy;
