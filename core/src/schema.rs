//! Tables as the catalog knows them. A [`Catalog`] is an immutable picture: every statement takes one
//! `Arc` of it and keeps it to its end.

use crate::ids::{ColumnId, Rev, TableId};
use crate::value::Kind;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which of the families a table belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// Observations of entities: append-only.
    Timeseries,
    /// A registry: one live row per engine-minted xid.
    Rows,
}

impl Family {
    /// The name in messages and in `$sys.tables`.
    pub fn name(self) -> &'static str {
        match self {
            Family::Timeseries => "timeseries",
            Family::Rows => "rows",
        }
    }
}

/// What a column says it holds; storage sees only [`Label::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Label {
    /// Any finite number.
    Double,
    /// A whole number within ±2^53.
    Int,
    /// 0 or 1.
    Bool,
    /// Whole Unix ms, 0 ≤ t < [`crate::time::TIMESTAMP_END_MS`].
    Timestamp,
    /// UTF-8 without NUL, at most so many characters.
    Text {
        /// The n of VARCHAR(n).
        max_chars: Option<u32>,
    },
}

impl Label {
    /// TEXT without a bound.
    pub const TEXT: Label = Label::Text { max_chars: None };

    /// How it is stored.
    pub fn kind(self) -> Kind {
        match self {
            Label::Text { .. } => Kind::Str,
            _ => Kind::F64,
        }
    }
    /// Its name without the bound.
    pub fn name(self) -> &'static str {
        match self {
            Label::Double => "DOUBLE",
            Label::Int => "INT",
            Label::Bool => "BOOL",
            Label::Timestamp => "TIMESTAMP",
            Label::Text { .. } => "TEXT",
        }
    }
}

/// What a read answers where a channel has no sample of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fill {
    /// NULL.
    #[default]
    None,
    /// The last sample at or before, unless it is older than the staleness.
    Hold {
        /// Milliseconds; `None`: never stale.
        staleness_ms: Option<i64>,
    },
}

/// A declared (or registered) column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDef {
    /// Its number.
    pub id: ColumnId,
    /// Its name as stored (already folded).
    pub name: String,
    /// What it holds.
    pub label: Label,
    /// Only on timeseries channels.
    pub fill: Fill,
    /// False for a channel that line protocol added: its label may widen BOOL → INT → DOUBLE.
    pub declared: bool,
}

/// What WITH says of a timeseries table, beside ENTITY UUID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamOptions {
    /// `RETENTION`: whole UTC days that end so many ms ago, or longer, are expired; `None`: nothing expires.
    pub retention_ms: Option<i64>,
    /// Samples before this (a UTC midnight) expired under an earlier RETENTION: a longer one does not bring
    /// them back.
    pub expired_before_ms: Option<i64>,
    /// `MUTABLE`: one row per entity, the newest sample of each channel; DELETE.
    pub mutable: bool,
    /// `DEDUP`: of samples of one channel at one (entity, ts) the last to arrive counts.
    pub dedup: bool,
    /// `ENTITY TAG name`: the tag of a line that names the entity.
    pub entity_tag: Option<String>,
}

impl StreamOptions {
    /// The first ms that is not expired, a UTC midnight; `i64::MIN` when nothing expires.
    pub fn floor(&self, now_ms: i64) -> i64 {
        let expired = self.expired_before_ms.unwrap_or(i64::MIN);
        self.retention_ms.map_or(expired, |r| {
            let edge = now_ms.saturating_sub(r);
            expired.max(edge - edge.rem_euclid(crate::time::DAY_MS))
        })
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDef {
    /// Its number.
    pub id: TableId,
    /// Its name as stored (already folded).
    pub name: String,
    /// Its family.
    pub family: Family,
    /// In order of declaration.
    pub columns: Vec<ColumnDef>,
    /// `WITH (ENTITY UUID)`.
    pub entity_uuid: bool,
    /// The rest of WITH; all at their defaults on other families.
    #[serde(default)]
    pub options: StreamOptions,
    /// The number the next column gets.
    pub next_column: ColumnId,
}

impl TableDef {
    /// By stored name.
    pub fn column(&self, name: &str) -> Option<&ColumnDef> {
        self.columns.iter().find(|c| c.name == name)
    }
    /// By number.
    pub fn column_by_id(&self, id: ColumnId) -> Option<&ColumnDef> {
        Some(&self.columns[self.index_of(id)?])
    }
    /// Where a column stands in `columns`.
    pub fn index_of(&self, id: ColumnId) -> Option<usize> {
        // Numbers are given in order, and a new column stands behind all others.
        self.columns.binary_search_by_key(&id, |c| c.id).ok()
    }
}

/// Whether a table name is the system's: no statement and no line may make such a table.
pub fn is_reserved_table(name: &str) -> bool {
    name.starts_with("pg_") || name.starts_with('$') || name == "information_schema"
}

/// What CREATE asks for, before it has numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// Stored name.
    pub name: String,
    /// Family.
    pub family: Family,
    /// Columns in order.
    pub columns: Vec<ColumnSpec>,
    /// `WITH (ENTITY UUID)`.
    pub entity_uuid: bool,
    /// The rest of WITH.
    pub options: StreamOptions,
}

/// A column before it has a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Stored name.
    pub name: String,
    /// What it holds.
    pub label: Label,
    /// Channels only.
    pub fill: Fill,
    /// False when line protocol adds it.
    pub declared: bool,
}

/// Numbers that outlive a crash and belong to one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRevisions {
    /// Every x_rev up to here may have been handed out: recovery goes on above it.
    pub reserved: Rev,
    /// The highest x_rev that a VACUUM purged (0: none).
    pub horizon: Rev,
}

/// A table under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ByName(Arc<TableDef>);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    // No two tables of a catalog share a name, so this agrees with Eq there.
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name.cmp(&other.0.name)
    }
}

/// All tables of a database at one moment. A copy shares the tables: it costs two pointers for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Goes up with each change.
    pub version: u64,
    by_name: BTreeSet<ByName>,
    by_id: BTreeMap<TableId, Arc<TableDef>>,
}

impl Catalog {
    /// From its tables.
    pub fn new(version: u64, tables: impl IntoIterator<Item = Arc<TableDef>>) -> Self {
        let mut c = Catalog {
            version,
            ..Catalog::default()
        };
        tables.into_iter().for_each(|t| c.put(t));
        c
    }
    /// Puts a table in the place of the one with its number or its name.
    pub fn put(&mut self, table: Arc<TableDef>) {
        self.remove(table.id);
        if let Some(ByName(other)) = self.by_name.replace(ByName(table.clone())) {
            self.by_id.remove(&other.id);
        }
        self.by_id.insert(table.id, table);
    }
    /// Takes a table away.
    pub fn remove(&mut self, id: TableId) {
        if let Some(old) = self.by_id.remove(&id) {
            self.by_name.remove(&*old.name);
        }
    }
    /// By stored name.
    pub fn table(&self, name: &str) -> Option<&Arc<TableDef>> {
        self.by_name.get(name).map(|t| &t.0)
    }
    /// By number.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<TableDef>> {
        self.by_id.get(&id)
    }
    /// In order of numbers.
    pub fn by_number(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.by_id.values()
    }
    /// In order of names.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.by_name.iter().map(|t| &t.0)
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: u32, name: &str) -> Arc<TableDef> {
        Arc::new(TableDef {
            id: TableId(id),
            name: name.into(),
            family: Family::Timeseries,
            columns: Vec::new(),
            entity_uuid: false,
            options: StreamOptions::default(),
            next_column: ColumnId::FIRST_USER,
        })
    }

    fn names(c: &Catalog) -> Vec<(&str, u32)> {
        c.tables().map(|t| (t.name.as_str(), t.id.0)).collect()
    }

    #[test]
    fn a_catalog_changes_and_its_copies_do_not() {
        let first = Catalog::new(1, [table(1, "b"), table(2, "a")]);
        let mut next = first.clone();
        next.put(table(1, "c"));
        assert_eq!(names(&next), [("a", 2), ("c", 1)]);
        assert!(next.table("b").is_none() && next.table_by_id(TableId(1)).is_some());
        // A name that was freed, and one that another table has.
        next.put(table(3, "b"));
        next.put(table(4, "a"));
        assert_eq!(names(&next), [("a", 4), ("b", 3), ("c", 1)]);
        assert!(next.table_by_id(TableId(2)).is_none());
        next.remove(TableId(3));
        next.remove(TableId(9));
        assert_eq!((names(&next).len(), next.len()), (2, 2));
        assert_eq!(names(&first), [("a", 2), ("b", 1)]);
    }
}
