//! `DROP TABLE [IF EXISTS] a, b [CASCADE | RESTRICT]`.

use super::{PResult, Parsed, Parser};
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn drop(&mut self) -> PResult<Parsed> {
        let at = self.next().start;
        if !self.eat_word("TABLE") {
            return Err(self.refused_object("DROP", at));
        }
        let if_exists = self.if_exists();
        let mut tables = vec![self.table_name()?];
        while self.eat(Kind::Comma) {
            tables.push(self.table_name()?);
        }
        // Nothing depends on a table, so both words ask for what happens anyway.
        let _ = self.eat_word("CASCADE") || self.eat_word("RESTRICT");
        Ok(Parsed::Drop { tables, if_exists })
    }
}
