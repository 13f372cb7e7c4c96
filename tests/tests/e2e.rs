//! A real server through real clients: psql, a Rust driver, sockets.

// Clients live by threads and the clock.
#![allow(clippy::disallowed_methods)]

#[path = "e2e/alter.rs"]
mod alter;
#[path = "e2e/cardinality.rs"]
mod cardinality;
#[path = "e2e/clients.rs"]
mod clients;
#[path = "e2e/crash.rs"]
mod crash;
#[path = "e2e/docs.rs"]
mod docs;
#[path = "e2e/explain.rs"]
mod explain;
#[path = "e2e/large.rs"]
mod large;
#[path = "e2e/lines.rs"]
mod lines;
#[path = "e2e/metamorphic.rs"]
mod metamorphic;
#[path = "e2e/mutable.rs"]
mod mutable;
#[path = "e2e/serve.rs"]
mod serve;
#[path = "e2e/statements.rs"]
mod statements;
#[path = "e2e/weather.rs"]
mod weather;
#[path = "e2e/writes.rs"]
mod writes;
