//! What a bound statement asks for. `net` carries it out on the engine; everything in it is checked: names,
//! labels, ranges, families.

use crate::catalog::SystemQuery;
use crate::statement::Statement;
use crate::types::{Datum, SqlType};
use std::sync::Arc;
use strandline_core::ids::{ColumnId, Rev, ShardId, TableId};
use strandline_core::scan::{KeyedScan, LatestScan, StreamAggregate, StreamScan};
use strandline_core::schema::{TableDef, TableSpec};
use strandline_core::schema_change::TableChange;
use strandline_core::stream::batch::StreamBatch;
use strandline_core::value::Value;
use strandline_core::xid::Xid;

/// A column of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputColumn {
    /// As the client sees it.
    pub name: String,
    /// How it is rendered.
    pub ty: SqlType,
    /// Where its cells come from.
    pub source: OutputSource,
}

/// Where the cells of an answer's column come from.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputSource {
    /// A column of the engine's batch, counted from 0.
    Column(usize),
    /// The same for every row (a literal of the select list).
    Const(Datum),
}

/// One key of a sort that the session does over the gathered rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// Column of the engine's batch.
    pub column: usize,
    /// DESC.
    pub descending: bool,
    /// NULLs before everything.
    pub nulls_first: bool,
}

/// What the session does with the engine's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// The answer's columns.
    pub columns: Vec<OutputColumn>,
    /// Sorted by these; empty: as they come. Equal rows keep their order.
    pub order: Vec<SortKey>,
    /// At most so many rows.
    pub limit: Option<u64>,
    /// After passing over so many.
    pub offset: u64,
}

/// Which rows a SELECT reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Rows of a timeseries table.
    Stream(StreamScan),
    /// The device shadow.
    Latest(LatestScan),
    /// Aggregates of a timeseries table.
    Aggregate(StreamAggregate),
    /// Rows of a rows table; order, limit and offset are in the scan, not in the shape.
    Keyed(KeyedScan),
}

/// A column that RETURNING answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ReturnColumn {
    /// As the client sees it.
    pub name: String,
    /// How it is rendered.
    pub ty: SqlType,
    /// What it shows.
    pub what: ReturnWhat,
}

/// What a RETURNING column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnWhat {
    /// The xid.
    Xid,
    /// x_rev.
    Rev,
    /// x_deleted.
    Deleted,
    /// A declared column.
    User(ColumnId),
}

/// The statements about transactions; each statement commits by itself all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// BEGIN, START TRANSACTION.
    Begin {
        /// READ ONLY: writes in the block are refused.
        read_only: bool,
    },
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
}

/// A bound statement.
#[derive(Debug)]
pub enum Plan {
    /// Nothing but blanks and comments.
    Empty,
    /// CREATE TABLE, CREATE ROWS TABLE.
    CreateTable {
        /// What to make.
        spec: TableSpec,
        /// IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// ALTER TABLE.
    AlterTable {
        /// Which.
        table: TableId,
        /// In order; all or none.
        changes: Vec<TableChange>,
    },
    /// ALTER TABLE IF EXISTS of one that is not there.
    AlterAbsent {
        /// Stored name.
        name: String,
    },
    /// DROP TABLE a, b.
    DropTables {
        /// Stored names.
        names: Vec<String>,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// INSERT into a timeseries table, split by shard.
    InsertStream {
        /// Which table.
        table: TableId,
        /// Per shard with rows.
        batches: Vec<(ShardId, StreamBatch)>,
        /// Rows of the statement, for the tag.
        rows: u64,
    },
    /// INSERT into a rows table.
    InsertRows {
        /// Which table.
        table: Arc<TableDef>,
        /// Columns that the statement names.
        columns: Vec<ColumnId>,
        /// Values in the order of `columns`.
        rows: Vec<Vec<Value>>,
        /// Explicit RETURNING; `None`: as `insert_returns` says (xid alone, or nothing).
        returning: Option<Vec<ReturnColumn>>,
    },
    /// UPDATE of a rows table.
    UpdateRow {
        /// Which table.
        table: Arc<TableDef>,
        /// Which row; `None` when the condition can match nothing (xid = NULL).
        xid: Option<Xid>,
        /// Compare-and-set.
        expected: Option<Rev>,
        /// New values.
        set: Vec<(ColumnId, Value)>,
        /// RETURNING.
        returning: Option<Vec<ReturnColumn>>,
    },
    /// DELETE from a rows table.
    DeleteRow {
        /// Which table.
        table: Arc<TableDef>,
        /// Which row; `None` when the condition can match nothing.
        xid: Option<Xid>,
        /// Compare-and-set.
        expected: Option<Rev>,
        /// RETURNING.
        returning: Option<Vec<ReturnColumn>>,
    },
    /// DELETE of an entity of a MUTABLE table.
    DeleteEntity {
        /// Which table.
        table: TableId,
        /// `None` when the condition can match nothing (entity = NULL).
        entity: Option<String>,
    },
    /// SELECT.
    Select {
        /// What the engine reads.
        source: Source,
        /// What the session does with it.
        shape: Shape,
    },
    /// SELECT over `$sys`, `pg_catalog`, `information_schema` or no table; SHOW TABLES and its like.
    System(Box<SystemQuery>),
    /// SHOW FEED t.
    ShowFeed(Arc<TableDef>),
    /// SHOW name; `None`: SHOW ALL.
    ShowSetting(Option<String>),
    /// SET name = value; `None`: DEFAULT, RESET.
    Set {
        /// Folded name.
        name: String,
        /// As text.
        value: Option<String>,
        /// SET LOCAL: to the end of the block.
        local: bool,
    },
    /// RESET ALL.
    ResetAll,
    /// DISCARD ALL.
    DiscardAll,
    /// BEGIN and its like.
    Transaction(Transaction),
    /// CHECKPOINT.
    Checkpoint,
    /// VACUUM t.
    Vacuum {
        /// A rows table.
        table: Arc<TableDef>,
        /// Says what it did in a NOTICE.
        verbose: bool,
    },
    /// EXPLAIN.
    Explain {
        /// ANALYZE: it is run too.
        analyze: bool,
        /// What is explained: a SELECT, a catalog question, INSERT, UPDATE or DELETE.
        plan: Box<Plan>,
    },
    /// PREPARE name AS …: the session keeps it beside the protocol's own prepared statements.
    Prepare {
        /// Its name.
        name: String,
        /// The types written behind the name; they may be fewer than the parameters.
        declared: Vec<Option<SqlType>>,
        /// What is prepared.
        statement: Box<Statement>,
    },
    /// EXECUTE name (…): the session binds the statement of that name with these values.
    Execute {
        /// Its name.
        name: String,
        /// Values of `$1`, `$2`, ….
        arguments: Vec<Datum>,
    },
    /// DEALLOCATE name; `None`: ALL.
    Deallocate(Option<String>),
    /// Accepted, and nothing to do (`CLOSE ALL`, `UNLISTEN *`, `DISCARD PLANS`): answers this tag.
    Nothing(&'static str),
}

/// What Describe answers before there are parameter values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// The type of each `$n`.
    pub parameters: Vec<SqlType>,
    /// The answer's columns; `None` when there are none (no rows come).
    pub columns: Option<Vec<(String, SqlType)>>,
}
