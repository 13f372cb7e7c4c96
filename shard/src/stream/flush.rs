//! From frozen memtables to segments.

use super::blocks::BlockBuilder;
use super::snapshot::Snapshot;
use super::source::{Reader, index_runs, window_slices, window_views};
use super::{Frozen, StreamTable};
use crate::segment::{Effort, Segment, SegmentSink};
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::format::block::{SegmentInfo, SegmentKind};
use strandline_core::ids::{ColumnId, Lsn};
use strandline_core::routing::hash64;
use strandline_core::scan::TsRange;
use strandline_core::stream::memtable::MemTable;
use strandline_core::stream::merge::{CellRef, EntityMerge};
use strandline_core::value::Kind;

/// A flush that is durable and not yet part of the table.
pub struct FlushDone {
    /// What it wrote.
    pub segments: Vec<Rc<Segment>>,
    /// The table's log records up to here are in segments once it is installed.
    pub flushed_lsn: Lsn,
    frozen: Rc<Frozen>,
}

/// A segment that is being written out of sorted rows.
pub(super) struct SegmentWriter<'t> {
    table: &'t StreamTable,
    info: SegmentInfo,
    effort: Effort,
    sink: Option<SegmentSink>,
    builder: BlockBuilder,
}

impl<'t> SegmentWriter<'t> {
    /// The file is made with the first block, so that no rows leave none behind.
    pub fn new(
        table: &'t StreamTable,
        flushes: (u64, u64),
        effort: Effort,
        channels: Vec<(ColumnId, Kind)>,
    ) -> Self {
        let limits = &table.cx.limits;
        let (block_rows, block_bytes) = (limits.block_rows as usize, limits.block_bytes as usize);
        SegmentWriter {
            info: SegmentInfo {
                kind: SegmentKind::Stream,
                table: table.def().id,
                flushes,
                rows: 0,
                range: (0, 0),
                max_rev: 0,
                tombstones: 0,
            },
            effort,
            sink: None,
            builder: BlockBuilder::new(block_rows, block_bytes, channels),
            table,
        }
    }

    /// All rows of the reader's entity `name`. Entities ascend.
    pub async fn entity(
        &mut self,
        reader: &mut Reader,
        name: &[u8],
        id: Option<u32>,
    ) -> Result<()> {
        let mut windows = reader.entity(name, None, id, TsRange::ALL);
        let channels = reader.channels.len();
        self.builder
            .begin_entity(name, windows.rows_at_most(reader));
        let mut cells = vec![CellRef::NONE; channels];
        let (mut any, mut rows) = (false, 0);
        while let Some(window) = windows.next_window(reader).await? {
            let views = window_views(&window);
            let slices = window_slices(&window, &views);
            let mut merge = EntityMerge::new(&slices, channels);
            while let Some(ts) = merge.next_row(&mut cells) {
                self.builder.push(ts, &cells, &slices);
                any = true;
                rows += 1;
                // At once: blocks that wait are memory that the table has twice.
                self.write_done().await?;
                if rows % 256 == 0 {
                    self.table.env.breathe().await;
                }
            }
        }
        self.write_done().await?;
        if any {
            self.open().await?.add_hash(hash64(name));
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<&mut SegmentSink> {
        let sink = match self.sink.take() {
            Some(sink) => sink,
            None => {
                let (env, cx) = (&self.table.env, &self.table.cx);
                SegmentSink::create(env, &cx.dir, cx.take_segment_id(), self.info.clone())
                    .await?
                    .with_effort(self.effort)
            }
        };
        Ok(self.sink.insert(sink))
    }

    async fn write_done(&mut self) -> Result<()> {
        while let Some(block) = self.builder.done.pop_front() {
            self.open().await?.push(block).await?;
        }
        Ok(())
    }

    /// Seals the file; none when there were no rows.
    pub async fn finish(mut self) -> Result<Option<Rc<Segment>>> {
        self.builder.cut();
        self.write_done().await?;
        let Some(sink) = self.sink.take() else {
            return Ok(None);
        };
        let (env, cx) = (&self.table.env, &self.table.cx);
        let file = sink
            .finish(SegmentInfo {
                rows: self.builder.rows,
                range: self.builder.range,
                ..self.info
            })
            .await?;
        let segment = Segment::open(env, &cx.dir, file.id, cx.cache.clone()).await?;
        Ok(Some(segment))
    }
}

impl StreamTable {
    /// Moves the active memtable to the frozen ones; false when it is empty.
    pub fn freeze(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(lsns) = state.memtable.lsns() else {
            return false;
        };
        let rows = state.memtable.rows();
        let runs = state.memtable.take();
        state.memtable = MemTable::default();
        state.frozen.push_back(Rc::new(Frozen {
            bytes: runs.iter().map(|r| r.memory_bytes()).sum(),
            runs,
            rows,
            lsns,
        }));
        true
    }

    /// Writes the oldest frozen memtable to a segment. One at a time; the table is as before until
    /// [`StreamTable::install_flush`].
    ///
    /// # Errors
    /// `53100` or `58030` from the disk; the memtable stays frozen and the next call begins anew.
    pub async fn flush(&self) -> Result<Option<FlushDone>> {
        let (frozen, number, def) = {
            let mut state = self.state.borrow_mut();
            let Some(frozen) = state.frozen.front().cloned() else {
                return Ok(None);
            };
            let number = state.next_flush;
            state.next_flush += 1;
            (frozen, number, state.def.clone())
        };
        let channels = channels_of(&frozen);
        let index = index_runs(&self.env, &frozen.runs).await;
        let mut ids: Vec<u32> = index.iter().map(|m| m.entity).collect();
        drop(index);
        ids.dedup();
        self.sort_by_name(&mut ids).await;
        let snapshot = Snapshot {
            def,
            segments: Rc::default(),
            runs: frozen.runs.clone(),
            applied: 0,
        };
        let mut reader = Reader::new(snapshot, channels.clone());
        reader.index(&self.env).await;
        let mut writer = SegmentWriter::new(self, (number, number), Effort::Flush, channels);
        for id in ids {
            let name = self.state.borrow().dictionary.name(id).to_vec();
            writer.entity(&mut reader, &name, Some(id)).await?;
            self.env.breathe().await;
        }
        Ok(Some(FlushDone {
            segments: writer.finish().await?.into_iter().collect(),
            flushed_lsn: frozen.lsns.1,
            frozen,
        }))
    }

    /// Puts flushed segments in the place of their memtable, in one step for readers.
    pub fn install_flush(&self, done: FlushDone) {
        let mut state = self.state.borrow_mut();
        let Some(at) = state
            .frozen
            .iter()
            .position(|f| Rc::ptr_eq(f, &done.frozen))
        else {
            return;
        };
        state.frozen.remove(at);
        let mut segments = state.segments.to_vec();
        segments.extend(done.segments);
        segments.sort_by_key(|s| s.info().flushes);
        state.segments = Rc::new(segments);
    }
}

/// All channels of a memtable with their kinds, by what is in it: the catalog may have dropped one since.
fn channels_of(frozen: &Frozen) -> Vec<(ColumnId, Kind)> {
    let mut all: Vec<(ColumnId, Kind)> = Vec::new();
    for run in &frozen.runs {
        for id in run.channels() {
            if let Some(column) = run.column(id) {
                let kind = match column.data {
                    strandline_core::format::block::BlockData::Str(_) => Kind::Str,
                    _ => Kind::F64,
                };
                all.push((id, kind));
            }
        }
    }
    all.sort_by_key(|c| c.0);
    all.dedup_by_key(|c| c.0);
    all
}
