//! Influx line protocol: `table,entity=<id>[,tag=value…] field=value[,…] [timestamp]`.
//!
//! # The way of a line
//! The pump reads bytes of a stream into a [`buffer`], the [`parser`] turns whole lines into one batch per
//! table and shard ([`table`]), and the pump hands batches to the engine while it reads on.
//!
//! | module | holds |
//! |---|---|
//! | `pump` | a stream of lines: reading, handing over, bounds, retries |
//! | [`connection`] | one TCP connection; bodies of HTTP are in `http::write` |
//! | [`buffer`] | bytes that are not parsed yet; lines that are too long |
//! | [`parser`] | lines → batches, one pass each |
//! | [`text`], [`number`] | names, escapes, strings; numbers and timestamps |
//! | [`precision`] | the unit of timestamps |
//! | [`fields`] | the fields of a line: channels and cells |
//! | [`label`] | whether a value fits its channel |
//! | [`table`] | what a connection remembers of tables, channels and series |
//! | [`bad`], [`counters`] | why a line is refused; counting and logging that |
//! | [`local`] | a catalog in memory, for fuzzing and tests |

pub mod bad;
pub mod buffer;
pub mod connection;
pub mod counters;
mod fields;
mod label;
pub mod local;
pub mod number;
pub mod parser;
pub mod precision;
pub(crate) mod pump;
pub mod table;
mod text;

#[cfg(test)]
pub(crate) mod connection_tests;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub use bad::{BadLine, Reason};
pub use connection::{IlpContext, serve};
pub use counters::IlpCounters;
pub use local::fuzz_entry;
pub use parser::IlpOptions;
pub use precision::Precision;
