//! How a shard comes up: manifest, segments, log. Running it again after a crash in its middle gives the
//! same shard: nothing is changed before it is known to be whole.

use crate::damage::{self, Damaged, GIVEN_UP_SUFFIX};
use crate::files;
use crate::manifest::{self, Fence, Manifest};
use crate::manifest_file::ManifestFile;
use crate::router::Router;
use crate::segment::BlockCache;
use crate::shared::Shared;
use crate::store::StoreContext;
use crate::wal::{Wal, WalOptions};
use crate::worker::{MemoryPlan, Parts, Shard, Store, make_store};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result};
use strandline_core::ids::{Lsn, SegmentId, ShardId, TableId};
use strandline_core::io::Env;
use strandline_core::xid::Xid;

/// What a start found.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// The highest xid this shard ever held.
    pub max_xid: Option<Xid>,
    /// Log records replayed.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What was cut from the log's end: a commit that never finished.
    pub torn_bytes: u64,
    /// Records that `--accept-loss` gave up.
    pub lost: u64,
    /// Log files that it gave up without knowing all that they held.
    pub lost_files: u64,
}

impl Shard {
    /// Opens one shard. `max_xid` of the answer goes into [`Shared::finish_recovery`] before any write.
    pub async fn open(
        env: &Env,
        shared: &Arc<Shared>,
        router: &Rc<Router>,
        id: ShardId,
    ) -> Result<(Rc<Shard>, Recovery)> {
        let (dir, seg_dir, log_dir) = (
            manifest::shard_dir(id),
            manifest::segment_dir(id),
            manifest::log_dir(id),
        );
        env.disk.create_dir_all(&seg_dir).await?;
        env.disk.create_dir_all(&log_dir).await?;
        env.disk.sync_dir(&dir).await?;
        env.disk.sync_dir("").await?;
        let catalog = shared.published().catalog.clone();
        let found = ManifestFile::read(env, &dir).await?;
        if found.is_none() && catalog.tables().next().is_some() {
            // Every shard had one before the first table was made. Without it all segments would be strays.
            return Err(
                Error::corrupted(format!("file {dir}/{} is missing", manifest::NAME))
                    .hint("the way back is a snapshot as a whole"),
            );
        }
        let mut manifest = found.unwrap_or_else(|| Manifest {
            next_segment: 1,
            ..Manifest::default()
        });
        let fence: Option<Fence> =
            files::read(env, &dir, manifest::FENCE_NAME, manifest::FENCE_KIND).await?;

        let plan = MemoryPlan::of(&shared.limits, shared.shards);
        let cache = BlockCache::new(plan.cache);
        let next_segment = next_segment(env, &seg_dir, manifest.next_segment).await?;
        let cx = StoreContext {
            dir: seg_dir.clone(),
            limits: shared.limits.clone(),
            next_segment: Rc::new(Cell::new(next_segment)),
            cache: cache.clone(),
        };
        manifest
            .tables
            .retain(|id, _| catalog.table_by_id(*id).is_some());
        let mut tables: BTreeMap<TableId, Store> = BTreeMap::new();
        for def in catalog.tables() {
            let store = make_store(env, def.clone(), &cx, &plan);
            let (mut segments, mut damaged) = (Vec::new(), Vec::new());
            if let Some(t) = manifest.tables.get(&def.id) {
                for &segment in &t.segments {
                    match damage::open(env, &seg_dir, segment, cache.clone()).await? {
                        Ok(segment) => segments.push(segment),
                        Err(lost) => {
                            tracing::error!(
                                shard = id.0,
                                table = def.name,
                                "{}: reads that could need it fail, others go on",
                                lost.error.message()
                            );
                            damaged.push(lost);
                        }
                    }
                }
            }
            match &store {
                Store::Stream(t) => {
                    t.set_damaged(Damaged::new(damaged));
                    t.open_segments(segments).await?;
                }
                Store::Keyed(t) => {
                    t.set_damaged(Damaged::new(damaged));
                    t.open_segments(segments).await?;
                }
            }
            tables.insert(def.id, store);
        }

        let mut max_xid = Xid::parse(&manifest.max_xid).unwrap_or(Xid(0));
        let options = WalOptions {
            after: manifest.log_after,
            accept_loss: shared.accept_loss,
            listed: manifest.log_listed,
            reached: log_reached(&manifest, fence),
        };
        let (wal, report) = Wal::open(
            env,
            &log_dir,
            &shared.limits,
            options,
            &mut |lsn, kind, body| {
                if manifest.is_void(lsn) || fence.is_some_and(|f| lsn >= f.from) {
                    return Ok(());
                }
                let flushed = |t: TableId| manifest.tables.get(&t).map_or(0, |m| m.flushed.0);
                Shard::replay_into(&tables, flushed, lsn, kind.0, body, &mut max_xid)
            },
        )
        .await?;
        let last = wal.last_lsn();
        if let Some(Fence { from }) = fence {
            // What was behind the fence stays void for as long as the log holds it.
            let to = Lsn(last.0 + 1);
            if from < to {
                manifest.void.push((from, to));
            }
        }
        manifest.log_listed = true;
        manifest.next_segment = next_segment;
        manifest.max_xid = max_xid.to_string();
        let manifest = ManifestFile::begin(env, &dir, manifest).await?;
        if fence.is_some() {
            env.disk
                .remove(&files::join(&dir, manifest::FENCE_NAME))
                .await?;
            env.disk.sync_dir(&dir).await?;
        }
        remove_strays(env, &seg_dir, manifest.current()).await?;

        let recovery = Recovery {
            max_xid: Some(max_xid),
            records: report.records,
            bytes: report.bytes,
            torn_bytes: report.torn_bytes,
            lost: report.lost,
            lost_files: report.lost_files,
        };
        let shard = Shard::assemble(Parts {
            id,
            env: env.clone(),
            shared: shared.clone(),
            router: router.clone(),
            wal,
            cache,
            cx,
            tables,
            manifest,
            applied: last,
        });
        Ok((shard, recovery))
    }
}

/// How far the log has come at least: flushes and fences are of records that were durable. Numbers below are
/// never given out again, whatever the log has lost: a flush would hide the records that got them.
fn log_reached(manifest: &Manifest, fence: Option<Fence>) -> Lsn {
    let flushed = manifest.tables.values().map(|t| t.flushed.0);
    let fenced = fence.iter().map(|f| f.from.0.saturating_sub(1));
    let void = manifest.void.iter().map(|(_, to)| to.0.saturating_sub(1));
    Lsn(flushed.chain(fenced).chain(void).max().unwrap_or(0))
}

/// A number above every segment file there is, listed in the manifest or not.
async fn next_segment(env: &Env, dir: &str, listed: u64) -> Result<u64> {
    let mut next = listed.max(1);
    for name in env.disk.list(dir).await? {
        let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(n) = digits.parse::<u64>() {
            next = next.max(
                n.checked_add(1)
                    .ok_or_else(|| Error::corrupted(format!("{dir}/{name} is no segment")))?,
            );
        }
    }
    Ok(next)
}

/// Removes files that no manifest names: flushes and merges that a crash cut short.
async fn remove_strays(env: &Env, dir: &str, manifest: &Manifest) -> Result<()> {
    let named: BTreeSet<String> = manifest
        .tables
        .values()
        .flat_map(|t| &t.segments)
        .map(|&s: &SegmentId| crate::segment::file_name(s))
        .collect();
    for name in env.disk.list(dir).await? {
        if !named.contains(&name) && !name.ends_with(GIVEN_UP_SUFFIX) {
            env.disk.remove(&files::join(dir, &name)).await?;
        }
    }
    Ok(())
}
