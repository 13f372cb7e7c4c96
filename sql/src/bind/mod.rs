//! Statements to plans: names become numbers, values become what their labels store, and every rule of a
//! family is checked here, so that the engine only ever sees what it can do.
//!
//! Describe is the same walk with every parameter unknown: each place that takes one notes its type, and the
//! checks that hang on values stand back.

mod aggregate;
mod alter;
mod create;
mod eval;
mod filter;
mod insert;
mod mutable;
mod options;
mod rows;
mod select_rows;
mod stream;
pub mod value;

use crate::ast::{ColumnName, General, Item, ItemKind, Name};
use crate::catalog::{SystemContext, SystemQuery};
use crate::lexer;
use crate::parser::{self, Parsed};
use crate::plan::{Description, Plan, ReturnColumn, ReturnWhat};
use crate::statement::Statement;
use crate::types::{Datum, SqlType, check_width};
use std::cell::RefCell;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::limits::Limits;
use strandline_core::schema::{Catalog, Family, TableDef};

/// What a statement is bound against.
#[derive(Clone, Copy, Debug)]
pub struct BindContext<'a> {
    /// The tables.
    pub catalog: &'a Catalog,
    /// The limits in force.
    pub limits: &'a Limits,
    /// Shards of the database: an INSERT is split here.
    pub shards: u16,
    /// The statement's time: `now()`, `today`.
    pub now_ms: i64,
    /// The session's `insert_returns` is `none`.
    pub insert_returns_none: bool,
}

/// How the columns of a SELECT that is refused could look.
const STREAM_SHAPE: &str = "a timeseries table answers SELECT columns or aggregates FROM t [RAW] [IN RANGE (a, b)] \
     [WHERE entity = … AND ts BETWEEN … AND conditions on channels] [GROUP BY entity] [SAMPLE BY 5 m [FILL(…)]] \
     [ORDER BY …] [LIMIT …], and SELECT columns FROM t [WHERE entity = … AND ts >= …] LATEST ON ts PARTITION BY entity";
const ROWS_SHAPE: &str = "a rows table answers SELECT columns or count(*) FROM t [WHERE one comparison] \
     [ORDER BY …] [LIMIT n [OFFSET m]]";

enum Params<'a> {
    Values(&'a [Datum]),
    /// Types as they are found.
    Infer(RefCell<Vec<Option<SqlType>>>),
}

pub(crate) struct Binder<'a> {
    cx: &'a BindContext<'a>,
    text: &'a str,
    params: Params<'a>,
}

pub(crate) fn bind(statement: &Statement, cx: &BindContext<'_>, params: &[Datum]) -> Result<Plan> {
    if params.len() < statement.parameters() {
        // As PostgreSQL says it; a plain query is given none at all.
        return Err(Error::new(
            SqlState::UndefinedParameter,
            format!("there is no parameter ${}", params.len() + 1),
        )
        .hint(format!(
            "the statement takes {} parameters, {} were given",
            statement.parameters(),
            params.len()
        )));
    }
    let binder = Binder {
        cx,
        text: statement.source(),
        params: Params::Values(params),
    };
    binder.plan(&statement.parsed)
}

pub(crate) fn describe(
    statement: &Statement,
    cx: &BindContext<'_>,
    declared: &[Option<SqlType>],
) -> Result<Description> {
    let mut types: Vec<Option<SqlType>> = declared.to_vec();
    types.resize(statement.parameters().max(declared.len()), None);
    let binder = Binder {
        cx,
        text: statement.source(),
        params: Params::Infer(RefCell::new(types)),
    };
    let plan = binder.plan(&statement.parsed)?;
    let mut columns = columns(&plan, cx)?;
    if let Plan::System(query) = &plan {
        let told = query.tell(&SystemContext::bare(cx.catalog, cx.limits, cx.now_ms))?;
        columns = told.columns;
        if let Params::Infer(types) = &binder.params {
            for (slot, ty) in types.borrow_mut().iter_mut().zip(told.parameters) {
                *slot = slot.or(ty);
            }
        }
    }
    let parameters = match binder.params {
        // A parameter that stands nowhere in particular is text, as in PostgreSQL.
        Params::Infer(types) => types
            .into_inner()
            .into_iter()
            .map(|t| t.unwrap_or(SqlType::Text))
            .collect(),
        Params::Values(_) => Vec::new(),
    };
    Ok(Description {
        parameters,
        columns,
    })
}

/// The columns that a plan answers.
fn columns(plan: &Plan, cx: &BindContext<'_>) -> Result<Option<Vec<(String, SqlType)>>> {
    let named = |list: &[(&str, SqlType)]| {
        Some(
            list.iter()
                .map(|(n, t)| ((*n).to_owned(), *t))
                .collect::<Vec<_>>(),
        )
    };
    let returned = |r: &Option<Vec<ReturnColumn>>| {
        r.as_ref()
            .map(|list| list.iter().map(|c| (c.name.clone(), c.ty)).collect())
    };
    Ok(match plan {
        Plan::Select { shape, .. } => Some(
            shape
                .columns
                .iter()
                .map(|c| (c.name.clone(), c.ty))
                .collect(),
        ),
        Plan::InsertRows {
            returning: None, ..
        } if cx.insert_returns_none => None,
        Plan::InsertRows {
            returning: None, ..
        } => named(&[("xid", SqlType::Text)]),
        Plan::InsertRows { returning, .. }
        | Plan::UpdateRow { returning, .. }
        | Plan::DeleteRow { returning, .. } => returned(returning),
        Plan::System(_) => None,
        Plan::ShowFeed(_) => named(&[
            ("watermark", SqlType::Int8),
            ("vacuum_horizon", SqlType::Int8),
            ("live_rows", SqlType::Int8),
            ("tombstones", SqlType::Int8),
        ]),
        Plan::Explain { .. } => named(&[("QUERY PLAN", SqlType::Text)]),
        Plan::ShowSetting(Some(name)) => Some(vec![(name.clone(), SqlType::Text)]),
        Plan::ShowSetting(None) => named(&[
            ("name", SqlType::Text),
            ("setting", SqlType::Text),
            ("description", SqlType::Text),
        ]),
        _ => None,
    })
}

impl<'a> Binder<'a> {
    fn describing(&self) -> bool {
        matches!(self.params, Params::Infer(_))
    }

    /// Where a byte of the text stands.
    fn position(&self, at: u32) -> u32 {
        lexer::position(self.text, at)
    }

    fn error(&self, state: SqlState, at: u32, message: impl Into<String>) -> Error {
        Error::new(state, message).at(self.position(at))
    }

    fn unsupported(&self, at: u32, message: impl Into<String>) -> Error {
        self.error(SqlState::FeatureNotSupported, at, message)
    }

    fn table(&self, name: &Name) -> Result<&'a Arc<TableDef>> {
        self.cx.catalog.table(&name.text).ok_or_else(|| {
            self.error(
                SqlState::UndefinedTable,
                name.at,
                format!("relation \"{}\" does not exist", name.text),
            )
        })
    }

    /// A verb that the table's family does not have.
    fn wrong_family(&self, def: &TableDef, at: u32, verb: &str, instead: &str) -> Error {
        self.unsupported(
            at,
            format!(
                "{verb} is not possible on \"{}\": it is a {} table",
                def.name,
                def.family.name()
            ),
        )
        .hint(instead)
    }

    /// A form of SELECT that the table's family does not have.
    fn not_answered(&self, def: &TableDef, at: u32, what: &str) -> Error {
        let hint = match def.family {
            Family::Timeseries if def.options.mutable => mutable::MUTABLE_SHAPE,
            Family::Timeseries => STREAM_SHAPE,
            Family::Rows => ROWS_SHAPE,
        };
        self.unsupported(
            at,
            format!(
                "{what} is not supported on the {} table \"{}\"",
                def.family.name(),
                def.name
            ),
        )
        .hint(hint)
    }

    fn unknown_column(&self, def: &TableDef, name: &Name) -> Error {
        let e = self.error(
            SqlState::UndefinedColumn,
            name.at,
            format!(
                "column \"{}\" of table \"{}\" does not exist",
                name.text, def.name
            ),
        );
        match (def.family, name.text.as_str()) {
            (Family::Rows, "entity" | "ts" | "$timestamp") => {
                e.hint("a rows table has no entity and no time axis; its rows go by xid")
            }
            (Family::Timeseries, "xid" | "x_rev" | "x_deleted") => {
                e.hint("a timeseries table has no xid and no feed; its rows go by entity and ts")
            }
            _ => e,
        }
    }

    /// The table before a column, when one stands there, must be the one of FROM.
    fn check_qualifier(
        &self,
        column: &ColumnName,
        table: &Name,
        alias: Option<&Name>,
    ) -> Result<()> {
        match &column.table {
            Some(q) if q.text != alias.unwrap_or(table).text => Err(self.error(
                SqlState::UndefinedTable,
                q.at,
                format!("missing FROM-clause entry for table \"{}\"", q.text),
            )),
            _ => Ok(()),
        }
    }

    fn plan(&self, parsed: &Parsed) -> Result<Plan> {
        Ok(match parsed {
            Parsed::Empty => Plan::Empty,
            Parsed::Create(create) => self.create(create)?,
            Parsed::Alter(alter) => self.alter(alter)?,
            Parsed::Drop { tables, if_exists } => Plan::DropTables {
                names: tables.iter().map(|t| t.text.clone()).collect(),
                if_exists: *if_exists,
            },
            Parsed::Insert(insert) => self.insert(insert)?,
            Parsed::Update(update) => self.update(update)?,
            Parsed::Delete(delete) => self.delete(delete)?,
            Parsed::Select(select) => {
                let def = self.table(&select.table)?;
                match def.family {
                    Family::Timeseries => self.select_stream(def, select)?,
                    Family::Rows => self.select_rows(def, select)?,
                }
            }
            Parsed::System(query) => Plan::System(Box::new(SystemQuery {
                query: query.clone(),
                params: self.all_params(),
                notice: None,
            })),
            Parsed::ShowTables => self.internal(
                "SELECT name, family, columns, rows, bytes, partition_by FROM \"$sys\".tables ORDER BY name",
                None,
            )?,
            Parsed::ShowTable(name) => {
                let def = self.table(name)?;
                let with = crate::catalog::with_items(def).join(", ");
                let notice = format!("table \"{}\": WITH ({with})", def.name);
                self.internal(
                    &format!(
                        "SELECT name, type, fill, staleness, role FROM \"$sys\".columns \
                         WHERE table_name = '{}' ORDER BY position",
                        def.name.replace('\'', "''")
                    ),
                    (!with.is_empty()).then_some(notice),
                )?
            }
            Parsed::ShowFeed(name) => {
                let def = self.table(name)?;
                if def.family != Family::Rows {
                    return Err(self.wrong_family(
                        def,
                        name.at,
                        "SHOW FEED",
                        "feeds belong to rows tables; read a timeseries table by ts",
                    ));
                }
                Plan::ShowFeed(def.clone())
            }
            Parsed::ShowSetting(name) => Plan::ShowSetting(name.clone()),
            Parsed::Set { name, value, local } => Plan::Set {
                name: name.clone(),
                value: value.clone(),
                local: *local,
            },
            Parsed::ResetAll => Plan::ResetAll,
            Parsed::DiscardAll => Plan::DiscardAll,
            Parsed::Transaction(t) => Plan::Transaction(*t),
            Parsed::Checkpoint => Plan::Checkpoint,
            Parsed::Vacuum { table, verbose } => {
                let def = self.table(table)?;
                if def.family != Family::Rows {
                    return Err(self.wrong_family(
                        def,
                        table.at,
                        "VACUUM",
                        if def.options.mutable {
                            "the tombstones of a MUTABLE table are kept; deleted entities come back with a later INSERT"
                        } else {
                            "a timeseries table gives disk back through RETENTION"
                        },
                    ));
                }
                Plan::Vacuum { table: def.clone(), verbose: *verbose }
            }
            Parsed::Explain { analyze, statement } => Plan::Explain {
                analyze: *analyze,
                plan: Box::new(self.plan(&statement.parsed)?),
            },
            Parsed::Prepare { name, declared, statement } => Plan::Prepare {
                name: name.clone(),
                declared: declared.clone(),
                statement: statement.clone(),
            },
            Parsed::Execute { name, arguments } => Plan::Execute {
                name: name.clone(),
                arguments: arguments
                    .iter()
                    .map(|e| self.constant(e, SqlType::Text))
                    .collect::<Result<_>>()?,
            },
            Parsed::Deallocate(name) => Plan::Deallocate(name.clone()),
            Parsed::Nothing(tag) => Plan::Nothing(tag),
            Parsed::General(general) => return Err(self.general(general)),
            Parsed::Refused(e) => return Err(e.clone()),
        })
    }

    /// A refusal that waits for the table's family.
    fn general(&self, general: &General) -> Error {
        match general.table.as_ref().map(|t| self.table(t)) {
            Some(Ok(def)) => self.not_answered(def, general.at, &general.what),
            Some(Err(e)) => e,
            None => self.unsupported(general.at, format!("{} is not supported", general.what)),
        }
    }

    fn all_params(&self) -> Vec<Datum> {
        match &self.params {
            Params::Values(values) => values.to_vec(),
            Params::Infer(types) => vec![Datum::Null; types.borrow().len()],
        }
    }

    /// A question that a statement stands for.
    fn internal(&self, sql: &str, notice: Option<String>) -> Result<Plan> {
        let statements = parser::parse(sql, self.cx.limits)?;
        match statements.into_iter().next().map(|s| s.parsed) {
            Some(Parsed::System(query)) => Ok(Plan::System(Box::new(SystemQuery {
                query,
                params: Vec::new(),
                notice,
            }))),
            _ => Err(Error::internal(format!("not a catalog question: {sql}"))),
        }
    }

    /// The columns of RETURNING on a rows table.
    fn returning(&self, def: &TableDef, items: &[Item]) -> Result<Vec<ReturnColumn>> {
        let mut out = Vec::new();
        for item in items {
            check_width(out.len())?;
            let column = match &item.what {
                ItemKind::Star(_) => {
                    out.push(ReturnColumn {
                        name: "xid".to_owned(),
                        ty: SqlType::Text,
                        what: ReturnWhat::Xid,
                    });
                    out.extend(def.columns.iter().map(|c| ReturnColumn {
                        name: c.name.clone(),
                        ty: SqlType::of(c.label),
                        what: ReturnWhat::User(c.id),
                    }));
                    continue;
                }
                ItemKind::Expr(crate::ast::Expr {
                    kind: crate::ast::ExprKind::Column(c),
                    ..
                }) => c,
                _ => {
                    return Err(self
                        .unsupported(item.at, "RETURNING takes columns")
                        .hint("RETURNING xid, x_rev, … or RETURNING *"));
                }
            };
            if let Some(q) = &column.table
                && q.text != def.name
            {
                self.check_qualifier(
                    column,
                    &Name {
                        text: def.name.clone(),
                        at: q.at,
                    },
                    None,
                )?;
            }
            let name = &column.column;
            let (ty, what) = match name.text.as_str() {
                "xid" => (SqlType::Text, ReturnWhat::Xid),
                "x_rev" => (SqlType::Int8, ReturnWhat::Rev),
                "x_deleted" => (SqlType::Bool, ReturnWhat::Deleted),
                _ => {
                    let c = def
                        .column(&name.text)
                        .ok_or_else(|| self.unknown_column(def, name))?;
                    (SqlType::of(c.label), ReturnWhat::User(c.id))
                }
            };
            out.push(ReturnColumn {
                name: item.alias.as_ref().unwrap_or(name).text.clone(),
                ty,
                what,
            });
        }
        check_width(out.len())?;
        Ok(out)
    }
}

#[cfg(test)]
mod refusals;
#[cfg(test)]
mod tests;
