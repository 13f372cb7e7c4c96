//! MUTABLE timeseries tables: SELECT of the current state, and DELETE of an entity.

use super::Binder;
use super::filter::Channels;
use super::stream::stream_scan;
use super::value::{self, Scalar};
use crate::ast::{Cond, Delete, Expr, ExprKind, KeyExpr, Name, Select};
use crate::plan::{Plan, Shape};
use crate::types::SqlType;
use std::sync::{Arc, LazyLock};
use strandline_core::error::{Error, Result};
use strandline_core::ids::ColumnId;
use strandline_core::scan::CmpOp;
use strandline_core::schema::{ColumnDef, Family, Fill, Label, TableDef};
use strandline_core::xid::parse_hex_128;

/// How a SELECT on such a table looks.
pub(super) const MUTABLE_SHAPE: &str = "a MUTABLE table answers one row per entity, its current state: SELECT columns or aggregates FROM t \
     [WHERE conditions on entity, ts and channels] [GROUP BY entity] [ORDER BY …] [LIMIT …]";

/// The entity, where a condition takes it as it takes a channel.
pub(super) static ENTITY_COLUMN: LazyLock<ColumnDef> =
    LazyLock::new(|| axis(ColumnId::ENTITY, "entity", Label::TEXT));
/// The row's ts likewise.
pub(super) static TS_COLUMN: LazyLock<ColumnDef> =
    LazyLock::new(|| axis(ColumnId::TS, "ts", Label::Int));

fn axis(id: ColumnId, name: &str, label: Label) -> ColumnDef {
    ColumnDef {
        id,
        name: name.to_owned(),
        label,
        fill: Fill::None,
        declared: true,
    }
}

impl<'a> Binder<'a> {
    /// Whether a clause that needs history stands in the SELECT.
    pub(super) fn check_mutable(&self, def: &TableDef, select: &Select) -> Result<()> {
        let refused = |at: u32, clause: &str| {
            self.unsupported(
                at,
                format!(
                    "{clause} is not possible on \"{}\": it is a MUTABLE table, which keeps the current state of each entity and no history",
                    def.name
                ),
            )
            .hint(MUTABLE_SHAPE)
        };
        if let Some(at) = select.raw {
            return Err(refused(at, "RAW"));
        }
        match &select.sample {
            Some(sample) => Err(refused(sample.at, "SAMPLE BY")),
            None => Ok(()),
        }
    }

    /// Rows of the current state, with LATEST ON or without: it means the same.
    pub(super) fn select_state(&self, def: &'a TableDef, select: &Select) -> Result<Plan> {
        let mut channels = Channels::default();
        let columns = self.stream_items(def, select, &mut channels)?;
        // What rows there are does not depend on the channels: any may be sorted by.
        for item in &select.order {
            if let KeyExpr::Column(name) = &item.key
                && let Some(column) = def.column(&name.column.text)
                && self.key_of_output(&item.key, &columns)?.is_none()
            {
                channels.index(column);
            }
        }
        let mut output = channels.list.len();
        let filter = self.stream_filter(def, select, &mut channels)?;
        let order = self.stream_order(def, select, &columns, &channels, &mut output)?;
        let shape = Shape {
            columns,
            order,
            limit: self.limit(select)?,
            offset: self.offset(select)?,
        };
        Ok(stream_scan(def, filter, (channels, output), false, shape))
    }

    /// A MUTABLE table by name, for DELETE.
    pub(super) fn mutable_table(&self, name: &Name) -> Option<&'a Arc<TableDef>> {
        let def = self.cx.catalog.table(&name.text)?;
        (def.family == Family::Timeseries && def.options.mutable).then_some(def)
    }

    pub(super) fn delete_entity(&self, def: &'a TableDef, delete: &Delete) -> Result<Plan> {
        let refused = |at: u32| {
            self.unsupported(
                at,
                format!("DELETE of the MUTABLE table \"{}\" takes one entity: WHERE entity = '…'", def.name),
            )
            .hint("SELECT the entities first, then delete them one by one; a channel alone is not deleted, INSERT a newer value")
        };
        if let Some(returning) = &delete.returning {
            return Err(self
                .unsupported(
                    returning.at,
                    format!("RETURNING is not possible on DELETE of \"{}\"", def.name),
                )
                .hint("the tag says whether the entity was there: DELETE 1 or DELETE 0"));
        }
        let Some(cond) = &delete.filter else {
            return Err(refused(delete.table.at));
        };
        let is_entity = |e: &Expr| match &e.kind {
            ExprKind::Column(c) => c.column.text == "entity",
            _ => false,
        };
        let value = match cond {
            Cond::Compare {
                left,
                op: CmpOp::Eq,
                right,
            } if is_entity(left) && !super::eval::has_column(right) => right,
            Cond::Compare {
                left,
                op: CmpOp::Eq,
                right,
            } if is_entity(right) && !super::eval::has_column(left) => left,
            other => return Err(refused(other.at())),
        };
        let v = self.constant(value, SqlType::Text)?;
        let scalar = Scalar::from(&v);
        let text = value::text(scalar, None, self.cx.limits).map_err(|m| {
            let what = format!("column \"entity\" of table \"{}\"", def.name);
            (m.error(scalar, "TEXT", &what, self.cx.limits)).at(self.position(value.at))
        })?;
        let entity = match text {
            // What is no UUID is no entity of this table.
            Some(t) if def.entity_uuid => parse_hex_128(t).map(|id| format!("{id:032x}")),
            other => other.map(str::to_owned),
        };
        Ok(Plan::DeleteEntity {
            table: def.id,
            entity,
        })
    }

    /// UPDATE of a MUTABLE table.
    pub(super) fn update_refused(&self, def: &TableDef, at: u32) -> Error {
        self.unsupported(
            at,
            format!(
                "UPDATE is not possible on \"{}\": it is a MUTABLE timeseries table",
                def.name
            ),
        )
        .hint("INSERT the entity with a newer ts and the channels that change: that is the update")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{error, plan};
    use super::*;
    use crate::fuzz::with_context;
    use crate::parse;
    use crate::plan::Source;
    use strandline_core::scan::StreamScan;
    use strandline_core::scan::{Entities, Predicate, TsRange};
    use strandline_core::value::Value;

    fn scan(sql: &str) -> StreamScan {
        match plan(sql) {
            Plan::Select {
                source: Source::Stream(scan),
                ..
            } => scan,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn entity_and_ts_are_values_like_others() {
        let q = scan("SELECT n FROM state WHERE entity = 'a' AND (ts > 5 OR NOT up)");
        assert_eq!(q.entities, Entities::In(vec!["a".into()]));
        assert_eq!(q.range, TsRange::ALL);
        let columns: Vec<ColumnId> = q.channels.iter().map(|c| c.column).collect();
        assert_eq!(columns, [ColumnId(65), ColumnId::TS, ColumnId(66)]);
        assert_eq!(q.output, 1);
        let after = Predicate::And(vec![Predicate::Compare {
            channel: 1,
            op: CmpOp::Ge,
            value: Value::F64(6.0),
        }]);
        let Some(Predicate::Or(any)) = q.predicate else {
            panic!("{:?}", q.predicate);
        };
        assert_eq!(any[0], after);
        // What is sorted by is read, and no condition's column is shown.
        let q = scan("SELECT name FROM state WHERE ts = 5 AND entity <> 'b' ORDER BY n LIMIT 3");
        let columns: Vec<ColumnId> = q.channels.iter().map(|c| c.column).collect();
        let (ts, entity) = (ColumnId::TS, ColumnId::ENTITY);
        assert_eq!(columns, [ColumnId(64), ColumnId(65), ts, entity]);
        assert_eq!((q.output, q.limit), (2, None));
        // LATEST ON says nothing more.
        let latest = scan("SELECT name FROM state WHERE ts = 5 LATEST ON ts PARTITION BY entity");
        assert_eq!(latest, scan("SELECT name FROM state WHERE ts = 5"));
        assert_eq!(scan("SELECT n FROM state LIMIT 3 OFFSET 2").limit, Some(5));
    }

    #[test]
    fn null_compares_with_nothing() {
        for cond in ["ts = NULL", "ts <> NULL", "ts > NULL"] {
            let q = scan(&format!("SELECT n FROM state WHERE {cond}"));
            assert_eq!(q.predicate, Some(Predicate::Const(None)), "{cond}");
        }
        let q = scan("SELECT n FROM state WHERE ts BETWEEN NULL AND 5");
        let Some(Predicate::And(ends)) = q.predicate else {
            panic!("{:?}", q.predicate);
        };
        assert_eq!(ends[0], Predicate::Const(None));
    }

    #[test]
    fn delete_takes_one_entity() {
        let entity = |sql| match plan(sql) {
            Plan::DeleteEntity { entity, .. } => entity,
            other => panic!("{other:?}"),
        };
        let a = Some("a".to_owned());
        assert_eq!(entity("DELETE FROM state WHERE entity = 'a'"), a);
        assert_eq!(entity("DELETE FROM state s WHERE 'a' = entity"), a);
        assert_eq!(entity("DELETE FROM state WHERE entity = NULL"), None);
        let types = with_context(|cx| {
            let statement = &parse("DELETE FROM state WHERE entity = $1", cx.limits).unwrap()[0];
            statement.describe(cx, &[]).unwrap().parameters
        });
        assert_eq!(types, [SqlType::Text]);
        for sql in [
            "DELETE FROM state",
            "DELETE FROM state WHERE n = 1",
            "DELETE FROM state WHERE entity > 'a'",
            "DELETE FROM state WHERE entity = 'a' OR entity = 'b'",
            "DELETE FROM state WHERE entity = name",
            "DELETE FROM state WHERE entity = 'a' RETURNING n",
            "UPDATE state SET n = 1 WHERE entity = 'a'",
            "SELECT * FROM state RAW",
            "SELECT count(*) FROM state SAMPLE BY 1 h",
        ] {
            let e = error(sql);
            assert_eq!(e.state().code(), "0A000", "{sql}: {e}");
            assert!(e.message().contains("\"state\""), "{sql}: {e}");
        }
        assert_eq!(
            error("DELETE FROM state WHERE entity = 5").state().code(),
            "42804"
        );
    }
}
