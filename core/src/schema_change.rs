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
}

/// An action that had nothing to do, as a notice: its condition and words.
pub type Skipped = (SqlState, String);

impl TableDef {
    /// Applies one action.
    ///
    /// # Errors
    /// `42701` for a column that is there, `42703` for one that is not, `54000` for one too many. The description
    /// is unchanged then.
    pub fn change(&mut self, change: &TableChange, limits: &Limits) -> Result<Option<Skipped>> {
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
        }
        Ok(None)
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
            assert_eq!(t.change(&add("a"), &limits).unwrap(), None);
            assert_eq!(t.change(&drop_column("a"), &limits).unwrap(), None);
        }
        t.change(&add("a"), &limits).unwrap();
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
        t.change(&add("a"), &limits).unwrap();
        t.change(&add("b"), &limits).unwrap();
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
                t.change(&change, &limits).unwrap_err().state(),
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
            t.change(&absent, &limits).unwrap().unwrap().0,
            SqlState::UndefinedColumn
        );
        assert_eq!(t, before);
        t.change(&rename("a", "z"), &limits).unwrap();
        assert_eq!(t.column("z").unwrap().id, before.column("a").unwrap().id);
    }
}
