//! UPDATE and DELETE on a rows table: one row by xid, perhaps only at one x_rev.

use super::Binder;
use super::eval::has_column;
use super::value::{self, Scalar};
use crate::ast::{ColumnName, Cond, Delete, Expr, ExprKind, Name, Returning, Update};
use crate::plan::{Plan, ReturnColumn};
use crate::types::{Datum, SqlType};
use hashbrown::HashSet;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::Rev;
use strandline_core::scan::CmpOp;
use strandline_core::schema::{Family, TableDef};
use strandline_core::xid::Xid;

/// Which row a statement writes.
struct Target {
    /// `None`: none.
    xid: Option<Xid>,
    expected: Option<Rev>,
}

impl<'a> Binder<'a> {
    pub(super) fn update(&self, update: &Update) -> Result<Plan> {
        if let Some(def) = self.mutable_table(&update.table) {
            return Err(self.update_refused(def, update.table.at));
        }
        let def = self.rows_table(&update.table, "UPDATE")?;
        let mut seen = HashSet::new();
        let mut set = Vec::with_capacity(update.set.len());
        for (name, e) in &update.set {
            self.check_writable(def, name, "SET")?;
            let column = def
                .column(&name.text)
                .ok_or_else(|| self.unknown_column(def, name))?;
            if !seen.insert(column.id) {
                return Err(self.error(
                    SqlState::DuplicateColumn,
                    name.at,
                    format!("column \"{}\" is set twice", name.text),
                ));
            }
            if has_column(e) {
                return Err(self
                    .unsupported(
                        e.at,
                        format!("SET \"{}\" of table \"{}\" takes a value, not an expression over columns", name.text, def.name),
                    )
                    .hint("read the row, then UPDATE … WHERE xid = '…' AND x_rev = n"));
            }
            let v = self.constant(e, SqlType::of(column.label))?;
            let scalar = Scalar::from(&v);
            let stored = value::stored(scalar, column.label, true, self.cx.now_ms, self.cx.limits)
                .map_err(|m| {
                    m.error(
                        scalar,
                        column.label.name(),
                        &format!("column \"{}\" of table \"{}\"", column.name, def.name),
                        self.cx.limits,
                    )
                    .at(self.position(e.at))
                })?;
            set.push((column.id, stored));
        }
        let target = self.target(def, update.filter.as_ref(), "UPDATE", &update.table)?;
        Ok(Plan::UpdateRow {
            table: def.clone(),
            xid: target.xid,
            expected: target.expected,
            set,
            returning: self.returned(def, update.returning.as_ref())?,
        })
    }

    pub(super) fn delete(&self, delete: &Delete) -> Result<Plan> {
        if let Some(def) = self.mutable_table(&delete.table) {
            return self.delete_entity(def, delete);
        }
        let def = self.rows_table(&delete.table, "DELETE")?;
        let target = self.target(def, delete.filter.as_ref(), "DELETE", &delete.table)?;
        Ok(Plan::DeleteRow {
            table: def.clone(),
            xid: target.xid,
            expected: target.expected,
            returning: self.returned(def, delete.returning.as_ref())?,
        })
    }

    fn returned(
        &self,
        def: &TableDef,
        returning: Option<&Returning>,
    ) -> Result<Option<Vec<ReturnColumn>>> {
        returning.map(|r| self.returning(def, &r.items)).transpose()
    }

    fn rows_table(&self, name: &Name, verb: &str) -> Result<&'a Arc<TableDef>> {
        let def = self.table(name)?;
        match def.family {
            Family::Rows => Ok(def),
            Family::Timeseries => Err(self.wrong_family(
                def,
                name.at,
                verb,
                "timeseries tables are append-only: INSERT a newer observation; a table WITH (MUTABLE) keeps one row per entity and has DELETE",
            )),
        }
    }

    fn target(
        &self,
        def: &TableDef,
        filter: Option<&Cond>,
        verb: &str,
        table: &Name,
    ) -> Result<Target> {
        let refused = |at: u32| {
            self.unsupported(
                at,
                format!("{verb} of the rows table \"{}\" takes one row: WHERE xid = '…' [AND x_rev = n]", def.name),
            )
            .hint("SELECT the xids first, then write row by row")
        };
        let Some(filter) = filter else {
            return Err(refused(table.at));
        };
        let parts: &[Cond] = match filter {
            Cond::And(list) => list,
            one => std::slice::from_ref(one),
        };
        let mut xid = None;
        let mut rev = None;
        for part in parts {
            let Cond::Compare {
                left,
                op: CmpOp::Eq,
                right,
            } = part
            else {
                return Err(refused(part.at()));
            };
            let (column, value) = match (&left.kind, &right.kind) {
                (ExprKind::Column(c), _) if !has_column(right) => (c, right),
                (_, ExprKind::Column(c)) if !has_column(left) => (c, left),
                _ => return Err(refused(part.at())),
            };
            self.check_known(def, column)?;
            let twice = match column.column.text.as_str() {
                "xid" => xid.replace(self.xid_value(def, value)?).is_some(),
                "x_rev" => rev.replace(self.rev_value(def, value)?).is_some(),
                _ => true,
            };
            if twice {
                return Err(refused(part.at()));
            }
        }
        let Some(xid) = xid else {
            return Err(refused(filter.at()));
        };
        Ok(match rev {
            None => Target {
                xid,
                expected: None,
            },
            // An x_rev that no row can have: nothing is written.
            Some(RevPoint::Exact(rev)) => Target {
                xid,
                expected: Some(rev),
            },
            Some(_) => Target {
                xid: None,
                expected: None,
            },
        })
    }

    fn check_known(&self, def: &TableDef, column: &ColumnName) -> Result<()> {
        let name = column.column.text.as_str();
        if matches!(name, "xid" | "x_rev" | "x_deleted") || def.column(name).is_some() {
            return Ok(());
        }
        Err(self.unknown_column(def, &column.column))
    }

    /// The id of a literal; `None` for NULL and for text that is no id.
    pub(super) fn xid_value(&self, def: &TableDef, e: &Expr) -> Result<Option<Xid>> {
        let v = self.constant(e, SqlType::Text)?;
        match &v {
            Datum::Null => Ok(None),
            Datum::Text { text, .. } => Ok(Xid::parse(text.trim())),
            other => Err(self.mismatch(other, "TEXT", "xid", def, e.at)),
        }
    }

    fn mismatch(&self, v: &Datum, ty: &str, column: &str, def: &TableDef, at: u32) -> Error {
        value::Misfit::Type
            .error(
                Scalar::from(v),
                ty,
                &format!("column \"{column}\" of table \"{}\"", def.name),
                self.cx.limits,
            )
            .at(self.position(at))
    }

    /// An x_rev to compare with.
    pub(super) fn rev_value(&self, def: &TableDef, e: &Expr) -> Result<RevPoint> {
        let v = self.constant(e, SqlType::Int8)?;
        let from_int =
            |i: i64| u64::try_from(i).map_or(RevPoint::Before, |n| RevPoint::Exact(Rev(n)));
        match &v {
            Datum::Null => Ok(RevPoint::Null),
            Datum::Int(i) => Ok(from_int(*i)),
            Datum::Float(f) if f.is_finite() => {
                if *f < 0.0 {
                    Ok(RevPoint::Before)
                } else if f.fract() == 0.0 {
                    // Beyond 2^53 there is no x_rev; saturating keeps the order.
                    Ok(RevPoint::Exact(Rev(*f as u64)))
                } else {
                    Ok(RevPoint::Between(Rev(*f as u64)))
                }
            }
            Datum::Text {
                text,
                unknown: true,
            } => {
                let scalar = Scalar::Text(text, true);
                match value::cast(scalar, SqlType::Int8, self.cx.now_ms) {
                    Ok(Datum::Int(i)) => Ok(from_int(i)),
                    Ok(_) => Ok(RevPoint::Null),
                    Err(m) => Err(m
                        .error(
                            scalar,
                            "INT",
                            &format!("column \"x_rev\" of table \"{}\"", def.name),
                            self.cx.limits,
                        )
                        .at(self.position(e.at))),
                }
            }
            other => Err(self.mismatch(other, "INT", "x_rev", def, e.at)),
        }
    }
}

/// A number that x_rev is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RevPoint {
    /// NULL.
    Null,
    /// Below every x_rev.
    Before,
    /// This one.
    Exact(Rev),
    /// Above this one and below the next.
    Between(Rev),
}
