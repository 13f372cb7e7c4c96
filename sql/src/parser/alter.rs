//! `ALTER TABLE [IF EXISTS] t action, …`: ADD COLUMN, DROP COLUMN, RENAME COLUMN a TO b, RENAME TO b,
//! ALTER COLUMN c SET FILL …, SET RETENTION ….

use super::{PResult, Parsed, Parser};
use crate::ast::{Alter, AlterAction};
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn alter(&mut self) -> PResult<Parsed> {
        let at = self.next().start;
        if !self.eat_word("TABLE") {
            return Err(self.refused_object("ALTER", at));
        }
        let if_exists = self.if_exists();
        // Tables have no children, so ONLY asks for what happens anyway.
        self.eat_word("ONLY");
        let table = self.table_name()?;
        let mut actions = Vec::new();
        loop {
            actions.push(self.alter_action()?);
            if !self.eat(Kind::Comma) {
                break;
            }
        }
        Ok(Parsed::Alter(Alter {
            table,
            if_exists,
            actions,
            at,
        }))
    }

    fn alter_action(&mut self) -> PResult<AlterAction> {
        let t = self.peek();
        if self.eat_word("ADD") {
            let named = self.eat_word("COLUMN");
            let constraint = [
                "PRIMARY",
                "UNIQUE",
                "CHECK",
                "FOREIGN",
                "CONSTRAINT",
                "EXCLUDE",
            ];
            if !named && self.is_any_word(&constraint) {
                return Err(self
                    .unsupported(t.start, "constraints are not supported")
                    .into());
            }
            let if_not_exists = self.eat_words(&["IF", "NOT", "EXISTS"]);
            return Ok(AlterAction::Add {
                column: self.column_decl()?,
                if_not_exists,
            });
        }
        if self.eat_word("DROP") {
            let named = self.eat_word("COLUMN");
            if !named && self.is_word(0, "CONSTRAINT") {
                return Err(self
                    .unsupported(t.start, "constraints are not supported")
                    .into());
            }
            let if_exists = self.if_exists();
            let column = self.name()?;
            // Nothing depends on a column.
            let _ = self.eat_word("CASCADE") || self.eat_word("RESTRICT");
            return Ok(AlterAction::Drop { column, if_exists });
        }
        if self.eat_word("RENAME") {
            if self.eat_word("TO") {
                return Ok(AlterAction::Rename { to: self.name()? });
            }
            self.eat_word("COLUMN");
            let from = self.name()?;
            self.expect_word("TO")?;
            return Ok(AlterAction::RenameColumn {
                from,
                to: self.name()?,
            });
        }
        if let Some(action) = self.set_fill()? {
            return Ok(action);
        }
        if self.is_word(0, "SET") && self.is_word(1, "RETENTION") {
            self.next();
            let at = self.next().start;
            let ms = match self.eat_word("NONE") {
                true => None,
                false => Some(self.duration()?),
            };
            return Ok(AlterAction::SetRetention { ms, at });
        }
        const OTHERS: &[&str] = &[
            "ALTER", "ATTACH", "CLUSTER", "DETACH", "DISABLE", "ENABLE", "FORCE", "INHERIT", "NO",
            "NOT", "OF", "OWNER", "PROMOTE", "REPLICA", "RESET", "SET", "VALIDATE",
        ];
        if self.is_any_word(OTHERS) {
            let mut what = self.raw(t).to_ascii_uppercase();
            if what == "ALTER" {
                // Of a column: what is to become of it says more.
                let name = 1 + usize::from(self.is_word(1, "COLUMN"));
                what = format!("ALTER COLUMN … {}", self.raw(self.peek_at(name + 1)));
            }
            return Err(self
                .unsupported(t.start, format!("ALTER TABLE … {what} is not supported"))
                .hint("ADD COLUMN, DROP COLUMN, RENAME COLUMN … TO and RENAME TO are, and on timeseries tables ALTER COLUMN … SET FILL and SET RETENTION")
                .into());
        }
        Err(self.unexpected())
    }

    /// `ALTER [COLUMN] c SET FILL …`, when it is that.
    fn set_fill(&mut self) -> PResult<Option<AlterAction>> {
        let name = 1 + usize::from(self.is_word(1, "COLUMN"));
        let words = self.is_word(0, "ALTER")
            && self.is_word(name + 1, "SET")
            && self.is_word(name + 2, "FILL");
        if !words {
            return Ok(None);
        }
        (0..name).for_each(|_| {
            self.next();
        });
        let column = self.name()?;
        self.next();
        let at = self.peek().start;
        self.expect_word("FILL")?;
        let hold = self.eat_word("HOLD");
        if !hold {
            self.expect_word("NONE")?;
        }
        let stale_at = self.peek().start;
        let staleness = match self.eat_word("STALENESS") {
            true => Some((self.duration()?, stale_at)),
            false => None,
        };
        Ok(Some(AlterAction::SetFill {
            column,
            hold,
            staleness,
            at,
        }))
    }
}
