//! Fragments on their way in: one table's rows by column, for one shard. The batch that line protocol or
//! an INSERT fills is the batch that the log stores and the memtable takes over.

use crate::ids::ColumnId;
use crate::routing::hash64;
use crate::value::{Kind, StrVec};
use hashbrown::HashTable;

/// Cells of one channel; only rows that have one.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchColumn {
    /// Which channel.
    pub id: ColumnId,
    /// `None`: row i has cell i, for every row of the batch. Else the row of each cell, strictly increasing.
    pub rows: Option<Vec<u32>>,
    /// The cells, packed.
    pub cells: BatchCells,
}

/// Packed cells.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchCells {
    /// Numbers, finite.
    F64(Vec<f64>),
    /// Text.
    Str(StrVec),
}

impl BatchCells {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            BatchCells::F64(v) => v.len(),
            BatchCells::Str(v) => v.len(),
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Their kind.
    pub fn kind(&self) -> Kind {
        match self {
            BatchCells::F64(_) => Kind::F64,
            BatchCells::Str(_) => Kind::Str,
        }
    }
}

/// Rows in order of arrival. Every row has at least one cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamBatch {
    /// Names of the entities of this batch, each once.
    pub entities: StrVec,
    /// `hash64` of each of `entities`.
    pub entity_hashes: Vec<u64>,
    /// Per row, index into `entities`.
    pub entity_of_row: Vec<u32>,
    /// Per row, Unix ms.
    pub ts: Vec<i64>,
    /// Each channel at most once.
    pub columns: Vec<BatchColumn>,
}

impl StreamBatch {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.ts.len()
    }
    /// Bytes held, for the memory budget.
    pub fn memory_bytes(&self) -> usize {
        let cells: usize = self
            .columns
            .iter()
            .map(|c| {
                c.rows.as_ref().map_or(0, |r| r.capacity() * 4)
                    + match &c.cells {
                        BatchCells::F64(v) => v.capacity() * 8,
                        BatchCells::Str(v) => v.memory_bytes(),
                    }
            })
            .sum();
        self.entities.memory_bytes()
            + self.entity_hashes.capacity() * 8
            + self.entity_of_row.capacity() * 4
            + self.ts.capacity() * 8
            + cells
    }
    /// The rows of the entities that `keep` says true of, by their number in this batch, in their order.
    #[must_use]
    pub fn of_entities(&self, keep: impl Fn(usize) -> bool) -> StreamBatch {
        let mut out = StreamBatch::default();
        let number: Vec<Option<u32>> = (0..self.entities.len())
            .map(|i| {
                keep(i).then(|| {
                    out.entities.push_bytes(self.entities.get_bytes(i));
                    out.entity_hashes.push(self.entity_hashes[i]);
                    out.entity_hashes.len() as u32 - 1
                })
            })
            .collect();
        // Per row, where it stands in `out`.
        let row: Vec<Option<u32>> = (self.entity_of_row.iter().zip(&self.ts))
            .map(|(&entity, &ts)| {
                number[entity as usize].map(|n| {
                    out.entity_of_row.push(n);
                    out.ts.push(ts);
                    out.ts.len() as u32 - 1
                })
            })
            .collect();
        for column in &self.columns {
            let mut rows = Vec::new();
            let mut kept = Vec::new();
            for cell in 0..column.cells.len() {
                let at = column.rows.as_ref().map_or(cell, |r| r[cell] as usize);
                if let Some(to) = row[at] {
                    rows.push(to);
                    kept.push(cell);
                }
            }
            let cells = match &column.cells {
                BatchCells::F64(v) => BatchCells::F64(kept.iter().map(|&c| v[c]).collect()),
                BatchCells::Str(v) => {
                    let mut texts = StrVec::with_capacity(kept.len());
                    kept.iter().for_each(|&c| texts.push_bytes(v.get_bytes(c)));
                    BatchCells::Str(texts)
                }
            };
            if !cells.is_empty() {
                let rows = (rows.len() < out.ts.len()).then_some(rows);
                let id = column.id;
                out.columns.push(BatchColumn { id, rows, cells });
            }
        }
        out
    }
}

/// Fills a [`StreamBatch`] row by row.
///
/// ```
/// use strandline_core::{ids::ColumnId, routing::hash64, stream::batch::StreamBatchBuilder, value::Kind};
/// let mut b = StreamBatchBuilder::default();
/// let speed = b.slot(ColumnId(64), Kind::F64);
/// b.begin_row("veh-1", hash64(b"veh-1"), 1_700_000_000_000);
/// b.push_f64(speed, 50.0);
/// assert_eq!(b.finish().rows(), 1);
/// ```
#[derive(Debug, Default)]
pub struct StreamBatchBuilder {
    batch: StreamBatch,
    index: HashTable<u32>,
    last_entity: Option<u32>,
    /// Rows of the batch before: the next one is likely as long, so its columns start with that room.
    rows_hint: usize,
}

impl StreamBatchBuilder {
    /// The slot of a channel, made when it is new to the batch. Slots stay valid until `finish`.
    pub fn slot(&mut self, id: ColumnId, kind: Kind) -> usize {
        if let Some(i) = self.batch.columns.iter().position(|c| c.id == id) {
            return i;
        }
        let cells = match kind {
            Kind::F64 => BatchCells::F64(Vec::with_capacity(self.rows_hint)),
            Kind::Str => BatchCells::Str(StrVec::with_capacity(self.rows_hint)),
        };
        // A channel that is new after the first rows has no cell in those: from here it lists its rows.
        let rows = (!self.batch.ts.is_empty()).then(Vec::new);
        self.batch.columns.push(BatchColumn { id, rows, cells });
        self.batch.columns.len() - 1
    }

    /// Starts a row. `hash` is [`hash64`] of the entity, which the caller has from routing.
    pub fn begin_row(&mut self, entity: &str, hash: u64, ts: i64) {
        debug_assert_eq!(hash, hash64(entity.as_bytes()));
        let id = self.entity(entity, hash);
        self.begin_row_of(id, ts);
    }

    /// Starts a row of an entity whose number in this batch the caller has kept.
    pub fn begin_row_of(&mut self, entity: u32, ts: i64) {
        debug_assert!((entity as usize) < self.batch.entities.len());
        self.batch.entity_of_row.push(entity);
        self.batch.ts.push(ts);
    }

    /// The number of an entity in this batch, given when it is new. Valid until `finish`.
    pub fn entity(&mut self, entity: &str, hash: u64) -> u32 {
        let batch = &mut self.batch;
        if let Some(last) = self.last_entity
            && batch.entity_hashes[last as usize] == hash
            && batch.entities.get_bytes(last as usize) == entity.as_bytes()
        {
            return last;
        }
        let found = self
            .index
            .find(hash, |&i| {
                batch.entities.get_bytes(i as usize) == entity.as_bytes()
            })
            .copied();
        let id = found.unwrap_or_else(|| {
            let id = batch.entities.len() as u32;
            batch.entities.push(entity);
            batch.entity_hashes.push(hash);
            let hashes = &batch.entity_hashes;
            self.index.insert_unique(hash, id, |&i| hashes[i as usize]);
            id
        });
        self.last_entity = Some(id);
        id
    }

    /// A number in the row begun last. A slot given twice in one row keeps the later value.
    #[inline]
    pub fn push_f64(&mut self, slot: usize, value: f64) {
        let row = self.batch.ts.len() - 1;
        let column = &mut self.batch.columns[slot];
        // Every row so far has had one.
        if let (BatchCells::F64(cells), None) = (&mut column.cells, &column.rows)
            && cells.len() == row
        {
            return cells.push(value);
        }
        self.push_f64_sparse(slot, value);
    }

    fn push_f64_sparse(&mut self, slot: usize, value: f64) {
        let row = self.batch.ts.len() - 1;
        let column = &mut self.batch.columns[slot];
        let BatchCells::F64(cells) = &mut column.cells else {
            unreachable!("a number for a text slot")
        };
        if place(&mut column.rows, cells.len(), row) {
            cells.push(value);
        } else if let Some(last) = cells.last_mut() {
            *last = value;
        }
    }

    /// Text in the row begun last; as [`StreamBatchBuilder::push_f64`].
    pub fn push_str(&mut self, slot: usize, value: &str) {
        let row = self.batch.ts.len() - 1;
        let column = &mut self.batch.columns[slot];
        let BatchCells::Str(cells) = &mut column.cells else {
            unreachable!("text for a number slot")
        };
        if place(&mut column.rows, cells.len(), row) {
            cells.push(value);
        } else {
            cells.replace_last(value);
        }
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.batch.ts.len()
    }

    /// Whether there is no row yet.
    pub fn is_empty(&self) -> bool {
        self.batch.ts.is_empty()
    }

    /// The batch; the builder is empty again.
    pub fn finish(&mut self) -> StreamBatch {
        self.index.clear();
        self.last_entity = None;
        let mut batch = std::mem::take(&mut self.batch);
        let rows = batch.ts.len();
        self.rows_hint = rows.min(65_536);
        batch.columns.retain(|c| !c.cells.is_empty());
        for c in &mut batch.columns {
            match &c.rows {
                // Dense as far as it went, but later rows lack it.
                None if c.cells.len() < rows => c.rows = Some((0..c.cells.len() as u32).collect()),
                Some(r) if r.len() == rows => c.rows = None,
                _ => {}
            }
        }
        batch
    }
}

/// Notes that `row` has a cell; false when it already had one. `rows` stays `None` while no row was passed over.
fn place(rows: &mut Option<Vec<u32>>, cells: usize, row: usize) -> bool {
    match rows {
        None if cells == row => true,
        None if cells == row + 1 => false,
        None => {
            let mut list: Vec<u32> = (0..cells as u32).collect();
            list.push(row as u32);
            *rows = Some(list);
            true
        }
        Some(list) if list.last() == Some(&(row as u32)) => false,
        Some(list) => {
            list.push(row as u32);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHANNELS: [(ColumnId, Kind); 3] = [
        (ColumnId(64), Kind::F64),
        (ColumnId(65), Kind::F64),
        (ColumnId(66), Kind::Str),
    ];

    fn build(rows: &[(u8, [bool; 3])]) -> StreamBatch {
        let mut b = StreamBatchBuilder::default();
        for (i, (entity, cells)) in rows.iter().enumerate() {
            let name = format!("e{entity}");
            b.begin_row(&name, hash64(name.as_bytes()), i as i64);
            for ((id, kind), here) in CHANNELS.into_iter().zip(cells) {
                if *here {
                    let slot = b.slot(id, kind);
                    match kind {
                        Kind::F64 => b.push_f64(slot, i as f64 + f64::from(id.0)),
                        Kind::Str => b.push_str(slot, &format!("{i}")),
                    }
                }
            }
        }
        b.finish()
    }

    /// (entity, ts, per channel its cell as text), row by row.
    fn rows(b: &StreamBatch) -> Vec<(String, i64, Vec<Option<String>>)> {
        let cell = |(id, _): (ColumnId, Kind), row: usize| {
            let column = b.columns.iter().find(|c| c.id == id)?;
            let at = match &column.rows {
                None => row,
                Some(rows) => rows.binary_search(&(row as u32)).ok()?,
            };
            Some(match &column.cells {
                BatchCells::F64(v) => v[at].to_string(),
                BatchCells::Str(v) => v.get(at).to_owned(),
            })
        };
        (0..b.rows())
            .map(|r| {
                let entity = b.entities.get(b.entity_of_row[r] as usize).to_owned();
                let cells = CHANNELS.into_iter().map(|c| cell(c, r)).collect();
                (entity, b.ts[r], cells)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn rows_of_some_entities(
            input in prop::collection::vec((0u8..5, any::<[bool; 3]>()), 0..30),
            keep in any::<[bool; 5]>(),
        ) {
            let input: Vec<_> = input.into_iter().filter(|r| r.1.contains(&true)).collect();
            let batch = build(&input);
            let kept = |name: &str| keep[usize::from(name.as_bytes()[1] - b'0')];
            let part = batch.of_entities(|i| kept(batch.entities.get(i)));
            let mut want = rows(&batch);
            want.retain(|r| kept(&r.0));
            prop_assert_eq!(rows(&part), want);
            prop_assert_eq!(part.entities.len(), part.entity_hashes.len());
            prop_assert!(part.entities.iter().all(kept));
            for c in &part.columns {
                // A full column lists no rows; a column without cells is not there.
                prop_assert!(!c.cells.is_empty());
                prop_assert_eq!(c.rows.is_none(), c.cells.len() == part.rows());
            }
        }
    }
}
