//! `INSERT INTO t [(columns)] VALUES (…), … [RETURNING …]`. Cells that are plain literals are not taken out
//! of the text here: a cell is its kind and its span.

use super::{Fail, PResult, Parsed, Parser};
use crate::ast::{CellKind, CellRef, Expr, ExprKind, Insert};
use crate::lexer::Kind;
use strandline_core::error::SqlState;

impl Parser<'_> {
    pub(super) fn insert(&mut self) -> PResult<Parsed> {
        let begin = self.at;
        match self.insert_body() {
            Ok(insert) => Ok(Parsed::Insert(insert)),
            Err(e) => Err(self.or_general(e, begin)),
        }
    }

    /// An error of a statement of ours, unless the general parser knows the statement: then it is merely
    /// not supported. The statement begins at token `begin`, which is the verb.
    pub(super) fn or_general(&mut self, fail: Fail, begin: usize) -> Fail {
        let at = self.peek().start;
        let verb = self.raw(self.tokens[begin]).to_ascii_uppercase();
        match fail {
            Fail::Error(e) if e.state() == SqlState::SyntaxError => match self
                .check_general(Some(&e))
            {
                Ok(()) => {
                    let e = self.unsupported(at, format!("this form of {verb} is not supported"));
                    Fail::Error(e.hint(verb_hint(&verb)))
                }
                Err(e) => e,
            },
            Fail::General(g) => {
                if let Err(e) = self.check_general(None) {
                    return e;
                }
                let e = self.unsupported(g.at, format!("{} in {verb} is not supported", g.what));
                Fail::Error(e.hint(verb_hint(&verb)))
            }
            other => other,
        }
    }

    fn insert_body(&mut self) -> PResult<Insert> {
        self.next();
        self.expect_word("INTO")?;
        let table = self.table_name()?;
        if self.eat_word("AS") {
            self.name()?;
        }
        let mut columns = None;
        if self.is(Kind::LParen) && !["SELECT", "WITH"].iter().any(|w| self.is_word(1, w)) {
            self.next();
            let mut list = vec![self.name()?];
            while self.eat(Kind::Comma) {
                list.push(self.name()?);
            }
            self.require(Kind::RParen)?;
            columns = Some(list);
        }
        let mut insert = Insert {
            table,
            columns,
            cells: Vec::new(),
            row_ends: Vec::new(),
            exprs: Vec::new(),
            returning: None,
            on_conflict: None,
        };
        if self.is_any_word(&["SELECT", "WITH", "TABLE"]) || self.is(Kind::LParen) {
            return Err(self.general(self.peek().start, "a query"));
        }
        if self.eat_words(&["DEFAULT", "VALUES"]) {
            insert.row_ends.push(0);
            if insert.columns.is_some() {
                self.at -= 2;
                return Err(self.unexpected());
            }
            insert.columns = Some(Vec::new());
        } else {
            self.expect_word("VALUES")?;
            loop {
                self.row(&mut insert)?;
                if !self.eat(Kind::Comma) {
                    break;
                }
            }
        }
        if self.is_word(0, "ON") {
            insert.on_conflict = Some(self.peek().start);
            return self.skip_conflict(insert);
        }
        insert.returning = self.returning()?;
        self.done()?;
        Ok(insert)
    }

    /// The rest of a statement with ON CONFLICT, which no family takes yet; the general parser checks it.
    fn skip_conflict(&mut self, insert: Insert) -> PResult<Insert> {
        self.next();
        self.expect_word("CONFLICT")?;
        self.at = self.tokens.len() - 1;
        Ok(insert)
    }

    fn row(&mut self, insert: &mut Insert) -> PResult<()> {
        self.require(Kind::LParen)?;
        if self.is(Kind::RParen) {
            return Err(self.unexpected());
        }
        loop {
            let cell = match self.plain_cell() {
                Some(cell) => cell,
                None => {
                    let e: Expr = if self.is_word(0, "DEFAULT") {
                        let at = self.next().start;
                        Expr {
                            kind: ExprKind::Null,
                            at,
                        }
                    } else {
                        self.expr()?
                    };
                    insert.exprs.push(e);
                    CellRef {
                        kind: CellKind::Expr,
                        start: insert.exprs.len() as u32 - 1,
                        end: 0,
                    }
                }
            };
            insert.cells.push(cell);
            let t = self.next();
            match t.kind {
                Kind::Comma => {}
                Kind::RParen => break,
                _ => {
                    self.at -= usize::from(t.kind != Kind::End);
                    return Err(self.unexpected());
                }
            }
        }
        insert.row_ends.push(insert.cells.len() as u32);
        Ok(())
    }

    /// A cell of one token (or a minus and a number) with a comma or parenthesis behind it.
    fn plain_cell(&mut self) -> Option<CellRef> {
        let t = self.peek();
        let mut next = self.peek_at(1);
        let (kind, start) = match t.kind {
            Kind::Int => (CellKind::Int, t.start),
            Kind::Decimal => (CellKind::Decimal, t.start),
            Kind::Str => (CellKind::Str, t.start),
            Kind::Time => (CellKind::Time, t.start),
            Kind::Minus if next.start == t.end => match next.kind {
                Kind::Int => (CellKind::Int, t.start),
                Kind::Decimal => (CellKind::Decimal, t.start),
                _ => return None,
            },
            Kind::Param => {
                if !matches!(next.kind, Kind::Comma | Kind::RParen) {
                    return None;
                }
                let index = self.parameter(t) as u32;
                self.at += 1;
                return Some(CellRef {
                    kind: CellKind::Param,
                    start: index,
                    end: t.start,
                });
            }
            Kind::Word => {
                let raw = self.raw(t);
                let kind = if raw.eq_ignore_ascii_case("null") {
                    CellKind::Null
                } else if raw.eq_ignore_ascii_case("true") {
                    CellKind::True
                } else if raw.eq_ignore_ascii_case("false") {
                    CellKind::False
                } else {
                    return None;
                };
                (kind, t.start)
            }
            _ => return None,
        };
        let mut tokens = 1;
        let mut end = t.end;
        if t.kind == Kind::Minus {
            end = next.end;
            next = self.peek_at(2);
            tokens = 2;
        }
        if !matches!(next.kind, Kind::Comma | Kind::RParen) {
            return None;
        }
        self.at += tokens;
        Some(CellRef { kind, start, end })
    }
}

fn verb_hint(verb: &str) -> &'static str {
    match verb {
        "INSERT" => "INSERT INTO t (columns) VALUES (…), … [RETURNING …]",
        "UPDATE" => {
            "on rows tables: UPDATE t SET column = value, … WHERE xid = '…' [AND x_rev = n]"
        }
        _ => "on rows tables: DELETE FROM t WHERE xid = '…' [AND x_rev = n]",
    }
}
