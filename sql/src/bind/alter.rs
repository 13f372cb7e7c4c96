//! ALTER TABLE: what its actions may name, tried against the catalog so that an error knows its place.

use super::Binder;
use crate::ast::{Alter, AlterAction};
use crate::plan::Plan;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::schema::{Family, TableDef, is_reserved_table};
use strandline_core::schema_change::TableChange;

impl Binder<'_> {
    pub(super) fn alter(&self, alter: &Alter) -> Result<Plan> {
        let def = match self.table(&alter.table) {
            Ok(def) => def,
            Err(_) if alter.if_exists => {
                return Ok(Plan::AlterAbsent {
                    name: alter.table.text.clone(),
                });
            }
            Err(e) => return Err(e),
        };
        let renames = |a: &AlterAction| {
            matches!(
                a,
                AlterAction::Rename { .. } | AlterAction::RenameColumn { .. }
            )
        };
        if alter.actions.len() > 1 && alter.actions.iter().any(renames) {
            return Err(self
                .unsupported(alter.at, "RENAME stands alone in an ALTER TABLE")
                .hint("write one statement for each"));
        }
        let mut after = (**def).clone();
        let mut changes = Vec::with_capacity(alter.actions.len());
        for action in &alter.actions {
            let (at, change) = self.table_change(alter, def, action)?;
            if let TableChange::Rename { to } = &change
                && *to != def.name
                && self.cx.catalog.table(to).is_some()
            {
                return Err(self.error(
                    SqlState::DuplicateTable,
                    at,
                    format!("table \"{to}\" already exists"),
                ));
            }
            after
                .change(&change, self.cx.limits, self.cx.now_ms)
                .map_err(|e| match e.hint_text() {
                    Some(hint) => self.error(e.state(), at, e.message()).hint(hint),
                    None => self.error(e.state(), at, e.message()),
                })?;
            changes.push(change);
        }
        Ok(Plan::AlterTable {
            table: def.id,
            changes,
        })
    }

    fn table_change(
        &self,
        alter: &Alter,
        def: &TableDef,
        action: &AlterAction,
    ) -> Result<(u32, TableChange)> {
        let family = def.family;
        let owned = |at: u32, name: &str| -> Result<()> {
            match (family, name) {
                (Family::Rows, "xid" | "x_rev" | "x_deleted")
                | (Family::Timeseries, "entity" | "ts" | "$timestamp") => {
                    Err(self.engine_owned(at, name))
                }
                _ => Ok(()),
            }
        };
        let timeseries = |at: u32, clause: &str| match family {
            Family::Timeseries => Ok(()),
            Family::Rows => Err(self.not_on_rows(at, clause, &alter.table)),
        };
        Ok(match action {
            AlterAction::Add {
                column,
                if_not_exists,
            } => {
                let column_spec = self.column_spec(column, family, &alter.table)?;
                let change = TableChange::AddColumn {
                    column: column_spec,
                    if_not_exists: *if_not_exists,
                };
                (column.name.at, change)
            }
            AlterAction::Drop { column, if_exists } => {
                owned(column.at, &column.text)?;
                (
                    column.at,
                    TableChange::DropColumn {
                        name: column.text.clone(),
                        if_exists: *if_exists,
                    },
                )
            }
            AlterAction::RenameColumn { from, to } => {
                owned(from.at, &from.text)?;
                self.check_column_name(to, family, &alter.table)?;
                let at = match def.column(&from.text) {
                    Some(_) => to.at,
                    None => from.at,
                };
                (
                    at,
                    TableChange::RenameColumn {
                        from: from.text.clone(),
                        to: to.text.clone(),
                    },
                )
            }
            AlterAction::SetFill {
                column,
                hold,
                staleness,
                at,
            } => {
                timeseries(*at, "SET FILL")?;
                owned(column.at, &column.text)?;
                let change = TableChange::SetFill {
                    name: column.text.clone(),
                    fill: self.fill(column, *hold, *staleness)?,
                };
                let stale_at = staleness.map(|s| s.1).filter(|_| def.options.mutable);
                (stale_at.unwrap_or(column.at), change)
            }
            AlterAction::SetRetention { ms, at } => {
                timeseries(*at, "SET RETENTION")?;
                let retention_ms = match ms {
                    Some(ms) => Some(self.retention(*ms, *at, &def.name)?),
                    None => None,
                };
                (*at, TableChange::SetRetention { retention_ms })
            }
            AlterAction::Rename { to } => {
                if is_reserved_table(&to.text) {
                    return Err(self.reserved_table(to));
                }
                (
                    to.at,
                    TableChange::Rename {
                        to: to.text.clone(),
                    },
                )
            }
        })
    }

    fn engine_owned(&self, at: u32, name: &str) -> Error {
        self.error(
            SqlState::GeneratedAlways,
            at,
            format!("column \"{name}\" is the engine's and cannot be altered"),
        )
    }
}
