//! Segments whose index cannot be read. A start goes on without them: they stay in the manifest and on the
//! disk, and what they hold is not known, so every read that they could have a part in fails with their error.
//! Other tables, and writes, go on. `--accept-loss` gives them up for good.
//!
//! A segment with an intact index and a damaged block is not one of these: reads meet the block when they
//! need it. Only the tails of a timeseries table are made from blocks at a start, see `stream::damage`.

use crate::coordinator::Coordinator;
use crate::files;
use crate::segment::{BlockCache, Segment, file_name};
use crate::worker::{Shard, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{SegmentId, TableId};
use strandline_core::io::{Env, TaskQueue};

/// Ends the name of a segment that was given up; nothing reads it again.
pub const GIVEN_UP_SUFFIX: &str = ".damaged";

/// A segment whose index cannot be read.
#[derive(Clone, Debug)]
pub struct DamagedSegment {
    /// Its number.
    pub id: SegmentId,
    /// Its file, relative to the disk's root.
    pub path: String,
    /// Bytes of the file; 0 when it is missing.
    pub bytes: u64,
    /// What a read says: `XX001` with file and offset.
    pub error: Error,
}

/// The damaged segments of one table on one shard.
#[derive(Clone, Debug, Default)]
pub struct Damaged(Rc<Vec<DamagedSegment>>);

impl Damaged {
    /// These.
    pub fn new(segments: Vec<DamagedSegment>) -> Self {
        Damaged(Rc::new(segments))
    }
    /// All of them.
    pub fn segments(&self) -> &[DamagedSegment] {
        &self.0
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// For a read that any segment of the table may have a part in.
    ///
    /// # Errors
    /// The first one's.
    pub fn check(&self) -> Result<()> {
        self.0.first().map_or(Ok(()), |d| {
            Err(d.error.clone().hint(
                "the way back is a snapshot; DROP TABLE works; a start with --accept-loss gives the segment up",
            ))
        })
    }
}

/// Opens a segment that the manifest names.
///
/// # Errors
/// `0A000` of a newer release, and errors of the disk: those say nothing about the segment.
pub async fn open(
    env: &Env,
    dir: &str,
    id: SegmentId,
    cache: Rc<BlockCache>,
) -> Result<std::result::Result<Rc<Segment>, DamagedSegment>> {
    let error = match Segment::open(env, dir, id, cache).await {
        Ok(segment) => return Ok(Ok(segment)),
        Err(e) if e.state() == SqlState::DataCorrupted => e,
        Err(e) => {
            if env.disk.list(dir).await?.contains(&file_name(id)) {
                return Err(e);
            }
            Error::corrupted(format!("segment {dir}/{} is missing", file_name(id)))
        }
    };
    let path = files::join(dir, &file_name(id));
    let bytes = match env
        .disk
        .open(&path, strandline_core::io::FileMode::Buffered)
        .await
    {
        Ok(file) => file.size().await?,
        Err(_) => 0,
    };
    Ok(Err(DamagedSegment {
        id,
        path,
        bytes,
        error,
    }))
}

/// What `--accept-loss` gave up of the segments.
#[derive(Clone, Debug)]
pub struct LostSegment {
    /// Its table's name.
    pub table: String,
    /// Its file, as it was named.
    pub path: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Why.
    pub error: Error,
}

impl Store {
    /// Segments of it whose index cannot be read.
    pub fn damaged(&self) -> Damaged {
        match self {
            Store::Stream(t) => t.damaged(),
            Store::Keyed(t) => t.damaged(),
        }
    }
}

impl Shard {
    /// Tables with damaged segments.
    fn damaged_tables(&self) -> Vec<TableId> {
        let tables = self.tables.borrow();
        let some = tables.iter().filter(|(_, s)| !s.damaged().is_empty());
        some.map(|(&t, _)| t).collect()
    }

    /// Takes the damaged segments of all tables out of the manifest, and their files aside.
    async fn give_up_damaged(&self) -> Result<Vec<LostSegment>> {
        let _flush = self.flushing.lock().await;
        let _merge = self.merging.lock().await;
        let mut lost = Vec::new();
        for table in self.damaged_tables() {
            let Ok((def, store)) = self.store(table) else {
                continue;
            };
            let damaged = store.damaged();
            let gone: BTreeSet<SegmentId> = damaged.segments().iter().map(|d| d.id).collect();
            self.edit_manifest(|m| {
                if let Some(t) = m.tables.get_mut(&table) {
                    t.segments.retain(|s| !gone.contains(s));
                }
            })
            .await?;
            match &store {
                Store::Stream(t) => t.set_damaged(Damaged::default()),
                Store::Keyed(t) => t.set_damaged(Damaged::default()),
            }
            for d in damaged.segments() {
                let aside = format!("{}{GIVEN_UP_SUFFIX}", d.path);
                if d.bytes > 0
                    && let Err(e) = self.env.disk.rename(&d.path, &aside).await
                {
                    tracing::warn!("{} could not be renamed: {e}", d.path);
                }
                tracing::error!(
                    shard = self.id.0,
                    table = def.name,
                    "--accept-loss: segment {} of {} bytes was given up with all its rows: {}",
                    d.path,
                    d.bytes,
                    d.error.message()
                );
                lost.push(LostSegment {
                    table: def.name.clone(),
                    path: d.path.clone(),
                    bytes: d.bytes,
                    error: d.error.clone(),
                });
            }
        }
        Ok(lost)
    }

    /// Removes the files of damaged segments, whose table is gone.
    pub(crate) async fn remove_damaged(&self, damaged: &Damaged) {
        for d in damaged.segments().iter().filter(|d| d.bytes > 0) {
            if let Err(e) = self.env.disk.remove(&d.path).await {
                tracing::warn!(shard = self.id.0, "{} could not be removed: {e}", d.path);
            }
        }
    }
}

impl Coordinator {
    /// Gives up the damaged segments of all shards. What a rows table answers may go back to older versions
    /// by that, so first every replica that follows its feed is told to begin again: the horizon goes above
    /// every x_rev that was ever handed out, before the first segment goes.
    ///
    /// # Errors
    /// From the disk: then some are given up and others not, and the next start with `--accept-loss` goes on.
    pub async fn give_up_damaged(&self) -> Result<Vec<LostSegment>> {
        let mut tables: BTreeMap<TableId, ()> = BTreeMap::new();
        for shard in self.all_shards() {
            let found = self.router.ask(shard, TaskQueue::Background, |s| {
                Box::pin(async move { Ok(s.damaged_tables()) })
            });
            tables.extend(found.await?.into_iter().map(|t| (t, ())));
        }
        if tables.is_empty() {
            return Ok(Vec::new());
        }
        for &table in tables.keys() {
            if self.shared.ledger(table).is_err() {
                continue; // a timeseries table
            }
            // A number of its own, so that a feed which has seen all others is below it too.
            let grant = loop {
                match self.shared.allocator()?.write(table) {
                    Ok(grant) => break grant,
                    Err(refusal) => self.router.wait_for_numbers(table, refusal).await?,
                }
            };
            let horizon = grant.rev;
            grant.ticket.void();
            self.raise_horizon(table, horizon).await?;
        }
        let mut lost = Vec::new();
        for shard in self.all_shards() {
            let given_up = self.router.ask(shard, TaskQueue::Background, |s| {
                Box::pin(async move { s.give_up_damaged().await })
            });
            lost.extend(given_up.await?);
        }
        Ok(lost)
    }
}
