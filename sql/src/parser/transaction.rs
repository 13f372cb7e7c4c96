//! `BEGIN`, `START TRANSACTION`, `COMMIT`, `END`, `ROLLBACK`, `ABORT`, with the words that may follow. READ
//! ONLY counts; the other modes are read and let go: each statement commits by itself, whatever the isolation level.

use super::{PResult, Parsed, Parser};
use crate::lexer::Kind;
use crate::plan::Transaction;

impl Parser<'_> {
    pub(super) fn transaction(&mut self) -> PResult<Parsed> {
        let verb = self.next();
        let word = self.raw(verb).to_ascii_uppercase();
        match word.as_str() {
            "BEGIN" | "START" => {
                let noise =
                    self.eat_word("TRANSACTION") || (word == "BEGIN" && self.eat_word("WORK"));
                if word == "START" && !noise {
                    return Err(self.unexpected());
                }
                let (_, read_only) = self.transaction_modes()?;
                Ok(Parsed::Transaction(Transaction::Begin {
                    read_only: read_only == Some(true),
                }))
            }
            _ => {
                if self.is_word(0, "PREPARED") {
                    return Err(self
                        .unsupported(verb.start, format!("{word} PREPARED is not supported"))
                        .hint("each statement commits by itself")
                        .into());
                }
                let _ = self.eat_word("WORK") || self.eat_word("TRANSACTION");
                if word == "ROLLBACK" && self.is_word(0, "TO") {
                    return Err(self
                        .unsupported(verb.start, "ROLLBACK TO SAVEPOINT is not supported")
                        .hint("each statement commits by itself")
                        .into());
                }
                if self.eat_word("AND") && !self.eat_words(&["NO", "CHAIN"]) {
                    let at = self.peek().start;
                    self.expect_word("CHAIN")?;
                    return Err(self.unsupported(at, "AND CHAIN is not supported").into());
                }
                Ok(Parsed::Transaction(match word.as_str() {
                    "COMMIT" | "END" => Transaction::Commit,
                    _ => Transaction::Rollback,
                }))
            }
        }
    }

    /// ISOLATION LEVEL x, READ ONLY, READ WRITE, [NOT] DEFERRABLE; commas between them are optional. Answers
    /// the isolation level, lower case, and read only.
    pub(super) fn transaction_modes(&mut self) -> PResult<(Option<&'static str>, Option<bool>)> {
        let mut found = (None, None);
        let mut more = !self.is(Kind::End);
        while more {
            if self.eat_words(&["ISOLATION", "LEVEL"]) {
                found.0 = Some(if self.eat_word("SERIALIZABLE") {
                    "serializable"
                } else if self.eat_words(&["REPEATABLE", "READ"]) {
                    "repeatable read"
                } else if self.eat_words(&["READ", "COMMITTED"]) {
                    "read committed"
                } else if self.eat_words(&["READ", "UNCOMMITTED"]) {
                    "read uncommitted"
                } else {
                    return Err(self.unexpected());
                });
            } else if self.eat_words(&["READ", "ONLY"]) {
                found.1 = Some(true);
            } else if self.eat_words(&["READ", "WRITE"]) {
                found.1 = Some(false);
            } else if !self.eat_word("DEFERRABLE") && !self.eat_words(&["NOT", "DEFERRABLE"]) {
                return Err(self.unexpected());
            }
            more = self.eat(Kind::Comma) || !self.is(Kind::End);
        }
        Ok(found)
    }
}
