//! STUB.
