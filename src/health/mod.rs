//! Beside the floors: the health of paths.
