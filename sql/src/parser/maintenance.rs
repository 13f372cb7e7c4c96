//! `CHECKPOINT`, `VACUUM [VERBOSE] t`, and what drivers send to tidy up (`CLOSE ALL`, `UNLISTEN *`), which
//! finds nothing to do.

use super::{PResult, Parsed, Parser};
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn checkpoint(&mut self) -> PResult<Parsed> {
        self.next();
        Ok(Parsed::Checkpoint)
    }

    pub(super) fn vacuum(&mut self) -> PResult<Parsed> {
        let at = self.next().start;
        let mut verbose = false;
        if self.eat(Kind::LParen) {
            self.vacuum_option(&mut verbose)?;
            while self.eat(Kind::Comma) {
                self.vacuum_option(&mut verbose)?;
            }
            self.require(Kind::RParen)?;
        } else {
            verbose = self.eat_word("VERBOSE");
            if self.is_any_word(&["FULL", "FREEZE", "ANALYZE"]) {
                return Err(self.vacuum_refused());
            }
        }
        if self.is(Kind::End) {
            return Err(self
                .unsupported(at, "VACUUM without a table is not supported")
                .hint("name a rows table: VACUUM t")
                .into());
        }
        let table = self.table_name()?;
        Ok(Parsed::Vacuum { table, verbose })
    }

    fn vacuum_option(&mut self, verbose: &mut bool) -> PResult<()> {
        if !self.eat_word("VERBOSE") {
            return Err(if self.is_any_word(&["FULL", "FREEZE", "ANALYZE"]) {
                self.vacuum_refused()
            } else {
                self.unexpected()
            });
        }
        *verbose = true;
        for (word, on) in [
            ("TRUE", true),
            ("ON", true),
            ("FALSE", false),
            ("OFF", false),
        ] {
            if self.eat_word(word) {
                *verbose = on;
            }
        }
        Ok(())
    }

    fn vacuum_refused(&self) -> super::Fail {
        let t = self.peek();
        let word = self.raw(t).to_ascii_uppercase();
        self.unsupported(t.start, format!("VACUUM {word} is not supported"))
            .hint("VACUUM [VERBOSE] t purges a rows table's tombstones")
            .into()
    }

    pub(super) fn nothing(&mut self) -> PResult<Parsed> {
        let verb = self.next();
        let upper = self.raw(verb).to_ascii_uppercase();
        if upper == "CLOSE" {
            if self.eat_word("ALL") {
                return Ok(Parsed::Nothing("CLOSE CURSOR ALL"));
            }
            return Err(self.refused_verb("CLOSE"));
        }
        if self.eat(Kind::Star) {
            return Ok(Parsed::Nothing("UNLISTEN"));
        }
        self.name()?;
        Ok(Parsed::Nothing("UNLISTEN"))
    }
}
