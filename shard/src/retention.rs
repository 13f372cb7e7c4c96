//! RETENTION: what has expired goes, soon after midnight UTC, or when the time is made shorter.
//!
//! Readers never see an expired sample, whatever is still stored (`StreamOptions::floor`). Here the disk is
//! given back: segments that have expired as a whole leave the manifest, and their files go when the last
//! reader ends. What is left of an expired day stands in a segment of a larger bucket, which is short against
//! the RETENTION (`stream::pick`), or in a mixed one, which the merges cut up; either drops it.

use crate::coordinator::Coordinator;
use crate::worker::{Shard, Store, count};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use strandline_core::error::Result;
use strandline_core::ids::{SegmentId, TableId};
use strandline_core::io::TaskQueue;
use strandline_core::time::DAY_MS;

/// The wall clock may be set, and a machine may sleep: the day is asked for at least this often.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// After an error of the disk.
const RETRY: Duration = Duration::from_secs(10);

impl Coordinator {
    /// Tells the shards that a table came, or changed, whose RETENTION they may have to act on. Nothing waits
    /// for them: reads go by the catalog.
    pub(crate) fn announce_retention(&self) {
        for shard in self.all_shards() {
            let router = self.router.clone();
            let told = async move {
                let queue = TaskQueue::Background;
                let told = router.ask(shard, queue, |s| {
                    s.retention_wanted.ring();
                    Box::pin(std::future::ready(Ok(())))
                });
                // A shard that is going down looks at its next start.
                let _ = told.await;
            };
            self.env.tasks.spawn(TaskQueue::Background, Box::pin(told));
        }
    }
}

impl Shard {
    /// Drops what has expired at each midnight, and when the signal says that a table's RETENTION may have
    /// changed. Without a table that has one it only waits for the signal.
    pub(crate) async fn retention_loop(self: Rc<Self>) {
        while !self.is_stopping() {
            let wait = match self.expire_all().await {
                Ok(wait) => wait,
                Err(e) => {
                    tracing::warn!(shard = self.id.0, "expired segments stay for now: {e}");
                    Some(RETRY)
                }
            };
            let changed = pin!(self.retention_wanted.wait());
            match wait {
                Some(wait) => {
                    let midnight = self.env.tasks.sleep(wait.min(LONGEST_WAIT));
                    if let Either::Right(((), _)) = select(changed, midnight).await {
                        continue;
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Drops what has expired of every table; the time until more does, if anything ever will.
    async fn expire_all(&self) -> Result<Option<Duration>> {
        let tables: Vec<TableId> = {
            let catalog = self.shared.published().catalog.clone();
            let has = |t: &&std::sync::Arc<strandline_core::schema::TableDef>| {
                t.options.retention_ms.is_some() || t.options.expired_before_ms.is_some()
            };
            catalog.tables().filter(has).map(|t| t.id).collect()
        };
        for &table in &tables {
            if self.is_stopping() {
                return Ok(None);
            }
            self.expire_table(table).await?;
        }
        if tables.is_empty() {
            return Ok(None);
        }
        let left = DAY_MS - self.env.clock.now_ms().rem_euclid(DAY_MS);
        Ok(Some(Duration::from_millis(left as u64)))
    }

    /// Drops the segments of a table that have expired as a whole, and what is in memory if all of it has.
    async fn expire_table(&self, table: TableId) -> Result<()> {
        // The definition that has the new RETENTION.
        let Ok((_, Store::Stream(store))) = self.store(table) else {
            return Ok(());
        };
        if store.memory_expired() {
            let _flush = self.flushing.lock().await;
            self.flush_table(table).await?;
        }
        let _merge = self.merging.lock().await;
        // A DROP may have come before.
        if self.shared.table(table).is_err() {
            return Ok(());
        }
        let gone = store.expired();
        if !gone.is_empty() {
            let ids: Vec<SegmentId> = gone.iter().map(|s| s.id()).collect();
            self.replace_segments(table, &ids, &[]).await?;
            count(&self.counters.expired_segments, gone.len() as u64);
            let bytes = gone.iter().map(|s| s.bytes()).sum();
            count(&self.counters.expired_bytes, bytes);
            drop(gone);
            self.doom(store.remove_segments(&ids));
            self.flush_epoch.set(self.flush_epoch.get() + 1);
            self.note_debt(table);
            self.collect_doomed().await;
        }
        // A shorter RETENTION makes buckets smaller: some may have to be cut up.
        self.merge_wanted.ring();
        Ok(())
    }
}
