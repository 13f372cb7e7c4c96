//! ALTER TABLE by clients, beside all that others write and read.

use crate::sim::client::Client;
use crate::sim::model::columns::Alter;
use std::sync::Arc;
use strandline_core::error::SqlState;
use strandline_core::schema::{ColumnDef, ColumnSpec, Family, Fill, Label, TableDef};
use strandline_core::schema_change::TableChange;

/// Names that channels come and go under: few, so that one is soon given again.
const NAMES: u64 = 3;

impl Client {
    fn channel_name(&self) -> String {
        format!("c{}", self.run.world.rng.below(NAMES))
    }

    /// A channel of a table that nobody alters now.
    fn pick_column(&self, fits: impl Fn(&ColumnDef) -> bool) -> Option<(Arc<TableDef>, ColumnDef)> {
        let def = self.pick_table(Family::Timeseries)?;
        let mut model = self.run.model.borrow_mut();
        if model.columns(def.id).altering {
            return None;
        }
        let fitting: Vec<&ColumnDef> = def.columns.iter().filter(|c| fits(c)).collect();
        let at = self.run.world.rng.below(fitting.len() as u64) as usize;
        let column = (*fitting.get(at)?).clone();
        Some((def, column))
    }

    /// Sends one ALTER of a channel. True: it was acknowledged.
    async fn alter(&self, def: &Arc<TableDef>, alter: Alter, change: TableChange) -> bool {
        self.run.model.borrow_mut().columns(def.id).sent(&alter);
        let done = self.db.alter_table(def.id, vec![change]).await;
        let there = self.db.catalog().table_by_id(def.id).cloned();
        let mut model = self.run.model.borrow_mut();
        match &done {
            Ok(skipped) => {
                model.acked += 1;
                model.columns(def.id).acked(&alter);
                if !skipped.is_empty() {
                    let says = format!("{alter:?} had nothing to do: {skipped:?}");
                    self.run.note(Err(says));
                }
            }
            Err(e) => {
                let seen = there.as_ref().unwrap_or(def);
                model.columns(def.id).failed(&alter, seen);
                // A new column was faster with the name.
                let taken =
                    matches!(alter, Alter::Rename(..)) && e.state() == SqlState::DuplicateColumn;
                if !taken {
                    self.run.write_failed(&format!("{alter:?}"), e);
                }
            }
        }
        if let Some(def) = there {
            let saw = model.saw_table(&def).map(drop);
            self.run.note(saw);
        }
        done.is_ok()
    }

    /// Some ALTER.
    pub(super) async fn alter_something(&self) {
        match self.run.world.rng.below(8) {
            0..=2 => self.add_channel().await,
            3..=4 => self.drop_channel().await,
            5..=6 => self.set_fill().await,
            _ => self.rename_channel().await,
        }
    }

    /// Adds a channel, which may be there.
    async fn add_channel(&self) {
        let Some(def) = self.pick_table(Family::Timeseries) else {
            return;
        };
        let channel = ColumnSpec {
            name: self.channel_name(),
            label: Label::Double,
            fill: Fill::None,
            declared: false,
        };
        let done = match self.run.world.rng.one_in(2) {
            true => {
                let add = TableChange::AddColumn {
                    column: channel,
                    if_not_exists: true,
                };
                let done = self.db.alter_table(def.id, vec![add]).await;
                done.map(|_| None)
            }
            false => {
                let done = self.db.ensure_columns(&def.name, vec![channel]).await;
                done.map(Some)
            }
        };
        match done {
            Ok(answered) => {
                // The table may have gone on since, or be gone.
                let catalog = self.db.catalog();
                let id = answered.as_ref().map_or(def.id, |a| a.id);
                let Some(def) = catalog.table_by_id(id) else {
                    return;
                };
                let mut model = self.run.model.borrow_mut();
                let saw = model.saw_table(def).map(drop);
                self.run.note(saw);
                let answered = answered.iter().flat_map(|a| &a.columns);
                for column in answered.filter(|c| def.column_by_id(c.id).is_none()) {
                    if !model.columns(id).may_be_gone(column.id) {
                        let says = format!("{} lost channel {}", def.name, column.name);
                        self.run.note(Err(says));
                    }
                }
            }
            Err(e) => self.run.write_failed("a new channel", &e),
        }
    }

    /// Drops a channel that was added.
    async fn drop_channel(&self) {
        let Some((def, column)) = self.pick_column(|c| !c.declared) else {
            return;
        };
        let change = TableChange::DropColumn {
            name: column.name,
            if_exists: self.run.world.rng.one_in(2),
        };
        if self.alter(&def, Alter::Drop(column.id), change).await {
            self.run.met(|c| c.columns_dropped += 1);
        }
    }

    /// Another policy for any channel: what is stored stays, what is shown of it is another.
    async fn set_fill(&self) {
        let Some((def, column)) = self.pick_column(|_| true) else {
            return;
        };
        let rng = &self.run.world.rng;
        let fill = match rng.below(3) {
            0 => Fill::None,
            1 => Fill::Hold { staleness_ms: None },
            _ => Fill::Hold {
                staleness_ms: Some(1_500 * (1 + rng.below(40) as i64)),
            },
        };
        let change = TableChange::SetFill {
            name: column.name,
            fill,
        };
        if self.alter(&def, Alter::Fill(column.id, fill), change).await {
            self.run
                .met(|c| c.fills_changed += u64::from(fill != column.fill));
        }
    }

    /// Another name for a channel that was added, of the names of others: it keeps what it holds.
    async fn rename_channel(&self) {
        let Some((def, column)) = self.pick_column(|c| !c.declared) else {
            return;
        };
        let to = self.channel_name();
        if def.column(&to).is_some() {
            return;
        }
        let change = TableChange::RenameColumn {
            from: column.name,
            to: to.clone(),
        };
        if self.alter(&def, Alter::Rename(column.id, to), change).await {
            self.run.met(|c| c.columns_renamed += 1);
        }
    }
}
