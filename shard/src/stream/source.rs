//! Where rows come from: blocks of segments and runs of memtables, in one shape, and the rows of one entity
//! out of all of them, window by window in order of ts.

use super::keys::{only_entity, write_key};
use super::snapshot::Snapshot;
use crate::segment::{DecodedColumn, Segment};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use strandline_core::error::{Error, Result};
use strandline_core::format::block::{BlockData, Presence};
use strandline_core::ids::{ColumnId, SegmentId};
use strandline_core::io::Env;
use strandline_core::profile::ScanCounters;
use strandline_core::scan::TsRange;
use strandline_core::stream::cells::ColView;
use strandline_core::stream::memtable::Run;
use strandline_core::stream::merge::SliceRef;
use strandline_core::value::{Kind, StrVec};

/// Channels to read, in the reader's order.
pub type Channels = [(ColumnId, Kind)];

/// Columns of rows sorted by (entity, ts, arrival): a block, or a run.
#[derive(Debug)]
pub struct Unit {
    ts: Rc<DecodedColumn>,
    channels: Vec<Option<Rc<DecodedColumn>>>,
    /// Only in blocks that hold several entities.
    entities: Option<Rc<DecodedColumn>>,
}

impl Unit {
    /// ts of every row.
    pub fn ts(&self) -> &[i64] {
        match &self.ts.data {
            BlockData::I64(v) => v,
            _ => &[],
        }
    }
    /// The channels, ready to read.
    pub fn views(&self) -> Vec<Option<ColView<'_>>> {
        self.channels
            .iter()
            .map(|c| c.as_deref().map(ColView::new))
            .collect()
    }
    /// Names and row ends of its entities; `None` when it holds one.
    pub fn entity_runs(&self) -> Option<(&StrVec, &[u32])> {
        let column = self.entities.as_ref()?;
        match &column.data {
            BlockData::StrRuns { names, .. } => Some((names, column.run_ends())),
            _ => None,
        }
    }
    /// Rows of an entity, whose name is only looked for where there are several.
    pub fn rows_of(&self, entity: &[u8]) -> Range<usize> {
        let Some((names, ends)) = self.entity_runs() else {
            return 0..self.ts().len();
        };
        let (mut low, mut high) = (0, names.len());
        while low < high {
            let mid = (low + high) / 2;
            if names.get_bytes(mid) < entity {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        if low < names.len() && names.get_bytes(low) == entity {
            run_rows(ends, low)
        } else {
            0..0
        }
    }
    /// Those of `rows`, all of one entity, that lie in the range.
    pub fn clip(&self, rows: Range<usize>, range: TsRange) -> Range<usize> {
        let ts = &self.ts()[rows.clone()];
        if ts.first().is_some_and(|&t| range.contains(t))
            && ts.last().is_some_and(|&t| range.contains(t))
        {
            return rows;
        }
        let from = ts.partition_point(|&t| t < range.from);
        let to = ts.partition_point(|&t| t <= range.to);
        rows.start + from..rows.start + to.max(from)
    }

    /// A run, for a reader of `channels`.
    pub fn of_run(run: &Run, channels: &Channels) -> Rc<Unit> {
        Rc::new(Unit {
            ts: run.ts().clone(),
            channels: channels
                .iter()
                .map(|(id, _)| run.column(*id).cloned())
                .collect(),
            entities: None,
        })
    }
}

/// The rows of the n-th run, by the ends of all.
pub fn run_rows(ends: &[u32], n: usize) -> Range<usize> {
    let start = n.checked_sub(1).map_or(0, |p| ends[p]);
    start as usize..ends[n] as usize
}

/// Reads a block: ts, the channels, and the entities if it holds several.
pub async fn load(segment: &Segment, block: usize, channels: &Channels) -> Result<Rc<Unit>> {
    let Some(meta) = segment.blocks(0).get(block) else {
        return Err(Error::internal(format!(
            "segment {} has no block {block}",
            segment.path()
        )));
    };
    let several = only_entity(meta).is_none();
    let mut wanted = Vec::with_capacity(channels.len() + 2);
    wanted.push(ColumnId::TS);
    if several {
        wanted.push(ColumnId::ENTITY);
    }
    wanted.extend(channels.iter().map(|c| c.0));
    let decoded = segment.read(0, block, &wanted).await?;
    let bad = |what: &str| {
        Error::corrupted(format!(
            "segment {} is damaged: block {block}: {what}",
            segment.path()
        ))
    };
    let full = |c: &DecodedColumn| c.presence == Presence::All && c.data.len() == decoded.rows;
    let ts = decoded
        .get(ColumnId::TS)
        .filter(|c| full(c) && matches!(c.data, BlockData::I64(_)))
        .ok_or_else(|| bad("its times are not there"))?
        .clone();
    let entities = match several {
        false => None,
        true => Some(
            decoded
                .get(ColumnId::ENTITY)
                .filter(|c| full(c) && matches!(c.data, BlockData::StrRuns { .. }))
                .ok_or_else(|| bad("its entities are not there"))?
                .clone(),
        ),
    };
    let mut columns = Vec::with_capacity(channels.len());
    for (id, kind) in channels {
        let column = decoded.get(*id).cloned();
        let fits = column.as_ref().is_none_or(|c| {
            matches!(
                (&c.data, kind),
                (BlockData::F64(_), Kind::F64) | (BlockData::Str(_), Kind::Str)
            )
        });
        if !fits {
            return Err(bad("a channel is of another kind than the catalog says"));
        }
        columns.push(column);
    }
    Ok(Rc::new(Unit {
        ts,
        channels: columns,
        entities,
    }))
}

/// Reads one segment, mostly forward.
pub struct SegmentReader {
    /// The segment.
    pub segment: Rc<Segment>,
    hint: usize,
    current: Option<(usize, Rc<Unit>)>,
    low: Vec<u8>,
    high: Vec<u8>,
    /// Blocks that were looked for rows, as bits.
    seen: Vec<u64>,
    decoded: u64,
    rows_read: u64,
}

impl SegmentReader {
    /// At its beginning.
    pub fn new(segment: Rc<Segment>) -> Self {
        SegmentReader {
            segment,
            hint: 0,
            current: None,
            low: Vec::new(),
            high: Vec::new(),
            seen: Vec::new(),
            decoded: 0,
            rows_read: 0,
        }
    }

    /// Notes that blocks may hold what is looked for.
    pub fn visit(&mut self, blocks: Range<usize>) {
        for block in blocks {
            if self.seen.len() <= block / 64 {
                self.seen.resize(block / 64 + 1, 0);
            }
            self.seen[block / 64] |= 1 << (block % 64);
        }
    }

    /// Notes that a block was read.
    pub fn note(&mut self, unit: &Unit) {
        self.decoded += 1;
        self.rows_read += unit.ts().len() as u64;
    }

    /// Blocks that may hold rows of an entity in a range.
    pub fn blocks_of(&mut self, entity: &[u8], range: TsRange) -> Range<usize> {
        let blocks = self.segment.blocks(0);
        write_key(entity, range.from, &mut self.low);
        write_key(entity, range.to, &mut self.high);
        let (low, high) = (&self.low, &self.high);
        // Readers go through entities in order of name: the block of the last one is the likely one.
        if let Some(b) = blocks.get(self.hint)
            && b.first_key < *low
            && b.last_key > *high
        {
            return self.hint..self.hint + 1;
        }
        let from = blocks.partition_point(|b| b.last_key < *low);
        let to = from + blocks[from..].partition_point(|b| b.first_key <= *high);
        self.hint = from;
        from..to
    }

    async fn load(&mut self, block: usize, channels: &Channels) -> Result<Rc<Unit>> {
        if let Some((at, unit)) = &self.current
            && *at == block
        {
            return Ok(unit.clone());
        }
        let unit = load(&self.segment, block, channels).await?;
        self.note(&unit);
        self.current = Some((block, unit.clone()));
        Ok(unit)
    }
}

/// Rows of one entity in memory: which run, which rows.
#[derive(Clone, Copy, Debug)]
pub struct MemRows {
    /// Entity number.
    pub entity: u32,
    /// Index of the run.
    pub run: u32,
    /// First row.
    pub start: u32,
    /// Behind the last row.
    pub end: u32,
}

/// The rows of every entity in memory, by entity number and then arrival.
pub async fn index_runs(env: &Env, runs: &[Rc<Run>]) -> Vec<MemRows> {
    let mut all: Vec<MemRows> =
        Vec::with_capacity(runs.iter().map(|r| r.entity_count()).sum::<usize>());
    for (n, run) in runs.iter().enumerate() {
        all.extend(run.entities().map(|(entity, rows)| MemRows {
            entity,
            run: n as u32,
            start: rows.start as u32,
            end: rows.end as u32,
        }));
        env.breathe().await;
    }
    sort_slowly(env, &mut all, |a, b| {
        (a.entity, a.run).cmp(&(b.entity, b.run))
    })
    .await;
    all
}

/// A merge sort that gives way: millions of items must not hold up the acknowledgements beside it.
pub async fn sort_slowly<T: Copy>(
    env: &Env,
    items: &mut Vec<T>,
    mut compare: impl FnMut(&T, &T) -> std::cmp::Ordering,
) {
    const PIECE: usize = 4096;
    for piece in items.chunks_mut(PIECE) {
        piece.sort_unstable_by(&mut compare);
        env.breathe().await;
    }
    let mut width = PIECE;
    while width < items.len() {
        let mut out = Vec::with_capacity(items.len());
        for pair in items.chunks(width * 2) {
            let (mut a, mut b) = pair.split_at(width.min(pair.len()));
            while let (Some(x), Some(y)) = (a.first(), b.first()) {
                if compare(y, x).is_lt() {
                    out.push(*y);
                    b = &b[1..];
                } else {
                    out.push(*x);
                    a = &a[1..];
                }
                if out.len() % PIECE == 0 {
                    env.breathe().await;
                }
            }
            out.extend_from_slice(a);
            out.extend_from_slice(b);
        }
        *items = out;
        width *= 2;
    }
}

/// Rows of a snapshot, entity by entity.
pub struct Reader {
    /// What is read.
    pub snapshot: Snapshot,
    /// Which channels.
    pub channels: Vec<(ColumnId, Kind)>,
    /// One per segment, oldest first.
    pub readers: Vec<SegmentReader>,
    /// One per run, oldest first.
    pub units: Vec<Rc<Unit>>,
    index: Option<Vec<MemRows>>,
}

/// One part of a window: rows of one entity in a unit.
pub type Part = (Rc<Unit>, Range<usize>);

struct Lane {
    reader: Option<usize>,
    blocks: Range<usize>,
    loaded: VecDeque<Part>,
}

/// The rows of one entity on their way.
pub struct EntityRows {
    entity: Vec<u8>,
    range: TsRange,
    lanes: Vec<Lane>,
}

impl Reader {
    /// For a snapshot.
    pub fn new(snapshot: Snapshot, channels: Vec<(ColumnId, Kind)>) -> Self {
        let readers = snapshot
            .segments
            .iter()
            .map(|s| SegmentReader::new(s.clone()))
            .collect();
        let units = snapshot
            .runs
            .iter()
            .map(|r| Unit::of_run(r, &channels))
            .collect();
        Reader {
            snapshot,
            channels,
            readers,
            units,
            index: None,
        }
    }

    /// The blocks that have been looked at so far.
    pub fn seen(&self) -> impl Iterator<Item = (SegmentId, usize)> + '_ {
        self.readers.iter().flat_map(|r| {
            let blocks = (0..r.seen.len() * 64).filter(|b| r.seen[b / 64] >> (b % 64) & 1 == 1);
            blocks.map(|b| (r.segment.id(), b))
        })
    }

    /// What has been looked at so far.
    pub fn counters(&self) -> ScanCounters {
        let mut counters = self.snapshot.counters();
        for r in &self.readers {
            let seen: u64 = r.seen.iter().map(|w| u64::from(w.count_ones())).sum();
            counters.blocks_visited += seen;
            counters.segments_visited += u64::from(seen > 0);
            counters.blocks_decoded += r.decoded;
            counters.rows_read += r.rows_read;
        }
        counters
    }

    /// Prepares for going through all entities.
    pub async fn index(&mut self, env: &Env) {
        self.index = Some(index_runs(env, &self.snapshot.runs).await);
    }

    /// Rows in memory of an entity: runs with their rows, oldest first.
    pub fn memory_rows(&self, id: u32) -> Vec<(usize, Range<usize>)> {
        match &self.index {
            Some(index) => {
                let from = index.partition_point(|m| m.entity < id);
                index[from..]
                    .iter()
                    .take_while(|m| m.entity == id)
                    .map(|m| (m.run as usize, m.start as usize..m.end as usize))
                    .collect()
            }
            None => self
                .snapshot
                .runs
                .iter()
                .enumerate()
                .map(|(n, run)| (n, run.rows_of(id)))
                .filter(|(_, rows)| !rows.is_empty())
                .collect(),
        }
    }

    /// Starts on an entity. `id` is its number in memory (none: it has no rows there); `hash` is asked of
    /// the segments' filters, unless the caller knows better.
    pub fn entity(
        &mut self,
        name: &[u8],
        hash: Option<u64>,
        id: Option<u32>,
        range: TsRange,
    ) -> EntityRows {
        let mut lanes = Vec::new();
        for (n, reader) in self.readers.iter_mut().enumerate() {
            let info = reader.segment.info().range;
            let apart = info.1 < range.from || info.0 > range.to;
            if apart || hash.is_some_and(|h| !reader.segment.may_contain(h)) {
                continue;
            }
            let blocks = reader.blocks_of(name, range);
            if !blocks.is_empty() {
                reader.visit(blocks.clone());
                lanes.push(Lane {
                    reader: Some(n),
                    blocks,
                    loaded: VecDeque::new(),
                });
            }
        }
        for (run, rows) in id.map(|id| self.memory_rows(id)).unwrap_or_default() {
            let unit = &self.units[run];
            let rows = unit.clip(rows, range);
            if !rows.is_empty() {
                lanes.push(Lane {
                    reader: None,
                    blocks: 0..0,
                    loaded: VecDeque::from([(unit.clone(), rows)]),
                });
            }
        }
        EntityRows {
            entity: name.to_vec(),
            range,
            lanes,
        }
    }
}

impl EntityRows {
    /// Rows it may have at most, by what is known without reading.
    pub fn rows_at_most(&self, reader: &Reader) -> usize {
        self.lanes
            .iter()
            .map(|l| {
                let loaded: usize = l.loaded.iter().map(|p| p.1.len()).sum();
                let blocks = l.reader.map_or(0, |r| {
                    let blocks = &reader.readers[r].segment.blocks(0)[l.blocks.clone()];
                    blocks
                        .iter()
                        // A block of several entities holds mostly others' rows.
                        .map(|b| {
                            if only_entity(b).is_some() {
                                b.rows as usize
                            } else {
                                1
                            }
                        })
                        .sum()
                });
                loaded + blocks
            })
            .sum()
    }

    /// Times that its rows lie in at most, by what is known without reading; empty when there are none.
    pub fn span(&self, reader: &Reader) -> TsRange {
        let mut span = TsRange {
            from: i64::MAX,
            to: i64::MIN,
        };
        let mut add = |from: i64, to: i64| {
            span.from = span.from.min(from);
            span.to = span.to.max(to);
        };
        for lane in &self.lanes {
            for (unit, rows) in &lane.loaded {
                add(unit.ts()[rows.start], unit.ts()[rows.end - 1]);
            }
            if let Some(r) = lane.reader {
                let blocks = &reader.readers[r].segment.blocks(0)[lane.blocks.clone()];
                blocks.iter().for_each(|b| add(b.range.0, b.range.1));
            }
        }
        span
    }

    async fn load_next(&mut self, lane: usize, reader: &mut Reader) -> Result<()> {
        let l = &mut self.lanes[lane];
        let (Some(r), Some(block)) = (l.reader, l.blocks.next()) else {
            return Ok(());
        };
        let unit = reader.readers[r].load(block, &reader.channels).await?;
        let rows = unit.clip(unit.rows_of(&self.entity), self.range);
        if !rows.is_empty() {
            l.loaded.push_back((unit, rows));
        }
        Ok(())
    }

    /// The next rows by ts: parts in order of arrival, which together hold *all* rows of the entity up to
    /// some ts that have not been given yet.
    pub async fn next_window(&mut self, reader: &mut Reader) -> Result<Option<Vec<Part>>> {
        loop {
            for lane in 0..self.lanes.len() {
                while self.lanes[lane].loaded.is_empty() && !self.lanes[lane].blocks.is_empty() {
                    self.load_next(lane, reader).await?;
                }
            }
            self.lanes.retain(|l| !l.loaded.is_empty());
            if self.lanes.is_empty() {
                return Ok(None);
            }
            let end_of = |l: &Lane| l.loaded.back().map(|(u, rows)| u.ts()[rows.end - 1]);
            // A lane with blocks to come may go on with its last ts: rows below that are complete.
            let open = self.lanes.iter().filter(|l| !l.blocks.is_empty());
            let Some(horizon) = open.filter_map(end_of).min() else {
                return Ok(Some(
                    self.lanes
                        .drain(..)
                        .flat_map(|l| l.loaded)
                        .collect::<Vec<_>>(),
                ));
            };
            let mut window = Vec::new();
            for l in &mut self.lanes {
                while let Some((unit, rows)) = l.loaded.front_mut() {
                    let below = unit.ts()[rows.clone()].partition_point(|&t| t < horizon);
                    if below > 0 {
                        window.push((unit.clone(), rows.start..rows.start + below));
                        rows.start += below;
                    }
                    if rows.start < rows.end {
                        break;
                    }
                    l.loaded.pop_front();
                }
            }
            if !window.is_empty() {
                return Ok(Some(window));
            }
            for lane in 0..self.lanes.len() {
                if end_of(&self.lanes[lane]) == Some(horizon) {
                    self.load_next(lane, reader).await?;
                }
            }
        }
    }
}

/// The views of each part, to build slices over.
pub fn window_views(window: &[Part]) -> Vec<Vec<Option<ColView<'_>>>> {
    window.iter().map(|(unit, _)| unit.views()).collect()
}

/// The parts of a window as the merge takes them.
pub fn window_slices<'a>(
    window: &'a [Part],
    views: &'a [Vec<Option<ColView<'a>>>],
) -> Vec<SliceRef<'a>> {
    window
        .iter()
        .zip(views)
        .map(|((unit, rows), views)| SliceRef {
            ts: &unit.ts()[rows.clone()],
            base: rows.start,
            channels: views,
        })
        .collect()
}
