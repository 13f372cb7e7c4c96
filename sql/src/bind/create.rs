//! CREATE: names that a family reserves, clauses that it does not have.

use super::Binder;
use crate::ast::{ColumnDecl, Create, Name};
use crate::plan::Plan;
use hashbrown::HashSet;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::schema::{ColumnSpec, Family, Fill, TableSpec, is_reserved_table};

impl Binder<'_> {
    pub(super) fn create(&self, create: &Create) -> Result<Plan> {
        let family = if create.rows {
            Family::Rows
        } else {
            Family::Timeseries
        };
        let table = &create.table;
        if is_reserved_table(&table.text) {
            return Err(self.reserved_table(table));
        }
        if create.columns.len() as u64 > self.cx.limits.columns {
            return Err(self.cx.limits.exceeded(
                "columns",
                SqlState::ProgramLimitExceeded,
                format_args!(
                    "{} columns for table \"{}\"",
                    create.columns.len(),
                    table.text
                ),
            ));
        }
        let (entity_uuid, options) = self.table_options(create, family)?;
        let mut seen = HashSet::new();
        let mut columns = Vec::with_capacity(create.columns.len());
        for c in &create.columns {
            if family == Family::Timeseries && c.name.text == "$timestamp" {
                let message = format!(
                    "declaring $timestamp in table \"{}\" is not supported yet",
                    table.text
                );
                return Err(self.unsupported(c.name.at, message).hint(
                    "every timeseries table has entity, ts and $timestamp without declaring them",
                ));
            }
            let column = self.column_spec(c, family, table)?;
            if !seen.insert(c.name.text.as_str()) {
                return Err(self.error(
                    SqlState::DuplicateColumn,
                    c.name.at,
                    format!(
                        "column \"{}\" is declared twice in table \"{}\"",
                        c.name.text, table.text
                    ),
                ));
            }
            columns.push(column);
        }
        Ok(Plan::CreateTable {
            spec: TableSpec {
                name: table.text.clone(),
                family,
                columns,
                entity_uuid,
                options,
            },
            if_not_exists: create.if_not_exists,
        })
    }

    /// A declared column, its name and clauses checked against the family.
    pub(super) fn column_spec(
        &self,
        c: &ColumnDecl,
        family: Family,
        table: &Name,
    ) -> Result<ColumnSpec> {
        self.check_column_name(&c.name, family, table)?;
        let clause = c
            .fill
            .map(|f| (f.1, "FILL"))
            .or(c.staleness.map(|s| (s.1, "STALENESS")));
        if let (Some((at, clause)), Family::Rows) = (clause, family) {
            return Err(self.not_on_rows(at, clause, table));
        }
        let hold = c.fill.is_some_and(|f| f.0);
        Ok(ColumnSpec {
            name: c.name.text.clone(),
            label: c.label,
            fill: self.fill(&c.name, hold, c.staleness)?,
            declared: true,
        })
    }

    /// What FILL and STALENESS of a channel say together.
    pub(super) fn fill(
        &self,
        column: &Name,
        hold: bool,
        staleness: Option<(i64, u32)>,
    ) -> Result<Fill> {
        match (hold, staleness) {
            (false, None) => Ok(Fill::None),
            (true, _) => Ok(Fill::Hold {
                staleness_ms: staleness.map(|s| s.0),
            }),
            (false, Some((_, at))) => Err(self
                .error(
                    SqlState::InvalidTableDefinition,
                    at,
                    format!("STALENESS of column \"{}\" needs FILL HOLD", column.text),
                )
                .hint("only a held value can become stale")),
        }
    }

    /// A table's name that is the system's.
    pub(super) fn reserved_table(&self, table: &Name) -> Error {
        self.error(
            SqlState::ReservedName,
            table.at,
            format!("the table name \"{}\" is reserved", table.text),
        )
        .hint("names that begin with pg_ or $ are the system's")
    }

    pub(super) fn not_on_rows(&self, at: u32, clause: &str, table: &Name) -> Error {
        self.unsupported(
            at,
            format!(
                "{clause} is not possible on \"{}\": it is a rows table",
                table.text
            ),
        )
        .hint("it belongs to timeseries tables: CREATE TABLE")
    }

    pub(super) fn check_column_name(
        &self,
        name: &Name,
        family: Family,
        table: &Name,
    ) -> Result<()> {
        let n = name.text.as_str();
        let why = match family {
            Family::Timeseries if matches!(n, "entity" | "ts" | "$timestamp") => {
                "every timeseries table has it already"
            }
            Family::Rows if n == "xid" || n.starts_with("x_") => {
                "xid and names that begin with x_ are the engine's on rows tables"
            }
            _ if n.starts_with('$') => "names that begin with $ are the system's",
            _ => return Ok(()),
        };
        Err(self
            .error(
                SqlState::ReservedName,
                name.at,
                format!(
                    "the column name \"{n}\" is reserved in table \"{}\"",
                    table.text
                ),
            )
            .hint(why))
    }
}
