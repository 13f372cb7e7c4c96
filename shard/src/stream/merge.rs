//! Fewer, larger segments, cut by time: see [`pick`] for which. Blocks that nothing overlaps are taken over as
//! they are stored; dropped channels and expired samples go away here.

use super::StreamTable;
use super::keys::{only_entity, split_key};
use super::pick::{Bucket, Piece, Route, Rules, Weights, pick};
use super::snapshot::Snapshot;
use super::source::Reader;
use super::writer::SegmentWriter;
use crate::segment::{DecodedColumn, Effort, Segment};
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::format::block::{BlockData, BlockMeta};
use strandline_core::ids::{ColumnId, SegmentId};
use strandline_core::scan::TsRange;
use strandline_core::value::Kind;

/// Rows below this part of `block_rows` make no block worth keeping as it is.
const FULL_ENOUGH: usize = 4;
/// Merges that are thought ahead for [`StreamTable::merge_debt_bytes`].
const DEBT_MERGES: usize = 64;

/// Segments to be merged, oldest first.
pub struct MergeJob {
    inputs: Vec<Rc<Segment>>,
}

impl MergeJob {
    /// Bytes to be rewritten.
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().map(|s| s.bytes()).sum()
    }
}

/// A merge that is on disk and not yet part of the table. The directory of its segments must be synced before
/// a manifest names them.
pub struct MergeDone {
    /// What it replaces.
    pub inputs: Vec<SegmentId>,
    /// With what; nothing when no row of a live channel was left.
    pub outputs: Vec<Rc<Segment>>,
    /// Blocks that were encoded anew, and blocks that were copied.
    pub blocks: (u64, u64),
    /// Bytes of the inputs.
    pub read_bytes: u64,
}

fn piece(segment: &Segment) -> Piece {
    let info = segment.info();
    Piece {
        flushes: info.flushes,
        range: info.range,
        bytes: segment.bytes(),
    }
}

/// Blocks that may hold rows of the entity that a merge has come to.
struct Span {
    /// Times that those rows lie in.
    from: i64,
    to: i64,
    input: usize,
    block: usize,
    rows: usize,
    /// It holds nothing else.
    alone: bool,
}

impl StreamTable {
    /// What merges go by now.
    pub(super) fn rules(&self) -> Rules {
        let (limits, options) = (&self.cx.limits, &self.def().options);
        let now_ms = self.env.clock.now_ms();
        let rules = Rules::new(
            limits.merge_fan_in,
            limits.segment_bytes,
            options.retention_ms,
            now_ms,
        );
        match options.mutable {
            // What counts of an entity depends on samples of all times.
            true => Rules { top: None, ..rules },
            false => rules,
        }
    }

    /// The first ms that has not expired.
    pub(super) fn floor(&self) -> i64 {
        self.def().options.floor(self.env.clock.now_ms())
    }

    /// The bucket of a segment, as the merges see it: its level, first and last day; `None` for a mixed one.
    pub fn bucket_of(&self, segment: &Segment) -> Option<Bucket> {
        Bucket::of(segment.info().range, self.rules().top?)
    }

    /// The next merge, if one is worth it.
    pub fn pick_merge(&self) -> Option<MergeJob> {
        if !self.damaged().is_empty() {
            return None; // where it stands among the others is not known
        }
        let segments = self.state.borrow().segments.clone();
        let mut pieces: Vec<Piece> = segments.iter().map(|s| piece(s)).collect();
        let inputs = loop {
            let inputs = pick(&pieces, &self.rules())?;
            let Some(&n) = inputs.iter().find(|&&n| segments[n].damage().is_some()) else {
                break inputs;
            };
            // More than a merge ever reads: it stays as it is, and in its place.
            const LEFT_ALONE: u64 = u64::MAX >> 16;
            if std::mem::replace(&mut pieces[n].bytes, LEFT_ALONE) == LEFT_ALONE {
                return None;
            }
        };
        Some(MergeJob {
            inputs: inputs.into_iter().map(|n| segments[n].clone()).collect(),
        })
    }

    /// Bytes that merges would rewrite now, the next of them thought through.
    pub fn merge_debt_bytes(&self) -> u64 {
        let segments = self.state.borrow().segments.clone();
        let mut pieces: Vec<Piece> = segments.iter().map(|s| piece(s)).collect();
        let rules = self.rules();
        let mut debt = 0;
        for _ in 0..DEBT_MERGES {
            let Some(inputs) = pick(&pieces, &rules) else {
                break;
            };
            let mut all = pieces[inputs[0]];
            for &n in &inputs[1..] {
                let p = pieces[n];
                all.bytes += p.bytes;
                all.flushes = (
                    all.flushes.0.min(p.flushes.0),
                    all.flushes.1.max(p.flushes.1),
                );
                all.range = (all.range.0.min(p.range.0), all.range.1.max(p.range.1));
            }
            debt += all.bytes;
            let mut n = 0;
            pieces.retain(|_| {
                n += 1;
                !inputs.contains(&(n - 1))
            });
            // What is cut up is not merged again here: how is only known when it is read.
            if rules
                .top
                .is_none_or(|top| Bucket::of(all.range, top).is_some())
            {
                pieces.push(all);
                pieces.sort_by_key(|p| p.flushes);
            }
        }
        debt
    }

    /// Segments whose samples have all expired. Their files can go; nothing of them is seen any more.
    pub fn expired(&self) -> Vec<Rc<Segment>> {
        let floor = self.floor();
        let state = self.state.borrow();
        let gone = state.segments.iter().filter(|s| s.info().range.1 < floor);
        gone.cloned().collect()
    }

    /// Whether all samples in memory have expired, and there are some.
    pub fn memory_expired(&self) -> bool {
        let floor = self.floor();
        let state = self.state.borrow();
        let runs = state.frozen.iter().flat_map(|f| &f.runs);
        let frozen = runs.map(|r| r.range().to).max();
        let newest = frozen.max(state.memtable.newest_ts());
        newest.is_some_and(|ts| ts < floor)
    }

    /// Writes the segments of a job anew. The table is as before until [`StreamTable::install_merge`].
    ///
    /// # Errors
    /// `XX001` for a damaged input, `53100` or `58030` from the disk.
    pub async fn merge(&self, job: &MergeJob) -> Result<MergeDone> {
        let snapshot = Snapshot {
            def: self.def(),
            segments: Rc::new(job.inputs.clone()),
            runs: Vec::new(),
            applied: 0,
        };
        let channels: Vec<(ColumnId, Kind)> = snapshot.stored_channels();
        let mutable = snapshot.def.options.mutable;
        let infos = || job.inputs.iter().map(|s| s.info());
        let flushes = (
            infos().map(|i| i.flushes.0).min().unwrap_or(0),
            infos().map(|i| i.flushes.1).max().unwrap_or(0),
        );
        let range = (
            infos().map(|i| i.range.0).min().unwrap_or(0),
            infos().map(|i| i.range.1).max().unwrap_or(0),
        );
        let mut weights = Vec::new();
        for segment in &job.inputs {
            for b in segment.blocks(0) {
                let bytes = b.chunks.iter().map(|c| u64::from(c.len)).sum();
                weights.push((b.range, bytes));
            }
            self.env.breathe().await;
        }
        let route = Route::over(range, &self.rules(), Weights::new(weights));
        let floor = self.floor();
        let mut writer =
            SegmentWriter::new(self, flushes, Effort::Merge, channels.clone(), route, floor);
        let mut names = Vec::new();
        for segment in &job.inputs {
            let mut cursor = NameCursor::new(segment.clone());
            cursor.advance().await?;
            names.push(cursor);
        }
        let mut reader = Reader::new(snapshot, channels);
        loop {
            let next = names.iter().filter(|c| !c.ended).map(|c| &c.name).min();
            let Some(name) = next.cloned() else { break };
            writer.begin_entity();
            if mutable {
                let all = TsRange::ALL;
                writer.rows(&mut reader, &name, None, all).await?;
            } else {
                self.merge_entity(&mut writer, &mut reader, &name).await?;
            }
            writer.end_entity(&name).await?;
            for cursor in &mut names {
                if !cursor.ended && cursor.name == name {
                    cursor.advance().await?;
                }
            }
            self.env.breathe().await;
        }
        writer.end().await?;
        let blocks = writer.blocks;
        Ok(MergeDone {
            inputs: job.inputs.iter().map(|s| s.id()).collect(),
            outputs: writer.finish().await?,
            blocks,
            read_bytes: job.bytes(),
        })
    }

    /// One entity of a merge: stretches of time where blocks overlap are merged, blocks that stand alone are
    /// copied.
    async fn merge_entity(
        &self,
        writer: &mut SegmentWriter<'_>,
        reader: &mut Reader,
        name: &[u8],
    ) -> Result<()> {
        let spans = spans(reader, name);
        let enough = self.cx.limits.block_rows as usize / FULL_ENOUGH;
        // What has been passed by and is still to be merged.
        let mut behind: Option<TsRange> = None;
        let mut at = 0;
        while at < spans.len() {
            let (from, mut to, mut end) = (spans[at].from, spans[at].to, at + 1);
            while end < spans.len() && spans[end].from <= to {
                to = to.max(spans[end].to);
                end += 1;
            }
            let one = &spans[at];
            let segment = reader.readers[one.input].segment.clone();
            let copies = end == at + 1
                && one.alone
                && one.rows >= enough
                && can_stay(&segment, &segment.blocks(0)[one.block], reader)
                && writer.holds((from, to));
            if copies {
                if let Some(range) = behind.take() {
                    writer.rows(reader, name, None, range).await?;
                }
                let (waiting, same) = writer.waiting(name, from);
                if !same || waiting >= enough {
                    writer.copy(&segment, one.block, name).await?;
                } else {
                    // Alone the few rows before it would stay a small block for ever.
                    writer
                        .rows(reader, name, None, TsRange { from, to })
                        .await?;
                }
            } else {
                let from = behind.map_or(from, |b| b.from);
                behind = Some(TsRange { from, to });
            }
            at = end;
        }
        match behind {
            Some(range) => writer.rows(reader, name, None, range).await,
            None => Ok(()),
        }
    }

    /// Takes segments away that have expired; they are returned.
    pub fn remove_segments(&self, ids: &[SegmentId]) -> Vec<Rc<Segment>> {
        self.install_merge(MergeDone {
            inputs: ids.to_vec(),
            outputs: Vec::new(),
            blocks: (0, 0),
            read_bytes: 0,
        })
    }

    /// Puts a merge's outputs in the place of its inputs, which are returned: they can be removed once no
    /// reader holds them.
    pub fn install_merge(&self, done: MergeDone) -> Vec<Rc<Segment>> {
        let mut state = self.state.borrow_mut();
        let (doomed, mut kept): (Vec<_>, Vec<_>) = state
            .segments
            .iter()
            .cloned()
            .partition(|s| done.inputs.contains(&s.id()));
        kept.extend(done.outputs);
        kept.sort_by_key(|s| s.info().flushes);
        state.segments = Rc::new(kept);
        doomed
    }
}

/// Goes through the entities of a segment by name.
struct NameCursor {
    segment: Rc<Segment>,
    /// The next block to look at.
    block: usize,
    /// Names of the block before, when it has several, and the next of them.
    column: Option<(Rc<DecodedColumn>, usize)>,
    name: Vec<u8>,
    started: bool,
    ended: bool,
}

impl NameCursor {
    fn new(segment: Rc<Segment>) -> Self {
        NameCursor {
            segment,
            block: 0,
            column: None,
            name: Vec::new(),
            started: false,
            ended: false,
        }
    }

    /// To the next name, or to the end.
    async fn advance(&mut self) -> Result<()> {
        loop {
            if let Some((column, next)) = &mut self.column
                && let BlockData::StrRuns { names, .. } = &column.data
                && *next < names.len()
            {
                let name = names.get_bytes(*next);
                *next += 1;
                if !self.started || name != self.name {
                    self.name = name.to_vec();
                    self.started = true;
                    return Ok(());
                }
                continue;
            }
            self.column = None;
            let segment = self.segment.clone();
            let Some(meta) = segment.blocks(0).get(self.block) else {
                self.ended = true;
                return Ok(());
            };
            self.block += 1;
            if let Some(name) = only_entity(meta) {
                if !self.started || name != self.name {
                    self.name = name.to_vec();
                    self.started = true;
                    return Ok(());
                }
            } else {
                let decoded = segment.read(0, self.block - 1, &[ColumnId::ENTITY]).await?;
                self.column = decoded.get(ColumnId::ENTITY).map(|c| (c.clone(), 0));
            }
        }
    }
}

/// The blocks of an entity, by time.
fn spans(reader: &mut Reader, name: &[u8]) -> Vec<Span> {
    let mut spans = Vec::new();
    for (input, r) in reader.readers.iter_mut().enumerate() {
        for block in r.blocks_of(name, TsRange::ALL) {
            let meta = &r.segment.blocks(0)[block];
            // Of a block that begins or ends with another entity only the block's own range is known.
            let key_ts = |key: &[u8], other: i64| {
                let (entity, ts) = split_key(key);
                if entity == name { ts } else { other }
            };
            spans.push(Span {
                from: key_ts(&meta.first_key, meta.range.0),
                to: key_ts(&meta.last_key, meta.range.1),
                input,
                block,
                rows: meta.rows as usize,
                alone: only_entity(meta).is_some(),
            });
        }
    }
    spans.sort_by_key(|s| (s.from, s.input, s.block));
    spans
}

/// Whether a block is what a merge would make of it: the encodings of a merge, and no channel that is gone.
fn can_stay(segment: &Segment, block: &BlockMeta, reader: &Reader) -> bool {
    let merged = segment.info().flushes.0 < segment.info().flushes.1;
    let live = |id: ColumnId| reader.channels.iter().any(|c| c.0 == id);
    let mut ids = block.chunks.iter().map(|c| c.id);
    merged && ids.all(|id| id < ColumnId::FIRST_USER || live(id))
}
