//! The bridge to `sqlparser`: SELECT over the catalog or over no table goes to the evaluator as its AST; for
//! everything else `sqlparser` only says whether the text is SQL, which turns a syntax error of ours into
//! "not supported".

use super::dialect::Bounded;
use super::{Fail, PResult, Parsed, Parser};
use crate::ast::{General, Name};
use crate::lexer::{self, Kind, Token};
use sqlparser::ast::{Query, SetExpr, Statement as SqlStatement, TableFactor, TableWithJoins};
use sqlparser::parser::{Parser as SqlParser, ParserError};
use sqlparser::tokenizer::{Location, Token as SqlToken, Tokenizer, Word};
use std::collections::BTreeSet;
use strandline_core::error::{Error, SqlState};

/// Statements longer than this are not asked about: the answer would only choose between two refusals.
const MAX_GENERAL_BYTES: usize = 256 * 1024;

/// Operators that one clause may chain, per level of `nesting_depth`: a chain is a tree as deep as it is
/// long, and the evaluator walks trees by recursion.
const CHAIN_PER_LEVEL: u64 = 4;

/// Whether a table of that (first) name is the catalog's.
pub(super) fn is_system_name(name: &str) -> bool {
    name.starts_with("pg_") || matches!(name, "$sys" | "information_schema")
}

impl Parser<'_> {
    /// SELECT that the evaluator answers, or a refusal.
    pub(super) fn system_query(&mut self) -> PResult<Parsed> {
        let query = self.sql_query()?;
        self.at = self.tokens.len() - 1;
        let mut found = Found::default();
        found.query(&query);
        if let Some(what) = found.refused {
            return Err(self.general(self.tokens[0].start, what));
        }
        match found.user.into_iter().next() {
            None => Ok(Parsed::System(query)),
            Some(table) => {
                let at = self.find_word(&table).unwrap_or(self.tokens[0].start);
                let with = self.tokens.first().is_some_and(|t| {
                    t.kind == Kind::Word && self.raw(*t).eq_ignore_ascii_case("with")
                });
                Err(Fail::General(Box::new(General {
                    what: if with { "WITH" } else { "this form of SELECT" }.to_owned(),
                    at,
                    table: Some(Name { text: table, at }),
                })))
            }
        }
    }

    /// The first token that is this identifier.
    fn find_word(&self, name: &str) -> Option<u32> {
        self.tokens
            .iter()
            .find(|t| {
                matches!(t.kind, Kind::Word | Kind::Quoted)
                    && lexer::identifier(self.text, **t) == name
            })
            .map(|t| t.start)
    }

    /// `Ok` when the general parser takes the statement; else the error to show: `own`, or the general
    /// parser's when there is none.
    pub(super) fn check_general(&self, own: Option<&Error>) -> PResult<()> {
        let bytes = self.end_token().start - self.tokens[0].start;
        if bytes as usize > MAX_GENERAL_BYTES {
            return own.map_or(Ok(()), |e| Err(Fail::Error(e.clone())));
        }
        match (self.sql_statement(), own) {
            (Ok(_), _) => Ok(()),
            (Err(e), _) if e.state() == SqlState::StatementTooComplex => Err(e.into()),
            (Err(_), Some(own)) => Err(own.clone().into()),
            (Err(e), None) => Err(e.into()),
        }
    }

    fn sql_query(&self) -> Result<Box<Query>, Error> {
        match self.sql_statement()? {
            SqlStatement::Query(query) => Ok(query),
            _ => Err(self.unsupported(self.tokens[0].start, "this statement is not supported")),
        }
    }

    /// The statement as `sqlparser` sees it, without the clauses that are Strandline's own.
    fn sql_statement(&self) -> Result<SqlStatement, Error> {
        self.bound_chains()?;
        let begin = self.tokens[0].start;
        let (clean, mut times) = self.plain_sql(begin as usize)?;
        let slice = clean.as_str();
        let operands = (self.tokens.len() as u64).saturating_mul(self.limits.nesting_depth);
        let dialect = Bounded::new(operands);
        let mut tokens = Tokenizer::new(&dialect, slice)
            .tokenize_with_location()
            .map_err(|e| {
                let at = offset(slice, e.location) + begin;
                lexer::syntax(self.text, at, e.message)
            })?;
        for t in &mut tokens {
            if let SqlToken::Placeholder(p) = &t.token
                && !p[1..].starts_with(|c: char| c.is_ascii_digit())
            {
                t.token = if is_time_mark(p) {
                    SqlToken::SingleQuotedString(times.next().unwrap_or_default().to_owned())
                } else {
                    // `$sys` and `$timestamp` are names here.
                    SqlToken::Word(Word {
                        value: p.to_ascii_lowercase(),
                        quote_style: Some('"'),
                        keyword: sqlparser::keywords::Keyword::NoKeyword,
                    })
                };
            }
        }
        tokens.retain(|t| !matches!(t.token, SqlToken::Whitespace(_)));
        let mut parser = SqlParser::new(&dialect)
            .with_recursion_limit(usize::try_from(self.limits.nesting_depth).unwrap_or(64))
            .with_tokens_with_locations(tokens);
        let parsed = parser.parse_statement().map(|s| {
            let rest = parser.peek_token();
            (s, (rest.token != SqlToken::EOF).then_some(rest))
        });
        match parsed {
            Ok((statement, None)) => Ok(statement),
            Ok((_, Some(rest))) => {
                let at = offset(slice, rest.span.start) + begin;
                Err(lexer::syntax(
                    self.text,
                    at,
                    format!("syntax error at or near \"{}\"", rest.token),
                ))
            }
            Err(ParserError::RecursionLimitExceeded) => Err(self.limits.exceeded(
                "nesting_depth",
                SqlState::StatementTooComplex,
                "the statement is nested too deep",
            )),
            Err(ParserError::ParserError(m) | ParserError::TokenizerError(m)) => {
                Err(self.general_syntax(slice, begin, &m))
            }
        }
    }

    /// The text with Strandline's own clauses blanked and its unquoted times marked, byte for byte as long
    /// as before so that positions hold; and the times in order.
    fn plain_sql(&self, begin: usize) -> Result<(String, impl Iterator<Item = &str>), Error> {
        let end = self.end_token().start as usize;
        let mut clean = self.text.as_bytes()[begin..end].to_vec();
        let tokens = &self.tokens[..self.tokens.len() - 1];
        let mut blank = |from: Token, to: Token| {
            if let Some(bytes) = clean.get_mut(from.start as usize - begin..to.end as usize - begin)
            {
                bytes.fill(b' ');
            }
        };
        let mut cut = Vec::new();
        let mut i = 0;
        while i < tokens.len() {
            let past = self.own_clause(tokens, i);
            if past > i {
                blank(tokens[i], tokens[past - 1]);
                cut.push(i..past);
                i = past;
                continue;
            }
            // `1h`, `- 5 min`: the number alone is PostgreSQL's.
            let number = i > 0 && matches!(tokens[i - 1].kind, Kind::Int | Kind::Decimal);
            if tokens[i].kind == Kind::Word
                && number
                && crate::time::unit(self.raw(tokens[i])).is_some()
            {
                let signed = i > 1 && matches!(tokens[i - 2].kind, Kind::Plus | Kind::Minus);
                if signed || tokens[i].start == tokens[i - 1].end {
                    blank(tokens[i], tokens[i]);
                }
            }
            i += 1;
        }
        let times: Vec<&str> = tokens
            .iter()
            .enumerate()
            .filter(|(i, t)| t.kind == Kind::Time && !cut.iter().any(|c| c.contains(i)))
            .map(|(_, t)| {
                let at = t.start as usize - begin..t.end as usize - begin;
                if let Some([dollar, mark @ ..]) = clean.get_mut(at) {
                    *dollar = b'$';
                    mark.fill(TIME_MARK);
                }
                self.raw(*t)
            })
            .collect();
        let clean =
            String::from_utf8(clean).map_err(|_| Error::internal("blanked half a character"))?;
        Ok((clean, times.into_iter()))
    }

    /// Past the clause of Strandline's own that begins at token `i`; `i` when none does.
    fn own_clause(&self, tokens: &[Token], i: usize) -> usize {
        let word = |n: usize, w: &str| {
            tokens
                .get(i + n)
                .is_some_and(|t| t.kind == Kind::Word && self.raw(*t).eq_ignore_ascii_case(w))
        };
        let past_parens = |open: usize| {
            let mut depth = 0usize;
            for (j, t) in tokens.iter().enumerate().skip(open) {
                match t.kind {
                    Kind::LParen => depth += 1,
                    Kind::RParen => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth == 0 {
                    return j + 1;
                }
            }
            tokens.len()
        };
        let paren = |at: usize| tokens.get(at).is_some_and(|t| t.kind == Kind::LParen);
        if word(0, "SAMPLE") && word(1, "BY") {
            let mut n = 2;
            while tokens.get(i + n).is_some_and(|t| match t.kind {
                Kind::Int | Kind::Decimal | Kind::Str | Kind::Param => true,
                Kind::Word => crate::time::unit(self.raw(*t)).is_some(),
                _ => false,
            }) {
                n += 1;
            }
            if word(n, "FILL") && paren(i + n + 1) {
                return past_parens(i + n + 1);
            }
            return i + n;
        }
        if word(0, "LATEST")
            && word(1, "ON")
            && word(3, "PARTITION")
            && word(4, "BY")
            && i + 6 <= tokens.len()
        {
            return i + 6;
        }
        if word(0, "IN") && word(1, "RANGE") && paren(i + 2) {
            // `ts IN RANGE (…)` leaves the column behind, which is a condition for the parser.
            return past_parens(i + 2);
        }
        let raw =
            word(0, "RAW") && i > 0 && matches!(tokens[i - 1].kind, Kind::Word | Kind::Quoted);
        if raw && !word(1, "FROM") && !(i > 0 && self.raw(tokens[i - 1]).eq_ignore_ascii_case("as"))
        {
            return i + 1;
        }
        if word(0, "ASOF") && ["JOIN", "LEFT", "INNER"].iter().any(|w| word(1, w)) {
            return i + 1;
        }
        i
    }

    /// Its messages read `Expected: …, found: x at Line: 1, Column: 8`; clients want PostgreSQL's words and a
    /// character position.
    fn general_syntax(&self, slice: &str, begin: u32, message: &str) -> Error {
        let (what, location) = message
            .rsplit_once(" at Line: ")
            .and_then(|(what, place)| {
                let (line, column) = place.split_once(", Column: ")?;
                Some((
                    what,
                    Location::new(line.trim().parse().ok()?, column.trim().parse().ok()?),
                ))
            })
            .map_or((message, None), |(what, location)| (what, Some(location)));
        let found = what.rsplit_once("found: ").map(|(_, token)| token.trim());
        match (found, location) {
            (Some("EOF"), _) | (_, None) => {
                let words = if found == Some("EOF") {
                    "at end of input".to_owned()
                } else {
                    format!(": {what}")
                };
                lexer::syntax(
                    self.text,
                    self.end_token().start,
                    format!("syntax error {words}"),
                )
            }
            (found, Some(location)) => {
                let at = offset(slice, location) + begin;
                let words =
                    found.map_or_else(|| format!(": {what}"), |t| format!("at or near \"{t}\""));
                lexer::syntax(self.text, at, format!("syntax error {words}"))
            }
        }
    }

    /// Refuses what would make a tree too deep to walk, before it is built.
    fn bound_chains(&self) -> Result<(), Error> {
        let most = self.limits.nesting_depth.saturating_mul(CHAIN_PER_LEVEL);
        let mut stack: Vec<u64> = vec![0];
        let mut total = 0;
        for t in self.tokens {
            match t.kind {
                Kind::LParen => {
                    stack.push(1);
                    total += 1;
                }
                Kind::RParen if stack.len() > 1 => total -= stack.pop().unwrap_or(0),
                Kind::Comma => {
                    // The next item of a list starts over.
                    if let Some(top) = stack.last_mut() {
                        total -= *top;
                        *top = 1;
                        total += 1;
                    }
                }
                _ if is_operator(*t, self.raw(*t)) => {
                    if let Some(top) = stack.last_mut() {
                        *top += 1;
                        total += 1;
                    }
                }
                _ => {}
            }
            if total > most {
                let e = self.limits.exceeded(
                    "nesting_depth",
                    SqlState::StatementTooComplex,
                    "the statement chains too many operators",
                );
                return Err(e.at(lexer::position(self.text, t.start)));
            }
        }
        Ok(())
    }
}

fn is_operator(t: Token, raw: &str) -> bool {
    match t.kind {
        Kind::Plus
        | Kind::Minus
        | Kind::Star
        | Kind::Slash
        | Kind::Eq
        | Kind::Ne
        | Kind::Lt
        | Kind::Le
        | Kind::Gt
        | Kind::Ge
        | Kind::Cast
        | Kind::Other => true,
        Kind::Word => [
            "and",
            "or",
            "not",
            "is",
            "isnull",
            "notnull",
            "in",
            "like",
            "ilike",
            "between",
            "union",
            "intersect",
            "except",
            "collate",
            "at",
            "case",
            "join",
            "operator",
            "overlaps",
            "similar",
            "any",
            "all",
        ]
        .iter()
        .any(|w| raw.eq_ignore_ascii_case(w)),
        _ => false,
    }
}

/// What an unquoted time becomes for the general parser: a placeholder of these, as long as it was.
const TIME_MARK: u8 = b'x';

fn is_time_mark(placeholder: &str) -> bool {
    placeholder.len() >= 10 && placeholder.bytes().skip(1).all(|b| b == TIME_MARK)
}

/// Byte offset of a line and column (in characters, both from 1).
fn offset(slice: &str, location: Location) -> u32 {
    let mut line_start = 0usize;
    for _ in 1..location.line {
        match slice[line_start..].find('\n') {
            Some(i) => line_start += i + 1,
            None => break,
        }
    }
    let within = slice[line_start..]
        .char_indices()
        .nth(usize::try_from(location.column.saturating_sub(1)).unwrap_or(usize::MAX))
        .map_or(slice.len() - line_start, |(i, _)| i);
    u32::try_from(line_start + within).unwrap_or(u32::MAX)
}

/// What a query reads from.
#[derive(Default)]
struct Found {
    /// Tables that are not the catalog's.
    user: BTreeSet<String>,
    /// Names of WITH, which are no tables.
    with: Vec<String>,
    /// Something that no query of ours has.
    refused: Option<&'static str>,
}

impl Found {
    fn query(&mut self, q: &Query) {
        if let Some(with) = &q.with {
            for cte in &with.cte_tables {
                self.with.push(fold(&cte.alias.name));
                self.query(&cte.query);
            }
        }
        if !q.locks.is_empty() {
            self.refused = Some("FOR UPDATE");
        }
        self.body(&q.body);
    }

    fn body(&mut self, body: &SetExpr) {
        match body {
            SetExpr::Select(s) => {
                if s.into.is_some() {
                    self.refused = Some("SELECT INTO");
                }
                for from in &s.from {
                    self.joins(from);
                }
            }
            SetExpr::Query(q) => self.query(q),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left);
                self.body(right);
            }
            SetExpr::Values(_) => {}
            SetExpr::Table(t) => {
                let name = t.table_name.clone().unwrap_or_default();
                let schema = t.schema_name.clone().unwrap_or_default();
                if !is_system_name(&name) && !is_system_name(&schema) {
                    self.user.insert(name);
                }
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                self.refused = Some("writing in WITH");
            }
        }
    }

    fn joins(&mut self, from: &TableWithJoins) {
        self.factor(&from.relation);
        for join in &from.joins {
            self.factor(&join.relation);
        }
    }

    fn factor(&mut self, factor: &TableFactor) {
        match factor {
            TableFactor::Table {
                name, args: None, ..
            } => {
                let parts: Vec<String> = name
                    .0
                    .iter()
                    .filter_map(|p| p.as_ident())
                    .map(fold)
                    .collect();
                let (first, last) = match (parts.first(), parts.last()) {
                    (Some(first), Some(last)) => (first, last),
                    _ => return,
                };
                let own = parts.len() == 1 && self.with.contains(first);
                if !own && !is_system_name(first) {
                    self.user.insert(last.clone());
                }
            }
            TableFactor::Derived { subquery, .. } => self.query(subquery),
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => self.joins(table_with_joins),
            // Functions, which the evaluator knows or refuses.
            _ => {}
        }
    }
}

fn fold(ident: &sqlparser::ast::Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}
