//! How blocks, segments, logs and manifests look on disk.

pub mod block;
pub mod bloom;
pub mod decoded;
pub mod log;
pub mod sealed;
pub mod segment;
