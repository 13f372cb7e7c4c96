//! Rows that are durable in the log and not yet in a segment. Writes are appended by column to a small
//! active part; every [`RUN_ROWS`] rows, or [`RUN_TEXT_BYTES`] of text, it is sealed into a [`Run`]: sorted,
//! coalesced, never changed again, so that readers share it while writes go on.

use super::arrange::{ColumnIndex, Layout, Order, Placed, gather};
use super::batch::{BatchCells, BatchColumn, StreamBatch};
use super::states::reduce;
use crate::format::block::{BlockData, ChunkStats, Presence};
use crate::format::decoded::DecodedColumn;
use crate::ids::{ColumnId, Lsn};
use crate::scan::TsRange;
use crate::value::StrVec;
use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

/// Rows of the active part. Sealing sorts this many at a time, about a millisecond: longer would hold up
/// the acknowledgements behind it.
pub const RUN_ROWS: usize = 16 * 1024;

/// Text of the active part, but for its last row. Sealing copies it, and so does every reader that wants all
/// of it; and the text of a column stays far below the 4 GiB that one buffer of strings can hold.
pub const RUN_TEXT_BYTES: usize = 4 << 20;

/// Rows sorted by (entity number, ts, arrival), fragments coalesced.
#[derive(Debug)]
pub struct Run {
    entities: Vec<u32>,
    /// First row of each entity, and the number of rows at the end.
    starts: Vec<u32>,
    /// Shaped as a block's ts column, so that readers need not tell runs from blocks.
    ts: Rc<DecodedColumn>,
    rows: usize,
    columns: Vec<(ColumnId, Rc<DecodedColumn>)>,
    /// Of each column, once somebody has asked.
    stats: Vec<OnceCell<Option<ChunkStats>>>,
    range: TsRange,
}

impl Run {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// ts of every row, a full column of i64.
    pub fn ts(&self) -> &Rc<DecodedColumn> {
        &self.ts
    }
    /// Smallest and largest ts.
    pub fn range(&self) -> TsRange {
        self.range
    }
    /// The rows of an entity, by ts; empty when there are none.
    pub fn rows_of(&self, entity: u32) -> Range<usize> {
        match self.entities.binary_search(&entity) {
            Ok(i) => self.starts[i] as usize..self.starts[i + 1] as usize,
            Err(_) => 0..0,
        }
    }
    /// Entities in order of number, each with its rows.
    pub fn entities(&self) -> impl Iterator<Item = (u32, Range<usize>)> + '_ {
        self.entities
            .iter()
            .zip(self.starts.windows(2))
            .map(|(&e, w)| (e, w[0] as usize..w[1] as usize))
    }
    /// How many entities.
    pub fn entity_count(&self) -> usize {
        self.entities.len()
    }
    /// A channel, if any row has a cell of it.
    pub fn column(&self, id: ColumnId) -> Option<&Rc<DecodedColumn>> {
        self.columns
            .binary_search_by_key(&id, |c| c.0)
            .ok()
            .map(|i| &self.columns[i].1)
    }
    /// How many numbers a channel has here, and what a block says of them; worked out at the first question,
    /// for a run does not change. `None`: no numbers.
    pub fn stats(&self, id: ColumnId) -> Option<(u64, ChunkStats)> {
        let at = self.columns.binary_search_by_key(&id, |c| c.0).ok()?;
        let BlockData::F64(numbers) = &self.columns[at].1.data else {
            return None;
        };
        let stats = self.stats[at].get_or_init(|| {
            let (&first, &last) = (numbers.first()?, numbers.last()?);
            let all = reduce(numbers);
            Some(ChunkStats {
                min: all.min,
                max: all.max,
                sum: all.sum,
                first,
                last,
            })
        });
        Some((numbers.len() as u64, (*stats)?))
    }
    /// The channels it has cells of.
    pub fn channels(&self) -> impl Iterator<Item = ColumnId> + '_ {
        self.columns.iter().map(|c| c.0)
    }
    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        (self.entities.capacity() + self.starts.capacity()) * 4
            + self.ts.memory_bytes()
            + size_of_val(&self.stats[..])
            + self
                .columns
                .iter()
                .map(|c| c.1.memory_bytes())
                .sum::<usize>()
    }
}

/// Which of the active rows a reader wants.
#[derive(Clone, Copy, Debug)]
pub struct Pick<'a> {
    /// Entity numbers, ascending; `None`: all.
    pub entities: Option<&'a [u32]>,
    /// By time.
    pub range: TsRange,
    /// Channels; `None`: all.
    pub channels: Option<&'a [ColumnId]>,
}

/// The part that takes writes.
#[derive(Debug, Default)]
struct Active {
    /// Of samples of a channel at one (entity, ts), runs keep the last to arrive alone.
    dedup: bool,
    entity: Vec<u32>,
    ts: Vec<i64>,
    /// `rows: None` means rows `0..cells.len()` here.
    columns: Vec<BatchColumn>,
    index: ColumnIndex,
    bytes: usize,
    text_bytes: usize,
}

impl Active {
    fn append(&mut self, batch: &StreamBatch, ids: &[u32], rows: Range<usize>) {
        let start = self.ts.len();
        self.entity.extend(
            batch.entity_of_row[rows.clone()]
                .iter()
                .map(|&e| ids[e as usize]),
        );
        self.ts.extend_from_slice(&batch.ts[rows.clone()]);
        self.bytes += rows.len() * 12;
        for source in &batch.columns {
            let (cells, list) = match &source.rows {
                None => (rows.clone(), None),
                Some(list) => {
                    let from = list.partition_point(|&r| (r as usize) < rows.start);
                    let to = list.partition_point(|&r| (r as usize) < rows.end);
                    (from..to, Some(&list[from..to]))
                }
            };
            if cells.is_empty() {
                continue;
            }
            let new = || BatchColumn {
                id: source.id,
                rows: None,
                cells: match &source.cells {
                    BatchCells::F64(_) => BatchCells::F64(Vec::new()),
                    BatchCells::Str(_) => BatchCells::Str(StrVec::new()),
                },
            };
            let at = self.index.place(&mut self.columns, source.id, new);
            let target = &mut self.columns[at];
            let goes_on = target.rows.is_none() && target.cells.len() == start;
            if !(goes_on && list.is_none()) {
                let known = target.cells.len() as u32;
                let target_rows = target.rows.get_or_insert_with(|| (0..known).collect());
                match list {
                    None => target_rows.extend((start..start + rows.len()).map(|r| r as u32)),
                    Some(list) => target_rows
                        .extend(list.iter().map(|&r| r - rows.start as u32 + start as u32)),
                }
                self.bytes += cells.len() * 4;
            }
            match (&mut target.cells, &source.cells) {
                (BatchCells::F64(to), BatchCells::F64(from)) => {
                    to.extend_from_slice(&from[cells.clone()]);
                    self.bytes += cells.len() * 8;
                }
                (BatchCells::Str(to), BatchCells::Str(from)) => {
                    for i in cells {
                        let text = from.get_bytes(i);
                        to.push_bytes(text);
                        self.bytes += text.len() + 4;
                        self.text_bytes += text.len();
                    }
                }
                // A column's kind never changes, and its number is never used again.
                _ => unreachable!("a batch has another kind for channel {}", source.id),
            }
        }
    }

    fn clear(&mut self) {
        self.entity.clear();
        self.ts.clear();
        self.columns.clear();
        self.index.clear();
        (self.bytes, self.text_bytes) = (0, 0);
    }

    /// Numbers of the wanted rows in order of (entity, ts, arrival).
    fn order(&self, pick: &Pick<'_>) -> Vec<u32> {
        let n = self.ts.len();
        let all_time = pick.range == TsRange::ALL;
        let mut order: Vec<u32> = match pick.entities {
            None if all_time => (0..n as u32).collect(),
            None => (0..n as u32)
                .filter(|&r| pick.range.contains(self.ts[r as usize]))
                .collect(),
            Some([one]) => (0..n as u32)
                .filter(|&r| {
                    self.entity[r as usize] == *one && pick.range.contains(self.ts[r as usize])
                })
                .collect(),
            Some(list) => (0..n as u32)
                .filter(|&r| {
                    pick.range.contains(self.ts[r as usize])
                        && list.binary_search(&self.entity[r as usize]).is_ok()
                })
                .collect(),
        };
        let key = |r: u32| (self.entity[r as usize], self.ts[r as usize]);
        if order.windows(2).all(|w| key(w[0]) <= key(w[1])) {
            return order;
        }
        // By entity first, on whole words; within an entity rows mostly came by ts already.
        let mut words: Vec<u64> = order
            .iter()
            .map(|&r| u64::from(self.entity[r as usize]) << 32 | u64::from(r))
            .collect();
        words.sort_unstable();
        for (slot, w) in order.iter_mut().zip(&words) {
            *slot = *w as u32;
        }
        let mut start = 0;
        while start < order.len() {
            let entity = self.entity[order[start] as usize];
            let len = order[start..]
                .iter()
                .take_while(|&&r| self.entity[r as usize] == entity)
                .count();
            let group = &mut order[start..start + len];
            if !group.is_sorted_by_key(|&r| self.ts[r as usize]) {
                group.sort_by_key(|&r| self.ts[r as usize]);
            }
            start += len;
        }
        order
    }

    fn run(&self, pick: &Pick<'_>) -> Option<Run> {
        let order = Order::new(self.order(pick), self.ts.len());
        let (&first, _) = order.rows.split_first()?;
        let key = |r: u32| (self.entity[r as usize], self.ts[r as usize]);
        let mut wanted = pick.channels.map(<[_]>::to_vec);
        wanted.iter_mut().for_each(|ids| ids.sort_unstable());
        let is_wanted = |id: &ColumnId| {
            let ids = wanted.as_ref();
            ids.is_none_or(|ids| ids.binary_search(id).is_ok())
        };
        let columns: Vec<(&BatchColumn, Placed)> = self
            .columns
            .iter()
            .filter(|c| is_wanted(&c.id))
            .map(|c| (c, Placed::new(c, &order)))
            .collect();
        // The group of each position, where positions of equal (entity, ts) share one; `None` when no two do.
        let repeats = order.rows.windows(2).any(|w| key(w[0]) == key(w[1]));
        let layout = repeats.then(|| Layout::new(&order, key, &columns, self.dedup));
        let rows = layout.as_ref().map_or(order.rows.len(), |l| l.rows);
        if rows == 0 {
            return None;
        }
        let (mut entities, mut starts) = (Vec::new(), Vec::new());
        let mut out_ts: Vec<i64> = Vec::with_capacity(rows);
        let mut range = TsRange {
            from: self.ts[first as usize],
            to: self.ts[first as usize],
        };
        let mut add = |entity: u32, ts: i64, times: usize| {
            if times == 0 {
                return;
            }
            if entities.last() != Some(&entity) {
                entities.push(entity);
                starts.push(out_ts.len() as u32);
            }
            out_ts.extend(std::iter::repeat_n(ts, times));
            range.from = range.from.min(ts);
            range.to = range.to.max(ts);
        };
        match &layout {
            None => order.rows.iter().for_each(|&r| add(key(r).0, key(r).1, 1)),
            Some(l) => {
                for (g, &at) in l.first.iter().enumerate() {
                    let (entity, ts) = key(order.rows[at as usize]);
                    add(entity, ts, (l.base[g + 1] - l.base[g]) as usize);
                }
            }
        }
        starts.push(rows as u32);
        let mut out_columns = Vec::with_capacity(columns.len());
        for (column, placed) in columns {
            if let Some(cells) = gather(column, &placed, &order, layout.as_ref(), rows) {
                out_columns.push((column.id, Rc::new(cells)));
            }
        }
        out_columns.sort_by_key(|c| c.0);
        let ts = DecodedColumn::new(Presence::All, BlockData::I64(out_ts));
        Some(Run {
            entities,
            starts,
            ts: Rc::new(ts),
            rows,
            stats: vec![OnceCell::new(); out_columns.len()],
            columns: out_columns,
            range,
        })
    }
}

/// Text of a batch.
fn text_bytes(batch: &StreamBatch) -> usize {
    let of = |c: &BatchColumn| match &c.cells {
        BatchCells::Str(v) => v.bytes().len(),
        BatchCells::F64(_) => 0,
    };
    batch.columns.iter().map(of).sum()
}

/// Text of each row of a batch.
fn text_by_row(batch: &StreamBatch) -> Vec<usize> {
    let mut sums = vec![0; batch.rows()];
    for column in &batch.columns {
        if let BatchCells::Str(v) = &column.cells {
            for cell in 0..v.len() {
                let row = (column.rows.as_ref()).map_or(cell, |rows| rows[cell] as usize);
                sums[row] += v.get_bytes(cell).len();
            }
        }
    }
    sums
}

/// The memtable of one table on one shard.
#[derive(Debug, Default)]
pub struct MemTable {
    runs: Vec<Rc<Run>>,
    active: Active,
    run_bytes: usize,
    rows: u64,
    lsns: Option<(Lsn, Lsn)>,
}

impl MemTable {
    /// An empty one. With `dedup`, of samples of a channel at one (entity, ts) the last to arrive counts.
    pub fn new(dedup: bool) -> Self {
        MemTable {
            active: Active {
                dedup,
                ..Active::default()
            },
            ..MemTable::default()
        }
    }

    /// Adds a batch; `ids` are the numbers of its entities.
    pub fn apply(&mut self, batch: &StreamBatch, ids: &[u32], lsn: Lsn) {
        let rows = batch.rows();
        let fits = self.active.text_bytes + text_bytes(batch) <= RUN_TEXT_BYTES;
        let text_of_row = if fits { Vec::new() } else { text_by_row(batch) };
        let mut start = 0;
        while start < rows {
            let room = RUN_ROWS - self.active.ts.len();
            let mut end = rows.min(start + room);
            if !fits {
                let mut text = self.active.text_bytes;
                let last = (start..end).find(|&row| {
                    text += text_of_row[row];
                    text >= RUN_TEXT_BYTES
                });
                end = last.map_or(end, |row| row + 1);
            }
            self.active.append(batch, ids, start..end);
            if self.active.ts.len() >= RUN_ROWS || self.active.text_bytes >= RUN_TEXT_BYTES {
                self.seal();
            }
            start = end;
        }
        self.rows += rows as u64;
        let first = self.lsns.map_or(lsn, |l| l.0);
        self.lsns = Some((first, lsn));
    }

    fn seal(&mut self) {
        let everything = Pick {
            entities: None,
            range: TsRange::ALL,
            channels: None,
        };
        if let Some(run) = self.active.run(&everything) {
            self.run_bytes += run.memory_bytes();
            self.runs.push(Rc::new(run));
        }
        self.active.clear();
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.lsns.is_none()
    }
    /// Rows that came in.
    pub fn rows(&self) -> u64 {
        self.rows
    }
    /// Log records it holds: first and last.
    pub fn lsns(&self) -> Option<(Lsn, Lsn)> {
        self.lsns
    }
    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.run_bytes + self.active.bytes
    }
    /// The largest ts of its rows.
    pub fn newest_ts(&self) -> Option<i64> {
        let runs = self.runs.iter().map(|r| r.range().to);
        runs.chain(self.active.ts.iter().copied()).max()
    }

    /// What a reader sees from now on, in order of arrival: all sealed runs, and of the active part a copy
    /// of the rows it wants.
    pub fn snapshot(&self, pick: &Pick<'_>) -> Vec<Rc<Run>> {
        let mut runs = self.runs.clone();
        if !pick.range.is_empty() {
            runs.extend(self.active.run(pick).map(Rc::new));
        }
        runs
    }

    /// All of it as runs; it is empty then.
    pub fn take(&mut self) -> Vec<Rc<Run>> {
        self.seal();
        let empty = MemTable::new(self.active.dedup);
        std::mem::replace(self, empty).runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::hash64;
    use crate::stream::batch::StreamBatchBuilder;
    use crate::value::Kind;

    fn batch(texts: &[(i64, String)]) -> StreamBatch {
        let mut b = StreamBatchBuilder::default();
        for (ts, text) in texts {
            b.begin_row("a", hash64(b"a"), *ts);
            let slot = b.slot(ColumnId(64), Kind::F64);
            b.push_f64(slot, *ts as f64);
            if !text.is_empty() {
                let slot = b.slot(ColumnId(65), Kind::Str);
                b.push_str(slot, text);
            }
        }
        b.finish()
    }

    #[test]
    fn statistics_of_a_run_are_those_of_its_cells() {
        let mut b = StreamBatchBuilder::default();
        for i in 0..500i64 {
            b.begin_row("e", hash64(b"e"), i * 7 % 500);
            if i % 3 != 0 {
                let slot = b.slot(ColumnId(64), Kind::F64);
                b.push_f64(slot, (i * 37 % 101) as f64 - 50.0);
            }
            let slot = b.slot(ColumnId(65), Kind::Str);
            b.push_str(slot, "x");
        }
        let mut table = MemTable::default();
        table.apply(&b.finish(), &[0], Lsn(1));
        let runs = table.take();
        let run = &runs[0];
        let cells: Vec<f64> = (0..run.rows())
            .filter_map(|r| run.column(ColumnId(64))?.f64_at(r))
            .collect();
        for _ in 0..2 {
            let (count, stats) = run.stats(ColumnId(64)).unwrap();
            assert_eq!(count, cells.len() as u64);
            assert_eq!(stats.sum, cells.iter().sum::<f64>());
            assert_eq!(stats.min, cells.iter().copied().fold(f64::MAX, f64::min));
            assert_eq!(stats.max, cells.iter().copied().fold(f64::MIN, f64::max));
            assert_eq!(
                (stats.first, stats.last),
                (cells[0], cells[cells.len() - 1])
            );
        }
        assert_eq!(run.stats(ColumnId(65)), None, "texts");
        assert_eq!(run.stats(ColumnId(66)), None, "not there");
    }

    #[test]
    fn runs_are_cut_by_text() {
        const LONG: usize = RUN_TEXT_BYTES / 8;
        let lengths = [0, LONG, 3, 5 * LONG, 12 * LONG, 0, LONG, LONG, 7 * LONG, 1];
        let texts: Vec<(i64, String)> = (0..40)
            .map(|i| (i, "x".repeat(lengths[i as usize % lengths.len()])))
            .collect();
        for size in [1, 7, 40] {
            let mut table = MemTable::default();
            for (n, rows) in texts.chunks(size).enumerate() {
                table.apply(&batch(rows), &[0], Lsn(n as u64 + 1));
                assert!(table.active.text_bytes < RUN_TEXT_BYTES);
            }
            let runs = table.take();
            assert!(runs.len() >= 8, "{} runs", runs.len());
            let mut got = Vec::new();
            for run in &runs {
                let texts = run.column(ColumnId(65));
                let cells = |row| texts.and_then(|t| t.str_at(row)).unwrap_or_default();
                for row in 0..run.rows() {
                    let ts = run.ts().i64_at(row).unwrap();
                    let number = run.column(ColumnId(64)).unwrap().f64_at(row);
                    assert_eq!(number, Some(ts as f64));
                    got.push((ts, cells(row).to_owned()));
                }
                // Everything but the row that made it full is below the bound.
                let all: usize = (0..run.rows()).map(|row| cells(row).len()).sum();
                let last = cells(run.rows() - 1).len();
                assert!(all - last < RUN_TEXT_BYTES, "{all} bytes");
            }
            assert!(got == texts, "batches of {size}");
        }
    }

    /// Columns of all rows, of most, of few and of one, with repeats and without, against the cells themselves.
    #[test]
    fn sparse_columns_are_placed_as_full_ones_are() {
        use std::collections::BTreeMap;
        let mut random = 0x5EEDu64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for (times, dedup) in [(40, false), (40, true), (1 << 40, false), (1 << 40, true)] {
            let mut table = MemTable::new(dedup);
            // By (entity, ts) and column, in order of arrival.
            let mut cells: BTreeMap<(u32, i64), BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
            let names = ["a", "b", "c"];
            for n in 0..60 {
                let mut b = StreamBatchBuilder::default();
                for _ in 0..12 {
                    let (e, ts) = (next(3) as usize, next(times) as i64);
                    b.begin_row(names[e], hash64(names[e].as_bytes()), ts);
                    let row = cells.entry((e as u32, ts)).or_default();
                    for (column, one_in) in [(64, 1), (65, 2), (66, 30), (67, 300), (68, 3_000)] {
                        if next(one_in) == 0 {
                            let slot = b.slot(ColumnId(column), Kind::F64);
                            let x = next(1 << 30) as f64;
                            b.push_f64(slot, x);
                            row.entry(column).or_default().push(x);
                        }
                    }
                }
                let batch = b.finish();
                let id = |i: usize| batch.entities.get_bytes(i)[0] - b'a';
                let ids: Vec<u32> = (0..batch.entities.len()).map(|i| id(i).into()).collect();
                table.apply(&batch, &ids, Lsn(n + 1));
            }
            let pick = Pick {
                entities: None,
                range: TsRange::ALL,
                channels: None,
            };
            let runs = table.snapshot(&pick);
            assert_eq!(runs.len(), 1);
            let run = &runs[0];
            let mut row = 0;
            for ((entity, ts), columns) in &cells {
                let all = columns.values().map(Vec::len).max().unwrap_or(0);
                for k in 0..if dedup { 1 } else { all } {
                    assert!(run.rows_of(*entity).contains(&row));
                    assert_eq!(run.ts().i64_at(row), Some(*ts));
                    for column in 64..=68 {
                        let list = columns.get(&column).map_or(&[][..], Vec::as_slice);
                        let cell = if dedup { list.last() } else { list.get(k) };
                        let found = run.column(ColumnId(column)).and_then(|c| c.f64_at(row));
                        assert_eq!(found, cell.copied(), "{column} of row {row}");
                    }
                    row += 1;
                }
            }
            assert_eq!(run.rows(), row);
        }
    }
}
