//! How blocks, segments, logs and manifests look on disk.

pub mod block;
