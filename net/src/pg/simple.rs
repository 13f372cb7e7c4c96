//! Simple query: several statements in one message, each committing by itself; the first error ends it.

use super::Connection;
use super::io::Fail;
use super::out::Formats;
use crate::session::kind_of;
use futures_lite::{AsyncRead, AsyncWrite};
use strandline_sql::Statement;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) async fn simple(&mut self, text: &str) -> Result<(), Fail> {
        // As in PostgreSQL, a simple query takes the unnamed statement and portal with it.
        self.statements.remove("");
        self.portals.remove("");
        let statements = strandline_sql::parse(text, self.session.context().limits())?;
        if statements.is_empty() {
            self.io.out.bare(b'I');
        }
        for statement in &statements {
            self.simple_one(statement).await?;
        }
        self.ready();
        Ok(())
    }

    async fn simple_one(&mut self, statement: &Statement) -> Result<(), Fail> {
        let began = self.session.context().engine.monotonic_ns();
        self.session.check_block(statement)?;
        let mut watch = self.session.watch();
        let plan = self.session.bind(statement, &[])?;
        let kind = kind_of(&plan);
        let answer = self.carry_out(plan, &mut watch).await?;
        let mut sent = 0;
        if let Some(mut rows) = answer.rows {
            let columns = rows.columns().clone();
            let shown = columns.iter().map(|c| (c.name.as_str(), c.ty));
            self.io.out.row_description(shown, &Formats::TEXT)?;
            (_, sent) = self
                .send_rows(&mut watch, &mut rows, &Formats::TEXT, u64::MAX)
                .await?;
        }
        self.complete(answer.tag, sent);
        if self.session.is_idle() {
            // Portals end with their block, as in PostgreSQL.
            self.portals.clear();
        }
        self.count(kind, began);
        Ok(())
    }
}
