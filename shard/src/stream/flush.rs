//! From frozen memtables to segments.

use super::pick::{Bucket, Route, plan_flush};
use super::snapshot::Snapshot;
use super::source::{Reader, index_runs};
use super::writer::SegmentWriter;
use super::{Frozen, StreamTable};
use crate::segment::{Effort, Segment};
use std::collections::BTreeMap;
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::format::block::BlockData;
use strandline_core::ids::{ColumnId, Lsn};
use strandline_core::scan::TsRange;
use strandline_core::stream::memtable::Run;
use strandline_core::value::Kind;

/// A flush that is on disk and not yet part of the table. The directory of its segments must be synced before
/// a manifest names them.
pub struct FlushDone {
    /// What it wrote.
    pub segments: Vec<Rc<Segment>>,
    /// The table's log records up to here are in segments once it is installed.
    pub flushed_lsn: Lsn,
    frozen: Rc<Frozen>,
}

/// Segments that a flush writes at most, one for each day if there are no more than that.
const MOST_BUCKETS: usize = 8;

impl StreamTable {
    /// Moves the active memtable to the frozen ones; false when it is empty.
    pub fn freeze(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(lsns) = state.memtable.lsns() else {
            return false;
        };
        let rows = state.memtable.rows();
        let runs = state.memtable.take();
        state.frozen.push_back(Rc::new(Frozen {
            bytes: runs.iter().map(|r| r.memory_bytes()).sum(),
            runs,
            rows,
            lsns,
        }));
        true
    }

    /// Writes the oldest frozen memtable to a segment. One at a time; the table is as before until
    /// [`StreamTable::install_flush`].
    ///
    /// # Errors
    /// `53100` or `58030` from the disk; the memtable stays frozen and the next call begins anew.
    pub async fn flush(&self) -> Result<Option<FlushDone>> {
        let (frozen, number, def) = {
            let mut state = self.state.borrow_mut();
            let Some(frozen) = state.frozen.front().cloned() else {
                return Ok(None);
            };
            let number = state.next_flush;
            state.next_flush += 1;
            (frozen, number, state.def.clone())
        };
        let channels = channels_of(&frozen);
        let index = index_runs(&self.env, &frozen.runs).await;
        let mut ids: Vec<u32> = index.iter().map(|m| m.entity).collect();
        drop(index);
        ids.dedup();
        self.sort_by_name(&mut ids).await;
        let snapshot = Snapshot {
            def,
            segments: Rc::default(),
            runs: frozen.runs.clone(),
            applied: 0,
        };
        let floor = self.floor();
        let route = self.route(&frozen.runs, floor).await;
        let mut reader = Reader::new(snapshot, channels.clone());
        reader.index(&self.env).await;
        let flushes = (number, number);
        let mut writer = SegmentWriter::new(self, flushes, Effort::Flush, channels, route, floor);
        for id in ids {
            let name = self.state.borrow().dictionary.name(id).to_vec();
            writer.begin_entity();
            writer
                .rows(&mut reader, &name, Some(id), TsRange::ALL)
                .await?;
            writer.end_entity(&name).await?;
            self.env.breathe().await;
        }
        Ok(Some(FlushDone {
            segments: writer.finish().await?,
            flushed_lsn: frozen.lsns.1,
            frozen,
        }))
    }

    /// The buckets that the rows of some runs go to.
    async fn route(&self, runs: &[Rc<Run>], floor: i64) -> Route {
        let Some(top) = self.rules().top else {
            return Route::Whole;
        };
        let mut days: BTreeMap<i64, u64> = BTreeMap::new();
        for run in runs {
            let range = run.range();
            if Bucket::at(range.from, 0) == Bucket::at(range.to, 0) {
                *days.entry(Bucket::at(range.from, 0).index).or_default() += run.rows() as u64;
                continue;
            }
            let (mut last, mut count) = (Bucket::at(range.from, 0), 0);
            let (mut from, mut to) = last.range();
            let BlockData::I64(times) = &run.ts().data else {
                continue;
            };
            for &ts in times.iter().filter(|&&ts| ts >= floor) {
                if ts < from || ts > to {
                    *days.entry(last.index).or_default() += count;
                    (last, count) = (Bucket::at(ts, 0), 0);
                    (from, to) = last.range();
                }
                count += 1;
            }
            *days.entry(last.index).or_default() += count;
            self.env.breathe().await;
        }
        days.retain(|_, rows| *rows > 0);
        plan_flush(&days, top, MOST_BUCKETS).map_or(Route::Whole, Route::Buckets)
    }

    /// Puts flushed segments in the place of their memtable, in one step for readers.
    pub fn install_flush(&self, done: FlushDone) {
        let mut state = self.state.borrow_mut();
        let Some(at) = state
            .frozen
            .iter()
            .position(|f| Rc::ptr_eq(f, &done.frozen))
        else {
            return;
        };
        state.frozen.remove(at);
        let mut segments = state.segments.to_vec();
        segments.extend(done.segments);
        segments.sort_by_key(|s| s.info().flushes);
        state.segments = Rc::new(segments);
    }
}

/// All channels of a memtable with their kinds, by what is in it: the catalog may have dropped one since.
fn channels_of(frozen: &Frozen) -> Vec<(ColumnId, Kind)> {
    let mut all: Vec<(ColumnId, Kind)> = Vec::new();
    for run in &frozen.runs {
        for id in run.channels() {
            if let Some(column) = run.column(id) {
                let kind = match column.data {
                    strandline_core::format::block::BlockData::Str(_) => Kind::Str,
                    _ => Kind::F64,
                };
                all.push((id, kind));
            }
        }
    }
    all.sort_by_key(|c| c.0);
    all.dedup_by_key(|c| c.0);
    all
}
