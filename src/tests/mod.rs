//! Whole-library tests that need the inside.

mod tidy;
