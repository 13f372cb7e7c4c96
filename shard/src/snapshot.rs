//! CHECKPOINT: one consistent cut over all shards and tables, as a folder of hard links.
//!
//! Each shard first waits for its merge to end and flushes what it has, while writers go on. When all have
//! done so, they hold their writers back for as long as it takes to finish the commit in flight and to freeze
//! the memtables (no disk write but that one commit); then writers go on while the frozen memtables are
//! flushed. What was acknowledged before the barrier is in it; what was sent after an acknowledged write
//! that is not in it came after the barrier, on every shard.

use crate::coordinator::Coordinator;
use crate::files;
use crate::manifest::{self, Manifest};
use crate::shared::{CATALOG_KIND, CATALOG_NAME, CatalogFile};
use crate::worker::Shard;
use futures_channel::oneshot;
use futures_util::future::join_all;
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::Lsn;
use strandline_core::io::TaskQueue;

/// The snapshots' directory.
pub const SNAPSHOTS_DIR: &str = "snapshots";
/// What the name of an unfinished snapshot ends with.
const PARTIAL: &str = ".partial";

/// What a shard says in the middle of a CHECKPOINT, and what the leader tells it to do next.
struct Steps {
    ready: oneshot::Sender<()>,
    hold: oneshot::Receiver<()>,
    held: oneshot::Sender<()>,
    freeze: oneshot::Receiver<()>,
}

impl Coordinator {
    /// `CHECKPOINT`: the folder's path in the database's directory. No DDL happens meanwhile.
    pub async fn checkpoint(&self) -> Result<String> {
        let file = self.file.lock().await;
        let (partial, path) = self.name_snapshot().await?;
        let made = self.fill_snapshot(&file, &partial, &path).await;
        if made.is_err() {
            self.discard(&partial).await;
        }
        made.map(|()| path)
    }

    async fn fill_snapshot(&self, file: &CatalogFile, partial: &str, path: &str) -> Result<()> {
        self.env.disk.create_dir_all(partial).await?;
        let (mut ready, mut hold) = (Vec::new(), Vec::new());
        let (mut held, mut freeze) = (Vec::new(), Vec::new());
        let mut done = Vec::new();
        for shard in self.all_shards() {
            let (ready_tx, ready_rx) = oneshot::channel();
            let (hold_tx, hold_rx) = oneshot::channel();
            let (held_tx, held_rx) = oneshot::channel();
            let (freeze_tx, freeze_rx) = oneshot::channel();
            ready.push(ready_rx);
            hold.push(hold_tx);
            held.push(held_rx);
            freeze.push(freeze_tx);
            let dir = partial.to_string();
            let steps = Steps {
                ready: ready_tx,
                hold: hold_rx,
                held: held_tx,
                freeze: freeze_rx,
            };
            done.push(self.router.ask(shard, TaskQueue::Ingest, move |s| {
                Box::pin(async move {
                    let done = s.clone().take_part(dir, steps).await;
                    if done.is_err() {
                        s.remove_unfinished().await;
                    }
                    done
                })
            }));
        }
        // The shards' tasks and this one take turns. None holds its writers while another still flushes: that
        // may take as long as a merge.
        let lead = async move {
            for (said, next) in [(ready, hold), (held, freeze)] {
                if join_all(said).await.iter().any(|s| s.is_err()) {
                    return;
                }
                next.into_iter().for_each(|n| {
                    let _ = n.send(());
                });
            }
        };
        let (results, ()) = futures_util::future::join(join_all(done), lead).await;
        // A shard that could not take part makes the others give up: the reason is its error, not theirs.
        let given_up = |e: &Error| e.state() == SqlState::ObjectNotInPrerequisiteState;
        let failed: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
        if let Some(e) = failed.iter().find(|e| !given_up(e)).or(failed.first()) {
            return Err(e.clone());
        }
        let mut cut = file.clone();
        cut.log = 0;
        for (&table, r) in &mut cut.revisions {
            // The copy has no log: its numbers go on above everything that was handed out.
            r.reserved = self.shared.ledger(table)?.highest().max(r.horizon);
        }
        files::replace(&self.env, partial, CATALOG_NAME, CATALOG_KIND, &cut).await?;
        self.env.disk.rename(partial, path).await?;
        self.env.disk.sync_dir(SNAPSHOTS_DIR).await?;
        Ok(())
    }

    /// Gives back what an unfinished snapshot holds: its links keep the space of old segments.
    async fn discard(&self, partial: &str) {
        let mut dirs = vec![partial.to_string()];
        for shard in self.all_shards() {
            dirs.push(files::join(partial, &manifest::shard_dir(shard)));
            dirs.push(files::join(partial, &manifest::segment_dir(shard)));
        }
        for dir in dirs {
            for name in self.env.disk.list(&dir).await.unwrap_or_default() {
                // Directories stay, empty: they cannot be removed, and take no space.
                let _ = self.env.disk.remove(&files::join(&dir, &name)).await;
            }
        }
    }

    /// `snapshots/20260101T100000Z-1`, and the name it has until it is whole.
    async fn name_snapshot(&self) -> Result<(String, String)> {
        self.env.disk.create_dir_all(SNAPSHOTS_DIR).await?;
        self.env.disk.sync_dir("").await?;
        let there = self.env.disk.list(SNAPSHOTS_DIR).await?;
        for left in there.iter().filter(|t| t.ends_with(PARTIAL)) {
            // A crash or a failure left it.
            self.discard(&files::join(SNAPSHOTS_DIR, left)).await;
        }
        let time = compact_time(self.env.clock.now_ms());
        let free = (1u32..).find(|n| {
            !there
                .iter()
                .any(|t| t.trim_end_matches(PARTIAL) == format!("{time}-{n}"))
        });
        let name = format!("{SNAPSHOTS_DIR}/{time}-{}", free.unwrap_or(u32::MAX));
        Ok((format!("{name}{PARTIAL}"), name))
    }
}

/// `20260101T100000Z`.
fn compact_time(ms: i64) -> String {
    strandline_core::time::format_ms(ms)
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '.')
        .collect::<String>()
        .split('.')
        .next()
        .unwrap_or_default()
        .to_string()
        + "Z"
}

impl Shard {
    async fn take_part(self: Rc<Self>, snapshot: String, steps: Steps) -> Result<()> {
        // No flush or merge changes the segments between the cut and the links.
        let _flush = self.flushing.lock().await;
        let _merge = self.merging.lock().await;
        // Memtables frozen before are part of the cut; get them out of the way while writers still run.
        let tables: Vec<_> = self.tables.borrow().keys().copied().collect();
        self.flush_tables(&tables).await?;
        let given_up = |_| {
            Error::new(
                SqlState::ObjectNotInPrerequisiteState,
                "CHECKPOINT was given up: a shard could not take part",
            )
        };
        let _ = steps.ready.send(());
        steps.hold.await.map_err(given_up)?;
        let cut = {
            let _open = Reopen(&self);
            self.barrier.shut();
            // What is in the log's buffer commits; its completions put it into the memtables.
            self.wal.flush().await?;
            let _ = steps.held.send(());
            steps.freeze.await.map_err(given_up)?;
            let tables: Vec<_> = self.tables.borrow().keys().copied().collect();
            for &table in &tables {
                if let Ok((_, store)) = self.store(table) {
                    store.freeze();
                }
            }
            (tables, self.applied())
        };
        let (tables, applied) = cut;
        for &table in &tables {
            self.note_memory(table);
        }
        self.flush_frozen(&tables).await?;
        self.link_into(&snapshot, applied).await
    }

    /// Links this shard's segments into a snapshot, with a manifest that begins an empty log.
    async fn link_into(&self, snapshot: &str, applied: Lsn) -> Result<()> {
        let manifest: Manifest = self.manifest.lock().await.current().clone();
        let dir = files::join(snapshot, &manifest::shard_dir(self.id));
        let seg_dir = files::join(snapshot, &manifest::segment_dir(self.id));
        let log_dir = files::join(snapshot, &manifest::log_dir(self.id));
        self.env.disk.create_dir_all(&seg_dir).await?;
        self.env.disk.create_dir_all(&log_dir).await?;
        for table in manifest.tables.values() {
            for &segment in &table.segments {
                let name = crate::segment::file_name(segment);
                let from = files::join(&manifest::segment_dir(self.id), &name);
                self.env
                    .disk
                    .hard_link(&from, &files::join(&seg_dir, &name))
                    .await?;
            }
        }
        self.env.disk.sync_dir(&seg_dir).await?;
        let cut = Manifest {
            log_after: applied,
            log_listed: false,
            edits: 0,
            void: Vec::new(),
            ..manifest
        };
        files::replace(&self.env, &dir, manifest::NAME, manifest::KIND, &cut).await?;
        self.env.disk.sync_dir(&dir).await?;
        self.env.disk.sync_dir(snapshot).await?;
        Ok(())
    }
}

/// Opens the barrier again, also when the part ends early.
struct Reopen<'a>(&'a Shard);

impl Drop for Reopen<'_> {
    fn drop(&mut self) {
        self.0.barrier.open();
    }
}
