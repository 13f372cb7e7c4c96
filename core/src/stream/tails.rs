//! The newest sample of each (entity, channel), by entity number: the device shadow is read from here and
//! never from history, but for long texts: of those only the ts is kept. Of samples with the same ts the one
//! that arrived last counts.

use crate::ids::ColumnId;
use crate::value::{Cell, Kind};

const CHUNK: usize = 1024;

/// Longest text that is kept. Tails stay in memory for good, however many entities there are.
pub const TAIL_TEXT_BYTES: usize = 4096;

#[derive(Debug)]
struct Chunk {
    present: [u64; CHUNK / 64],
    ts: [i64; CHUNK],
    cells: ChunkCells,
}

#[derive(Debug)]
enum ChunkCells {
    F64(Box<[f64]>),
    /// `None`: longer than [`TAIL_TEXT_BYTES`].
    Str(Box<[Option<Box<str>>]>),
}

impl Chunk {
    fn new(kind: Kind) -> Box<Chunk> {
        Box::new(Chunk {
            present: [0; CHUNK / 64],
            ts: [0; CHUNK],
            cells: match kind {
                Kind::F64 => ChunkCells::F64(vec![0.0; CHUNK].into()),
                Kind::Str => ChunkCells::Str(vec![None; CHUNK].into()),
            },
        })
    }
    fn has(&self, slot: usize) -> bool {
        self.present[slot / 64] >> (slot % 64) & 1 == 1
    }
}

/// Tails of one channel. Chunks of 1,024 entities are made when the first of them has a sample.
#[derive(Debug)]
pub struct TailColumn {
    id: ColumnId,
    kind: Kind,
    chunks: Vec<Option<Box<Chunk>>>,
    bytes: usize,
}

impl TailColumn {
    fn chunk(&mut self, entity: u32) -> &mut Chunk {
        let at = entity as usize / CHUNK;
        if at >= self.chunks.len() {
            self.chunks.resize_with(at + 1, || None);
        }
        let (kind, bytes) = (self.kind, &mut self.bytes);
        self.chunks[at].get_or_insert_with(|| {
            *bytes += CHUNK * 16 + CHUNK / 8;
            Chunk::new(kind)
        })
    }

    /// Notes a sample that arrived after all before it.
    #[inline]
    pub fn note_f64(&mut self, entity: u32, ts: i64, value: f64) {
        let chunk = self.chunk(entity);
        let slot = entity as usize % CHUNK;
        if !chunk.has(slot) || ts >= chunk.ts[slot] {
            chunk.present[slot / 64] |= 1 << (slot % 64);
            chunk.ts[slot] = ts;
            if let ChunkCells::F64(cells) = &mut chunk.cells {
                cells[slot] = value;
            }
        }
    }

    /// As [`TailColumn::note_f64`].
    pub fn note_str(&mut self, entity: u32, ts: i64, value: &str) {
        let chunk = self.chunk(entity);
        let slot = entity as usize % CHUNK;
        if !chunk.has(slot) || ts >= chunk.ts[slot] {
            chunk.present[slot / 64] |= 1 << (slot % 64);
            chunk.ts[slot] = ts;
            let mut change = (0, 0);
            if let ChunkCells::Str(cells) = &mut chunk.cells {
                let kept = (value.len() <= TAIL_TEXT_BYTES).then(|| Box::from(value));
                let len = |text: &Option<Box<str>>| text.as_ref().map_or(0, |t| t.len());
                change = (len(&cells[slot]), len(&kept));
                cells[slot] = kept;
            }
            self.bytes = self.bytes + change.1 - change.0;
        }
    }

    /// The newest sample of an entity: its ts, and its cell if that is not too long to be kept here.
    #[inline]
    pub fn get(&self, entity: u32) -> Option<(i64, Option<Cell<'_>>)> {
        let chunk = self.chunks.get(entity as usize / CHUNK)?.as_ref()?;
        let slot = entity as usize % CHUNK;
        chunk.has(slot).then(|| {
            let cell = match &chunk.cells {
                ChunkCells::F64(v) => Some(Cell::F64(v[slot])),
                ChunkCells::Str(v) => v[slot].as_deref().map(Cell::Str),
            };
            (chunk.ts[slot], cell)
        })
    }
}

/// Tails of one table on one shard.
#[derive(Debug, Default)]
pub struct Tails {
    columns: Vec<TailColumn>,
}

impl Tails {
    /// The tails of a channel, made when they are not there.
    pub fn column_mut(&mut self, id: ColumnId, kind: Kind) -> &mut TailColumn {
        let at = match self.columns.binary_search_by_key(&id, |c| c.id) {
            Ok(at) => at,
            Err(at) => {
                let column = TailColumn {
                    id,
                    kind,
                    chunks: Vec::new(),
                    bytes: 0,
                };
                self.columns.insert(at, column);
                at
            }
        };
        &mut self.columns[at]
    }

    /// The tails of a channel.
    pub fn column(&self, id: ColumnId) -> Option<&TailColumn> {
        self.columns
            .binary_search_by_key(&id, |c| c.id)
            .ok()
            .map(|i| &self.columns[i])
    }

    /// Forgets the channels that `keep` says no to (they were dropped).
    pub fn retain(&mut self, mut keep: impl FnMut(ColumnId) -> bool) {
        self.columns.retain(|c| keep(c.id));
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.columns
            .iter()
            .map(|c| c.bytes + c.chunks.capacity() * 8)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_wins_and_of_equals_the_last_to_arrive() {
        let mut t = Tails::default();
        let c = t.column_mut(ColumnId(70), Kind::F64);
        c.note_f64(5000, 10, 1.0);
        c.note_f64(5000, 10, 2.0);
        c.note_f64(5000, 9, 3.0);
        c.note_f64(1, i64::MIN, 4.0);
        let c = t.column(ColumnId(70)).unwrap();
        assert_eq!(c.get(5000), Some((10, Some(Cell::F64(2.0)))));
        assert_eq!(c.get(1), Some((i64::MIN, Some(Cell::F64(4.0)))));
        assert_eq!(c.get(0), None);
        assert_eq!(c.get(1 << 31), None);
        let s = t.column_mut(ColumnId(65), Kind::Str);
        s.note_str(0, 1, "long text");
        s.note_str(0, 2, "x");
        let get = |t: &Tails| {
            let (ts, cell) = t.column(ColumnId(65)).unwrap().get(0).unwrap();
            (ts, cell.map(|c| matches!(c, Cell::Str("x"))))
        };
        assert_eq!(get(&t), (2, Some(true)));
        let bytes = t.memory_bytes();
        let s = t.column_mut(ColumnId(65), Kind::Str);
        s.note_str(0, 3, &"y".repeat(TAIL_TEXT_BYTES + 1));
        assert_eq!((get(&t), t.memory_bytes()), ((3, None), bytes - 1));
        let s = t.column_mut(ColumnId(65), Kind::Str);
        s.note_str(0, 3, "x");
        assert_eq!((get(&t), t.memory_bytes()), ((3, Some(true)), bytes));
        t.retain(|id| id != ColumnId(65));
        assert!(t.column(ColumnId(65)).is_none());
    }
}
