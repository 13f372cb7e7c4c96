//! The shard: an actor that owns one slice of every table. Its state is touched by one executor only.
//!
//! A write's way: `admit` (memory, log, CHECKPOINT's barrier) → check against the newest staged version →
//! log record → fsync → memtable → the ticket lands → the writer is answered. Everything between the check
//! and the log record happens without an await, so that no other write comes between.

use crate::files;
use crate::keyed::KeyedTable;
use crate::manifest::{self, Fence};
use crate::manifest_file::ManifestFile;
use crate::router::Router;
use crate::segment::{BlockCache, Segment, Trash};
use crate::shared::{Shared, no_table};
use crate::signal::{Gate, Signal};
use crate::store::{MemoryUse, StoreContext};
use crate::stream::{StreamTable, budget};
use crate::wal::Wal;
use futures_util::lock::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{Lsn, Rev, ShardId, TableId};
use strandline_core::io::{Env, TaskQueue};
use strandline_core::limits::Limits;
use strandline_core::revision::Ticket;
use strandline_core::schema::{Family, TableDef};

/// Log records that hold one batch of a timeseries table.
pub const RECORD_STREAM: u8 = 1;
/// Log records that hold versions of a rows table.
pub const RECORD_KEYED: u8 = 2;

/// One table's slice.
#[derive(Clone)]
pub enum Store {
    /// A timeseries table.
    Stream(Rc<StreamTable>),
    /// A rows table.
    Keyed(Rc<KeyedTable>),
}

impl Store {
    /// Memory it holds.
    pub fn memory(&self) -> MemoryUse {
        match self {
            Store::Stream(t) => t.memory_bytes(),
            Store::Keyed(t) => t.memory_bytes(),
        }
    }
    /// Its segments, oldest first.
    pub fn segments(&self) -> Vec<Rc<Segment>> {
        match self {
            Store::Stream(t) => t.segments(),
            Store::Keyed(t) => t.segments(),
        }
    }
    /// The first log record that only memory has.
    pub fn oldest_unflushed(&self) -> Option<Lsn> {
        match self {
            Store::Stream(t) => t.oldest_unflushed(),
            Store::Keyed(t) => t.oldest_unflushed(),
        }
    }
    /// Bytes that merges have still to rewrite.
    pub fn merge_debt_bytes(&self) -> u64 {
        match self {
            Store::Stream(t) => t.merge_debt_bytes(),
            Store::Keyed(t) => t.merge_debt_bytes(),
        }
    }
    /// Stored rows.
    pub fn rows(&self) -> u64 {
        match self {
            Store::Stream(t) => t.rows(),
            Store::Keyed(t) => t.rows(),
        }
    }
    /// Moves the active memtable to the frozen ones.
    pub fn freeze(&self) -> bool {
        match self {
            Store::Stream(t) => t.freeze(),
            Store::Keyed(t) => t.freeze(),
        }
    }
}

/// What a shard counts for `$sys.shards` and `/metrics`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Rows written to timeseries tables.
    pub stream_rows: Cell<u64>,
    /// Versions written to rows tables.
    pub keyed_versions: Cell<u64>,
    /// Flushes done.
    pub flushes: Cell<u64>,
    /// Merges done.
    pub merges: Cell<u64>,
    /// Bytes of segments that flushes wrote.
    pub flushed_bytes: Cell<u64>,
    /// Bytes of segments that merges read.
    pub merge_read_bytes: Cell<u64>,
    /// Bytes of segments that merges wrote.
    pub merge_written_bytes: Cell<u64>,
    /// Blocks that merges encoded anew.
    pub blocks_encoded: Cell<u64>,
    /// Blocks that merges took over as they stood.
    pub blocks_copied: Cell<u64>,
    /// Segments that RETENTION took away as a whole.
    pub expired_segments: Cell<u64>,
    /// Their bytes.
    pub expired_bytes: Cell<u64>,
    /// Writes that were slowed because flushes or merges lag behind.
    pub writes_slowed: Cell<u64>,
    /// For how long, together, µs.
    pub slowed_us: Cell<u64>,
    /// Messages from other executors.
    pub messages: Cell<u64>,
}

/// After a fence that could not be written (a full disk), the next try comes this much later.
const FENCE_RETRY: Duration = Duration::from_secs(1);

/// Adds to a counter.
pub fn count(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get() + n);
}

/// The thresholds of one shard, derived from `memory_bytes`: an eighth of the shard's share starts a flush,
/// half of it makes writers wait, a fifth caches blocks; the rest is for tails and names, as `tails_percent`
/// and `names_percent` say, and for statements.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPlan {
    /// Active memtables past this are flushed.
    pub flush_at: usize,
    /// Active and frozen memtables past this make writers wait.
    pub wait_at: usize,
    /// The block cache.
    pub cache: usize,
    /// Tails past this are given up.
    pub tails: usize,
    /// Names of entities past this: no new ones are taken.
    pub names: usize,
}

/// A shard has room for so many bytes of names, however little memory it is given.
const NAMES_LEAST: usize = 64 << 10;

impl MemoryPlan {
    /// Of one shard among `shards`.
    pub fn of(limits: &Limits, shards: u16) -> Self {
        let share = (limits.memory_bytes / u64::from(shards.max(1))) as usize;
        let part = |percent: u64| share / 100 * percent as usize;
        MemoryPlan {
            flush_at: share / 8,
            wait_at: share / 2,
            cache: share / 5,
            tails: part(limits.tails_percent),
            names: part(limits.names_percent).max(NAMES_LEAST),
        }
    }
}

/// The actor.
pub struct Shard {
    /// Which.
    pub id: ShardId,
    /// The executor that hosts it.
    pub executor: usize,
    /// The world.
    pub env: Env,
    /// What all executors share.
    pub shared: Arc<Shared>,
    /// The way to other shards and to the coordinator.
    pub router: Rc<Router>,
    /// The log.
    pub wal: Wal,
    /// Counters.
    pub counters: Counters,
    /// Decoded blocks.
    pub cache: Rc<BlockCache>,
    /// Flushes of one shard never overlap; CHECKPOINT and VACUUM hold it too.
    pub flushing: Mutex<()>,
    /// Merges of one shard never overlap; CHECKPOINT and VACUUM hold it too.
    pub merging: Mutex<()>,
    pub(crate) cx: StoreContext,
    pub(crate) tables: RefCell<BTreeMap<TableId, Store>>,
    pub(crate) manifest: Mutex<ManifestFile>,
    pub(crate) plan: MemoryPlan,
    /// What small writes have left of the time they were to wait.
    pub(crate) pace_change: Cell<Duration>,
    pub(crate) barrier: Gate,
    pub(crate) pressure: Gate,
    pub(crate) flush_wanted: Signal,
    pub(crate) merge_wanted: Signal,
    pub(crate) retention_wanted: Signal,
    /// Files of segments that are no longer part of a table and that no reader holds.
    pub(crate) trash: Rc<Trash>,
    pub(crate) debts: RefCell<BTreeMap<TableId, u64>>,
    pub(crate) debt_bytes: Cell<u64>,
    /// Goes up when rows move from memory to segments: a lookup that awaited across it starts over.
    pub(crate) flush_epoch: Cell<u64>,
    pub(crate) flush_error: RefCell<Option<Error>>,
    applied: Cell<Lsn>,
    memory: RefCell<BTreeMap<TableId, MemoryUse>>,
    active_bytes: Cell<usize>,
    frozen_bytes: Cell<usize>,
    tail_bytes: Cell<usize>,
    name_bytes: Cell<usize>,
    doubtful: RefCell<Vec<Ticket>>,
    fencing: Cell<bool>,
    stopping: Cell<bool>,
    this: RefCell<Weak<Shard>>,
}

/// What recovery hands to [`Shard::assemble`].
pub struct Parts {
    /// Which.
    pub id: ShardId,
    /// The world.
    pub env: Env,
    /// What all executors share.
    pub shared: Arc<Shared>,
    /// The way to others.
    pub router: Rc<Router>,
    /// The log, replayed.
    pub wal: Wal,
    /// Decoded blocks.
    pub cache: Rc<BlockCache>,
    /// Where stores write.
    pub cx: StoreContext,
    /// Stores, replayed.
    pub tables: BTreeMap<TableId, Store>,
    /// The manifest.
    pub manifest: ManifestFile,
    /// The last record of the log.
    pub applied: Lsn,
}

impl Shard {
    /// Puts a recovered shard together.
    pub fn assemble(parts: Parts) -> Rc<Shard> {
        let plan = MemoryPlan::of(&parts.shared.limits, parts.shared.shards);
        let shard = Rc::new(Shard {
            id: parts.id,
            executor: parts.router.executor(),
            env: parts.env,
            shared: parts.shared,
            router: parts.router,
            wal: parts.wal,
            counters: Counters::default(),
            cache: parts.cache,
            flushing: Mutex::new(()),
            merging: Mutex::new(()),
            cx: parts.cx,
            tables: RefCell::new(parts.tables),
            manifest: Mutex::new(parts.manifest),
            plan,
            pace_change: Cell::default(),
            barrier: Gate::default(),
            pressure: Gate::default(),
            flush_wanted: Signal::default(),
            merge_wanted: Signal::default(),
            retention_wanted: Signal::default(),
            trash: Rc::default(),
            debts: RefCell::default(),
            debt_bytes: Cell::new(0),
            flush_epoch: Cell::new(0),
            flush_error: RefCell::default(),
            applied: Cell::new(parts.applied),
            memory: RefCell::default(),
            active_bytes: Cell::new(0),
            frozen_bytes: Cell::new(0),
            tail_bytes: Cell::new(0),
            name_bytes: Cell::new(0),
            doubtful: RefCell::default(),
            fencing: Cell::new(false),
            stopping: Cell::new(false),
            this: RefCell::new(Weak::new()),
        });
        *shard.this.borrow_mut() = Rc::downgrade(&shard);
        let ids: Vec<TableId> = shard.tables.borrow().keys().copied().collect();
        ids.into_iter().for_each(|id| shard.note_memory(id));
        for store in shard.tables.borrow().values() {
            if let Store::Stream(t) = store {
                shard.shared.note_entities(t.entities() as u64);
            }
        }
        shard
    }

    /// Starts the background tasks.
    pub fn start(self: &Rc<Self>) {
        let shard = self.clone();
        self.env.tasks.spawn(
            TaskQueue::Background,
            Box::pin(async move { shard.flush_loop().await }),
        );
        let shard = self.clone();
        self.env.tasks.spawn(
            TaskQueue::Background,
            Box::pin(async move { shard.merge_loop().await }),
        );
        let shard = self.clone();
        self.env.tasks.spawn(
            TaskQueue::Background,
            Box::pin(async move { shard.retention_loop().await }),
        );
        let shard = self.clone();
        self.env.tasks.spawn(
            TaskQueue::Background,
            Box::pin(async move { shard.trash_loop().await }),
        );
        self.retention_wanted.ring();
        self.flush_wanted.ring();
        self.merge_wanted.ring();
    }

    /// Ends the background tasks at their next step, and the log after what is in it.
    pub async fn stop(&self) {
        self.stopping.set(true);
        self.flush_wanted.ring();
        self.merge_wanted.ring();
        self.retention_wanted.ring();
        self.trash.signal.ring();
        let _flush = self.flushing.lock().await;
        let _merge = self.merging.lock().await;
        self.wal.close().await;
    }

    /// Whether [`Shard::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// This shard, for tasks that outlive the caller.
    pub(crate) fn rc(&self) -> Result<Rc<Shard>> {
        self.this
            .borrow()
            .upgrade()
            .ok_or_else(|| Error::new(SqlState::AdminShutdown, "the server is going down"))
    }

    /// The last log record that is in a memtable.
    pub fn applied(&self) -> Lsn {
        self.applied.get()
    }

    /// Notes that a log record is in its memtable. Every record's completion calls it, in order.
    pub(crate) fn note_applied(&self, lsn: Lsn) {
        self.applied.set(lsn);
    }

    /// The slice of a table that exists now, made when this is its first use on this shard.
    pub fn store(&self, table: TableId) -> Result<(Arc<TableDef>, Store)> {
        let def = self.shared.table(table)?;
        if let Some(store) = self.tables.borrow().get(&table) {
            match store {
                Store::Stream(t) => t.set_def(def.clone()),
                Store::Keyed(t) => t.set_def(def.clone()),
            }
            return Ok((def, store.clone()));
        }
        let store = make_store(&self.env, def.clone(), &self.cx, &self.plan);
        self.tables.borrow_mut().insert(table, store.clone());
        Ok((def, store))
    }

    /// The slice of a timeseries table.
    pub fn stream(&self, table: TableId) -> Result<Rc<StreamTable>> {
        match self.store(table)?.1 {
            Store::Stream(t) => Ok(t),
            Store::Keyed(_) => Err(no_table()),
        }
    }

    /// The slice of a rows table.
    pub fn keyed(&self, table: TableId) -> Result<(Arc<TableDef>, Rc<KeyedTable>)> {
        match self.store(table)? {
            (def, Store::Keyed(t)) => Ok((def, t)),
            _ => Err(no_table()),
        }
    }

    /// The watermark of a rows table; 0 for others.
    pub fn watermark(&self, table: TableId) -> Rev {
        self.shared.ledger(table).map_or(Rev(0), |l| l.watermark())
    }

    // --- admission --------------------------------------------------------------------------------

    /// Waits until a write may go on: no CHECKPOINT barrier, memory and log below their bounds; and a little
    /// once when flushes and merges lag behind, according to its `bytes`. An error when this shard takes no
    /// writes.
    pub async fn admit(&self, bytes: usize) -> Result<()> {
        let mut slowed = false;
        loop {
            if self.shared.is_draining() || self.stopping.get() {
                return Err(Error::new(
                    SqlState::AdminShutdown,
                    "the server is going down and takes no more writes",
                ));
            }
            if let Some(e) = self.wal.failed() {
                return Err(e);
            }
            if self.barrier.pass().await {
                continue;
            }
            if self.pressure.is_shut() {
                if let Some(e) = self.flush_error.borrow().clone() {
                    return Err(e);
                }
                self.flush_wanted.ring();
                self.pressure.pass().await;
                continue;
            }
            if self.wal.is_full() {
                self.wal.room().await;
                continue;
            }
            if !slowed {
                slowed = true;
                if self.slow_down(bytes).await {
                    continue;
                }
            }
            return Ok(());
        }
    }

    /// Writers that wait.
    pub fn writers_waiting(&self) -> usize {
        self.barrier.waiting() + self.pressure.waiting()
    }

    /// Takes a table's memory anew, and starts a flush or makes writers wait when it is time.
    pub(crate) fn note_memory(&self, table: TableId) {
        let now = self
            .tables
            .borrow()
            .get(&table)
            .map(Store::memory)
            .unwrap_or_default();
        let before = self
            .memory
            .borrow_mut()
            .insert(table, now)
            .unwrap_or_default();
        self.active_bytes
            .set(self.active_bytes.get() + now.active - before.active);
        self.frozen_bytes
            .set(self.frozen_bytes.get() + now.frozen - before.frozen);
        self.note_standing(before, now);
        self.check_pressure();
    }

    /// Takes the change of what stays in memory: tails, which are given up when they are too many, and names.
    fn note_standing(&self, before: MemoryUse, now: MemoryUse) {
        self.tail_bytes
            .set(self.tail_bytes.get() + now.tails - before.tails);
        self.name_bytes
            .set(self.name_bytes.get() + now.names - before.names);
        if self.name_bytes.get() > self.plan.names {
            self.shared.note_names_full();
        }
        if now.tails > before.tails && self.tail_bytes.get() > self.plan.tails {
            self.give_up_tails();
        }
    }

    /// Gives tails up, of whatever table, until they are within their share again.
    fn give_up_tails(&self) {
        let tables = self.tables.borrow();
        let streams = tables.iter().filter_map(|(&id, store)| match store {
            Store::Stream(t) => Some((id, t)),
            Store::Keyed(_) => None,
        });
        let costs = streams.flat_map(|(id, t)| t.tail_costs().into_iter().map(move |c| (id, c)));
        for (id, channel) in budget::excess(costs.collect(), self.plan.tails) {
            let Some(Store::Stream(table)) = tables.get(&id) else {
                continue;
            };
            table.give_up_tails(channel);
            let now = table.memory_bytes();
            let mut memory = self.memory.borrow_mut();
            let known = memory.entry(id).or_default();
            self.tail_bytes
                .set(self.tail_bytes.get() + now.tails - known.tails);
            known.tails = now.tails;
        }
    }

    /// Whether names of entities have used up their share: no new ones are taken.
    pub(crate) fn names_full(&self) -> bool {
        self.name_bytes.get() > self.plan.names
    }

    /// Forgets a dropped table's memory.
    pub(crate) fn forget_memory(&self, table: TableId) {
        if let Some(before) = self.memory.borrow_mut().remove(&table) {
            self.active_bytes
                .set(self.active_bytes.get() - before.active);
            self.frozen_bytes
                .set(self.frozen_bytes.get() - before.frozen);
            self.note_standing(before, MemoryUse::default());
        }
        self.check_pressure();
    }

    fn check_pressure(&self) {
        let (active, frozen) = (self.active_bytes.get(), self.frozen_bytes.get());
        if active > self.plan.flush_at || self.wal.live_bytes() > self.shared.limits.log_bytes {
            self.flush_wanted.ring();
        }
        let over = active + frozen > self.plan.wait_at;
        if over && !self.pressure.is_shut() {
            self.pressure.shut();
        } else if !over && self.pressure.is_shut() {
            self.pressure.open();
        }
    }

    /// Memory of memtables: active and frozen.
    pub fn memtable_bytes(&self) -> (usize, usize) {
        (self.active_bytes.get(), self.frozen_bytes.get())
    }

    /// Memory of tails.
    pub fn tail_bytes(&self) -> usize {
        self.tail_bytes.get()
    }

    /// Memory of names of entities.
    pub fn name_bytes(&self) -> usize {
        self.name_bytes.get()
    }

    /// The tables whose active memtables are largest: so many that they hold at least so many bytes, if there
    /// are that many.
    pub(crate) fn largest_active(&self, bytes: usize) -> Vec<TableId> {
        let memory = self.memory.borrow();
        let mut all: Vec<(usize, TableId)> = memory
            .iter()
            .filter(|(t, m)| m.active > 0 && self.exists(**t))
            .map(|(&t, m)| (m.active, t))
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let mut held = 0;
        let enough = all.iter().take_while(|(active, _)| {
            let more = held < bytes || held == 0;
            held += active;
            more
        });
        enough.map(|&(_, t)| t).collect()
    }

    /// Whether the catalog still has a table: a DROP is published before it reaches the shards.
    pub(crate) fn exists(&self, table: TableId) -> bool {
        self.shared.table(table).is_ok()
    }

    // --- failed commits ---------------------------------------------------------------------------

    /// A commit failed. When the log can still be used, nothing of it was written and the numbers are void.
    /// Else what the disk holds is unknown: they stay in flight until a fence is durable.
    pub(crate) fn commit_failed(&self, ticket: Option<Ticket>) {
        let Some(why) = self.wal.failed() else {
            drop(ticket);
            return;
        };
        self.shared.refuse_writes(why);
        self.doubtful.borrow_mut().extend(ticket);
        if !self.fencing.replace(true)
            && let Ok(shard) = self.rc()
        {
            let from = Lsn(self.applied.get().0 + 1);
            self.env.tasks.spawn(
                TaskQueue::Ingest,
                Box::pin(async move { shard.fence(from).await }),
            );
        }
    }

    /// Until the fence is durable the numbers stay in flight and feeds stand still: it is tried until then.
    async fn fence(&self, from: Lsn) {
        let dir = manifest::shard_dir(self.id);
        let fence = Fence { from };
        loop {
            let (name, kind) = (manifest::FENCE_NAME, manifest::FENCE_KIND);
            match files::replace(&self.env, &dir, name, kind, &fence).await {
                Ok(()) => break,
                Err(e) => tracing::error!(
                    shard = self.id.0,
                    "the log failed and so did its fence ({e}): feeds stand still until it is written"
                ),
            }
            if self.is_stopping() {
                let failed = std::mem::take(&mut *self.doubtful.borrow_mut());
                failed.into_iter().for_each(Ticket::leak);
                return;
            }
            self.env.tasks.sleep(FENCE_RETRY).await;
        }
        tracing::error!(
            shard = self.id.0,
            from = from.0,
            "the log failed; its last records are fenced off"
        );
        // Later failures of the same kind are behind the same fence.
        self.fencing.set(false);
        let failed = std::mem::take(&mut *self.doubtful.borrow_mut());
        drop(failed);
    }
}

/// A store for a table.
pub fn make_store(env: &Env, def: Arc<TableDef>, cx: &StoreContext, plan: &MemoryPlan) -> Store {
    match def.family {
        Family::Timeseries => {
            let table = StreamTable::new(env.clone(), def, cx.clone());
            table.set_tails_bound(plan.tails);
            Store::Stream(Rc::new(table))
        }
        Family::Rows => Store::Keyed(Rc::new(KeyedTable::new(env.clone(), def, cx.clone()))),
    }
}
