//! The keyed store: one rows table on one shard. Versions are staged while their log record is on its way,
//! then stand in a memtable, then in segments; a read merges all of those by key or by x_rev.
//!
//! | module | holds |
//! |---|---|
//! | `write` | versions into a segment: by key (section 0), and the x_rev order beside it (section 1) |
//! | `cursor` | walking memtables and segments by key |
//! | `snapshot` | reads |
//! | `feed` | reads in the order of x_rev |
//! | `merge` | flush, merge, purge |
//! | `explain` | what a read would look at |

mod cursor;
mod explain;
mod feed;
mod merge;
mod snapshot;
mod write;

#[cfg(test)]
mod large_tests;
#[cfg(test)]
mod tests;

pub use merge::{FlushDone, MergeDone, MergeJob, PurgePlan};
pub use snapshot::KeyedSnapshot;

use crate::damage::Damaged;
use crate::segment::Segment;
use crate::store::{BatchSink, MemoryUse, StoreContext};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::Result;
use strandline_core::ids::{ColumnId, Lsn, Rev};
use strandline_core::io::Env;
use strandline_core::keyed::Version;
use strandline_core::keyed::memtable::Memtable;
use strandline_core::scan::KeyedScan;
use strandline_core::schema::TableDef;

/// Section of the versions, by key and then newest first.
pub(crate) const BY_KEY: u8 = 0;
/// Section of the x_rev order.
pub(crate) const BY_REV: u8 = 1;

/// Staged versions of each key, oldest first.
type Pending = BTreeMap<Box<[u8]>, Vec<Rc<Version>>>;

/// A memtable that readers share.
pub(crate) type SharedMem = Rc<RefCell<Memtable>>;

/// See the module.
pub struct KeyedTable {
    env: Env,
    def: RefCell<Arc<TableDef>>,
    cx: StoreContext,
    pending: RefCell<Pending>,
    active: RefCell<SharedMem>,
    /// Oldest first.
    frozen: RefCell<Vec<SharedMem>>,
    segments: RefCell<Vec<Rc<Segment>>>,
    damaged: RefCell<Damaged>,
    flushes: Cell<u64>,
    resolve_floor: Cell<Rev>,
}

impl KeyedTable {
    /// Empty.
    pub fn new(env: Env, def: Arc<TableDef>, cx: StoreContext) -> Self {
        KeyedTable {
            env,
            def: RefCell::new(def),
            cx,
            pending: RefCell::default(),
            active: RefCell::default(),
            frozen: RefCell::default(),
            segments: RefCell::default(),
            damaged: RefCell::default(),
            flushes: Cell::new(0),
            resolve_floor: Cell::new(Rev(0)),
        }
    }

    /// The definition changed.
    pub fn set_def(&self, def: Arc<TableDef>) {
        *self.def.borrow_mut() = def;
    }

    /// Takes the segments that the manifest names.
    pub async fn open_segments(&self, mut segments: Vec<Rc<Segment>>) -> Result<()> {
        segments.sort_by_key(|s| s.info().flushes);
        self.flushes.set(
            segments
                .iter()
                .map(|s| s.info().flushes.1)
                .max()
                .unwrap_or(0),
        );
        *self.segments.borrow_mut() = segments;
        Ok(())
    }

    /// Its segments whose index cannot be read.
    pub fn damaged(&self) -> Damaged {
        self.damaged.borrow().clone()
    }

    /// At a start, or when these are given up.
    pub fn set_damaged(&self, damaged: Damaged) {
        *self.damaged.borrow_mut() = damaged;
    }

    /// Notes a version whose log record is on its way: the next compare-and-set sees it, readers do not.
    pub fn stage(&self, version: Rc<Version>) {
        self.pending
            .borrow_mut()
            .entry(version.key.clone())
            .or_default()
            .push(version);
    }

    /// Its write failed.
    pub fn unstage(&self, version: &Version) {
        let mut pending = self.pending.borrow_mut();
        if let Some(list) = pending.get_mut(&version.key) {
            list.retain(|v| v.rev != version.rev);
            if list.is_empty() {
                pending.remove(&version.key);
            }
        }
    }

    /// Its log record is durable: readers see it from here on.
    pub fn apply(&self, version: Rc<Version>, lsn: Lsn) {
        self.unstage(&version);
        self.active.borrow().borrow_mut().insert(version, lsn);
    }

    /// From the log, at a start.
    pub fn apply_replayed(&self, version: Version, lsn: Lsn) {
        self.active
            .borrow()
            .borrow_mut()
            .insert(Rc::new(version), lsn);
    }

    /// The newest version of a key that is not in segments yet, staged ones included.
    pub fn newest_in_memory(&self, key: &[u8]) -> Option<Rc<Version>> {
        if let Some(staged) = self
            .pending
            .borrow()
            .get(key)
            .and_then(|l| l.iter().max_by_key(|v| v.rev))
        {
            return Some(staged.clone());
        }
        if let Some(v) = self.active.borrow().borrow().newest_of(key) {
            return Some(v.clone());
        }
        self.frozen
            .borrow()
            .iter()
            .rev()
            .find_map(|m| m.borrow().newest_of(key).cloned())
    }

    /// The newest version of a key, wherever it is. A flush during the wait can hide one: the caller looks at
    /// its flush epoch, and at [`KeyedTable::newest_in_memory`] again.
    pub async fn newest(&self, key: &[u8]) -> Result<Option<Rc<Version>>> {
        if let Some(v) = self.newest_in_memory(key) {
            return Ok(Some(v));
        }
        Ok(self.snapshot().newest(key, Rev::MAX).await?.map(Rc::new))
    }

    /// One picture of the table, for as long as the reader holds it.
    pub fn snapshot(&self) -> KeyedSnapshot {
        let mut mems: Vec<SharedMem> = vec![self.active.borrow().clone()];
        mems.extend(self.frozen.borrow().iter().rev().cloned());
        KeyedSnapshot::new(
            self.env.clone(),
            self.cx.limits.clone(),
            mems,
            self.segments.borrow().clone(),
            self.damaged(),
        )
    }

    /// Superseded versions up to here may be gone: a feed reader with an older watermark starts over.
    pub fn resolve_floor(&self) -> Rev {
        self.resolve_floor.get()
    }

    /// Rows of this shard; see [`KeyedSnapshot::scan`].
    pub async fn scan(
        &self,
        scan: &KeyedScan,
        watermark: Rev,
        def: &TableDef,
        out: &mut dyn BatchSink,
    ) -> Result<()> {
        self.snapshot().scan(scan, watermark, def, out).await
    }

    /// Live rows and tombstones, from counters.
    pub async fn counts(&self) -> Result<(u64, u64)> {
        self.snapshot().counts()
    }

    /// Memory held.
    pub fn memory_bytes(&self) -> MemoryUse {
        MemoryUse {
            active: self.active.borrow().borrow().memory_bytes(),
            frozen: self
                .frozen
                .borrow()
                .iter()
                .map(|m| m.borrow().memory_bytes())
                .sum(),
            tails: 0,
            names: 0,
        }
    }

    /// The first log record that only memory has.
    pub fn oldest_unflushed(&self) -> Option<Lsn> {
        let active = self.active.borrow().borrow().lsns().0;
        self.frozen
            .borrow()
            .iter()
            .filter_map(|m| m.borrow().lsns().0)
            .chain(active)
            .min()
    }

    /// Segments, oldest first.
    pub fn segments(&self) -> Vec<Rc<Segment>> {
        self.segments.borrow().clone()
    }

    /// Versions stored.
    pub fn rows(&self) -> u64 {
        let memory: usize = self.frozen.borrow().iter().map(|m| m.borrow().len()).sum();
        let segments: u64 = self.segments.borrow().iter().map(|s| s.info().rows).sum();
        segments + (memory + self.active.borrow().borrow().len()) as u64
    }
}

/// Versions marked `first` and tombstones of a segment, from its statistics.
pub(crate) fn segment_counts(segment: &Segment) -> (u64, u64) {
    let sum = |id: ColumnId| -> u64 {
        let chunks = segment.blocks(BY_KEY).iter().filter_map(|b| b.chunk(id));
        // Marks are 0 or 1: there are never more of them than cells, whatever a damaged footer says.
        chunks
            .filter_map(|c| Some((c.stats?.sum as u64).min(u64::from(c.count))))
            .sum()
    };
    (sum(ColumnId::FIRST), sum(ColumnId::DELETED))
}
