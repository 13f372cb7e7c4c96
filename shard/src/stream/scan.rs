//! Rows of a range, filled; and the last sample before a moment, which HOLD and the device shadow need.

use super::keys::only_entity;
use super::source::{Reader, load, window_slices, window_views};
use super::{EntityRef, StreamTable};
use crate::store::{BATCH_BYTES, BatchSink};
use strandline_core::error::Result;
use strandline_core::ids::ColumnId;
use strandline_core::scan::{ChannelRead, StreamScan, TsRange};
use strandline_core::schema::Fill;
use strandline_core::stream::cells::ColView;
use strandline_core::stream::fill::{Filler, evaluate};
use strandline_core::stream::merge::{CellRef, EntityMerge};
use strandline_core::value::{Batch, Cell, Column, ColumnBuilder, ColumnData, Kind, StrVec, Value};

/// Rows of one batch of an answer.
const BATCH_ROWS: usize = 2048;
/// Rows between two looks at the clock.
const BREATH_ROWS: usize = 512;

/// Rows of an answer on their way.
pub struct RowBuilder {
    kinds: Vec<Kind>,
    entity: StrVec,
    ts: Vec<i64>,
    cells: Vec<ColumnBuilder>,
    text_bytes: usize,
}

impl RowBuilder {
    /// For columns entity, ts and these.
    pub fn new(kinds: Vec<Kind>) -> Self {
        RowBuilder {
            entity: StrVec::new(),
            ts: Vec::new(),
            cells: kinds.iter().map(|&k| ColumnBuilder::of(k)).collect(),
            kinds,
            text_bytes: 0,
        }
    }
    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.ts.len()
    }
    /// Whether it is time to hand them on.
    pub fn is_full(&self) -> bool {
        self.ts.len() >= BATCH_ROWS || self.text_bytes >= BATCH_BYTES
    }
    /// Starts a row; its cells follow by [`RowBuilder::cell`].
    pub fn row(&mut self, entity: &[u8], ts: i64) {
        self.entity.push_bytes(entity);
        self.text_bytes += entity.len();
        self.ts.push(ts);
    }
    /// A cell of the row.
    pub fn cell(&mut self, column: usize, cell: Cell<'_>) {
        if let Cell::Str(text) = cell {
            self.text_bytes += text.len();
        }
        self.cells[column].push(cell);
    }
    /// The rows; it is empty then.
    pub fn take(&mut self) -> Batch {
        let done = std::mem::replace(self, RowBuilder::new(self.kinds.clone()));
        let mut columns = vec![
            Column::full(ColumnData::Str(done.entity)),
            Column::full(ColumnData::I64(done.ts)),
        ];
        columns.extend(done.cells.into_iter().map(ColumnBuilder::finish));
        Batch::new(columns)
    }
}

impl StreamTable {
    /// Rows of a range. Entities come in order of name within `Entities::All`, else as listed; rows of one
    /// entity by ts.
    ///
    /// # Errors
    /// `XX001` for a damaged block, I/O errors, and what `out` answers.
    pub async fn scan(&self, scan: &StreamScan, out: &mut dyn BatchSink) -> Result<()> {
        if self.is_mutable() {
            return self.scan_state(scan, out).await;
        }
        let mut left = scan.limit.unwrap_or(u64::MAX);
        let range = scan.range.since(scan.floor);
        if range.is_empty() || left == 0 {
            return Ok(());
        }
        let def = self.def();
        let reads: Vec<ChannelRead> = if scan.channels.is_empty() {
            super::snapshot::live_channels(&def)
                .into_iter()
                .map(|(column, kind)| ChannelRead {
                    column,
                    kind,
                    fill: Fill::None,
                })
                .collect()
        } else {
            scan.channels.clone()
        };
        let output = scan.output.min(scan.channels.len());
        let channels: Vec<(ColumnId, Kind)> = reads.iter().map(|c| (c.column, c.kind)).collect();
        let mut filler = Filler::new(&reads, scan.filled);
        let holding: Vec<(usize, i64)> = filler.holding().collect();
        let past = TsRange {
            from: if holding.is_empty() {
                range.from
            } else {
                scan.floor
            },
            to: range.to,
        };
        self.check_damage(&scan.entities, past)?;
        let entities = self.entity_list(&scan.entities).await;
        let snapshot = self.snapshot(&entities, past, Some(&channels));
        let dedup = snapshot.dedup();
        let mut reader = Reader::new(snapshot, channels);
        if entities.is_all() {
            reader.index(&self.env).await;
        }
        let kinds = reads[..output].iter().map(|c| c.kind).collect();
        let mut rows = RowBuilder::new(kinds);
        let mut cells = vec![CellRef::NONE; reads.len()];
        let mut since_breath = 0;
        for n in 0..entities.len() {
            let Some(e) = self.entity_ref(&entities, n) else {
                continue;
            };
            let hash = entities.filter_hash(&e);
            let mut windows = reader.entity(&e.name, hash, Some(e.id), range);
            filler.reset();
            let mut first = true;
            while let Some(window) = windows.next_window(&mut reader).await? {
                let views = window_views(&window);
                let slices = window_slices(&window, &views);
                if first && !holding.is_empty() {
                    let Some(row_ts) =
                        EntityMerge::new(&slices, reads.len(), dedup).next_row(&mut cells)
                    else {
                        continue;
                    };
                    first = false;
                    for &(c, staleness) in holding.iter().filter(|(c, _)| cells[*c].is_none()) {
                        let before = TsRange {
                            from: row_ts.saturating_sub(staleness).max(scan.floor),
                            to: range.from.saturating_sub(1),
                        };
                        if range.from == i64::MIN || before.is_empty() {
                            continue;
                        }
                        if let Some((ts, value)) =
                            self.last_sample(&mut reader, &e, c, before).await?
                        {
                            filler.seed(c, ts, value);
                        }
                    }
                }
                let mut merge = EntityMerge::new(&slices, reads.len(), dedup);
                while let Some(ts) = merge.next_row(&mut cells) {
                    let cell = |c: usize| filler.cell(c, ts, cells[c], &slices);
                    let passes = scan
                        .predicate
                        .as_ref()
                        .is_none_or(|p| evaluate(p, &cell) == Some(true));
                    if passes {
                        rows.row(&e.name, ts);
                        (0..output).for_each(|c| rows.cell(c, cell(c)));
                        left -= 1;
                    }
                    if !holding.is_empty() {
                        filler.pass(ts, &cells);
                    }
                    if left == 0 {
                        out.push(rows.take()).await?;
                        out.note(&reader.counters());
                        return Ok(());
                    }
                    if rows.is_full() && !out.push(rows.take()).await? {
                        return Ok(());
                    }
                    since_breath += 1;
                    if since_breath >= BREATH_ROWS {
                        since_breath = 0;
                        self.env.breathe().await;
                    }
                }
                filler.end_window(&slices);
            }
            since_breath += 8;
        }
        if rows.rows() > 0 {
            out.push(rows.take()).await?;
        }
        out.note(&reader.counters());
        Ok(())
    }

    /// The last sample of a channel (by number in the reader) within a range: of equal ts the one that
    /// arrived last. Looks at tails, statistics and keys before it reads blocks.
    pub(super) async fn last_sample(
        &self,
        reader: &mut Reader,
        e: &EntityRef,
        channel: usize,
        range: TsRange,
    ) -> Result<Option<(i64, Value)>> {
        let (id, kind) = reader.channels[channel];
        if let Some(known) = self.tail_answers(&reader.snapshot, e.id, id, range) {
            return Ok(known);
        }
        let mut best: Option<(i64, Value)> = None;
        let better = |best: &Option<(i64, Value)>, ts: i64| {
            range.contains(ts) && best.as_ref().is_none_or(|b| ts > b.0)
        };
        for (run, rows) in reader.memory_rows(e.id).into_iter().rev() {
            let unit = &reader.units[run];
            let rows = unit.clip(rows, range);
            if let Some(view) = reader.snapshot.runs[run]
                .column(id)
                .map(|c| ColView::new(c))
                && let Some(row) = view.last_row(rows)
                && better(&best, unit.ts()[row])
                && let Some(cell) = view.index(row)
            {
                best = Some((unit.ts()[row], view.value(cell)));
            }
        }
        for n in (0..reader.readers.len()).rev() {
            let segment = reader.readers[n].segment.clone();
            let (from, to) = segment.info().range;
            let floor = best.as_ref().map_or(range.from, |b| b.0.max(range.from));
            if to < floor || from > range.to || !segment.may_contain(e.hash) {
                continue;
            }
            let within = TsRange {
                from: floor,
                to: range.to,
            };
            for block in reader.readers[n].blocks_of(&e.name, within).rev() {
                let meta = &segment.blocks(0)[block];
                let Some(chunk) = meta.chunk(id) else {
                    continue;
                };
                if only_entity(meta).is_some()
                    && let Some((_, last)) = chunk.edges_ts
                    && let (Some(stats), true) = (&chunk.stats, last <= range.to)
                {
                    if better(&best, last) {
                        best = Some((last, Value::F64(stats.last)));
                    }
                    break;
                }
                let unit = load(&segment, block, &[(id, kind)]).await?;
                reader.readers[n].visit(block..block + 1);
                reader.readers[n].note(&unit);
                let rows = unit.clip(unit.rows_of(&e.name), within);
                let views = unit.views();
                let Some(view) = &views[0] else { continue };
                if let Some(row) = view.last_row(rows)
                    && let Some(cell) = view.index(row)
                {
                    if better(&best, unit.ts()[row]) {
                        best = Some((unit.ts()[row], view.value(cell)));
                    }
                    break;
                }
            }
        }
        Ok(best)
    }
}
