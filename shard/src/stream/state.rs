//! MUTABLE tables: one row per entity, its current state. What an entity is now, is decided by samples alone,
//! whatever the order in which they come:
//!
//! ```text
//! T      = ts of its newest tombstone (a sample of the engine's column DELETED)
//! state  = of each channel the newest sample with ts > T; of equal ts the last to arrive
//! live   = some channel has such a sample; the row's ts is the newest of them
//! ```
//!
//! Reads answer from the tails, which know both. Flushes and merges keep what may still count: the newest
//! tombstone, and of each channel the newest sample above it. A tombstone is kept for good: a sample that
//! comes late, at or below it, must change nothing, whenever it comes.

use super::pack::{Pack, Packed};
use super::scan::RowBuilder;
use super::snapshot::live_channels;
use super::source::{EntityRows, Reader, window_slices, window_views};
use super::{EntityList, StreamTable};
use crate::store::BatchSink;
use std::collections::BTreeMap;
use strandline_core::error::Result;
use strandline_core::ids::ColumnId;
use strandline_core::io::LocalFuture;
use strandline_core::profile::ScanCounters;
use strandline_core::routing::hash64;
use strandline_core::scan::{
    ChannelRead, Entities, LatestScan, Predicate, StreamAggregate, StreamScan, TsRange,
};
use strandline_core::schema::Fill;
use strandline_core::stream::batch::{StreamBatch, StreamBatchBuilder};
use strandline_core::stream::bucket::{Aggregator, PartialAggregates};
use strandline_core::stream::fill::evaluate;
use strandline_core::stream::merge::{CellRef, EntityMerge};
use strandline_core::value::{Cell, Kind, Value};

/// Entities between two looks at the clock.
const STEP: usize = 256;

/// Whether a sample of this ts counts beside the newest tombstone.
fn counts(tombstone: Option<i64>, ts: i64) -> bool {
    tombstone.is_none_or(|t| ts > t)
}

/// A read of the current state.
struct StateRead<'q> {
    wanted: &'q Entities,
    /// Of the row's ts.
    range: TsRange,
    /// What is asked for of each row; also [`ColumnId::ENTITY`] and [`ColumnId::TS`].
    reads: &'q [ChannelRead],
    /// Over `reads`.
    predicate: Option<&'q Predicate>,
}

/// Where the rows of a read go.
trait StateTarget {
    /// A live entity that the condition takes.
    fn row<'x>(&mut self, name: &'x [u8], ts: i64, cell: &dyn Fn(usize) -> Cell<'x>) -> Result<()>;
    /// Whether it is time to hand them on.
    fn is_full(&self) -> bool;
    /// Hands them on; `false`: no more are wanted.
    fn hand_on(&mut self) -> LocalFuture<'_, Result<bool>>;
    /// What was looked at.
    fn note(&mut self, counters: &ScanCounters);
}

struct Rows<'o> {
    rows: RowBuilder,
    output: usize,
    left: u64,
    out: &'o mut dyn BatchSink,
}

impl StateTarget for Rows<'_> {
    fn row<'x>(&mut self, name: &'x [u8], ts: i64, cell: &dyn Fn(usize) -> Cell<'x>) -> Result<()> {
        self.left -= 1;
        self.rows.row(name, ts);
        (0..self.output).for_each(|c| self.rows.cell(c, cell(c)));
        Ok(())
    }
    fn is_full(&self) -> bool {
        self.left == 0 || self.rows.is_full()
    }
    fn hand_on(&mut self) -> LocalFuture<'_, Result<bool>> {
        Box::pin(async move {
            let more = self.rows.rows() == 0 || self.out.push(self.rows.take()).await?;
            Ok(more && self.left > 0)
        })
    }
    fn note(&mut self, counters: &ScanCounters) {
        self.out.note(counters);
    }
}

/// Feeds an aggregator.
struct Feed {
    agg: Aggregator,
    /// Where its channels stand in the read: behind those of the condition.
    first: usize,
    pack: Pack,
    names: Vec<u32>,
    /// The order of rows matters to it, or which entity they are of.
    row_by_row: bool,
}

impl StateTarget for Feed {
    fn row<'x>(&mut self, name: &'x [u8], ts: i64, cell: &dyn Fn(usize) -> Cell<'x>) -> Result<()> {
        self.names.push(self.agg.entity(name, hash64(name)));
        self.pack.row(ts, |c| cell(self.first + c));
        Ok(())
    }
    fn is_full(&self) -> bool {
        self.pack.rows() >= 4 * STEP
    }
    fn hand_on(&mut self) -> LocalFuture<'_, Result<bool>> {
        let names = std::mem::take(&mut self.names);
        let done = self.pack.take();
        let (ts, views) = (done.ts(), done.views());
        let mut add = || {
            if self.agg.counts_rows() {
                for (&name, &ts) in names.iter().zip(ts) {
                    self.agg.add_rows(name, ts, 1)?;
                }
            }
            if !self.row_by_row && !ts.is_empty() {
                return self.agg.add_unordered(names[0], ts[0], ts, &views);
            }
            for (n, &name) in names.iter().enumerate() {
                self.agg.add(name, &ts[n..n + 1], n, &views)?;
            }
            Ok(())
        };
        let added = add().map(|()| true);
        Box::pin(std::future::ready(added))
    }
    fn note(&mut self, counters: &ScanCounters) {
        self.agg.counters().add(counters);
    }
}

impl StreamTable {
    /// Whether one row per entity is what the table answers.
    pub fn is_mutable(&self) -> bool {
        self.state.borrow().def.options.mutable
    }

    /// Rows of the current state whose ts lies in the range.
    pub(super) async fn scan_state(
        &self,
        scan: &StreamScan,
        out: &mut dyn BatchSink,
    ) -> Result<()> {
        let output = scan.output.min(scan.channels.len());
        let read = StateRead {
            wanted: &scan.entities,
            range: scan.range,
            reads: &scan.channels,
            predicate: scan.predicate.as_ref(),
        };
        let kinds = scan.channels[..output].iter().map(|c| c.kind).collect();
        let mut rows = Rows {
            rows: RowBuilder::new(kinds),
            output,
            left: scan.limit.unwrap_or(u64::MAX),
            out,
        };
        self.states(&read, &mut rows).await
    }

    /// As [`StreamTable::scan_state`]: the newest of each channel is all that there is.
    pub(super) async fn latest_state(
        &self,
        scan: &LatestScan,
        out: &mut dyn BatchSink,
    ) -> Result<()> {
        let read = StateRead {
            wanted: &scan.entities,
            range: TsRange {
                from: scan.from,
                to: scan.until,
            },
            reads: &scan.channels,
            predicate: None,
        };
        let mut rows = Rows {
            rows: RowBuilder::new(scan.channels.iter().map(|c| c.kind).collect()),
            output: scan.channels.len(),
            left: u64::MAX,
            out,
        };
        self.states(&read, &mut rows).await
    }

    /// Aggregates over the current state.
    pub(super) async fn aggregate_state(
        &self,
        query: &StreamAggregate,
        agg: Aggregator,
    ) -> Result<PartialAggregates> {
        let channels = agg.channels().to_vec();
        let mut reads: Vec<ChannelRead> = Vec::new();
        let read = |&(column, kind): &(ColumnId, Kind)| ChannelRead {
            column,
            kind,
            fill: Fill::None,
        };
        // The condition counts into its own list: it comes first, and the aggregator's channels behind it.
        let filter = query.filter.as_ref();
        reads.extend(filter.into_iter().flat_map(|f| &f.channels).map(read));
        let first = reads.len();
        reads.extend(channels.iter().map(read));
        let read = StateRead {
            wanted: &query.entities,
            range: query.range,
            reads: &reads,
            predicate: filter.map(|f| &f.predicate),
        };
        let edges = (0..channels.len()).any(|c| agg.wants_edges(c));
        let mut feed = Feed {
            row_by_row: edges || agg.by_entity(),
            pack: Pack::new(&channels),
            names: Vec::new(),
            first,
            agg,
        };
        self.states(&read, &mut feed).await?;
        let mut done = feed.agg.finish();
        self.sort_samples(&mut done).await;
        Ok(done)
    }

    /// Gives each live entity to `target`. Each row is one moment's; rows of a long answer may be of
    /// different moments.
    async fn states(&self, read: &StateRead<'_>, target: &mut dyn StateTarget) -> Result<()> {
        self.check_tails()?;
        if read.range.is_empty() || target.is_full() {
            return Ok(());
        }
        self.check_tails()?;
        let live = live_channels(&self.def());
        let list = match read.wanted {
            // In order of number, which is the order of the tails.
            Entities::All => None,
            Entities::In(_) => Some(self.entity_list(read.wanted).await),
        };
        let count = (list.as_ref()).map_or_else(|| self.entities(), EntityList::len);
        let mut n = 0;
        while n < count {
            let mut long_text = None;
            {
                let state = self.state.borrow();
                let tombstones = state.tails.column(ColumnId::DELETED);
                let column = |id: ColumnId| state.tails.column(id);
                let all: Vec<_> = live.iter().filter_map(|c| column(c.0)).collect();
                let tails: Vec<_> = read.reads.iter().map(|c| column(c.column)).collect();
                let end = count.min(n + STEP);
                while n < end && long_text.is_none() && !target.is_full() {
                    let id = list.as_ref().map_or(n as u32, |l| l.id(n));
                    n += 1;
                    let tombstone = tombstones.and_then(|t| t.get(id)).map(|t| t.0);
                    let newest = all.iter().filter_map(|t| t.get(id)).map(|s| s.0).max();
                    let Some(ts) = newest.filter(|&ts| counts(tombstone, ts)) else {
                        continue;
                    };
                    if !read.range.contains(ts) {
                        continue;
                    }
                    let sample = |c: usize| {
                        let found = tails[c].and_then(|t| t.get(id));
                        found.filter(|&(ts, _)| counts(tombstone, ts))
                    };
                    if (0..tails.len()).any(|c| matches!(sample(c), Some((_, None)))) {
                        long_text = Some(id);
                        continue;
                    }
                    let name = state.dictionary.name(id);
                    let cell = |c: usize| match read.reads[c].column {
                        ColumnId::ENTITY => Cell::Str(std::str::from_utf8(name).unwrap_or("")),
                        ColumnId::TS => Cell::I64(ts),
                        _ => sample(c).and_then(|s| s.1).unwrap_or(Cell::Null),
                    };
                    let passes = read.predicate;
                    if passes.is_none_or(|p| evaluate(p, &cell) == Some(true)) {
                        target.row(name, ts, &cell)?;
                    }
                }
            }
            if let Some(id) = long_text {
                self.state_with_long_text(id, read, target).await?;
            }
            if target.is_full() && !target.hand_on().await? {
                return Ok(());
            }
            self.env.breathe().await;
        }
        target.hand_on().await?;
        target.note(&ScanCounters {
            shards: 1,
            tails: count as u64,
            ..ScanCounters::default()
        });
        Ok(())
    }

    /// One entity of which the tails do not keep all: it is looked up in history.
    async fn state_with_long_text(
        &self,
        id: u32,
        read: &StateRead<'_>,
        target: &mut dyn StateTarget,
    ) -> Result<()> {
        let mut channels = live_channels(&self.def());
        channels.push((ColumnId::DELETED, Kind::F64));
        let deleted = channels.len() - 1;
        let one = EntityList::In(vec![id]);
        let Some(e) = self.entity_ref(&one, 0) else {
            return Ok(());
        };
        let snapshot = self.snapshot(&one, TsRange::ALL, Some(&channels));
        let mut reader = Reader::new(snapshot, channels);
        let tombstone = self
            .last_sample(&mut reader, &e, deleted, TsRange::ALL)
            .await?;
        let Some(from) = tombstone.map_or(Some(i64::MIN), |t| t.0.checked_add(1)) else {
            return Ok(());
        };
        let above = TsRange { from, to: i64::MAX };
        let mut samples = BTreeMap::new();
        let mut newest: Option<i64> = None;
        for c in 0..deleted {
            if let Some((ts, value)) = self.last_sample(&mut reader, &e, c, above).await? {
                newest = newest.max(Some(ts));
                samples.insert(reader.channels[c].0, value);
            }
        }
        let Some(ts) = newest.filter(|&ts| read.range.contains(ts)) else {
            return Ok(());
        };
        let cell = |c: usize| match read.reads[c].column {
            ColumnId::ENTITY => Cell::Str(std::str::from_utf8(&e.name).unwrap_or("")),
            ColumnId::TS => Cell::I64(ts),
            id => match samples.get(&id) {
                Some(Value::F64(x)) => Cell::F64(*x),
                Some(Value::Str(text)) => Cell::Str(text),
                Some(Value::Null) | None => Cell::Null,
            },
        };
        let passes = read.predicate;
        if passes.is_none_or(|p| evaluate(p, &cell) == Some(true)) {
            target.row(&e.name, ts, &cell)?;
        }
        Ok(())
    }

    /// What a DELETE of an entity writes: a tombstone at its newest ts; `None` when it is not live.
    pub fn tombstone(&self, entity: &str) -> Option<StreamBatch> {
        let hash = hash64(entity.as_bytes());
        let ts = {
            let state = self.state.borrow();
            let id = state.dictionary.get(entity.as_bytes(), hash)?;
            let tail = |column| Some(state.tails.column(column)?.get(id)?.0);
            let tombstone = tail(ColumnId::DELETED);
            let newest = state.def.columns.iter().filter_map(|c| tail(c.id)).max();
            newest.filter(|&ts| counts(tombstone, ts))?
        };
        let mut batch = StreamBatchBuilder::default();
        let slot = batch.slot(ColumnId::DELETED, Kind::F64);
        batch.begin_row(entity, hash, ts);
        batch.push_f64(slot, 1.0);
        Some(batch.finish())
    }

    /// What of one entity may still count, of the rows that are given: a few rows by ts.
    pub(super) async fn reduce(
        &self,
        windows: &mut EntityRows,
        reader: &mut Reader,
    ) -> Result<Packed> {
        let channels = reader.channels.clone();
        let mut kept: Vec<Option<(i64, Value)>> = vec![None; channels.len()];
        let mut cells = vec![CellRef::NONE; channels.len()];
        while let Some(window) = windows.next_window(reader).await? {
            let views = window_views(&window);
            let slices = window_slices(&window, &views);
            let mut merge = EntityMerge::new(&slices, channels.len(), true);
            let mut last = vec![(0, CellRef::NONE); channels.len()];
            let mut rows = 0;
            while let Some(ts) = merge.next_row(&mut cells) {
                for (last, &cell) in last.iter_mut().zip(&cells) {
                    if !cell.is_none() {
                        *last = (ts, cell);
                    }
                }
                rows += 1;
                if rows % 256 == 0 {
                    self.env.breathe().await;
                }
            }
            for (c, (ts, cell)) in last.into_iter().enumerate() {
                if !cell.is_none()
                    && let Some(view) = views[cell.slice as usize][c]
                {
                    kept[c] = Some((ts, view.value(cell.index as usize)));
                }
            }
        }
        let deleted = channels.iter().position(|c| c.0 == ColumnId::DELETED);
        let tombstone = deleted.and_then(|c| kept[c].as_ref()).map(|k| k.0);
        let mut rows: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (c, sample) in kept.iter().enumerate() {
            if let Some((ts, _)) = sample
                && (Some(c) == deleted || counts(tombstone, *ts))
            {
                rows.entry(*ts).or_default().push(c);
            }
        }
        let mut pack = Pack::new(&channels);
        for (ts, here) in rows {
            pack.row(ts, |c| match &kept[c] {
                Some((_, Value::F64(x))) if here.contains(&c) => Cell::F64(*x),
                Some((_, Value::Str(text))) if here.contains(&c) => Cell::Str(text),
                _ => Cell::Null,
            });
        }
        Ok(pack.take())
    }
}
