//! ALTER TABLE: what its actions may name, tried against the catalog so that an error knows its place.

use super::Binder;
use crate::ast::{Alter, AlterAction};
use crate::plan::Plan;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::schema::{Family, is_reserved_table};
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
        if def.family != Family::Rows {
            return Err(self.wrong_family(
                def,
                alter.at,
                "ALTER TABLE",
                "this version alters rows tables; line protocol adds channels by itself",
            ));
        }
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
            let (at, change) = self.table_change(alter, def.family, action)?;
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
                .change(&change, self.cx.limits)
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
        family: Family,
        action: &AlterAction,
    ) -> Result<(u32, TableChange)> {
        let owned = |at: u32, name: &str| -> Result<()> {
            match name {
                "xid" | "x_rev" | "x_deleted" => Err(self.engine_owned(at, name)),
                _ => Ok(()),
            }
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
                let at = if self
                    .cx
                    .catalog
                    .table(&alter.table.text)
                    .is_some_and(|t| t.column(&from.text).is_none())
                {
                    from.at
                } else {
                    to.at
                };
                (
                    at,
                    TableChange::RenameColumn {
                        from: from.text.clone(),
                        to: to.text.clone(),
                    },
                )
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
