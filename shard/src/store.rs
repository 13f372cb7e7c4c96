//! What the two stores share: where they write, how they answer, how they report memory.

use crate::segment::BlockCache;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::Result;
use strandline_core::ids::{SegmentId, TableId};
use strandline_core::io::LocalFuture;
use strandline_core::limits::Limits;
use strandline_core::profile::ScanCounters;
use strandline_core::value::Batch;

/// Where a table's store of one shard works.
#[derive(Clone)]
pub struct StoreContext {
    /// Directory of the shard's segments, relative to the disk's root.
    pub dir: String,
    /// The limits in force.
    pub limits: Arc<Limits>,
    /// The number of the next segment of this shard; each sink takes one.
    pub next_segment: Rc<Cell<u64>>,
    /// Decoded blocks of this executor.
    pub cache: Rc<BlockCache>,
}

impl StoreContext {
    /// A number for a new segment.
    pub fn take_segment_id(&self) -> SegmentId {
        let id = self.next_segment.get();
        self.next_segment.set(id + 1);
        SegmentId(id)
    }
}

/// Text of one batch of an answer, past which it is sent on. With the batches that may wait in a channel this
/// bounds what a reader of large texts holds.
pub const BATCH_BYTES: usize = 256 << 10;

/// Takes the batches of a scan.
pub trait BatchSink {
    /// Takes one; `false`: the reader has enough, stop.
    fn push(&mut self, batch: Batch) -> LocalFuture<'_, Result<bool>>;
    /// What was looked at to make the batches.
    fn note(&mut self, _looked_at: &ScanCounters) {}
}

/// Memory that a table's store of one shard holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// The memtable that takes writes.
    pub active: usize,
    /// Memtables that are on their way to segments.
    pub frozen: usize,
    /// Newest samples of each entity; stays, unless they are given up.
    pub tails: usize,
    /// Names of entities; stays.
    pub names: usize,
}

/// Gathers all batches of a scan, for tests and for small internal reads.
#[derive(Debug, Default)]
pub struct Collect {
    /// As they came.
    pub batches: Vec<Batch>,
}

impl BatchSink for Collect {
    fn push(&mut self, batch: Batch) -> LocalFuture<'_, Result<bool>> {
        self.batches.push(batch);
        Box::pin(std::future::ready(Ok(true)))
    }
}

/// Names a table in errors of the store, which knows only its number.
pub fn table_label(table: TableId) -> String {
    format!("table number {table}")
}
