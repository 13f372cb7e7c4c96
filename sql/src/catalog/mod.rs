//! Questions about the database itself: `$sys`, `pg_catalog`, `information_schema`, and SELECT without a
//! table, answered by a small evaluator over tables made for the statement.

use crate::types::{Datum, SqlType};

/// A SELECT for the evaluator.
#[derive(Clone, Debug)]
pub struct SystemQuery {
    /// The statement, as parsed.
    pub query: Box<sqlparser::ast::Query>,
    /// Values of `$1`, `$2`, ….
    pub params: Vec<Datum>,
}

/// What the evaluator answers.
#[derive(Clone, Debug, Default)]
pub struct SystemAnswer {
    /// Names and types.
    pub columns: Vec<(String, SqlType)>,
    /// Cells by row.
    pub rows: Vec<Vec<Datum>>,
}
