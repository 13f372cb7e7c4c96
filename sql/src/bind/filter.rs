//! WHERE on a timeseries table, taken apart: which entities, which times, and a condition over channels.
//! Entity and time are only ever narrowed (AND); everything over channels may be combined freely.

use super::Binder;
use super::eval::has_column;
use super::mutable::{ENTITY_COLUMN, TS_COLUMN};
use super::value::{self, AxisPoint, Scalar};
use crate::ast::{ColumnName, Cond, Expr, ExprKind, InRange, RangeEnd, Select};
use crate::types::{Datum, SqlType};
use std::cmp::Ordering;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::ColumnId;
use strandline_core::like::LikePattern;
use strandline_core::scan::{ChannelRead, CmpOp, Entities, Predicate, TsRange};
use strandline_core::schema::{ColumnDef, TableDef};
use strandline_core::value::Value;
use strandline_core::xid::parse_hex_128;

/// Values of IN that are compared one by one.
const FEW: usize = 8;

const NOTHING: TsRange = TsRange { from: 1, to: 0 };

/// The channels that a read refers to, each once, in the order they are first named.
#[derive(Default)]
pub(super) struct Channels {
    pub list: Vec<ChannelRead>,
}

impl Channels {
    /// Where a channel stands in the list.
    pub fn index(&mut self, column: &ColumnDef) -> usize {
        if let Some(i) = self.list.iter().position(|c| c.column == column.id) {
            return i;
        }
        self.list.push(ChannelRead {
            column: column.id,
            kind: column.label.kind(),
            fill: column.fill,
        });
        self.list.len() - 1
    }

    pub fn find(&self, column: ColumnId) -> Option<usize> {
        self.list.iter().position(|c| c.column == column)
    }
}

/// What WHERE and IN RANGE ask for.
pub(super) struct StreamFilter {
    pub entities: Entities,
    pub range: TsRange,
    pub predicate: Option<Predicate>,
}

/// A column of a timeseries table.
#[derive(Clone, Copy)]
pub(super) enum StreamColumn<'a> {
    Entity,
    /// ts, or `$timestamp` when true.
    Ts(bool),
    Channel(&'a ColumnDef),
}

impl<'a> Binder<'a> {
    /// A column of a timeseries table by name.
    pub(super) fn stream_column(
        &self,
        def: &'a TableDef,
        select: &Select,
        name: &ColumnName,
    ) -> Result<StreamColumn<'a>> {
        self.check_qualifier(name, &select.table, select.alias.as_ref())?;
        Ok(match name.column.text.as_str() {
            "entity" => StreamColumn::Entity,
            "ts" => StreamColumn::Ts(false),
            "$timestamp" => StreamColumn::Ts(true),
            other => StreamColumn::Channel(
                def.column(other)
                    .ok_or_else(|| self.unknown_column(def, &name.column))?,
            ),
        })
    }

    pub(super) fn stream_filter(
        &self,
        def: &'a TableDef,
        select: &Select,
        channels: &mut Channels,
    ) -> Result<StreamFilter> {
        let mut walk = Walk {
            binder: self,
            def,
            select,
            channels,
            entities: None,
            range: TsRange::ALL,
            predicates: Vec::new(),
        };
        if let Some(range) = &select.in_range {
            let range = walk.half_open(range)?;
            walk.range = walk.range.intersect(range);
        }
        if let Some(cond) = &select.filter {
            walk.conjunct(cond)?;
        }
        let Walk {
            entities,
            range,
            mut predicates,
            ..
        } = walk;
        let predicate = match predicates.len() {
            0 | 1 => predicates.pop(),
            _ => Some(Predicate::And(predicates)),
        };
        Ok(StreamFilter {
            entities: entities.map_or(Entities::All, Entities::In),
            range,
            predicate,
        })
    }
}

/// What a condition is about.
enum Subject<'a> {
    Column(StreamColumn<'a>),
    /// No column in it.
    Constant,
}

struct Walk<'w, 'a> {
    binder: &'w Binder<'a>,
    def: &'a TableDef,
    select: &'w Select,
    channels: &'w mut Channels,
    entities: Option<Vec<String>>,
    range: TsRange,
    predicates: Vec<Predicate>,
}

impl<'a> Walk<'_, 'a> {
    fn not_answered(&self, at: u32, what: &str) -> Error {
        self.binder.not_answered(self.def, at, what)
    }

    fn subject(&self, e: &Expr) -> Result<Subject<'a>> {
        match &e.kind {
            ExprKind::Column(c) => Ok(Subject::Column(self.binder.stream_column(
                self.def,
                self.select,
                c,
            )?)),
            _ if has_column(e) => Err(self.not_answered(e.at, "an expression over columns")),
            _ => Ok(Subject::Constant),
        }
    }

    /// The column of a condition, and its value on the other side; a comparison the wrong way round is
    /// turned.
    fn compared<'e>(
        &self,
        left: &'e Expr,
        op: CmpOp,
        right: &'e Expr,
    ) -> Result<(Subject<'a>, CmpOp, &'e Expr)> {
        match (self.subject(left)?, self.subject(right)?) {
            (Subject::Column(_), Subject::Column(_)) => {
                Err(self.not_answered(left.at, "a comparison of two columns"))
            }
            (Subject::Constant, column @ Subject::Column(_)) => {
                let turned = match op {
                    CmpOp::Lt => CmpOp::Gt,
                    CmpOp::Le => CmpOp::Ge,
                    CmpOp::Gt => CmpOp::Lt,
                    CmpOp::Ge => CmpOp::Le,
                    same => same,
                };
                Ok((column, turned, left))
            }
            (subject, Subject::Constant) => Ok((subject, op, right)),
        }
    }

    /// One of the conditions that must all hold.
    fn conjunct(&mut self, cond: &Cond) -> Result<()> {
        if let Cond::And(list) = cond {
            return list.iter().try_for_each(|c| self.conjunct(c));
        }
        if let Some(entities) = self.entity_set(cond)? {
            self.narrow_entities(entities);
            return Ok(());
        }
        // The current state has one row per entity: its ts is a value like any other.
        if !self.def.options.mutable
            && let Some(range) = self.ts_range(cond)?
        {
            self.range = self.range.intersect(range);
            return Ok(());
        }
        match self.predicate(cond)? {
            // `WHERE 1 = 1 AND …`
            Predicate::Const(Some(true)) => {}
            predicate => self.predicates.push(predicate),
        }
        Ok(())
    }

    fn narrow_entities(&mut self, list: Vec<String>) {
        self.entities = Some(match self.entities.take() {
            None => list,
            // Both are sorted.
            Some(mut old) => {
                old.retain(|e| list.binary_search(e).is_ok());
                old
            }
        });
    }

    /// The entities of a condition that is about the entity alone.
    fn entity_set(&self, cond: &Cond) -> Result<Option<Vec<String>>> {
        let is_entity = |e: &Expr| {
            Ok::<bool, Error>(
                matches!(&e.kind, ExprKind::Column(_))
                    && matches!(self.subject(e)?, Subject::Column(StreamColumn::Entity)),
            )
        };
        let list: Vec<&Expr> = match cond {
            Cond::Compare {
                left,
                op: CmpOp::Eq,
                right,
            } => match self.compared(left, CmpOp::Eq, right)? {
                (Subject::Column(StreamColumn::Entity), _, value) => vec![value],
                _ => return Ok(None),
            },
            Cond::In {
                expr,
                list,
                negated: false,
            } if is_entity(expr)? => list.iter().collect(),
            Cond::IsNull {
                expr,
                negated: false,
            } if is_entity(expr)? => Vec::new(),
            Cond::Or(list) => {
                let mut all = Vec::new();
                for c in list {
                    match self.entity_set(c)? {
                        Some(found) => all.extend(found),
                        None => return Ok(None),
                    }
                }
                return Ok(Some(distinct(all)));
            }
            _ => return Ok(None),
        };
        let mut entities = Vec::with_capacity(list.len());
        for e in list {
            if has_column(e) {
                return Err(self.not_answered(e.at, "a comparison of two columns"));
            }
            let v = self.binder.constant(e, SqlType::Text)?;
            let scalar = Scalar::from(&v);
            let text = value::text(scalar, None, self.binder.cx.limits).map_err(|m| {
                m.error(
                    scalar,
                    "TEXT",
                    &format!("column \"entity\" of table \"{}\"", self.def.name),
                    self.binder.cx.limits,
                )
                .at(self.binder.position(e.at))
            })?;
            match text {
                Some(t) if self.def.entity_uuid => {
                    // What is no UUID is no entity of this table.
                    entities.extend(parse_hex_128(t).map(|id| format!("{id:032x}")));
                }
                Some(t) => entities.push(t.to_owned()),
                None => {}
            }
        }
        Ok(Some(distinct(entities)))
    }

    fn point(&self, e: &Expr, timestamptz: bool) -> Result<Option<AxisPoint>> {
        let (ty, name) = if timestamptz {
            (SqlType::Timestamptz, "$timestamp")
        } else {
            (SqlType::Int8, "ts")
        };
        if has_column(e) {
            return Err(self.not_answered(e.at, "an expression over columns"));
        }
        self.binder.check_time(e)?;
        let v = self.binder.constant(e, ty)?;
        let scalar = Scalar::from(&v);
        value::axis(scalar, self.binder.cx.now_ms).map_err(|m| {
            m.error(
                scalar,
                "TIMESTAMP",
                &format!("column \"{name}\" of table \"{}\"", self.def.name),
                self.binder.cx.limits,
            )
            .at(self.binder.position(e.at))
        })
    }

    fn half_open(&self, range: &InRange) -> Result<TsRange> {
        let Some(from) = self.point(&range.from, true)? else {
            return Ok(NOTHING);
        };
        let from = if from.exact {
            from.ms
        } else {
            from.ms.saturating_add(1)
        };
        let end = match &range.to {
            RangeEnd::After(ms) => from.checked_add(*ms),
            RangeEnd::At(e) => match self.point(e, true)? {
                Some(p) if p.exact => Some(p.ms),
                Some(p) => p.ms.checked_add(1),
                None => return Ok(NOTHING),
            },
        };
        Ok(match end {
            Some(end) => end
                .checked_sub(1)
                .map_or(NOTHING, |to| TsRange { from, to }),
            None => TsRange { from, to: i64::MAX },
        })
    }

    /// The times of a condition that is about the time axis alone.
    fn ts_range(&self, cond: &Cond) -> Result<Option<TsRange>> {
        let axis = |e: &Expr| {
            Ok::<Option<bool>, Error>(match (&e.kind, e) {
                (ExprKind::Column(_), e) => match self.subject(e)? {
                    Subject::Column(StreamColumn::Ts(t)) => Some(t),
                    _ => None,
                },
                _ => None,
            })
        };
        match cond {
            Cond::Compare { left, op, right } => match self.compared(left, *op, right)? {
                (Subject::Column(StreamColumn::Ts(_)), CmpOp::Ne, value) => {
                    Err(self.not_answered(value.at, "<> on the time axis"))
                }
                (Subject::Column(StreamColumn::Ts(t)), op, value) => Ok(Some(
                    self.point(value, t)?
                        .map_or(NOTHING, |p| compare_range(op, p)),
                )),
                _ => Ok(None),
            },
            Cond::Between {
                expr,
                low,
                high,
                negated,
            } => {
                let Some(t) = axis(expr)? else {
                    return Ok(None);
                };
                if *negated {
                    return Err(self.not_answered(expr.at, "NOT BETWEEN on the time axis"));
                }
                let (low, high) = (self.point(low, t)?, self.point(high, t)?);
                Ok(Some(match (low, high) {
                    (Some(low), Some(high)) => {
                        compare_range(CmpOp::Ge, low).intersect(compare_range(CmpOp::Le, high))
                    }
                    _ => NOTHING,
                }))
            }
            Cond::In {
                expr,
                list,
                negated,
            } => {
                let Some(t) = axis(expr)? else {
                    return Ok(None);
                };
                match &list[..] {
                    [only] if !negated => Ok(Some(
                        self.point(only, t)?
                            .map_or(NOTHING, |p| compare_range(CmpOp::Eq, p)),
                    )),
                    _ => Err(self.not_answered(expr.at, "a list of times")),
                }
            }
            Cond::InRange { expr, range } => {
                match axis(expr)? {
                    Some(_) => Ok(Some(self.half_open(range)?)),
                    None => Err(self
                        .not_answered(range.at, "IN RANGE on a column other than the time axis")),
                }
            }
            Cond::IsNull { expr, negated } => {
                Ok(axis(expr)?.map(|_| if *negated { TsRange::ALL } else { NOTHING }))
            }
            _ => Ok(None),
        }
    }

    fn channel(&mut self, e: &Expr) -> Result<Option<(usize, &'a ColumnDef)>> {
        match self.subject(e)? {
            Subject::Column(StreamColumn::Channel(c)) => Ok(Some((self.channels.index(c), c))),
            Subject::Column(StreamColumn::Entity) if self.def.options.mutable => {
                Ok(Some((self.channels.index(&ENTITY_COLUMN), &ENTITY_COLUMN)))
            }
            Subject::Column(StreamColumn::Entity) => {
                Err(self.not_answered(e.at, "this condition on entity"))
            }
            Subject::Column(StreamColumn::Ts(_)) => {
                Err(self.not_answered(e.at, "this condition on the time axis"))
            }
            Subject::Constant => Ok(None),
        }
    }

    /// A condition over the ts of a MUTABLE table's row; `None`: it is about something else.
    fn state_ts(&mut self, cond: &Cond) -> Result<Option<Predicate>> {
        let axis = |walk: &Self, e: &Expr| {
            Ok::<_, Error>(match &e.kind {
                ExprKind::Column(_) => match walk.subject(e)? {
                    Subject::Column(StreamColumn::Ts(t)) => Some(t),
                    _ => None,
                },
                _ => None,
            })
        };
        let negate = |p: Predicate, negated: bool| match negated {
            true => Predicate::Not(Box::new(p)),
            false => p,
        };
        Ok(Some(match cond {
            Cond::Compare { left, op, right } => match self.compared(left, *op, right)? {
                (Subject::Column(StreamColumn::Ts(t)), op, value) => {
                    self.compare_ts(op, value, t)?
                }
                _ => return Ok(None),
            },
            Cond::Between {
                expr,
                low,
                high,
                negated,
            } => {
                let Some(t) = axis(self, expr)? else {
                    return Ok(None);
                };
                let ends = vec![
                    self.compare_ts(CmpOp::Ge, low, t)?,
                    self.compare_ts(CmpOp::Le, high, t)?,
                ];
                negate(Predicate::And(ends), *negated)
            }
            Cond::In {
                expr,
                list,
                negated,
            } => {
                let Some(t) = axis(self, expr)? else {
                    return Ok(None);
                };
                let any = list.iter().map(|v| self.compare_ts(CmpOp::Eq, v, t));
                negate(Predicate::Or(any.collect::<Result<_>>()?), *negated)
            }
            Cond::InRange { expr, range } if axis(self, expr)?.is_some() => {
                let range = self.half_open(range)?;
                self.ts_within(range)
            }
            Cond::IsNull { expr, negated } if axis(self, expr)?.is_some() => {
                Predicate::Const(Some(*negated))
            }
            _ => return Ok(None),
        }))
    }

    fn compare_ts(&mut self, op: CmpOp, value: &Expr, timestamptz: bool) -> Result<Predicate> {
        let Some(point) = self.point(value, timestamptz)? else {
            return Ok(Predicate::Const(None));
        };
        Ok(match op {
            CmpOp::Ne => {
                let equal = self.ts_within(compare_range(CmpOp::Eq, point));
                Predicate::Not(Box::new(equal))
            }
            op => self.ts_within(compare_range(op, point)),
        })
    }

    fn ts_within(&mut self, range: TsRange) -> Predicate {
        if range.is_empty() {
            return Predicate::Const(Some(false));
        }
        let channel = self.channels.index(&TS_COLUMN);
        let end = |op, ms: i64| Predicate::Compare {
            channel,
            op,
            value: Value::F64(ms as f64),
        };
        let mut ends = Vec::new();
        if range.from > i64::MIN {
            ends.push(end(CmpOp::Ge, range.from));
        }
        if range.to < i64::MAX {
            ends.push(end(CmpOp::Le, range.to));
        }
        Predicate::And(ends)
    }

    /// A condition over channels.
    fn predicate(&mut self, cond: &Cond) -> Result<Predicate> {
        if self.def.options.mutable
            && let Some(predicate) = self.state_ts(cond)?
        {
            return Ok(predicate);
        }
        Ok(match cond {
            Cond::And(list) => Predicate::And(
                list.iter()
                    .map(|c| self.predicate(c))
                    .collect::<Result<_>>()?,
            ),
            Cond::Or(list) => Predicate::Or(
                list.iter()
                    .map(|c| self.predicate(c))
                    .collect::<Result<_>>()?,
            ),
            Cond::Not(inner) => Predicate::Not(Box::new(self.predicate(inner)?)),
            Cond::Compare { left, op, right } => {
                let (_, op, value) = self.compared(left, *op, right)?;
                let column = if std::ptr::eq(value, right) {
                    left
                } else {
                    right
                };
                match self.channel(column)? {
                    Some((channel, def)) => self.compare(channel, def, op, value)?,
                    None => Predicate::Const(self.compare_constants(left, op, right)?),
                }
            }
            Cond::IsNull { expr, negated } => match self.channel(expr)? {
                Some((channel, _)) => Predicate::IsNull {
                    channel,
                    negated: *negated,
                },
                None => {
                    let null = matches!(self.binder.constant(expr, SqlType::Text)?, Datum::Null);
                    Predicate::Const(Some(null != *negated))
                }
            },
            Cond::IsBool {
                expr,
                value,
                negated,
            } => {
                let is = match self.channel(expr)? {
                    Some((channel, def)) => {
                        self.check_bool(def, expr)?;
                        Predicate::And(vec![
                            Predicate::IsNull {
                                channel,
                                negated: true,
                            },
                            Predicate::Compare {
                                channel,
                                op: CmpOp::Eq,
                                value: Value::F64(f64::from(u8::from(*value))),
                            },
                        ])
                    }
                    None => {
                        let v = self.constant_bool(expr)?;
                        Predicate::Const(Some(v == Some(*value)))
                    }
                };
                if *negated {
                    Predicate::Not(Box::new(is))
                } else {
                    is
                }
            }
            Cond::Between {
                expr,
                low,
                high,
                negated,
            } => {
                let both = match self.channel(expr)? {
                    Some((channel, def)) => vec![
                        self.compare(channel, def, CmpOp::Ge, low)?,
                        self.compare(channel, def, CmpOp::Le, high)?,
                    ],
                    None => vec![
                        Predicate::Const(self.compare_constants(expr, CmpOp::Ge, low)?),
                        Predicate::Const(self.compare_constants(expr, CmpOp::Le, high)?),
                    ],
                };
                let within = Predicate::And(both);
                if *negated {
                    Predicate::Not(Box::new(within))
                } else {
                    within
                }
            }
            Cond::In {
                expr,
                list,
                negated,
            } => {
                let column = self.channel(expr)?;
                if let Some((channel, def)) = column
                    && list.len() > FEW
                {
                    let any = self.one_of(channel, def, list)?;
                    return Ok(if *negated {
                        Predicate::Not(Box::new(any))
                    } else {
                        any
                    });
                }
                let mut any = Vec::with_capacity(list.len());
                for value in list {
                    any.push(match column {
                        Some((channel, def)) => self.compare(channel, def, CmpOp::Eq, value)?,
                        None => Predicate::Const(self.compare_constants(expr, CmpOp::Eq, value)?),
                    });
                }
                let any = Predicate::Or(any);
                if *negated {
                    Predicate::Not(Box::new(any))
                } else {
                    any
                }
            }
            Cond::Like {
                expr,
                pattern,
                escape,
                fold,
                negated,
            } => {
                let column = self.channel(expr)?;
                let like = self.like(expr, column, pattern, escape.as_ref(), *fold)?;
                if *negated {
                    Predicate::Not(Box::new(like))
                } else {
                    like
                }
            }
            Cond::InRange { range, .. } => {
                return Err(self.not_answered(range.at, "IN RANGE under OR or NOT"));
            }
            Cond::Bare(e) => match self.channel(e)? {
                Some((channel, def)) => {
                    self.check_bool(def, e)?;
                    Predicate::Compare {
                        channel,
                        op: CmpOp::Eq,
                        value: Value::F64(1.0),
                    }
                }
                None => Predicate::Const(self.constant_bool(e)?),
            },
        })
    }

    fn check_bool(&self, def: &ColumnDef, e: &Expr) -> Result<()> {
        if SqlType::of(def.label) == SqlType::Bool {
            return Ok(());
        }
        Err(self.binder.error(
            SqlState::DatatypeMismatch,
            e.at,
            format!(
                "a condition must be BOOL: column \"{}\" of table \"{}\" is {}",
                def.name,
                self.def.name,
                def.label.name()
            ),
        ))
    }

    fn compare(&self, channel: usize, def: &ColumnDef, op: CmpOp, e: &Expr) -> Result<Predicate> {
        if has_column(e) {
            return Err(self.not_answered(e.at, "a comparison of two columns"));
        }
        Ok(match self.binder.comparable(self.def, def, e)? {
            Value::Null => Predicate::Const(None),
            value => Predicate::Compare { channel, op, value },
        })
    }

    /// A list that is too long to be looked through for every row.
    fn one_of(&self, channel: usize, def: &ColumnDef, list: &[Expr]) -> Result<Predicate> {
        let (mut values, mut null) = (Vec::with_capacity(list.len()), false);
        for e in list {
            match self.compare(channel, def, CmpOp::Eq, e)? {
                Predicate::Compare { value, .. } => values.push(value),
                _ => null = true,
            }
        }
        values.sort_by(|a, b| match (a, b) {
            (Value::F64(a), Value::F64(b)) => a.total_cmp(b),
            (Value::Str(a), Value::Str(b)) => a.cmp(b),
            _ => Ordering::Equal,
        });
        values.dedup();
        let one_of = Predicate::In { channel, values };
        // `x IN (1, NULL)` is never false.
        Ok(if null {
            Predicate::Or(vec![one_of, Predicate::Const(None)])
        } else {
            one_of
        })
    }

    /// LIKE of a column, or of a constant.
    fn like(
        &self,
        expr: &Expr,
        column: Option<(usize, &ColumnDef)>,
        pattern: &Expr,
        escape: Option<&Expr>,
        fold: bool,
    ) -> Result<Predicate> {
        let word = if fold { "ILIKE" } else { "LIKE" };
        if let Some((_, def)) = column
            && SqlType::of(def.label) != SqlType::Text
        {
            return Err(self.binder.error(
                SqlState::UndefinedFunction,
                expr.at,
                format!(
                    "{word} takes TEXT: column \"{}\" of table \"{}\" is {}",
                    def.name,
                    self.def.name,
                    def.label.name()
                ),
            ));
        }
        let text = |e: &Expr| -> Result<Option<String>> {
            if has_column(e) {
                return Err(self.not_answered(e.at, "a comparison of two columns"));
            }
            match self.binder.constant(e, SqlType::Text)? {
                Datum::Null => Ok(None),
                Datum::Text { text, .. } => Ok(Some(text)),
                _ => Err(self.binder.error(
                    SqlState::UndefinedFunction,
                    e.at,
                    format!("{word} takes TEXT, not a number or a time"),
                )),
            }
        };
        let bad = |e: &Expr, message: &str| {
            (self.binder).error(SqlState::InvalidEscapeSequence, e.at, message)
        };
        let escape = match escape {
            None => Some('\\'),
            Some(e) => match text(e)? {
                None => return Ok(Predicate::Const(None)),
                Some(t) => {
                    let mut chars = t.chars();
                    match (chars.next(), chars.next()) {
                        (one, None) => one,
                        _ => {
                            let e = bad(e, "invalid escape string");
                            return Err(e.hint("ESCAPE takes one character, or none"));
                        }
                    }
                }
            },
        };
        let Some(written) = text(pattern)? else {
            return Ok(Predicate::Const(None));
        };
        let pattern = LikePattern::new(&written, fold, escape)
            .map_err(|_| bad(pattern, "the pattern ends with its escape character"))?;
        Ok(match column {
            Some((channel, _)) => Predicate::Like { channel, pattern },
            None => Predicate::Const(text(expr)?.map(|t| pattern.matches(&t))),
        })
    }

    fn constant_bool(&self, e: &Expr) -> Result<Option<bool>> {
        let v = self.binder.constant(e, SqlType::Bool)?;
        match &v {
            Datum::Null => Ok(None),
            Datum::Bool(b) => Ok(Some(*b)),
            Datum::Text {
                text,
                unknown: true,
            } if value::parse_bool(text).is_some() => Ok(value::parse_bool(text)),
            _ => {
                Err(self
                    .binder
                    .error(SqlState::DatatypeMismatch, e.at, "a condition must be BOOL"))
            }
        }
    }

    /// `1 = 1`, as tools write it.
    fn compare_constants(&self, left: &Expr, op: CmpOp, right: &Expr) -> Result<Option<bool>> {
        if has_column(left) || has_column(right) {
            return Err(self.not_answered(left.at, "a comparison of two columns"));
        }
        let l = self.binder.constant(left, SqlType::Text)?;
        let r = self.binder.constant(right, SqlType::Text)?;
        let number = |d: &Datum| match d {
            Datum::Bool(b) => Some(f64::from(u8::from(*b))),
            Datum::Int(i) | Datum::Timestamp(i) => Some(*i as f64),
            Datum::Float(f) => Some(*f),
            Datum::Text {
                text,
                unknown: true,
            } => text.trim().parse().ok(),
            _ => None,
        };
        let order: Option<Ordering> = match (&l, &r) {
            (Datum::Null, _) | (_, Datum::Null) => return Ok(None),
            (Datum::Text { text: a, .. }, Datum::Text { text: b, .. }) => Some(a.cmp(b)),
            _ => number(&l)
                .zip(number(&r))
                .and_then(|(a, b)| a.partial_cmp(&b)),
        };
        match order {
            Some(o) => Ok(Some(op.holds(o))),
            None => Err(self.binder.error(
                SqlState::DatatypeMismatch,
                left.at,
                "the two sides of the comparison are of different types",
            )),
        }
    }
}

impl Binder<'_> {
    /// A value that a column is compared with; NULL compares with nothing.
    pub(super) fn comparable(
        &self,
        table: &TableDef,
        column: &ColumnDef,
        e: &Expr,
    ) -> Result<Value> {
        let v = self.constant(e, SqlType::of(column.label))?;
        let scalar = Scalar::from(&v);
        value::stored(scalar, column.label, false, self.cx.now_ms, self.cx.limits).map_err(|m| {
            m.error(
                scalar,
                column.label.name(),
                &format!("column \"{}\" of table \"{}\"", column.name, table.name),
                self.cx.limits,
            )
            .at(self.position(e.at))
        })
    }
}

/// The times that compare so with a point.
fn compare_range(op: CmpOp, p: AxisPoint) -> TsRange {
    let up_to = |to| TsRange { from: i64::MIN, to };
    let since = |from| TsRange { from, to: i64::MAX };
    match op {
        CmpOp::Eq if p.exact => TsRange {
            from: p.ms,
            to: p.ms,
        },
        CmpOp::Eq | CmpOp::Ne => NOTHING,
        CmpOp::Lt if p.exact => p.ms.checked_sub(1).map_or(NOTHING, up_to),
        CmpOp::Lt | CmpOp::Le => up_to(p.ms),
        CmpOp::Ge if p.exact => since(p.ms),
        CmpOp::Gt | CmpOp::Ge => p.ms.checked_add(1).map_or(NOTHING, since),
    }
}

fn distinct(mut list: Vec<String>) -> Vec<String> {
    list.sort_unstable();
    list.dedup();
    list
}
