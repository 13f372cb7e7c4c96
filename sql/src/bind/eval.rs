//! Value expressions to values. There are no columns in them: an expression over a column is general SQL.

use super::value::{self, Misfit, Scalar};
use super::{Binder, Params};
use crate::ast::{Expr, ExprKind};
use crate::time;
use crate::types::{Datum, SqlType};
use strandline_core::error::{Error, Result, SqlState};

impl Binder<'_> {
    /// The value of `$n`; when describing, NULL, and `expected` becomes its type unless it has one.
    pub(super) fn param(&self, index: usize, expected: SqlType) -> Datum {
        match &self.params {
            Params::Values(values) => values.get(index).cloned().unwrap_or(Datum::Null),
            Params::Infer(types) => {
                if let Some(slot) = types.borrow_mut().get_mut(index) {
                    slot.get_or_insert(expected);
                }
                Datum::Null
            }
        }
    }

    /// A value; `expected` is the type of where it stands.
    pub(super) fn constant(&self, e: &Expr, expected: SqlType) -> Result<Datum> {
        Ok(match &e.kind {
            ExprKind::Null => Datum::Null,
            ExprKind::Bool(b) => Datum::Bool(*b),
            ExprKind::Int(i) | ExprKind::Duration(i) => Datum::Int(*i),
            ExprKind::Float(f) => Datum::Float(*f),
            ExprKind::Text(t) => Datum::Text {
                text: t.to_string(),
                unknown: true,
            },
            ExprKind::Time(ms) => Datum::Timestamp(*ms),
            ExprKind::Param(i) => self.param(*i, expected),
            ExprKind::Now => Datum::Timestamp(self.cx.now_ms),
            ExprKind::Day(days) => Datum::Timestamp(time::day_start(self.cx.now_ms, *days)),
            ExprKind::Column(c) => {
                return Err(self
                    .error(
                        SqlState::UndefinedColumn,
                        c.column.at,
                        format!(
                            "a value is needed here, not the column \"{}\"",
                            c.column.text
                        ),
                    )
                    .hint("text stands in single quotes"));
            }
            ExprKind::Neg(inner) => match self.numeric(inner, expected)? {
                Datum::Int(i) => Datum::Int(i.checked_neg().ok_or_else(|| self.overflow(e.at))?),
                Datum::Float(f) => Datum::Float(-f),
                Datum::Null => Datum::Null,
                _ => return Err(self.no_operator(e.at, "-")),
            },
            ExprKind::Add { left, right, minus } => {
                self.add(e.at, left, right, *minus, expected)?
            }
            ExprKind::Cast(inner, ty) => {
                let v = self.constant(inner, *ty)?;
                let scalar = Scalar::from(&v);
                value::cast(scalar, *ty, self.cx.now_ms)
                    .map_err(|m| self.cast_error(m, scalar, *ty, inner.at))?
            }
        })
    }

    /// Refuses what is a number where a time stands, and cannot be meant as one: a length of time, and a date
    /// that was written as a difference. Ms as a whole number are a time.
    ///
    /// # Errors
    /// `42804` and `22007`.
    pub(super) fn check_time(&self, e: &Expr) -> Result<()> {
        if is_length(e) {
            return Err(self
                .error(
                    SqlState::DatatypeMismatch,
                    e.at,
                    "a length of time is not a time",
                )
                .hint("now() - 1 d is one; in IN RANGE, +1d is the end that comes 1 d after the start"));
        }
        if let Some((y, m, d)) = date_as_difference(e) {
            return Err(self
                .error(
                    SqlState::InvalidDatetime,
                    e.at,
                    format!("{y}-{m}-{d} is a difference of numbers, not a date"),
                )
                .hint(format!("write {y:04}-{m:02}-{d:02}, or put it in quotes")));
        }
        Ok(())
    }

    fn cast_error(&self, m: Misfit, v: Scalar<'_>, ty: SqlType, at: u32) -> Error {
        m.error(v, value::type_name(ty), "in a cast", self.cx.limits)
            .at(self.position(at))
    }

    fn overflow(&self, at: u32) -> Error {
        self.error(SqlState::NumericOutOfRange, at, "INT out of range")
    }

    fn no_operator(&self, at: u32, op: &str) -> Error {
        self.error(
            SqlState::UndefinedFunction,
            at,
            format!("the operator {op} does not take these values"),
        )
    }

    /// A value for arithmetic: quoted literals become numbers.
    fn numeric(&self, e: &Expr, expected: SqlType) -> Result<Datum> {
        let v = self.constant(e, expected)?;
        if let Datum::Text {
            text,
            unknown: true,
        } = &v
        {
            let scalar = Scalar::Text(text, true);
            let as_int = value::cast(scalar, SqlType::Int8, self.cx.now_ms);
            return as_int
                .or_else(|_| value::cast(scalar, SqlType::Float8, self.cx.now_ms))
                .map_err(|m| self.cast_error(m, scalar, SqlType::Float8, e.at));
        }
        Ok(v)
    }

    fn add(
        &self,
        at: u32,
        left: &Expr,
        right: &Expr,
        minus: bool,
        expected: SqlType,
    ) -> Result<Datum> {
        let op = if minus { "-" } else { "+" };
        let temporal = matches!(right.kind, ExprKind::Duration(_));
        let mut l = self.constant(left, expected)?;
        if let Datum::Text {
            text,
            unknown: true,
        } = &l
        {
            // `'2026-01-01' + 1 h` is a time; `'5' + 1` is a number.
            l = if temporal && text.parse::<i64>().is_err() {
                let scalar = Scalar::Text(text, true);
                value::cast(scalar, SqlType::Timestamptz, self.cx.now_ms)
                    .map_err(|m| self.cast_error(m, scalar, SqlType::Timestamptz, left.at))?
            } else {
                self.numeric(left, expected)?
            };
        }
        // `now() - '7 days'`, as PostgreSQL takes it.
        let length = match (&l, &right.kind) {
            (Datum::Timestamp(_), ExprKind::Text(t)) if t.parse::<f64>().is_err() => {
                time::parse_duration(t)
            }
            _ => None,
        };
        let r = match length {
            Some(ms) => Datum::Int(ms),
            None => self.numeric(right, SqlType::Int8)?,
        };
        let sum = |a: i64, b: i64| {
            if minus {
                a.checked_sub(b)
            } else {
                a.checked_add(b)
            }
        };
        Ok(match (&l, &r) {
            (Datum::Null, _) | (_, Datum::Null) => Datum::Null,
            (Datum::Int(a), Datum::Int(b)) => {
                Datum::Int(sum(*a, *b).ok_or_else(|| self.overflow(at))?)
            }
            (Datum::Timestamp(a), Datum::Int(b)) => {
                Datum::Timestamp(sum(*a, *b).ok_or_else(|| {
                    self.error(SqlState::DatetimeOverflow, at, "the time is out of range")
                })?)
            }
            (Datum::Int(a), Datum::Timestamp(b)) if !minus => {
                Datum::Timestamp(sum(*a, *b).ok_or_else(|| {
                    self.error(SqlState::DatetimeOverflow, at, "the time is out of range")
                })?)
            }
            (Datum::Timestamp(a), Datum::Timestamp(b)) if minus => {
                Datum::Int(sum(*a, *b).ok_or_else(|| self.overflow(at))?)
            }
            (Datum::Int(_) | Datum::Float(_), Datum::Int(_) | Datum::Float(_)) => {
                let f = |d: &Datum| match d {
                    Datum::Int(i) => *i as f64,
                    Datum::Float(f) => *f,
                    _ => 0.0,
                };
                Datum::Float(if minus { f(&l) - f(&r) } else { f(&l) + f(&r) })
            }
            _ => return Err(self.no_operator(at, op)),
        })
    }

    /// The value of LIMIT or OFFSET; `None` for NULL, and when describing.
    pub(super) fn row_count(&self, e: &Expr, clause: &str) -> Result<Option<u64>> {
        let v = self.constant(e, SqlType::Int8)?;
        let n = match &v {
            Datum::Null => return Ok(None),
            Datum::Int(n) => Some(*n),
            Datum::Float(f) if f.is_finite() && f.abs() < 9e18 => Some(f.round_ties_even() as i64),
            Datum::Text {
                text,
                unknown: true,
            } => text.trim().parse().ok(),
            _ => None,
        };
        match n.map(u64::try_from) {
            Some(Ok(n)) => Ok(Some(n)),
            Some(Err(_)) => Err(self.error(
                SqlState::InvalidParameterValue,
                e.at,
                format!("{clause} must not be negative"),
            )),
            None => Err(self.error(
                SqlState::DatatypeMismatch,
                e.at,
                format!("{clause} takes a whole number"),
            )),
        }
    }
}

/// Durations, and sums of them.
fn is_length(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Duration(_) => true,
        ExprKind::Neg(inner) => is_length(inner),
        ExprKind::Add { left, right, .. } => is_length(left) && is_length(right),
        _ => false,
    }
}

/// `2026-1-1`: year, month and day.
fn date_as_difference(e: &Expr) -> Option<(i64, i64, i64)> {
    fn minus(e: &Expr) -> Option<(&Expr, i64)> {
        match &e.kind {
            ExprKind::Add {
                left,
                right,
                minus: true,
            } => match right.kind {
                ExprKind::Int(n) => Some((left, n)),
                _ => None,
            },
            _ => None,
        }
    }
    let (rest, day) = minus(e)?;
    let (year, month) = minus(rest)?;
    let ExprKind::Int(year) = year.kind else {
        return None;
    };
    let fits =
        (1000..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    fits.then_some((year, month, day))
}

/// Whether a column stands anywhere in it.
pub(super) fn has_column(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Column(_) => true,
        ExprKind::Neg(inner) | ExprKind::Cast(inner, _) => has_column(inner),
        ExprKind::Add { left, right, .. } => has_column(left) || has_column(right),
        _ => false,
    }
}

/// The type that a constant of a select list has.
pub(super) fn type_of(d: &Datum) -> SqlType {
    match d {
        Datum::Bool(_) => SqlType::Bool,
        Datum::Int(_) => SqlType::Int8,
        Datum::Float(_) => SqlType::Float8,
        Datum::Timestamp(_) => SqlType::Timestamptz,
        Datum::Null | Datum::Text { .. } => SqlType::Text,
    }
}
