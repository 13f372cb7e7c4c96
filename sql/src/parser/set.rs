//! `SET [SESSION | LOCAL] name {= | TO} value`, `SET TIME ZONE`, `SET NAMES`, `SET TRANSACTION`, `RESET`,
//! `DISCARD`.

use super::{PResult, Parsed, Parser};
use crate::lexer::{self, Kind};

impl Parser<'_> {
    pub(super) fn set(&mut self) -> PResult<Parsed> {
        let verb = self.next();
        if self.eat_words(&["SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"]) {
            return self.set_transaction("default_", false);
        }
        let local = self.eat_word("LOCAL");
        if !local && self.is_word(0, "SESSION") && !matches!(self.peek_at(1).kind, Kind::Eq) {
            self.next();
        }
        if self.eat_word("TRANSACTION") {
            return self.set_transaction("", true);
        }
        if self.is_any_word(&["ROLE", "AUTHORIZATION", "CONSTRAINTS"]) {
            let what = self.raw(self.peek()).to_ascii_uppercase();
            return Err(self
                .unsupported(verb.start, format!("SET {what} is not supported"))
                .into());
        }
        let name = if self.eat_words(&["TIME", "ZONE"]) {
            "timezone".to_owned()
        } else if self.eat_word("NAMES") {
            "client_encoding".to_owned()
        } else {
            let name = self.setting_name()?;
            if !self.eat(Kind::Eq) {
                self.expect_word("TO")?;
            }
            name
        };
        let value = if self.eat_word("DEFAULT") || (name == "timezone" && self.eat_word("LOCAL")) {
            None
        } else {
            let mut value = self.setting_value()?;
            while self.eat(Kind::Comma) {
                value.push_str(", ");
                value.push_str(&self.setting_value()?);
            }
            Some(value)
        };
        Ok(Parsed::Set { name, value, local })
    }

    fn set_transaction(&mut self, prefix: &str, local: bool) -> PResult<Parsed> {
        if self.is(Kind::End) {
            return Err(self.unexpected());
        }
        let (isolation, read_only) = self.transaction_modes()?;
        let (name, value) = match (isolation, read_only) {
            (Some(level), _) => ("transaction_isolation", level),
            (None, Some(only)) => ("transaction_read_only", if only { "on" } else { "off" }),
            (None, None) => ("transaction_deferrable", "off"),
        };
        Ok(Parsed::Set {
            name: format!("{prefix}{name}"),
            value: Some(value.to_owned()),
            local,
        })
    }

    /// `name` or `class.name`, folded.
    pub(super) fn setting_name(&mut self) -> PResult<String> {
        let mut name = self.name()?.text.to_ascii_lowercase();
        while self.eat(Kind::Dot) {
            name.push('.');
            name.push_str(&self.name()?.text);
        }
        Ok(name)
    }

    fn setting_value(&mut self) -> PResult<String> {
        let sign = match self.peek().kind {
            Kind::Minus => "-",
            Kind::Plus => "",
            _ => {
                let t = self.next();
                return match t.kind {
                    Kind::Str | Kind::StrDoubled | Kind::StrEscaped | Kind::StrDollar => {
                        Ok(lexer::string_value(self.text, t)?)
                    }
                    Kind::Int | Kind::Decimal => {
                        let mut value = self.raw(t).to_owned();
                        // `SET statement_timeout = 5s`.
                        let unit = self.peek();
                        if unit.kind == Kind::Word && unit.start == t.end {
                            value.push_str(self.raw(unit));
                            self.next();
                        }
                        Ok(value)
                    }
                    Kind::Word => Ok(self.raw(t).to_ascii_lowercase()),
                    Kind::Quoted => Ok(lexer::identifier(self.text, t)),
                    _ => {
                        self.at = self.at.saturating_sub(usize::from(t.kind != Kind::End));
                        Err(self.unexpected())
                    }
                };
            }
        };
        self.next();
        let t = self.peek();
        if !matches!(t.kind, Kind::Int | Kind::Decimal) {
            return Err(self.unexpected());
        }
        self.next();
        Ok(format!("{sign}{}", self.raw(t)))
    }

    pub(super) fn reset(&mut self) -> PResult<Parsed> {
        self.next();
        if self.eat_word("ALL") {
            return Ok(Parsed::ResetAll);
        }
        if self.eat_words(&["SESSION", "AUTHORIZATION"]) || self.eat_word("ROLE") {
            return Ok(Parsed::Nothing("RESET"));
        }
        let name = if self.eat_words(&["TIME", "ZONE"]) {
            "timezone".to_owned()
        } else {
            self.setting_name()?
        };
        Ok(Parsed::Set {
            name,
            value: None,
            local: false,
        })
    }

    pub(super) fn discard(&mut self) -> PResult<Parsed> {
        self.next();
        if self.eat_word("ALL") {
            return Ok(Parsed::DiscardAll);
        }
        // There are no temporary tables and no sequences, and plans are not kept apart from statements.
        for (words, tag) in [
            ("PLANS", "DISCARD PLANS"),
            ("SEQUENCES", "DISCARD SEQUENCES"),
            ("TEMP", "DISCARD TEMP"),
            ("TEMPORARY", "DISCARD TEMP"),
        ] {
            if self.eat_word(words) {
                return Ok(Parsed::Nothing(tag));
            }
        }
        Err(self.unexpected())
    }
}
