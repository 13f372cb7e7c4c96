//! What ALTER TABLE changes: an edit of the catalog's description of a table, which touches no stored row. Columns
//! have numbers that are never reused, so a name that is dropped and added again is another column, empty.

use crate::error::{Error, Result, SqlState};
use crate::ids::ColumnId;
use crate::limits::Limits;
use crate::schema::{ColumnDef, ColumnSpec, Fill, TableDef};

/// One action of ALTER TABLE. Names are as stored; whether a family allows them is decided before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// ADD COLUMN, at the end.
    AddColumn {
        /// The column; a declared one.
        column: ColumnSpec,
        /// Fine when there is one of that name.
        if_not_exists: bool,
    },
    /// DROP COLUMN.
    DropColumn {
        /// Which.
        name: String,
        /// Fine when there is none.
        if_exists: bool,
    },
    /// RENAME COLUMN.
    RenameColumn {
        /// Which.
        from: String,
        /// To what.
        to: String,
    },
    /// RENAME TO. Whether the name is free, the catalog knows.
    Rename {
        /// The table's new name.
        to: String,
    },
    /// ALTER COLUMN … SET FILL, of a channel.
    SetFill {
        /// Which.
        name: String,
        /// From the next statement on; what is stored was never filled.
        fill: Fill,
    },
    /// SET RETENTION, of a timeseries table.
    SetRetention {
        /// Milliseconds, ≥ a day; `None`: nothing more expires.
        retention_ms: Option<i64>,
    },
}

/// Why RETENTION does not go with MUTABLE.
pub const NO_RETENTION: &str = "a mutable table keeps the current state of each entity, however old; DELETE takes an entity away";
/// Why STALENESS does not.
pub const NO_STALENESS: &str =
    "the state of an entity stays until it is overwritten or deleted; filter on ts instead";

/// An action that had nothing to do, as a notice: its condition and words.
pub type Skipped = (SqlState, String);

impl TableDef {
    /// Applies one action at `now_ms` (Unix ms).
    ///
    /// # Errors
    /// `42701` for a column that is there, `42703` for one that is not, `54000` for one too many, `42P16` for what
    /// does not go with MUTABLE. The description is unchanged then.
    pub fn change(
        &mut self,
        change: &TableChange,
        limits: &Limits,
        now_ms: i64,
    ) -> Result<Option<Skipped>> {
        match change {
            TableChange::AddColumn {
                column,
                if_not_exists,
            } => {
                if self.column(&column.name).is_some() {
                    let words = format!(
                        "column \"{}\" of table \"{}\" already exists",
                        column.name, self.name
                    );
                    return match if_not_exists {
                        true => Ok(Some((
                            SqlState::DuplicateColumn,
                            format!("{words}, skipping"),
                        ))),
                        false => Err(Error::new(SqlState::DuplicateColumn, words)),
                    };
                }
                if self.columns.len() as u64 >= limits.columns {
                    return Err(limits.exceeded(
                        "columns",
                        SqlState::ProgramLimitExceeded,
                        format_args!(
                            "column \"{}\" would be one too many for table \"{}\"",
                            column.name, self.name
                        ),
                    ));
                }
                self.check_fill(column.fill)?;
                let id = self.next_column;
                self.next_column = ColumnId(id.0 + 1);
                self.columns.push(ColumnDef {
                    id,
                    name: column.name.clone(),
                    label: column.label,
                    fill: if column.declared {
                        column.fill
                    } else {
                        Fill::None
                    },
                    declared: column.declared,
                });
            }
            TableChange::DropColumn { name, if_exists } => {
                match self.columns.iter().position(|c| c.name == *name) {
                    Some(at) => {
                        self.columns.remove(at);
                    }
                    None if *if_exists => {
                        let words = format!(
                            "column \"{name}\" of table \"{}\" does not exist, skipping",
                            self.name
                        );
                        return Ok(Some((SqlState::UndefinedColumn, words)));
                    }
                    None => return Err(self.no_column(name)),
                }
            }
            TableChange::RenameColumn { from, to } => {
                let Some(at) = self.columns.iter().position(|c| c.name == *from) else {
                    return Err(self.no_column(from));
                };
                if self.column(to).is_some() {
                    return Err(Error::new(
                        SqlState::DuplicateColumn,
                        format!("column \"{to}\" of table \"{}\" already exists", self.name),
                    ));
                }
                self.columns[at].name.clone_from(to);
            }
            TableChange::Rename { to } => self.name.clone_from(to),
            TableChange::SetFill { name, fill } => {
                let Some(at) = self.columns.iter().position(|c| c.name == *name) else {
                    return Err(self.no_column(name));
                };
                self.check_fill(*fill)?;
                self.columns[at].fill = *fill;
            }
            TableChange::SetRetention { retention_ms } => {
                if self.options.mutable && retention_ms.is_some() {
                    return Err(self.mutable_excludes("RETENTION", NO_RETENTION));
                }
                if self.options.retention_ms != *retention_ms {
                    // What has expired stays so: a reader was told that it is gone, and files may be.
                    let floor = self.options.floor(now_ms);
                    self.options.expired_before_ms = (floor > i64::MIN).then_some(floor);
                    self.options.retention_ms = *retention_ms;
                }
            }
        }
        Ok(None)
    }

    fn check_fill(&self, fill: Fill) -> Result<()> {
        let stale = matches!(fill, Fill::Hold { staleness_ms } if staleness_ms.is_some());
        match stale && self.options.mutable {
            true => Err(self.mutable_excludes("STALENESS", NO_STALENESS)),
            false => Ok(()),
        }
    }

    fn mutable_excludes(&self, clause: &str, why: &str) -> Error {
        Error::new(
            SqlState::InvalidTableDefinition,
            format!(
                "MUTABLE and {clause} exclude each other on table \"{}\"",
                self.name
            ),
        )
        .hint(why)
    }

    fn no_column(&self, name: &str) -> Error {
        Error::new(
            SqlState::UndefinedColumn,
            format!(
                "column \"{name}\" of table \"{}\" does not exist",
                self.name
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableId;
    use crate::schema::{Family, Label};

    fn table() -> TableDef {
        TableDef {
            id: TableId(1),
            name: "t".into(),
            family: Family::Rows,
            columns: vec![],
            entity_uuid: false,
            options: Default::default(),
            next_column: ColumnId::FIRST,
        }
    }

    fn add(name: &str) -> TableChange {
        let column = ColumnSpec {
            name: name.into(),
            label: Label::Int,
            fill: Fill::None,
            declared: true,
        };
        TableChange::AddColumn {
            column,
            if_not_exists: false,
        }
    }

    fn drop_column(name: &str) -> TableChange {
        TableChange::DropColumn {
            name: name.into(),
            if_exists: false,
        }
    }

    #[test]
    fn a_number_is_never_given_again() {
        let (mut t, limits) = (table(), Limits::default());
        for _ in 0..3 {
            assert_eq!(t.change(&add("a"), &limits, 0).unwrap(), None);
            assert_eq!(t.change(&drop_column("a"), &limits, 0).unwrap(), None);
        }
        t.change(&add("a"), &limits, 0).unwrap();
        assert_eq!(t.column("a").unwrap().id.0, ColumnId::FIRST.0 + 3);
    }

    #[test]
    fn what_fails_changes_nothing() {
        let (mut t, limits) = (
            table(),
            Limits {
                columns: 2,
                ..Limits::default()
            },
        );
        t.change(&add("a"), &limits, 0).unwrap();
        t.change(&add("b"), &limits, 0).unwrap();
        let before = t.clone();
        let rename = |from: &str, to: &str| TableChange::RenameColumn {
            from: from.into(),
            to: to.into(),
        };
        for (change, state) in [
            (add("a"), SqlState::DuplicateColumn),
            (add("c"), SqlState::ProgramLimitExceeded),
            (drop_column("c"), SqlState::UndefinedColumn),
            (rename("c", "d"), SqlState::UndefinedColumn),
            (rename("a", "b"), SqlState::DuplicateColumn),
        ] {
            assert_eq!(
                t.change(&change, &limits, 0).unwrap_err().state(),
                state,
                "{change:?}"
            );
            assert_eq!(t, before);
        }
        let absent = TableChange::DropColumn {
            name: "c".into(),
            if_exists: true,
        };
        assert_eq!(
            t.change(&absent, &limits, 0).unwrap().unwrap().0,
            SqlState::UndefinedColumn
        );
        assert_eq!(t, before);
        t.change(&rename("a", "z"), &limits, 0).unwrap();
        assert_eq!(t.column("z").unwrap().id, before.column("a").unwrap().id);
    }

    #[test]
    fn fill_and_retention() {
        const DAY: i64 = crate::time::DAY_MS;
        let (mut t, limits) = (table(), Limits::default());
        t.family = Family::Timeseries;
        t.change(&add("a"), &limits, 0).unwrap();
        let hold = Fill::Hold {
            staleness_ms: Some(5),
        };
        let fill = |name: &str, fill| TableChange::SetFill {
            name: name.into(),
            fill,
        };
        t.change(&fill("a", hold), &limits, 0).unwrap();
        assert_eq!(t.column("a").unwrap().fill, hold);
        let e = t.change(&fill("b", hold), &limits, 0).unwrap_err();
        assert_eq!(e.state(), SqlState::UndefinedColumn);

        let retain = |days: Option<i64>| TableChange::SetRetention {
            retention_ms: days.map(|d| d * DAY),
        };
        let noon = 100 * DAY + DAY / 2;
        // Days, now, the floor at that moment, what stays expired.
        for (days, now, floor, expired) in [
            (Some(30), noon, 70 * DAY, None),
            // The same again is no change: what expired by it still follows the clock.
            (Some(30), noon + DAY, 71 * DAY, None),
            // Longer, or without end: what had expired does not come back.
            (Some(90), noon + DAY, 71 * DAY, Some(71 * DAY)),
            (None, noon + DAY, 71 * DAY, Some(71 * DAY)),
            // Shorter, and the clock stepped back: never less than was said before.
            (Some(1), noon, 99 * DAY, Some(71 * DAY)),
            (None, noon + 40 * DAY, 139 * DAY, Some(139 * DAY)),
            (None, noon, 139 * DAY, Some(139 * DAY)),
            (Some(1), noon, 139 * DAY, Some(139 * DAY)),
        ] {
            t.change(&retain(days), &limits, now).unwrap();
            let o = &t.options;
            assert_eq!(
                (o.retention_ms, o.floor(now), o.expired_before_ms),
                (days.map(|d| d * DAY), floor, expired),
                "{days:?} at {now}"
            );
        }
    }

    #[test]
    fn mutable_excludes_retention_and_staleness() {
        let (mut t, limits) = (table(), Limits::default());
        (t.family, t.options.mutable) = (Family::Timeseries, true);
        t.change(&add("a"), &limits, 0).unwrap();
        let stale = Fill::Hold {
            staleness_ms: Some(5),
        };
        let held = Fill::Hold { staleness_ms: None };
        let set = |fill| TableChange::SetFill {
            name: "a".into(),
            fill,
        };
        let added = |fill| TableChange::AddColumn {
            column: ColumnSpec {
                name: "b".into(),
                label: Label::Int,
                fill,
                declared: true,
            },
            if_not_exists: false,
        };
        let retain = |retention_ms| TableChange::SetRetention { retention_ms };
        let before = t.clone();
        for change in [set(stale), added(stale), retain(Some(1 << 40))] {
            let e = t.change(&change, &limits, 0).unwrap_err();
            assert_eq!(e.state(), SqlState::InvalidTableDefinition, "{change:?}");
            assert_eq!(t, before);
        }
        for change in [set(held), added(held), retain(None)] {
            t.change(&change, &limits, 0).unwrap();
        }
    }
}
