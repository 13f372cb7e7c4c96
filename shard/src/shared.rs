//! What all executors of one database share: the published catalog, the allocator, the limits. Everything
//! here is read without waiting.

use crate::catalog_log;
use crate::files;
use arc_swap::{ArcSwap, ArcSwapOption};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{Rev, TableId};
use strandline_core::io::Env;
use strandline_core::limits::Limits;
use strandline_core::revision::{Allocator, Ledger};
use strandline_core::schema::{Catalog, TableDef, TableRevisions};
use strandline_core::xid::Xid;

/// The kind that seals the catalog file.
pub const CATALOG_KIND: &str = "catalog";
/// Its name in the database's directory.
pub const CATALOG_NAME: &str = "catalog";

/// How a database is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Shards of a database that does not exist yet.
    pub shards: u16,
    /// The node id in xids.
    pub node_id: u16,
    /// The limits in force.
    pub limits: Limits,
    /// Start although the log is damaged, once, and report what was lost.
    pub accept_loss: bool,
    /// Faults to plant, so that the simulator can show that it finds them.
    #[cfg(feature = "testing")]
    pub faults: Faults,
}

/// Breaches of the engine's own rules, for tests that must notice them.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A writer is answered before its log record is durable.
    pub ack_early: bool,
    /// The watermark passes a write before its rows are visible.
    pub publish_early: bool,
}

/// The catalog file: tables, and the numbers that must never be used again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CatalogFile {
    /// Goes up with each change of a table.
    pub version: u64,
    /// The number of the log with the edits made since; 0: none. See [`crate::catalog_log`].
    #[serde(default)]
    pub log: u64,
    /// Shards of this database, fixed.
    pub shards: u16,
    /// The number the next table gets.
    pub next_table: TableId,
    /// Tables, in order of their numbers.
    #[serde(with = "arcs")]
    pub tables: Vec<Arc<TableDef>>,
    /// Their revisions.
    pub revisions: BTreeMap<TableId, TableRevisions>,
}

/// Shared tables are written as what they hold.
pub(crate) mod arcs {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::sync::Arc;
    use strandline_core::schema::TableDef;

    pub fn serialize<S: Serializer>(tables: &[Arc<TableDef>], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(tables.iter().map(|t| &**t))
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(d: D) -> Result<Vec<Arc<TableDef>>, D::Error> {
        let tables = Vec::<TableDef>::deserialize(d)?;
        Ok(tables.into_iter().map(Arc::new).collect())
    }
}

/// The catalog as executors see it.
#[derive(Debug, Default)]
pub struct Published {
    /// Tables.
    pub catalog: Arc<Catalog>,
    /// Vacuum horizons that are not 0.
    pub horizons: BTreeMap<TableId, Rev>,
}

/// Shared by the executors of one database.
pub struct Shared {
    /// The limits in force.
    pub limits: Arc<Limits>,
    /// Shards.
    pub shards: u16,
    /// See [`Options::accept_loss`].
    pub accept_loss: bool,
    node_id: u16,
    published: ArcSwap<Published>,
    allocator: OnceLock<Allocator>,
    draining: AtomicBool,
    refusal: ArcSwapOption<Error>,
    /// The most entities that a table has or had on a shard.
    entities_most: AtomicU64,
    /// See [`Faults`].
    #[cfg(feature = "testing")]
    pub faults: Faults,
}

impl Shared {
    /// Reads the catalog of the database at the root of `env.disk`, or makes a new one.
    pub async fn open(env: &Env, options: &Options) -> Result<(Arc<Shared>, CatalogFile)> {
        env.disk.create_dir_all("").await?;
        let file = match files::read::<CatalogFile>(env, "", CATALOG_NAME, CATALOG_KIND).await? {
            Some(mut file) => {
                file.tables.sort_by_key(|t| t.id);
                catalog_log::read_into(env, &mut file).await?;
                file
            }
            None => {
                if env
                    .disk
                    .list("")
                    .await?
                    .iter()
                    .any(|n| n.starts_with("shard-"))
                {
                    return Err(Error::corrupted(
                        "the database's directory has shards but no catalog file: it was removed or never copied",
                    )
                    .hint("bring the whole directory back from a snapshot or a copy: a catalog of another time would number writes twice"));
                }
                let file = CatalogFile {
                    shards: options.shards.max(1),
                    next_table: TableId(1),
                    ..CatalogFile::default()
                };
                files::replace(env, "", CATALOG_NAME, CATALOG_KIND, &file).await?;
                file
            }
        };
        let shared = Shared {
            limits: Arc::new(options.limits.clone()),
            shards: file.shards,
            accept_loss: options.accept_loss,
            node_id: options.node_id,
            published: ArcSwap::from_pointee(Published::of(&file)),
            allocator: OnceLock::new(),
            draining: AtomicBool::new(false),
            refusal: ArcSwapOption::empty(),
            entities_most: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            faults: options.faults,
        };
        Ok((Arc::new(shared), file))
    }

    /// All shards have replayed their logs: numbers go on above `max_xid` and above every reservation.
    pub fn finish_recovery(&self, max_xid: Xid, file: &CatalogFile) -> Result<()> {
        let allocator = Allocator::new(
            self.node_id,
            self.shards,
            max_xid,
            self.limits.ranges_in_flight as usize,
        );
        for (&table, r) in &file.revisions {
            // What was reserved may have been used: the first number that surely was not is above it.
            allocator.add_table(table, Rev(r.reserved.0 + 1), r.reserved);
        }
        self.allocator
            .set(allocator)
            .map_err(|_| Error::internal("the database was started twice"))
    }

    /// The allocator; an error before the recovery is finished.
    pub fn allocator(&self) -> Result<&Allocator> {
        self.allocator
            .get()
            .ok_or_else(|| Error::new(SqlState::CannotConnectNow, "the database is still starting"))
    }

    /// The ledger of a rows table.
    pub fn ledger(&self, table: TableId) -> Result<Arc<Ledger>> {
        self.allocator()?.ledger(table).ok_or_else(no_table)
    }

    /// The highest xid handed out, for the manifest.
    pub fn last_xid(&self) -> Option<Xid> {
        self.allocator.get().map(Allocator::last_xid)
    }

    /// The catalog and horizons now.
    pub fn published(&self) -> arc_swap::Guard<Arc<Published>> {
        self.published.load()
    }

    /// Makes a change visible.
    pub fn publish(&self, file: &CatalogFile) {
        let next = self.published().next(file);
        self.published.store(Arc::new(next));
    }

    /// The definition of a table that is there now.
    pub fn table(&self, table: TableId) -> Result<Arc<TableDef>> {
        self.published()
            .catalog
            .table_by_id(table)
            .cloned()
            .ok_or_else(no_table)
    }

    /// No more writes: the server is going down.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Notes how many entities a table has on a shard.
    pub fn note_entities(&self, count: u64) {
        self.entities_most.fetch_max(count, Ordering::Relaxed);
    }

    /// Notes that a shard has no room for more names of entities.
    pub fn note_names_full(&self) {
        self.entities_most.fetch_max(u64::MAX, Ordering::Relaxed);
    }

    /// Why rows of new entities of a table are refused when they are.
    pub fn entities_refusal(&self, table: &str) -> Error {
        if self.entities_most.load(Ordering::Relaxed) == u64::MAX {
            let what = format_args!(
                "no memory for the names of more entities, those of table \"{table}\""
            );
            let e = (self.limits).exceeded("names_percent", SqlState::OutOfMemory, what);
            return e.hint("give the server more memory (--memory), or raise names_percent under [limits] in the configuration file");
        }
        self.limits.exceeded(
            "entities",
            SqlState::ProgramLimitExceeded,
            format_args!("too many entities for table \"{table}\""),
        )
    }

    /// Whether so many more entities may be too many for some table on some shard: then shards are asked
    /// before a statement over several of them writes to the first.
    pub fn entities_may_run_out(&self, more: usize) -> bool {
        let most = self.entities_most.load(Ordering::Relaxed);
        most.saturating_add(more as u64) > self.limits.entities
    }

    /// Notes that a shard no longer takes writes.
    pub fn refuse_writes(&self, why: Error) {
        self.refusal.store(Some(Arc::new(why)));
    }

    /// Why a shard takes no writes, if one does not.
    pub fn refusal(&self) -> Option<Error> {
        self.refusal.load().as_ref().map(|e| (**e).clone())
    }

    /// Whether the server is going down.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}

impl Published {
    fn of(file: &CatalogFile) -> Self {
        Published {
            catalog: Arc::new(Catalog::new(file.version, file.tables.iter().cloned())),
            horizons: Self::horizons(file),
        }
    }
    /// The same as [`Published::of`]; only what is another table than before costs more than a comparison.
    fn next(&self, file: &CatalogFile) -> Self {
        let mut catalog = (*self.catalog).clone();
        catalog.version = file.version;
        let mut before = self.catalog.by_number().peekable();
        let mut changed = Vec::new();
        for table in &file.tables {
            while let Some(gone) = before.next_if(|b| b.id < table.id) {
                catalog.remove(gone.id);
            }
            let same = before.next_if(|b| b.id == table.id);
            if !same.is_some_and(|b| Arc::ptr_eq(b, table)) {
                changed.push(table);
            }
        }
        before.for_each(|gone| catalog.remove(gone.id));
        // Last: a name may have gone from one of those tables to one of these.
        changed.into_iter().for_each(|t| catalog.put(t.clone()));
        Published {
            catalog: Arc::new(catalog),
            horizons: Self::horizons(file),
        }
    }
    fn horizons(file: &CatalogFile) -> BTreeMap<TableId, Rev> {
        let raised = file.revisions.iter().filter(|(_, r)| r.horizon.0 > 0);
        raised.map(|(&t, r)| (t, r.horizon)).collect()
    }
    /// The vacuum horizon of a table; 0: none.
    pub fn horizon(&self, table: TableId) -> Rev {
        self.horizons.get(&table).copied().unwrap_or_default()
    }
}

/// The table went while the statement ran.
pub fn no_table() -> Error {
    Error::new(
        SqlState::UndefinedTable,
        "the table no longer exists: it was dropped while the statement ran",
    )
}
