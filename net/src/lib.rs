//! Strandline's protocols, and the session between them and the engine.
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`admit`] | the one count of open connections |
//! | [`counters`] | what the SQL front counts |

#![deny(missing_docs)]

pub mod admit;
pub mod counters;
