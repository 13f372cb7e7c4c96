//! See the crate list in ARCHITECTURE.md.
