//! `EXPLAIN [ANALYZE] statement`, `EXPLAIN (option [value], …) statement`.

use super::{PResult, Parsed, Parser, parse_one};
use crate::lexer::{self, Kind};
use strandline_core::error::SqlState;

/// PostgreSQL's options, of which only ANALYZE does something.
const OTHER_OPTIONS: &[&str] = &[
    "VERBOSE",
    "COSTS",
    "SETTINGS",
    "GENERIC_PLAN",
    "BUFFERS",
    "WAL",
    "TIMING",
    "SUMMARY",
];

impl Parser<'_> {
    pub(super) fn explain(&mut self) -> PResult<Parsed> {
        self.next();
        let mut analyze = false;
        if self.eat(Kind::LParen) {
            loop {
                self.explain_option(&mut analyze)?;
                if !self.eat(Kind::Comma) {
                    break;
                }
            }
            self.require(Kind::RParen)?;
        } else {
            analyze = self.eat_word("ANALYZE") || self.eat_word("ANALYSE");
            if self.is_word(0, "VERBOSE") {
                return Err(self.no_option("VERBOSE"));
            }
        }
        let at = self.peek().start;
        if self.is_word(0, "EXECUTE") {
            return Err(self
                .unsupported(at, "EXPLAIN EXECUTE is not supported")
                .hint("EXPLAIN the statement itself, with its values")
                .into());
        }
        let begins = [
            "SELECT", "WITH", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE",
        ];
        if !self.is_any_word(&begins) && !self.is(Kind::LParen) {
            return Err(self.unexpected());
        }
        if analyze && self.is_any_word(&["INSERT", "UPDATE", "DELETE"]) {
            return Err(self
                .unsupported(
                    at,
                    "EXPLAIN ANALYZE of a statement that writes is not supported",
                )
                .hint("EXPLAIN without ANALYZE shows its target and writes nothing")
                .into());
        }
        let statement = parse_one(self.source, &self.tokens[self.at..], self.limits)?;
        self.at = self.tokens.len() - 1;
        Ok(Parsed::Explain {
            analyze,
            statement: Box::new(statement),
        })
    }

    fn explain_option(&mut self, analyze: &mut bool) -> PResult<()> {
        let t = self.peek();
        if t.kind != Kind::Word {
            return Err(self.unexpected());
        }
        self.next();
        let word = self.raw(t).to_ascii_uppercase();
        if word == "FORMAT" {
            let t = self.next();
            return match self.raw(t).to_ascii_uppercase().as_str() {
                "TEXT" => Ok(()),
                format @ ("JSON" | "XML" | "YAML") => Err(self
                    .unsupported(
                        t.start,
                        format!("EXPLAIN (FORMAT {format}) is not supported"),
                    )
                    .hint("EXPLAIN (FORMAT TEXT), which is the default")
                    .into()),
                _ => Err(self
                    .error(
                        SqlState::InvalidParameterValue,
                        t.start,
                        format!(
                            "unrecognized value for EXPLAIN option \"format\": \"{}\"",
                            self.raw(t)
                        ),
                    )
                    .into()),
            };
        }
        let on = self.switch()?;
        match word.as_str() {
            "ANALYZE" | "ANALYSE" => *analyze = on,
            // What is not asked for is not shown.
            other if OTHER_OPTIONS.contains(&other) && !on => {}
            other if OTHER_OPTIONS.contains(&other) => {
                return Err(self.no_option_at(other, t.start));
            }
            _ => {
                return Err(lexer::syntax(
                    self.text,
                    t.start,
                    format!(
                        "unrecognized EXPLAIN option \"{}\"",
                        self.raw(t).to_ascii_lowercase()
                    ),
                )
                .into());
            }
        }
        Ok(())
    }

    /// The value behind an option: on when there is none.
    fn switch(&mut self) -> PResult<bool> {
        let t = self.peek();
        let raw = self.raw(t).trim_matches('\'').to_ascii_lowercase();
        let on = match (t.kind, raw.as_str()) {
            (Kind::Comma | Kind::RParen, _) => return Ok(true),
            (Kind::Word | Kind::Str, "on" | "true") => true,
            (Kind::Word | Kind::Str, "off" | "false") => false,
            (Kind::Int, "1") => true,
            (Kind::Int, "0") => false,
            _ => return Err(self.unexpected()),
        };
        self.next();
        Ok(on)
    }

    fn no_option(&self, name: &str) -> super::Fail {
        self.no_option_at(name, self.peek().start)
    }

    fn no_option_at(&self, name: &str, at: u32) -> super::Fail {
        self.unsupported(at, format!("EXPLAIN option {name} is not supported"))
            .hint("EXPLAIN, EXPLAIN ANALYZE, EXPLAIN (ANALYZE, FORMAT TEXT)")
            .into()
    }
}
