//! VACUUM: purges tombstones for good. The horizon is durable and published before the first one goes, so
//! that a feed which would miss one is refused instead.

use crate::api::VacuumReport;
use crate::coordinator::Coordinator;
use crate::worker::Shard;
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::ids::{Rev, TableId};
use strandline_core::io::TaskQueue;

impl Coordinator {
    /// `VACUUM t`, up to the watermark of this moment.
    pub async fn vacuum(&self, table: TableId) -> Result<VacuumReport> {
        let limit = self.shared.ledger(table)?.watermark();
        let mut highest = Rev(0);
        for shard in self.all_shards() {
            let found = self
                .router
                .ask(shard, TaskQueue::Background, move |s| {
                    Box::pin(async move { s.purgeable(table, limit).await })
                })
                .await?;
            highest = highest.max(found);
        }
        let mut purged = 0;
        if highest.0 > 0 {
            self.raise_horizon(table, highest).await?;
            for shard in self.all_shards() {
                purged += self
                    .router
                    .ask(shard, TaskQueue::Background, move |s| {
                        Box::pin(async move {
                            let done = s.clone().purge(table, highest).await;
                            if done.is_err() {
                                s.remove_unfinished().await;
                            }
                            done
                        })
                    })
                    .await?;
            }
        }
        Ok(VacuumReport {
            purged,
            horizon: self.shared.published().horizon(table),
        })
    }
}

impl Shard {
    /// The highest x_rev among the tombstones that a purge up to `limit` would take; 0: none.
    pub async fn purgeable(self: Rc<Self>, table: TableId, limit: Rev) -> Result<Rev> {
        let (_, store) = self.keyed(table)?;
        Ok(store.purgeable(limit).await?.max_rev)
    }

    /// Purges the tombstones up to `limit`. Answers how many.
    pub async fn purge(self: Rc<Self>, table: TableId, limit: Rev) -> Result<u64> {
        let _flush = self.flushing.lock().await;
        let _merge = self.merging.lock().await;
        self.flush_table(table).await?;
        let (_, store) = self.keyed(table)?;
        let plan = store.purgeable(limit).await?;
        if plan.count == 0 {
            return Ok(0);
        }
        let count = plan.count;
        let done = store.purge(&plan, self.watermark(table)).await?;
        let outputs: Vec<_> = done.outputs.iter().map(|s| s.id()).collect();
        self.replace_segments(table, &done.inputs, &outputs).await?;
        self.doom(store.install_merge(done));
        self.flush_epoch.set(self.flush_epoch.get() + 1);
        self.collect_doomed().await;
        Ok(count)
    }
}
