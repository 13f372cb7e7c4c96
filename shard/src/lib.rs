//! Strandline's shards: the actor that owns one slice of every table, the coordinator beside it, and the
//! engine that a session talks to.
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`api`] | what the engine does for a session |
//! | [`hop`] | crossing to another executor |
//! | [`runtime`] | the real world: executors, files, sockets, time |
//! | [`segment`] | segment files and the cache of their blocks |
//! | [`store`] | what the two stores share |
//! | [`wal`] | the log |
//! | `testing` | files, time and tasks for unit tests (feature `testing`) |

#![deny(missing_docs)]

pub mod api;
pub mod hop;
pub mod runtime;
pub mod segment;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wal;
