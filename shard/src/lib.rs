//! Strandline's shards: the actor that owns one slice of every table, the coordinator beside it, and the
//! engine that a session talks to.
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`api`] | what the engine does for a session |
//! | [`store`] | what the two stores share |

#![deny(missing_docs)]

pub mod api;
pub mod store;
