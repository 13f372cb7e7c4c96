//! What a shard does in the background: flush memtables to segments, merge segments, give log files and
//! old segments back.

use crate::files;
use crate::manifest::{self, Manifest, TableManifest};
use crate::segment::{Segment, TMP_SUFFIX};
use crate::worker::{Shard, Store, count};
use std::rc::Rc;
use std::time::Duration;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{Lsn, SegmentId, TableId};

/// After a flush or merge that failed (a full disk), the next try comes this much later.
const RETRY: Duration = Duration::from_secs(1);

/// Puts a merge in the place of its inputs, which it answers.
type InstallMerge = Box<dyn FnOnce() -> Vec<Rc<Segment>>>;

impl Shard {
    /// Flushes while memory or log is over its threshold; sleeps till the next ring.
    pub(crate) async fn flush_loop(self: Rc<Self>) {
        while !self.is_stopping() {
            self.flush_wanted.wait().await;
            while let Some(table) = self.flush_candidate() {
                if self.is_stopping() {
                    return;
                }
                let guard = self.flushing.lock().await;
                let done = self.flush_table(table).await;
                drop(guard);
                self.flush_outcome(&done);
                if let Err(e) = done {
                    tracing::warn!(
                        shard = self.id.0,
                        table = table.0,
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

    /// The table to flush next. One that was dropped and whose slice has not gone yet is none: its flush
    /// changes nothing, and asking for it again and again would never give the DROP its turn.
    fn flush_candidate(&self) -> Option<TableId> {
        let (active, frozen) = self.memtable_bytes();
        if active > self.plan.flush_at || active + frozen > self.plan.wait_at {
            let largest = self.largest_active().or_else(|| self.any_frozen());
            if largest.is_some() {
                return largest;
            }
        }
        if frozen > 0
            && let Some(table) = self.any_frozen()
        {
            return Some(table);
        }
        if self.wal.live_bytes() > self.shared.limits.log_bytes {
            let tables = self.tables.borrow();
            let oldest = tables
                .iter()
                .filter(|(t, _)| self.exists(**t))
                .filter_map(|(&t, s)| Some((s.oldest_unflushed()?, t)))
                .min();
            return oldest.map(|(_, t)| t);
        }
        None
    }

    fn any_frozen(&self) -> Option<TableId> {
        self.tables
            .borrow()
            .iter()
            .find(|(t, s)| s.memory().frozen > 0 && self.exists(**t))
            .map(|(&t, _)| t)
    }

    /// Moves what a table has in memory now to segments. The caller holds `flushing`.
    pub async fn flush_table(&self, table: TableId) -> Result<()> {
        if let Ok((_, store)) = self.store(table) {
            store.freeze();
            self.note_memory(table);
            self.flush_frozen(table).await?;
        } else {
            self.forget_memory(table);
        }
        Ok(())
    }

    /// Moves a table's frozen memtables to segments, oldest first. The caller holds `flushing`.
    pub(crate) async fn flush_frozen(&self, table: TableId) -> Result<()> {
        loop {
            let Some(store) = self.tables.borrow().get(&table).cloned() else {
                return Ok(());
            };
            let (flushed, ids, install): (Lsn, Vec<SegmentId>, Box<dyn FnOnce()>) = match &store {
                Store::Stream(t) => {
                    let Some(done) = t.flush().await? else { break };
                    let ids = done.segments.iter().map(|s| s.id()).collect();
                    let t = t.clone();
                    (
                        done.flushed_lsn,
                        ids,
                        Box::new(move || t.install_flush(done)),
                    )
                }
                Store::Keyed(t) => {
                    let Some(done) = t.flush(self.watermark(table)).await? else {
                        break;
                    };
                    let ids = done.segments.iter().map(|s| s.id()).collect();
                    let t = t.clone();
                    (
                        done.flushed_lsn,
                        ids,
                        Box::new(move || t.install_flush(done)),
                    )
                }
            };
            self.edit_manifest(|m| {
                let entry = m.tables.entry(table).or_default();
                entry.flushed = entry.flushed.max(flushed);
                entry.segments.extend(&ids);
            })
            .await?;
            install();
            self.flush_epoch.set(self.flush_epoch.get() + 1);
            count(&self.counters.flushes, 1);
            self.note_memory(table);
            // Here, not in the flush loop: CHECKPOINT and VACUUM make segments too.
            self.merge_wanted.ring();
        }
        self.release_log().await
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
        let (inputs, outputs, install): (Vec<SegmentId>, Vec<SegmentId>, InstallMerge) =
            match &store {
                Store::Stream(t) => {
                    let Some(job) = t.pick_merge() else {
                        return Ok(false);
                    };
                    let done = t.merge(&job).await?;
                    let outputs = done.outputs.iter().map(|s| s.id()).collect();
                    let t = t.clone();
                    (
                        done.inputs.clone(),
                        outputs,
                        Box::new(move || t.install_merge(done)),
                    )
                }
                Store::Keyed(t) => {
                    let Some(job) = t.pick_merge() else {
                        return Ok(false);
                    };
                    let done = t.merge(&job, self.watermark(table)).await?;
                    let outputs = done.outputs.iter().map(|s| s.id()).collect();
                    let t = t.clone();
                    (
                        done.inputs.clone(),
                        outputs,
                        Box::new(move || t.install_merge(done)),
                    )
                }
            };
        self.replace_segments(table, &inputs, &outputs).await?;
        self.doomed.borrow_mut().extend(install());
        self.flush_epoch.set(self.flush_epoch.get() + 1);
        count(&self.counters.merges, 1);
        self.collect_doomed().await;
        Ok(true)
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

    /// Removes files of segments that are no longer part of a table and that no reader holds.
    pub(crate) async fn collect_doomed(&self) {
        let free: Vec<Rc<Segment>> = {
            let mut doomed = self.doomed.borrow_mut();
            let (free, held) = doomed.drain(..).partition(|s| Rc::strong_count(s) == 1);
            *doomed = held;
            free
        };
        for segment in free {
            let path = segment.path().to_string();
            drop(segment);
            if let Err(e) = self.env.disk.remove(&path).await {
                tracing::warn!(
                    shard = self.id.0,
                    path,
                    "an old segment could not be removed: {e}"
                );
            }
        }
    }

    /// Removes a dropped table: from the manifest first, then its files.
    pub async fn drop_table(&self, table: TableId) -> Result<()> {
        let _flush = self.flushing.lock().await;
        let _merge = self.merging.lock().await;
        let store = self.tables.borrow_mut().remove(&table);
        self.forget_memory(table);
        self.edit_manifest_if(|m| m.tables.remove(&table).is_some())
            .await?;
        if let Some(store) = store {
            self.doomed.borrow_mut().extend(store.segments());
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
        let mut current = self.manifest.lock().await;
        let mut next = current.clone();
        if !edit(&mut next) {
            return Ok(());
        }
        next.next_segment = self.cx.next_segment.get();
        if let Some(xid) = self.shared.last_xid() {
            next.max_xid = xid.to_string();
        }
        files::replace(
            &self.env,
            &manifest::shard_dir(self.id),
            manifest::NAME,
            manifest::KIND,
            &next,
        )
        .await
        .map_err(|e| {
            Error::new(
                e.state(),
                format!(
                    "the manifest of shard {} could not be written: {}",
                    self.id.0,
                    e.message()
                ),
            )
        })?;
        *current = next;
        Ok(())
    }
}
