//! What is known of a table's name and columns: what an ALTER that was acknowledged says, or either of two
//! while the outcome of one is not known.

use super::Check;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use strandline_core::ids::ColumnId;
use strandline_core::schema::{ColumnDef, Fill, TableDef};

/// A thing that an ALTER changes: what it may be now, the likeliest first.
#[derive(Clone, Debug)]
pub struct Choice<T>(Vec<T>);

impl<T: PartialEq + Clone + Debug> Choice<T> {
    /// Known for sure.
    pub fn sure(value: T) -> Choice<T> {
        Choice(vec![value])
    }

    /// An ALTER that makes it this is sent. Answers whether it could not be this before.
    fn sent(&mut self, value: &T) -> bool {
        let new = !self.0.contains(value);
        if new {
            self.0.push(value.clone());
        }
        new
    }

    /// The ALTER surely did not happen.
    fn not(&mut self, value: &T) {
        self.0.retain(|v| v != value);
    }

    /// Whether it may be this.
    pub fn may_be(&self, value: &T) -> bool {
        self.0.contains(value)
    }

    fn check(&self, what: &str, found: &T) -> Check {
        match self.may_be(found) {
            true => Ok(()),
            false => Err(format!("{what} is {found:?}, and it was {:?}", self.0)),
        }
    }
}

/// A column that somebody saw, there or not.
#[derive(Debug)]
struct ColumnModel {
    name: Choice<String>,
    fill: Choice<Fill>,
    there: Choice<bool>,
}

/// What an ALTER makes of a column or a table.
#[derive(Clone, Debug)]
pub enum Alter {
    /// DROP COLUMN.
    Drop(ColumnId),
    /// SET FILL.
    Fill(ColumnId, Fill),
    /// RENAME COLUMN.
    Rename(ColumnId, String),
}

/// Every column of a table that anybody saw. One ALTER at a time changes columns that are there: with two,
/// nobody would know which of them a name meant. New columns come beside it.
#[derive(Debug, Default)]
pub struct ColumnsModel {
    columns: BTreeMap<ColumnId, ColumnModel>,
    /// An ALTER runs now.
    pub altering: bool,
    /// What it makes of the column, the column could not be before.
    new: bool,
}

impl ColumnsModel {
    /// The table is seen with these columns. With `settle`, after a start: what was not known is known now.
    pub fn saw(&mut self, def: &TableDef, settle: bool) -> Check {
        for (&id, known) in &mut self.columns {
            let what =
                |of: &str| format!("{of} column {} ({:?}) of {}", id.0, known.name.0, def.name);
            let found = def.column_by_id(id);
            known
                .there
                .check(&what("the presence of"), &found.is_some())?;
            if let Some(column) = found {
                known.name.check(&what("the name of"), &column.name)?;
                known.fill.check(&what("the fill of"), &column.fill)?;
            }
            if settle {
                known.there = Choice::sure(found.is_some());
                if let Some(column) = found {
                    known.name = Choice::sure(column.name.clone());
                    known.fill = Choice::sure(column.fill);
                }
            }
        }
        for column in &def.columns {
            self.columns
                .entry(column.id)
                .or_insert_with(|| ColumnModel {
                    name: Choice::sure(column.name.clone()),
                    fill: Choice::sure(column.fill),
                    there: Choice::sure(true),
                });
        }
        self.altering &= !settle;
        Ok(())
    }

    fn known(&mut self, column: ColumnId) -> &mut ColumnModel {
        self.columns
            .get_mut(&column)
            .expect("a column that was seen")
    }

    /// An ALTER is sent.
    pub fn sent(&mut self, alter: &Alter) {
        self.altering = true;
        self.new = match alter {
            Alter::Drop(c) => self.known(*c).there.sent(&false),
            Alter::Fill(c, fill) => self.known(*c).fill.sent(fill),
            Alter::Rename(c, name) => self.known(*c).name.sent(name),
        };
    }

    /// It was acknowledged.
    pub fn acked(&mut self, alter: &Alter) {
        self.altering = false;
        match alter {
            Alter::Drop(c) => self.known(*c).there = Choice::sure(false),
            Alter::Fill(c, fill) => self.known(*c).fill = Choice::sure(*fill),
            Alter::Rename(c, name) => self.known(*c).name = Choice::sure(name.clone()),
        }
    }

    /// It failed. When the table is seen as it was, so it is; else nobody knows until the next start.
    pub fn failed(&mut self, alter: &Alter, def: &TableDef) {
        self.altering = false;
        let (Alter::Drop(c) | Alter::Fill(c, _) | Alter::Rename(c, _)) = alter;
        let Some(seen) = def.column_by_id(*c).filter(|_| self.new) else {
            return;
        };
        match alter {
            Alter::Drop(c) => self.known(*c).there.not(&false),
            Alter::Fill(c, fill) if seen.fill != *fill => self.known(*c).fill.not(fill),
            Alter::Rename(c, name) if seen.name != *name => self.known(*c).name.not(name),
            Alter::Fill(..) | Alter::Rename(..) => {}
        }
    }

    /// Whether a column may be gone, for all anybody knows.
    pub fn may_be_gone(&self, column: ColumnId) -> bool {
        let known = self.columns.get(&column);
        known.is_some_and(|c| c.there.may_be(&false))
    }

    /// What an answer to a question about `asked` may show: of each column that was dropped meanwhile all or
    /// nothing, of the others all. What was there when the question was asked comes first.
    pub fn views(&self, asked: &[ColumnDef]) -> Vec<Vec<ColumnId>> {
        let mut views: Vec<BTreeSet<ColumnId>> = vec![asked.iter().map(|c| c.id).collect()];
        for gone in asked.iter().filter(|c| self.may_be_gone(c.id)) {
            let mut without = views.clone();
            for view in &mut without {
                view.remove(&gone.id);
            }
            views.extend(without);
        }
        views.into_iter().map(|v| v.into_iter().collect()).collect()
    }
}
