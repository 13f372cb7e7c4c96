//! Strandline's protocols, and the session between them and the engine.
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`admit`] | the one count of open connections |
//! | [`counters`] | what the SQL front counts |
//! | [`ilp`] | line protocol |

#![deny(missing_docs)]

pub mod admit;
pub mod counters;
pub mod ilp;
