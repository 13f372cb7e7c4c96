//! Which parts of a snapshot stand alone. A block or run whose entities have rows in no other source at
//! overlapping times is coalesced as it stands: statistics may be used, and its rows are rows of the table.
//! The rest is merged, entity by entity, over just the ranges where sources overlap.
//!
//! ```text
//! segment 1   ├─ block ─┤├─ block ─┤├─ block ─┤      of one entity
//! segment 2                 ├┤              ├───┤    one block: a retry of one minute, and what is new
//!             alone       merged     merged          its times are looked at, not only its first and last
//! ```

use super::keys::{only_entity, split_key, write_key};
use super::pack::Pack;
use super::snapshot::Snapshot;
use super::source::{Reader, Unit, index_runs, load, run_rows, window_slices, window_views};
use super::{EntityRef, StreamTable};
use crate::segment::Segment;
use std::ops::Range;
use std::rc::Rc;
use strandline_core::error::{Error, Result};
use strandline_core::format::block::BlockMeta;
use strandline_core::routing::hash64;
use strandline_core::scan::TsRange;
use strandline_core::stream::cells::ColView;
use strandline_core::stream::fill::cell_at;
use strandline_core::stream::merge::{CellRef, EntityMerge, SliceRef};

/// Whether a coalesced row counts: its ts and cells.
pub(super) type RowFilter<'a> = dyn FnMut(i64, &[CellRef], &[SliceRef<'_>]) -> bool + 'a;
/// Takes coalesced rows: their times, and their cells by channel.
pub(super) type RowSink<'a> = dyn FnMut(&[i64], &[Option<ColView<'_>>]) -> Result<()> + 'a;
/// Takes an entity, its pieces and how they lie together.
type Visit<'a> = dyn FnMut(u32, &[Piece], &[Cluster]) + 'a;

/// Rows that [`StreamTable::merged_rows`] hands on at once.
const PACK_ROWS: usize = 4096;

/// Rows of one entity that no other source has a say in.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Alone {
    /// All that a block has of the entity.
    Block {
        /// Index into the snapshot's segments.
        segment: usize,
        /// Index of the block.
        block: usize,
    },
    /// Rows of a run.
    Run {
        /// Index into the snapshot's runs.
        run: usize,
        /// Which rows of it.
        rows: Range<usize>,
    },
}

/// One entity: what of it in a range stands alone, and the ranges, ascending, that must be merged. Together
/// they hold each row once.
#[derive(Debug, Default)]
pub(super) struct EntityOverlap {
    pub alone: Vec<Alone>,
    pub merged: Vec<TsRange>,
}

/// All entities: which blocks and runs stand alone, and for entities with rows in the others the ranges that
/// must be merged. Together they hold each row once.
#[derive(Debug)]
pub(super) struct Overlap {
    marks: Marks,
    merged: Vec<(u32, Vec<TsRange>)>,
}

impl Overlap {
    /// Whether no row of the block has to be merged.
    pub fn block_alone(&self, segment: usize, block: usize) -> bool {
        !self.marks.blocks[segment][block]
    }
    /// Whether no row of the run has to be merged.
    pub fn run_alone(&self, run: usize) -> bool {
        !self.marks.runs[run]
    }
    /// Whether everything stands alone.
    pub fn is_empty(&self) -> bool {
        self.merged.is_empty()
    }
    /// Numbers of entities, in order of name, and what of them is to be merged: ascending ranges, which cover
    /// all that these entities have in blocks and runs that do not stand alone.
    pub fn merged(&self) -> &[(u32, Vec<TsRange>)] {
        &self.merged
    }
}

/// Blocks and runs that do not stand alone, or may not.
#[derive(Clone, Debug)]
struct Marks {
    blocks: Vec<Vec<bool>>,
    runs: Vec<bool>,
}

impl Marks {
    fn none(snapshot: &Snapshot) -> Marks {
        let blocks = snapshot.segments.iter();
        Marks {
            blocks: blocks.map(|s| vec![false; s.blocks(0).len()]).collect(),
            runs: vec![false; snapshot.runs.len()],
        }
    }
    fn any(&self) -> bool {
        self.blocks.iter().flatten().chain(&self.runs).any(|&m| m)
    }
    /// Samples of one ts may stand on both sides of a border between blocks: those blocks go together.
    fn spread(&mut self, snapshot: &Snapshot) {
        for (marks, segment) in self.blocks.iter_mut().zip(snapshot.segments.iter()) {
            let blocks = segment.blocks(0);
            let touches = |n: usize| blocks[n].last_key == blocks[n + 1].first_key;
            for n in 1..marks.len() {
                marks[n] |= marks[n - 1] && touches(n - 1);
            }
            for n in (1..marks.len()).rev() {
                marks[n - 1] |= marks[n] && touches(n - 1);
            }
        }
    }
}

/// What one source has of one entity, or a part of it.
#[derive(Clone)]
struct Piece {
    from: i64,
    to: i64,
    /// Segments of the snapshot, then its runs.
    source: usize,
    place: Place,
    /// Where its rows are, if they are at hand.
    rows: Option<(Rc<Unit>, Range<usize>)>,
    /// Less than what its block has of the entity.
    part: bool,
}

#[derive(Clone)]
enum Place {
    Block(usize),
    Run,
}

/// Pieces that overlap, directly or through others.
struct Cluster {
    range: TsRange,
    pieces: Range<usize>,
    /// Of several sources, or not of whole blocks: it is to be merged.
    merge: bool,
}

fn clusters(pieces: &mut [Piece]) -> Vec<Cluster> {
    pieces.sort_by_key(|p| p.from);
    let mut out = Vec::new();
    let mut start = 0;
    while start < pieces.len() {
        let (mut end, mut to) = (start + 1, pieces[start].to);
        while end < pieces.len() && pieces[end].from <= to {
            to = to.max(pieces[end].to);
            end += 1;
        }
        let all = &pieces[start..end];
        let split_block = |p: &Piece| p.part && matches!(p.place, Place::Block(_));
        out.push(Cluster {
            range: TsRange {
                from: all[0].from,
                to,
            },
            merge: all
                .iter()
                .any(|p| p.source != all[0].source || split_block(p)),
            pieces: start..end,
        });
        start = end;
    }
    out
}

/// First and last ts that the block has, or may have, of an entity.
fn span_in(meta: &BlockMeta, entity: &[u8]) -> (i64, i64) {
    // Of a block that begins or ends with another entity only the block's own range is known.
    let at = |key: &[u8], other: i64| {
        let (name, ts) = split_key(key);
        if name == entity { ts } else { other }
    };
    (
        at(&meta.first_key, meta.range.0),
        at(&meta.last_key, meta.range.1),
    )
}

fn overlaps(a: (i64, i64), b: (i64, i64)) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

impl StreamTable {
    /// Takes the pieces of one entity apart into clusters. A piece that spans several others is first cut at
    /// their ends, by its times: it may have rows in few of them.
    async fn settle(
        &self,
        snapshot: &Snapshot,
        entity: &[u8],
        pieces: &mut Vec<Piece>,
    ) -> Result<Vec<Cluster>> {
        let first = clusters(pieces);
        if !first.iter().any(|c| c.merge && c.pieces.len() > 2) {
            return Ok(first);
        }
        let mut out = Vec::with_capacity(pieces.len());
        for cluster in &first {
            let all = &pieces[cluster.pieces.clone()];
            if !cluster.merge || all.len() <= 2 {
                out.extend_from_slice(all);
                continue;
            }
            let mut froms: Vec<i64> = all.iter().map(|p| p.from).collect();
            let mut tos: Vec<i64> = all.iter().map(|p| p.to).collect();
            froms.sort_unstable();
            tos.sort_unstable();
            let mut cuts: Vec<i64> = froms.clone();
            cuts.extend(tos.iter().map(|t| t.saturating_add(1)));
            cuts.sort_unstable();
            cuts.dedup();
            for piece in all {
                let begun = froms.partition_point(|&f| f <= piece.to);
                let ended = tos.partition_point(|&t| t < piece.from);
                // Itself and one other.
                if begun - ended <= 2 {
                    out.push(piece.clone());
                    continue;
                }
                let (unit, rows) = match (&piece.rows, &piece.place) {
                    (Some(rows), _) => rows.clone(),
                    (None, Place::Block(block)) => {
                        let unit = load(&snapshot.segments[piece.source], *block, &[]).await?;
                        let rows = unit.rows_of(entity);
                        (unit, rows)
                    }
                    (None, Place::Run) => return Err(Error::internal("a run without rows")),
                };
                cut(piece, &unit, rows, &cuts, &mut out);
            }
            self.env.breathe().await;
        }
        *pieces = out;
        Ok(clusters(pieces))
    }

    /// What of one entity in a range stands alone, and what must be merged. `hash` is asked of the segments'
    /// filters.
    pub(super) async fn overlap_of_entity(
        &self,
        reader: &mut Reader,
        e: &EntityRef,
        hash: Option<u64>,
        range: TsRange,
    ) -> Result<EntityOverlap> {
        let mut pieces = Vec::new();
        for (n, r) in reader.readers.iter_mut().enumerate() {
            let apart = !overlaps(r.segment.info().range, (range.from, range.to));
            if apart || hash.is_some_and(|h| !r.segment.may_contain(h)) {
                continue;
            }
            for block in r.blocks_of(&e.name, range) {
                let (from, to) = span_in(&r.segment.blocks(0)[block], &e.name);
                if overlaps((from, to), (range.from, range.to)) {
                    pieces.push(Piece {
                        from,
                        to,
                        source: n,
                        place: Place::Block(block),
                        rows: None,
                        part: false,
                    });
                }
            }
        }
        let segments = reader.readers.len();
        for (run, rows) in reader.memory_rows(e.id) {
            pieces.extend(piece_of_run(
                segments + run,
                &reader.units[run],
                rows,
                range,
            ));
        }
        let clusters = self.settle(&reader.snapshot, &e.name, &mut pieces).await?;
        let mut out = EntityOverlap::default();
        for cluster in clusters {
            if cluster.merge {
                out.merged.push(cluster.range.intersect(range));
                continue;
            }
            for piece in &pieces[cluster.pieces] {
                out.alone.push(match (&piece.place, &piece.rows) {
                    (Place::Block(block), _) => Alone::Block {
                        segment: piece.source,
                        block: *block,
                    },
                    (Place::Run, rows) => Alone::Run {
                        run: piece.source - segments,
                        rows: rows.as_ref().map_or(0..0, |r| r.1.clone()),
                    },
                });
            }
        }
        Ok(out)
    }

    /// Which blocks and runs stand alone in a range, and what of which entities must be merged.
    pub(super) async fn overlap_of_all(
        &self,
        snapshot: &Snapshot,
        range: TsRange,
    ) -> Result<Overlap> {
        let mut marks = self.may_overlap(snapshot, range).await;
        let mut merged = Vec::new();
        if marks.any() {
            marks.spread(snapshot);
            // First which of them do overlap: a border between flushes looks as if all did.
            let mut sure = Marks::none(snapshot);
            self.walk(snapshot, &marks, range, &mut |_, pieces, clusters| {
                for cluster in clusters.iter().filter(|c| c.merge) {
                    for piece in &pieces[cluster.pieces.clone()] {
                        match piece.place {
                            Place::Block(block) => sure.blocks[piece.source][block] = true,
                            Place::Run => sure.runs[piece.source - snapshot.segments.len()] = true,
                        }
                    }
                }
            })
            .await?;
            sure.spread(snapshot);
            if sure.any() {
                self.walk(snapshot, &marks, range, &mut |id, pieces, clusters| {
                    let within = |c: &&Cluster| {
                        pieces[c.pieces.clone()].iter().any(|p| match p.place {
                            Place::Block(block) => sure.blocks[p.source][block],
                            Place::Run => sure.runs[p.source - snapshot.segments.len()],
                        })
                    };
                    let ranges: Vec<TsRange> = (clusters.iter().filter(within))
                        .map(|c| c.range.intersect(range))
                        .collect();
                    if !ranges.is_empty() {
                        merged.push((id, ranges));
                    }
                })
                .await?;
            }
            marks = sure;
        }
        Ok(Overlap { marks, merged })
    }

    /// Blocks and runs that may overlap others, by keys and ranges alone.
    async fn may_overlap(&self, snapshot: &Snapshot, range: TsRange) -> Marks {
        let mut marks = Marks::none(snapshot);
        let within = |r: (i64, i64)| overlaps(r, (range.from, range.to));
        let segments = &snapshot.segments;
        for a in 0..segments.len() {
            for b in a + 1..segments.len() {
                let (ra, rb) = (segments[a].info().range, segments[b].info().range);
                if !within(ra) || !within(rb) || !overlaps(ra, rb) {
                    continue;
                }
                for n in 0..segments[a].blocks(0).len() {
                    let meta = &segments[a].blocks(0)[n];
                    if !within(meta.range) || !overlaps(meta.range, rb) {
                        continue;
                    }
                    let others = segments[b].blocks(0);
                    for m in blocks_beside(meta, others) {
                        if within(others[m].range) && overlaps(others[m].range, meta.range) {
                            marks.blocks[a][n] = true;
                            marks.blocks[b][m] = true;
                        }
                    }
                    if n % 256 == 0 {
                        self.env.breathe().await;
                    }
                }
            }
        }
        for (n, run) in snapshot.runs.iter().enumerate() {
            let ranges: Vec<(i64, i64)> = (snapshot.runs.iter())
                .map(|r| (r.range().from, r.range().to))
                .collect();
            let other = |m: usize| m != n && overlaps(ranges[m], ranges[n]) && within(ranges[m]);
            if within(ranges[n]) && (0..ranges.len()).any(other) {
                marks.runs[n] = true;
            }
            let unit = Unit::of_run(run, &[]);
            let near: Vec<usize> = (0..segments.len())
                .filter(|&s| {
                    let r = segments[s].info().range;
                    within(r) && overlaps(r, ranges[n])
                })
                .collect();
            if near.is_empty() {
                continue;
            }
            let (mut low, mut high) = (Vec::new(), Vec::new());
            for (at, (id, rows)) in run.entities().enumerate() {
                let rows = unit.clip(rows, range);
                let ts = &unit.ts()[rows];
                if let (Some(&first), Some(&last)) = (ts.first(), ts.last()) {
                    let state = self.state.borrow();
                    let name = state.dictionary.name(id);
                    let mut hash = None;
                    for &s in &near {
                        let segment = &segments[s];
                        if !overlaps(segment.info().range, (first, last))
                            || !segment.may_contain(*hash.get_or_insert_with(|| hash64(name)))
                        {
                            continue;
                        }
                        write_key(name, first, &mut low);
                        write_key(name, last, &mut high);
                        let blocks = segment.blocks(0);
                        let from = blocks.partition_point(|b| b.last_key < low);
                        let to = from + blocks[from..].partition_point(|b| b.first_key <= high);
                        for (block, meta) in blocks.iter().enumerate().take(to).skip(from) {
                            // Also where the run has rows before and behind the block and none in it: if those
                            // are merged, it is for the cut to say that the block between is not.
                            if overlaps(span_in(meta, name), (first, last)) {
                                marks.blocks[s][block] = true;
                                marks.runs[n] = true;
                            }
                        }
                    }
                }
                if at % 256 == 0 {
                    self.env.breathe().await;
                }
            }
        }
        marks
    }

    /// Goes through the entities of the marked blocks and runs by name, with their pieces in clusters.
    async fn walk(
        &self,
        snapshot: &Snapshot,
        marks: &Marks,
        range: TsRange,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let segments = snapshot.segments.len();
        let mut cursors = Vec::new();
        for (source, segment) in snapshot.segments.iter().enumerate() {
            let blocks = &marks.blocks[source];
            let marked: Vec<usize> = (0..blocks.len()).filter(|&b| blocks[b]).collect();
            if !marked.is_empty() {
                let mut cursor = Cursor::new(source, segment.clone(), marked);
                cursor.advance(range).await?;
                cursors.push(cursor);
            }
        }
        let marked: Vec<usize> = (0..marks.runs.len()).filter(|&r| marks.runs[r]).collect();
        let runs: Vec<_> = marked.iter().map(|&r| snapshot.runs[r].clone()).collect();
        let units: Vec<Rc<Unit>> = runs.iter().map(|r| Unit::of_run(r, &[])).collect();
        let index = index_runs(&self.env, &runs).await;
        let mut ids: Vec<u32> = index.iter().map(|m| m.entity).collect();
        ids.dedup();
        self.sort_by_name(&mut ids).await;
        let mut next = 0;
        let mut pieces = Vec::new();
        loop {
            pieces.clear();
            let in_memory = ids.get(next).copied();
            let in_blocks = (cursors.iter().filter(|c| c.piece.is_some()))
                .map(|c| &c.name)
                .min();
            let (name, id) = {
                let state = self.state.borrow();
                match (in_blocks, in_memory.map(|id| state.dictionary.name(id))) {
                    (None, None) => break,
                    (Some(name), memory) if memory.is_none_or(|m| &name[..] < m) => {
                        let id = state.dictionary.get(name, hash64(name));
                        let id =
                            id.ok_or_else(|| Error::internal("a block's entity has no number"))?;
                        (name.clone(), id)
                    }
                    (_, Some(name)) => (name.to_vec(), in_memory.unwrap_or_default()),
                    (Some(_), None) => break,
                }
            };
            for cursor in &mut cursors {
                while cursor.name == name
                    && let Some(piece) = cursor.piece.take()
                {
                    pieces.push(piece);
                    cursor.advance(range).await?;
                }
            }
            if in_memory == Some(id) {
                next += 1;
                let from = index.partition_point(|m| m.entity < id);
                for m in index[from..].iter().take_while(|m| m.entity == id) {
                    let run = m.run as usize;
                    let source = segments + marked[run];
                    let rows = m.start as usize..m.end as usize;
                    pieces.extend(piece_of_run(source, &units[run], rows, range));
                }
            }
            let clusters = self.settle(snapshot, &name, &mut pieces).await?;
            visit(id, &pieces, &clusters);
            self.env.breathe().await;
        }
        Ok(())
    }

    /// The coalesced rows of one entity in a range that `keep` takes, in order of ts, packed by the reader's
    /// channels.
    pub(super) async fn merged_rows(
        &self,
        reader: &mut Reader,
        e: &EntityRef,
        range: TsRange,
        keep: &mut RowFilter<'_>,
        out: &mut RowSink<'_>,
    ) -> Result<()> {
        let channels = reader.channels.clone();
        let dedup = reader.snapshot.dedup();
        let mut cells = vec![CellRef::NONE; channels.len()];
        let mut pack = Pack::new(&channels);
        let mut windows = reader.entity(&e.name, None, Some(e.id), range);
        while let Some(window) = windows.next_window(reader).await? {
            let views = window_views(&window);
            let slices = window_slices(&window, &views);
            let mut merge = EntityMerge::new(&slices, channels.len(), dedup);
            while let Some(ts) = merge.next_row(&mut cells) {
                if keep(ts, &cells, &slices) {
                    pack.row(ts, |c| cell_at(&slices, c, cells[c]));
                    if pack.rows() >= PACK_ROWS {
                        let done = pack.take();
                        out(done.ts(), &done.views())?;
                        self.env.breathe().await;
                    }
                }
            }
            self.env.breathe().await;
        }
        match pack.rows() {
            0 => Ok(()),
            _ => {
                let done = pack.take();
                out(done.ts(), &done.views())
            }
        }
    }
}

/// Blocks of a segment that may hold rows of the entities and times of a block of another one.
fn blocks_beside(meta: &BlockMeta, others: &[BlockMeta]) -> Range<usize> {
    let (mut low, mut high) = (Vec::new(), Vec::new());
    match only_entity(meta) {
        Some(name) => {
            write_key(name, meta.range.0, &mut low);
            write_key(name, meta.range.1, &mut high);
        }
        None => {
            write_key(split_key(&meta.first_key).0, i64::MIN, &mut low);
            write_key(split_key(&meta.last_key).0, i64::MAX, &mut high);
        }
    }
    let from = others.partition_point(|b| b.last_key < low);
    from..from + others[from..].partition_point(|b| b.first_key <= high)
}

fn piece_of_run(
    source: usize,
    unit: &Rc<Unit>,
    rows: Range<usize>,
    range: TsRange,
) -> Option<Piece> {
    let rows = unit.clip(rows, range);
    let ts = &unit.ts()[rows.clone()];
    Some(Piece {
        from: *ts.first()?,
        to: *ts.last()?,
        source,
        place: Place::Run,
        rows: Some((unit.clone(), rows)),
        part: false,
    })
}

/// Cuts a piece where others begin or have ended.
fn cut(piece: &Piece, unit: &Rc<Unit>, rows: Range<usize>, cuts: &[i64], out: &mut Vec<Piece>) {
    let mut start = rows.start;
    while start < rows.end {
        let ts = &unit.ts()[start..rows.end];
        let next = cuts.partition_point(|&c| c <= ts[0]);
        let len = (cuts.get(next)).map_or(ts.len(), |&c| ts.partition_point(|&t| t < c));
        out.push(Piece {
            from: ts[0],
            to: ts[len - 1],
            source: piece.source,
            place: piece.place.clone(),
            rows: Some((unit.clone(), start..start + len)),
            part: true,
        });
        start += len;
    }
}

/// Goes through what marked blocks of a segment have of each entity, by name and ts.
struct Cursor {
    source: usize,
    segment: Rc<Segment>,
    blocks: Vec<usize>,
    next: usize,
    /// A block of several entities, and which of them comes next.
    open: Option<(usize, Rc<Unit>, usize)>,
    name: Vec<u8>,
    /// `None` at the end.
    piece: Option<Piece>,
}

impl Cursor {
    fn new(source: usize, segment: Rc<Segment>, blocks: Vec<usize>) -> Self {
        Cursor {
            source,
            segment,
            blocks,
            next: 0,
            open: None,
            name: Vec::new(),
            piece: None,
        }
    }

    /// To the next piece that has rows in the range, or to the end.
    async fn advance(&mut self, range: TsRange) -> Result<()> {
        self.piece = None;
        loop {
            if let Some((block, unit, n)) = &mut self.open {
                let names = unit.entity_runs().filter(|(names, _)| *n < names.len());
                if let Some((names, ends)) = names {
                    let rows = unit.clip(run_rows(ends, *n), range);
                    let name = names.get_bytes(*n);
                    *n += 1;
                    if rows.is_empty() {
                        continue;
                    }
                    let ts = &unit.ts()[rows.clone()];
                    self.name = name.to_vec();
                    self.piece = Some(Piece {
                        from: ts[0],
                        to: ts[ts.len() - 1],
                        source: self.source,
                        place: Place::Block(*block),
                        rows: Some((unit.clone(), rows)),
                        part: false,
                    });
                    return Ok(());
                }
            }
            self.open = None;
            let Some(&block) = self.blocks.get(self.next) else {
                return Ok(());
            };
            self.next += 1;
            let meta = &self.segment.blocks(0)[block];
            if !overlaps(meta.range, (range.from, range.to)) {
                continue;
            }
            if let Some(name) = only_entity(meta) {
                self.name = name.to_vec();
                self.piece = Some(Piece {
                    from: meta.range.0,
                    to: meta.range.1,
                    source: self.source,
                    place: Place::Block(block),
                    rows: None,
                    part: false,
                });
                return Ok(());
            }
            self.open = Some((block, load(&self.segment, block, &[]).await?, 0));
        }
    }
}
