//! Strandline's shards: the actor that owns one slice of every table, the coordinator beside it, and the
//! engine that a session talks to. All of it is written against `core::io`; only [`runtime`] knows glommio.
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`api`] | what the engine does for a session |
//! | [`engine`], [`gather`] | the engine on one executor; answers of several shards made one |
//! | [`router`], [`hop`] | the way to a shard: a call here, a message elsewhere |
//! | [`worker`], [`handle_write`] | the shard actor; its writes |
//! | [`maintain`], [`retention`] | flush and merge; what expires |
//! | [`pace`] | how writers are slowed when those lag behind |
//! | [`vacuum`], [`snapshot`] | VACUUM; CHECKPOINT |
//! | [`coordinator`], [`catalog_log`] | who changes the catalog; its file and the log of edits |
//! | [`shared`] | what all executors read |
//! | [`server`] | the database on real executors |
//! | [`start`], [`recover`] | start-up |
//! | [`damage`] | segments that cannot be read |
//! | [`manifest`], [`manifest_file`], [`files`] | what is in segments, and its edits; small files replaced whole |
//! | [`wal`], [`segment`] | the log; segment files and the block cache |
//! | [`stream`], [`keyed`], [`store`] | the two stores; what they share |
//! | [`runtime`] | glommio: executors, files, sockets |
//! | `testing` | files, time and tasks for unit tests (feature `testing`) |
//!
//! A write walks `engine → router → handle_write → wal → store → ledger`; a read walks
//! `engine → router → store → gather`. Change what a log record holds: `handle_write` writes and replays it,
//! and `docs/format.md` describes it.

#![deny(missing_docs)]

pub mod api;
pub mod catalog_log;
#[cfg(test)]
#[allow(clippy::disallowed_methods)] // files are cut by hand
mod catalog_log_tests;
pub mod coordinator;
pub mod damage;
#[cfg(test)]
#[allow(clippy::disallowed_methods)] // files are damaged by hand
mod damage_tests;
#[cfg(test)]
mod delete_tests;
pub mod engine;
pub mod files;
pub mod gather;
pub mod handle_write;
pub mod hop;
pub mod keyed;
pub mod maintain;
#[cfg(test)]
mod maintain_tests;
pub mod manifest;
pub mod manifest_file;
pub mod pace;
pub mod recover;
#[cfg(test)]
#[allow(clippy::disallowed_methods)] // files are lost by hand
mod recover_tests;
pub mod retention;
#[cfg(test)]
mod retention_tests;
pub mod router;
pub mod runtime;
pub mod segment;
pub mod server;
pub mod shared;
pub mod signal;
pub mod snapshot;
pub mod start;
pub mod status;
pub mod store;
pub mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod vacuum;
pub mod wal;
pub mod worker;
