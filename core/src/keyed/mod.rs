//! keyed.
