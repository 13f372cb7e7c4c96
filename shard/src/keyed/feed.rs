//! Reads in the order of x_rev. A page starts where the last one ended, by the x_rev index of each segment
//! and memtable: it costs the same at the end of a table as at its beginning.
//!
//! A version found at x_rev r counts when no newer version of its key at or below the watermark exists. In its
//! own segment the index says so; elsewhere the key is looked up, in segments behind their bloom filters.

use super::cursor::{RowRef, block_i64, block_key};
use super::snapshot::{Answer, KeyedSnapshot, find};
use super::write::place_of;
use super::{BY_KEY, BY_REV, SharedMem};
use crate::segment::Segment;
use crate::store::BatchSink;
use std::collections::VecDeque;
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::format::decoded::DecodedBlock;
use strandline_core::ids::{ColumnId, Rev};
use strandline_core::keyed::Version;
use strandline_core::routing::hash64;
use strandline_core::scan::{FeedRange, KeyedScan};

/// Versions taken from a memtable at once.
const MEM_REVS: usize = 256;

enum Lane {
    Mem {
        mem: SharedMem,
        seen: u64,
        rows: VecDeque<Rc<Version>>,
        after: Rev,
        done: bool,
    },
    Segment(SegmentLane),
}

struct SegmentLane {
    segment: Rc<Segment>,
    index: Option<DecodedBlock>,
    row: usize,
    next_block: usize,
    /// The block of section 0 that was needed last: neighbours in x_rev are mostly neighbours there.
    data: Option<(usize, DecodedBlock)>,
}

impl SegmentLane {
    fn new(segment: Rc<Segment>, after: Rev) -> Self {
        let next_block = segment
            .blocks(BY_REV)
            .partition_point(|b| b.range.1 <= after.0 as i64);
        SegmentLane {
            segment,
            index: None,
            row: 0,
            next_block,
            data: None,
        }
    }

    async fn fill(&mut self, after: Rev) -> Result<()> {
        while self.index.as_ref().is_none_or(|b| self.row >= b.rows) {
            if self.next_block >= self.segment.blocks(BY_REV).len() {
                self.index = None;
                return Ok(());
            }
            let columns = [
                ColumnId::REV,
                ColumnId::DELETED,
                ColumnId::PLACE,
                ColumnId::NEXT,
            ];
            let block = self.segment.read(BY_REV, self.next_block, &columns).await?;
            self.next_block += 1;
            let (mut low, mut high) = (0, block.rows);
            while low < high {
                let mid = (low + high) / 2;
                if block_i64(&block, ColumnId::REV, mid)? as u64 <= after.0 {
                    low = mid + 1
                } else {
                    high = mid
                }
            }
            self.row = low;
            self.index = Some(block);
        }
        Ok(())
    }

    fn number(&self, id: ColumnId) -> Result<Option<i64>> {
        self.index
            .as_ref()
            .filter(|b| self.row < b.rows)
            .map(|b| block_i64(b, id, self.row))
            .transpose()
    }

    async fn load(&mut self, block: usize, columns: &[ColumnId]) -> Result<()> {
        if self.data.as_ref().is_none_or(|(at, _)| *at != block) {
            self.data = Some((block, self.segment.read(BY_KEY, block, columns).await?));
        }
        Ok(())
    }
}

impl Lane {
    async fn fill(&mut self, start: Rev) -> Result<()> {
        match self {
            Lane::Mem {
                mem,
                seen,
                rows,
                after,
                done,
            } => {
                while rows.is_empty() && !*done {
                    let (more, last) = mem.borrow().revs_after(*after, MEM_REVS, *seen);
                    rows.extend(more);
                    match last {
                        Some(last) => *after = last,
                        None => *done = true,
                    }
                }
                Ok(())
            }
            Lane::Segment(lane) => lane.fill(start).await,
        }
    }

    fn rev(&self) -> Result<Option<Rev>> {
        match self {
            Lane::Mem { rows, .. } => Ok(rows.front().map(|v| v.rev)),
            Lane::Segment(lane) => Ok(lane.number(ColumnId::REV)?.map(|r| Rev(r as u64))),
        }
    }

    fn advance(&mut self) {
        match self {
            Lane::Mem { rows, .. } => {
                rows.pop_front();
            }
            Lane::Segment(lane) => lane.row += 1,
        }
    }
}

impl KeyedSnapshot {
    pub(super) async fn feed(
        &self,
        scan: &KeyedScan,
        watermark: Rev,
        answer: &mut Answer,
        out: &mut dyn BatchSink,
    ) -> Result<()> {
        let Some(feed) = scan.feed else { return Ok(()) };
        let last = feed.until.min(watermark);
        let mut columns = vec![ColumnId::KEY, ColumnId::REV, ColumnId::DELETED];
        columns.extend(answer.layout.user_columns());
        let mut lanes: Vec<Lane> = Vec::new();
        for (mem, seen) in &self.mems {
            lanes.push(Lane::Mem {
                mem: mem.clone(),
                seen: *seen,
                rows: VecDeque::new(),
                after: feed.after,
                done: false,
            });
        }
        for segment in &self.segments {
            if segment.info().max_rev > feed.after.0 {
                lanes.push(Lane::Segment(SegmentLane::new(segment.clone(), feed.after)));
            }
        }
        let mut steps = 0u32;
        loop {
            let mut best: Option<(usize, Rev)> = None;
            for (i, lane) in lanes.iter_mut().enumerate() {
                lane.fill(feed.after).await?;
                if let Some(rev) = lane.rev()?
                    && best.is_none_or(|(_, r)| rev < r)
                {
                    best = Some((i, rev));
                }
            }
            let Some((at, rev)) = best.filter(|(_, rev)| *rev <= last) else {
                return Ok(());
            };
            self.candidate(&mut lanes[at], rev, &feed, watermark, &columns, answer)
                .await?;
            lanes[at].advance();
            if answer.full() || (answer.batch_ready() && !answer.send(out).await?) {
                return Ok(());
            }
            steps += 1;
            if steps.is_multiple_of(256) {
                self.env.breathe().await;
            }
        }
    }

    /// Takes the lane's version into the answer, if it is the newest of its key that this reader may see.
    async fn candidate(
        &self,
        lane: &mut Lane,
        rev: Rev,
        feed: &FeedRange,
        watermark: Rev,
        columns: &[ColumnId],
        answer: &mut Answer,
    ) -> Result<()> {
        match lane {
            Lane::Mem { rows, .. } => {
                let Some(version) = rows.front().cloned() else {
                    return Ok(());
                };
                if feed.deleted.is_none_or(|d| d == version.deleted)
                    && !self.superseded(&version.key, rev, watermark, None).await?
                {
                    answer.row(RowRef::Mem(&version))?;
                }
            }
            Lane::Segment(lane) => {
                let number = |id| lane.number(id).map(Option::unwrap_or_default);
                let (deleted, next) = (
                    number(ColumnId::DELETED)? != 0,
                    number(ColumnId::NEXT)? as u64,
                );
                let (block, row) = place_of(number(ColumnId::PLACE)?);
                if feed.deleted.is_some_and(|d| d != deleted) || (next != 0 && next <= watermark.0)
                {
                    return Ok(());
                }
                lane.load(block, columns).await?;
                let Some((_, data)) = &lane.data else {
                    return Ok(());
                };
                if !self
                    .superseded(block_key(data, row)?, rev, watermark, Some(&lane.segment))
                    .await?
                {
                    answer.row(RowRef::Block(data, row))?;
                }
            }
        }
        Ok(())
    }

    /// Whether a key has a version above `rev` and at or below the watermark, outside `own`.
    async fn superseded(
        &self,
        key: &[u8],
        rev: Rev,
        watermark: Rev,
        own: Option<&Rc<Segment>>,
    ) -> Result<bool> {
        for (mem, seen) in &self.mems {
            let mem = mem.borrow();
            let mut versions = mem.versions(key, *seen);
            if versions.any(|v| v.rev > rev && v.rev <= watermark) {
                return Ok(true);
            }
        }
        let hash = hash64(key);
        for segment in &self.segments {
            if own.is_some_and(|own| Rc::ptr_eq(own, segment))
                || segment.info().max_rev <= rev.0
                || !segment.may_contain(hash)
            {
                continue;
            }
            if find(segment, key, watermark)
                .await?
                .is_some_and(|(_, _, r)| r > rev)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
