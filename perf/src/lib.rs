//! Measures Strandline against the floor of the machine it runs on, client included. `perf/README.md` says how
//! to run it and what each line means; figures are compared within one run only.
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`data`] | the telemetry, as lines and CSV, and what the questions about it answer |
//! | [`floor`] | what a plain program reaches on this machine |
//! | [`load`] | how load arrives: back to back, or on a schedule |
//! | [`machine`] | what else the machine does |
//! | [`peers`] | the same work on other databases, by `peers.py` |
//! | [`pg`] | a small client |
//! | [`progress`] | how far long work has come |
//! | [`report`] | the table |
//! | [`scenario`] | the work that is measured |
//! | [`server`] | the server process |

// A load generator lives by the clock, by threads and by files.
#![allow(clippy::disallowed_methods)]

pub mod data;
pub mod floor;
pub mod load;
pub mod machine;
pub mod peers;
pub mod pg;
pub mod progress;
pub mod report;
pub mod scenario;
pub mod server;
