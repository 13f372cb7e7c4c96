//! Tokens to statements. The grammars of telemetry and of the state families are small and hot, so they are
//! parsed here by hand, one statement per file; `sqlparser` takes questions about the catalog and tells SQL
//! that is merely unsupported from text that is no SQL at all ([`system`]).
//!
//! Nothing is looked up here: what a statement means, and whether it may, is decided in [`crate::bind`].
//! What is understood and refused becomes a statement too, so that statements before it in one message run.

mod alter;
mod create;
mod dialect;
mod drop;
mod explain;
mod expr;
mod insert;
mod maintenance;
mod prepare;
mod refuse;
mod select;
mod set;
mod show;
mod system;
mod transaction;
mod update;

use crate::ast::{Alter, Create, Delete, General, Insert, Name, Select, Update};
use crate::lexer::{self, Kind, Token};
use crate::plan::Transaction;
use crate::statement::Statement;
use crate::types::SqlType;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::limits::Limits;

/// A statement as parsed.
#[derive(Clone, Debug)]
pub(crate) enum Parsed {
    /// Nothing.
    Empty,
    /// CREATE.
    Create(Create),
    /// ALTER TABLE.
    Alter(Alter),
    /// DROP TABLE.
    Drop {
        /// Which.
        tables: Vec<Name>,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// INSERT.
    Insert(Insert),
    /// UPDATE.
    Update(Update),
    /// DELETE.
    Delete(Delete),
    /// SELECT over a table of the user.
    Select(Box<Select>),
    /// SELECT over the catalog or no table.
    System(Box<sqlparser::ast::Query>),
    /// SHOW TABLES.
    ShowTables,
    /// SHOW TABLE t, DESCRIBE t.
    ShowTable(Name),
    /// SHOW FEED t.
    ShowFeed(Name),
    /// SHOW name, SHOW ALL.
    ShowSetting(Option<String>),
    /// SET, RESET.
    Set {
        /// Folded name.
        name: String,
        /// As text; none: DEFAULT.
        value: Option<String>,
        /// LOCAL.
        local: bool,
    },
    /// RESET ALL.
    ResetAll,
    /// DISCARD ALL.
    DiscardAll,
    /// BEGIN and its like.
    Transaction(Transaction),
    /// CHECKPOINT.
    Checkpoint,
    /// VACUUM.
    Vacuum {
        /// Which table.
        table: Name,
        /// VERBOSE.
        verbose: bool,
    },
    /// PREPARE.
    Prepare {
        /// Its name.
        name: String,
        /// The types written behind the name.
        declared: Vec<Option<SqlType>>,
        /// What is prepared.
        statement: Box<Statement>,
    },
    /// EXPLAIN.
    Explain {
        /// ANALYZE: it is run too.
        analyze: bool,
        /// What is explained.
        statement: Box<Statement>,
    },
    /// EXECUTE.
    Execute {
        /// Its name.
        name: String,
        /// Its arguments.
        arguments: Vec<crate::ast::Expr>,
    },
    /// DEALLOCATE.
    Deallocate(Option<String>),
    /// Accepted, and nothing to do: its tag.
    Nothing(&'static str),
    /// Understood and not supported; the table's family decides what to say.
    General(Box<General>),
    /// Refused whatever the catalog says.
    Refused(Error),
}

/// Why parsing stopped.
pub(crate) enum Fail {
    /// An error to show as it is.
    Error(Error),
    /// SQL that Strandline does not do.
    General(Box<General>),
}

impl From<Error> for Fail {
    fn from(e: Error) -> Self {
        Fail::Error(e)
    }
}

pub(crate) type PResult<T> = std::result::Result<T, Fail>;

/// Parses all statements of a text; blanks and comments alone make one empty statement.
///
/// # Errors
/// `42601` with a position for text that is no SQL, `54000` and `54001` for too much of it. What is merely
/// not supported is an error of [`Statement::bind`], not of this.
pub fn parse(text: &str, limits: &Limits) -> Result<Vec<Statement>> {
    let tokens = lexer::tokenize(text, limits)?;
    let source: Arc<str> = text.into();
    let mut statements = Vec::new();
    let mut begin = 0;
    for (i, token) in tokens.iter().enumerate() {
        if !matches!(token.kind, Kind::Semicolon | Kind::End) {
            continue;
        }
        if i > begin {
            statements.push(parse_one(&source, &tokens[begin..=i], limits)?);
        }
        begin = i + 1;
    }
    if statements.is_empty() {
        statements.push(Statement::new(source, (0, 0), Parsed::Empty, 0));
    }
    Ok(statements)
}

/// Parses one statement; the last of `tokens` is its end.
fn parse_one(source: &Arc<str>, tokens: &[Token], limits: &Limits) -> Result<Statement> {
    let mut parser = Parser {
        text: source,
        source,
        tokens,
        at: 0,
        limits,
        depth: 0,
        parameters: 0,
        spaced_units: true,
        in_own_clause: false,
    };
    let span = (
        tokens.first().map_or(0, |t| t.start),
        tokens[..tokens.len() - 1].last().map_or(0, |t| t.end),
    );
    let parsed = match parser.statement() {
        Ok(parsed) => parsed,
        Err(Fail::General(general)) => Parsed::General(general),
        Err(Fail::Error(e)) => match e.state() {
            SqlState::SyntaxError
            | SqlState::ProgramLimitExceeded
            | SqlState::StatementTooComplex
            | SqlState::UndefinedParameter => return Err(e),
            _ => Parsed::Refused(e),
        },
    };
    let parameters = tokens
        .iter()
        .filter(|t| t.kind == Kind::Param)
        .filter_map(|t| source[t.start as usize + 1..t.end as usize].parse().ok())
        .max();
    Ok(Statement::new(
        source.clone(),
        span,
        parsed,
        parameters.unwrap_or(0),
    ))
}

/// Walks the tokens of one statement.
pub(crate) struct Parser<'a> {
    text: &'a str,
    source: &'a Arc<str>,
    tokens: &'a [Token],
    at: usize,
    limits: &'a Limits,
    depth: u64,
    parameters: usize,
    /// Whether `60 s` is a duration here: not where `s` could be an alias.
    spaced_units: bool,
    /// Reading a clause that no other SQL has.
    in_own_clause: bool,
}

/// Words that are no identifier without quotes, as in PostgreSQL.
const RESERVED: &[&str] = &[
    "all",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "between",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "default",
    "desc",
    "distinct",
    "else",
    "end",
    "except",
    "exists",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "ilike",
    "in",
    "inner",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "left",
    "like",
    "limit",
    "natural",
    "not",
    "notnull",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "outer",
    "overlaps",
    "primary",
    "references",
    "returning",
    "right",
    "select",
    "similar",
    "some",
    "table",
    "then",
    "to",
    "true",
    "union",
    "unique",
    "using",
    "when",
    "where",
    "window",
    "with",
];

/// Whether a word is no identifier without quotes.
pub(crate) fn is_reserved(word: &str) -> bool {
    word.len() <= 10
        && RESERVED
            .binary_search_by(|r| r.bytes().cmp(word.bytes().map(|b| b.to_ascii_lowercase())))
            .is_ok()
}

impl<'a> Parser<'a> {
    fn end_token(&self) -> Token {
        let end = self.tokens[self.tokens.len() - 1];
        Token {
            kind: Kind::End,
            start: end.start,
            end: end.start,
        }
    }

    /// The token `ahead` of the next one.
    fn peek_at(&self, ahead: usize) -> Token {
        let i = self.at + ahead;
        if i + 1 < self.tokens.len() {
            self.tokens[i]
        } else {
            self.end_token()
        }
    }

    fn peek(&self) -> Token {
        self.peek_at(0)
    }

    fn next(&mut self) -> Token {
        let t = self.peek();
        if t.kind != Kind::End {
            self.at += 1;
        }
        t
    }

    fn raw(&self, t: Token) -> &'a str {
        &self.text[t.start as usize..t.end as usize]
    }

    fn is_word(&self, ahead: usize, word: &str) -> bool {
        let t = self.peek_at(ahead);
        t.kind == Kind::Word && self.raw(t).eq_ignore_ascii_case(word)
    }

    fn is_any_word(&self, words: &[&str]) -> bool {
        words.iter().any(|w| self.is_word(0, w))
    }

    fn is(&self, kind: Kind) -> bool {
        self.peek().kind == kind
    }

    fn eat(&mut self, kind: Kind) -> bool {
        let hit = self.is(kind);
        if hit {
            self.at += 1;
        }
        hit
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let hit = self.is_word(0, word);
        if hit {
            self.at += 1;
        }
        hit
    }

    /// Eats all of these words, or none.
    fn eat_words(&mut self, words: &[&str]) -> bool {
        let hit = words.iter().enumerate().all(|(i, w)| self.is_word(i, w));
        if hit {
            self.at += words.len();
        }
        hit
    }

    fn require(&mut self, kind: Kind) -> PResult<Token> {
        if self.is(kind) {
            Ok(self.next())
        } else {
            Err(self.unexpected())
        }
    }

    fn expect_word(&mut self, word: &str) -> PResult<()> {
        if self.eat_word(word) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn done(&self) -> PResult<()> {
        if self.is(Kind::End) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// An error at a byte of the text.
    fn error(&self, state: SqlState, at: u32, message: impl Into<String>) -> Error {
        Error::new(state, message).at(lexer::position(self.text, at))
    }

    fn unsupported(&self, at: u32, message: impl Into<String>) -> Error {
        self.error(SqlState::FeatureNotSupported, at, message)
    }

    /// The next token does not belong there.
    fn unexpected(&self) -> Fail {
        let t = self.peek();
        let message = if t.kind == Kind::End {
            "syntax error at end of input".to_owned()
        } else {
            let shown: String = self.raw(t).chars().take(60).collect();
            format!("syntax error at or near \"{shown}\"")
        };
        Fail::Error(lexer::syntax(self.text, t.start, message))
    }

    fn general(&self, at: u32, what: impl Into<String>) -> Fail {
        Fail::General(Box::new(General {
            what: what.into(),
            at,
            table: None,
        }))
    }

    /// Goes one level deeper for the length of `f`.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> PResult<T>) -> PResult<T> {
        self.depth += 1;
        if self.depth > self.limits.nesting_depth {
            let at = self.peek().start;
            let e = self.limits.exceeded(
                "nesting_depth",
                SqlState::StatementTooComplex,
                "the statement is nested too deep",
            );
            return Err(Fail::Error(e.at(lexer::position(self.text, at))));
        }
        let out = f(self);
        self.depth -= 1;
        out
    }

    /// Whether the next token can be an identifier.
    fn is_name(&self) -> bool {
        let t = self.peek();
        match t.kind {
            Kind::Quoted => true,
            Kind::Word => !is_reserved(self.raw(t)),
            _ => false,
        }
    }

    /// An identifier.
    fn name(&mut self) -> PResult<Name> {
        if !self.is_name() {
            return Err(self.unexpected());
        }
        let t = self.next();
        let text = lexer::identifier(self.text, t);
        if text.len() as u64 > self.limits.name_bytes {
            let shown: String = text.chars().take(40).collect();
            let e = self.limits.exceeded(
                "name_bytes",
                SqlState::NameTooLong,
                format_args!("the name \"{shown}…\" has {} bytes", text.len()),
            );
            return Err(Fail::Error(e.at(lexer::position(self.text, t.start))));
        }
        if text.is_empty() || text.contains('\0') {
            return Err(Fail::Error(lexer::syntax(
                self.text,
                t.start,
                "a quoted name must not be empty or hold NUL",
            )));
        }
        Ok(Name { text, at: t.start })
    }

    /// A table of the user: `t` or `public.t`.
    fn table_name(&mut self) -> PResult<Name> {
        let first = self.name()?;
        if !self.eat(Kind::Dot) {
            return Ok(first);
        }
        let second = self.name()?;
        if self.is(Kind::Dot) {
            return Err(self.unexpected());
        }
        if first.text == "public" {
            return Ok(second);
        }
        Err(Fail::Error(self.error(
            SqlState::UndefinedTable,
            first.at,
            format!(
                "relation \"{}.{}\" does not exist: tables stand in schema public",
                first.text, second.text
            ),
        )))
    }

    /// IF EXISTS.
    fn if_exists(&mut self) -> bool {
        self.eat_words(&["IF", "EXISTS"])
    }

    /// A whole number without a sign.
    fn unsigned(&mut self) -> PResult<u64> {
        let t = self.peek();
        match (t.kind, self.raw(t).parse()) {
            (Kind::Int, Ok(n)) => {
                self.at += 1;
                Ok(n)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn statement(&mut self) -> PResult<Parsed> {
        let first = self.peek();
        let word = match first.kind {
            Kind::Word => self.raw(first).to_ascii_uppercase(),
            Kind::LParen => return self.query(),
            _ => return Err(self.unexpected()),
        };
        let parsed = match word.as_str() {
            "SELECT" | "WITH" | "VALUES" | "TABLE" => return self.query(),
            "INSERT" => return self.insert(),
            "UPDATE" => return self.update(),
            "DELETE" => return self.delete(),
            "ALTER" => self.alter()?,
            "CREATE" => self.create()?,
            "DROP" => self.drop()?,
            "SHOW" => self.show()?,
            "DESCRIBE" | "DESC" => self.describe()?,
            "SET" => self.set()?,
            "RESET" => self.reset()?,
            "DISCARD" => self.discard()?,
            "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" => self.transaction()?,
            "CHECKPOINT" => self.checkpoint()?,
            "VACUUM" => self.vacuum()?,
            "EXPLAIN" => return self.explain(),
            "PREPARE" => self.prepare()?,
            "EXECUTE" => self.execute()?,
            "DEALLOCATE" => self.deallocate()?,
            "CLOSE" | "UNLISTEN" => self.nothing()?,
            _ => return Err(self.refused_verb(&word)),
        };
        self.done()?;
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_words_are_sorted() {
        assert!(RESERVED.is_sorted());
        assert!(RESERVED.iter().all(|w| w.len() <= 10 && is_reserved(w)));
        assert!(is_reserved("SeLeCT") && !is_reserved("value") && !is_reserved("timestamp"));
    }
}
