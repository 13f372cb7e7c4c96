//! What the integration tests share. The tests themselves stand in `tests/tests/`, in few binaries.

// Tests drive real processes and threads; what they test takes time and randomness from `core::io`.
#![allow(clippy::disallowed_methods)]

pub mod questions;
pub mod reference;
pub mod server;
pub mod sim;
pub mod sqltext;
pub mod statements;
