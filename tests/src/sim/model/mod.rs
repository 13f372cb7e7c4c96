//! What must be true after anything: the facts that clients and readers have seen, and the attempts whose
//! outcome they do not know. Outlives every crash.

pub mod rows;
pub mod state;
pub mod stream;

use rows::RowsModel;
use state::StateModel;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_core::ids::TableId;
use strandline_core::schema::{Catalog, Family, TableDef};
use stream::StreamModel;

/// What a check answers.
pub type Check = Result<(), String>;

/// Whether a table was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Nobody tried.
    No,
    /// Somebody did, and does not know.
    Perhaps,
    /// For sure: it never comes back.
    Yes,
}

/// A table that somebody saw.
#[derive(Debug)]
pub struct TableModel {
    /// Its definition when it was seen last.
    pub def: Arc<TableDef>,
    /// Whether it is gone.
    pub dropped: Dropped,
    /// Facts, when it is a rows table.
    pub rows: RowsModel,
    /// Facts, when it is a timeseries table.
    pub stream: StreamModel,
    /// Facts, when it is MUTABLE.
    pub state: StateModel,
}

/// A CHECKPOINT that was answered.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its folder.
    pub path: String,
    /// When it was asked for.
    pub sent: u64,
    /// When it was answered.
    pub acked: u64,
}

/// Facts and attempts of a run.
#[derive(Debug, Default)]
pub struct Model {
    now: u64,
    /// Every table that anybody saw.
    pub tables: BTreeMap<TableId, TableModel>,
    /// Names whose DROP runs now.
    dropping: BTreeMap<String, u32>,
    /// Snapshots to look at.
    pub snapshots: Vec<Snapshot>,
    /// Writes acknowledged, so that a run that did nothing is noticed.
    pub acked: u64,
}

impl Model {
    /// The next moment: every one is different.
    pub fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Somebody sees this table: from now on it must be there.
    pub fn saw_table(&mut self, def: &Arc<TableDef>) -> Result<&mut TableModel, String> {
        let dropping = self.dropping.get(&def.name).is_some_and(|n| *n > 0);
        let table = self.tables.entry(def.id).or_insert_with(|| TableModel {
            def: def.clone(),
            dropped: if dropping {
                Dropped::Perhaps
            } else {
                Dropped::No
            },
            rows: RowsModel::default(),
            stream: StreamModel::new(def.options.dedup),
            state: StateModel::default(),
        });
        if table.def.name != def.name || table.def.family != def.family {
            return Err(format!(
                "table number {} was {} and is {}: used twice",
                def.id.0, table.def.name, def.name
            ));
        }
        if table.dropped == Dropped::Yes {
            return Err(format!("table {} came back after its DROP", def.name));
        }
        for column in &table.def.columns {
            if !def
                .columns
                .iter()
                .any(|c| c.id == column.id && c.name == column.name)
            {
                return Err(format!("column {} of {} is lost", column.name, def.name));
            }
        }
        table.def = def.clone();
        Ok(table)
    }

    /// A DROP is sent. Answers the tables that are gone for sure once it is acknowledged.
    pub fn drop_sent(&mut self, name: &str) -> Vec<TableId> {
        *self.dropping.entry(name.to_string()).or_default() += 1;
        let named = self.tables.iter_mut().filter(|(_, t)| t.def.name == name);
        let mut ids = Vec::new();
        for (&id, table) in named {
            if table.dropped == Dropped::No {
                table.dropped = Dropped::Perhaps;
            }
            ids.push(id);
        }
        ids
    }

    /// The DROP was acknowledged.
    pub fn drop_acked(&mut self, name: &str, ids: &[TableId]) {
        if let Some(n) = self.dropping.get_mut(name) {
            *n -= 1;
        }
        for id in ids {
            if let Some(table) = self.tables.get_mut(id) {
                table.dropped = Dropped::Yes;
            }
        }
    }

    /// The DROP failed. A table that clients still see then is as if nobody had tried, unless somebody else
    /// tries as well.
    pub fn drop_failed(&mut self, name: &str, ids: &[TableId], catalog: &Catalog) {
        let others = self.dropping.get_mut(name).map_or(0, |n| {
            *n -= 1;
            *n
        });
        for id in ids {
            if let Some(table) = self.tables.get_mut(id)
                && others == 0
                && catalog.table_by_id(*id).is_some()
                && table.dropped == Dropped::Perhaps
            {
                table.dropped = Dropped::No;
            }
        }
    }

    /// The tables after a start: those that must be there are, and none that must not.
    pub fn check_catalog(&mut self, catalog: &Catalog) -> Check {
        for def in catalog.tables() {
            self.saw_table(def)?;
        }
        for (&id, table) in &mut self.tables {
            if catalog.table_by_id(id).is_some() {
                // Whatever DROP was under way died with the process.
                table.dropped = Dropped::No;
            } else if table.dropped == Dropped::No {
                return Err(format!("table {} is lost", table.def.name));
            } else {
                table.dropped = Dropped::Yes;
            }
        }
        self.dropping.clear();
        Ok(())
    }

    /// The table of this name that is there now.
    pub fn named(&mut self, name: &str) -> Option<&mut TableModel> {
        self.tables
            .values_mut()
            .find(|t| t.def.name == name && t.dropped != Dropped::Yes)
    }

    /// The tables of a family that are there for all anybody knows.
    pub fn of_family(&self, family: Family) -> Vec<TableId> {
        self.tables
            .iter()
            .filter(|(_, t)| t.def.family == family && t.dropped != Dropped::Yes)
            .map(|(&id, _)| id)
            .collect()
    }

    /// The rows of a table.
    pub fn rows(&mut self, table: TableId) -> &mut RowsModel {
        &mut self
            .tables
            .get_mut(&table)
            .expect("a table that was seen")
            .rows
    }

    /// The entities of a MUTABLE table.
    pub fn state(&mut self, table: TableId) -> &mut StateModel {
        let table = self.tables.get_mut(&table);
        &mut table.expect("a table that was seen").state
    }

    /// The samples of a table.
    pub fn stream(&mut self, table: TableId) -> &mut StreamModel {
        &mut self
            .tables
            .get_mut(&table)
            .expect("a table that was seen")
            .stream
    }
}
