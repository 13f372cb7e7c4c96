//! ORDER BY over gathered rows. Each batch is sorted as it comes, in runs short enough not to hold up the
//! core; the runs are merged as the rows go out. With a LIMIT only the rows that can still be answered are
//! kept.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Result, SqlState};
use strandline_core::io::Tasks;
use strandline_core::limits::Limits;
use strandline_core::value::{Batch, Cell, Column, ColumnBuilder, ColumnData};
use strandline_sql::plan::SortKey;

/// Rows of one run: sorting them takes about 50 µs on one key.
const RUN_ROWS: usize = 1024;
/// Rows of an outgoing batch, at most.
const OUT_ROWS: usize = 128;
/// Text of an outgoing batch, past which it ends.
const OUT_BYTES: usize = 1 << 20;
/// Rows gathered beyond twice the limit before those past it are dropped.
const SLACK_ROWS: usize = 8192;
/// As [`SLACK_ROWS`], for rows of long texts.
const SLACK_BYTES: usize = 16 << 20;

/// A sorted stretch: rows of one batch, in order.
struct Run {
    batch: usize,
    rows: Vec<u32>,
}

/// Gathers, sorts, and gives out again.
pub struct Sorter {
    order: Rc<[SortKey]>,
    keep: Option<usize>,
    limits: Arc<Limits>,
    tasks: Rc<dyn Tasks>,
    batches: Vec<Rc<Batch>>,
    runs: Vec<Run>,
    rows: usize,
    bytes: usize,
    /// Bytes that stayed when rows were last dropped.
    kept_bytes: usize,
    heap: BinaryHeap<Head>,
    given: usize,
}

/// The first row of a run that was not given out yet. The greatest in the heap is the next to go.
struct Head {
    order: Rc<[SortKey]>,
    batch: Rc<Batch>,
    run: usize,
    at: usize,
    row: u32,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        // Runs are numbered as they came: equal rows keep their order.
        compare(
            &self.order,
            (&self.batch, self.row as usize),
            (&other.batch, other.row as usize),
        )
        .then(self.run.cmp(&other.run))
        .reverse()
    }
}
impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Head {}

/// Which of two rows comes first.
fn compare(order: &[SortKey], a: (&Batch, usize), b: (&Batch, usize)) -> Ordering {
    order
        .iter()
        .map(|key| {
            let (x, y) = (cell_of(key, a.0, a.1), cell_of(key, b.0, b.1));
            match (x, y) {
                (None, None) => Ordering::Equal,
                (None, Some(_)) if key.nulls_first => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(_), None) if key.nulls_first => Ordering::Greater,
                (Some(_), None) => Ordering::Less,
                (Some(x), Some(y)) => {
                    let o = compare_cells(x, y);
                    if key.descending { o.reverse() } else { o }
                }
            }
        })
        .find(|o| o.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// A key's cell of a row; `None` for NULL.
fn cell_of<'a>(key: &SortKey, batch: &'a Batch, row: usize) -> Option<Cell<'a>> {
    match batch.columns.get(key.column)?.cell(row) {
        Cell::Null => None,
        cell => Some(cell),
    }
}

fn compare_cells(a: Cell<'_>, b: Cell<'_>) -> Ordering {
    match (a, b) {
        (Cell::F64(a), Cell::F64(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (Cell::I64(a), Cell::I64(b)) => a.cmp(&b),
        (Cell::Str(a), Cell::Str(b)) => a.as_bytes().cmp(b.as_bytes()),
        // A column has one type.
        _ => Ordering::Equal,
    }
}

impl Sorter {
    /// By `order`; `keep`: rows past so many will not be asked for.
    pub fn new(
        order: Vec<SortKey>,
        keep: Option<u64>,
        limits: &Arc<Limits>,
        tasks: &Rc<dyn Tasks>,
    ) -> Self {
        Sorter {
            order: order.into(),
            keep: keep.and_then(|k| usize::try_from(k).ok()),
            limits: limits.clone(),
            tasks: tasks.clone(),
            batches: vec![],
            runs: vec![],
            rows: 0,
            bytes: 0,
            kept_bytes: 0,
            heap: BinaryHeap::new(),
            given: 0,
        }
    }

    async fn breathe(&self) {
        if self.tasks.should_yield() {
            self.tasks.yield_if_needed().await;
        }
    }

    /// Takes a batch in; `53200` when the gathered rows exceed `limits.result_bytes`.
    pub async fn push(&mut self, batch: Batch) -> Result<()> {
        if batch.rows == 0 {
            return Ok(());
        }
        self.add(batch).await;
        if let Some(keep) = self.keep
            && self.rows > keep
            && (self.rows > keep.saturating_mul(2).saturating_add(SLACK_ROWS)
                || self.bytes > 2 * self.kept_bytes + SLACK_BYTES
                || self.bytes as u64 > self.limits.result_bytes)
        {
            self.drop_beyond(keep).await;
            self.kept_bytes = self.bytes;
        }
        if self.bytes as u64 > self.limits.result_bytes {
            return Err(self.limits.exceeded(
                "result_bytes",
                SqlState::OutOfMemory,
                "the rows to sort do not fit",
            ));
        }
        Ok(())
    }

    async fn add(&mut self, batch: Batch) {
        let rows = batch.rows;
        // 4 bytes a row for its place in a run.
        self.bytes += batch.memory_bytes() + rows * 4;
        self.rows += rows;
        let batch = Rc::new(batch);
        for start in (0..rows).step_by(RUN_ROWS) {
            let mut run: Vec<u32> = (start..rows.min(start + RUN_ROWS))
                .map(|r| r as u32)
                .collect();
            let order = &self.order;
            run.sort_by(|&a, &b| compare(order, (&batch, a as usize), (&batch, b as usize)));
            self.runs.push(Run {
                batch: self.batches.len(),
                rows: run,
            });
            self.breathe().await;
        }
        self.batches.push(batch);
    }

    /// Keeps the first `keep` rows alone. They come out before later equal rows, as they should.
    async fn drop_beyond(&mut self, keep: usize) {
        self.finish();
        let mut kept = vec![];
        let mut left = keep;
        while left > 0
            && let Some(batch) = self.take(left.min(RUN_ROWS))
        {
            left -= batch.rows;
            kept.push(batch);
            self.breathe().await;
        }
        self.heap.clear();
        self.runs.clear();
        (self.rows, self.bytes, self.given) = (0, 0, 0);
        for batch in kept {
            let rows = batch.rows;
            self.bytes += batch.memory_bytes() + rows * 4;
            self.rows += rows;
            self.runs.push(Run {
                batch: self.batches.len(),
                rows: (0..rows as u32).collect(),
            });
            self.batches.push(Rc::new(batch));
        }
    }

    /// No more rows will be pushed before [`Sorter::next`].
    pub fn finish(&mut self) {
        let mut heap = Vec::with_capacity(self.runs.len());
        for (run, r) in self.runs.iter().enumerate() {
            if let (Some(&row), Some(batch)) = (r.rows.first(), self.batches.get(r.batch)) {
                heap.push(Head {
                    order: self.order.clone(),
                    batch: batch.clone(),
                    run,
                    at: 0,
                    row,
                });
            }
        }
        self.heap = heap.into();
        // From here on the heads alone keep their batches, so that memory shrinks as rows go out.
        self.batches.clear();
    }

    /// The next rows in order.
    pub async fn next(&mut self) -> Option<Batch> {
        self.breathe().await;
        let left = self.keep.map_or(OUT_ROWS, |k| k - self.given.min(k));
        let batch = self.take(left.min(OUT_ROWS));
        if batch.is_none() {
            self.heap.clear();
            self.runs.clear();
        }
        batch
    }

    /// The next rows: `rows` of them, or fewer of long texts.
    fn take(&mut self, rows: usize) -> Option<Batch> {
        let mut builders: Option<Vec<ColumnBuilder>> = None;
        let (mut taken, mut text) = (0, 0);
        while taken < rows
            && text < OUT_BYTES
            && let Some(mut head) = self.heap.peek_mut()
        {
            let builders = builders.get_or_insert_with(|| builders_for(&head.batch));
            for (builder, column) in builders.iter_mut().zip(&head.batch.columns) {
                let cell = column.cell(head.row as usize);
                if let Cell::Str(s) = cell {
                    text += s.len();
                }
                builder.push(cell);
            }
            taken += 1;
            let run = self.runs.get(head.run).map(|r| r.rows.as_slice());
            match run.and_then(|rows| rows.get(head.at + 1)) {
                Some(&row) => {
                    head.at += 1;
                    head.row = row;
                }
                None => {
                    let run = head.run;
                    std::collections::binary_heap::PeekMut::pop(head);
                    if let Some(r) = self.runs.get_mut(run) {
                        r.rows = Vec::new();
                    }
                }
            }
        }
        self.given += taken;
        let columns: Vec<Column> = builders?.into_iter().map(ColumnBuilder::finish).collect();
        Some(Batch {
            rows: taken,
            columns,
        })
    }
}

fn builders_for(batch: &Batch) -> Vec<ColumnBuilder> {
    batch
        .columns
        .iter()
        .map(|c| match c.data {
            ColumnData::F64(_) => ColumnBuilder::f64(),
            ColumnData::I64(_) => ColumnBuilder::i64(),
            ColumnData::Str(_) => ColumnBuilder::str(),
        })
        .collect()
}

#[cfg(test)]
#[path = "sort_tests.rs"]
mod tests;
