//! The coordinator: one actor per database that changes the catalog file (tables, columns, reserved numbers,
//! horizons), and leads VACUUM and CHECKPOINT over the shards. A change is durable before it is published.

use crate::catalog_log::{self, CatalogWriter};
use crate::files::ReplaceFailed;
use crate::router::Router;
use crate::shared::{CatalogFile, Shared, no_table};
use futures_util::lock::Mutex;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{ColumnId, Rev, TableId};
use strandline_core::io::Env;
use strandline_core::schema::{
    ColumnDef, ColumnSpec, Family, Fill, Label, TableDef, TableRevisions, TableSpec,
};
use strandline_core::schema_change::{Skipped, TableChange};

/// See the module.
pub struct Coordinator {
    pub(crate) env: Env,
    pub(crate) shared: Arc<Shared>,
    pub(crate) router: Rc<Router>,
    pub(crate) file: Mutex<CatalogFile>,
    /// Only taken by who holds `file`.
    writer: Mutex<CatalogWriter>,
}

impl Coordinator {
    /// Over the catalog that [`Shared::open`] read.
    pub fn new(env: Env, shared: Arc<Shared>, router: Rc<Router>, file: CatalogFile) -> Rc<Self> {
        Rc::new(Coordinator {
            writer: Mutex::new(CatalogWriter::new(env.clone(), &file)),
            env,
            shared,
            router,
            file: Mutex::new(file),
        })
    }

    /// Changes the catalog durably, then publishes it.
    async fn commit(&self, current: &mut CatalogFile, mut next: CatalogFile) -> Result<()> {
        let done = self.write(current, &mut next).await;
        done.map_err(|failed| failed.error)?;
        *current = next;
        self.shared.publish(current);
        Ok(())
    }

    async fn write(
        &self,
        current: &CatalogFile,
        next: &mut CatalogFile,
    ) -> std::result::Result<(), ReplaceFailed> {
        let done = self.writer.lock().await.commit(current, next).await;
        done.map_err(catalog_log::not_written)
    }

    /// Commits a change that takes something away from a table. After an error the disk surely has the
    /// catalog as it was, or it is changed here too: else a write to what the next start no longer finds
    /// could be acknowledged.
    async fn commit_loss(&self, current: &mut CatalogFile, mut next: CatalogFile) -> Result<()> {
        let failed = match self.write(current, &mut next).await {
            Ok(()) => None,
            Err(failed) if !failed.in_doubt => return Err(failed.error),
            Err(failed) => {
                let mut back = current.clone();
                if self.write(&next, &mut back).await.is_ok() {
                    *current = back;
                    return Err(failed.error);
                }
                Some(
                    failed
                        .error
                        .hint("the table is changed; whether it stays so shows at the next start"),
                )
            }
        };
        *current = next;
        self.shared.publish(current);
        failed.map_or(Ok(()), Err)
    }

    /// Commits a change that takes a table away. The table is out of sight before the file is written: were
    /// it the other way round, writes to it could be acknowledged while nobody knows whether the file that
    /// a crash leaves still has it. After an error it is seen again once the file surely has it.
    async fn commit_drop(&self, current: &mut CatalogFile, mut next: CatalogFile) -> Result<()> {
        self.shared.publish(&next);
        let Err(failed) = self.write(current, &mut next).await else {
            *current = next;
            return Ok(());
        };
        if failed.in_doubt {
            let mut back = current.clone();
            if self.write(&next, &mut back).await.is_err() {
                *current = next;
                return Err(failed.error.hint(
                    "the table is out of use; whether it is still there shows at the next start",
                ));
            }
            *current = back;
        }
        self.shared.publish(current);
        Err(failed.error)
    }

    /// CREATE.
    pub async fn create_table(&self, spec: TableSpec, if_not_exists: bool) -> Result<bool> {
        let mut file = self.file.lock().await;
        if let Some(there) = self.named(&spec.name) {
            if if_not_exists && there.family == spec.family {
                return Ok(false);
            }
            return Err(Error::new(
                SqlState::DuplicateTable,
                format!(
                    "table \"{}\" already exists and is a {} table",
                    spec.name,
                    there.family.name()
                ),
            ));
        }
        let mut next = file.clone();
        let expires = spec.options.retention_ms.is_some();
        self.add_table(&mut next, spec)?;
        self.commit_tables(&mut file, next).await?;
        if expires {
            self.announce_retention();
        }
        Ok(true)
    }

    /// The table of a name. Whoever holds the file sees the catalog that is published.
    fn named(&self, name: &str) -> Option<Arc<TableDef>> {
        self.shared.published().catalog.table(name).cloned()
    }

    fn add_table(&self, file: &mut CatalogFile, spec: TableSpec) -> Result<TableId> {
        let limits = &self.shared.limits;
        if file.tables.len() as u64 >= limits.tables {
            return Err(limits.exceeded(
                "tables",
                SqlState::ConfigurationLimitExceeded,
                format!("table \"{}\" would be one table too many", spec.name),
            ));
        }
        if spec.columns.len() as u64 > limits.columns {
            return Err(limits.exceeded(
                "columns",
                SqlState::ProgramLimitExceeded,
                format!(
                    "table \"{}\" would have {} columns",
                    spec.name,
                    spec.columns.len()
                ),
            ));
        }
        let id = file.next_table;
        file.next_table = TableId(id.0 + 1);
        file.version += 1;
        let columns: Vec<ColumnDef> = spec
            .columns
            .into_iter()
            .zip(ColumnId::FIRST_USER.0..)
            .map(|(c, n)| ColumnDef {
                id: ColumnId(n),
                name: c.name,
                label: c.label,
                fill: c.fill,
                declared: c.declared,
            })
            .collect();
        let next_column = ColumnId(ColumnId::FIRST_USER.0 + columns.len() as u32);
        if spec.family == Family::Rows {
            let reserved = Rev(limits.rev_reservation.min(Rev::MAX.0));
            file.revisions.insert(
                id,
                TableRevisions {
                    reserved,
                    horizon: Rev(0),
                },
            );
        }
        file.tables.push(Arc::new(TableDef {
            id,
            name: spec.name,
            family: spec.family,
            columns,
            entity_uuid: spec.entity_uuid,
            options: spec.options,
            next_column,
        }));
        Ok(id)
    }

    /// Commits, with the ledgers of new tables in place before anyone sees the tables.
    async fn commit_tables(&self, current: &mut CatalogFile, next: CatalogFile) -> Result<()> {
        let new: Vec<(TableId, Rev)> = next
            .revisions
            .iter()
            .filter(|(t, _)| !current.revisions.contains_key(t))
            .map(|(&t, r)| (t, r.reserved))
            .collect();
        let allocator = self.shared.allocator()?;
        for &(table, reserved) in &new {
            allocator.add_table(table, Rev(1), reserved);
        }
        let done = self.commit(current, next).await;
        if done.is_err() {
            new.iter()
                .for_each(|&(table, _)| allocator.remove_table(table));
        }
        done
    }

    /// DROP.
    pub async fn drop_table(&self, name: &str, if_exists: bool) -> Result<bool> {
        let mut file = self.file.lock().await;
        let Some(table) = self.named(name) else {
            if if_exists {
                return Ok(false);
            }
            return Err(Error::new(
                SqlState::UndefinedTable,
                format!("table \"{name}\" does not exist"),
            ));
        };
        let mut next = file.clone();
        let id = table.id;
        next.tables.retain(|t| t.id != id);
        next.revisions.remove(&id);
        next.version += 1;
        self.commit_drop(&mut file, next).await?;
        self.shared.allocator()?.remove_table(id);
        // From here the table is gone; its files follow. A shard that fails now removes them at its start.
        for shard in self.all_shards() {
            let done = self
                .router
                .ask(shard, strandline_core::io::TaskQueue::Ingest, move |s| {
                    Box::pin(async move { s.drop_table(id).await })
                })
                .await;
            if let Err(e) = done {
                tracing::warn!(
                    shard = shard.0,
                    table = name,
                    "files of a dropped table stay until the next start: {e}"
                );
            }
        }
        Ok(true)
    }

    /// ALTER: one edit of the catalog file. No shard takes part: what is stored names columns by numbers.
    pub async fn alter_table(
        &self,
        table: TableId,
        changes: &[TableChange],
    ) -> Result<Vec<Skipped>> {
        let mut file = self.file.lock().await;
        let mut next = file.clone();
        let at = (next.tables.binary_search_by_key(&table, |t| t.id)).map_err(|_| no_table())?;
        let def = Arc::make_mut(&mut next.tables[at]);
        let mut skipped = Vec::new();
        let now_ms = self.env.clock.now_ms();
        for change in changes {
            if let TableChange::Rename { to } = change
                && self.named(to).is_some_and(|t| t.id != table)
            {
                return Err(Error::new(
                    SqlState::DuplicateTable,
                    format!("table \"{to}\" already exists"),
                ));
            }
            skipped.extend(def.change(change, &self.shared.limits, now_ms)?);
        }
        if next.tables[at] != file.tables[at] {
            next.version += 1;
            self.commit_loss(&mut file, next).await?;
            self.announce_retention();
        }
        Ok(skipped)
    }

    /// Line protocol: the table and channels that are missing, and wider labels.
    pub async fn ensure_columns(
        &self,
        name: &str,
        columns: Vec<ColumnSpec>,
    ) -> Result<Arc<TableDef>> {
        let mut file = self.file.lock().await;
        let mut next = file.clone();
        let id = match self.named(name) {
            Some(t) if t.family != Family::Timeseries => {
                return Err(Error::unsupported(format!(
                    "table \"{name}\" is a {} table; line protocol writes only timeseries tables",
                    t.family.name()
                ))
                .hint("use INSERT over the PostgreSQL protocol"));
            }
            Some(t) => t.id,
            None => self.add_table(
                &mut next,
                TableSpec {
                    name: name.to_string(),
                    family: Family::Timeseries,
                    columns: Vec::new(),
                    entity_uuid: false,
                    options: Default::default(),
                },
            )?,
        };
        let at = (next.tables.binary_search_by_key(&id, |t| t.id)).map_err(|_| no_table())?;
        let table = Arc::make_mut(&mut next.tables[at]);
        for spec in columns {
            if let Some(there) = table.columns.iter_mut().find(|c| c.name == spec.name) {
                if !there.declared
                    && !spec.declared
                    && width(spec.label) > width(there.label)
                    && width(there.label) > 0
                {
                    there.label = spec.label;
                }
                continue;
            }
            if table.columns.len() as u64 >= self.shared.limits.columns {
                return Err(self.shared.limits.exceeded(
                    "columns",
                    SqlState::ProgramLimitExceeded,
                    format!(
                        "channel \"{}\" would be one too many for table \"{name}\"",
                        spec.name
                    ),
                ));
            }
            let column = table.next_column;
            table.next_column = ColumnId(column.0 + 1);
            table.columns.push(ColumnDef {
                id: column,
                name: spec.name,
                label: spec.label,
                fill: if spec.declared { spec.fill } else { Fill::None },
                declared: spec.declared,
            });
        }
        if next.tables != file.tables {
            next.version += 1;
            self.commit_tables(&mut file, next).await?;
        }
        drop(file);
        self.shared.table(id)
    }

    /// Makes another block of a table's x_rev numbers durable, so that they may be handed out.
    pub async fn reserve(&self, table: TableId) -> Result<()> {
        let mut file = self.file.lock().await;
        let ledger = self.shared.ledger(table)?;
        let mut next = file.clone();
        let Some(r) = next.revisions.get_mut(&table) else {
            return Err(no_table());
        };
        if ledger.highest().0 + self.shared.limits.insert_run_rows < r.reserved.0 {
            // Another writer asked for the same block and has it.
            return Ok(());
        }
        // More than the widest single grant, whatever the configuration says: else it could never be given.
        let block = self
            .shared
            .limits
            .rev_reservation
            .max(2 * self.shared.limits.insert_run_rows);
        r.reserved = Rev((r.reserved.0 + block).min(Rev::MAX.0));
        let reserved = r.reserved;
        self.commit(&mut file, next).await?;
        self.shared.allocator()?.raise_reserved(table, reserved);
        Ok(())
    }

    /// Publishes a table's new vacuum horizon, durably. From here no feed from below it is answered.
    pub(crate) async fn raise_horizon(&self, table: TableId, horizon: Rev) -> Result<()> {
        let mut file = self.file.lock().await;
        let mut next = file.clone();
        let Some(r) = next.revisions.get_mut(&table) else {
            return Err(no_table());
        };
        if r.horizon >= horizon {
            return Ok(());
        }
        r.horizon = horizon;
        self.commit(&mut file, next).await
    }

    /// A clean way down: the numbers that were reserved and never handed out are given back.
    pub async fn close(&self) -> Result<()> {
        let mut file = self.file.lock().await;
        let mut next = file.clone();
        // While the database still starts there are no numbers to hand out.
        if let Ok(allocator) = self.shared.allocator() {
            allocator.seal();
        }
        for (&table, r) in &mut next.revisions {
            let ledger = self.shared.ledger(table)?;
            if ledger.in_flight() == 0 {
                r.reserved = ledger.highest();
            }
        }
        if next == *file && file.log == 0 {
            return Ok(());
        }
        self.writer.lock().await.close(&next).await?;
        next.log = 0;
        *file = next;
        self.shared.publish(&file);
        Ok(())
    }

    /// All shards, in order.
    pub(crate) fn all_shards(&self) -> impl Iterator<Item = strandline_core::ids::ShardId> + use<> {
        (0..self.shared.shards).map(strandline_core::ids::ShardId)
    }
}

/// How wide the label of an undeclared channel is; 0: it never widens.
fn width(label: Label) -> u8 {
    match label {
        Label::Bool => 1,
        Label::Int => 2,
        Label::Double => 3,
        Label::Timestamp | Label::Text { .. } => 0,
    }
}
