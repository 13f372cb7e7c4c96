//! What the engine does for a session. `net` sees the engine through this alone; so do the simulator's
//! clients. One value of it lives on each executor and is not `Send`.
//!
//! Dropping a future or a stream of a *read* stops its work in the shards. Dropping the future of a *write*
//! does not undo it: the shard owns the write from the moment it has it.

use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{ColumnId, Rev, SegmentId, ShardId, TableId};
use strandline_core::io::LocalFuture;
use strandline_core::keyed::Version;
use strandline_core::limits::Limits;
use strandline_core::profile::ScanCounters;
use strandline_core::scan::{KeyedScan, LatestScan, ReadQuery, StreamAggregate, StreamScan};
use strandline_core::schema::{Catalog, ColumnSpec, TableDef, TableSpec};
use strandline_core::schema_change::{Skipped, TableChange};
use strandline_core::stream::batch::StreamBatch;
use strandline_core::value::{Batch, Value};
use strandline_core::xid::Xid;

/// Batches of a result, as they come.
pub trait BatchStream {
    /// The next batch, which may be empty of rows; `None` at the end.
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Batch>>>;
    /// What the shards looked at, once the end has come. Rows tables only say what EXPLAIN says.
    fn looked_at(&self) -> ScanCounters {
        ScanCounters::default()
    }
}

/// Ids of a row that was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertedRow {
    /// Its id.
    pub xid: Xid,
    /// Its write number.
    pub rev: Rev,
}

/// `SHOW FEED`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStatus {
    /// Every write at or below it has landed.
    pub watermark: Rev,
    /// The highest purged x_rev; 0: none.
    pub vacuum_horizon: Rev,
    /// Rows that are not deleted.
    pub live_rows: u64,
    /// Rows that are deleted and not purged.
    pub tombstones: u64,
}

/// What a VACUUM did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacuumReport {
    /// Tombstones purged.
    pub purged: u64,
    /// The horizon now.
    pub horizon: Rev,
}

/// One shard, for `$sys.shards` and `/metrics`. Counters count from the start of the process.
#[derive(Clone, Debug, Default)]
pub struct ShardStatus {
    /// Which.
    pub shard: ShardId,
    /// The executor that hosts it.
    pub executor: usize,
    /// `None`, or why it no longer takes writes.
    pub write_refusal: Option<String>,
    /// Log commits (fsyncs).
    pub commits: u64,
    /// Log records.
    pub records: u64,
    /// Bytes written to the log.
    pub log_written_bytes: u64,
    /// Bytes of log that a start would replay.
    pub log_bytes: u64,
    /// Microseconds of a commit, write and fsync: count, sum, p50, p99, max.
    pub commit_us: [u64; 5],
    /// Rows written to timeseries tables.
    pub stream_rows: u64,
    /// Versions written to rows tables.
    pub keyed_versions: u64,
    /// Bytes of memtables, frozen ones too.
    pub memtable_bytes: u64,
    /// Bytes of tails.
    pub tail_bytes: u64,
    /// Bytes of entity names.
    pub name_bytes: u64,
    /// Channels without tails: there was no room for them.
    pub tails_given_up: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Entities known.
    pub entities: u64,
    /// Segments.
    pub segments: u64,
    /// Segments that cannot be read, or of which a read has met damage since the start.
    pub damaged_segments: u64,
    /// Bytes of segments.
    pub segment_bytes: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Merges done.
    pub merges: u64,
    /// Bytes that merges still have to rewrite.
    pub merge_debt_bytes: u64,
    /// Bytes of segments that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of segments that merges read.
    pub merge_read_bytes: u64,
    /// Bytes of segments that merges wrote.
    pub merge_written_bytes: u64,
    /// Blocks that merges encoded anew.
    pub blocks_encoded: u64,
    /// Blocks that merges took over as they stood.
    pub blocks_copied: u64,
    /// Segments that RETENTION took away as a whole.
    pub expired_segments: u64,
    /// Their bytes.
    pub expired_bytes: u64,
    /// Segments that are replaced or expired and whose files stay for readers that hold them.
    pub held_segments: u64,
    /// Writes that were slowed because flushes or merges lag behind.
    pub writes_slowed: u64,
    /// For how long, together, µs.
    pub slowed_us: u64,
    /// How long a write would be slowed now, µs.
    pub slow_down_us: u64,
    /// Writers that wait for memory or for the log.
    pub writers_waiting: u64,
    /// Messages from other executors.
    pub messages: u64,
}

/// One segment, for `$sys.segments`.
#[derive(Clone, Debug)]
pub struct SegmentStatus {
    /// Where.
    pub shard: ShardId,
    /// Which.
    pub segment: SegmentId,
    /// Of which table.
    pub table: TableId,
    /// Rows (rows tables: versions).
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Smallest and largest ts, or x_rev.
    pub range: (i64, i64),
    /// What a read of it said that met damage.
    pub damage: Option<String>,
    /// Its index cannot be read: rows, blocks and range are not known.
    pub unreadable: bool,
    /// Flushes whose rows it holds, the first not counted.
    pub level: u32,
    /// Days of the bucket of time that it belongs to; none for a mixed one and for rows tables.
    pub bucket_days: Option<i64>,
}

/// One table's totals, for `$sys.tables`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableStatus {
    /// Stored rows (duplicates and old versions too).
    pub rows: u64,
    /// Bytes of segments.
    pub segment_bytes: u64,
    /// Bytes of memtables.
    pub memtable_bytes: u64,
    /// Segments.
    pub segments: u64,
}

/// The engine, as one executor sees it.
pub trait Engine {
    /// The limits in force.
    fn limits(&self) -> &Arc<Limits>;
    /// Shards of the database.
    fn shards(&self) -> u16;
    /// The wall clock, Unix ms.
    fn now_ms(&self) -> i64;
    /// A monotonic clock, ns.
    fn monotonic_ns(&self) -> u64;
    /// The tables now.
    fn catalog(&self) -> Arc<Catalog>;
    /// `Err` when this engine cannot take writes (its log failed), for `/ready`.
    fn ready(&self) -> Result<()>;

    /// CREATE. `false` when it was there and `if_not_exists`; else `42P07`.
    fn create_table(&self, spec: TableSpec, if_not_exists: bool) -> LocalFuture<'_, Result<bool>>;
    /// ALTER: all of the changes or, on an error, none. Answers the actions that had nothing to do. A statement
    /// that began before it goes on with the table as it was.
    fn alter_table(
        &self,
        table: TableId,
        changes: Vec<TableChange>,
    ) -> LocalFuture<'_, Result<Vec<Skipped>>>;
    /// DROP. `false` when it was not there and `if_exists`; else `42P01`. Readers that began before it end
    /// with rows or with `42P01`, never with wrong rows.
    fn drop_table<'a>(&'a self, name: &'a str, if_exists: bool) -> LocalFuture<'a, Result<bool>>;
    /// Line protocol: makes the timeseries table and the channels that are missing, and widens undeclared
    /// labels (BOOL → INT → DOUBLE). `Err` when the table is of another family. Columns that are there with
    /// a label at least as wide, or declared, stay as they are: the caller looks at the answer.
    fn ensure_columns<'a>(
        &'a self,
        table: &'a str,
        columns: Vec<ColumnSpec>,
    ) -> LocalFuture<'a, Result<Arc<TableDef>>>;

    /// Writes fragments; each batch goes to the shard of its entities. Answers once all are durable and
    /// visible. `54000` before anything is written when they bring more entities than the table may have.
    fn write_stream(
        &self,
        table: TableId,
        batches: Vec<(ShardId, StreamBatch)>,
    ) -> LocalFuture<'_, Result<()>>;
    /// Why rows of new entities of a table are refused when they are: `54000` for a table of too many, `53200`
    /// where memory has no room for their names.
    fn entities_refusal(&self, table: &str) -> Error {
        self.limits().exceeded(
            "entities",
            SqlState::ProgramLimitExceeded,
            format_args!("too many entities for table \"{table}\""),
        )
    }
    /// Writes the fragments of lines, each of which stands for itself: rows of entities that are too many for
    /// the table are left out, and it answers how many that were. Calls reach a shard in their order.
    fn write_lines(
        &self,
        table: TableId,
        shard: ShardId,
        batch: Arc<StreamBatch>,
    ) -> LocalFuture<'_, Result<u64>>;
    /// Inserts rows; values stand in the order of `columns`, absent columns are NULL.
    fn insert_rows(
        &self,
        table: TableId,
        columns: Vec<ColumnId>,
        rows: Vec<Vec<Value>>,
    ) -> LocalFuture<'_, Result<Vec<InsertedRow>>>;
    /// `UPDATE … WHERE xid = … [AND x_rev = …]`. The new version, or `None` when the row is missing, deleted
    /// or has moved on.
    fn update_row(
        &self,
        table: TableId,
        xid: Xid,
        expected: Option<Rev>,
        set: Vec<(ColumnId, Value)>,
    ) -> LocalFuture<'_, Result<Option<Version>>>;
    /// `DELETE FROM t WHERE entity = …` of a MUTABLE table: false when it has no such entity, or it is deleted.
    fn delete_entity(&self, table: TableId, entity: String) -> LocalFuture<'_, Result<bool>>;
    /// `DELETE … WHERE xid = … [AND x_rev = …]`. The tombstone, or `None` as for UPDATE.
    fn delete_row(
        &self,
        table: TableId,
        xid: Xid,
        expected: Option<Rev>,
    ) -> LocalFuture<'_, Result<Option<Version>>>;

    /// Rows of a timeseries table; entities in no order, rows of one entity by ts.
    fn scan_stream(&self, scan: StreamScan) -> LocalFuture<'_, Result<Box<dyn BatchStream>>>;
    /// The device shadow; entities in no order.
    fn latest(&self, scan: LatestScan) -> LocalFuture<'_, Result<Box<dyn BatchStream>>>;
    /// Aggregates, gathered over the shards and filled; sorted by (entity if asked for, bucket).
    fn aggregate(&self, query: StreamAggregate) -> LocalFuture<'_, Result<Batch>>;
    /// As [`Engine::aggregate`], with what the shards looked at.
    fn aggregate_counted(
        &self,
        query: StreamAggregate,
    ) -> LocalFuture<'_, Result<(Batch, ScanCounters)>> {
        Box::pin(async move { Ok((self.aggregate(query).await?, ScanCounters::default())) })
    }
    /// What a read would look at, by what footers and lists of sources say: no data is read.
    fn explain(&self, _read: ReadQuery) -> LocalFuture<'_, Result<ScanCounters>> {
        Box::pin(std::future::ready(Ok(ScanCounters::default())))
    }
    /// Rows of a rows table in their order, with offset and limit applied. For a feed the engine itself
    /// loads the watermark, checks the horizon (`55000`) and retries; `FeedRange::watermark` is ignored.
    fn scan_keyed(&self, scan: KeyedScan) -> LocalFuture<'_, Result<Box<dyn BatchStream>>>;

    /// `SHOW FEED`.
    fn feed_status(&self, table: TableId) -> LocalFuture<'_, Result<FeedStatus>>;
    /// `VACUUM t`.
    fn vacuum(&self, table: TableId) -> LocalFuture<'_, Result<VacuumReport>>;
    /// `CHECKPOINT`: the snapshot's folder, relative to the database's directory.
    fn checkpoint(&self) -> LocalFuture<'_, Result<String>>;

    /// `$sys.shards`, `/metrics`.
    fn shard_status(&self) -> LocalFuture<'_, Result<Vec<ShardStatus>>>;
    /// `$sys.segments`.
    fn segment_status(&self) -> LocalFuture<'_, Result<Vec<SegmentStatus>>>;
    /// `$sys.tables`.
    fn table_status(&self, table: TableId) -> LocalFuture<'_, Result<TableStatus>>;
}
