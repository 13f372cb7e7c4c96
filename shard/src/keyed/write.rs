//! Versions into a segment. Section 0 holds them by key, the newest of a key first; section 1 holds x_rev,
//! where the version stands in section 0, and which newer version of the same key the segment has too.

use super::{BY_KEY, BY_REV};
use crate::segment::{Segment, SegmentSink};
use crate::store::StoreContext;
use std::collections::BTreeMap;
use std::rc::Rc;
use strandline_core::codec::Effort;
use strandline_core::error::Result;
use strandline_core::format::block::{
    Bitmap, Block, BlockColumn, BlockData, Presence, SegmentInfo, SegmentKind,
};
use strandline_core::ids::{ColumnId, SegmentId, TableId};
use strandline_core::io::Env;
use strandline_core::keyed::Version;
use strandline_core::routing::hash64;
use strandline_core::value::{StrVec, Value};

/// A place in section 0 as one number: the block, and 20 bits for the row.
const PLACE_ROW_BITS: u32 = 20;

/// The number of a place.
fn place(block: usize, row: usize) -> i64 {
    ((block << PLACE_ROW_BITS) | row) as i64
}
/// Block and row of a place.
pub(crate) fn place_of(place: i64) -> (usize, usize) {
    (
        (place >> PLACE_ROW_BITS) as usize,
        (place & ((1 << PLACE_ROW_BITS) - 1)) as usize,
    )
}

struct IndexRow {
    rev: u64,
    place: i64,
    next: u64,
    deleted: bool,
}

/// One segment on its way.
pub(crate) struct KeyedWriter {
    env: Env,
    cx: StoreContext,
    table: TableId,
    id: SegmentId,
    sink: SegmentSink,
    buffer: Vec<Rc<Version>>,
    buffer_bytes: usize,
    index: Vec<IndexRow>,
    blocks: usize,
    last_key: Option<Box<[u8]>>,
    last_rev: u64,
    tombstones: u64,
}

fn info(table: TableId) -> SegmentInfo {
    SegmentInfo {
        kind: SegmentKind::Keyed,
        table,
        flushes: (0, 0),
        rows: 0,
        range: (0, 0),
        max_rev: 0,
        tombstones: 0,
    }
}

impl KeyedWriter {
    /// Begins a segment.
    pub async fn new(
        env: &Env,
        cx: &StoreContext,
        table: TableId,
        effort: Effort,
        keys: usize,
    ) -> Result<Self> {
        let id = cx.take_segment_id();
        let sink = SegmentSink::create(env, &cx.dir, id, info(table)).await?;
        let sink = sink.with_effort(effort).with_key_bound(keys);
        Ok(KeyedWriter {
            env: env.clone(),
            cx: cx.clone(),
            table,
            id,
            sink,
            buffer: Vec::new(),
            buffer_bytes: 0,
            index: Vec::new(),
            blocks: 0,
            last_key: None,
            last_rev: 0,
            tombstones: 0,
        })
    }

    /// Adds a version: keys ascending, of one key the newest first.
    pub async fn push(&mut self, version: Rc<Version>) -> Result<()> {
        let same = self.last_key.as_deref() == Some(&*version.key);
        debug_assert!(same || self.last_key.as_deref().is_none_or(|k| k < &*version.key));
        debug_assert!(!same || version.rev.0 < self.last_rev);
        let bytes = version.text_bytes() + version.key.len();
        if (self.buffer_bytes + bytes) as u64 > self.cx.limits.block_bytes {
            self.write_block().await?;
        }
        self.index.push(IndexRow {
            rev: version.rev.0,
            place: place(self.blocks, self.buffer.len()),
            next: if same { self.last_rev } else { 0 },
            deleted: version.deleted,
        });
        if !same {
            self.sink.add_hash(hash64(&version.key));
            self.last_key = Some(version.key.clone());
        }
        self.last_rev = version.rev.0;
        self.tombstones += u64::from(version.deleted);
        self.buffer_bytes += bytes;
        self.buffer.push(version);
        if self.buffer.len() as u64 >= self.cx.limits.block_rows {
            self.write_block().await?;
        }
        Ok(())
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.sink.bytes()
    }

    async fn write_block(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.buffer);
        self.buffer_bytes = 0;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        let numbers =
            |f: &dyn Fn(&Version) -> i64| BlockData::I64(rows.iter().map(|v| f(v)).collect());
        let all = |id, data| BlockColumn {
            id,
            presence: Presence::All,
            data,
            edges_ts: None,
        };
        let mut keys = StrVec::with_capacity(rows.len());
        rows.iter().for_each(|v| keys.push_bytes(&v.key));
        let mut columns = vec![
            all(ColumnId::KEY, BlockData::Str(keys)),
            all(ColumnId::REV, numbers(&|v| v.rev.0 as i64)),
            all(ColumnId::DELETED, numbers(&|v| i64::from(v.deleted))),
            all(ColumnId::FIRST, numbers(&|v| i64::from(v.first))),
        ];
        columns.extend(user_columns(&rows));
        let revs = rows.iter().map(|v| v.rev.0 as i64);
        let range = (revs.clone().min().unwrap_or(0), revs.max().unwrap_or(0));
        let block = Block {
            section: BY_KEY,
            rows: rows.len() as u32,
            first_key: first.key.to_vec(),
            last_key: last.key.to_vec(),
            range,
            columns,
        };
        self.sink.push(block).await?;
        self.blocks += 1;
        self.env.breathe().await;
        Ok(())
    }

    /// Seals the segment; `None` when nothing was pushed.
    pub async fn finish(mut self, flushes: (u64, u64)) -> Result<Option<Rc<Segment>>> {
        self.write_block().await?;
        if self.index.is_empty() {
            return Ok(None);
        }
        let rows = self.index.len() as u64;
        self.index.sort_unstable_by_key(|r| r.rev);
        let range = (
            self.index[0].rev as i64,
            self.index[self.index.len() - 1].rev as i64,
        );
        for part in self.index.chunks(self.cx.limits.block_rows as usize) {
            let numbers =
                |f: &dyn Fn(&IndexRow) -> i64| BlockData::I64(part.iter().map(f).collect());
            let all = |id, data| BlockColumn {
                id,
                presence: Presence::All,
                data,
                edges_ts: None,
            };
            let (first, last) = (part[0].rev, part[part.len() - 1].rev);
            let block = Block {
                section: BY_REV,
                rows: part.len() as u32,
                first_key: first.to_be_bytes().to_vec(),
                last_key: last.to_be_bytes().to_vec(),
                range: (first as i64, last as i64),
                columns: vec![
                    all(ColumnId::REV, numbers(&|r| r.rev as i64)),
                    all(ColumnId::DELETED, numbers(&|r| i64::from(r.deleted))),
                    all(ColumnId::PLACE, numbers(&|r| r.place)),
                    all(ColumnId::NEXT, numbers(&|r| r.next as i64)),
                ],
            };
            self.sink.push(block).await?;
            self.env.breathe().await;
        }
        let info = SegmentInfo {
            flushes,
            rows,
            range,
            max_rev: range.1 as u64,
            tombstones: self.tombstones,
            ..info(self.table)
        };
        self.sink.finish(info).await?;
        Segment::open(&self.env, &self.cx.dir, self.id, self.cx.cache.clone())
            .await
            .map(Some)
    }
}

/// The declared columns of some rows, each with the rows that have it.
fn user_columns(rows: &[Rc<Version>]) -> Vec<BlockColumn> {
    enum Cells {
        F64(Vec<f64>),
        Str(StrVec),
    }
    let mut columns: BTreeMap<ColumnId, (Bitmap, Cells)> = BTreeMap::new();
    for (row, version) in rows.iter().enumerate() {
        for (id, value) in &version.values {
            let (bits, cells) = columns.entry(*id).or_insert_with(|| {
                let cells = match value {
                    Value::Str(_) => Cells::Str(StrVec::new()),
                    _ => Cells::F64(Vec::new()),
                };
                (Bitmap::new(rows.len()), cells)
            });
            match (cells, value) {
                (Cells::F64(v), Value::F64(x)) => v.push(*x),
                (Cells::Str(v), Value::Str(s)) => v.push(s),
                // A column has one kind for ever, and NULL is not stored.
                _ => continue,
            }
            bits.set(row);
        }
    }
    columns
        .into_iter()
        .map(|(id, (bits, cells))| BlockColumn {
            id,
            presence: if bits.count_ones() == rows.len() {
                Presence::All
            } else {
                Presence::Some(bits)
            },
            data: match cells {
                Cells::F64(v) => BlockData::F64(v),
                Cells::Str(v) => BlockData::Str(v),
            },
            edges_ts: None,
        })
        .collect()
}
