//! Value expressions, conditions, durations and type names: what the statements have in common.

use super::{PResult, Parser};
use crate::ast::{ColumnName, Cond, Expr, ExprKind, InRange, RangeEnd};
use crate::lexer::{self, Kind, Token};
use crate::time::{self, Unit};
use crate::types::SqlType;
use strandline_core::error::SqlState;
use strandline_core::scan::CmpOp;

fn comparison(kind: Kind) -> Option<CmpOp> {
    Some(match kind {
        Kind::Eq => CmpOp::Eq,
        Kind::Ne => CmpOp::Ne,
        Kind::Lt => CmpOp::Lt,
        Kind::Le => CmpOp::Le,
        Kind::Gt => CmpOp::Gt,
        Kind::Ge => CmpOp::Ge,
        _ => return None,
    })
}

impl Parser<'_> {
    /// A value: literals, parameters, columns, casts, `+` and `-`.
    pub(super) fn expr(&mut self) -> PResult<Expr> {
        let left = self.nested(Self::unary)?;
        self.expr_after(left)
    }

    /// What may follow a value that is already read.
    fn expr_after(&mut self, left: Expr) -> PResult<Expr> {
        let mut left = self.casts(left)?;
        let depth = self.depth;
        loop {
            let t = self.peek();
            match t.kind {
                Kind::Plus | Kind::Minus => {
                    self.next();
                    // The tree grows to the left: each step is a level.
                    self.depth += 1;
                    let right = self.nested(Self::unary)?;
                    left = Expr {
                        at: left.at,
                        kind: ExprKind::Add {
                            left: Box::new(left),
                            right: Box::new(right),
                            minus: t.kind == Kind::Minus,
                        },
                    };
                }
                Kind::Star | Kind::Slash | Kind::Other => {
                    // Whether it is SQL at all is for the general parser to say.
                    return Err(self.general(t.start, format!("the operator {}", self.raw(t))));
                }
                _ => break,
            }
        }
        self.depth = depth;
        Ok(left)
    }

    fn unary(&mut self) -> PResult<Expr> {
        let t = self.peek();
        match t.kind {
            Kind::Minus => {
                self.next();
                let number = self.peek();
                if matches!(number.kind, Kind::Int | Kind::Decimal) {
                    let mut e = self.number(number, true)?;
                    e.at = t.start;
                    return self.casts(e);
                }
                let inner = self.nested(Self::unary)?;
                Ok(Expr {
                    kind: ExprKind::Neg(Box::new(inner)),
                    at: t.start,
                })
            }
            Kind::Plus => {
                self.next();
                self.nested(Self::unary)
            }
            _ => {
                let e = self.primary()?;
                self.casts(e)
            }
        }
    }

    /// `::type`, as often as it stands there.
    fn casts(&mut self, mut e: Expr) -> PResult<Expr> {
        let depth = self.depth;
        while self.eat(Kind::Cast) {
            self.depth += 1;
            let ty = self.nested(Self::type_name)?;
            e = Expr {
                at: e.at,
                kind: ExprKind::Cast(Box::new(e), ty),
            };
        }
        self.depth = depth;
        Ok(e)
    }

    fn primary(&mut self) -> PResult<Expr> {
        let t = self.peek();
        let at = t.start;
        let simple = |kind| Ok(Expr { kind, at });
        match t.kind {
            Kind::Int | Kind::Decimal => self.number(t, false),
            Kind::Str | Kind::StrDoubled | Kind::StrEscaped | Kind::StrDollar => {
                self.next();
                simple(ExprKind::Text(lexer::string_value(self.text, t)?.into()))
            }
            Kind::Time => {
                self.next();
                let text = self.raw(t);
                let ms = time::parse_iso(text)
                    .map_err(|e| e.error(text).at(lexer::position(self.text, at)))?;
                simple(ExprKind::Time(ms))
            }
            Kind::Param => {
                self.next();
                simple(ExprKind::Param(self.parameter(t)))
            }
            Kind::LParen => {
                self.next();
                if self.is_any_word(&["SELECT", "WITH", "VALUES"]) {
                    return Err(self.general(at, "a subquery"));
                }
                let mut e = self.nested(Self::expr)?;
                if self.is(Kind::Comma) {
                    return Err(self.general(at, "a row value"));
                }
                self.require(Kind::RParen)?;
                e.at = at;
                Ok(e)
            }
            Kind::Quoted => Ok(Expr {
                kind: ExprKind::Column(self.column()?),
                at,
            }),
            Kind::Word => self.word_expr(t),
            _ => Err(self.unexpected()),
        }
    }

    /// Index of `$n`, from 0; the lexer has checked its range.
    pub(super) fn parameter(&mut self, t: Token) -> usize {
        let n: usize = self.raw(t)[1..].parse().unwrap_or(1);
        self.parameters = self.parameters.max(n);
        n - 1
    }

    fn word_expr(&mut self, t: Token) -> PResult<Expr> {
        let at = t.start;
        let next = self.peek_at(1);
        let called = next.kind == Kind::LParen;
        let quoted = matches!(
            next.kind,
            Kind::Str | Kind::StrDoubled | Kind::StrEscaped | Kind::StrDollar
        );
        let word = self.raw(t).to_ascii_lowercase();
        let day = match word.as_str() {
            "null" => Some(ExprKind::Null),
            "true" => Some(ExprKind::Bool(true)),
            "false" => Some(ExprKind::Bool(false)),
            "today" => Some(ExprKind::Day(0)),
            "yesterday" => Some(ExprKind::Day(-1)),
            "tomorrow" => Some(ExprKind::Day(1)),
            "current_timestamp" | "localtimestamp" => Some(ExprKind::Now),
            "current_date" => Some(ExprKind::Day(0)),
            "now" if called => Some(ExprKind::Now),
            _ => None,
        };
        if let Some(kind) = day {
            self.next();
            let parens = matches!(kind, ExprKind::Now | ExprKind::Day(_)) && called;
            if parens {
                self.next();
                self.require(Kind::RParen)?;
            }
            return Ok(Expr { kind, at });
        }
        match word.as_str() {
            "cast" if called => {
                self.at += 2;
                let e = self.nested(Self::expr)?;
                self.expect_word("AS")?;
                let ty = self.type_name()?;
                self.require(Kind::RParen)?;
                return Ok(Expr {
                    kind: ExprKind::Cast(Box::new(e), ty),
                    at,
                });
            }
            "interval" if quoted => {
                self.at += 1;
                let s = self.next();
                let text = lexer::string_value(self.text, s)?;
                let ms = time::parse_duration(&text).ok_or_else(|| {
                    self.error(
                        SqlState::InvalidDatetime,
                        s.start,
                        format!(
                            "invalid interval \"{}\"",
                            text.chars().take(60).collect::<String>()
                        ),
                    )
                    .hint("weeks and shorter units: '1 day', '5 min', '01:30:00'")
                })?;
                return Ok(Expr {
                    kind: ExprKind::Duration(ms),
                    at,
                });
            }
            "timestamp" | "timestamptz" | "date"
                if quoted || self.is_word(1, "WITH") || self.is_word(1, "WITHOUT") =>
            {
                let ty = self.type_name()?;
                let e = self.primary_text()?;
                return Ok(Expr {
                    kind: ExprKind::Cast(Box::new(e), ty),
                    at,
                });
            }
            "case" => return Err(self.general(at, "CASE")),
            "exists" if called => return Err(self.general(at, "EXISTS")),
            "array" => return Err(self.general(at, "an array")),
            _ => {}
        }
        if called
            && (self.is_name()
                || matches!(word.as_str(), "any" | "all" | "some" | "left" | "right"))
        {
            return Err(self.general(at, format!("the function {word}()")));
        }
        Ok(Expr {
            kind: ExprKind::Column(self.column()?),
            at,
        })
    }

    fn primary_text(&mut self) -> PResult<Expr> {
        let t = self.peek();
        if !matches!(
            t.kind,
            Kind::Str | Kind::StrDoubled | Kind::StrEscaped | Kind::StrDollar
        ) {
            return Err(self.unexpected());
        }
        self.primary()
    }

    /// `c`, `t.c`, `public.t.c`.
    pub(super) fn column(&mut self) -> PResult<ColumnName> {
        let mut column = self.name()?;
        let mut table = None;
        for _ in 0..2 {
            if self.is(Kind::Dot) && self.peek_at(1).kind != Kind::Star {
                self.next();
                table = Some(column);
                column = self.name()?;
            }
        }
        Ok(ColumnName { table, column })
    }

    fn number(&mut self, t: Token, negative: bool) -> PResult<Expr> {
        self.next();
        let text = self.raw(t);
        if let Some(ms) = self.duration_after(t)? {
            let ms = if negative { -ms } else { ms };
            return Ok(Expr {
                kind: ExprKind::Duration(ms),
                at: t.start,
            });
        }
        let kind = match t.kind {
            Kind::Int => parse_int(text, negative),
            _ => None,
        };
        let kind = kind.unwrap_or_else(|| {
            let v: f64 = fast_float2::parse(text).unwrap_or(f64::INFINITY);
            ExprKind::Float(if negative { -v } else { v })
        });
        Ok(Expr { kind, at: t.start })
    }

    /// The unit that makes the number `t`, just read, a duration; and further numbers with units.
    fn duration_after(&mut self, t: Token) -> PResult<Option<i64>> {
        let unit = self.peek();
        let adjacent = unit.start == t.end;
        if unit.kind != Kind::Word
            || !(adjacent || self.spaced_units)
            || time::unit(self.raw(unit)).is_none()
        {
            return Ok(None);
        }
        let mut total = self.with_unit(t)?;
        while matches!(self.peek().kind, Kind::Int | Kind::Decimal)
            && self.peek_at(1).kind == Kind::Word
            && time::unit(self.raw(self.peek_at(1))).is_some()
        {
            let t = self.next();
            total = total.saturating_add(self.with_unit(t)?);
        }
        Ok(Some(total))
    }

    /// ms of the number `t` and the unit behind it.
    fn with_unit(&mut self, t: Token) -> PResult<i64> {
        let word = self.next();
        let Some(Unit::Fixed(scale)) = time::unit(self.raw(word)) else {
            return Err(self
                .unsupported(t.start, "months and years have no fixed length")
                .hint("use days or weeks here")
                .into());
        };
        let too_long = || {
            self.error(
                SqlState::DatetimeOverflow,
                t.start,
                "the duration is too long",
            )
        };
        if t.kind == Kind::Int {
            let n: i64 = self.raw(t).parse().map_err(|_| too_long())?;
            return Ok(n.checked_mul(scale).ok_or_else(too_long)?);
        }
        let v: f64 = fast_float2::parse(self.raw(t)).unwrap_or(f64::INFINITY);
        let ms = (v * scale as f64).floor();
        if ms < 9e18 {
            Ok(ms as i64)
        } else {
            Err(too_long().into())
        }
    }

    /// A duration by itself: `60 s`, `1hour 2min`, `'5 min'`, `INTERVAL '1 day'`, a bare number of ms.
    pub(super) fn duration(&mut self) -> PResult<i64> {
        let t = self.peek();
        let spaced = std::mem::replace(&mut self.spaced_units, true);
        let e = match t.kind {
            Kind::Int | Kind::Decimal => self.number(t, false),
            Kind::Word if self.is_word(0, "INTERVAL") => self.primary(),
            Kind::Str => {
                self.next();
                let text = lexer::string_value(self.text, t)?;
                let ms = time::parse_duration(&text).ok_or_else(|| {
                    self.error(
                        SqlState::InvalidDatetime,
                        t.start,
                        format!("invalid duration \"{text}\""),
                    )
                })?;
                return Ok(ms);
            }
            _ => Err(self.unexpected()),
        };
        self.spaced_units = spaced;
        match e?.kind {
            ExprKind::Duration(ms) => Ok(ms),
            ExprKind::Int(ms) => Ok(ms),
            _ => Err(lexer::syntax(
                self.text,
                t.start,
                format!(
                    "a duration is a number and a unit, such as 60 s, not \"{}\"",
                    self.raw(t)
                ),
            )
            .into()),
        }
    }

    /// `(a, b)` or `(a, +duration)` behind IN RANGE.
    pub(super) fn in_range(&mut self, at: u32) -> PResult<InRange> {
        self.require(Kind::LParen)?;
        let from = self.expr()?;
        self.require(Kind::Comma)?;
        let to = if self.eat(Kind::Plus) {
            RangeEnd::After(self.duration()?)
        } else {
            RangeEnd::At(self.expr()?)
        };
        self.require(Kind::RParen)?;
        Ok(InRange { from, to, at })
    }

    /// A condition.
    pub(super) fn condition(&mut self) -> PResult<Cond> {
        self.nested(|p| {
            let mut list = vec![p.and()?];
            while p.eat_word("OR") {
                list.push(p.and()?);
            }
            Ok(one_or(list, Cond::Or))
        })
    }

    fn and(&mut self) -> PResult<Cond> {
        let mut list = vec![self.not()?];
        while self.eat_word("AND") {
            list.push(self.not()?);
        }
        Ok(one_or(list, Cond::And))
    }

    fn not(&mut self) -> PResult<Cond> {
        if self.eat_word("NOT") {
            return Ok(Cond::Not(Box::new(self.nested(Self::not)?)));
        }
        let t = self.peek();
        if t.kind == Kind::LParen {
            self.next();
            if self.is_any_word(&["SELECT", "WITH", "VALUES"]) {
                return Err(self.general(t.start, "a subquery"));
            }
            let inner = self.condition()?;
            if self.is(Kind::Comma) {
                return Err(self.general(t.start, "a row value"));
            }
            self.require(Kind::RParen)?;
            return match inner {
                Cond::Bare(e) => {
                    let left = self.expr_after(e)?;
                    self.comparison_after(left)
                }
                cond => {
                    let next = self.peek();
                    let continues = matches!(
                        next.kind,
                        Kind::Cast | Kind::Plus | Kind::Minus | Kind::Other
                    ) || comparison(next.kind).is_some()
                        || self.is_any_word(&["IS", "IN", "BETWEEN", "LIKE", "ISNULL", "NOTNULL"]);
                    if continues {
                        return Err(self.general(next.start, "an operator on a condition"));
                    }
                    Ok(cond)
                }
            };
        }
        if self.is_word(0, "EXISTS") && self.peek_at(1).kind == Kind::LParen {
            return Err(self.general(t.start, "EXISTS"));
        }
        let left = self.expr()?;
        self.comparison_after(left)
    }

    fn comparison_after(&mut self, left: Expr) -> PResult<Cond> {
        let t = self.peek();
        if let Some(op) = comparison(t.kind) {
            self.next();
            let right = self.expr()?;
            return Ok(Cond::Compare { left, op, right });
        }
        if t.kind != Kind::Word {
            return Ok(Cond::Bare(left));
        }
        if self.eat_word("ISNULL") {
            return Ok(Cond::IsNull {
                expr: left,
                negated: false,
            });
        }
        if self.eat_word("NOTNULL") {
            return Ok(Cond::IsNull {
                expr: left,
                negated: true,
            });
        }
        if self.eat_word("IS") {
            let negated = self.eat_word("NOT");
            if self.eat_word("NULL") || self.eat_word("UNKNOWN") {
                return Ok(Cond::IsNull {
                    expr: left,
                    negated,
                });
            }
            if self.is_word(0, "DISTINCT") {
                return Err(self.general(t.start, "IS DISTINCT FROM"));
            }
            let value = self.eat_word("TRUE");
            if !value {
                self.expect_word("FALSE")?;
            }
            return Ok(Cond::IsBool {
                expr: left,
                value,
                negated,
            });
        }
        let negated = self.is_word(0, "NOT")
            && ["IN", "BETWEEN", "LIKE", "ILIKE", "SIMILAR"]
                .iter()
                .any(|w| self.is_word(1, w));
        if negated {
            self.next();
        }
        if self.is_word(0, "SIMILAR") {
            return Err(self.general(self.peek().start, "SIMILAR"));
        }
        if self.is_any_word(&["LIKE", "ILIKE"]) {
            let fold = self.is_word(0, "ILIKE");
            self.next();
            let pattern = self.expr()?;
            let escape = self.eat_word("ESCAPE").then(|| self.expr()).transpose()?;
            return Ok(Cond::Like {
                expr: left,
                pattern,
                escape,
                fold,
                negated,
            });
        }
        if self.eat_word("BETWEEN") {
            if self.is_word(0, "SYMMETRIC") {
                return Err(self.general(self.peek().start, "BETWEEN SYMMETRIC"));
            }
            let low = self.expr()?;
            self.expect_word("AND")?;
            let high = self.expr()?;
            return Ok(Cond::Between {
                expr: left,
                low,
                high,
                negated,
            });
        }
        if self.eat_word("IN") {
            if !negated && self.is_word(0, "RANGE") && self.peek_at(1).kind == Kind::LParen {
                let at = self.next().start;
                let range = self.in_range(at)?;
                return Ok(Cond::InRange { expr: left, range });
            }
            let open = self.require(Kind::LParen)?;
            if self.is_any_word(&["SELECT", "WITH", "VALUES"]) {
                return Err(self.general(open.start, "a subquery"));
            }
            let mut list = vec![self.expr()?];
            while self.eat(Kind::Comma) {
                list.push(self.expr()?);
            }
            self.require(Kind::RParen)?;
            return Ok(Cond::In {
                expr: left,
                list,
                negated,
            });
        }
        Ok(Cond::Bare(left))
    }

    /// The type of a cast.
    pub(super) fn type_name(&mut self) -> PResult<SqlType> {
        if self.is_word(0, "pg_catalog") && self.peek_at(1).kind == Kind::Dot {
            self.at += 2;
        }
        let t = self.peek();
        let name = self.name()?.text;
        let ty = match name.as_str() {
            "double" => {
                self.eat_word("PRECISION");
                SqlType::Float8
            }
            "float8" | "float" | "real" | "float4" | "f64" | "numeric" | "decimal" => {
                SqlType::Float8
            }
            "int" | "integer" | "bigint" | "int8" | "int64" | "smallint" | "int4" | "int2" => {
                SqlType::Int8
            }
            "bool" | "boolean" => SqlType::Bool,
            "timestamp" | "timestamptz" | "date" => SqlType::Timestamptz,
            "text" | "string" | "varchar" | "symbol" | "char" | "bpchar" | "name" | "uuid" => {
                SqlType::Text
            }
            "character" => {
                self.eat_word("VARYING");
                SqlType::Text
            }
            _ => return Err(self.general(t.start, format!("the type {name}"))),
        };
        if self.eat(Kind::LParen) {
            self.unsigned()?;
            if self.eat(Kind::Comma) {
                self.unsigned()?;
            }
            self.require(Kind::RParen)?;
        }
        if ty == SqlType::Timestamptz {
            let _ = self.eat_words(&["WITH", "TIME", "ZONE"])
                || self.eat_words(&["WITHOUT", "TIME", "ZONE"]);
        }
        if self.is(Kind::Other) && self.raw(self.peek()) == "[" {
            return Err(self.general(t.start, "an array"));
        }
        Ok(ty)
    }
}

/// A whole number that fits.
pub(super) fn parse_int(text: &str, negative: bool) -> Option<ExprKind> {
    let v: i128 = if text.len() <= 30 {
        text.parse().ok()?
    } else {
        return None;
    };
    i64::try_from(if negative { -v } else { v })
        .ok()
        .map(ExprKind::Int)
}

fn one_or(mut list: Vec<Cond>, make: fn(Vec<Cond>) -> Cond) -> Cond {
    match list.pop() {
        Some(only) if list.is_empty() => only,
        Some(last) => {
            list.push(last);
            make(list)
        }
        None => make(list),
    }
}
