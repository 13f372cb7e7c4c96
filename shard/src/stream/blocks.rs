//! Cuts sorted rows into blocks: at entity boundaries where that leaves no tiny block, and the many rows of
//! one entity into even parts, so that most blocks hold one entity and answer from their statistics.

use super::keys::write_key;
use std::collections::VecDeque;
use strandline_core::format::block::{Bitmap, Block, BlockColumn, BlockData, Presence};
use strandline_core::ids::ColumnId;
use strandline_core::stream::merge::{CellRef, SliceRef};
use strandline_core::value::{Kind, StrVec};

struct ColumnRows {
    id: ColumnId,
    rows: Vec<u32>,
    data: BlockData,
}

impl ColumnRows {
    fn new(id: ColumnId, kind: Kind) -> Self {
        ColumnRows {
            id,
            rows: Vec::new(),
            data: match kind {
                Kind::F64 => BlockData::F64(Vec::new()),
                Kind::Str => BlockData::Str(StrVec::new()),
            },
        }
    }
}

/// Takes rows in order of (entity, ts, arrival) and gives blocks.
pub struct BlockBuilder {
    most: usize,
    target: usize,
    /// Text and names of a block, past which it is cut.
    most_bytes: usize,
    bytes: usize,
    /// Which channels are of text.
    texts: Vec<usize>,
    channels: Vec<(ColumnId, Kind)>,
    names: StrVec,
    counts: Vec<u32>,
    ts: Vec<i64>,
    columns: Vec<ColumnRows>,
    entity: Vec<u8>,
    /// Whole blocks, to be taken.
    pub done: VecDeque<Block>,
    /// Rows of all blocks.
    pub rows: u64,
    /// Smallest and largest ts of all blocks.
    pub range: (i64, i64),
}

impl BlockBuilder {
    /// For blocks of at most so many rows, and of at most so many bytes of text where they have several.
    pub fn new(block_rows: usize, block_bytes: usize, channels: Vec<(ColumnId, Kind)>) -> Self {
        BlockBuilder {
            most: block_rows,
            target: block_rows,
            most_bytes: block_bytes,
            bytes: 0,
            texts: (0..channels.len())
                .filter(|&c| channels[c].1 == Kind::Str)
                .collect(),
            names: StrVec::new(),
            counts: Vec::new(),
            ts: Vec::new(),
            columns: channels.iter().map(|c| ColumnRows::new(c.0, c.1)).collect(),
            channels,
            entity: Vec::new(),
            done: VecDeque::new(),
            rows: 0,
            range: (i64::MAX, i64::MIN),
        }
    }

    /// The rows from here on are of this entity, about `expected` of them.
    pub fn begin_entity(&mut self, entity: &[u8], expected: usize) {
        let half = self.most / 2;
        if self.ts.len() >= half
            || self.bytes >= self.most_bytes / 2
            || (expected >= half && self.ts.len() + expected > self.most)
        {
            self.cut();
        }
        self.target = if self.ts.is_empty() && expected > self.most {
            expected.div_ceil(expected.div_ceil(self.most))
        } else {
            self.most
        };
        self.entity.clear();
        self.entity.extend_from_slice(entity);
    }

    /// Rows of the block that is being filled, and whether the last of them are of this entity.
    pub fn open_rows(&self, entity: &[u8]) -> (usize, bool) {
        let last = self.counts.len().checked_sub(1);
        let same = last.is_some_and(|n| self.names.get_bytes(n) == entity);
        (self.ts.len(), same)
    }

    /// About so many rows more of the same entity come together: they and those of the block that is being
    /// filled go into even parts.
    pub fn expect(&mut self, rows: usize) {
        let all = self.ts.len() + rows;
        if all > self.most {
            self.target = all.div_ceil(all.div_ceil(self.most));
        }
    }

    /// A block that was stored before goes between: `rows` in this range.
    pub fn note_copy(&mut self, rows: u64, range: (i64, i64)) {
        debug_assert!(self.ts.is_empty() && self.done.is_empty());
        self.rows += rows;
        self.range = (self.range.0.min(range.0), self.range.1.max(range.1));
    }

    /// Adds a row; cells stand in the order of the channels.
    pub fn push(&mut self, ts: i64, cells: &[CellRef], slices: &[SliceRef<'_>]) {
        let text = self.text_of(cells, slices);
        let too_long = self.bytes + text + self.entity.len() > self.most_bytes;
        if self.ts.len() >= self.target || (too_long && !self.ts.is_empty()) {
            self.cut();
        }
        self.bytes += text;
        let row = self.ts.len() as u32;
        let last = self.counts.len().checked_sub(1);
        match last {
            Some(n) if self.names.get_bytes(n) == self.entity => self.counts[n] += 1,
            _ => {
                self.names.push_bytes(&self.entity);
                self.bytes += self.entity.len();
                self.counts.push(1);
            }
        }
        self.ts.push(ts);
        for (c, (column, cell)) in self.columns.iter_mut().zip(cells).enumerate() {
            if cell.is_none() {
                continue;
            }
            let Some(view) = slices[cell.slice as usize].channels[c] else {
                continue;
            };
            let at = cell.index as usize;
            match (&mut column.data, view.data()) {
                (BlockData::F64(to), BlockData::F64(from)) => to.push(from[at]),
                (BlockData::Str(to), BlockData::Str(from)) => to.push_bytes(from.get_bytes(at)),
                _ => continue,
            }
            column.rows.push(row);
        }
    }

    /// Bytes of a row's text.
    fn text_of(&self, cells: &[CellRef], slices: &[SliceRef<'_>]) -> usize {
        let mut bytes = 0;
        for &c in &self.texts {
            let cell = cells[c];
            if !cell.is_none()
                && let Some(view) = slices[cell.slice as usize].channels[c]
                && let BlockData::Str(from) = view.data()
            {
                bytes += from.get_bytes(cell.index as usize).len();
            }
        }
        bytes
    }

    /// Ends the block that is being filled, if it has rows.
    pub fn cut(&mut self) {
        self.bytes = 0;
        let rows = self.ts.len();
        let (Some(&first_ts), Some(&last_ts)) = (self.ts.first(), self.ts.last()) else {
            return;
        };
        let names = std::mem::take(&mut self.names);
        let counts = std::mem::take(&mut self.counts);
        let ts = std::mem::take(&mut self.ts);
        let (mut first_key, mut last_key) = (Vec::new(), Vec::new());
        write_key(names.get_bytes(0), first_ts, &mut first_key);
        write_key(names.get_bytes(names.len() - 1), last_ts, &mut last_key);
        let range = ts
            .iter()
            .fold((first_ts, first_ts), |(a, b), &t| (a.min(t), b.max(t)));
        let fresh: Vec<ColumnRows> = self
            .channels
            .iter()
            .map(|c| ColumnRows::new(c.0, c.1))
            .collect();
        let mut columns = Vec::with_capacity(self.columns.len() + 2);
        for c in std::mem::replace(&mut self.columns, fresh) {
            let (Some(&first), Some(&last)) = (c.rows.first(), c.rows.last()) else {
                continue;
            };
            let presence = if c.rows.len() == rows {
                Presence::All
            } else {
                let mut bits = Bitmap::new(rows);
                c.rows.iter().for_each(|&r| bits.set(r as usize));
                Presence::Some(bits)
            };
            columns.push(BlockColumn {
                id: c.id,
                presence,
                data: c.data,
                edges_ts: Some((ts[first as usize], ts[last as usize])),
            });
        }
        let full = |id, data| BlockColumn {
            id,
            presence: Presence::All,
            data,
            edges_ts: None,
        };
        columns.push(full(ColumnId::ENTITY, BlockData::StrRuns { names, counts }));
        columns.push(full(ColumnId::TS, BlockData::I64(ts)));
        self.rows += rows as u64;
        self.range = (self.range.0.min(range.0), self.range.1.max(range.1));
        self.done.push_back(Block {
            section: 0,
            rows: rows as u32,
            first_key,
            last_key,
            range,
            columns,
        });
    }
}
