//! Hands out ranges of x_rev and xid. One short lock per database makes their orders one order.

use super::ledger::{Ledger, Orders, Ticket};
use super::mint::{Mint, RUN};
use crate::error::{Error, SqlState};
use crate::ids::{Rev, ShardId, TableId};
use crate::limits::Limits;
use crate::routing::shard_of_xid;
use crate::sync::{Arc, Mutex, lock};
use crate::xid::Xid;
use std::collections::BTreeMap;
use std::fmt;

/// Why there is no grant. Nothing was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such table (it was dropped).
    UnknownTable,
    /// A grant has 1 to 65,536 rows.
    BatchSize,
    /// Too many ranges are in flight: wait for [`Ledger::room`], then ask again.
    RingFull,
    /// The range would pass the durable reservation: raise that, then ask again.
    NeedReservation,
    /// Past [`Rev::MAX`], or past the last ms of an xid.
    Exhausted,
    /// No more numbers are handed out: see [`Allocator::seal`].
    Sealed,
}

impl Refusal {
    /// As a client sees it. `RingFull` and `NeedReservation` are for the engine to wait out.
    pub fn to_error(self, table: impl fmt::Display, limits: &Limits) -> Error {
        match self {
            Refusal::UnknownTable => Error::new(
                SqlState::UndefinedTable,
                format!("table \"{table}\" does not exist"),
            ),
            Refusal::BatchSize => Error::internal(format!(
                "a grant for table \"{table}\" must have 1 to {RUN} rows"
            )),
            Refusal::RingFull => limits.exceeded(
                "ranges_in_flight",
                SqlState::ConfigurationLimitExceeded,
                format_args!("writes in flight on table \"{table}\""),
            ),
            Refusal::NeedReservation => Error::internal(format!(
                "the x_rev reservation of table \"{table}\" is used up"
            )),
            Refusal::Exhausted => Error::new(
                SqlState::ProgramLimitExceeded,
                format!("table \"{table}\" has no x_rev or xid left"),
            ),
            Refusal::Sealed => Error::new(
                SqlState::AdminShutdown,
                "the server is going down and takes no more writes",
            ),
        }
    }
}

/// Numbers for an INSERT: `rows` consecutive x_rev and as many consecutive xids (the sequence part counts
/// up), all of one ms and one run, so all on `shard`.
#[derive(Debug)]
pub struct InsertGrant {
    /// The first row's x_rev; the i-th has `first_rev + i`.
    pub first_rev: Rev,
    /// The first row's xid; see [`InsertGrant::xid`].
    pub first_xid: Xid,
    /// How many.
    pub rows: u32,
    /// Where all of them live.
    pub shard: ShardId,
    /// To be settled by whoever writes them.
    pub ticket: Ticket,
}

impl InsertGrant {
    /// The i-th row's x_rev.
    pub fn rev(&self, i: u32) -> Rev {
        Rev(self.first_rev.0 + u64::from(i))
    }
    /// The i-th row's xid.
    pub fn xid(&self, i: u32) -> Xid {
        Xid(self.first_xid.0 + (u128::from(i) << 16))
    }
}

/// A number for an UPDATE or DELETE.
#[derive(Debug)]
pub struct WriteGrant {
    /// The new version's x_rev.
    pub rev: Rev,
    /// To be settled by whoever writes it.
    pub ticket: Ticket,
}

struct Table {
    ledger: Arc<Ledger>,
    next: Rev,
    reserved: Rev,
}

impl Table {
    /// The last of `count` numbers from `next`, if they may be handed out.
    fn last_of(&self, count: u32) -> Result<Rev, Refusal> {
        let last = self.next.0.saturating_add(u64::from(count) - 1);
        if last > Rev::MAX.0 {
            Err(Refusal::Exhausted)
        } else if last > self.reserved.0 {
            Err(Refusal::NeedReservation)
        } else {
            Ok(Rev(last))
        }
    }
}

struct State {
    mint: Mint,
    tables: BTreeMap<TableId, Table>,
    sealed: bool,
}

impl State {
    fn check_open(&self) -> Result<(), Refusal> {
        match self.sealed {
            true => Err(Refusal::Sealed),
            false => Ok(()),
        }
    }
}

/// Hands out x_rev per table and xids per database. Shared by all executors.
pub struct Allocator {
    node: u16,
    shards: u16,
    ring: usize,
    state: Mutex<State>,
}

impl Allocator {
    /// Mints above `recovered_max_xid`, the highest xid that any shard has ever logged (`Xid(0)`: none).
    /// `shards` ≥ 1; `ring`: the limit `ranges_in_flight`, per table.
    pub fn new(node_id: u16, shards: u16, recovered_max_xid: Xid, ring: usize) -> Self {
        Allocator {
            node: node_id,
            shards: shards.max(1),
            ring,
            state: Mutex::new(State {
                mint: Mint::above(recovered_max_xid),
                tables: BTreeMap::new(),
                sealed: false,
            }),
        }
    }

    /// Makes a table known. `next_free` is the first number that was never handed out (≥ 1); the watermark
    /// starts right below it. Numbers up to `reserved` may be handed out without asking again. A table that
    /// is known already stays as it is.
    pub fn add_table(&self, table: TableId, next_free: Rev, reserved: Rev) -> Arc<Ledger> {
        self.add(table, next_free, reserved, Orders::SOUND)
    }

    /// [`Allocator::add_table`] with broken memory orders, for models that must fail.
    #[cfg(loom)]
    pub fn add_table_with(
        &self,
        table: TableId,
        next_free: Rev,
        reserved: Rev,
        orders: Orders,
    ) -> Arc<Ledger> {
        self.add(table, next_free, reserved, orders)
    }

    fn add(&self, table: TableId, next_free: Rev, reserved: Rev, orders: Orders) -> Arc<Ledger> {
        // Made outside the lock: it may be large.
        let next = Rev(next_free.0.max(1));
        let ledger = Arc::new(Ledger::new(next, self.ring, orders));
        let mut state = lock(&self.state);
        let entry = state.tables.entry(table).or_insert(Table {
            ledger,
            next,
            reserved,
        });
        entry.ledger.clone()
    }

    /// Forgets a table. Grants that are out can still be settled; writers that wait for room are woken.
    pub fn remove_table(&self, table: TableId) {
        let removed = lock(&self.state).tables.remove(&table);
        if let Some(t) = removed {
            t.ledger.close();
        }
    }

    /// A table's ledger.
    pub fn ledger(&self, table: TableId) -> Option<Arc<Ledger>> {
        lock(&self.state)
            .tables
            .get(&table)
            .map(|t| t.ledger.clone())
    }

    /// Numbers up to `reserved` may be handed out. Call it once the catalog that says so is durable. Never
    /// lowers.
    pub fn raise_reserved(&self, table: TableId, reserved: Rev) {
        if let Some(t) = lock(&self.state).tables.get_mut(&table) {
            t.reserved = t.reserved.max(reserved);
        }
    }

    /// No xid above it was ever handed out, here or before the last start.
    pub fn last_xid(&self) -> Xid {
        lock(&self.state).mint.last()
    }

    /// How many more numbers may be handed out before [`Refusal::NeedReservation`]; `None`: no such table.
    /// Lets the coordinator reserve ahead of need.
    pub fn reserve_left(&self, table: TableId) -> Option<u64> {
        lock(&self.state)
            .tables
            .get(&table)
            .map(|t| (t.reserved.0 + 1).saturating_sub(t.next.0))
    }

    /// From here on nothing is handed out, of any table, for good. Before this an unused reservation cannot be
    /// given back: a number that is handed out later, and void because its write is refused, carries the
    /// watermark past itself, and a reader that has seen that must never miss a row that has the number in the
    /// next life of the database.
    pub fn seal(&self) {
        lock(&self.state).sealed = true;
    }

    /// Numbers for an INSERT of 1 to 65,536 rows. `now_ms` and `random` come from the caller's `Env`. A
    /// small INSERT is put on the shard `prefer` where that costs little.
    pub fn insert(
        &self,
        table: TableId,
        rows: u32,
        now_ms: i64,
        random: u64,
        prefer: Option<ShardId>,
    ) -> Result<InsertGrant, Refusal> {
        if rows == 0 || u64::from(rows) > RUN {
            return Err(Refusal::BatchSize);
        }
        let mut guard = lock(&self.state);
        guard.check_open()?;
        let State { mint, tables, .. } = &mut *guard;
        let t = tables.get_mut(&table).ok_or(Refusal::UnknownTable)?;
        let last = t.last_of(rows)?;
        let first_xid = mint
            .place(rows, now_ms, random, self.node, self.shards, prefer)
            .ok_or(Refusal::Exhausted)?;
        let ticket = Ledger::enter(&t.ledger, last).ok_or(Refusal::RingFull)?;
        let first_rev = t.next;
        t.next = Rev(last.0 + 1);
        mint.advance(first_xid, rows);
        drop(guard);
        Ok(InsertGrant {
            first_rev,
            first_xid,
            rows,
            shard: shard_of_xid(first_xid, self.shards),
            ticket,
        })
    }

    /// A number for an UPDATE or DELETE.
    pub fn write(&self, table: TableId) -> Result<WriteGrant, Refusal> {
        let mut guard = lock(&self.state);
        guard.check_open()?;
        let t = guard.tables.get_mut(&table).ok_or(Refusal::UnknownTable)?;
        let rev = t.last_of(1)?;
        let ticket = Ledger::enter(&t.ledger, rev).ok_or(Refusal::RingFull)?;
        t.next = Rev(rev.0 + 1);
        Ok(WriteGrant { rev, ticket })
    }
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator")
            .field("node", &self.node)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}
