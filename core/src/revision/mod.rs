//! revision.
