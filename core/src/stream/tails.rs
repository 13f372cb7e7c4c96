//! The newest sample of each (entity, channel), by entity number: the device shadow is read from here and
//! never from history, but for long texts: of those only the ts is kept. Of samples with the same ts the one
//! that arrived last counts.
//!
//! A channel that few entities have costs by its samples, one that most have 16 bytes for each entity. When
//! the tails of a shard outgrow their share of memory, some channels' are given up: those answer nothing, and
//! their newest samples are looked up in memtables and segments.

use crate::ids::ColumnId;
use crate::value::{Cell, Kind};
use std::cell::Cell as StdCell;
use std::rc::Rc;

const CHUNK: usize = 1024;

/// Entities of a chunk that are listed one by one; a chunk with more has a place for each of its entities.
const FEW: usize = 128;

/// Longest text that is kept. Tails stay in memory for good, however many entities there are.
pub const TAIL_TEXT_BYTES: usize = 4096;

#[derive(Debug)]
struct Chunk {
    places: Places,
    ts: Vec<i64>,
    cells: ChunkCells,
}

/// Which entities of a chunk have a sample, and where it stands.
#[derive(Debug)]
enum Places {
    /// The i-th of these, ascending, has place i.
    Few(Vec<u16>),
    /// Each has its own place; those whose bit is set have a sample.
    All(Box<[u64; CHUNK / 64]>),
}

#[derive(Debug)]
enum ChunkCells {
    F64(Vec<f64>),
    /// `None`: longer than [`TAIL_TEXT_BYTES`].
    Str(Vec<Option<Box<str>>>),
}

impl ChunkCells {
    fn insert_empty(&mut self, place: usize) {
        match self {
            ChunkCells::F64(cells) => cells.insert(place, 0.0),
            ChunkCells::Str(cells) => cells.insert(place, None),
        }
    }
    fn remove(&mut self, place: usize) {
        match self {
            ChunkCells::F64(cells) => {
                cells.remove(place);
            }
            ChunkCells::Str(cells) => {
                cells.remove(place);
            }
        }
    }
}

/// `list[i]` goes to place `slots[i]` of [`CHUNK`] places.
fn spread<T: Default + Clone>(list: Vec<T>, slots: &[u16]) -> Vec<T> {
    let mut all = vec![T::default(); CHUNK];
    for (item, &slot) in list.into_iter().zip(slots) {
        all[usize::from(slot)] = item;
    }
    all
}

impl Chunk {
    fn new(kind: Kind) -> Box<Chunk> {
        Box::new(Chunk {
            places: Places::Few(Vec::new()),
            ts: Vec::new(),
            cells: match kind {
                Kind::F64 => ChunkCells::F64(Vec::new()),
                Kind::Str => ChunkCells::Str(Vec::new()),
            },
        })
    }

    /// Bytes held, without texts.
    fn bytes(&self) -> usize {
        let places = match &self.places {
            Places::Few(slots) => slots.capacity() * 2,
            Places::All(_) => CHUNK / 8,
        };
        let cells = match &self.cells {
            ChunkCells::F64(cells) => cells.capacity() * 8,
            ChunkCells::Str(cells) => cells.capacity() * size_of::<Option<Box<str>>>(),
        };
        size_of::<Chunk>() + places + self.ts.capacity() * 8 + cells
    }

    #[inline]
    fn place(&self, slot: usize) -> Option<usize> {
        match &self.places {
            Places::All(bits) => (bits[slot / 64] >> (slot % 64) & 1 == 1).then_some(slot),
            Places::Few(slots) => slots.binary_search(&(slot as u16)).ok(),
        }
    }

    /// A place for an entity that has none.
    fn make_place(&mut self, slot: usize) -> usize {
        if let Places::Few(slots) = &mut self.places {
            if slots.len() < FEW {
                let place = slots.partition_point(|&s| usize::from(s) < slot);
                slots.insert(place, slot as u16);
                self.ts.insert(place, 0);
                self.cells.insert_empty(place);
                return place;
            }
            let mut bits = Box::new([0; CHUNK / 64]);
            for &slot in slots.iter() {
                bits[usize::from(slot) / 64] |= 1 << (slot % 64);
            }
            self.ts = spread(std::mem::take(&mut self.ts), slots);
            self.cells = match &mut self.cells {
                ChunkCells::F64(cells) => ChunkCells::F64(spread(std::mem::take(cells), slots)),
                ChunkCells::Str(cells) => ChunkCells::Str(spread(std::mem::take(cells), slots)),
            };
            self.places = Places::All(bits);
        }
        if let Places::All(bits) = &mut self.places {
            bits[slot / 64] |= 1 << (slot % 64);
        }
        slot
    }
}

/// Tails of one channel. Chunks of 1,024 entities are made when the first of them has a sample.
#[derive(Debug)]
pub struct TailColumn {
    id: ColumnId,
    kind: Kind,
    chunks: Vec<Option<Box<Chunk>>>,
    bytes: usize,
    /// Of all columns.
    total: Rc<StdCell<usize>>,
    given_up: bool,
    asked_ms: StdCell<i64>,
}

impl TailColumn {
    fn add_bytes(&mut self, more: usize, less: usize) {
        self.bytes = self.bytes + more - less;
        self.total.set(self.total.get() + more - less);
    }

    /// The place of an entity's sample, made when it has none or an older one than `ts`. `None`: a newer one
    /// is known.
    #[inline]
    fn place_for(&mut self, entity: u32, ts: i64) -> Option<(&mut ChunkCells, usize)> {
        if self.given_up {
            return None;
        }
        let (at, slot) = (entity as usize / CHUNK, entity as usize % CHUNK);
        let place = match self.chunks.get(at) {
            Some(Some(chunk)) => chunk.place(slot),
            _ => None,
        };
        let place = match place {
            Some(place) => place,
            None => self.make_place(at, slot),
        };
        let chunk = self.chunks[at].as_mut()?;
        // A place that was just made holds the first ts there is.
        if ts < chunk.ts[place] {
            return None;
        }
        chunk.ts[place] = ts;
        Some((&mut chunk.cells, place))
    }

    #[cold]
    fn make_place(&mut self, at: usize, slot: usize) -> usize {
        let before = self.chunks.capacity() * size_of::<Option<Box<Chunk>>>();
        if at >= self.chunks.len() {
            self.chunks.resize_with(at + 1, || None);
        }
        let after = self.chunks.capacity() * size_of::<Option<Box<Chunk>>>();
        let kind = self.kind;
        let known = self.chunks[at].as_ref().map_or(0, |c| c.bytes());
        let chunk = self.chunks[at].get_or_insert_with(|| Chunk::new(kind));
        let place = chunk.make_place(slot);
        chunk.ts[place] = i64::MIN;
        let now = chunk.bytes();
        self.add_bytes(after + now, before + known);
        place
    }

    /// Notes a sample that arrived after all before it.
    #[inline]
    pub fn note_f64(&mut self, entity: u32, ts: i64, value: f64) {
        if let Some((ChunkCells::F64(cells), place)) = self.place_for(entity, ts) {
            cells[place] = value;
        }
    }

    /// As [`TailColumn::note_f64`].
    pub fn note_str(&mut self, entity: u32, ts: i64, value: &str) {
        if let Some((ChunkCells::Str(cells), place)) = self.place_for(entity, ts) {
            let kept = (value.len() <= TAIL_TEXT_BYTES).then(|| Box::from(value));
            let len = |text: &Option<Box<str>>| text.as_ref().map_or(0, |t| t.len());
            let (before, after) = (len(&cells[place]), len(&kept));
            cells[place] = kept;
            self.add_bytes(after, before);
        }
    }

    /// Forgets an entity's sample if it is not newer than `ts`.
    pub fn forget(&mut self, entity: u32, ts: i64) {
        let Some(Some(chunk)) = self.chunks.get_mut(entity as usize / CHUNK) else {
            return;
        };
        let slot = entity as usize % CHUNK;
        let Some(place) = chunk.place(slot).filter(|&p| chunk.ts[p] <= ts) else {
            return;
        };
        let mut text = 0;
        if let ChunkCells::Str(cells) = &mut chunk.cells {
            text = cells[place].take().map_or(0, |t| t.len());
        }
        match &mut chunk.places {
            Places::All(bits) => bits[slot / 64] &= !(1 << (slot % 64)),
            Places::Few(slots) => {
                slots.remove(place);
                chunk.ts.remove(place);
                chunk.cells.remove(place);
            }
        }
        self.add_bytes(0, text);
    }

    /// The newest sample of an entity: its ts, and its cell if that is not too long to be kept here. `None`
    /// says nothing when the column [was given up](TailColumn::is_given_up).
    #[inline]
    pub fn get(&self, entity: u32) -> Option<(i64, Option<Cell<'_>>)> {
        let chunk = self.chunks.get(entity as usize / CHUNK)?.as_ref()?;
        let place = chunk.place(entity as usize % CHUNK)?;
        let cell = match &chunk.cells {
            ChunkCells::F64(v) => Some(Cell::F64(v[place])),
            ChunkCells::Str(v) => v[place].as_deref().map(Cell::Str),
        };
        Some((chunk.ts[place], cell))
    }

    /// Whether its memory was wanted elsewhere: it notes and answers nothing, history knows.
    pub fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Notes that a read wanted it.
    pub fn note_asked(&self, now_ms: i64) {
        self.asked_ms.set(now_ms);
    }
}

/// What tails of a channel cost, and who wants them: to choose which to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailCost {
    /// Which channel.
    pub column: ColumnId,
    /// Bytes held.
    pub bytes: usize,
    /// When a read wanted it last, Unix ms; `i64::MIN` for never.
    pub asked_ms: i64,
}

/// Tails of one table on one shard.
#[derive(Debug, Default)]
pub struct Tails {
    columns: Vec<TailColumn>,
    total: Rc<StdCell<usize>>,
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
                    bytes: size_of::<TailColumn>(),
                    total: self.total.clone(),
                    given_up: false,
                    asked_ms: StdCell::new(i64::MIN),
                };
                self.total.set(self.total.get() + column.bytes);
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

    /// A tombstone: forgets what the channels have of an entity up to `ts`.
    pub fn forget(&mut self, entity: u32, ts: i64) {
        for column in &mut self.columns {
            if column.id != ColumnId::DELETED {
                column.forget(entity, ts);
            }
        }
    }

    /// Forgets the channels that `keep` says no to (they were dropped).
    pub fn retain(&mut self, mut keep: impl FnMut(ColumnId) -> bool) {
        let total = &self.total;
        self.columns.retain(|c| {
            let stays = keep(c.id);
            if !stays {
                total.set(total.get() - c.bytes);
            }
            stays
        });
    }

    /// Gives a channel's memory back. From here on only history knows its newest samples.
    pub fn give_up(&mut self, id: ColumnId) {
        if let Ok(at) = self.columns.binary_search_by_key(&id, |c| c.id) {
            let column = &mut self.columns[at];
            column.chunks = Vec::new();
            column.given_up = true;
            column.add_bytes(size_of::<TailColumn>(), column.bytes);
        }
    }

    /// Whether a channel's tails were given up.
    pub fn is_given_up(&self, id: ColumnId) -> bool {
        self.column(id).is_some_and(TailColumn::is_given_up)
    }

    /// How many channels' tails were given up.
    pub fn given_up(&self) -> usize {
        self.columns.iter().filter(|c| c.given_up).count()
    }

    /// What each channel's tails cost that are there.
    pub fn costs(&self) -> impl Iterator<Item = TailCost> + '_ {
        let there = self.columns.iter().filter(|c| !c.given_up);
        there.map(|c| TailCost {
            column: c.id,
            bytes: c.bytes,
            asked_ms: c.asked_ms.get(),
        })
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.total.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

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
        // A tombstone forgets what is not above it, and the memory of its text.
        let s = t.column_mut(ColumnId::DELETED, Kind::F64);
        s.note_f64(0, 3, 1.0);
        t.column_mut(ColumnId(70), Kind::F64).note_f64(0, 4, 7.0);
        let bytes = t.memory_bytes();
        t.forget(0, 3);
        assert!(t.column(ColumnId(65)).unwrap().get(0).is_none());
        assert_eq!(t.memory_bytes(), bytes - 1);
        let c = t.column(ColumnId(70)).unwrap();
        assert_eq!(c.get(0), Some((4, Some(Cell::F64(7.0)))));
        assert!(c.get(5000).is_some());
        assert!(t.column(ColumnId::DELETED).unwrap().get(0).is_some());
        t.retain(|id| id != ColumnId(65));
        assert!(t.column(ColumnId(65)).is_none());
    }

    /// Few and many entities of a chunk, listed and in places of their own, against a map.
    #[test]
    fn sparse_and_dense_chunks_hold_the_same() {
        let mut random = 0x5EEDu64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for entities in [3u64, 200, 5_000] {
            let mut t = Tails::default();
            let mut numbers: BTreeMap<u32, (i64, f64)> = BTreeMap::new();
            let mut texts: BTreeMap<u32, (i64, String)> = BTreeMap::new();
            for n in 0..4_000 {
                let (e, ts) = (next(entities) as u32, next(50) as i64);
                match next(10) {
                    0 => {
                        t.forget(e, ts);
                        if numbers.get(&e).is_some_and(|k| k.0 <= ts) {
                            numbers.remove(&e);
                        }
                        if texts.get(&e).is_some_and(|k| k.0 <= ts) {
                            texts.remove(&e);
                        }
                    }
                    1..=5 => {
                        t.column_mut(ColumnId(70), Kind::F64)
                            .note_f64(e, ts, f64::from(n));
                        if numbers.get(&e).is_none_or(|k| k.0 <= ts) {
                            numbers.insert(e, (ts, f64::from(n)));
                        }
                    }
                    _ => {
                        let text = "x".repeat(next(9) as usize);
                        t.column_mut(ColumnId(66), Kind::Str).note_str(e, ts, &text);
                        if texts.get(&e).is_none_or(|k| k.0 <= ts) {
                            texts.insert(e, (ts, text));
                        }
                    }
                }
            }
            for e in 0..entities as u32 {
                let get = |id| t.column(id).and_then(|c| c.get(e));
                let number = numbers.get(&e).map(|&(ts, x)| (ts, Some(Cell::F64(x))));
                assert_eq!(get(ColumnId(70)), number);
                let text = texts.get(&e).map(|(ts, x)| (*ts, Some(Cell::Str(x))));
                assert_eq!(get(ColumnId(66)), text);
            }
            let costs: Vec<TailCost> = t.costs().collect();
            let sum: usize = costs.iter().map(|c| c.bytes).sum();
            assert_eq!(t.memory_bytes(), sum);
            if entities == 3 {
                assert!(sum < 2_000, "six samples cost {sum} bytes");
            }
            t.give_up(ColumnId(70));
            assert!(t.is_given_up(ColumnId(70)) && !t.is_given_up(ColumnId(66)));
            assert!(t.memory_bytes() < sum && t.costs().count() == 1);
            t.column_mut(ColumnId(70), Kind::F64)
                .note_f64(0, 1_000, 1.0);
            assert_eq!(t.column(ColumnId(70)).unwrap().get(0), None);
            t.retain(|_| false);
            assert_eq!(t.memory_bytes(), 0);
        }
    }
}
