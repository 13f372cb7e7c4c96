//! Model checks of the ledger and the queue: loom runs the code of `strandline-core` itself, not a copy,
//! through every interleaving and every stale load that the memory model allows.
//!
//! Empty unless built for loom, in a folder of its own because the flag changes every dependency:
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p strandline-loom-tests --release`

#![deny(missing_docs)]

#[cfg(all(test, loom))]
mod guarantee;
#[cfg(all(test, loom))]
mod queue;
