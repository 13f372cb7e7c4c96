//! A parsed statement: kept by prepared statements, described before there are values, and bound to a
//! catalog with them.

use crate::bind::{self, BindContext};
use crate::parser::Parsed;
use crate::plan::{Description, Plan, Transaction};
use crate::types::{Datum, SqlType};
use std::sync::Arc;
use strandline_core::error::Result;

/// One statement of a text. Cheap to keep: values that are plain literals stay in the text.
#[derive(Clone, Debug)]
pub struct Statement {
    source: Arc<str>,
    span: (u32, u32),
    pub(crate) parsed: Parsed,
    parameters: usize,
}

impl Statement {
    pub(crate) fn new(
        source: Arc<str>,
        span: (u32, u32),
        parsed: Parsed,
        parameters: usize,
    ) -> Self {
        // `$1` inside PREPARE is the inner statement's.
        let parameters = if matches!(parsed, Parsed::Prepare { .. }) {
            0
        } else {
            parameters
        };
        Statement {
            source,
            span,
            parsed,
            parameters,
        }
    }

    /// The statement without what stands before and behind it.
    pub fn text(&self) -> &str {
        &self.source[self.span.0 as usize..self.span.1 as usize]
    }

    /// Bytes of the text that it keeps: all that came with it.
    pub fn source_bytes(&self) -> usize {
        self.source.len()
    }

    /// The whole text, in which errors count their positions.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// How many parameters it takes: the largest n of its `$n`.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Whether it is nothing but blanks and comments.
    pub fn is_empty(&self) -> bool {
        matches!(self.parsed, Parsed::Empty)
    }

    /// COMMIT or ROLLBACK, which alone are possible in a failed block.
    pub fn is_transaction_control(&self) -> bool {
        matches!(
            self.parsed,
            Parsed::Transaction(Transaction::Commit | Transaction::Rollback)
        )
    }

    /// Types of parameters and columns, before there are values. `declared` holds what the client said of
    /// `$1`, `$2`, …; it may be shorter than they are many.
    ///
    /// # Errors
    /// Those of [`Statement::bind`] that do not hang on values.
    pub fn describe(
        &self,
        cx: &BindContext<'_>,
        declared: &[Option<SqlType>],
    ) -> Result<Description> {
        bind::describe(self, cx, declared)
    }

    /// Checks the statement against the catalog and answers what it asks for.
    ///
    /// # Errors
    /// What is wrong with a name, a label, a range or a family, with SQLSTATE and position.
    pub fn bind(&self, cx: &BindContext<'_>, params: &[Datum]) -> Result<Plan> {
        bind::bind(self, cx, params)
    }
}
