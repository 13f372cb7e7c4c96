//! What a reader sees: segments and runs as they stood when it began. All of them are immutable, so apply,
//! flush and merge go on without disturbing it.

use crate::segment::Segment;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::ids::ColumnId;
use strandline_core::profile::ScanCounters;
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
    /// What merges keep: the channels, and the tombstones of a MUTABLE table.
    pub fn stored_channels(&self) -> Vec<(ColumnId, Kind)> {
        stored_channels(&self.def)
    }
    /// Whether of samples of one channel at one (entity, ts) the last to arrive counts alone.
    pub fn dedup(&self) -> bool {
        self.def.options.dedup
    }
    /// Whether a channel has not been dropped.
    pub fn is_live(&self, id: ColumnId) -> bool {
        self.def.column_by_id(id).is_some()
    }
    /// What there is to look at.
    pub fn counters(&self) -> ScanCounters {
        let segments = self.segments.iter();
        ScanCounters {
            shards: 1,
            segments_total: self.segments.len() as u64,
            blocks_total: segments.map(|s| s.blocks(0).len() as u64).sum(),
            runs: self.runs.len() as u64,
            ..ScanCounters::default()
        }
    }
}

/// As [`live_channels`], with the tombstones of a MUTABLE table.
pub fn stored_channels(def: &TableDef) -> Vec<(ColumnId, Kind)> {
    let mut all = live_channels(def);
    if def.options.mutable {
        all.insert(0, (ColumnId::DELETED, Kind::F64));
    }
    all
}

/// Channels of a table, in order of number.
pub fn live_channels(def: &TableDef) -> Vec<(ColumnId, Kind)> {
    let mut all: Vec<(ColumnId, Kind)> =
        def.columns.iter().map(|c| (c.id, c.label.kind())).collect();
    all.sort_by_key(|c| c.0);
    all
}
