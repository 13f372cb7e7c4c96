//! Reads through the engine, in a shape that can be compared; and queries made up from a seed.

use crate::sim::model::rows::Seen;
use crate::sim::model::stream::{Answered, COMPARE};
use crate::sim::world::Rng;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, SqlState};
use strandline_core::ids::{ColumnId, Rev};
use strandline_core::scan::{
    Aggregate, AggregateFn, ChannelRead, Entities, FeedRange, KeyedColumn, KeyedFilter, KeyedScan,
    LatestScan, Predicate, SampleBy, StreamAggregate, StreamScan, TsRange,
};
use strandline_core::schema::{ColumnSpec, Family, Fill, Label, TableDef, TableSpec};
use strandline_core::time::Interval;
use strandline_core::value::{Batch, Cell, Kind, Value};
use strandline_core::xid::Xid;
use strandline_shard::api::{BatchStream, Engine};

/// The rows table that replicas follow.
pub const TABLE: &str = "registry";
/// The timeseries table that is never dropped.
pub const STREAM: &str = "telemetry";

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
            column("v", Label::Double, hold(Some(20_000))),
            column("w", Label::Double, Fill::None),
            column("s", Label::TEXT, hold(None)),
        ],
    };
    TableSpec {
        name: name.into(),
        family,
        columns,
        entity_uuid: false,
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

fn reads(def: &TableDef) -> Vec<ChannelRead> {
    let read = |c: &strandline_core::schema::ColumnDef| ChannelRead {
        column: c.id,
        kind: c.label.kind(),
        fill: c.fill,
    };
    def.columns.iter().map(read).collect()
}

/// Everything that is stored of these entities.
pub fn raw(def: &TableDef, entities: Entities) -> StreamScan {
    let channels = reads(def);
    StreamScan {
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

/// A question about a timeseries table.
#[derive(Clone, Debug)]
pub enum Query {
    /// Rows.
    Scan(StreamScan),
    /// The device shadow.
    Latest(LatestScan),
    /// Aggregates.
    Aggregate(StreamAggregate),
}

impl Query {
    /// Asks the engine.
    pub async fn ask(&self, db: &Db) -> Result<Vec<Answered>, Error> {
        match self.clone() {
            Query::Scan(q) => scan(db, q).await,
            Query::Latest(q) => latest(db, q).await,
            Query::Aggregate(q) => aggregate(db, q).await,
        }
    }
}

/// A question over these entities (all of them: `None`) around `times`.
pub fn query(rng: &Rng, def: &TableDef, of: Option<Vec<String>>, times: &[i64]) -> Query {
    let one = of.as_ref().is_some_and(|e| e.len() == 1);
    let entities = of.map_or(Entities::All, Entities::In);
    let moment = |open: i64| match times.len() as u64 {
        n if n > 0 && !rng.one_in(3) => times[rng.below(n) as usize],
        _ => open,
    };
    let range = TsRange {
        from: moment(i64::MIN),
        to: moment(i64::MAX),
    };
    let mut channels = reads(def);
    channels.retain(|_| !rng.one_in(3));
    if channels.is_empty() {
        channels = reads(def);
    }
    let last = channels.len() - 1;
    match rng.below(3) {
        0 => {
            let predicate = match (rng.below(4), channels[last].kind) {
                (0, Kind::F64) => Some(Predicate::Compare {
                    channel: last,
                    op: COMPARE,
                    value: Value::F64(rng.below(2_000) as f64),
                }),
                (1, _) => Some(Predicate::IsNull {
                    channel: last,
                    negated: rng.one_in(2),
                }),
                _ => None,
            };
            let hidden = predicate.is_some() && last > 0 && rng.one_in(2);
            Query::Scan(StreamScan {
                table: def.id,
                entities,
                range,
                output: channels.len() - usize::from(hidden),
                channels,
                filled: !rng.one_in(3),
                predicate,
                limit: (one && rng.one_in(3)).then(|| rng.below(20)),
            })
        }
        1 => {
            let whole = rng.one_in(2);
            Query::Latest(LatestScan {
                table: def.id,
                entities,
                until: if whole { i64::MAX } else { range.to },
                from: if whole { i64::MIN } else { range.from },
                channels,
            })
        }
        _ => {
            use AggregateFn as F;
            let by_entity = rng.one_in(2);
            let all = [F::Count, F::Sum, F::Avg, F::Min, F::Max, F::First, F::Last];
            let mut aggregates = vec![Aggregate {
                func: F::Count,
                column: None,
            }];
            for read in &channels {
                let func = match all[rng.below(7) as usize] {
                    F::Sum | F::Avg if read.kind == Kind::Str => F::Count,
                    // Across entities the order of samples at one ts is open.
                    F::First | F::Last if !by_entity => F::Max,
                    func => func,
                };
                let column = Some((read.column, read.kind));
                aggregates.push(Aggregate { func, column });
            }
            if rng.one_in(2) {
                aggregates.remove(0);
            }
            let interval = [
                Interval::Ms(1_000),
                Interval::Ms(7_000),
                Interval::Ms(86_400_000),
                Interval::Months(1),
            ][rng.below(4) as usize];
            Query::Aggregate(StreamAggregate {
                table: def.id,
                entities,
                range,
                aggregates,
                sample: rng.one_in(2).then_some(SampleBy {
                    interval,
                    fill: None,
                }),
                by_entity,
            })
        }
    }
}
