//! Catalog questions: gathers from the engine what the named tables need, and lets `sql`'s evaluator answer.

use super::Answer;
use crate::session::Session;
use strandline_core::error::{Error, Result};
use strandline_sql::catalog::SystemQuery;
use strandline_sql::types::SqlType;

/// Answers a question about the database itself.
pub async fn run(session: &Session, query: &SystemQuery) -> Result<Answer> {
    let _ = (session, query);
    Err(Error::unsupported(
        "catalog questions are not answered here yet",
    ))
}

/// The columns of its answer, before it is asked.
pub fn describe(session: &Session, query: &SystemQuery) -> Result<Vec<(String, SqlType)>> {
    let _ = (session, query);
    Err(Error::unsupported(
        "catalog questions are not answered here yet",
    ))
}
