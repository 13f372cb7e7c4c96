//! SQL front.
