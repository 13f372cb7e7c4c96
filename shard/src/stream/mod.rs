//! The stream store: one timeseries table on one shard.
//!
//! A write goes `apply` → dictionary (name to number), tails (newest sample of each channel), memtable. A
//! full memtable is frozen, flushed to a segment for each day and installed once the manifest names them;
//! segments of one bucket of time are merged. A read takes a [`snapshot::Snapshot`] and goes over its sources.
//!
//! | file | holds |
//! |---|---|
//! | `keys` | keys of blocks |
//! | `source` | blocks and runs in one shape; rows of one entity out of all of them |
//! | `snapshot` | what a reader sees |
//! | `scan`, `latest`, `aggregate` | the three reads |
//! | `overlap`, `pack` | what of a snapshot stands alone, and what must be merged |
//! | `state`, `held` | MUTABLE tables: the current state; DELETE |
//! | `explain` | what a read would look at |
//! | `pick` | which segments are merged, and how time is cut |
//! | `damage` | what a start could not read |
//! | `blocks`, `writer`, `flush`, `merge` | writing segments |

mod aggregate;
mod blocks;
pub mod budget;
mod damage;
mod explain;
mod flush;
mod held;
mod keys;
#[cfg(test)]
mod large_tests;
mod latest;
mod merge;
mod overlap;
mod pack;
pub mod pick;
#[cfg(test)]
mod pick_tests;
mod scan;
mod snapshot;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use flush::FlushDone;
pub use held::Hold;
pub use merge::{MergeDone, MergeJob};

use crate::segment::Segment;
use crate::store::{MemoryUse, StoreContext};
use held::Held;
use keys::only_entity;
use snapshot::{Snapshot, stored_channels};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{ColumnId, Lsn};
use strandline_core::io::Env;
use strandline_core::routing::hash64;
use strandline_core::scan::{Entities, TsRange};
use strandline_core::schema::{ColumnDef, TableDef};
use strandline_core::stream::batch::{BatchCells, StreamBatch};
use strandline_core::stream::cells::ColView;
use strandline_core::stream::dictionary::Dictionary;
use strandline_core::stream::memtable::{MemTable, Pick, Run};
use strandline_core::stream::tails::{TailColumn, Tails};
use strandline_core::value::{Cell, Kind, Value};

/// A memtable on its way to a segment.
struct Frozen {
    runs: Vec<Rc<Run>>,
    bytes: usize,
    rows: u64,
    lsns: (Lsn, Lsn),
}

struct State {
    def: Arc<TableDef>,
    dictionary: Dictionary,
    tails: Tails,
    memtable: MemTable,
    /// Oldest first.
    frozen: VecDeque<Rc<Frozen>>,
    /// By flush, oldest first; readers hold the list as it was.
    segments: Rc<Vec<Rc<Segment>>>,
    next_flush: u64,
    /// Batches applied: while it stands still, tails say what a snapshot says.
    applied: u64,
    /// Bytes of tails past which some are given up.
    tails_most: usize,
    /// Entity numbers by name, as of some size of the dictionary.
    by_name: Option<Rc<Vec<u32>>>,
}

/// One timeseries table on one shard. Never borrows its state across an await.
pub struct StreamTable {
    env: Env,
    cx: StoreContext,
    state: RefCell<State>,
    damage: damage::Damage,
    /// Entities of a MUTABLE table that a DELETE is deciding on.
    held: Held,
}

/// An entity that a read has come to.
struct EntityRef {
    id: u32,
    hash: u64,
    name: Vec<u8>,
}

/// Entities of a read by number.
enum EntityList {
    All(Rc<Vec<u32>>),
    In(Vec<u32>),
}

impl EntityList {
    fn len(&self) -> usize {
        match self {
            EntityList::All(ids) => ids.len(),
            EntityList::In(ids) => ids.len(),
        }
    }
    fn id(&self, n: usize) -> u32 {
        match self {
            EntityList::All(ids) => ids[n],
            EntityList::In(ids) => ids[n],
        }
    }
    fn is_all(&self) -> bool {
        matches!(self, EntityList::All(_))
    }
    /// The filters of segments are worth asking for a few entities, not for every one.
    fn filter_hash(&self, e: &EntityRef) -> Option<u64> {
        (!self.is_all()).then_some(e.hash)
    }
}

impl StreamTable {
    /// An empty table.
    pub fn new(env: Env, def: Arc<TableDef>, cx: StoreContext) -> Self {
        let memtable = MemTable::new(def.options.dedup);
        StreamTable {
            env,
            cx,
            damage: damage::Damage::default(),
            state: RefCell::new(State {
                def,
                dictionary: Dictionary::new(),
                tails: Tails::default(),
                memtable,
                frozen: VecDeque::new(),
                segments: Rc::default(),
                next_flush: 1,
                applied: 0,
                tails_most: usize::MAX,
                by_name: None,
            }),
            held: Held::default(),
        }
    }

    /// The table as the catalog describes it now. A channel must be known here before a batch brings it.
    pub fn set_def(&self, def: Arc<TableDef>) {
        let mut state = self.state.borrow_mut();
        if Arc::ptr_eq(&state.def, &def) {
            return;
        }
        // Names and policies may change every day, channels go seldom: a look at each tail for each of
        // thousands of channels is for those days alone.
        let gone = |c: &ColumnDef| def.column_by_id(c.id).is_none();
        if state.def.columns.iter().any(gone) {
            let kept = |id| id == ColumnId::DELETED || def.column_by_id(id).is_some();
            state.tails.retain(kept);
        }
        state.def = def;
    }

    fn def(&self) -> Arc<TableDef> {
        self.state.borrow().def.clone()
    }

    /// Takes up the table's segments, at start and before the log is replayed, and rebuilds the tails.
    ///
    /// Damage is noted, and no error: see `damage`.
    ///
    /// # Errors
    /// I/O errors.
    pub async fn open_segments(&self, mut segments: Vec<Rc<Segment>>) -> Result<()> {
        segments.sort_by_key(|s| s.info().flushes);
        {
            let mut state = self.state.borrow_mut();
            state.next_flush = segments
                .iter()
                .map(|s| s.info().flushes.1 + 1)
                .max()
                .unwrap_or(1);
            state.segments = Rc::new(segments.clone());
        }
        let channels = stored_channels(&self.def());
        // Newest first: then a block whose channels end before what is known needs no reading.
        for segment in segments.iter().rev() {
            for block in (0..segment.blocks(0).len()).rev() {
                match self.tails_of_block(segment, block, &channels).await {
                    Err(e) if e.state() == SqlState::DataCorrupted => {
                        self.note_damage(segment, block, e).await?;
                    }
                    done => done?,
                }
                self.keep_tails_within_bound();
                self.env.breathe().await;
            }
        }
        Ok(())
    }

    async fn tails_of_block(
        &self,
        segment: &Segment,
        block: usize,
        channels: &[(ColumnId, Kind)],
    ) -> Result<()> {
        let meta = &segment.blocks(0)[block];
        let mut unread: Vec<(ColumnId, Kind)> = Vec::new();
        if let Some(name) = only_entity(meta) {
            let mut state = self.state.borrow_mut();
            let State {
                dictionary, tails, ..
            } = &mut *state;
            let id = dictionary.intern(name, hash64(name));
            for &(channel, kind) in channels {
                let Some(chunk) = meta.chunk(channel) else {
                    continue;
                };
                let tail = tails.column_mut(channel, kind);
                if tail.is_given_up() {
                    continue;
                }
                let newest = |ts| tail.get(id).is_none_or(|(known, _)| ts > known);
                match (&chunk.stats, chunk.edges_ts) {
                    (_, Some((_, last))) if !newest(last) => {}
                    (Some(stats), Some((_, last))) if kind == Kind::F64 => {
                        tail.note_f64(id, last, stats.last);
                    }
                    _ => unread.push((channel, kind)),
                }
            }
        } else {
            unread = channels.to_vec();
        }
        if unread.is_empty() {
            return Ok(());
        }
        let unit = source::load(segment, block, &unread).await?;
        let views = unit.views();
        let mut state = self.state.borrow_mut();
        let State {
            dictionary, tails, ..
        } = &mut *state;
        let mut note = |name: &[u8], rows: std::ops::Range<usize>| {
            let id = dictionary.intern(name, hash64(name));
            for (&(channel, kind), view) in unread.iter().zip(&views) {
                let Some(view) = view else { continue };
                let Some(row) = view.last_row(rows.clone()) else {
                    continue;
                };
                let Some(cell) = view.index(row) else {
                    continue;
                };
                let ts = unit.ts()[row];
                let tail = tails.column_mut(channel, kind);
                if tail.get(id).is_none_or(|(known, _)| ts > known) {
                    match view.cell(cell) {
                        Cell::F64(x) => tail.note_f64(id, ts, x),
                        Cell::Str(s) => tail.note_str(id, ts, s),
                        _ => {}
                    }
                }
            }
        };
        match (unit.entity_runs(), only_entity(meta)) {
            (Some((names, ends)), _) => {
                for n in 0..names.len() {
                    note(names.get_bytes(n), source::run_rows(ends, n));
                }
            }
            (None, Some(name)) => note(name, 0..unit.ts().len()),
            (None, None) => {
                return Err(Error::corrupted(format!(
                    "segment {} is damaged: block {block} has no entities",
                    segment.path()
                )));
            }
        }
        Ok(())
    }

    /// How many entities of a batch are new here, and how many the table has.
    pub fn new_entities(&self, batch: &StreamBatch) -> (usize, usize) {
        let state = self.state.borrow();
        let new = (0..batch.entities.len()).filter(|&i| !knows(&state.dictionary, batch, i));
        (new.count(), state.dictionary.len())
    }

    /// Gives the entities of a batch their numbers, before its log record is made; `None`, and nothing is
    /// given, when the table would hold more than `max` of them. If the record then fails, names that were
    /// new stay known, without samples, until the next start.
    pub fn intern(&self, batch: &StreamBatch, max: u64) -> Option<Vec<u32>> {
        let may_fit = self.entities() + batch.entities.len() <= max as usize;
        if !may_fit {
            let (new, held) = self.new_entities(batch);
            // Without a new one there is nothing to refuse, whatever the limit was lowered to.
            if new > 0 && (held + new) as u64 > max {
                return None;
            }
        }
        Some(intern(&mut self.state.borrow_mut().dictionary, batch))
    }

    /// The rows of a batch whose entities are known here, or new and among the first for which `max` has room.
    pub fn fitting(&self, batch: &StreamBatch, max: u64) -> StreamBatch {
        let state = self.state.borrow();
        let mut room = max.saturating_sub(state.dictionary.len() as u64);
        let keep: Vec<bool> = (0..batch.entities.len())
            .map(|i| {
                let known = knows(&state.dictionary, batch, i);
                let fits = known || room > 0;
                room -= u64::from(fits && !known);
                fits
            })
            .collect();
        batch.of_entities(|i| keep[i])
    }

    /// Makes a durable batch visible. Batches come in the order of their log records.
    pub fn apply(&self, batch: &StreamBatch, lsn: Lsn) {
        let ids = intern(&mut self.state.borrow_mut().dictionary, batch);
        self.apply_interned(batch, &ids, lsn);
    }

    /// As [`StreamTable::apply`], with the numbers that [`StreamTable::intern`] gave.
    pub fn apply_interned(&self, batch: &StreamBatch, ids: &[u32], lsn: Lsn) {
        let mut state = self.state.borrow_mut();
        let State {
            tails,
            memtable,
            applied,
            ..
        } = &mut *state;
        for column in &batch.columns {
            let tail = tails.column_mut(column.id, column.cells.kind());
            let place = |row: usize| place(batch, ids, row);
            match (&column.cells, &column.rows) {
                (BatchCells::F64(cells), None) => {
                    for (row, &x) in cells.iter().enumerate() {
                        let (id, ts) = place(row);
                        tail.note_f64(id, ts, x);
                    }
                }
                (BatchCells::F64(cells), Some(rows)) => {
                    for (&row, &x) in rows.iter().zip(cells) {
                        let (id, ts) = place(row as usize);
                        tail.note_f64(id, ts, x);
                    }
                }
                (BatchCells::Str(cells), rows) => {
                    for (i, text) in cells.iter().enumerate() {
                        let row = rows.as_ref().map_or(i, |r| r[i] as usize);
                        let (id, ts) = place(row);
                        tail.note_str(id, ts, text);
                    }
                }
            }
        }
        // What a tombstone covers is never seen again.
        let covers = batch.columns.iter().find(|c| c.id == ColumnId::DELETED);
        for cell in 0..covers.map_or(0, |c| c.cells.len()) {
            let rows = covers.and_then(|c| c.rows.as_ref());
            let (id, ts) = place(batch, ids, rows.map_or(cell, |r| r[cell] as usize));
            tails.forget(id, ts);
        }
        memtable.apply(batch, ids, lsn);
        *applied += 1;
        drop(state);
        self.keep_tails_within_bound();
    }

    /// Memory it holds.
    pub fn memory_bytes(&self) -> MemoryUse {
        let state = self.state.borrow();
        MemoryUse {
            active: state.memtable.memory_bytes(),
            frozen: state.frozen.iter().map(|f| f.bytes).sum(),
            tails: state.tails.memory_bytes(),
            names: state.dictionary.memory_bytes(),
        }
    }

    /// The first log record that only memory has.
    pub fn oldest_unflushed(&self) -> Option<Lsn> {
        let state = self.state.borrow();
        let frozen = state.frozen.front().map(|f| f.lsns.0);
        frozen.or_else(|| state.memtable.lsns().map(|l| l.0))
    }

    /// Entities known.
    pub fn entities(&self) -> usize {
        self.state.borrow().dictionary.len()
    }

    /// Stored rows: duplicates too, and fragments that have not been put together yet.
    pub fn rows(&self) -> u64 {
        let state = self.state.borrow();
        state.memtable.rows()
            + state.frozen.iter().map(|f| f.rows).sum::<u64>()
            + state.segments.iter().map(|s| s.info().rows).sum::<u64>()
    }

    /// Its segments, oldest first.
    pub fn segments(&self) -> Vec<Rc<Segment>> {
        self.state.borrow().segments.to_vec()
    }

    /// Numbers of the entities of a read; those that are not known have no rows. All of them come by name:
    /// neighbours then share blocks.
    async fn entity_list(&self, wanted: &Entities) -> EntityList {
        match wanted {
            Entities::In(names) => {
                let state = self.state.borrow();
                let ids = names
                    .iter()
                    .filter_map(|n| state.dictionary.get(n.as_bytes(), hash64(n.as_bytes())));
                EntityList::In(ids.collect())
            }
            Entities::All => {
                let (len, known) = {
                    let state = self.state.borrow();
                    (state.dictionary.len(), state.by_name.clone())
                };
                if let Some(known) = known.filter(|k| k.len() == len) {
                    return EntityList::All(known);
                }
                let mut ids: Vec<u32> = (0..len as u32).collect();
                self.sort_by_name(&mut ids).await;
                let ids = Rc::new(ids);
                self.state.borrow_mut().by_name = Some(ids.clone());
                EntityList::All(ids)
            }
        }
    }

    async fn sort_by_name(&self, ids: &mut Vec<u32>) {
        source::sort_slowly(&self.env, ids, |&a, &b| {
            let state = self.state.borrow();
            state.dictionary.name(a).cmp(state.dictionary.name(b))
        })
        .await;
    }

    fn entity_ref(&self, list: &EntityList, n: usize) -> Option<EntityRef> {
        self.entity_of(list.id(n))
    }

    fn entity_of(&self, id: u32) -> Option<EntityRef> {
        let state = self.state.borrow();
        let name = ((id as usize) < state.dictionary.len()).then(|| state.dictionary.name(id))?;
        Some(EntityRef {
            id,
            hash: hash64(name),
            name: name.to_vec(),
        })
    }

    /// What a read sees from now on. `range` and `channels` (`None`: all) bound what is copied of the part
    /// of the memtable that is still being written.
    fn snapshot(
        &self,
        entities: &EntityList,
        range: TsRange,
        channels: Option<&[(ColumnId, Kind)]>,
    ) -> Snapshot {
        let state = self.state.borrow();
        let ids = match entities {
            EntityList::All(_) => None,
            EntityList::In(ids) => {
                let mut ids = ids.clone();
                ids.sort_unstable();
                Some(ids)
            }
        };
        let channels: Option<Vec<ColumnId>> = channels.map(|c| c.iter().map(|c| c.0).collect());
        let pick = Pick {
            entities: ids.as_deref(),
            range,
            channels: channels.as_deref(),
        };
        let mut runs: Vec<Rc<Run>> = Vec::new();
        state
            .frozen
            .iter()
            .for_each(|f| runs.extend(f.runs.iter().cloned()));
        runs.extend(state.memtable.snapshot(&pick));
        Snapshot {
            def: state.def.clone(),
            segments: state.segments.clone(),
            runs,
            applied: state.applied,
        }
    }

    /// The last sample of a channel within a range, where the tails know it: they do while nothing newer
    /// than the range, and nothing since the snapshot, has come, and it is no long text.
    fn tail_answers(
        &self,
        snapshot: &Snapshot,
        entity: u32,
        channel: ColumnId,
        range: TsRange,
    ) -> Option<Option<(i64, Value)>> {
        if !self.tails_hold() {
            return None;
        }
        let state = self.state.borrow();
        let tail = state.tails.column(channel);
        if tail.is_some_and(TailColumn::is_given_up) {
            return None;
        }
        match tail.and_then(|c| c.get(entity)) {
            None => Some(None),
            Some((ts, _)) if ts < range.from => Some(None),
            Some((ts, Some(cell))) if ts <= range.to && state.applied == snapshot.applied => {
                let value = match cell {
                    Cell::F64(x) => Value::F64(x),
                    Cell::Str(s) => Value::str(s),
                    _ => Value::Null,
                };
                Some(Some((ts, value)))
            }
            Some(_) => None,
        }
    }
}

/// Entity number and ts of a row.
fn place(batch: &StreamBatch, ids: &[u32], row: usize) -> (u32, i64) {
    (ids[batch.entity_of_row[row] as usize], batch.ts[row])
}

fn knows(dictionary: &Dictionary, batch: &StreamBatch, entity: usize) -> bool {
    let (name, hash) = (
        batch.entities.get_bytes(entity),
        batch.entity_hashes[entity],
    );
    dictionary.get(name, hash).is_some()
}

fn intern(dictionary: &mut Dictionary, batch: &StreamBatch) -> Vec<u32> {
    (0..batch.entities.len())
        .map(|i| dictionary.intern(batch.entities.get_bytes(i), batch.entity_hashes[i]))
        .collect()
}

/// Whether every column of these is one that the table still has: then each stored row is a row.
fn all_live(snapshot: &Snapshot, ids: impl Iterator<Item = ColumnId>) -> bool {
    let mut ids = ids;
    ids.all(|id| id < ColumnId::FIRST_USER || snapshot.is_live(id))
}

/// ts of those `rows` that have a cell in one of the views.
fn ts_with_cells(
    ts: &[i64],
    rows: std::ops::Range<usize>,
    views: &[Option<ColView<'_>>],
) -> Vec<i64> {
    rows.filter(|&r| views.iter().flatten().any(|v| v.index(r).is_some()))
        .map(|r| ts[r])
        .collect()
}
