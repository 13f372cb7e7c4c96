//! Measures Strandline against the floor of the machine it runs on, client included: `cargo run --release -p
//! strandline-perf -- --help`. Nothing here is a test: figures are compared within one run.

// A load generator lives by the clock, by threads and by files.
#![allow(clippy::disallowed_methods)]

pub mod data;
pub mod floor;
pub mod pg;
pub mod report;
pub mod scenario;
pub mod server;
