//! Whole-library tests that need the inside.

mod cases;
mod header;
mod reports;
mod tidy;
