//! Reads through the engine, in a shape that can be compared.

use crate::questions::{Question, reads};
use crate::reference::Answered;
use crate::sim::model::rows::Seen;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, SqlState};
use strandline_core::ids::{ColumnId, Rev};
use strandline_core::scan::{
    Entities, FeedRange, KeyedColumn, KeyedFilter, KeyedScan, LatestScan, StreamAggregate,
    StreamScan, TsRange,
};
use strandline_core::schema::{
    ColumnSpec, Family, Fill, Label, StreamOptions, TableDef, TableSpec,
};
use strandline_core::value::{Batch, Cell, Kind, Value};
use strandline_core::xid::Xid;
use strandline_shard::api::{BatchStream, Engine};

/// The rows table that replicas follow.
pub const TABLE: &str = "registry";
/// The timeseries table that is never dropped.
pub const STREAM: &str = "telemetry";

/// The scratch table that is made WITH (DEDUP), when it is a timeseries table.
pub const DEDUP: &str = "scratch1";

/// The MUTABLE table, which is never dropped.
pub const CURRENT: &str = "current";

/// The engine as a client has it.
pub type Db = Rc<dyn Engine>;

/// A table by name.
pub fn table(db: &Db, name: &str) -> Result<Arc<TableDef>, Error> {
    let missing = || Error::new(SqlState::UndefinedTable, format!("no table {name}"));
    db.catalog().table(name).cloned().ok_or_else(missing)
}

/// What the simulator's tables look like.
pub fn spec(name: &str, family: Family) -> TableSpec {
    let column = |name: &str, label, fill| ColumnSpec {
        name: name.into(),
        label,
        fill,
        declared: true,
    };
    let hold = |staleness_ms| Fill::Hold { staleness_ms };
    let columns = match family {
        Family::Rows => vec![
            column("token", Label::TEXT, Fill::None),
            column("n", Label::Int, Fill::None),
        ],
        Family::Timeseries => vec![
            column(
                "v",
                Label::Double,
                hold((name != CURRENT).then_some(20_000)),
            ),
            column("w", Label::Double, Fill::None),
            column("s", Label::TEXT, hold(None)),
        ],
    };
    TableSpec {
        name: name.into(),
        family,
        columns,
        entity_uuid: false,
        options: StreamOptions {
            dedup: family == Family::Timeseries && name == DEDUP,
            mutable: name == CURRENT,
            ..StreamOptions::default()
        },
    }
}

async fn collect(mut rows: Box<dyn BatchStream>) -> Result<Vec<Batch>, Error> {
    let mut all = Vec::new();
    while let Some(batch) = rows.next().await? {
        all.push(batch);
    }
    Ok(all)
}

fn value(cell: Cell<'_>) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::F64(x) => Value::F64(x),
        Cell::I64(x) => Value::F64(x as f64),
        Cell::Str(s) => Value::str(s),
    }
}

// --- rows tables ----------------------------------------------------------------------------------

/// A feed from `after`; `given`: the statement names that bound.
pub fn feed_after(after: u64, given: bool) -> FeedRange {
    FeedRange {
        after: Rev(after),
        after_given: given,
        until: Rev::MAX,
        deleted: None,
        watermark: Rev(0),
    }
}

fn keyed_scan(def: &TableDef) -> KeyedScan {
    KeyedScan {
        table: def.id,
        columns: vec![
            KeyedColumn::Xid,
            KeyedColumn::Rev,
            KeyedColumn::Deleted,
            KeyedColumn::User(def.columns[0].id, Kind::Str),
        ],
        filter: None,
        feed: None,
        order: Vec::new(),
        limit: None,
        offset: 0,
        count: false,
    }
}

async fn keyed_rows(db: &Db, scan: KeyedScan) -> Result<Vec<(Xid, Seen)>, Error> {
    let mut rows = Vec::new();
    for batch in collect(db.scan_keyed(scan).await?).await? {
        for row in 0..batch.rows {
            let cell = |i: usize| batch.columns[i].cell(row);
            let (Cell::Str(xid), Cell::I64(rev), Cell::I64(deleted)) = (cell(0), cell(1), cell(2))
            else {
                return Err(Error::internal("columns of the wrong type"));
            };
            let token = match cell(3) {
                Cell::Str(t) => t.to_string(),
                _ => String::new(),
            };
            let seen = Seen {
                rev: rev as u64,
                deleted: deleted != 0,
                token,
            };
            rows.push((Xid::parse(xid).ok_or_else(|| Error::internal("xid"))?, seen));
        }
    }
    Ok(rows)
}

/// The rows of a table, or a page of its feed.
pub async fn read_rows(
    db: &Db,
    def: &TableDef,
    feed: Option<FeedRange>,
    limit: Option<u64>,
) -> Result<Vec<(Xid, Seen)>, Error> {
    let scan = KeyedScan {
        feed,
        limit,
        ..keyed_scan(def)
    };
    keyed_rows(db, scan).await
}

/// One row.
pub async fn read_row(db: &Db, def: &TableDef, xid: Xid) -> Result<Vec<(Xid, Seen)>, Error> {
    let scan = KeyedScan {
        filter: Some(KeyedFilter::XidEq(xid)),
        ..keyed_scan(def)
    };
    keyed_rows(db, scan).await
}

/// `count(*)`.
pub async fn count_rows(db: &Db, def: &TableDef) -> Result<i64, Error> {
    let scan = KeyedScan {
        count: true,
        ..keyed_scan(def)
    };
    let batches = collect(db.scan_keyed(scan).await?).await?;
    match batches
        .iter()
        .find(|b| b.rows > 0)
        .map(|b| b.columns[0].cell(0))
    {
        Some(Cell::I64(n)) => Ok(n),
        other => Err(Error::internal(format!("count(*) is {other:?}"))),
    }
}

// --- timeseries tables ----------------------------------------------------------------------------

/// Every channel of a table.
pub fn channels(def: &TableDef) -> Vec<ColumnId> {
    def.columns.iter().map(|c| c.id).collect()
}

/// Everything that is stored of these entities.
pub fn raw(def: &TableDef, entities: Entities) -> StreamScan {
    let channels = reads(def);
    StreamScan {
        floor: i64::MIN,
        table: def.id,
        entities,
        range: TsRange::ALL,
        output: channels.len(),
        channels,
        filled: false,
        predicate: None,
        limit: None,
    }
}

fn answered(batches: &[Batch], keys: usize) -> Result<Vec<Answered>, Error> {
    let mut out = Vec::new();
    for batch in batches {
        for row in 0..batch.rows {
            let (Cell::Str(entity), Cell::I64(ts)) =
                (batch.columns[0].cell(row), batch.columns[1].cell(row))
            else {
                return Err(Error::internal("a row without entity and ts"));
            };
            let cells = batch.columns[keys..].iter().map(|c| value(c.cell(row)));
            out.push((entity.to_string(), ts, cells.collect()));
        }
    }
    Ok(out)
}

/// The rows of a scan, by entity.
pub async fn scan(db: &Db, q: StreamScan) -> Result<Vec<Answered>, Error> {
    let mut rows = answered(&collect(db.scan_stream(q).await?).await?, 2)?;
    // Entities come in no order; the rows of each come in theirs.
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(rows)
}

/// The device shadow, by entity.
pub async fn latest(db: &Db, q: LatestScan) -> Result<Vec<Answered>, Error> {
    let mut rows = answered(&collect(db.latest(q).await?).await?, 2)?;
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(rows)
}

/// Aggregates: (entity, bucket, values), empty and 0 where the query has none.
pub async fn aggregate(db: &Db, q: StreamAggregate) -> Result<Vec<Answered>, Error> {
    let (by_entity, sampled, values) = (q.by_entity, q.sample.is_some(), q.aggregates.len());
    let batch = db.aggregate(q).await?;
    let mut out = Vec::new();
    for row in 0..batch.rows {
        let mut cells = batch.columns.iter().map(|c| value(c.cell(row)));
        let entity = match by_entity.then(|| cells.next()).flatten() {
            Some(Value::Str(s)) => s.to_string(),
            _ => String::new(),
        };
        let bucket = match sampled.then(|| cells.next()).flatten() {
            Some(Value::F64(x)) => x as i64,
            _ => 0,
        };
        out.push((entity, bucket, cells.take(values).collect()));
    }
    Ok(out)
}

/// Asks the engine.
pub async fn ask(db: &Db, question: &Question) -> Result<Vec<Answered>, Error> {
    match question.clone() {
        Question::Scan(q) => scan(db, q).await,
        Question::Latest(q) => latest(db, q).await,
        Question::Aggregate(q) => aggregate(db, q).await,
    }
}
