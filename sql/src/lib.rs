//! Strandline's SQL: text in, checked plans out, and a small evaluator for catalog questions. It never sees
//! the engine: it shares `core`'s description of a scan with the shards.
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`parse`], [`Statement`] | text to statements; describe and bind |
//! | [`lexer`], [`ast`], `parser` | tokens, statements as written, one statement per file |
//! | [`bind`] | names, labels, families; values by label ([`bind::value`]) |
//! | [`time`] | times and durations as text |
//! | [`fuzz`] | an entry for fuzzers, and the catalog that tests bind against |
//! | [`types`] | labels as PostgreSQL types; single values |
//! | [`plan`] | what a bound statement asks for |
//! | [`catalog`] | `$sys`, `pg_catalog`, `information_schema` and SELECT without a table |

#![deny(missing_docs)]

pub mod ast;
pub mod bind;
pub mod catalog;
pub mod fuzz;
pub mod lexer;
mod parser;
pub mod plan;
mod statement;
pub mod time;
pub mod types;

pub use bind::BindContext;
pub use parser::parse;
pub use statement::Statement;
