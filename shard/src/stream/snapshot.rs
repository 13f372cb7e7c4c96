//! What a reader sees: segments and runs as they stood when it began. All of them are immutable, so apply,
//! flush and merge go on without disturbing it.

use crate::segment::Segment;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::ids::ColumnId;
use strandline_core::scan::TsRange;
use strandline_core::schema::TableDef;
use strandline_core::stream::memtable::Run;
use strandline_core::value::Kind;

/// One consistent set of sources, oldest arrivals first.
#[derive(Clone)]
pub struct Snapshot {
    /// The table as the catalog described it.
    pub def: Arc<TableDef>,
    /// By flush.
    pub segments: Rc<Vec<Rc<Segment>>>,
    /// After all segments.
    pub runs: Vec<Rc<Run>>,
    /// The table's count of applied batches at that moment.
    pub applied: u64,
}

impl Snapshot {
    /// Channels that the table has now, in order of number.
    pub fn live_channels(&self) -> Vec<(ColumnId, Kind)> {
        live_channels(&self.def)
    }
    /// Whether a channel has not been dropped.
    pub fn is_live(&self, id: ColumnId) -> bool {
        self.def.column_by_id(id).is_some()
    }
    /// Smallest and largest ts of every source: segments, then runs.
    pub fn ranges(&self) -> Vec<TsRange> {
        let segments = self.segments.iter().map(|s| {
            let (from, to) = s.info().range;
            TsRange { from, to }
        });
        segments
            .chain(self.runs.iter().map(|r| r.range()))
            .collect()
    }
    /// Some of its sources, by their numbers in [`Snapshot::ranges`].
    #[must_use]
    pub fn only(&self, sources: &[usize]) -> Snapshot {
        let n = self.segments.len();
        Snapshot {
            def: self.def.clone(),
            segments: Rc::new(
                (0..n)
                    .filter(|i| sources.contains(i))
                    .map(|i| self.segments[i].clone())
                    .collect(),
            ),
            runs: (0..self.runs.len())
                .filter(|i| sources.contains(&(n + i)))
                .map(|i| self.runs[i].clone())
                .collect(),
            applied: self.applied,
        }
    }
}

/// Channels of a table, in order of number.
pub fn live_channels(def: &TableDef) -> Vec<(ColumnId, Kind)> {
    let mut all: Vec<(ColumnId, Kind)> =
        def.columns.iter().map(|c| (c.id, c.label.kind())).collect();
    all.sort_by_key(|c| c.0);
    all
}
