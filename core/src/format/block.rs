//! Blocks of a segment as they are handed to the writer and as they come back from the reader. The
//! container knows columns, keys as bytes, and a range; what they mean is the store's business.

use crate::ids::{ColumnId, TableId};
use crate::value::StrVec;

/// One bit per row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    len: usize,
}

impl Bitmap {
    /// All false.
    pub fn new(len: usize) -> Self {
        Bitmap {
            words: vec![0; len.div_ceil(64)],
            len,
        }
    }
    /// From words; bits past `len` must be zero.
    pub fn from_words(words: Vec<u64>, len: usize) -> Option<Self> {
        let fits = words.len() == len.div_ceil(64)
            && (len.is_multiple_of(64) || words.last().is_none_or(|w| w >> (len % 64) == 0));
        fits.then_some(Bitmap { words, len })
    }
    /// Rows.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The bit of a row.
    pub fn get(&self, row: usize) -> bool {
        self.words[row / 64] >> (row % 64) & 1 == 1
    }
    /// Sets the bit of a row.
    pub fn set(&mut self, row: usize) {
        self.words[row / 64] |= 1 << (row % 64);
    }
    /// True bits.
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }
    /// The words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
    /// Rows whose bit is true, ascending.
    pub fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &w)| {
            std::iter::successors((w != 0).then_some(w), |w| {
                let w = w & (w - 1);
                (w != 0).then_some(w)
            })
            .map(move |w| i * 64 + w.trailing_zeros() as usize)
        })
    }
}

/// Which rows of a block have a cell of a column. A column without any is left out of the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Every row.
    All,
    /// Those whose bit is set.
    Some(Bitmap),
}

/// Packed cells of one column of a block: only rows that have one.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockData {
    /// Channels and columns of numbers.
    F64(Vec<f64>),
    /// ts, x_rev, flags, places.
    I64(Vec<i64>),
    /// Text or key bytes, one per present row.
    Str(StrVec),
    /// Sorted repeats (the entities of a block): the names in order, and for each how many rows it has.
    StrRuns {
        /// Names in row order; neighbours differ.
        names: StrVec,
        /// Rows of each, ≥ 1.
        counts: Vec<u32>,
    },
}

impl BlockData {
    /// Cells (for runs: the rows they stand for).
    pub fn len(&self) -> usize {
        match self {
            BlockData::F64(v) => v.len(),
            BlockData::I64(v) => v.len(),
            BlockData::Str(v) => v.len(),
            BlockData::StrRuns { counts, .. } => counts.iter().map(|&c| c as usize).sum(),
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes held, for the cache budget.
    pub fn memory_bytes(&self) -> usize {
        match self {
            BlockData::F64(v) => v.capacity() * 8,
            BlockData::I64(v) => v.capacity() * 8,
            BlockData::Str(v) => v.memory_bytes(),
            BlockData::StrRuns { names, counts } => names.memory_bytes() + counts.capacity() * 4,
        }
    }
}

/// One column of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockColumn {
    /// Which.
    pub id: ColumnId,
    /// Which rows.
    pub presence: Presence,
    /// Their cells.
    pub data: BlockData,
    /// Timeseries channels: ts of the first and of the last present cell, stored beside the statistics.
    pub edges_ts: Option<(i64, i64)>,
}

/// A block to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Which part of the segment; blocks of one section are in key order. 0 is the data.
    pub section: u8,
    /// Rows, 1 to `limits.block_rows`.
    pub rows: u32,
    /// Key of the first row.
    pub first_key: Vec<u8>,
    /// Key of the last row.
    pub last_key: Vec<u8>,
    /// Smallest and largest ts (stream store) or x_rev (keyed store).
    pub range: (i64, i64),
    /// Its columns.
    pub columns: Vec<BlockColumn>,
}

/// Statistics of the numbers of one chunk. Exact, except that `sum` is a float sum in row order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChunkStats {
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Sum in row order.
    pub sum: f64,
    /// In row order.
    pub first: f64,
    /// In row order.
    pub last: f64,
}

/// One stored column of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkMeta {
    /// Which column.
    pub id: ColumnId,
    /// Byte offset in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// CRC-32C of those bytes.
    pub crc: u32,
    /// Present cells.
    pub count: u32,
    /// F64 and I64 columns.
    pub stats: Option<ChunkStats>,
    /// See [`BlockColumn::edges_ts`].
    pub edges_ts: Option<(i64, i64)>,
}

/// A stored block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockMeta {
    /// See [`Block::section`].
    pub section: u8,
    /// Rows.
    pub rows: u32,
    /// Key of the first row.
    pub first_key: Vec<u8>,
    /// Key of the last row.
    pub last_key: Vec<u8>,
    /// See [`Block::range`].
    pub range: (i64, i64),
    /// In order of column number.
    pub chunks: Vec<ChunkMeta>,
}

impl BlockMeta {
    /// The chunk of a column, if any row of the block has a cell of it.
    pub fn chunk(&self, id: ColumnId) -> Option<&ChunkMeta> {
        self.chunks
            .binary_search_by_key(&id, |c| c.id)
            .ok()
            .map(|i| &self.chunks[i])
    }
}

/// Which store wrote a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Timeseries.
    Stream,
    /// Rows.
    Keyed,
}

/// What a segment says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Which store.
    pub kind: SegmentKind,
    /// Which table.
    pub table: TableId,
    /// Flushes it holds, first and last (a merge joins neighbours): later flushes hold later arrivals.
    pub flushes: (u64, u64),
    /// Rows of section 0.
    pub rows: u64,
    /// Smallest and largest ts or x_rev.
    pub range: (i64, i64),
    /// Highest x_rev (keyed store), else 0.
    pub max_rev: u64,
    /// Tombstones (keyed store), else 0.
    pub tombstones: u64,
}
