//! Questions about the database itself: `$sys`, `pg_catalog`, `information_schema`, and SELECT without a
//! table, answered by a small evaluator over tables made for the statement.
//!
//! | module | holds |
//! |---|---|
//! | [`tables`] | the tables: PostgreSQL's columns, rows from Strandline's catalog |
//! | [`compile`], [`from`], [`expr`] | names looked up: `sqlparser`'s tree to a plan |
//! | [`plan`] | expressions over positions, joins, groups |
//! | [`run`] | carrying a plan out, within a limit of rows looked at |
//! | [`functions`] | the functions that may be called |
//! | [`value`] | values, types, casts |

mod compile;
mod expr;
mod from;
mod functions;
mod plan;
mod run;
mod sys;
mod tables;
mod value;

pub(crate) use sys::with_items;

use crate::types::{Datum, SqlType};
use plan::{Agg, Node, Plan};
use run::Runtime;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::limits::Limits;
use strandline_core::schema::Catalog;
use value::{Ty, Val};

/// A SELECT for the evaluator.
#[derive(Clone, Debug)]
pub struct SystemQuery {
    /// The statement, as parsed.
    pub query: Box<sqlparser::ast::Query>,
    /// Values of `$1`, `$2`, ….
    pub params: Vec<Datum>,
    /// What the session says beside the answer.
    pub notice: Option<String>,
}

/// What the evaluator answers, and what the session tells it.
#[derive(Clone, Debug, Default)]
pub struct SystemAnswer {
    /// Names and types.
    pub columns: Vec<(String, SqlType)>,
    /// Cells by row.
    pub rows: Vec<Vec<Datum>>,
}

/// Asked now and then while an answer is made: an error ends it.
#[derive(Clone, Copy, Default)]
pub struct Stop<'a>(pub Option<&'a dyn Fn() -> Result<()>>);

impl std::fmt::Debug for Stop<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stop").field(&self.0.is_some()).finish()
    }
}

/// What a question is asked of.
#[derive(Clone, Debug)]
pub struct SystemContext<'a> {
    /// The tables of the user.
    pub catalog: &'a Catalog,
    /// The limits in force.
    pub limits: &'a Limits,
    /// `current_database()`.
    pub database: &'a str,
    /// `current_user`.
    pub user: &'a str,
    /// What `version()` answers.
    pub version: &'a str,
    /// Name, value and description of each setting.
    pub settings: Vec<(String, String, String)>,
    /// `pg_backend_pid()`.
    pub backend_pid: i32,
    /// `now()`, Unix ms.
    pub now_ms: i64,
    /// Whether to go on.
    pub stop: Stop<'a>,
    /// `$sys.shards`.
    pub shards: SystemAnswer,
    /// `$sys.segments`.
    pub segments: SystemAnswer,
    /// For `$sys.tables`, what the engine knows of each table: name, rows, segment_bytes, memtable_bytes,
    /// segments. A table that is missing here shows NULLs.
    pub tables: SystemAnswer,
}

impl<'a> SystemContext<'a> {
    /// A context that knows the tables and nothing of a session.
    pub fn bare(catalog: &'a Catalog, limits: &'a Limits, now_ms: i64) -> Self {
        SystemContext {
            catalog,
            limits,
            database: "",
            user: "",
            version: "",
            settings: Vec::new(),
            backend_pid: 0,
            now_ms,
            stop: Stop::default(),
            shards: SystemAnswer::default(),
            segments: SystemAnswer::default(),
            tables: SystemAnswer::default(),
        }
    }
}

/// What can be said of a question before it is asked.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// What its parameters stand for, where that can be told.
    pub parameters: Vec<Option<SqlType>>,
    /// `None`: it names a table whose columns only the session knows.
    pub columns: Option<Vec<(String, SqlType)>>,
}

impl SystemQuery {
    /// The tables of `$sys` that it names, as `$sys.shards`. Only the columns of the context's answers must
    /// be there, not their rows.
    ///
    /// # Errors
    /// Those of [`SystemQuery::describe`].
    pub fn named(&self, cx: &SystemContext<'_>) -> Result<BTreeSet<String>> {
        let compiler = Compiler::new(cx, &self.params);
        compiler.query(&self.query, None)?;
        Ok(compiler.named.into_inner())
    }

    /// The columns of its answer.
    ///
    /// # Errors
    /// `42P01`, `42703`, `42883` for what does not exist, `42804` for types that do not go together, and
    /// `0A000` for what the evaluator does not do.
    pub fn describe(&self, cx: &SystemContext<'_>) -> Result<Vec<(String, SqlType)>> {
        let compiler = Compiler::new(cx, &self.params);
        let plan = compiler.query(&self.query, None)?;
        Ok(compiler.columns(&plan))
    }

    /// Columns and parameters, as far as the catalog alone tells them.
    pub(crate) fn tell(&self, cx: &SystemContext<'_>) -> Result<Told> {
        let compiler = Compiler::new(cx, &self.params);
        let plan = compiler.query(&self.query, None);
        let columns = match plan {
            _ if compiler.untold.get() => None,
            Ok(plan) => Some(compiler.columns(&plan)),
            Err(e) => return Err(e),
        };
        let parameters = compiler.parameters.into_inner();
        Ok(Told {
            parameters: parameters.into_iter().map(|t| t.map(Ty::sql)).collect(),
            columns,
        })
    }

    /// Its answer.
    ///
    /// # Errors
    /// Those of [`SystemQuery::describe`], those of values (`22…`), and `54000` when it looks at more rows
    /// than the limit `catalog_rows`.
    pub fn run(&self, cx: &SystemContext<'_>) -> Result<SystemAnswer> {
        let compiler = Compiler::new(cx, &self.params);
        let plan = compiler.query(&self.query, None)?;
        let columns = compiler.columns(&plan);
        let types: Vec<Ty> = plan.columns.iter().map(|(_, t)| *t).collect();
        let shown: Vec<Ty> = columns.iter().map(|(_, t)| Ty::from_sql(*t)).collect();
        let rt = Runtime::new(cx, self.params.iter().map(Val::of).collect());
        let rows = rt.plan(&plan, None)?;
        let rows = rows
            .iter()
            .map(|row| {
                let cells = row.iter().zip(types.iter().zip(&shown));
                cells
                    .map(|(v, (ty, shown))| {
                        let ty = if *ty == Ty::Unknown { *shown } else { *ty };
                        value::datum(&rt, v.clone(), ty)
                    })
                    .collect()
            })
            .collect();
        Ok(SystemAnswer { columns, rows })
    }
}

/// Questions of WITH: name, plan, and how deep it stands.
type With = Vec<(String, Rc<Plan>, u64)>;

/// What is known while names are looked up.
struct Compiler<'c> {
    cx: &'c SystemContext<'c>,
    /// For constants, which are cast at once.
    rt: Runtime<'c>,
    params: &'c [Datum],
    /// What parameters were found to be.
    parameters: RefCell<Vec<Option<Ty>>>,
    with: RefCell<With>,
    depth: Cell<u64>,
    /// How many questions out the one at hand reads.
    reach: Cell<usize>,
    /// Where aggregates may stand: the columns before them, and those found.
    aggregates: RefCell<Option<(usize, Vec<Agg>)>>,
    named: RefCell<BTreeSet<String>>,
    untold: Cell<bool>,
}

impl<'c> Compiler<'c> {
    fn new(cx: &'c SystemContext<'c>, params: &'c [Datum]) -> Self {
        Compiler {
            cx,
            rt: Runtime::new(cx, Vec::new()),
            params,
            parameters: RefCell::new(vec![None; params.len()]),
            with: RefCell::default(),
            depth: Cell::new(0),
            reach: Cell::new(0),
            aggregates: RefCell::new(None),
            named: RefCell::default(),
            untold: Cell::new(false),
        }
    }

    fn columns(&self, plan: &Plan) -> Vec<(String, SqlType)> {
        let columns = plan.columns.iter().enumerate();
        columns
            .map(|(i, (name, ty))| {
                let ty = match (ty, &plan.body) {
                    (Ty::Unknown, plan::Body::Select(s)) => match s.output.get(i) {
                        Some(Node::Param(n)) => self.params.get(*n).map_or(SqlType::Text, bare),
                        _ => SqlType::Text,
                    },
                    (ty, _) => ty.sql(),
                };
                (name.to_string(), ty)
            })
            .collect()
    }
}

/// The type of a parameter that stands by itself.
fn bare(d: &Datum) -> SqlType {
    match d {
        Datum::Bool(_) => SqlType::Bool,
        Datum::Int(_) => SqlType::Int8,
        Datum::Float(_) => SqlType::Float8,
        Datum::Timestamp(_) => SqlType::Timestamptz,
        Datum::Null | Datum::Text { .. } => SqlType::Text,
    }
}

/// An identifier as stored.
fn fold(ident: &sqlparser::ast::Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

#[cfg(test)]
mod tests;
