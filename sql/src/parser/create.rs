//! `CREATE TABLE` and `CREATE ROWS TABLE`.

use super::{PResult, Parsed, Parser};
use crate::ast::{ColumnDecl, Create, TableOption};
use crate::lexer::Kind;
use strandline_core::error::SqlState;
use strandline_core::schema::Label;

impl Parser<'_> {
    pub(super) fn create(&mut self) -> PResult<Parsed> {
        let at = self.next().start;
        for (word, family) in [("KV", "kv"), ("MUTABLE", "dataspace")] {
            if self.is_word(0, word) && self.is_word(1, "TABLE") {
                return Err(self
                    .unsupported(
                        at,
                        format!("CREATE {word} TABLE is not supported yet: the {family} family comes later"),
                    )
                    .hint("CREATE ROWS TABLE makes a registry with compare-and-set and a feed")
                    .into());
            }
        }
        let rows = self.eat_word("ROWS");
        if !self.eat_word("TABLE") {
            if rows {
                return Err(self.unexpected());
            }
            return Err(self.refused_object("CREATE", at));
        }
        let if_not_exists = self.eat_words(&["IF", "NOT", "EXISTS"]);
        let table = self.table_name()?;
        if self.is_word(0, "AS") {
            return Err(self
                .unsupported(at, "CREATE TABLE … AS is not supported")
                .into());
        }
        self.require(Kind::LParen)?;
        let mut columns = Vec::new();
        if !self.eat(Kind::RParen) {
            loop {
                columns.push(self.column_decl()?);
                if !self.eat(Kind::Comma) {
                    break;
                }
            }
            self.require(Kind::RParen)?;
        }
        let mut create = Create {
            rows,
            if_not_exists,
            table,
            columns,
            options: Vec::new(),
        };
        loop {
            let t = self.peek();
            if self.eat_word("WITH") {
                self.require(Kind::LParen)?;
                loop {
                    create.options.push(self.table_option()?);
                    if !self.eat(Kind::Comma) {
                        break;
                    }
                }
                self.require(Kind::RParen)?;
            } else if self.is_word(0, "PARTITION") {
                return Err(self.later(t.start, rows, "PARTITION BY"));
            } else if self.is_word(0, "NATURAL") {
                return Err(self
                    .unsupported(
                        t.start,
                        "NATURAL KEY belongs to mutable dataspaces, which come later",
                    )
                    .into());
            } else if self.is_any_word(&["INHERITS", "TABLESPACE", "USING", "ON"]) {
                let word = self.raw(t).to_ascii_uppercase();
                return Err(self
                    .unsupported(t.start, format!("{word} in CREATE TABLE is not supported"))
                    .into());
            } else {
                break;
            }
        }
        Ok(Parsed::Create(create))
    }

    /// A clause that belongs to timeseries tables, and comes later there.
    fn later(&self, at: u32, rows: bool, clause: &str) -> super::Fail {
        let message = if rows {
            format!("{clause} is not possible on a rows table: it belongs to timeseries tables")
        } else {
            format!("{clause} is not supported yet")
        };
        self.unsupported(at, message).into()
    }

    fn table_option(&mut self) -> PResult<(TableOption, u32)> {
        let t = self.peek();
        let word = self.raw(t).to_ascii_uppercase();
        let option = match word.as_str() {
            _ if t.kind != Kind::Word => return Err(self.unexpected()),
            "ENTITY" => {
                self.next();
                if self.eat_word("TAG") {
                    TableOption::EntityTag(self.name()?)
                } else {
                    self.expect_word("UUID")?;
                    TableOption::EntityUuid
                }
            }
            "RETENTION" => {
                self.next();
                TableOption::Retention(self.duration()?)
            }
            "MUTABLE" => {
                self.next();
                TableOption::Mutable
            }
            "DEDUP" => {
                self.next();
                TableOption::Dedup
            }
            "AUTHORITY" | "SCHEMA" | "SYNC" => {
                let message =
                    format!("WITH ({word}) belongs to mutable dataspaces, which come later");
                return Err(self.unsupported(t.start, message).into());
            }
            _ => {
                let message = format!("unrecognized table option \"{}\"", self.raw(t));
                return Err(self
                    .error(SqlState::InvalidParameterValue, t.start, message)
                    .hint("timeseries tables take WITH (RETENTION 90 d, MUTABLE, DEDUP, ENTITY UUID, ENTITY TAG name)")
                    .into());
            }
        };
        Ok((option, t.start))
    }

    pub(super) fn column_decl(&mut self) -> PResult<ColumnDecl> {
        let constraint = self.is_any_word(&[
            "PRIMARY",
            "UNIQUE",
            "CHECK",
            "FOREIGN",
            "CONSTRAINT",
            "EXCLUDE",
        ]);
        if constraint && self.peek_at(1).kind != Kind::Comma {
            return Err(self.constraint_refused());
        }
        let name = self.name()?;
        let label = self.label()?;
        let mut column = ColumnDecl {
            name,
            label,
            fill: None,
            staleness: None,
        };
        loop {
            let t = self.peek();
            if self.eat_word("FILL") {
                let hold = self.eat_word("HOLD");
                if !hold {
                    self.expect_word("NONE")?;
                }
                column.fill = Some((hold, t.start));
            } else if self.eat_word("STALENESS") {
                column.staleness = Some((self.duration()?, t.start));
            } else if self.is_any_word(&[
                "PRIMARY",
                "UNIQUE",
                "CHECK",
                "REFERENCES",
                "CONSTRAINT",
                "DEFAULT",
                "NOT",
                "COLLATE",
                "GENERATED",
            ]) {
                return Err(self.constraint_refused());
            } else if !self.eat_word("NULL") {
                return Ok(column);
            }
        }
    }

    fn constraint_refused(&self) -> super::Fail {
        let t = self.peek();
        let first = self.raw(t).to_ascii_uppercase();
        let what = match first.as_str() {
            "NOT" => "NOT NULL",
            "PRIMARY" => "PRIMARY KEY",
            "FOREIGN" => "FOREIGN KEY",
            other => other,
        };
        self.unsupported(t.start, format!("{what} is not supported on a column"))
            .hint("columns have a name, a type and on timeseries tables FILL and STALENESS; every column may be NULL")
            .into()
    }

    /// A type that a column can have, or `0A000`.
    fn label(&mut self) -> PResult<Label> {
        let t = self.peek();
        if !matches!(t.kind, Kind::Word | Kind::Quoted) {
            return Err(self.unexpected());
        }
        let word = crate::lexer::identifier(self.text, t);
        self.next();
        let mut label = match word.as_str() {
            "double" => {
                self.eat_word("PRECISION");
                Label::Double
            }
            "float8" | "float" | "real" | "f64" => Label::Double,
            "int" | "integer" | "bigint" | "int8" | "int64" | "smallint" => Label::Int,
            "bool" | "boolean" => Label::Bool,
            "timestamp" | "timestamptz" => Label::Timestamp,
            "text" | "string" | "symbol" | "varchar" => Label::TEXT,
            _ => return Err(self.type_refused(t.start, &word)),
        };
        if word == "varchar" && self.eat(Kind::LParen) {
            let at = self.peek().start;
            let n = self.unsigned()?;
            self.require(Kind::RParen)?;
            let max = u32::try_from(n)
                .ok()
                .filter(|n| (1..=10_485_760).contains(n));
            let Some(max) = max else {
                return Err(self
                    .error(
                        SqlState::InvalidParameterValue,
                        at,
                        "the length of VARCHAR(n) must be from 1 to 10485760",
                    )
                    .into());
            };
            label = Label::Text {
                max_chars: Some(max),
            };
        }
        let next = self.peek();
        let array = next.kind == Kind::Other && self.raw(next) == "[";
        if array
            || next.kind == Kind::LParen
            || self.is_any_word(&["WITH", "WITHOUT", "VARYING", "ARRAY"])
        {
            let shown = if array {
                format!("{word}[]")
            } else {
                format!("{word} {}", self.raw(next))
            };
            return Err(self.type_refused(t.start, &shown));
        }
        Ok(label)
    }

    fn type_refused(&self, at: u32, word: &str) -> super::Fail {
        self.unsupported(at, format!("the type {word} is not supported"))
            .hint("columns are DOUBLE, INT, BOOL, TIMESTAMP, TEXT or VARCHAR(n)")
            .into()
    }
}
