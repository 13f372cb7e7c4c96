//! `SHOW TABLES`, `SHOW TABLE t`, `SHOW FEED t`, `SHOW name`, `SHOW ALL`, `DESCRIBE t`.

use super::{PResult, Parsed, Parser};
use crate::lexer::Kind;

impl Parser<'_> {
    pub(super) fn show(&mut self) -> PResult<Parsed> {
        let verb = self.next();
        let alone = self.peek_at(1).kind == Kind::End;
        if alone && self.eat_word("TABLES") {
            return Ok(Parsed::ShowTables);
        }
        if alone && self.eat_word("ALL") {
            return Ok(Parsed::ShowSetting(None));
        }
        if self.eat_word("TABLE") {
            return Ok(Parsed::ShowTable(self.table_name()?));
        }
        if !alone && self.eat_word("FEED") {
            return Ok(Parsed::ShowFeed(self.table_name()?));
        }
        if self.is_any_word(&["PARTITIONS", "DISK_USAGE", "PENDING"]) {
            let what = self.raw(self.peek()).to_ascii_uppercase();
            return Err(self
                .unsupported(verb.start, format!("SHOW {what} is not supported yet"))
                .hint("SELECT * FROM $sys.segments shows rows and bytes by shard")
                .into());
        }
        for (words, name) in [
            (
                &["TRANSACTION", "ISOLATION", "LEVEL"][..],
                "transaction_isolation",
            ),
            (&["TIME", "ZONE"][..], "timezone"),
            (&["SESSION", "AUTHORIZATION"][..], "session_authorization"),
        ] {
            if self.eat_words(words) {
                return Ok(Parsed::ShowSetting(Some(name.to_owned())));
            }
        }
        Ok(Parsed::ShowSetting(Some(self.setting_name()?)))
    }

    pub(super) fn describe(&mut self) -> PResult<Parsed> {
        self.next();
        self.eat_word("TABLE");
        Ok(Parsed::ShowTable(self.table_name()?))
    }
}
