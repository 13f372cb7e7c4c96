//! `UPDATE t SET c = v, … WHERE …` and `DELETE FROM t WHERE …`. Which conditions a family takes is the
//! binder's to say.

use super::{PResult, Parsed, Parser};
use crate::ast::{Delete, Expr, ExprKind, Update};
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn update(&mut self) -> PResult<Parsed> {
        let begin = self.at;
        match self.update_body() {
            Ok(update) => Ok(Parsed::Update(update)),
            Err(e) => Err(self.or_general(e, begin)),
        }
    }

    fn update_body(&mut self) -> PResult<Update> {
        self.next();
        self.eat_word("ONLY");
        let table = self.table_name()?;
        if !self.is_word(0, "SET") && (self.eat_word("AS") || self.is_name()) {
            self.name()?;
        }
        if self.is_word(0, "IN") && self.is_word(1, "RANGE") {
            return Err(self.partitioned("UPDATE"));
        }
        self.expect_word("SET")?;
        let mut set = Vec::new();
        loop {
            if self.is(Kind::LParen) {
                return Err(self.general(self.peek().start, "SET of several columns at once"));
            }
            let column = self.name()?;
            self.require(Kind::Eq)?;
            let value = if self.is_word(0, "DEFAULT") {
                let at = self.next().start;
                Expr {
                    kind: ExprKind::Null,
                    at,
                }
            } else {
                self.expr()?
            };
            set.push((column, value));
            if !self.eat(Kind::Comma) {
                break;
            }
        }
        if self.is_word(0, "FROM") {
            return Err(self.general(self.peek().start, "FROM"));
        }
        if self.is_word(0, "IN") && self.is_word(1, "RANGE") {
            return Err(self.partitioned("UPDATE"));
        }
        let filter = self
            .eat_word("WHERE")
            .then(|| self.condition())
            .transpose()?;
        let returning = self.returning()?;
        self.done()?;
        Ok(Update {
            table,
            set,
            filter,
            returning,
        })
    }

    pub(super) fn delete(&mut self) -> PResult<Parsed> {
        let begin = self.at;
        match self.delete_body() {
            Ok(delete) => Ok(Parsed::Delete(delete)),
            Err(e) => Err(self.or_general(e, begin)),
        }
    }

    fn delete_body(&mut self) -> PResult<Delete> {
        self.next();
        self.expect_word("FROM")?;
        self.eat_word("ONLY");
        let table = self.table_name()?;
        if self.is_word(0, "IN") && self.is_word(1, "RANGE") {
            return Err(self.partitioned("DELETE"));
        }
        if self.is_word(0, "USING") {
            return Err(self.general(self.peek().start, "USING"));
        }
        if self.eat_word("AS") || self.is_name() {
            self.name()?;
        }
        let filter = self
            .eat_word("WHERE")
            .then(|| self.condition())
            .transpose()?;
        let returning = self.returning()?;
        self.done()?;
        Ok(Delete {
            table,
            filter,
            returning,
        })
    }

    fn partitioned(&self, verb: &str) -> super::Fail {
        self.unsupported(
            self.peek().start,
            format!("{verb} … IN RANGE is not supported: it belongs to tables with PARTITION BY"),
        )
        .into()
    }
}
