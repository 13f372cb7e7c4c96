//! What a shard does in the background: flush memtables to segments, merge segments, give log files and
//! old segments back.

use crate::files;
use crate::manifest::{self, Manifest, TableManifest};
use crate::segment::{Segment, TMP_SUFFIX};
use crate::worker::{Shard, Store, count};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{Lsn, SegmentId, TableId};

/// Makes a flush part of its table.
type Install = Box<dyn FnOnce()>;

/// After a flush or merge that failed (a full disk), the next try comes this much later.
const RETRY: Duration = Duration::from_secs(1);

/// Memtables whose flushes share an edit of the manifest, and their bytes: their memory is free after it.
const ROUND_TABLES: usize = 1024;
/// See [`ROUND_TABLES`].
const ROUND_BYTES: usize = 16 << 20;
/// Flushes of small tables wait for the disk together.
const FLUSHES_AT_A_TIME: usize = 8;

/// Puts a merge in the place of its inputs, which it answers.
type InstallMerge = Box<dyn FnOnce() -> Vec<Rc<Segment>>>;

/// A flush whose segments are on disk.
struct Flushed {
    table: TableId,
    flushed: Lsn,
    segments: Vec<SegmentId>,
    bytes: u64,
    install: Box<dyn FnOnce()>,
}

/// A merge whose segments are on disk.
struct Merged {
    inputs: Vec<SegmentId>,
    outputs: Vec<Rc<Segment>>,
    install: InstallMerge,
}

impl Shard {
    /// Flushes while memory or log is over its threshold; sleeps till the next ring.
    pub(crate) async fn flush_loop(self: Rc<Self>) {
        while !self.is_stopping() {
            self.flush_wanted.wait().await;
            loop {
                let round = self.flush_round();
                if round.is_empty() {
                    break;
                }
                if self.is_stopping() {
                    return;
                }
                let guard = self.flushing.lock().await;
                let done = self.flush_tables(&round).await;
                drop(guard);
                self.flush_outcome(&done);
                if let Err(e) = done {
                    tracing::warn!(
                        shard = self.id.0,
                        tables = round.len(),
                        "flush failed, trying again: {e}"
                    );
                    self.remove_unfinished().await;
                    self.env.tasks.sleep(RETRY).await;
                }
            }
        }
    }

    fn flush_outcome(&self, done: &Result<()>) {
        let full = done
            .as_ref()
            .err()
            .filter(|e| e.state() == SqlState::DiskFull)
            .cloned();
        let was_full = self.flush_error.borrow().is_some();
        if full.is_some() {
            // Writers that wait for memory would wait for the disk: tell them so instead.
            *self.flush_error.borrow_mut() = full;
            self.pressure.open();
        } else if was_full && done.is_ok() {
            *self.flush_error.borrow_mut() = None;
        }
    }

    /// The tables to flush next; none when nothing is due. One that was dropped and whose slice has not gone
    /// yet is none of them: its flush changes nothing, and asking for it again and again would never give the
    /// DROP its turn.
    fn flush_round(&self) -> Vec<TableId> {
        let (active, frozen) = self.memtable_bytes();
        if frozen > 0 {
            // Left by a flush that failed, or by CHECKPOINT.
            let tables = self.tables.borrow();
            let some = tables
                .iter()
                .filter(|(t, s)| s.memory().frozen > 0 && self.exists(**t));
            let round: Vec<TableId> = some.map(|(&t, _)| t).collect();
            if !round.is_empty() {
                return round;
            }
        }
        if active > self.plan.flush_at || active + frozen > self.plan.wait_at {
            return self.largest_active(active / 2);
        }
        if self.wal.live_bytes() > self.shared.limits.log_bytes {
            // All tables that hold the older half of the log: for each of them alone the whole log would have
            // to be full again, and thousands of tables with a row now and then are flushed together.
            let tables = self.tables.borrow();
            let mut oldest: Vec<(Lsn, TableId)> = tables
                .iter()
                .filter(|(t, _)| self.exists(**t))
                .filter_map(|(&t, s)| Some((s.oldest_unflushed()?, t)))
                .collect();
            oldest.sort_unstable();
            let first = oldest.first().map_or(0, |o| o.0.0);
            let half = first + self.applied().0.saturating_sub(first) / 2;
            return (oldest.into_iter().enumerate())
                .filter(|(n, (lsn, _))| *n == 0 || lsn.0 <= half)
                .map(|(_, (_, table))| table)
                .collect();
        }
        Vec::new()
    }

    /// Moves what a table has in memory now to segments. The caller holds `flushing`.
    pub async fn flush_table(&self, table: TableId) -> Result<()> {
        self.flush_tables(&[table]).await
    }

    /// Moves what these tables have in memory now to segments. The caller holds `flushing`.
    pub(crate) async fn flush_tables(&self, tables: &[TableId]) -> Result<()> {
        for &table in tables {
            if let Ok((_, store)) = self.store(table) {
                store.freeze();
                self.note_memory(table);
            } else {
                self.forget_memory(table);
            }
        }
        self.flush_frozen(tables).await
    }

    /// Moves the frozen memtables of these tables to segments, oldest first: small ones together, with one
    /// edit of the manifest. The caller holds `flushing`.
    pub(crate) async fn flush_frozen(&self, tables: &[TableId]) -> Result<()> {
        let mut left: VecDeque<TableId> = tables.iter().copied().collect();
        loop {
            let (mut group, mut bytes) = (Vec::new(), 0);
            while let Some(&table) = left.front() {
                let frozen = self.store_of(table).map_or(0, |s| s.memory().frozen);
                let all_of_it = bytes + frozen > ROUND_BYTES.min(self.plan.flush_at / 2);
                if !group.is_empty() && (all_of_it || group.len() >= ROUND_TABLES) {
                    break;
                }
                left.pop_front();
                if frozen > 0 {
                    group.push(table);
                    bytes += frozen;
                }
            }
            if group.is_empty() {
                break;
            }
            self.flush_group(&group).await?;
            // A table may have several frozen memtables: each is a flush of its own.
            let again = |t: &&TableId| {
                let store = self.store_of(**t);
                store.is_some_and(|s| s.memory().frozen > 0)
            };
            group.iter().filter(again).for_each(|&t| left.push_front(t));
        }
        self.release_log().await
    }

    fn store_of(&self, table: TableId) -> Option<Store> {
        self.tables.borrow().get(&table).cloned()
    }

    /// The oldest frozen memtable of each of these tables.
    async fn flush_group(&self, group: &[TableId]) -> Result<()> {
        let (mut done, mut failed) = (Vec::new(), None);
        for some in group.chunks(FLUSHES_AT_A_TIME) {
            let flushes = some.iter().map(|&table| self.write_flush(table));
            for flush in futures_util::future::join_all(flushes).await {
                match flush {
                    Ok(flushed) => done.extend(flushed),
                    Err(e) => failed = Some(e),
                }
            }
            if failed.is_some() {
                break;
            }
        }
        // Those that were written count, whatever became of the others.
        if !done.is_empty() {
            if done.iter().any(|f| !f.segments.is_empty()) {
                self.sync_segments().await?;
            }
            self.edit_manifest(|m| {
                for f in &done {
                    let entry = m.tables.entry(f.table).or_default();
                    entry.flushed = entry.flushed.max(f.flushed);
                    entry.segments.extend(&f.segments);
                }
            })
            .await?;
            for f in done {
                (f.install)();
                self.flush_epoch.set(self.flush_epoch.get() + 1);
                count(&self.counters.flushes, 1);
                count(&self.counters.flushed_bytes, f.bytes);
                self.note_memory(f.table);
                self.note_debt(f.table);
            }
            // Here, not in the flush loop: CHECKPOINT and VACUUM make segments too.
            self.merge_wanted.ring();
        }
        failed.map_or(Ok(()), Err)
    }

    /// Writes the segments of a table's oldest frozen memtable; `None`: it has none.
    async fn write_flush(&self, table: TableId) -> Result<Option<Flushed>> {
        let Some(store) = self.store_of(table) else {
            return Ok(None);
        };
        let (flushed, segments, install): (Lsn, Vec<Rc<Segment>>, Install) = match store {
            Store::Stream(t) => {
                let Some(done) = t.flush().await? else {
                    return Ok(None);
                };
                let install = done.segments.clone();
                let lsn = done.flushed_lsn;
                (lsn, install, Box::new(move || t.install_flush(done)))
            }
            Store::Keyed(t) => {
                let Some(done) = t.flush(self.watermark(table)).await? else {
                    return Ok(None);
                };
                let install = done.segments.clone();
                let lsn = done.flushed_lsn;
                (lsn, install, Box::new(move || t.install_flush(done)))
            }
        };
        Ok(Some(Flushed {
            table,
            flushed,
            bytes: segments.iter().map(|s| s.bytes()).sum(),
            segments: segments.iter().map(|s| s.id()).collect(),
            install,
        }))
    }

    /// Makes the names of finished segments last.
    pub(crate) async fn sync_segments(&self) -> Result<()> {
        let dir = manifest::segment_dir(self.id);
        Ok(self.env.disk.sync_dir(&dir).await?)
    }

    /// Gives the log files back whose records are all in segments.
    pub(crate) async fn release_log(&self) -> Result<()> {
        let oldest = self
            .tables
            .borrow()
            .values()
            .filter_map(Store::oldest_unflushed)
            .min();
        let up_to = oldest.map_or(self.applied(), |lsn| Lsn(lsn.0.saturating_sub(1)));
        let mut changed = false;
        self.edit_manifest_if(|m| {
            changed = up_to > m.log_after;
            m.log_after = m.log_after.max(up_to);
            m.void.retain(|&(_, to)| to.0 > up_to.0);
            changed
        })
        .await?;
        if changed {
            self.wal.release(up_to);
        }
        Ok(())
    }

    /// Merges while a table has segments to merge; sleeps till the next ring.
    pub(crate) async fn merge_loop(self: Rc<Self>) {
        while !self.is_stopping() {
            self.merge_wanted.wait().await;
            let tables: Vec<TableId> = self.tables.borrow().keys().copied().collect();
            for table in tables {
                loop {
                    if self.is_stopping() {
                        return;
                    }
                    let guard = self.merging.lock().await;
                    let merged = self.merge_step(table).await;
                    drop(guard);
                    match merged {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(e) => {
                            tracing::warn!(shard = self.id.0, table = table.0, "merge failed: {e}");
                            self.remove_unfinished().await;
                            break;
                        }
                    }
                }
            }
        }
    }

    /// One merge of a table, if one is due. The caller holds `merging`.
    pub(crate) async fn merge_step(&self, table: TableId) -> Result<bool> {
        if self.shared.table(table).is_err() {
            return Ok(false);
        }
        let Some(store) = self.tables.borrow().get(&table).cloned() else {
            return Ok(false);
        };
        let Some(merged) = self.write_merge(table, store).await? else {
            return Ok(false);
        };
        let outputs: Vec<SegmentId> = merged.outputs.iter().map(|s| s.id()).collect();
        if !outputs.is_empty() {
            self.sync_segments().await?;
        }
        self.replace_segments(table, &merged.inputs, &outputs)
            .await?;
        let written = merged.outputs.iter().map(|s| s.bytes()).sum();
        self.doom((merged.install)());
        drop(merged.outputs);
        self.flush_epoch.set(self.flush_epoch.get() + 1);
        count(&self.counters.merges, 1);
        count(&self.counters.merge_written_bytes, written);
        self.note_debt(table);
        self.collect_doomed().await;
        Ok(true)
    }

    /// Writes the next merge of a table, if one is due.
    async fn write_merge(&self, table: TableId, store: Store) -> Result<Option<Merged>> {
        let counters = &self.counters;
        match store {
            Store::Stream(t) => {
                let Some(job) = t.pick_merge() else {
                    return Ok(None);
                };
                let done = t.merge(&job).await?;
                count(&counters.merge_read_bytes, done.read_bytes);
                count(&counters.blocks_encoded, done.blocks.0);
                count(&counters.blocks_copied, done.blocks.1);
                Ok(Some(Merged {
                    inputs: done.inputs.clone(),
                    outputs: done.outputs.clone(),
                    install: Box::new(move || t.install_merge(done)),
                }))
            }
            Store::Keyed(t) => {
                let Some(job) = t.pick_merge() else {
                    return Ok(None);
                };
                let done = t.merge(&job, self.watermark(table)).await?;
                count(&counters.merge_read_bytes, job.bytes());
                let blocks = |s: &Rc<Segment>| s.blocks(0).len() as u64;
                let encoded = done.outputs.iter().map(blocks).sum();
                count(&counters.blocks_encoded, encoded);
                Ok(Some(Merged {
                    inputs: done.inputs.clone(),
                    outputs: done.outputs.clone(),
                    install: Box::new(move || t.install_merge(done)),
                }))
            }
        }
    }

    /// Makes `outputs` stand where the first of `inputs` stood, durably.
    pub(crate) async fn replace_segments(
        &self,
        table: TableId,
        inputs: &[SegmentId],
        outputs: &[SegmentId],
    ) -> Result<()> {
        self.edit_manifest(|m| {
            let TableManifest { segments, .. } = m.tables.entry(table).or_default();
            let at = segments
                .iter()
                .position(|s| inputs.contains(s))
                .unwrap_or(segments.len());
            segments.retain(|s| !inputs.contains(s));
            segments.splice(at..at, outputs.iter().copied());
        })
        .await
    }

    /// Removes what a flush or merge that failed has left of its files: each try writes under other numbers,
    /// and on a full disk this is the room that is wanted. While somebody else writes segments it is left to
    /// the next failure, or the next start.
    pub(crate) async fn remove_unfinished(&self) {
        let (Some(_flush), Some(_merge)) = (self.flushing.try_lock(), self.merging.try_lock())
        else {
            return;
        };
        let dir = manifest::segment_dir(self.id);
        // Only these: a finished segment may be in a manifest whose writing failed at its very end.
        let names = self.env.disk.list(&dir).await.unwrap_or_default();
        for name in names.iter().filter(|n| n.ends_with(TMP_SUFFIX)) {
            let path = files::join(&dir, name);
            if let Err(e) = self.env.disk.remove(&path).await {
                tracing::warn!(shard = self.id.0, path, "it could not be removed: {e}");
            }
        }
    }

    /// These segments are no longer part of a table, and the manifest says so: their files go once no reader
    /// holds them.
    pub(crate) fn doom(&self, segments: Vec<Rc<Segment>>) {
        segments.iter().for_each(|s| s.doom(&self.trash));
    }

    /// Removes files as the last of their readers end.
    pub(crate) async fn trash_loop(self: Rc<Self>) {
        while !self.is_stopping() {
            self.trash.signal.wait().await;
            self.collect_doomed().await;
        }
    }

    /// Removes files of segments that are no longer part of a table and that no reader holds.
    pub(crate) async fn collect_doomed(&self) {
        let free = self.trash.paths.take();
        for path in free {
            if let Err(e) = self.env.disk.remove(&path).await {
                tracing::warn!(
                    shard = self.id.0,
                    path,
                    "an old segment could not be removed: {e}"
                );
            }
            self.env.breathe().await;
        }
    }

    /// Removes a dropped table: from the manifest first, then its files.
    pub async fn drop_table(&self, table: TableId) -> Result<()> {
        let _flush = self.flushing.lock().await;
        let _merge = self.merging.lock().await;
        let store = self.tables.borrow_mut().remove(&table);
        self.forget_memory(table);
        self.forget_debt(table);
        self.edit_manifest_if(|m| m.tables.remove(&table).is_some())
            .await?;
        if let Some(store) = store {
            self.doom(store.segments());
            self.remove_damaged(&store.damaged()).await;
            drop(store);
        }
        self.collect_doomed().await;
        self.release_log().await
    }

    /// Changes the manifest, durably, or leaves it as it was.
    pub(crate) async fn edit_manifest(&self, edit: impl FnOnce(&mut Manifest)) -> Result<()> {
        self.edit_manifest_if(|m| {
            edit(m);
            true
        })
        .await
    }

    /// As [`Shard::edit_manifest`], when `edit` answers true.
    pub(crate) async fn edit_manifest_if(
        &self,
        edit: impl FnOnce(&mut Manifest) -> bool,
    ) -> Result<()> {
        let mut file = self.manifest.lock().await;
        let mut next = file.current().clone();
        if !edit(&mut next) {
            return Ok(());
        }
        next.next_segment = self.cx.next_segment.get();
        if let Some(xid) = self.shared.last_xid() {
            next.max_xid = xid.to_string();
        }
        file.change(next).await.map_err(|e| {
            Error::new(
                e.state(),
                format!(
                    "the manifest of shard {} could not be written: {}",
                    self.id.0,
                    e.message()
                ),
            )
        })
    }
}
