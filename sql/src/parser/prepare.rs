//! `PREPARE name [(types)] AS statement`, `EXECUTE name [(values)]`, `DEALLOCATE [PREPARE] {name | ALL}`.

use super::{PResult, Parsed, Parser, parse_one};
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn prepare(&mut self) -> PResult<Parsed> {
        let at = self.next().start;
        if self.is_word(0, "TRANSACTION") {
            return Err(self
                .unsupported(at, "PREPARE TRANSACTION is not supported")
                .hint("each statement commits by itself")
                .into());
        }
        let name = self.name()?.text;
        let mut declared = Vec::new();
        if self.eat(Kind::LParen) {
            loop {
                declared.push(
                    (!self.eat_word("UNKNOWN"))
                        .then(|| self.type_name())
                        .transpose()?,
                );
                if !self.eat(Kind::Comma) {
                    break;
                }
            }
            self.require(Kind::RParen)?;
        }
        self.expect_word("AS")?;
        if !self.is_any_word(&["SELECT", "WITH", "VALUES", "INSERT", "UPDATE", "DELETE"]) {
            return Err(self.unexpected());
        }
        let statement = parse_one(self.source, &self.tokens[self.at..], self.limits)?;
        self.at = self.tokens.len() - 1;
        Ok(Parsed::Prepare {
            name,
            declared,
            statement: Box::new(statement),
        })
    }

    pub(super) fn execute(&mut self) -> PResult<Parsed> {
        self.next();
        let name = self.name()?.text;
        let mut arguments = Vec::new();
        if self.eat(Kind::LParen) && !self.eat(Kind::RParen) {
            loop {
                arguments.push(self.expr()?);
                if !self.eat(Kind::Comma) {
                    break;
                }
            }
            self.require(Kind::RParen)?;
        }
        Ok(Parsed::Execute { name, arguments })
    }

    pub(super) fn deallocate(&mut self) -> PResult<Parsed> {
        self.next();
        self.eat_word("PREPARE");
        if self.eat_word("ALL") {
            return Ok(Parsed::Deallocate(None));
        }
        Ok(Parsed::Deallocate(Some(self.name()?.text)))
    }
}
