//! INSERT, UPDATE and DELETE: the engine's answer as rows and tag.

use super::{Answer, Rows, Tag, columns, text};
use std::rc::Rc;
use strandline_core::error::{Error, Result};
use strandline_core::ids::{ColumnId, Rev};
use strandline_core::keyed::Version;
use strandline_core::value::Value;
use strandline_core::xid::Xid;
use strandline_shard::api::Engine;
use strandline_sql::plan::{OutputColumn, OutputSource, Plan, ReturnColumn, ReturnWhat};
use strandline_sql::types::{Datum, SqlType};

thread_local! {
    /// The columns of the commonest answer of all, made once per executor.
    static XID_COLUMN: Rc<[OutputColumn]> = columns([("xid", SqlType::Text)]);
}

/// Carries out a write. Never dropped half-way by the session: see [`super::watch`].
pub async fn run(engine: &Rc<dyn Engine>, plan: Plan, insert_returns_none: bool) -> Result<Answer> {
    match plan {
        Plan::InsertStream {
            table,
            batches,
            rows,
        } => {
            engine.write_stream(table, batches).await?;
            Ok(Answer {
                rows: None,
                tag: Tag::Count("INSERT 0", rows),
                wrote: rows > 0,
            })
        }
        Plan::InsertRows {
            table,
            columns,
            rows,
            returning,
        } => {
            let count = rows.len() as u64;
            // The engine takes the values; RETURNING of a declared column shows them again.
            let shown = returning.as_ref().map(|r| values_shown(r, &columns, &rows));
            let inserted = engine.insert_rows(table.id, columns, rows).await?;
            let rows = match (returning, shown) {
                (Some(returning), Some(shown)) => {
                    let rows = inserted.iter().zip(shown).map(|(row, values)| {
                        let one = |(c, v): (&ReturnColumn, Value)| match c.what {
                            ReturnWhat::Xid => text(row.xid.to_string()),
                            ReturnWhat::Rev => rev(row.rev),
                            ReturnWhat::Deleted => Datum::Bool(false),
                            ReturnWhat::User(_) => datum(c.ty, &v),
                        };
                        returning.iter().zip(values).map(one).collect()
                    });
                    Some(Rows::datums(output(&returning), rows.collect()))
                }
                _ if insert_returns_none => None,
                _ => Some(Rows::xids(XID_COLUMN.with(Rc::clone), inserted)),
            };
            Ok(Answer {
                rows,
                tag: Tag::Count("INSERT 0", count),
                wrote: count > 0,
            })
        }
        Plan::UpdateRow {
            table,
            xid,
            expected,
            set,
            returning,
        } => {
            let version = match xid {
                Some(xid) => engine.update_row(table.id, xid, expected, set).await?,
                None => None,
            };
            Ok(changed("UPDATE", version, returning))
        }
        Plan::DeleteRow {
            table,
            xid,
            expected,
            returning,
        } => {
            let version = match xid {
                Some(xid) => engine.delete_row(table.id, xid, expected).await?,
                None => None,
            };
            Ok(changed("DELETE", version, returning))
        }
        Plan::DeleteEntity { table, entity } => {
            let wrote = match entity {
                Some(entity) => engine.delete_entity(table, entity).await?,
                None => false,
            };
            Ok(Answer {
                rows: None,
                tag: Tag::Count("DELETE", u64::from(wrote)),
                wrote,
            })
        }
        _ => Err(Error::internal("not a write")),
    }
}

/// For each row the values of the declared columns that RETURNING names; NULL in the other places.
fn values_shown(
    returning: &[ReturnColumn],
    columns: &[ColumnId],
    rows: &[Vec<Value>],
) -> Vec<Vec<Value>> {
    let places: Vec<Option<usize>> = returning
        .iter()
        .map(|c| match c.what {
            ReturnWhat::User(id) => columns.iter().position(|&c| c == id),
            _ => None,
        })
        .collect();
    rows.iter()
        .map(|row| {
            let value = |p: &Option<usize>| p.and_then(|p| row.get(p)).cloned().unwrap_or_default();
            places.iter().map(value).collect()
        })
        .collect()
}

fn changed(
    words: &'static str,
    version: Option<Version>,
    returning: Option<Vec<ReturnColumn>>,
) -> Answer {
    let wrote = version.is_some();
    let rows = returning.map(|returning| {
        let row = |v: &Version| {
            let one = |c: &ReturnColumn| match c.what {
                ReturnWhat::Xid => xid_of(v).map_or(Datum::Null, |x| text(x.to_string())),
                ReturnWhat::Rev => rev(v.rev),
                ReturnWhat::Deleted => Datum::Bool(v.deleted),
                ReturnWhat::User(id) => datum(c.ty, v.value(id)),
            };
            returning.iter().map(one).collect()
        };
        Rows::datums(output(&returning), version.iter().map(row).collect())
    });
    Answer {
        rows,
        tag: Tag::Count(words, u64::from(wrote)),
        wrote,
    }
}

fn xid_of(version: &Version) -> Option<Xid> {
    Some(Xid::from_bytes(version.key.as_ref().try_into().ok()?))
}

fn rev(rev: Rev) -> Datum {
    Datum::Int(i64::try_from(rev.0).unwrap_or(i64::MAX))
}

fn output(returning: &[ReturnColumn]) -> Rc<[OutputColumn]> {
    returning
        .iter()
        .enumerate()
        .map(|(i, c)| OutputColumn {
            name: c.name.clone(),
            ty: c.ty,
            source: OutputSource::Column(i),
        })
        .collect()
}

/// A stored value under its label. Whole numbers within ±2^53 are exact.
fn datum(ty: SqlType, value: &Value) -> Datum {
    match value {
        Value::Null => Datum::Null,
        Value::Str(s) => text(&**s),
        Value::F64(x) => match ty {
            SqlType::Bool => Datum::Bool(*x != 0.0),
            SqlType::Int8 => Datum::Int(*x as i64),
            SqlType::Timestamptz => Datum::Timestamp(*x as i64),
            _ => Datum::Float(*x),
        },
    }
}
