//! Extended query: prepared statements and portals.

use super::Connection;
use super::frame::{Codes, Oids, Params, Target, protocol};
use super::io::Fail;
use super::out::Formats;
use super::params::{self, declared_type, is_undeclared};
use crate::glue::{self, watch::Watch};
use crate::glue::{Answer, Rows, Tag};
use crate::session::{LIMITS_COLUMNS, kind_of};
use futures_lite::{AsyncRead, AsyncWrite};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_sql::Statement;
use strandline_sql::plan::{Description, Plan};
use strandline_sql::types::{Datum, SqlType};

/// What a client is told of an answer's columns.
type Columns = Option<Vec<(String, SqlType)>>;

/// A prepared statement.
pub(super) struct Prepared {
    /// `None`: an empty query string.
    statement: Option<Statement>,
    description: Description,
    /// What Parse declared, as it came; as long as there are parameters at least.
    oids: Vec<u32>,
    /// The state of `insert_returns` that the description was made under.
    insert_returns_none: bool,
    /// The catalog that the description is known to hold for.
    catalog_version: Cell<u64>,
}

impl Prepared {
    fn declared(&self) -> Vec<Option<SqlType>> {
        self.oids.iter().map(|&o| declared_type(o)).collect()
    }

    /// The type number of a parameter, counted from 0, and whether the client declared it.
    fn oid(&self, i: usize) -> (u32, bool) {
        match self.oids.get(i) {
            Some(&oid) if !is_undeclared(oid) => (oid, true),
            _ => {
                let found = self.description.parameters.get(i);
                (found.map_or(SqlType::Text.oid(), |t| t.oid()), false)
            }
        }
    }

    fn parameters(&self) -> usize {
        self.oids.len().max(self.description.parameters.len())
    }
}

/// A bound statement.
pub(super) struct Portal {
    prepared: Rc<Prepared>,
    formats: Formats,
    state: State,
}

enum State {
    /// Not run yet.
    Bound(Plan),
    /// Its rows, not all sent.
    Running { rows: Rows, tag: Tag },
    /// Run to its end; a SELECT may be asked again and has no more rows.
    Done { select: bool },
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn parse(&mut self, name: &str, text: &str, types: Oids<'_>) -> Result<(), Fail> {
        let limits = self.session.context().limits().clone();
        let mut statements = strandline_sql::parse(text, &limits)?;
        if statements.len() > 1 {
            return Err(Error::new(
                SqlState::SyntaxError,
                "cannot insert multiple commands into a prepared statement",
            )
            .into());
        }
        let statement = statements.pop().filter(|s| !s.is_empty());
        self.prepare(name, statement, types.iter().collect())?;
        self.io.out.bare(b'1');
        Ok(())
    }

    /// Describes a statement and keeps it under a name.
    fn prepare(&mut self, name: &str, statement: Option<Statement>, oids: Vec<u32>) -> Result<()> {
        let limits = self.session.context().limits();
        if !name.is_empty() && self.statements.contains_key(name) {
            return Err(Error::new(
                SqlState::DuplicatePreparedStatement,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        if self.statements.len() as u64 >= limits.prepared_statements {
            return Err(limits.exceeded(
                "prepared_statements",
                SqlState::ConfigurationLimitExceeded,
                "too many prepared statements",
            ));
        }
        // The unnamed one is replaced: its text does not count beside the new one's.
        let text = |s: &Option<Statement>| s.as_ref().map_or(0, Statement::source_bytes);
        let others = self.statements.iter().filter(|(n, _)| *n != name);
        let bytes = others.map(|(_, p)| text(&p.statement)).sum::<usize>() + text(&statement);
        if bytes as u64 > limits.prepared_bytes {
            return Err(limits.exceeded(
                "prepared_bytes",
                SqlState::ConfigurationLimitExceeded,
                "the prepared statements of the connection are too long together",
            ));
        }
        let mut prepared = Prepared {
            statement,
            description: Description::default(),
            oids,
            insert_returns_none: self.session.settings.insert_returns_none(),
            catalog_version: Cell::new(0),
        };
        if let Some(statement) = &prepared.statement {
            self.session.check_block(statement)?;
            let declared = prepared.declared();
            let (version, described) = self.session.binding(prepared.insert_returns_none, |cx| {
                (cx.catalog.version, statement.describe(cx, &declared))
            });
            let mut description = described?;
            description.columns = self.told_columns(statement, description.columns)?;
            prepared.description = description;
            prepared.catalog_version.set(version);
        }
        self.statements.insert(name.to_owned(), Rc::new(prepared));
        Ok(())
    }

    /// The columns of statements that `sql` alone cannot describe: EXECUTE answers what the statement it
    /// names answers, SHOW and catalog questions what the session and the evaluator say.
    fn told_columns(&self, statement: &Statement, described: Columns) -> Result<Columns> {
        let first = statement.text().split(|c: char| !c.is_ascii_alphabetic());
        let first = first.map(str::to_ascii_lowercase).next();
        let asks = match first.as_deref() {
            Some("execute" | "show" | "describe") => true,
            // INSERT and its like have no columns to tell, and binding them with NULLs would be refused.
            Some("insert" | "update" | "delete") => false,
            _ => described.is_none(),
        };
        if !asks {
            return Ok(described);
        }
        let nulls = vec![Datum::Null; statement.parameters()];
        match self.session.bind(statement, &nulls)? {
            Plan::Execute { name, .. } => Ok(self.statement(&name)?.description.columns.clone()),
            Plan::System(query) => glue::system::describe(&self.session, &query).map(Some),
            Plan::ShowSetting(Some(name)) if name == "limits" => {
                let columns = LIMITS_COLUMNS.iter();
                Ok(Some(columns.map(|&(n, t)| (n.to_owned(), t)).collect()))
            }
            _ => Ok(described),
        }
    }

    /// PREPARE, EXECUTE and DEALLOCATE are about the statements kept here. What is left to carry out, if
    /// anything, or the tag.
    pub(super) fn resolve(&mut self, plan: Plan) -> Result<Result<Plan, &'static str>> {
        match plan {
            Plan::Prepare {
                name,
                declared,
                statement,
            } => {
                let oids = declared.iter().map(|t| t.map_or(0, SqlType::oid));
                let oids = oids.collect();
                self.prepare(&name, Some(*statement), oids)?;
                Ok(Err("PREPARE"))
            }
            Plan::Execute { name, arguments } => {
                let prepared = self.statement(&name)?.clone();
                let Some(statement) = &prepared.statement else {
                    return Ok(Ok(Plan::Empty));
                };
                let expected = prepared.parameters();
                if arguments.len() != expected {
                    return Err(Error::new(
                        SqlState::SyntaxError,
                        format!("wrong number of parameters for prepared statement \"{name}\""),
                    )
                    .hint(format!(
                        "expected {expected} parameters but got {}",
                        arguments.len()
                    )));
                }
                self.session.check_block(statement)?;
                self.check_columns(&prepared, statement)?;
                self.session.bind(statement, &arguments).map(Ok)
            }
            Plan::Deallocate(Some(name)) => {
                self.statement(&name)?;
                self.statements.remove(&name);
                Ok(Err("DEALLOCATE"))
            }
            Plan::Deallocate(None) => {
                self.statements.clear();
                Ok(Err("DEALLOCATE ALL"))
            }
            Plan::DiscardAll if self.session.is_idle() => {
                self.statements.clear();
                self.portals.clear();
                Ok(Ok(Plan::DiscardAll))
            }
            Plan::Nothing(tag) => Ok(Err(tag)),
            plan => Ok(Ok(plan)),
        }
    }

    /// Carries out a plan. The client gets what is due to it when this has to wait.
    pub(super) async fn carry_out(
        &mut self,
        plan: Plan,
        watch: &mut Watch,
    ) -> Result<Answer, Fail> {
        match self.resolve(plan)? {
            Ok(plan) => {
                // Pinned where it is made: it is large, and would be copied at each step down.
                let running = pin!(self.session.execute(plan, watch));
                Ok(self.io.wait(running).await??)
            }
            Err(tag) => Ok(Answer::words(tag)),
        }
    }

    fn statement(&self, name: &str) -> Result<&Rc<Prepared>> {
        self.statements.get(name).ok_or_else(|| {
            let what = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            Error::new(SqlState::InvalidStatementName, what)
        })
    }

    /// After DDL: the answer must still have the columns that the client was told.
    fn check_columns(&self, prepared: &Prepared, statement: &Statement) -> Result<()> {
        let version = self.session.context().engine.catalog().version;
        if prepared.catalog_version.get() == version {
            return Ok(());
        }
        let declared = prepared.declared();
        let now = self.session.binding(prepared.insert_returns_none, |cx| {
            statement.describe(cx, &declared)
        })?;
        let now = self.told_columns(statement, now.columns)?;
        if now != prepared.description.columns {
            return Err(changed_type());
        }
        prepared.catalog_version.set(version);
        Ok(())
    }

    pub(super) fn bind(
        &mut self,
        portal: &str,
        name: &str,
        formats: Codes<'_>,
        values: &Params<'_>,
        results: Codes<'_>,
    ) -> Result<(), Fail> {
        let prepared = self.statement(name)?.clone();
        let expected = prepared.parameters();
        if values.count() != expected {
            return Err(protocol(format!(
                "bind message supplies {} parameters, but prepared statement \"{name}\" requires {expected}",
                values.count()
            ))
            .into());
        }
        if formats.count() > 1 && formats.count() != values.count() {
            return Err(protocol(format!(
                "bind message has {} parameter formats but {} parameters",
                formats.count(),
                values.count()
            ))
            .into());
        }
        if !portal.is_empty() {
            if self.portals.contains_key(portal) {
                return Err(Error::new(
                    SqlState::DuplicateCursor,
                    format!("cursor \"{portal}\" already exists"),
                )
                .into());
            }
            let limits = self.session.context().limits();
            if self.portals.len() as u64 >= limits.prepared_statements {
                return Err(limits
                    .exceeded(
                        "prepared_statements",
                        SqlState::ConfigurationLimitExceeded,
                        "too many portals",
                    )
                    .into());
            }
        }
        let plan = match &prepared.statement {
            None => Plan::Empty,
            Some(statement) => {
                self.session.check_block(statement)?;
                self.check_columns(&prepared, statement)?;
                // Declared types beyond the statement's own parameters are allowed, and unused.
                let used = prepared.description.parameters.len();
                let mut params: Vec<Datum> = Vec::with_capacity(used);
                for (i, value) in values.iter().enumerate().take(used) {
                    let format = match formats.count() {
                        1 => formats.get(0),
                        _ => formats.get(i),
                    };
                    let (oid, declared) = prepared.oid(i);
                    let format = format.unwrap_or(0);
                    params.push(params::decode(i + 1, oid, declared, format, value)?);
                }
                self.session.bind(statement, &params)?
            }
        };
        let columns = prepared.description.columns.as_ref().map_or(0, Vec::len);
        let formats = result_formats(results, columns)?;
        let portal_state = Portal {
            prepared,
            formats,
            state: State::Bound(plan),
        };
        self.portals.insert(portal.to_owned(), portal_state);
        self.io.out.bare(b'2');
        Ok(())
    }

    pub(super) fn describe(&mut self, target: Target<'_>) -> Result<(), Fail> {
        let (prepared, formats) = match target {
            Target::Statement(name) => {
                let prepared = self.statement(name)?.clone();
                let oids = (0..prepared.parameters()).map(|i| prepared.oid(i).0);
                self.io.out.parameters(oids);
                (prepared, Formats::TEXT)
            }
            Target::Portal(name) => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                (portal.prepared.clone(), portal.formats.clone())
            }
        };
        match &prepared.description.columns {
            Some(columns) => {
                let columns = columns.iter().map(|(name, ty)| (name.as_str(), *ty));
                self.io.out.row_description(columns, &formats)?;
            }
            None => self.io.out.bare(b'n'),
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, name: &str, max_rows: i32) -> Result<(), Fail> {
        // Taken out while it runs: if it fails, it is gone, and with it its work in the shards.
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let began = self.session.context().engine.monotonic_ns();
        let max = match u64::try_from(max_rows) {
            Ok(0) | Err(_) => u64::MAX,
            Ok(n) => n,
        };
        if let Some(statement) = &portal.prepared.statement {
            self.session.check_block(statement)?;
        }
        let mut watch = self.session.watch();
        let state = std::mem::replace(&mut portal.state, State::Done { select: false });
        let mut kind = None;
        let (rows, tag) = match state {
            State::Bound(plan) => {
                kind = Some(kind_of(&plan));
                let answer = self.carry_out(plan, &mut watch).await?;
                (self.described(&portal, answer.rows)?, answer.tag)
            }
            State::Running { rows, tag } => (Some(rows), tag),
            State::Done { select: true } => (None, Tag::RowsSent("SELECT")),
            State::Done { select: false } => {
                return Err(Error::new(
                    SqlState::ObjectNotInPrerequisiteState,
                    format!("portal \"{name}\" cannot be run"),
                )
                .into());
            }
        };
        let mut sent = 0;
        portal.state = State::Done {
            select: matches!(tag, Tag::RowsSent(_)),
        };
        let mut suspended = false;
        if let Some(mut rows) = rows {
            let ended;
            (ended, sent) = self
                .send_rows(&mut watch, &mut rows, &portal.formats, max)
                .await?;
            if !ended {
                suspended = true;
                portal.state = State::Running { rows, tag };
            }
        }
        if let Some(kind) = kind {
            self.count(kind, began);
        }
        if suspended {
            self.send_notices();
            self.io.out.bare(b's');
        } else {
            self.complete(tag, sent);
        }
        if self.session.is_idle() && matches!(tag, Tag::Words("COMMIT" | "ROLLBACK")) {
            self.portals.clear();
        }
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    /// The rows, if the client was told of columns; `0A000` when they are others than it was told.
    fn described(&self, portal: &Portal, rows: Option<Rows>) -> Result<Option<Rows>> {
        let (Some(rows), Some(told)) = (rows, &portal.prepared.description.columns) else {
            return Ok(None);
        };
        let same = rows.columns().len() == told.len()
            && rows
                .columns()
                .iter()
                .zip(told)
                .all(|(c, (_, ty))| c.ty == *ty);
        if same {
            Ok(Some(rows))
        } else {
            Err(changed_type())
        }
    }

    pub(super) fn close_target(&mut self, target: Target<'_>) {
        // Closing what is not there is no error.
        match target {
            Target::Statement(name) => {
                if let Some(closed) = self.statements.remove(name) {
                    self.portals
                        .retain(|_, p| !Rc::ptr_eq(&p.prepared, &closed));
                }
            }
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
        self.io.out.bare(b'3');
    }
}

fn changed_type() -> Error {
    Error::unsupported("cached plan must not change result type")
        .hint("prepare the statement again")
}

fn no_portal(name: &str) -> Error {
    Error::new(
        SqlState::InvalidCursorName,
        format!("portal \"{name}\" does not exist"),
    )
}

fn result_formats(codes: Codes<'_>, columns: usize) -> Result<Formats> {
    let binary = |i| match codes.get(i) {
        None | Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(other) => Err(Error::new(
            SqlState::InvalidParameterValue,
            format!("unsupported format code: {other}"),
        )),
    };
    match codes.count() {
        0 => Ok(Formats::TEXT),
        1 => Ok(Formats::All { binary: binary(0)? }),
        n if n == columns => Ok(Formats::Each((0..n).map(binary).collect::<Result<_>>()?)),
        n => Err(protocol(format!(
            "bind message has {n} result formats but query has {columns} columns"
        ))),
    }
}
