//! SELECT on a rows table: one comparison, or the feed.

use super::Binder;
use super::eval::has_column;
use super::rows::RevPoint;
use crate::ast::{ColumnName, Cond, Expr, ExprKind, ItemKind, KeyExpr, Select};
use crate::plan::{OutputColumn, OutputSource, Plan, Shape, Source};
use crate::types::{Datum, SqlType, check_width};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::Rev;
use strandline_core::scan::{
    AggregateFn, CmpOp, FeedRange, KeyedColumn, KeyedFilter, KeyedOrder, KeyedScan,
};
use strandline_core::schema::{ColumnDef, Label, TableDef};
use strandline_core::value::Value;

/// `until` of a feed without an upper bound.
const OPEN: Rev = Rev(u64::MAX);

/// A column of a rows table.
enum RowColumn<'a> {
    Xid,
    Rev,
    Deleted,
    User(&'a ColumnDef),
}

impl RowColumn<'_> {
    fn keyed(&self) -> KeyedColumn {
        match self {
            RowColumn::Xid => KeyedColumn::Xid,
            RowColumn::Rev => KeyedColumn::Rev,
            RowColumn::Deleted => KeyedColumn::Deleted,
            RowColumn::User(c) => KeyedColumn::User(c.id, c.label.kind()),
        }
    }
    fn ty(&self) -> SqlType {
        match self {
            RowColumn::Xid => SqlType::Text,
            RowColumn::Rev => SqlType::Int8,
            RowColumn::Deleted => SqlType::Bool,
            RowColumn::User(c) => SqlType::of(c.label),
        }
    }
}

#[derive(Default)]
struct RowsFilter {
    filter: Option<KeyedFilter>,
    feed: Option<FeedRange>,
}

impl<'a> Binder<'a> {
    pub(super) fn select_rows(&self, def: &'a TableDef, select: &Select) -> Result<Plan> {
        let time_axis = [
            (select.raw, "RAW"),
            (select.latest, "LATEST ON"),
            (select.in_range.as_ref().map(|r| r.at), "IN RANGE"),
            (select.sample.as_ref().map(|s| s.at), "SAMPLE BY"),
        ];
        for (at, clause) in time_axis {
            if let Some(at) = at {
                return Err(self.wrong_family(
                    def,
                    at,
                    clause,
                    "a rows table has no time axis; that clause belongs to timeseries tables",
                ));
            }
        }
        if !select.group_by.is_empty() {
            return Err(self.not_answered(def, select.group_at, "GROUP BY"));
        }
        let found = self.rows_filter(def, select)?;
        let mut scan = KeyedScan {
            table: def.id,
            columns: Vec::new(),
            filter: found.filter,
            feed: found.feed,
            order: Vec::new(),
            limit: self.limit(select)?,
            offset: self.offset(select)?,
            count: select
                .items
                .iter()
                .any(|i| matches!(i.what, ItemKind::Aggregate(_))),
        };
        let mut shape = Shape::default();
        if scan.count {
            shape.columns = self.count_items(def, select)?;
            // One row comes back; LIMIT and OFFSET are about that row.
            shape.limit = scan.limit.take();
            shape.offset = std::mem::take(&mut scan.offset);
            if let Some(o) = select.order.first() {
                let at = match &o.key {
                    KeyExpr::Column(c) => c.column.at,
                    KeyExpr::Ordinal(_, at) => *at,
                    KeyExpr::Aggregate(call) => call.at,
                };
                if matches!(o.key, KeyExpr::Column(_)) {
                    return Err(self.error(
                        SqlState::GroupingError,
                        at,
                        "ORDER BY a column does not go with count(*)",
                    ));
                }
            }
        } else {
            shape.columns = self.row_items(def, select, &mut scan.columns)?;
            scan.order = self.row_order(def, select, &shape.columns, &scan.columns)?;
            if scan.columns.is_empty() {
                // Constants alone: the rows still have to be counted out.
                scan.columns.push(KeyedColumn::Xid);
            }
        }
        Ok(Plan::Select {
            source: Source::Keyed(scan),
            shape,
        })
    }

    fn row_column(
        &self,
        def: &'a TableDef,
        select: &Select,
        name: &ColumnName,
    ) -> Result<RowColumn<'a>> {
        self.check_qualifier(name, &select.table, select.alias.as_ref())?;
        Ok(match name.column.text.as_str() {
            "xid" => RowColumn::Xid,
            "x_rev" => RowColumn::Rev,
            "x_deleted" => RowColumn::Deleted,
            other => RowColumn::User(
                def.column(other)
                    .ok_or_else(|| self.unknown_column(def, &name.column))?,
            ),
        })
    }

    fn row_items(
        &self,
        def: &'a TableDef,
        select: &Select,
        scanned: &mut Vec<KeyedColumn>,
    ) -> Result<Vec<OutputColumn>> {
        let mut index = |column: &RowColumn<'_>| {
            let keyed = column.keyed();
            scanned.iter().position(|c| *c == keyed).unwrap_or_else(|| {
                scanned.push(keyed);
                scanned.len() - 1
            })
        };
        let mut out = Vec::with_capacity(select.items.len());
        for item in &select.items {
            match &item.what {
                ItemKind::Star(table) => {
                    self.check_star(select, table.as_ref())?;
                    let all = std::iter::once(("xid", RowColumn::Xid)).chain(
                        def.columns
                            .iter()
                            .map(|c| (c.name.as_str(), RowColumn::User(c))),
                    );
                    for (name, column) in all {
                        out.push(OutputColumn {
                            name: name.to_owned(),
                            ty: column.ty(),
                            source: OutputSource::Column(index(&column)),
                        });
                    }
                }
                ItemKind::Expr(Expr {
                    kind: ExprKind::Column(name),
                    ..
                }) => {
                    let column = self.row_column(def, select, name)?;
                    out.push(OutputColumn {
                        name: item.alias.as_ref().unwrap_or(&name.column).text.clone(),
                        ty: column.ty(),
                        source: OutputSource::Column(index(&column)),
                    });
                }
                _ => out.push(self.constant_item(def, item)?),
            }
            check_width(out.len())?;
        }
        Ok(out)
    }

    fn count_items(&self, def: &'a TableDef, select: &Select) -> Result<Vec<OutputColumn>> {
        let mut out = Vec::with_capacity(select.items.len());
        for item in &select.items {
            match &item.what {
                ItemKind::Aggregate(call) if call.func == AggregateFn::Count => {
                    // Only what no row lacks can be counted without reading it.
                    let counts_rows = match &call.column {
                        None => true,
                        Some(c) => !matches!(self.row_column(def, select, c)?, RowColumn::User(_)),
                    };
                    if !counts_rows {
                        return Err(self.not_answered(def, call.at, "count(column)"));
                    }
                    out.push(OutputColumn {
                        name: item.alias.as_ref().map_or("count", |a| &a.text).to_owned(),
                        ty: SqlType::Int8,
                        source: OutputSource::Column(0),
                    });
                }
                ItemKind::Aggregate(call) => {
                    return Err(self.not_answered(
                        def,
                        call.at,
                        "an aggregate other than count(*)",
                    ));
                }
                ItemKind::Expr(e) if !has_column(e) => out.push(self.constant_item(def, item)?),
                _ => {
                    return Err(self.error(
                        SqlState::GroupingError,
                        item.at,
                        "a column does not go with count(*)",
                    ));
                }
            }
            check_width(out.len())?;
        }
        Ok(out)
    }

    fn row_order(
        &self,
        def: &'a TableDef,
        select: &Select,
        columns: &[OutputColumn],
        scanned: &[KeyedColumn],
    ) -> Result<Vec<KeyedOrder>> {
        let mut order = Vec::with_capacity(select.order.len());
        for item in &select.order {
            let column = match (self.key_of_output(&item.key, columns)?, &item.key) {
                (
                    Some(OutputColumn {
                        source: OutputSource::Column(i),
                        ..
                    }),
                    _,
                ) => match scanned.get(*i) {
                    Some(c) => *c,
                    None => continue,
                },
                (Some(_), _) | (None, KeyExpr::Ordinal(..)) => continue,
                (None, KeyExpr::Column(name)) => self.row_column(def, select, name)?.keyed(),
                (None, KeyExpr::Aggregate(call)) => {
                    return Err(self.not_answered(def, call.at, "ORDER BY an aggregate"));
                }
            };
            order.push(KeyedOrder {
                column,
                descending: item.descending,
                nulls_first: item.nulls_first.unwrap_or(item.descending),
            });
        }
        Ok(order)
    }

    fn rows_filter(&self, def: &'a TableDef, select: &Select) -> Result<RowsFilter> {
        let Some(cond) = &select.filter else {
            return Ok(RowsFilter::default());
        };
        let one = |at: u32, what: &str| self.not_answered(def, at, what);
        // Every name is looked up first, so that a misspelt one is called unknown and not unsupported.
        self.check_row_names(def, select, cond)?;
        match cond {
            Cond::And(list) => Err(one(list.get(1).map_or(0, Cond::at), "a second comparison")),
            Cond::Or(list) => Err(one(list.get(1).map_or(0, Cond::at), "OR")),
            Cond::Between { expr, .. } => Err(one(expr.at, "BETWEEN (two comparisons)")),
            Cond::In { expr, .. } => Err(one(expr.at, "IN")),
            Cond::Like { expr, .. } => Err(one(expr.at, "LIKE")),
            Cond::InRange { range, .. } => Err(self.wrong_family(
                def,
                range.at,
                "IN RANGE",
                "a rows table has no time axis; that clause belongs to timeseries tables",
            )),
            Cond::Not(inner) => match &**inner {
                Cond::Bare(e) => self.boolean(def, select, e, false),
                other => Err(one(other.at(), "NOT")),
            },
            Cond::Bare(e) => self.boolean(def, select, e, true),
            Cond::IsBool {
                expr,
                value,
                negated: false,
            } => self.boolean(def, select, expr, *value),
            Cond::IsBool { expr, .. } => Err(one(expr.at, "IS NOT TRUE")),
            Cond::IsNull { expr, negated } => self.is_null(def, select, expr, *negated),
            Cond::Compare { left, op, right } => {
                let (name, op, value) = match (&left.kind, &right.kind) {
                    (ExprKind::Column(c), _) if !has_column(right) => (c, *op, right),
                    (_, ExprKind::Column(c)) if !has_column(left) => {
                        let turned = match op {
                            CmpOp::Lt => CmpOp::Gt,
                            CmpOp::Le => CmpOp::Ge,
                            CmpOp::Gt => CmpOp::Lt,
                            CmpOp::Ge => CmpOp::Le,
                            same => *same,
                        };
                        (c, turned, left)
                    }
                    (ExprKind::Column(_), _) => {
                        return Err(one(right.at, "a comparison of two columns"));
                    }
                    _ => return Err(one(left.at, "a condition without a column")),
                };
                self.row_compare(def, select, name, op, value)
            }
        }
    }

    fn check_row_names(&self, def: &'a TableDef, select: &Select, cond: &Cond) -> Result<()> {
        let check = |e: &Expr| match &e.kind {
            ExprKind::Column(c) => {
                // Time ranges are another family's, so `ts` is not merely unknown here.
                if matches!(c.column.text.as_str(), "ts" | "$timestamp")
                    && def.column(&c.column.text).is_none()
                {
                    return Err(self.wrong_family(
                        def,
                        c.column.at,
                        "a condition on ts",
                        "a rows table has no time axis; follow it by x_rev, or declare a column ts",
                    ));
                }
                self.row_column(def, select, c).map(drop)
            }
            _ if has_column(e) => Err(self.not_answered(def, e.at, "an expression over columns")),
            _ => Ok(()),
        };
        match cond {
            Cond::And(list) | Cond::Or(list) => list
                .iter()
                .try_for_each(|c| self.check_row_names(def, select, c)),
            Cond::Not(inner) => self.check_row_names(def, select, inner),
            Cond::Compare { left, right, .. } => check(left).and_then(|()| check(right)),
            Cond::IsNull { expr, .. }
            | Cond::IsBool { expr, .. }
            | Cond::Like { expr, .. }
            | Cond::Between { expr, .. }
            | Cond::In { expr, .. }
            | Cond::InRange { expr, .. }
            | Cond::Bare(expr) => check(expr),
        }
    }

    /// `active`, `NOT active`, `x_deleted`.
    fn boolean(
        &self,
        def: &'a TableDef,
        select: &Select,
        e: &Expr,
        wanted: bool,
    ) -> Result<RowsFilter> {
        let ExprKind::Column(name) = &e.kind else {
            return match self.constant(e, SqlType::Bool)? {
                Datum::Bool(b) if b == wanted => Ok(RowsFilter::default()),
                Datum::Bool(_) | Datum::Null => Ok(nothing(None)),
                _ => Err(self.error(SqlState::DatatypeMismatch, e.at, "a condition must be BOOL")),
            };
        };
        match self.row_column(def, select, name)? {
            RowColumn::Deleted => Ok(deleted(Some(wanted))),
            RowColumn::User(c) if c.label == Label::Bool => Ok(RowsFilter {
                filter: Some(KeyedFilter::Compare {
                    column: c.id,
                    op: CmpOp::Eq,
                    value: Value::F64(f64::from(u8::from(wanted))),
                }),
                feed: None,
            }),
            _ => Err(self.error(
                SqlState::DatatypeMismatch,
                e.at,
                format!(
                    "a condition must be BOOL: column \"{}\" of table \"{}\" is not",
                    name.column.text, def.name
                ),
            )),
        }
    }

    fn is_null(
        &self,
        def: &'a TableDef,
        select: &Select,
        e: &Expr,
        negated: bool,
    ) -> Result<RowsFilter> {
        let ExprKind::Column(name) = &e.kind else {
            return Err(self.not_answered(def, e.at, "a condition without a column"));
        };
        Ok(match (self.row_column(def, select, name)?, negated) {
            (RowColumn::User(c), negated) => RowsFilter {
                filter: Some(KeyedFilter::IsNull {
                    column: c.id,
                    negated,
                }),
                feed: None,
            },
            // No row lacks these.
            (RowColumn::Xid, true) => RowsFilter::default(),
            (RowColumn::Xid, false) => nothing(None),
            (_, true) => deleted(None),
            (_, false) => nothing(deleted(None).feed),
        })
    }

    fn row_compare(
        &self,
        def: &'a TableDef,
        select: &Select,
        name: &ColumnName,
        op: CmpOp,
        e: &Expr,
    ) -> Result<RowsFilter> {
        let range = !matches!(op, CmpOp::Eq | CmpOp::Ne);
        let refused = |what: &str| -> Error { self.not_answered(def, name.column.at, what) };
        if op == CmpOp::Ne {
            return Err(refused("<>"));
        }
        match self.row_column(def, select, name)? {
            RowColumn::Xid if range => Err(refused("a range of xid")),
            RowColumn::Xid => Ok(RowsFilter {
                filter: Some(
                    self.xid_value(def, e)?
                        .map_or(KeyedFilter::Nothing, KeyedFilter::XidEq),
                ),
                feed: None,
            }),
            RowColumn::Rev => {
                let point = self.rev_value(def, e)?;
                Ok(feed(op, point))
            }
            RowColumn::Deleted if range => Err(refused("a range of x_deleted")),
            RowColumn::Deleted => {
                let v = self.constant(e, SqlType::Bool)?;
                let scalar = super::value::Scalar::from(&v);
                let flag = super::value::number(scalar, Label::Bool, true, self.cx.now_ms)
                    .map_err(|m| {
                        m.error(
                            scalar,
                            "BOOL",
                            &format!("column \"x_deleted\" of table \"{}\"", def.name),
                            self.cx.limits,
                        )
                        .at(self.position(e.at))
                    })?;
                Ok(match flag {
                    Some(f) => deleted(Some(f != 0.0)),
                    None => nothing(deleted(None).feed),
                })
            }
            RowColumn::User(c) => {
                if range && !matches!(c.label, Label::Int | Label::Double | Label::Timestamp) {
                    return Err(refused(&format!(
                        "a range of {} column \"{}\"",
                        c.label.name(),
                        c.name
                    )));
                }
                Ok(RowsFilter {
                    filter: Some(match self.comparable(def, c, e)? {
                        Value::Null => KeyedFilter::Nothing,
                        value => KeyedFilter::Compare {
                            column: c.id,
                            op,
                            value,
                        },
                    }),
                    feed: None,
                })
            }
        }
    }
}

fn nothing(feed: Option<FeedRange>) -> RowsFilter {
    RowsFilter {
        filter: Some(KeyedFilter::Nothing),
        feed,
    }
}

fn feed_range(after: Rev, until: Rev, deleted: Option<bool>) -> RowsFilter {
    RowsFilter {
        filter: None,
        feed: Some(FeedRange {
            after,
            // The cursor form, `x_rev > n`, is the one that the vacuum horizon checks.
            after_given: until == OPEN,
            until,
            deleted,
            // The engine loads it, before it scans.
            watermark: Rev(0),
        }),
    }
}

fn deleted(flag: Option<bool>) -> RowsFilter {
    feed_range(Rev(0), Rev::MAX, flag)
}

/// The feed of a comparison of x_rev.
fn feed(op: CmpOp, point: RevPoint) -> RowsFilter {
    let up_to = |until: u64| feed_range(Rev(0), Rev(until.min(Rev::MAX.0)), None);
    let after = |rev: u64| feed_range(Rev(rev), OPEN, None);
    match (op, point) {
        (_, RevPoint::Null) => nothing(deleted(None).feed),
        (CmpOp::Gt | CmpOp::Ge, RevPoint::Before) => after(0),
        (CmpOp::Gt, RevPoint::Exact(r) | RevPoint::Between(r)) => after(r.0),
        (CmpOp::Ge, RevPoint::Exact(r)) => after(r.0.saturating_sub(1)),
        (CmpOp::Ge, RevPoint::Between(r)) => after(r.0),
        (CmpOp::Lt, RevPoint::Exact(Rev(0))) => nothing(deleted(None).feed),
        (CmpOp::Lt, RevPoint::Exact(r)) => up_to(r.0 - 1),
        (CmpOp::Lt | CmpOp::Le, RevPoint::Between(r)) => up_to(r.0),
        (CmpOp::Le, RevPoint::Exact(r)) => up_to(r.0),
        (CmpOp::Eq, RevPoint::Exact(r)) if r.0 > 0 && r <= Rev::MAX => {
            feed_range(Rev(r.0 - 1), r, None)
        }
        // Equal to what is no x_rev, or below every x_rev.
        _ => nothing(deleted(None).feed),
    }
}
