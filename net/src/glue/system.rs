//! Catalog questions: gathers from the engine what the named tables need, and lets `sql`'s evaluator answer.

use super::Answer;
use crate::session::Session;
use strandline_core::error::{Error, Result};
use strandline_sql::catalog::SystemQuery;

/// Answers a question about the database itself.
pub async fn run(session: &Session, query: &SystemQuery) -> Result<Answer> {
    let _ = (session, query);
    Err(Error::unsupported(
        "catalog questions are not answered here yet",
    ))
}
