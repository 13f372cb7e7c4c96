//! Writes, as the owning shard carries them out.

use crate::stream::StreamTable;
use crate::wal::RecordKind;
use crate::worker::{RECORD_KEYED, RECORD_STREAM, Shard, Store, count};
use futures_channel::oneshot;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{ColumnId, Rev, TableId};
use strandline_core::keyed::{self, Version};
use strandline_core::revision::{Refusal, Ticket, WriteGrant};
use strandline_core::stream::{self, batch::StreamBatch};
use strandline_core::value::Value;
use strandline_core::xid::Xid;

/// What a write of one row is taken for before it is known.
const ONE_ROW_BYTES: usize = 256;

/// What a compare-and-set does when it wins.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// UPDATE: these columns.
    Set(Vec<(ColumnId, Value)>),
    /// DELETE.
    Delete,
}

fn gone<E>(_: E) -> Error {
    Error::new(
        SqlState::AdminShutdown,
        "the server went down before the write was durable: it may or may not be there",
    )
}

impl Shard {
    /// `54000` when the new entities of a batch would not fit the table here. Only a look: what it saw may
    /// have changed when the batch comes.
    pub fn check_entities(&self, table: TableId, batch: &StreamBatch) -> Result<()> {
        let store = self.stream(table)?;
        let (new, held) = store.new_entities(batch);
        if new > 0 && (held + new) as u64 > self.most_entities(&store) {
            return Err(self.too_many_entities(table));
        }
        Ok(())
    }

    /// How many entities a table may have here now.
    fn most_entities(&self, store: &StreamTable) -> u64 {
        match self.names_full() {
            true => store.entities() as u64,
            false => self.shared.limits.entities,
        }
    }

    fn too_many_entities(&self, table: TableId) -> Error {
        let name = (self.shared.table(table)).map_or_else(|_| String::new(), |t| t.name.clone());
        self.shared.entities_refusal(&name)
    }

    /// Writes those rows of a batch whose entities fit the table, and answers how many were left out.
    pub async fn write_fitting(
        self: Rc<Self>,
        table: TableId,
        batch: Arc<StreamBatch>,
    ) -> Result<u64> {
        let store = self.admit_stream(table, &batch).await?;
        let max = self.most_entities(&store);
        let rows = batch.rows();
        let fits = store.entities() + batch.entities.len() <= max as usize;
        let batch = match fits {
            true => batch,
            false => Arc::new(store.fitting(&batch, max)),
        };
        let left_out = (rows - batch.rows()) as u64;
        if batch.rows() > 0 {
            self.log_stream(table, batch)?.await.map_err(gone)??;
        }
        Ok(left_out)
    }

    /// Writes a batch of fragments; answers when it is durable and visible.
    pub async fn write_stream(self: Rc<Self>, table: TableId, batch: StreamBatch) -> Result<()> {
        self.admit_stream(table, &batch).await?;
        self.log_stream(table, Arc::new(batch))?
            .await
            .map_err(gone)?
    }

    /// Waits until a batch may be logged.
    async fn admit_stream(&self, table: TableId, batch: &StreamBatch) -> Result<Rc<StreamTable>> {
        let bytes = batch.memory_bytes();
        loop {
            self.admit(bytes).await?;
            let store = self.stream(table)?;
            if !store.holds_any(batch) {
                return Ok(store);
            }
            store.wait_for_held().await;
        }
    }

    /// DELETE of an entity of a MUTABLE table: false when it is not live. What it decides, it decides with
    /// nothing of the entity on its way: the tombstone in the log then says the same in every replay.
    pub async fn delete_entity(self: Rc<Self>, table: TableId, entity: String) -> Result<bool> {
        let hold = loop {
            self.admit(ONE_ROW_BYTES).await?;
            let store = self.stream(table)?;
            if !store.is_mutable() {
                return Err(Error::new(
                    SqlState::FeatureNotSupported,
                    "DELETE is not possible on an append-only timeseries table",
                ));
            }
            store.check_tails()?;
            if store.number_of(&entity).is_none() {
                return Ok(false);
            }
            match store.hold(&entity) {
                Some(hold) => break hold,
                None => store.wait_for_held().await,
            }
        };
        // An error is that of the records it waited for; they have been told.
        let _ = self.wal.flush().await;
        self.admit(ONE_ROW_BYTES).await?;
        let Some(batch) = self.stream(table)?.tombstone(&entity) else {
            return Ok(false);
        };
        let logged = self.log_stream(table, Arc::new(batch))?;
        drop(hold);
        logged.await.map_err(gone)??;
        Ok(true)
    }

    /// Numbers the entities of a batch and appends it to the log.
    fn log_stream(
        self: &Rc<Self>,
        table: TableId,
        batch: Arc<StreamBatch>,
    ) -> Result<oneshot::Receiver<Result<()>>> {
        let store = self.stream(table)?;
        let known = store.entities();
        let ids = store
            .intern(&batch, self.most_entities(&store))
            .ok_or_else(|| self.too_many_entities(table))?;
        if store.entities() > known {
            self.shared.note_entities(store.entities() as u64);
        }
        let (reply, answer) = oneshot::channel();
        let shard = self.clone();
        let logged = batch.clone();
        self.wal.append(
            RecordKind(RECORD_STREAM),
            &mut |out| {
                out.extend_from_slice(&table.0.to_le_bytes());
                stream::wire::encode_batch(&logged, out);
            },
            Box::new(move |done| {
                let _ = reply.send(match done {
                    Ok(lsn) => {
                        store.apply_interned(&batch, &ids, lsn);
                        shard.note_applied(lsn);
                        shard.note_memory(table);
                        count(&shard.counters.stream_rows, batch.rows() as u64);
                        Ok(())
                    }
                    Err(e) => {
                        shard.commit_failed(None);
                        Err(e)
                    }
                });
            }),
        )?;
        Ok(answer)
    }

    /// Writes new rows, whose numbers are granted already.
    pub async fn insert_rows(
        self: Rc<Self>,
        table: TableId,
        versions: Vec<Version>,
        ticket: Ticket,
    ) -> Result<()> {
        // An error on the way drops the ticket: nothing of the write exists, its numbers are void.
        self.admit(versions.iter().map(Version::memory_bytes).sum())
            .await?;
        self.keyed(table)?;
        let versions = versions.into_iter().map(Rc::new).collect();
        self.log_versions(table, versions, ticket)?
            .await
            .map_err(gone)?
    }

    /// UPDATE or DELETE of one row: the new version, or `None` when the row is missing, deleted or moved on.
    pub async fn change_row(
        self: Rc<Self>,
        table: TableId,
        xid: Xid,
        expected: Option<Rev>,
        change: Change,
    ) -> Result<Option<Version>> {
        let key = xid.to_bytes();
        loop {
            self.admit(ONE_ROW_BYTES).await?;
            let (_, store) = self.keyed(table)?;
            let newest = match store.newest_in_memory(&key) {
                Some(v) => v,
                None => {
                    let epoch = self.flush_epoch.get();
                    let stored = store.newest(&key).await?;
                    if epoch != self.flush_epoch.get() || self.barrier.is_shut() {
                        continue;
                    }
                    match store.newest_in_memory(&key).or(stored) {
                        Some(v) => v,
                        None => return Ok(None),
                    }
                }
            };
            if newest.deleted || expected.is_some_and(|rev| rev != newest.rev) {
                return Ok(None);
            }
            // From here to the log record nothing is awaited: the check still holds when it is logged.
            let WriteGrant { rev, ticket } = match self.shared.allocator()?.write(table) {
                Ok(grant) => grant,
                Err(refusal) => {
                    self.router.wait_for_numbers(table, refusal).await?;
                    continue;
                }
            };
            let version = Version {
                key: newest.key.clone(),
                rev,
                deleted: change == Change::Delete,
                first: false,
                values: match &change {
                    Change::Set(set) => keyed::with_values(&newest.values, set),
                    Change::Delete => newest.values.clone(),
                },
            };
            let version = Rc::new(version);
            self.log_versions(table, vec![version.clone()], ticket)?
                .await
                .map_err(gone)??;
            return Ok(Some(
                Rc::try_unwrap(version).unwrap_or_else(|v| (*v).clone()),
            ));
        }
    }

    /// Stages versions and appends them to the log.
    fn log_versions(
        self: &Rc<Self>,
        table: TableId,
        versions: Vec<Rc<Version>>,
        ticket: Ticket,
    ) -> Result<oneshot::Receiver<Result<()>>> {
        let (_, store) = self.keyed(table)?;
        let (reply, answer) = oneshot::channel();
        versions.iter().for_each(|v| store.stage(v.clone()));
        let versions = Rc::new(versions);
        let shard = self.clone();
        let logged = versions.clone();
        let staged = (store.clone(), versions.clone());
        let ticket = Some(ticket);
        #[cfg(feature = "testing")]
        let ticket = ticket.and_then(|t| {
            if self.shared.faults.publish_early {
                t.land();
                None
            } else {
                Some(t)
            }
        });
        let appended = self.wal.append(
            RecordKind(RECORD_KEYED),
            &mut |out| {
                out.extend_from_slice(&table.0.to_le_bytes());
                keyed::wire::encode_versions(&logged, out);
            },
            Box::new(move |done| {
                let _ = reply.send(match done {
                    Ok(lsn) => {
                        versions.iter().for_each(|v| store.apply(v.clone(), lsn));
                        shard.note_applied(lsn);
                        shard.note_memory(table);
                        count(&shard.counters.keyed_versions, versions.len() as u64);
                        // Visible before it lands: the watermark may pass it from here on.
                        if let Some(ticket) = ticket {
                            ticket.land();
                        }
                        Ok(())
                    }
                    Err(e) => {
                        versions.iter().for_each(|v| store.unstage(v));
                        shard.commit_failed(ticket);
                        Err(e)
                    }
                });
            }),
        );
        if let Err(e) = appended {
            staged.1.iter().for_each(|v| staged.0.unstage(v));
            return Err(e);
        }
        #[cfg(feature = "testing")]
        if self.shared.faults.ack_early {
            let (now, early) = oneshot::channel();
            let _ = now.send(Ok(()));
            return Ok(early);
        }
        Ok(answer)
    }

    /// Replays one log record into the stores; records of dropped tables pass by.
    pub(crate) fn replay_into(
        tables: &std::collections::BTreeMap<TableId, Store>,
        flushed: impl Fn(TableId) -> u64,
        lsn: strandline_core::ids::Lsn,
        kind: u8,
        body: &[u8],
        max_xid: &mut Xid,
    ) -> Result<()> {
        let Some((table, body)) = body.split_first_chunk::<4>() else {
            return Err(Error::corrupted(format!(
                "log record {} is too short",
                lsn.0
            )));
        };
        let table = TableId(u32::from_le_bytes(*table));
        let Some(store) = tables.get(&table) else {
            return Ok(());
        };
        match (kind, store) {
            (RECORD_STREAM, Store::Stream(t)) => {
                if lsn.0 > flushed(table) {
                    t.apply(&stream::wire::decode_batch(body)?, lsn);
                }
            }
            (RECORD_KEYED, Store::Keyed(t)) => {
                for version in keyed::wire::decode_versions(body)? {
                    if let Ok(key) = <[u8; 16]>::try_from(&version.key[..]) {
                        *max_xid = (*max_xid).max(Xid::from_bytes(key));
                    }
                    if lsn.0 > flushed(table) {
                        t.apply_replayed(version, lsn);
                    }
                }
            }
            _ => {
                return Err(Error::corrupted(format!(
                    "log record {} is of kind {kind}, which table number {table} cannot hold",
                    lsn.0
                )));
            }
        }
        Ok(())
    }
}

/// What a refused allocation waits for.
pub fn refusal_error(refusal: &Refusal) -> Option<Error> {
    match refusal {
        Refusal::UnknownTable => Some(crate::shared::no_table()),
        Refusal::Exhausted => Some(Error::new(
            SqlState::ProgramLimitExceeded,
            "the table has used all of its x_rev numbers (2^53)",
        )),
        Refusal::BatchSize => Some(Error::internal(
            "an INSERT was cut into runs of the wrong size",
        )),
        Refusal::Sealed => Some(Error::new(
            SqlState::AdminShutdown,
            "the server is going down and takes no more writes",
        )),
        Refusal::RingFull | Refusal::NeedReservation => None,
    }
}
