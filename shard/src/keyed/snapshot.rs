//! Reads of a rows table: one picture of memtables and segments.

use super::cursor::{Merge, RowRef, all_columns, block_i64, block_key, block_version};
use super::{BY_KEY, SharedMem, segment_counts};
use crate::damage::Damaged;
use crate::segment::Segment;
use crate::store::{BATCH_BYTES, BatchSink};
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{ColumnId, Rev};
use strandline_core::io::Env;
use strandline_core::keyed::layout::{NaturalOrder, compare_cells};
use strandline_core::keyed::{ScanLayout, Version};
use strandline_core::limits::Limits;
use strandline_core::routing::hash64;
use strandline_core::scan::{KeyedColumn, KeyedFilter, KeyedScan};
use strandline_core::schema::TableDef;
use strandline_core::value::{Batch, Cell, Column, ColumnBuilder, ColumnData, Value};
use strandline_core::xid::Xid;

/// Rows of one batch of an answer, at most.
pub(crate) const BATCH_ROWS: usize = 1024;

/// See the module.
pub struct KeyedSnapshot {
    pub(crate) env: Env,
    limits: Arc<Limits>,
    /// Memtables, newest first, each with how much of it this reader sees.
    pub(crate) mems: Vec<(SharedMem, u64)>,
    pub(crate) segments: Vec<Rc<Segment>>,
    /// What cannot be read of the table.
    pub(crate) damaged: Damaged,
    /// Versions marked `first`, and tombstones.
    counts: (u64, u64),
}

impl KeyedSnapshot {
    pub(crate) fn new(
        env: Env,
        limits: Arc<Limits>,
        mems: Vec<SharedMem>,
        segments: Vec<Rc<Segment>>,
        damaged: Damaged,
    ) -> Self {
        let mut counts = (0, 0);
        let mut add =
            |(first, deleted): (u64, u64)| counts = (counts.0 + first, counts.1 + deleted);
        mems.iter().for_each(|m| add(m.borrow().counts()));
        segments.iter().for_each(|s| add(segment_counts(s)));
        let mems = mems.into_iter().map(|m| {
            let seen = m.borrow().seen();
            (m, seen)
        });
        KeyedSnapshot {
            env,
            limits,
            mems: mems.collect(),
            segments,
            damaged,
            counts,
        }
    }

    /// Live rows and tombstones.
    ///
    /// # Errors
    /// `XX001` when a segment of the table cannot be read.
    pub fn counts(&self) -> Result<(u64, u64)> {
        self.damaged.check()?;
        let (first, deleted) = self.counts;
        Ok((first.saturating_sub(deleted), deleted))
    }

    /// The newest version of a key at or below `watermark`.
    pub async fn newest(&self, key: &[u8], watermark: Rev) -> Result<Option<Version>> {
        let mut best: Option<Rc<Version>> = None;
        for (mem, seen) in &self.mems {
            let mem = mem.borrow();
            let found = mem.versions(key, *seen).find(|v| v.rev <= watermark);
            if let Some(v) = found
                && best.as_ref().is_none_or(|b| b.rev < v.rev)
            {
                best = Some(v.clone());
            }
        }
        // Segments hold nothing newer than the memtables have of a key.
        if best.is_none() || watermark < Rev::MAX {
            self.damaged.check()?;
        }
        let mut place = None;
        let mut best_rev = best.as_ref().map_or(Rev(0), |b| b.rev);
        let hash = hash64(key);
        for segment in &self.segments {
            if segment.info().max_rev <= best_rev.0 || !segment.may_contain(hash) {
                continue;
            }
            if let Some((block, row, rev)) = find(segment, key, watermark).await?
                && rev > best_rev
            {
                best_rev = rev;
                place = Some((segment, block, row));
            }
        }
        match place {
            Some((segment, block, row)) => {
                let columns = all_columns(segment, block);
                let decoded = segment.read(BY_KEY, block, &columns).await?;
                block_version(&decoded, row).map(Some)
            }
            None => Ok(best.map(|v| (*v).clone())),
        }
    }

    /// Sends this shard's rows, in the scan's order, with the hidden columns of [`ScanLayout`]; at most
    /// `offset + limit` of them. A feed answers each key at its newest version at or below `watermark`.
    ///
    /// # Errors
    /// `XX001` from damaged segments; `54000` when a sort would hold more than `result_bytes`.
    pub async fn scan(
        &self,
        scan: &KeyedScan,
        watermark: Rev,
        _def: &TableDef,
        out: &mut dyn BatchSink,
    ) -> Result<()> {
        let mut answer = Answer::new(scan, &self.limits);
        if scan.feed.is_some() {
            self.damaged.check()?;
            self.feed(scan, watermark, &mut answer, out).await?;
            return answer.finish(out).await;
        }
        match &scan.filter {
            Some(KeyedFilter::Nothing) => {}
            None if scan.count => answer.counted = self.counts()?.0,
            Some(KeyedFilter::XidEq(xid)) => {
                if let Some(v) = self.newest(&xid.to_bytes(), Rev::MAX).await?
                    && !v.deleted
                {
                    answer.row(RowRef::Mem(&Rc::new(v)))?;
                }
            }
            filter => self.merge_rows(filter.as_ref(), &mut answer, out).await?,
        }
        answer.finish(out).await
    }

    async fn merge_rows(
        &self,
        filter: Option<&KeyedFilter>,
        answer: &mut Answer,
        out: &mut dyn BatchSink,
    ) -> Result<()> {
        self.damaged.check()?;
        let mut columns = vec![ColumnId::KEY, ColumnId::REV, ColumnId::DELETED];
        columns.extend(answer.layout.user_columns());
        if let Some(KeyedFilter::Compare { column, .. } | KeyedFilter::IsNull { column, .. }) =
            filter
        {
            columns.push(*column);
        }
        columns.sort();
        columns.dedup();
        let mut merge = Merge::new(&self.mems, &self.segments, Some(columns));
        let mut last_key: Vec<u8> = Vec::new();
        let mut any = false;
        let mut steps = 0u32;
        while merge.step().await? {
            let Some(row) = merge.row() else { break };
            let key = row.key()?;
            // The newest of a key comes first; what follows it is history.
            let newest = !any || key != last_key;
            if newest {
                any = true;
                last_key.clear();
                last_key.extend_from_slice(key);
                if !row.deleted()? && filter.is_none_or(|f| matches(f, row)) {
                    answer.row(row)?;
                    if answer.full() || (answer.batch_ready() && !answer.send(out).await?) {
                        return Ok(());
                    }
                }
            }
            steps += 1;
            if steps.is_multiple_of(512) {
                self.env.breathe().await;
            }
        }
        Ok(())
    }
}

/// Whether a row satisfies a filter; NULL never does, but for IS NULL.
fn matches(filter: &KeyedFilter, row: RowRef<'_>) -> bool {
    match filter {
        KeyedFilter::Compare { column, op, value } => {
            let wanted = match value {
                Value::Null => return false,
                Value::F64(x) => Cell::F64(*x),
                Value::Str(s) => Cell::Str(s),
            };
            let cell = row.cell(*column);
            cell != Cell::Null && op.holds(compare_cells(cell, wanted, false, false))
        }
        KeyedFilter::IsNull { column, negated } => (row.cell(*column) == Cell::Null) != *negated,
        KeyedFilter::XidEq(xid) => row.key().is_ok_and(|k| k == xid.to_bytes()),
        KeyedFilter::Nothing => false,
    }
}

/// Where the newest version of a key at or below `watermark` stands in a segment: block, row, x_rev.
pub(crate) async fn find(
    segment: &Segment,
    key: &[u8],
    watermark: Rev,
) -> Result<Option<(usize, usize, Rev)>> {
    let blocks = segment.blocks(BY_KEY);
    let mut at = blocks.partition_point(|b| &*b.last_key < key);
    while let Some(meta) = blocks.get(at) {
        if &*meta.first_key > key {
            return Ok(None);
        }
        let block = segment
            .read(BY_KEY, at, &[ColumnId::KEY, ColumnId::REV])
            .await?;
        let (mut low, mut high) = (0, block.rows);
        while low < high {
            let mid = (low + high) / 2;
            if block_key(&block, mid)? < key {
                low = mid + 1
            } else {
                high = mid
            }
        }
        while low < block.rows && block_key(&block, low)? == key {
            let rev = Rev(block_i64(&block, ColumnId::REV, low)? as u64);
            if rev <= watermark {
                return Ok(Some((at, low, rev)));
            }
            low += 1;
        }
        if low < block.rows {
            return Ok(None);
        }
        // Versions of one key may go on in the next block.
        at += 1;
    }
    Ok(None)
}

/// Rows on their way out.
pub(crate) struct Answer {
    pub layout: ScanLayout,
    count_only: bool,
    pub counted: u64,
    builders: Vec<ColumnBuilder>,
    rows: usize,
    /// Bytes of the builders' cells, and of their text alone.
    bytes: usize,
    text_bytes: usize,
    sent: u64,
    /// `offset + limit`.
    most: u64,
    sorts: bool,
    held: Held,
    limits: Arc<Limits>,
    closed: bool,
}

/// Rows that wait to be sorted, in batches as large as those that go out: no buffer of text outgrows its
/// offsets, however much `result_bytes` allows.
#[derive(Default)]
struct Held {
    batches: Vec<Batch>,
    rows: usize,
    bytes: usize,
    /// Bytes that stayed when rows were last thrown away.
    kept_bytes: usize,
}

impl Answer {
    fn new(scan: &KeyedScan, limits: &Arc<Limits>) -> Self {
        let layout = ScanLayout::of(scan);
        let found_in_order = if scan.feed.is_some() {
            NaturalOrder::Rev
        } else {
            NaturalOrder::Key
        };
        Answer {
            builders: layout.builders(),
            count_only: scan.count,
            counted: 0,
            rows: 0,
            bytes: 0,
            text_bytes: 0,
            sent: 0,
            most: scan
                .limit
                .map_or(u64::MAX, |l| l.saturating_add(scan.offset)),
            sorts: layout.natural() != found_in_order,
            held: Held::default(),
            limits: limits.clone(),
            closed: false,
            layout,
        }
    }

    /// Takes a row.
    pub fn row(&mut self, row: RowRef<'_>) -> Result<()> {
        if self.count_only {
            self.counted += 1;
            return Ok(());
        }
        for (builder, column) in self.builders.iter_mut().zip(self.layout.columns()) {
            match column {
                KeyedColumn::Xid => {
                    let key = <[u8; 16]>::try_from(row.key()?).map_err(|_| {
                        Error::corrupted("a row of a rows table has a key that is no xid")
                    })?;
                    builder.push(Cell::Str(&Xid::from_bytes(key).to_string()));
                }
                KeyedColumn::Rev => builder.push(Cell::I64(row.rev()?.0 as i64)),
                KeyedColumn::Deleted => builder.push(Cell::I64(i64::from(row.deleted()?))),
                KeyedColumn::User(id, _) => {
                    let cell = row.cell(*id);
                    if let Cell::Str(s) = cell {
                        self.text_bytes += s.len();
                    }
                    builder.push(cell);
                }
            }
        }
        self.rows += 1;
        self.bytes = self.text_bytes + self.rows * self.layout.columns().len() * 16;
        if self.sorts && self.batch_full() {
            self.hold()?;
        }
        Ok(())
    }

    fn batch_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.text_bytes >= BATCH_BYTES
    }

    /// Puts the rows at hand to those that wait to be sorted.
    fn hold(&mut self) -> Result<()> {
        self.held.bytes += self.bytes;
        self.held.rows += self.rows;
        let batch = self.take();
        self.held.batches.push(batch);
        let rows_due = self.most.saturating_mul(2).max(8 * BATCH_ROWS as u64);
        let bytes_due = (2 * self.held.kept_bytes).max(32 * BATCH_BYTES) as u64;
        let due = self.held.rows as u64 >= rows_due
            || self.held.bytes as u64 >= bytes_due.min(self.limits.result_bytes);
        if due && self.most < self.held.rows as u64 {
            self.keep_best();
        }
        if self.held.bytes as u64 > self.limits.result_bytes {
            return Err(self
                .limits
                .exceeded(
                    "result_bytes",
                    SqlState::ProgramLimitExceeded,
                    "the rows to be sorted",
                )
                .hint("use LIMIT, or the order in which rows are stored"));
        }
        Ok(())
    }

    /// Of rows to be sorted, keeps those that can be among the answer.
    fn keep_best(&mut self) {
        let all = std::mem::take(&mut self.held);
        let best = self.layout.sorted(&all.batches, self.most as usize);
        let mut rows = best.into_iter().peekable();
        while let Some((batch, bytes)) = self.gather(&all.batches, &mut rows) {
            self.held.bytes += bytes;
            self.held.rows += batch.rows;
            self.held.batches.push(batch);
        }
        self.held.kept_bytes = self.held.bytes;
    }

    /// The next rows of `rows` as a batch to be sent, with its bytes; `None`: there are none.
    fn gather(
        &self,
        batches: &[Batch],
        rows: &mut std::iter::Peekable<std::vec::IntoIter<(u32, u32)>>,
    ) -> Option<(Batch, usize)> {
        rows.peek()?;
        let mut builders = self.layout.builders();
        let (mut taken, mut text) = (0, 0);
        while taken < BATCH_ROWS
            && text < BATCH_BYTES
            && let Some((batch, row)) = rows.next()
        {
            for (builder, column) in builders.iter_mut().zip(&batches[batch as usize].columns) {
                let cell = column.cell(row as usize);
                if let Cell::Str(s) = cell {
                    text += s.len();
                }
                builder.push(cell);
            }
            taken += 1;
        }
        let batch = Batch {
            rows: taken,
            columns: builders.into_iter().map(ColumnBuilder::finish).collect(),
        };
        Some((batch, text + taken * self.layout.columns().len() * 16))
    }

    fn take(&mut self) -> Batch {
        let builders = std::mem::replace(&mut self.builders, self.layout.builders());
        let rows = std::mem::take(&mut self.rows);
        (self.bytes, self.text_bytes) = (0, 0);
        Batch {
            rows,
            columns: builders.into_iter().map(ColumnBuilder::finish).collect(),
        }
    }

    /// Whether the answer needs no more rows.
    pub fn full(&self) -> bool {
        !self.count_only && !self.sorts && self.sent + self.rows as u64 >= self.most
    }

    /// Whether there is a batch to send.
    pub fn batch_ready(&self) -> bool {
        !self.sorts && self.batch_full()
    }

    /// Sends what there is; false: the reader has enough.
    pub async fn send(&mut self, out: &mut dyn BatchSink) -> Result<bool> {
        let mut batch = self.take();
        let left = self.most - self.sent;
        if batch.rows as u64 > left {
            let all = self.layout.columns().len();
            batch = self.layout.part(&batch, all, 0, left as usize);
        }
        self.sent += batch.rows as u64;
        self.closed = !out.push(batch).await?;
        Ok(!self.closed)
    }

    async fn finish(mut self, out: &mut dyn BatchSink) -> Result<()> {
        if self.count_only {
            let one = Column::full(ColumnData::I64(vec![self.counted as i64]));
            out.push(Batch::new(vec![one])).await?;
            return Ok(());
        }
        if self.closed {
            return Ok(());
        }
        if self.sorts {
            if self.rows > 0 {
                self.hold()?;
            }
            let held = std::mem::take(&mut self.held);
            let most = usize::try_from(self.most).unwrap_or(usize::MAX);
            let mut rows = self
                .layout
                .sorted(&held.batches, most)
                .into_iter()
                .peekable();
            while let Some((batch, _)) = self.gather(&held.batches, &mut rows) {
                if !out.push(batch).await? {
                    break;
                }
            }
            return Ok(());
        }
        if self.rows > 0 {
            self.send(out).await?;
        }
        Ok(())
    }
}
