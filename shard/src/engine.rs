//! The engine on one executor: [`Engine`] over the router. Reads are split over the shards that can hold
//! what they ask for and gathered here; writes go to their shards.

use crate::api::{
    BatchStream, Engine, FeedStatus, InsertedRow, SegmentStatus, ShardStatus, TableStatus,
    VacuumReport,
};
use crate::gather::{CHANNEL_BATCHES, ChannelSink, Once, Ordered, Part, Unordered};
use crate::handle_write::Change;
use crate::hop::while_wanted;
use crate::router::Router;
use crate::shared::Shared;
use crate::worker::Shard;
use futures_util::future::{join_all, try_join_all};
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{ColumnId, Rev, ShardId, TableId};
use strandline_core::io::{LocalFuture, TaskQueue};
use strandline_core::keyed::{ScanLayout, Version};
use strandline_core::limits::Limits;
use strandline_core::profile::ScanCounters;
use strandline_core::revision::InsertGrant;
use strandline_core::routing::{shard_of_entity, shard_of_xid};
use strandline_core::scan::{
    Entities, FeedRange, KeyedFilter, KeyedScan, LatestScan, ReadQuery, StreamAggregate, StreamScan,
};
use strandline_core::schema::{Catalog, ColumnSpec, TableDef, TableSpec};
use strandline_core::schema_change::{Skipped, TableChange};
use strandline_core::stream::batch::StreamBatch;
use strandline_core::value::{Batch, Column, ColumnData, Value};
use strandline_core::xid::Xid;

/// How often a feed read starts over because shards resolved versions above its watermark. Each time it
/// loads a newer one; a resolve happens with a flush or a merge, which are seconds apart.
const FEED_RETRIES: usize = 16;

/// See [`Engine`].
pub struct LocalEngine {
    router: Rc<Router>,
}

impl LocalEngine {
    /// On one executor.
    pub fn new(router: Rc<Router>) -> Rc<Self> {
        Rc::new(LocalEngine { router })
    }

    fn shared(&self) -> &Arc<Shared> {
        self.router.shared()
    }

    fn all_shards(&self) -> Vec<ShardId> {
        (0..self.shared().shards).map(ShardId).collect()
    }

    /// What of a timeseries table has not expired begins here.
    fn floor(&self, table: TableId) -> Result<i64> {
        Ok(self.shared().table(table)?.options.floor(self.now_ms()))
    }

    async fn gather_aggregates(&self, mut query: StreamAggregate) -> Result<(Batch, ScanCounters)> {
        query.floor = self.floor(query.table)?;
        let split = self.split_entities(&query.entities);
        let asked = split.into_iter().map(|(shard, entities)| {
            let part = StreamAggregate {
                entities,
                ..query.clone()
            };
            self.router.ask(shard, TaskQueue::Query, move |s| {
                Box::pin(async move { s.aggregate(part).await })
            })
        });
        let mut parts = try_join_all(asked).await?.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            all.merge(part);
        }
        let looked_at = all.counters;
        Ok((all.finish(&query, &self.shared().limits)?, looked_at))
    }

    async fn explain_read(&self, mut read: ReadQuery) -> Result<ScanCounters> {
        let shards: Vec<(ShardId, Entities)> = match &mut read {
            ReadQuery::Stream(scan) => {
                scan.floor = self.floor(scan.table)?;
                self.split_entities(&scan.entities)
            }
            ReadQuery::Latest(scan) => {
                scan.floor = self.floor(scan.table)?;
                self.split_entities(&scan.entities)
            }
            ReadQuery::Aggregate(query) => {
                query.floor = self.floor(query.table)?;
                self.split_entities(&query.entities)
            }
            ReadQuery::Keyed(scan) => {
                let shards = match &scan.filter {
                    Some(KeyedFilter::XidEq(xid)) => vec![shard_of_xid(*xid, self.shared().shards)],
                    Some(KeyedFilter::Nothing) => Vec::new(),
                    _ => self.all_shards(),
                };
                shards.into_iter().map(|s| (s, Entities::All)).collect()
            }
        };
        let asked = shards.into_iter().map(|(shard, entities)| {
            let mut read = read.clone();
            self.router.ask(shard, TaskQueue::Query, move |s| {
                Box::pin(async move {
                    match &mut read {
                        ReadQuery::Stream(scan) => scan.entities = entities,
                        ReadQuery::Latest(scan) => scan.entities = entities,
                        ReadQuery::Aggregate(query) => query.entities = entities,
                        ReadQuery::Keyed(_) => {}
                    }
                    s.explain(&read).await
                })
            })
        });
        let mut all = ScanCounters::default();
        for part in try_join_all(asked).await? {
            all.add(&part);
        }
        Ok(all)
    }

    /// The shards that hold some of these entities, each with its own.
    fn split_entities(&self, entities: &Entities) -> Vec<(ShardId, Entities)> {
        match entities {
            Entities::All => self
                .all_shards()
                .into_iter()
                .map(|s| (s, Entities::All))
                .collect(),
            Entities::In(names) => {
                let mut split: Vec<(ShardId, Vec<String>)> = Vec::new();
                for name in names {
                    let shard = shard_of_entity(name, self.shared().shards);
                    match split.iter_mut().find(|(s, _)| *s == shard) {
                        Some((_, list)) => list.push(name.clone()),
                        None => split.push((shard, vec![name.clone()])),
                    }
                }
                split
                    .into_iter()
                    .map(|(s, list)| (s, Entities::In(list)))
                    .collect()
            }
        }
    }

    async fn grant(&self, table: TableId, rows: u32) -> Result<InsertGrant> {
        let env = &self.router.state().env;
        let prefer = self.router.local_shard();
        loop {
            let (now, random) = (env.clock.now_ms(), env.random.next_u64());
            match self
                .shared()
                .allocator()?
                .insert(table, rows, now, random, prefer)
            {
                Ok(grant) => return Ok(grant),
                Err(refusal) => self.router.wait_for_numbers(table, refusal).await?,
            }
        }
    }

    async fn insert(
        &self,
        table: TableId,
        columns: Vec<ColumnId>,
        rows: Vec<Vec<Value>>,
    ) -> Result<Vec<InsertedRow>> {
        let run = self.shared().limits.insert_run_rows as usize;
        let mut inserted = Vec::with_capacity(rows.len());
        let mut rows = rows.into_iter();
        let total = rows.len();
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|&i| columns[i]);
        while rows.len() > 0 {
            let chunk: Vec<Vec<Value>> = rows.by_ref().take(run).collect();
            let InsertGrant {
                first_rev,
                first_xid,
                shard,
                ticket,
                ..
            } = self.grant(table, chunk.len() as u32).await?;
            let mut versions = Vec::with_capacity(chunk.len());
            let first = inserted.len();
            for (n, mut values) in (0u64..).zip(chunk) {
                let row = InsertedRow {
                    xid: Xid(first_xid.0 + (u128::from(n) << 16)),
                    rev: Rev(first_rev.0 + n),
                };
                let mut image = Vec::with_capacity(values.len());
                for &i in &order {
                    let value = std::mem::take(&mut values[i]);
                    if !value.is_null() {
                        image.push((columns[i], value));
                    }
                }
                versions.push(Version {
                    key: Box::new(row.xid.to_bytes()),
                    rev: row.rev,
                    deleted: false,
                    first: true,
                    values: image,
                });
                inserted.push(row);
            }
            let done = self
                .router
                .ask(shard, TaskQueue::Ingest, move |s| {
                    Box::pin(async move { s.insert_rows(table, versions, ticket).await })
                })
                .await;
            if let Err(e) = done {
                return Err(partly(e, first, total));
            }
        }
        Ok(inserted)
    }

    async fn write_batches(
        &self,
        table: TableId,
        batches: Vec<(ShardId, StreamBatch)>,
    ) -> Result<()> {
        let most = batches.iter().map(|(_, b)| b.entities.len()).max();
        if batches.len() > 1 && self.shared().entities_may_run_out(most.unwrap_or(0)) {
            let asked = batches.iter().map(|(shard, batch)| {
                let batch = StreamBatch {
                    entities: batch.entities.clone(),
                    entity_hashes: batch.entity_hashes.clone(),
                    ..StreamBatch::default()
                };
                self.router.ask(*shard, TaskQueue::Ingest, move |s| {
                    Box::pin(async move { s.check_entities(table, &batch) })
                })
            });
            try_join_all(asked).await?;
        }
        let total: usize = batches.iter().map(|(_, b)| b.rows()).sum();
        let asked = batches.into_iter().map(|(shard, batch)| async move {
            let rows = batch.rows();
            let done = self.router.ask(shard, TaskQueue::Ingest, move |s| {
                Box::pin(async move { s.write_stream(table, batch).await })
            });
            (rows, done.await)
        });
        let answers = join_all(asked).await;
        let written: usize = (answers.iter().filter(|(_, done)| done.is_ok()))
            .map(|(rows, _)| rows)
            .sum();
        match answers.into_iter().find_map(|(_, done)| done.err()) {
            None => Ok(()),
            Some(e) if written == 0 => Err(e),
            Some(e) => Err(Error::new(
                e.state(),
                format!("{}; {written} of {total} rows were written", e.message()),
            )
            .hint("each shard commits its part of a statement by itself")),
        }
    }

    async fn scan_feed_or_rows(&self, mut scan: KeyedScan) -> Result<Box<dyn BatchStream>> {
        self.shared().table(scan.table)?;
        if let Some(KeyedFilter::Nothing) = scan.filter {
            return Ok(self.nothing(&scan));
        }
        let ledger = self.shared().ledger(scan.table)?;
        let shards = match &scan.filter {
            Some(KeyedFilter::XidEq(xid)) => vec![shard_of_xid(*xid, self.shared().shards)],
            _ => self.all_shards(),
        };
        for _ in 0..FEED_RETRIES {
            let watermark = ledger.watermark();
            if let Some(feed) = &mut scan.feed {
                feed.watermark = watermark;
            }
            let channels: Vec<_> = shards
                .iter()
                .map(|&shard| self.start_keyed(shard, scan.clone(), watermark))
                .collect();
            // Every shard has fixed what it reads before the horizon is looked at: a purge that took
            // something from under this read had published its horizon before.
            let mut stale = false;
            for rx in &channels {
                match rx.recv_async().await {
                    Ok(Part::Begun) => {}
                    Ok(Part::Stale) => stale = true,
                    Ok(Part::End(Err(e))) => return Err(e),
                    _ => return Err(Error::internal("a shard began a scan with rows")),
                }
            }
            if let Some(feed) = &scan.feed {
                self.check_horizon(scan.table, feed)?;
            }
            if stale {
                continue;
            }
            if scan.count {
                return self.sum_counts(channels, &scan).await;
            }
            let layout = ScanLayout::of(&scan);
            return Ok(Box::new(Ordered::new(
                channels,
                layout,
                scan.offset,
                scan.limit,
            )));
        }
        Err(Error::new(
            SqlState::ObjectNotInPrerequisiteState,
            "the feed moved on too fast to be read; try again",
        ))
    }

    fn nothing(&self, scan: &KeyedScan) -> Box<dyn BatchStream> {
        let zero = Batch::new(vec![Column::full(ColumnData::I64(vec![0]))]);
        Box::new(Once(
            (scan.count && scan.offset == 0 && scan.limit != Some(0)).then_some(zero),
        ))
    }

    /// `count(*)` is one row: offset and limit are over that row.
    async fn sum_counts(
        &self,
        channels: Vec<flume::Receiver<Part>>,
        scan: &KeyedScan,
    ) -> Result<Box<dyn BatchStream>> {
        let shards = channels.len();
        let mut total = 0i64;
        for rx in channels {
            let mut rows = Unordered::new(rx, 1);
            while let Some(batch) = rows.next().await? {
                if let Some(Column {
                    data: ColumnData::I64(n),
                    ..
                }) = batch.columns.first()
                {
                    total += n.iter().sum::<i64>();
                }
            }
        }
        debug_assert!(shards > 0);
        let one = Batch::new(vec![Column::full(ColumnData::I64(vec![total]))]);
        Ok(Box::new(Once(
            (scan.offset == 0 && scan.limit != Some(0)).then_some(one),
        )))
    }

    fn check_horizon(&self, table: TableId, feed: &FeedRange) -> Result<()> {
        let horizon = self.shared().published().horizon(table);
        if feed.after_given && feed.after < horizon {
            let name = self
                .shared()
                .table(table)
                .map(|t| t.name.clone())
                .unwrap_or_default();
            return Err(Error::new(
                SqlState::ObjectNotInPrerequisiteState,
                format!(
                    "the feed of \"{name}\" from x_rev {} is gone: VACUUM purged up to {}; resync in full",
                    feed.after.0, horizon.0
                ),
            )
            .hint("read the watermark with SHOW FEED, scan the table, then go on from that watermark"));
        }
        Ok(())
    }

    fn start_keyed(
        &self,
        shard: ShardId,
        scan: KeyedScan,
        watermark: Rev,
    ) -> flume::Receiver<Part> {
        let (tx, rx) = flume::bounded(CHANNEL_BATCHES);
        self.router.start(shard, TaskQueue::Query, move |s| {
            Box::pin(async move { s.scan_keyed(scan, watermark, tx).await })
        });
        rx
    }
}

/// What a statement over several commits says when a later one fails.
fn partly(e: Error, done: usize, total: usize) -> Error {
    if done == 0 {
        return e;
    }
    Error::new(
        e.state(),
        format!(
            "{}; {done} of {total} rows were written before",
            e.message()
        ),
    )
    .hint("each 65,536 rows are one commit")
}

impl Engine for LocalEngine {
    fn limits(&self) -> &Arc<Limits> {
        &self.shared().limits
    }
    fn shards(&self) -> u16 {
        self.shared().shards
    }
    fn entities_refusal(&self, table: &str) -> Error {
        self.shared().entities_refusal(table)
    }
    fn now_ms(&self) -> i64 {
        self.router.state().env.clock.now_ms()
    }
    fn monotonic_ns(&self) -> u64 {
        self.router.state().env.clock.monotonic_ns()
    }
    fn catalog(&self) -> Arc<Catalog> {
        self.shared().published().catalog.clone()
    }
    fn ready(&self) -> Result<()> {
        self.shared().allocator()?;
        if self.shared().is_draining() {
            return Err(Error::new(
                SqlState::AdminShutdown,
                "the server is going down",
            ));
        }
        match self.shared().refusal() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    fn create_table(&self, spec: TableSpec, if_not_exists: bool) -> LocalFuture<'_, Result<bool>> {
        Box::pin(self.router.coordinate(move |c| {
            Box::pin(async move { c.create_table(spec, if_not_exists).await })
        }))
    }

    fn drop_table<'a>(&'a self, name: &'a str, if_exists: bool) -> LocalFuture<'a, Result<bool>> {
        let name = name.to_string();
        Box::pin(
            self.router
                .coordinate(move |c| Box::pin(async move { c.drop_table(&name, if_exists).await })),
        )
    }

    fn alter_table(
        &self,
        table: TableId,
        changes: Vec<TableChange>,
    ) -> LocalFuture<'_, Result<Vec<Skipped>>> {
        Box::pin(
            self.router
                .coordinate(move |c| Box::pin(async move { c.alter_table(table, &changes).await })),
        )
    }

    fn ensure_columns<'a>(
        &'a self,
        table: &'a str,
        columns: Vec<ColumnSpec>,
    ) -> LocalFuture<'a, Result<Arc<TableDef>>> {
        let name = table.to_string();
        Box::pin(
            self.router.coordinate(move |c| {
                Box::pin(async move { c.ensure_columns(&name, columns).await })
            }),
        )
    }

    fn write_stream(
        &self,
        table: TableId,
        batches: Vec<(ShardId, StreamBatch)>,
    ) -> LocalFuture<'_, Result<()>> {
        Box::pin(self.write_batches(table, batches))
    }

    fn write_lines(
        &self,
        table: TableId,
        shard: ShardId,
        batch: Arc<StreamBatch>,
    ) -> LocalFuture<'_, Result<u64>> {
        // The message leaves before this returns: writes of one connection reach each shard in order.
        self.router.send(shard, TaskQueue::Ingest, move |s| {
            Box::pin(async move { s.write_fitting(table, batch).await })
        })
    }

    fn insert_rows(
        &self,
        table: TableId,
        columns: Vec<ColumnId>,
        rows: Vec<Vec<Value>>,
    ) -> LocalFuture<'_, Result<Vec<InsertedRow>>> {
        Box::pin(self.insert(table, columns, rows))
    }

    fn update_row(
        &self,
        table: TableId,
        xid: Xid,
        expected: Option<Rev>,
        set: Vec<(ColumnId, Value)>,
    ) -> LocalFuture<'_, Result<Option<Version>>> {
        let shard = shard_of_xid(xid, self.shared().shards);
        Box::pin(self.router.ask(shard, TaskQueue::Ingest, move |s| {
            Box::pin(async move { s.change_row(table, xid, expected, Change::Set(set)).await })
        }))
    }

    fn delete_entity(&self, table: TableId, entity: String) -> LocalFuture<'_, Result<bool>> {
        let shard = shard_of_entity(&entity, self.shared().shards);
        Box::pin(self.router.ask(shard, TaskQueue::Ingest, move |s| {
            Box::pin(async move { s.delete_entity(table, entity).await })
        }))
    }

    fn delete_row(
        &self,
        table: TableId,
        xid: Xid,
        expected: Option<Rev>,
    ) -> LocalFuture<'_, Result<Option<Version>>> {
        let shard = shard_of_xid(xid, self.shared().shards);
        Box::pin(self.router.ask(shard, TaskQueue::Ingest, move |s| {
            Box::pin(async move { s.change_row(table, xid, expected, Change::Delete).await })
        }))
    }

    fn scan_stream(&self, mut scan: StreamScan) -> LocalFuture<'_, Result<Box<dyn BatchStream>>> {
        Box::pin(async move {
            scan.floor = self.floor(scan.table)?;
            let split = self.split_entities(&scan.entities);
            let shards = split.len();
            let (tx, rx) = flume::bounded(CHANNEL_BATCHES * shards.max(1));
            for (shard, entities) in split {
                let (scan, tx) = (
                    StreamScan {
                        entities,
                        ..scan.clone()
                    },
                    tx.clone(),
                );
                self.router.start(shard, TaskQueue::Query, move |s| {
                    Box::pin(async move { s.scan_stream(scan, tx).await })
                });
            }
            Ok(Box::new(Unordered::new(rx, shards)) as Box<dyn BatchStream>)
        })
    }

    fn latest(&self, mut scan: LatestScan) -> LocalFuture<'_, Result<Box<dyn BatchStream>>> {
        Box::pin(async move {
            scan.floor = self.floor(scan.table)?;
            let split = self.split_entities(&scan.entities);
            let shards = split.len();
            let (tx, rx) = flume::bounded(CHANNEL_BATCHES * shards.max(1));
            for (shard, entities) in split {
                let (scan, tx) = (
                    LatestScan {
                        entities,
                        ..scan.clone()
                    },
                    tx.clone(),
                );
                self.router.start(shard, TaskQueue::Query, move |s| {
                    Box::pin(async move { s.latest(scan, tx).await })
                });
            }
            Ok(Box::new(Unordered::new(rx, shards)) as Box<dyn BatchStream>)
        })
    }

    fn aggregate(&self, query: StreamAggregate) -> LocalFuture<'_, Result<Batch>> {
        Box::pin(async move { Ok(self.gather_aggregates(query).await?.0) })
    }

    fn aggregate_counted(
        &self,
        query: StreamAggregate,
    ) -> LocalFuture<'_, Result<(Batch, ScanCounters)>> {
        Box::pin(self.gather_aggregates(query))
    }

    fn explain(&self, read: ReadQuery) -> LocalFuture<'_, Result<ScanCounters>> {
        Box::pin(self.explain_read(read))
    }

    fn scan_keyed(&self, scan: KeyedScan) -> LocalFuture<'_, Result<Box<dyn BatchStream>>> {
        Box::pin(self.scan_feed_or_rows(scan))
    }

    fn feed_status(&self, table: TableId) -> LocalFuture<'_, Result<FeedStatus>> {
        Box::pin(async move {
            let watermark = self.shared().ledger(table)?.watermark();
            let asked = self.all_shards().into_iter().map(|shard| {
                self.router.ask(shard, TaskQueue::Query, move |s| {
                    Box::pin(async move { s.keyed(table)?.1.counts().await })
                })
            });
            let counts = try_join_all(asked).await?;
            Ok(FeedStatus {
                watermark,
                vacuum_horizon: self.shared().published().horizon(table),
                live_rows: counts.iter().map(|c| c.0).sum(),
                tombstones: counts.iter().map(|c| c.1).sum(),
            })
        })
    }

    fn vacuum(&self, table: TableId) -> LocalFuture<'_, Result<VacuumReport>> {
        Box::pin(
            self.router
                .coordinate(move |c| Box::pin(async move { c.vacuum(table).await })),
        )
    }

    fn checkpoint(&self) -> LocalFuture<'_, Result<String>> {
        Box::pin(
            self.router
                .coordinate(move |c| Box::pin(async move { c.checkpoint().await })),
        )
    }

    fn shard_status(&self) -> LocalFuture<'_, Result<Vec<ShardStatus>>> {
        Box::pin(async move {
            let asked = self.all_shards().into_iter().map(|shard| {
                self.router.ask(shard, TaskQueue::Query, move |s| {
                    Box::pin(async move { Ok(s.status()) })
                })
            });
            try_join_all(asked).await
        })
    }

    fn segment_status(&self) -> LocalFuture<'_, Result<Vec<SegmentStatus>>> {
        Box::pin(async move {
            let asked = self.all_shards().into_iter().map(|shard| {
                self.router.ask(shard, TaskQueue::Query, move |s| {
                    Box::pin(async move { Ok(s.segment_status()) })
                })
            });
            Ok(try_join_all(asked).await?.into_iter().flatten().collect())
        })
    }

    fn table_status(&self, table: TableId) -> LocalFuture<'_, Result<TableStatus>> {
        Box::pin(async move {
            self.shared().table(table)?;
            let asked = self.all_shards().into_iter().map(|shard| {
                self.router.ask(shard, TaskQueue::Query, move |s| {
                    Box::pin(async move { Ok(s.table_status(table)) })
                })
            });
            let parts = try_join_all(asked).await?;
            Ok(parts
                .into_iter()
                .fold(TableStatus::default(), |a, b| TableStatus {
                    rows: a.rows + b.rows,
                    segment_bytes: a.segment_bytes + b.segment_bytes,
                    memtable_bytes: a.memtable_bytes + b.memtable_bytes,
                    segments: a.segments + b.segments,
                }))
        })
    }
}

/// Reads and reports, as a shard carries them out.
impl Shard {
    async fn scan_keyed(self: Rc<Self>, scan: KeyedScan, watermark: Rev, tx: flume::Sender<Part>) {
        let done = async {
            let (def, store) = self.keyed(scan.table)?;
            if scan.feed.is_some() && store.resolve_floor() > watermark {
                let _ = tx.send_async(Part::Stale).await;
                return Ok(());
            }
            // The scan takes its snapshot at its first step, before its first await: the floor above is
            // still that of the snapshot, because nothing runs between here and there.
            let snapshot = store.snapshot();
            let _ = tx.send_async(Part::Begun).await;
            snapshot
                .scan(&scan, watermark, &def, &mut ChannelSink::new(tx.clone()))
                .await
        };
        if let Some(done) = while_wanted(|| tx.is_disconnected(), done).await {
            let done = done.map(|()| ScanCounters::default());
            let _ = tx.send_async(Part::End(done)).await;
        }
        self.after_read().await;
    }

    async fn scan_stream(self: Rc<Self>, scan: StreamScan, tx: flume::Sender<Part>) {
        let mut sink = ChannelSink::new(tx.clone());
        let done = async { self.stream(scan.table)?.scan(&scan, &mut sink).await };
        if let Some(done) = while_wanted(|| tx.is_disconnected(), done).await {
            let done = done.map(|()| sink.looked_at);
            let _ = tx.send_async(Part::End(done)).await;
        }
        self.after_read().await;
    }

    async fn latest(self: Rc<Self>, scan: LatestScan, tx: flume::Sender<Part>) {
        let mut sink = ChannelSink::new(tx.clone());
        let done = async { self.stream(scan.table)?.latest(&scan, &mut sink).await };
        if let Some(done) = while_wanted(|| tx.is_disconnected(), done).await {
            let done = done.map(|()| sink.looked_at);
            let _ = tx.send_async(Part::End(done)).await;
        }
        self.after_read().await;
    }

    async fn explain(self: Rc<Self>, read: &ReadQuery) -> Result<ScanCounters> {
        match read {
            ReadQuery::Stream(scan) => Ok(self.stream(scan.table)?.explain_scan(scan).await),
            ReadQuery::Latest(scan) => Ok(self.stream(scan.table)?.explain_latest(scan).await),
            ReadQuery::Aggregate(query) => {
                Ok(self.stream(query.table)?.explain_aggregate(query).await)
            }
            ReadQuery::Keyed(scan) => Ok(self.keyed(scan.table)?.1.snapshot().explain(scan)),
        }
    }

    async fn aggregate(
        self: Rc<Self>,
        query: StreamAggregate,
    ) -> Result<strandline_core::stream::bucket::PartialAggregates> {
        let done = self.stream(query.table)?.aggregate(&query).await;
        self.after_read().await;
        done
    }

    /// A reader is done: old segments that only it held can go.
    async fn after_read(&self) {
        if !self.trash.paths.borrow().is_empty() {
            self.collect_doomed().await;
        }
    }

    fn table_status(&self, table: TableId) -> TableStatus {
        let tables = self.tables.borrow();
        let Some(store) = tables.get(&table) else {
            return TableStatus::default();
        };
        let segments = store.segments();
        let memory = store.memory();
        TableStatus {
            rows: store.rows(),
            segment_bytes: segments.iter().map(|s| s.bytes()).sum(),
            memtable_bytes: (memory.active + memory.frozen) as u64,
            segments: segments.len() as u64,
        }
    }
}
