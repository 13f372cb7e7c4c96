//! Strandline's protocols, and the session between them and the engine.
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`admit`] | the one count of open connections |
//! | [`cli`] | the command line: `serve`, `demo` |
//! | [`config`] | flags, environment, file → one configuration |
//! | [`counters`] | what the SQL front counts |
//! | [`http`] | health, readiness, metrics |
//! | [`ilp`] | line protocol |
//! | [`pg`] | PostgreSQL's protocol |
//! | [`server`] | listeners on every core, draining |
//! | [`session`] | settings, blocks, statements on their way to the engine |
//! | [`settings`] | what SET and SHOW can name |
//! | [`glue`] | plan → engine → rows |

#![deny(missing_docs)]

pub mod admit;
pub mod cli;
pub mod config;
pub mod counters;
pub mod glue;
pub mod http;
pub mod ilp;
pub mod pg;
pub mod server;
pub mod session;
pub mod settings;

#[cfg(test)]
mod testing;
