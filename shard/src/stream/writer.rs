//! Sorted rows into segments, one for each bucket of time that they fall into.

use super::StreamTable;
use super::blocks::BlockBuilder;
use super::pick::{Bucket, Route};
use super::source::{Reader, window_slices, window_views};
use crate::segment::{Effort, Segment, SegmentSink};
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::format::block::{SegmentInfo, SegmentKind};
use strandline_core::ids::ColumnId;
use strandline_core::routing::hash64;
use strandline_core::scan::TsRange;
use strandline_core::stream::merge::{CellRef, EntityMerge};
use strandline_core::value::Kind;

/// Segments that are written at a time; each holds a block that is being filled and a buffer. Rows for more
/// buckets go into one mixed segment, which is cut up later.
const MOST_SEGMENTS: usize = 16;

/// One segment that is being written.
struct Part {
    bucket: Option<Bucket>,
    sink: Option<SegmentSink>,
    builder: BlockBuilder,
    /// The last entity that has rows here, counted, and the last stretch of rows.
    entity: u64,
    stretch: u64,
}

/// Segments that are being written out of sorted rows.
pub(super) struct SegmentWriter<'t> {
    table: &'t StreamTable,
    info: SegmentInfo,
    effort: Effort,
    channels: Vec<(ColumnId, Kind)>,
    route: Route,
    parts: Vec<Part>,
    /// Where the rows of the last bucket that was asked for go, and which ts those are.
    last: Option<(usize, (i64, i64))>,
    entity: u64,
    stretch: u64,
    /// Samples outside are left out: they have expired.
    range: TsRange,
    /// Rows that were encoded, and rows whose blocks were copied.
    pub rows: (u64, u64),
    /// Blocks that were encoded, and blocks that were copied.
    pub blocks: (u64, u64),
}

impl<'t> SegmentWriter<'t> {
    /// Files are made with their first blocks, so that no rows leave none behind.
    pub fn new(
        table: &'t StreamTable,
        flushes: (u64, u64),
        effort: Effort,
        channels: Vec<(ColumnId, Kind)>,
        route: Route,
        floor: i64,
    ) -> Self {
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
            channels,
            route,
            parts: Vec::new(),
            last: None,
            entity: 0,
            stretch: 0,
            range: TsRange::ALL.since(floor),
            rows: (0, 0),
            blocks: (0, 0),
            table,
        }
    }

    /// Rows of another entity follow. Entities ascend.
    pub fn begin_entity(&mut self) {
        self.entity += 1;
    }

    /// The part that a ts belongs to.
    fn part(&mut self, ts: i64) -> usize {
        if let Some((part, (from, to))) = self.last
            && from <= ts
            && ts <= to
        {
            return part;
        }
        let mut bucket = self.route.bucket(ts);
        let range = bucket.map_or((i64::MIN, i64::MAX), Bucket::range);
        let mut found = self.parts.iter().position(|p| p.bucket == bucket);
        if found.is_none() && self.parts.len() >= MOST_SEGMENTS {
            bucket = None;
            found = self.parts.iter().position(|p| p.bucket.is_none());
        }
        let part = found.unwrap_or_else(|| {
            let limits = &self.table.cx.limits;
            let (rows, bytes) = (limits.block_rows as usize, limits.block_bytes as usize);
            self.parts.push(Part {
                bucket,
                sink: None,
                builder: BlockBuilder::new(rows, bytes, self.channels.clone()),
                entity: 0,
                stretch: 0,
            });
            self.parts.len() - 1
        });
        self.last = Some((part, range));
        part
    }

    /// The part for a row of the entity `name`, of which about `rows` come in the times of `span`.
    fn part_for(&mut self, name: &[u8], ts: i64, rows: usize, span: TsRange) -> usize {
        let part = self.part(ts);
        let p = &mut self.parts[part];
        if p.entity != self.entity {
            p.entity = self.entity;
            p.builder.begin_entity(name, expected(p.bucket, rows, span));
        } else if p.stretch != self.stretch {
            p.builder.expect(expected(p.bucket, rows, span));
        }
        p.stretch = self.stretch;
        part
    }

    /// Rows of the reader's entity `name` within a range.
    pub async fn rows(
        &mut self,
        reader: &mut Reader,
        name: &[u8],
        id: Option<u32>,
        range: TsRange,
    ) -> Result<()> {
        let range = range.intersect(self.range);
        if range.is_empty() {
            return Ok(());
        }
        let mut windows = reader.entity(name, None, id, range);
        let expected = windows.rows_at_most(reader);
        let span = windows.span(reader).intersect(range);
        self.stretch += 1;
        let channels = reader.channels.len();
        let mut cells = vec![CellRef::NONE; channels];
        let dedup = reader.snapshot.dedup();
        let mut rows = 0u64;
        if reader.snapshot.def.options.mutable {
            let state = self.table.reduce(&mut windows, reader).await?;
            let views = state.views();
            let slices = [state.slice(&views)];
            let mut merge = EntityMerge::new(&slices, channels, false);
            while let Some(ts) = merge.next_row(&mut cells) {
                let part = self.part_for(name, ts, state.ts().len(), span);
                self.parts[part].builder.push(ts, &cells, &slices);
                self.rows.0 += 1;
                self.write_done(part).await?;
            }
            return Ok(());
        }
        while let Some(window) = windows.next_window(reader).await? {
            let views = window_views(&window);
            let slices = window_slices(&window, &views);
            let mut merge = EntityMerge::new(&slices, channels, dedup);
            while let Some(ts) = merge.next_row(&mut cells) {
                let part = self.part_for(name, ts, expected, span);
                self.parts[part].builder.push(ts, &cells, &slices);
                rows += 1;
                // At once: blocks that wait are memory that the table has twice.
                self.write_done(part).await?;
                if rows.is_multiple_of(256) {
                    self.table.env.breathe().await;
                }
            }
        }
        self.rows.0 += rows;
        Ok(())
    }

    /// Rows that wait in the block of the bucket of `ts`, and whether they are of this entity.
    pub fn waiting(&mut self, name: &[u8], ts: i64) -> (usize, bool) {
        let part = self.part(ts);
        self.parts[part].builder.open_rows(name)
    }

    /// Whether all of a range belongs to one bucket and none of it has expired. That both ends go to the same
    /// segment is not enough: between them may be a bucket of its own, when the ends go to the mixed one.
    pub fn holds(&mut self, range: (i64, i64)) -> bool {
        self.range.contains(range.0) && self.route.bucket(range.0) == self.route.bucket(range.1)
    }

    /// A block of the entity `name` as it stands in another segment. It fits: see [`SegmentWriter::holds`].
    pub async fn copy(&mut self, segment: &Segment, block: usize, name: &[u8]) -> Result<()> {
        let meta = &segment.blocks(0)[block];
        let part = self.part(meta.range.0);
        self.parts[part].builder.cut();
        self.write_done(part).await?;
        let bytes = segment.read_encoded(0, block).await?;
        self.open(part).await?.push_encoded(meta, &bytes).await?;
        let p = &mut self.parts[part];
        p.builder.note_copy(u64::from(meta.rows), meta.range);
        if p.entity != self.entity {
            p.entity = self.entity;
            p.builder.begin_entity(name, 0);
        }
        self.rows.1 += u64::from(meta.rows);
        self.blocks.1 += 1;
        Ok(())
    }

    /// The entity's last row was given.
    pub async fn end_entity(&mut self, name: &[u8]) -> Result<()> {
        let hash = hash64(name);
        for part in 0..self.parts.len() {
            if self.parts[part].entity == self.entity {
                self.write_done(part).await?;
                self.open(part).await?.add_hash(hash);
            }
        }
        Ok(())
    }

    async fn open(&mut self, part: usize) -> Result<&mut SegmentSink> {
        let sink = match self.parts[part].sink.take() {
            Some(sink) => sink,
            None => {
                let (env, cx) = (&self.table.env, &self.table.cx);
                SegmentSink::create(env, &cx.dir, cx.take_segment_id(), self.info.clone())
                    .await?
                    .with_effort(self.effort)
            }
        };
        Ok(self.parts[part].sink.insert(sink))
    }

    async fn write_done(&mut self, part: usize) -> Result<()> {
        while let Some(block) = self.parts[part].builder.done.pop_front() {
            self.open(part).await?.push(block).await?;
            self.blocks.0 += 1;
        }
        Ok(())
    }

    /// Ends the blocks that are being filled: there are no more rows.
    pub async fn end(&mut self) -> Result<()> {
        for part in 0..self.parts.len() {
            self.parts[part].builder.cut();
            self.write_done(part).await?;
        }
        Ok(())
    }

    /// Seals the files, by time. Their names last once the caller has synced the directory.
    pub async fn finish(mut self) -> Result<Vec<Rc<Segment>>> {
        self.end().await?;
        let (env, cx) = (&self.table.env, &self.table.cx);
        let mut segments = Vec::new();
        for part in self.parts {
            let Some(sink) = part.sink else { continue };
            let info = SegmentInfo {
                rows: part.builder.rows,
                range: part.builder.range,
                ..self.info.clone()
            };
            let file = sink.finish_unnamed(info).await?;
            segments.push(Segment::open(env, &cx.dir, file.id, cx.cache.clone()).await?);
        }
        segments.sort_by_key(|s| s.info().range);
        Ok(segments)
    }
}

/// Of about `rows` in a span of time, those that fall into a bucket.
fn expected(bucket: Option<Bucket>, rows: usize, span: TsRange) -> usize {
    let Some((from, to)) = bucket.map(Bucket::range) else {
        return rows;
    };
    let inside = span.intersect(TsRange { from, to });
    if inside == span || inside.is_empty() {
        return rows;
    }
    let ms = |r: TsRange| r.to.saturating_sub(r.from) as f64 + 1.0;
    (rows as f64 * ms(inside) / ms(span)) as usize
}
