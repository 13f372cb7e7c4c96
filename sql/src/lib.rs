//! Strandline's SQL: text in, checked plans out, and a small evaluator for catalog questions. It never sees
//! the engine: it shares `core`'s description of a scan with the shards.
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`types`] | labels as PostgreSQL types; single values |
//! | [`plan`] | what a bound statement asks for |
//! | [`catalog`] | `$sys`, `pg_catalog`, `information_schema` and SELECT without a table |

#![deny(missing_docs)]

pub mod catalog;
pub mod plan;
pub mod types;
