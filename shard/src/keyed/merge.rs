//! Flush, merge and purge: new segments are written beside the old ones; the table changes when they are
//! installed, in one step for readers.

use super::cursor::{Merge, block_i64, block_key};
use super::write::KeyedWriter;
use super::{BY_KEY, KeyedTable, SharedMem};
use crate::segment::Segment;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use strandline_core::codec::Effort;
use strandline_core::error::Result;
use strandline_core::ids::{ColumnId, Lsn, Rev, SegmentId};
use strandline_core::keyed::memtable::Memtable;
use strandline_core::keyed::{Version, resolve};
use strandline_core::routing::hash64;

/// A flush that is on disk and not yet part of the table.
pub struct FlushDone {
    /// The new segments.
    pub segments: Vec<Rc<Segment>>,
    /// The table's log records up to here are in segments then.
    pub flushed_lsn: Lsn,
    mem: SharedMem,
    floor: Option<Rev>,
}

/// Segments that are to become one.
pub struct MergeJob {
    inputs: Vec<Rc<Segment>>,
}

impl MergeJob {
    /// Bytes to be rewritten.
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().map(|s| s.bytes()).sum()
    }
}

/// A merge that is on disk and not yet part of the table.
pub struct MergeDone {
    /// Segments that go.
    pub inputs: Vec<SegmentId>,
    /// Segments that come in their place.
    pub outputs: Vec<Rc<Segment>>,
    floor: Option<Rev>,
}

/// Tombstones that a VACUUM takes.
#[derive(Clone, Debug, Default)]
pub struct PurgePlan {
    /// How many.
    pub count: u64,
    /// The highest x_rev among them.
    pub max_rev: Rev,
    /// Each with its x_rev.
    keys: BTreeMap<Box<[u8]>, Rev>,
}

/// Gathers the versions of one key and writes what stays of them.
struct Resolver<'a> {
    writer: KeyedWriter,
    watermark: Rev,
    versions: Vec<Rc<Version>>,
    dropped: bool,
    purge: Option<&'a PurgePlan>,
}

impl Resolver<'_> {
    async fn push(&mut self, version: Rc<Version>) -> Result<()> {
        if self.versions.last().is_some_and(|v| v.key != version.key) {
            self.write().await?;
        }
        // A version that is stored twice (a record replayed once more) counts once.
        if self.versions.last().is_some_and(|v| v.rev == version.rev) {
            return Ok(());
        }
        self.versions.push(version);
        Ok(())
    }

    async fn write(&mut self) -> Result<()> {
        if let (Some(plan), Some(v)) = (self.purge, self.versions.first())
            && let Some(rev) = plan.keys.get(&v.key)
        {
            self.versions.retain(|v| v.rev > *rev);
        }
        self.dropped |= resolve(&mut self.versions, self.watermark);
        for version in self.versions.drain(..) {
            self.writer.push(version).await?;
        }
        Ok(())
    }
}

impl KeyedTable {
    /// Moves the active memtable to the frozen ones; false: there was nothing in it.
    pub fn freeze(&self) -> bool {
        if self.active.borrow().borrow().is_empty() {
            return false;
        }
        let full = self
            .active
            .replace(Rc::new(RefCell::new(Memtable::default())));
        self.frozen.borrow_mut().push(full);
        true
    }

    /// Writes the oldest frozen memtable to a segment; `None`: there is none. Versions superseded at or below
    /// the watermark are left out.
    pub async fn flush(&self, watermark: Rev) -> Result<Option<FlushDone>> {
        let Some(mem) = self.frozen.borrow().first().cloned() else {
            return Ok(None);
        };
        let table = self.def.borrow().id;
        let (len, seen, lsn) = {
            let m = mem.borrow();
            (m.len(), m.seen(), m.lsns().1)
        };
        let writer = KeyedWriter::new(&self.env, &self.cx, table, Effort::Flush, len).await?;
        let mut resolver = Resolver {
            writer,
            watermark,
            versions: Vec::new(),
            dropped: false,
            purge: None,
        };
        let mut merge = Merge::new(&[(mem.clone(), seen)], &[], None);
        while merge.step().await? {
            let Some(row) = merge.row() else { break };
            resolver.push(row.version()?).await?;
        }
        resolver.write().await?;
        let flush = self.flushes.get() + 1;
        let dropped = resolver.dropped;
        let segment = resolver.writer.finish((flush, flush)).await?;
        self.flushes.set(flush);
        Ok(Some(FlushDone {
            segments: segment.into_iter().collect(),
            flushed_lsn: lsn,
            mem,
            floor: dropped.then_some(watermark),
        }))
    }

    /// Puts a flush in the place of its memtable.
    pub fn install_flush(&self, done: FlushDone) {
        self.raise_floor(done.floor);
        self.frozen
            .borrow_mut()
            .retain(|m| !Rc::ptr_eq(m, &done.mem));
        self.segments.borrow_mut().extend(done.segments);
    }

    fn raise_floor(&self, floor: Option<Rev>) {
        if let Some(floor) = floor {
            self.resolve_floor.set(self.resolve_floor.get().max(floor));
        }
    }

    /// Segments of like size, when there are enough of them: each tier is four times the one below.
    pub fn pick_merge(&self) -> Option<MergeJob> {
        let mut tiers: BTreeMap<u32, Vec<Rc<Segment>>> = BTreeMap::new();
        for s in self
            .segments
            .borrow()
            .iter()
            .filter(|s| s.bytes() < self.cx.limits.segment_bytes && s.damage().is_none())
        {
            tiers
                .entry(s.bytes().max(1).ilog2() / 2)
                .or_default()
                .push(s.clone());
        }
        let fan_in = self.cx.limits.merge_fan_in as usize;
        tiers
            .into_values()
            .find(|t| t.len() >= fan_in)
            .map(|inputs| MergeJob { inputs })
    }

    /// Bytes of the segments that wait for a merge.
    pub fn merge_debt_bytes(&self) -> u64 {
        self.pick_merge()
            .map_or(0, |job| job.inputs.iter().map(|s| s.bytes()).sum())
    }

    /// Writes a merge.
    pub async fn merge(&self, job: &MergeJob, watermark: Rev) -> Result<MergeDone> {
        self.rewrite(&job.inputs, watermark, None).await
    }

    async fn rewrite(
        &self,
        inputs: &[Rc<Segment>],
        watermark: Rev,
        purge: Option<&PurgePlan>,
    ) -> Result<MergeDone> {
        let table = self.def.borrow().id;
        let rows: u64 = inputs.iter().map(|s| s.info().rows).sum();
        let flushes = inputs
            .iter()
            .map(|s| s.info().flushes)
            .fold((u64::MAX, 0), |a, b| (a.0.min(b.0), a.1.max(b.1)));
        let writer =
            KeyedWriter::new(&self.env, &self.cx, table, Effort::Merge, rows as usize).await?;
        let mut resolver = Resolver {
            writer,
            watermark,
            versions: Vec::new(),
            dropped: false,
            purge,
        };
        let mut outputs = Vec::new();
        let mut merge = Merge::new(&[], inputs, None);
        while merge.step().await? {
            let Some(row) = merge.row() else { break };
            // Split only between keys: the index of a segment answers for all its versions of a key.
            let new_key = resolver
                .versions
                .last()
                .is_none_or(|v| row.key().is_ok_and(|k| k != &*v.key));
            if new_key && resolver.writer.bytes() >= self.cx.limits.segment_bytes {
                resolver.write().await?;
                let next =
                    KeyedWriter::new(&self.env, &self.cx, table, Effort::Merge, rows as usize)
                        .await?;
                let full = std::mem::replace(&mut resolver.writer, next);
                outputs.extend(full.finish(flushes).await?);
            }
            resolver.push(row.version()?).await?;
        }
        resolver.write().await?;
        let dropped = resolver.dropped;
        outputs.extend(resolver.writer.finish(flushes).await?);
        Ok(MergeDone {
            inputs: inputs.iter().map(|s| s.id()).collect(),
            outputs,
            floor: dropped.then_some(watermark),
        })
    }

    /// Puts a merge's outputs in the place of its inputs; answers those.
    pub fn install_merge(&self, done: MergeDone) -> Vec<Rc<Segment>> {
        self.raise_floor(done.floor);
        let mut segments = self.segments.borrow_mut();
        let (old, mut kept): (Vec<_>, Vec<_>) = segments
            .drain(..)
            .partition(|s| done.inputs.contains(&s.id()));
        kept.extend(done.outputs);
        kept.sort_by_key(|s| s.info().flushes);
        *segments = kept;
        old
    }

    /// The tombstones at or below `limit`, in memory and in segments.
    pub async fn purgeable(&self, limit: Rev) -> Result<PurgePlan> {
        let mut plan = PurgePlan::default();
        let mut add = |key: &[u8], rev: Rev| {
            if rev <= limit {
                plan.keys.insert(key.into(), rev);
            }
        };
        let snapshot = self.snapshot();
        snapshot.damaged.check()?;
        for (mem, seen) in &snapshot.mems {
            let mut after = Rev(0);
            loop {
                let (rows, last) = mem.borrow().revs_after(after, 1024, *seen);
                rows.iter()
                    .filter(|v| v.deleted)
                    .for_each(|v| add(&v.key, v.rev));
                let Some(last) = last else { break };
                after = last;
                self.env.breathe().await;
            }
        }
        for segment in snapshot.segments.iter().filter(|s| s.info().tombstones > 0) {
            for (at, meta) in segment.blocks(BY_KEY).iter().enumerate() {
                let none = meta
                    .chunk(ColumnId::DELETED)
                    .and_then(|c| c.stats.as_ref())
                    .is_some_and(|s| s.max == 0.0);
                if none {
                    continue;
                }
                let block = segment
                    .read(
                        BY_KEY,
                        at,
                        &[ColumnId::KEY, ColumnId::REV, ColumnId::DELETED],
                    )
                    .await?;
                for row in 0..block.rows {
                    if block_i64(&block, ColumnId::DELETED, row)? != 0 {
                        add(
                            block_key(&block, row)?,
                            Rev(block_i64(&block, ColumnId::REV, row)? as u64),
                        );
                    }
                }
            }
        }
        plan.count = plan.keys.len() as u64;
        plan.max_rev = plan.keys.values().copied().max().unwrap_or(Rev(0));
        Ok(plan)
    }

    /// Writes every segment anew that holds a version of a purged key, without it. The memtables hold none:
    /// the caller has flushed.
    pub async fn purge(&self, plan: &PurgePlan, watermark: Rev) -> Result<MergeDone> {
        let mut all = MergeDone {
            inputs: Vec::new(),
            outputs: Vec::new(),
            floor: None,
        };
        for segment in self.segments() {
            let hit = plan.keys.keys().any(|k| segment.may_contain(hash64(k)));
            if hit {
                let done = self.rewrite(&[segment], watermark, Some(plan)).await?;
                all.inputs.extend(done.inputs);
                all.outputs.extend(done.outputs);
                all.floor = all.floor.max(done.floor);
            }
        }
        Ok(all)
    }
}
