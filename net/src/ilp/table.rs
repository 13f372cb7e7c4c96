//! What a connection remembers about the tables it writes: the channels by the bytes they come as, in the
//! order in which they come, and the batches that are being filled.
//!
//! A client sends the same channels in the same order, and the same entities in turn. So each field keeps
//! which field followed it last time, each series which series; the next one is then found by one
//! comparison of bytes instead of being parsed.

use hashbrown::HashTable;
use std::sync::Arc;
use strandline_core::ids::{ShardId, TableId};
use strandline_core::routing::hash64;
use strandline_core::schema::{Label, TableDef};
use strandline_core::stream::batch::{StreamBatch, StreamBatchBuilder};

/// Bytes of a name that are compared as one word.
const HEAD_BYTES: usize = size_of::<u128>();

/// Stands for "no field" and "no series".
pub(crate) const NONE: u32 = u32::MAX;

/// A channel, under the bytes it comes as.
#[derive(Debug)]
pub(crate) struct Field {
    /// Escaped name and `=`.
    pub raw: Box<[u8]>,
    /// The first bytes of `raw`, and ones where they are: most names are compared by one word.
    head: u128,
    mask: u128,
    /// Its place in the table's columns.
    pub column: usize,
    /// Takes every finite number as it is.
    pub is_double: bool,
    /// The field that followed it last time.
    pub next: u32,
}

impl Field {
    /// Whether `text` begins with it.
    #[inline]
    pub fn begins(&self, text: &[u8]) -> bool {
        match text.first_chunk() {
            Some(first) => {
                (u128::from_le_bytes(*first) ^ self.head) & self.mask == 0
                    && (self.raw.len() <= HEAD_BYTES || text.starts_with(&self.raw))
            }
            None => text.starts_with(&self.raw),
        }
    }
}

/// One shard's batch of one table.
#[derive(Debug, Default)]
struct ShardRows {
    builder: StreamBatchBuilder,
    /// Counts batches, so that a series knows whether its number is of this one.
    generation: u64,
    /// Per field its slot + 1; 0: none yet.
    slots: Vec<u32>,
}

/// A table that a connection writes.
#[derive(Debug)]
pub(crate) struct Table {
    pub def: Arc<TableDef>,
    pub fields: Vec<Field>,
    by_raw: HashTable<u32>,
    /// The field that began the line before.
    pub first: u32,
    shards: Vec<ShardRows>,
}

/// An entity's number in a batch, as a series keeps it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeptNumber {
    generation: u64,
    number: u32,
}

impl Table {
    pub fn new(def: Arc<TableDef>, shards: u16) -> Self {
        Table {
            def,
            fields: Vec::new(),
            by_raw: HashTable::new(),
            first: NONE,
            shards: (0..shards.max(1))
                // From 1: a kept number of generation 0 is of no batch.
                .map(|_| ShardRows {
                    generation: 1,
                    ..ShardRows::default()
                })
                .collect(),
        }
    }

    /// The field whose bytes, `=` included, are these.
    pub fn find(&self, raw: &[u8]) -> Option<u32> {
        let found = self
            .by_raw
            .find(hash64(raw), |&f| *self.fields[f as usize].raw == *raw);
        found.copied()
    }

    /// Makes the field of a column that the table has.
    pub fn add(&mut self, raw: &[u8], column: usize) -> u32 {
        let number = self.fields.len() as u32;
        let mut head = [0; HEAD_BYTES];
        let mut mask = [0; HEAD_BYTES];
        for (i, &b) in raw.iter().take(HEAD_BYTES).enumerate() {
            (head[i], mask[i]) = (b, u8::MAX);
        }
        self.fields.push(Field {
            raw: raw.into(),
            head: u128::from_le_bytes(head),
            mask: u128::from_le_bytes(mask),
            column,
            is_double: self.def.columns[column].label == Label::Double,
            next: NONE,
        });
        let fields = &self.fields;
        self.by_raw
            .insert_unique(hash64(raw), number, |&f| hash64(&fields[f as usize].raw));
        number
    }

    /// Starts a row, and takes its cells.
    #[inline]
    pub fn begin_row(
        &mut self,
        shard: ShardId,
        kept: &mut KeptNumber,
        entity: &str,
        hash: u64,
        ts: i64,
    ) -> Row<'_> {
        let rows = &mut self.shards[usize::from(shard.0)];
        if kept.generation != rows.generation {
            *kept = KeptNumber {
                generation: rows.generation,
                number: rows.builder.entity(entity, hash),
            };
        }
        rows.builder.begin_row_of(kept.number, ts);
        Row {
            rows,
            fields: &self.fields,
            def: &self.def,
        }
    }

    /// Gives memory back that only a large batch needs.
    pub fn rest(&mut self) {
        for rows in &mut self.shards {
            if rows.builder.is_empty() {
                rows.builder = StreamBatchBuilder::default();
            }
        }
    }

    /// Takes the rows gathered so far.
    pub fn take(&mut self, out: &mut Vec<ShardWrite>) {
        for (shard, rows) in self.shards.iter_mut().enumerate() {
            if rows.builder.is_empty() {
                continue;
            }
            rows.generation += 1;
            rows.slots.clear();
            out.push(ShardWrite {
                table: self.def.id,
                shard: ShardId(shard as u16),
                batch: Arc::new(rows.builder.finish()),
            });
        }
    }
}

/// A row that has begun.
pub(crate) struct Row<'a> {
    rows: &'a mut ShardRows,
    fields: &'a [Field],
    def: &'a TableDef,
}

impl Row<'_> {
    #[inline]
    fn slot(&mut self, field: u32) -> usize {
        match self.rows.slots.get(field as usize) {
            Some(&slot) if slot > 0 => slot as usize - 1,
            _ => self.new_slot(field),
        }
    }

    #[cold]
    fn new_slot(&mut self, field: u32) -> usize {
        let column = &self.def.columns[self.fields[field as usize].column];
        let slot = self.rows.builder.slot(column.id, column.label.kind());
        let slots = &mut self.rows.slots;
        if slots.len() <= field as usize {
            slots.resize(field as usize + 1, 0);
        }
        slots[field as usize] = slot as u32 + 1;
        slot
    }

    /// A number of a field; of two the later counts.
    #[inline]
    pub fn number(&mut self, field: u32, value: f64) {
        let slot = self.slot(field);
        self.rows.builder.push_f64(slot, value);
    }

    /// Text of a field; of two the later counts.
    pub fn text(&mut self, field: u32, value: &str) {
        let slot = self.slot(field);
        self.rows.builder.push_str(slot, value);
    }
}

/// Rows for one shard: what is written, and repeated, as one.
#[derive(Clone, Debug)]
pub struct ShardWrite {
    /// Of which table.
    pub table: TableId,
    /// Where the entities of the batch live.
    pub shard: ShardId,
    /// The rows. Shared with the engine, so that a write can be repeated without a copy.
    pub batch: Arc<StreamBatch>,
}

/// Table and tags of lines that came: what they mean, under the bytes they come as.
#[derive(Debug)]
pub(crate) struct Series {
    /// Escaped table and tags and the space behind them, as a range of the arena.
    raw: (u32, u32),
    pub table: u32,
    pub entity: Box<str>,
    pub hash: u64,
    pub shard: ShardId,
    pub number: KeptNumber,
    /// Tags that the table stores, by field.
    pub tags: Box<[(u32, Box<str>)]>,
    /// The series of the line that followed last time.
    pub next: u32,
}

/// The series of a connection, within a bound: past it, all are forgotten.
#[derive(Debug)]
pub(crate) struct SeriesCache {
    arena: Vec<u8>,
    pub list: Vec<Series>,
    by_raw: HashTable<u32>,
    max_series: usize,
    max_arena_bytes: usize,
}

/// A connection remembers this many series and this many bytes of them…
const MAX_SERIES: usize = 65_536;
const MAX_ARENA_BYTES: usize = 16 << 20;
/// …and thousands of them share this (at about 150 bytes a series, 80 MiB and 64 MiB)…
const ALL_SERIES: u64 = 512 << 10;
const ALL_ARENA_BYTES: u64 = 64 << 20;
/// …down to this each.
const MIN_SERIES: usize = 64;
const MIN_ARENA_BYTES: usize = 8 << 10;

impl Default for SeriesCache {
    fn default() -> Self {
        SeriesCache {
            arena: Vec::new(),
            list: Vec::new(),
            by_raw: HashTable::new(),
            max_series: MAX_SERIES,
            max_arena_bytes: MAX_ARENA_BYTES,
        }
    }
}

impl SeriesCache {
    pub fn clear(&mut self) {
        self.arena.clear();
        self.list.clear();
        self.by_raw.clear();
    }

    /// Takes its share among so many streams, and gives back what is over it.
    pub fn bound(&mut self, streams: u64) {
        let share = |all: u64| usize::try_from(all / streams.max(1)).unwrap_or(usize::MAX);
        self.max_series = share(ALL_SERIES).clamp(MIN_SERIES, MAX_SERIES);
        self.max_arena_bytes = share(ALL_ARENA_BYTES).clamp(MIN_ARENA_BYTES, MAX_ARENA_BYTES);
        // Room counts too: a vector grows to twice what it holds.
        if self.list.capacity() > self.max_series * 2
            || self.arena.capacity() > self.max_arena_bytes * 2
        {
            self.arena = Vec::new();
            self.list = Vec::new();
            self.by_raw = HashTable::new();
        }
    }

    fn raw(&self, series: &Series) -> &[u8] {
        &self.arena[series.raw.0 as usize..series.raw.1 as usize]
    }

    /// Length of the bytes of a series, if `line` begins with them.
    #[inline]
    pub fn prefix_of(&self, series: u32, line: &[u8]) -> Option<usize> {
        let raw = self.raw(self.list.get(series as usize)?);
        line.starts_with(raw).then_some(raw.len())
    }

    pub fn find(&self, raw: &[u8]) -> Option<u32> {
        let found = self
            .by_raw
            .find(hash64(raw), |&s| self.raw(&self.list[s as usize]) == raw);
        found.copied()
    }

    /// Remembers a series. `series.raw` is set here.
    pub fn add(&mut self, raw: &[u8], mut series: Series) -> u32 {
        if self.list.len() >= self.max_series || self.arena.len() + raw.len() > self.max_arena_bytes
        {
            self.clear();
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(raw);
        series.raw = (start as u32, self.arena.len() as u32);
        let number = self.list.len() as u32;
        self.list.push(series);
        let (list, arena) = (&self.list, &self.arena);
        self.by_raw.insert_unique(hash64(raw), number, |&s| {
            let (from, to) = list[s as usize].raw;
            hash64(&arena[from as usize..to as usize])
        });
        number
    }
}

impl Series {
    pub fn new(table: u32, entity: Box<str>, shards: u16) -> Self {
        let hash = hash64(entity.as_bytes());
        Series {
            raw: (0, 0),
            table,
            entity,
            hash,
            shard: strandline_core::routing::shard_of_hash(hash, shards.max(1)),
            number: KeptNumber::default(),
            tags: Box::default(),
            next: NONE,
        }
    }
}
