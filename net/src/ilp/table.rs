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

/// Stands for "no field" and "no series".
pub(crate) const NONE: u32 = u32::MAX;

/// A channel, under the bytes it comes as.
#[derive(Debug)]
pub(crate) struct Field {
    /// Escaped name and `=`.
    pub raw: Box<[u8]>,
    /// Its place in the table's columns.
    pub column: usize,
    /// Takes every finite number as it is.
    pub is_double: bool,
    /// The field that followed it last time.
    pub next: u32,
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

/// A value of a line that is good.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    Number(f64),
    Text(&'a str),
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
        self.fields.push(Field {
            raw: raw.into(),
            column,
            is_double: self.def.columns[column].label == Label::Double,
            next: NONE,
        });
        let fields = &self.fields;
        self.by_raw
            .insert_unique(hash64(raw), number, |&f| hash64(&fields[f as usize].raw));
        number
    }

    /// Starts a row.
    #[inline]
    pub fn begin_row(
        &mut self,
        shard: ShardId,
        kept: &mut KeptNumber,
        entity: &str,
        hash: u64,
        ts: i64,
    ) {
        let rows = &mut self.shards[usize::from(shard.0)];
        if kept.generation != rows.generation {
            *kept = KeptNumber {
                generation: rows.generation,
                number: rows.builder.entity(entity, hash),
            };
        }
        rows.builder.begin_row_of(kept.number, ts);
    }

    /// Puts a cell into the row begun last on this shard.
    #[inline]
    pub fn push(&mut self, shard: ShardId, field: u32, cell: Cell<'_>) {
        let rows = &mut self.shards[usize::from(shard.0)];
        let slot = match rows.slots.get(field as usize) {
            Some(&slot) if slot > 0 => slot as usize - 1,
            _ => {
                let column = &self.def.columns[self.fields[field as usize].column];
                let slot = rows.builder.slot(column.id, column.label.kind());
                if rows.slots.len() <= field as usize {
                    rows.slots.resize(field as usize + 1, 0);
                }
                rows.slots[field as usize] = slot as u32 + 1;
                slot
            }
        };
        match cell {
            Cell::Number(value) => rows.builder.push_f64(slot, value),
            Cell::Text(value) => rows.builder.push_str(slot, value),
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
                batch: rows.builder.finish(),
            });
        }
    }
}

/// Rows for one shard: what is written, and repeated, as one.
#[derive(Clone, Debug)]
pub struct ShardWrite {
    /// Of which table.
    pub table: TableId,
    /// Where the entities of the batch live.
    pub shard: ShardId,
    /// The rows.
    pub batch: StreamBatch,
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
#[derive(Debug, Default)]
pub(crate) struct SeriesCache {
    arena: Vec<u8>,
    pub list: Vec<Series>,
    by_raw: HashTable<u32>,
}

/// A connection remembers this many series and this many bytes of them.
const MAX_SERIES: usize = 65_536;
const MAX_ARENA_BYTES: usize = 16 << 20;

impl SeriesCache {
    pub fn clear(&mut self) {
        self.arena.clear();
        self.list.clear();
        self.by_raw.clear();
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
        if self.list.len() >= MAX_SERIES || self.arena.len() + raw.len() > MAX_ARENA_BYTES {
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
