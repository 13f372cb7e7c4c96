//! Tables as the catalog knows them. A [`Catalog`] is an immutable picture: every statement takes one
//! `Arc` of it and keeps it to its end.

use crate::ids::{ColumnId, Rev, TableId};
use crate::value::Kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
        self.columns.iter().find(|c| c.id == id)
    }
    /// Where a column stands in `columns`.
    pub fn index_of(&self, id: ColumnId) -> Option<usize> {
        self.columns.iter().position(|c| c.id == id)
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

/// All tables of a database at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Goes up with each change.
    pub version: u64,
    by_name: BTreeMap<String, Arc<TableDef>>,
    by_id: BTreeMap<TableId, Arc<TableDef>>,
}

impl Catalog {
    /// From its tables.
    pub fn new(version: u64, tables: impl IntoIterator<Item = Arc<TableDef>>) -> Self {
        let mut c = Catalog {
            version,
            ..Catalog::default()
        };
        for t in tables {
            c.by_name.insert(t.name.clone(), t.clone());
            c.by_id.insert(t.id, t);
        }
        c
    }
    /// By stored name.
    pub fn table(&self, name: &str) -> Option<&Arc<TableDef>> {
        self.by_name.get(name)
    }
    /// By number.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<TableDef>> {
        self.by_id.get(&id)
    }
    /// In order of names.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableDef>> {
        self.by_name.values()
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
