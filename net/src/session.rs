//! A session: its settings, its transaction block, and statements on their way to the engine. It knows no
//! protocol; `pg` feeds it and sends what it answers.

use crate::admit::Admission;
use crate::counters::{Counters, StatementKind};
use crate::glue::watch::Watch;
use crate::glue::{self, Answer, Notice, Rows, Tag, columns, text};
use crate::pg::cancel::{Registered, Registry};
use crate::settings::Settings;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::io::{Random, Tasks};
use strandline_core::limits::{Limits, Unit};
use strandline_shard::api::Engine;
use strandline_sql::plan::{Plan, Transaction};
use strandline_sql::types::{Datum, SqlType};
use strandline_sql::{BindContext, Statement};

/// The database that a server without users serves.
pub const MAIN_DATABASE: &str = "main";

/// What all sessions of an executor share.
pub struct SessionContext {
    /// The engine as this executor sees it.
    pub engine: Rc<dyn Engine>,
    /// Timers.
    pub tasks: Rc<dyn Tasks>,
    /// For the secrets of cancel requests.
    pub random: Rc<dyn Random>,
    /// Sessions of the process.
    pub registry: Arc<Registry>,
    /// Connections of the process.
    pub admission: Arc<Admission>,
    /// Counters of the process.
    pub counters: Arc<Counters>,
}

impl SessionContext {
    /// The limits in force.
    pub fn limits(&self) -> &Arc<Limits> {
        self.engine.limits()
    }
}

/// Where a session stands with BEGIN and COMMIT. Every statement commits by itself all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// No block is open.
    Idle,
    /// A block is open; whether something in it has written.
    Open { wrote: bool },
    /// A statement of the block failed.
    Failed { wrote: bool },
}

/// One client's session.
pub struct Session {
    cx: Rc<SessionContext>,
    registered: Registered,
    user: String,
    /// Its settings.
    pub settings: Settings,
    /// What is to be told beside the next answer.
    pub notices: Vec<Notice>,
    block: Block,
}

impl Session {
    /// A session of a user, in the database [`MAIN_DATABASE`].
    pub fn new(cx: Rc<SessionContext>, user: &str, settings: Settings) -> Self {
        let registered = cx.registry.register(cx.random.next_u64());
        Session {
            cx,
            registered,
            user: user.to_owned(),
            settings,
            notices: Vec::new(),
            block: Block::Idle,
        }
    }

    /// What it shares with others.
    pub fn context(&self) -> &Rc<SessionContext> {
        &self.cx
    }
    /// Its place in the registry.
    pub fn registered(&self) -> &Registered {
        &self.registered
    }
    /// Its user.
    pub fn user(&self) -> &str {
        &self.user
    }
    /// ReadyForQuery's letter: I, T or E.
    pub fn status(&self) -> u8 {
        match self.block {
            Block::Idle => b'I',
            Block::Open { .. } => b'T',
            Block::Failed { .. } => b'E',
        }
    }
    /// Whether no block is open.
    pub fn is_idle(&self) -> bool {
        self.block == Block::Idle
    }

    /// Watches a statement that begins now.
    pub fn watch(&self) -> Watch {
        Watch::start(
            self.registered.cancel.clone(),
            &self.cx.tasks,
            self.settings.statement_timeout_ms(),
        )
    }

    /// `25P02` when the block has failed and the statement does not end it.
    pub fn check_block(&self, statement: &Statement) -> Result<()> {
        match self.block {
            Block::Failed { .. } if !statement.is_transaction_control() => Err(Error::new(
                SqlState::InFailedTransaction,
                "current transaction is aborted, commands ignored until end of transaction block",
            )),
            _ => Ok(()),
        }
    }

    /// Runs `f` with the catalog and time of now.
    pub fn binding<T>(
        &self,
        insert_returns_none: bool,
        f: impl FnOnce(&BindContext<'_>) -> T,
    ) -> T {
        let catalog = self.cx.engine.catalog();
        f(&BindContext {
            catalog: &catalog,
            limits: self.cx.limits(),
            shards: self.cx.engine.shards(),
            now_ms: self.cx.engine.now_ms(),
            insert_returns_none,
        })
    }

    /// Binds a statement as of now.
    pub fn bind(&self, statement: &Statement, params: &[Datum]) -> Result<Plan> {
        self.binding(self.settings.insert_returns_none(), |cx| {
            statement.bind(cx, params)
        })
    }

    /// A statement failed: an open block fails with it.
    pub fn fail(&mut self) {
        if let Block::Open { wrote } = self.block {
            self.block = Block::Failed { wrote };
        }
    }

    /// Carries out a plan. Reads stop when `watch` says so; writes run to their end.
    pub async fn execute(&mut self, plan: Plan, watch: &mut Watch) -> Result<Answer> {
        if self.settings.read_only()
            && let Some(command) = glue::write_command(&plan)
        {
            return Err(Error::new(
                SqlState::ReadOnlyTransaction,
                format!("cannot execute {command} in a read-only transaction"),
            ));
        }
        let answer = match plan {
            Plan::Transaction(t) => self.transaction(t)?,
            Plan::Set { name, value, local } => {
                let in_block = !self.is_idle();
                let notice = self
                    .settings
                    .set(&name, value.as_deref(), local, in_block)?;
                self.notices.extend(notice);
                Answer::words(if value.is_some() { "SET" } else { "RESET" })
            }
            Plan::ShowSetting(name) => self.show(name.as_deref())?,
            Plan::ResetAll => {
                self.settings.reset_all(!self.is_idle());
                Answer::words("RESET")
            }
            Plan::DiscardAll => {
                if !self.is_idle() {
                    return Err(Error::new(
                        SqlState::ActiveTransaction,
                        "DISCARD ALL cannot run inside a transaction block",
                    ));
                }
                self.settings.reset_all(false);
                Answer::words("DISCARD ALL")
            }
            Plan::System(query) => {
                let answer = watch.run(glue::system::run(self, &query)).await?;
                self.notices.extend(query.notice.map(Notice::plain));
                answer
            }
            plan => {
                let read = glue::is_read(&plan);
                let none = self.settings.insert_returns_none();
                let run = glue::run(
                    &self.cx.engine,
                    &self.cx.tasks,
                    plan,
                    none,
                    &mut self.notices,
                );
                if read {
                    watch.run(run).await?
                } else {
                    run.await?
                }
            }
        };
        if answer.wrote
            && let Block::Open { wrote } = &mut self.block
        {
            *wrote = true;
        }
        Ok(answer)
    }

    fn transaction(&mut self, t: Transaction) -> Result<Answer> {
        let was = self.block;
        let no_block = || Notice::warning("25P01", "there is no transaction in progress");
        Ok(match (t, was) {
            (Transaction::Begin { read_only }, Block::Idle) => {
                self.block = Block::Open { wrote: false };
                if read_only {
                    self.settings
                        .set("transaction_read_only", Some("on"), true, true)?;
                }
                Answer::words("BEGIN")
            }
            (Transaction::Begin { .. }, _) => {
                self.notices.push(Notice::warning(
                    "25001",
                    "there is already a transaction in progress",
                ));
                Answer::words("BEGIN")
            }
            (Transaction::Commit, Block::Idle) => {
                self.notices.push(no_block());
                Answer::words("COMMIT")
            }
            (Transaction::Commit, Block::Open { .. }) => {
                self.end_block(true);
                Answer::words("COMMIT")
            }
            (Transaction::Commit, Block::Failed { wrote }) => {
                self.end_block(false);
                if wrote {
                    self.notices.push(Notice::warning(
                        "25000",
                        "writes of this block before the error are durable: each statement commits by itself",
                    ));
                }
                Answer::words("ROLLBACK")
            }
            (Transaction::Rollback, Block::Idle) => {
                self.notices.push(no_block());
                Answer::words("ROLLBACK")
            }
            (Transaction::Rollback, Block::Open { wrote } | Block::Failed { wrote }) => {
                self.end_block(false);
                if wrote {
                    return Err(Error::new(
                        SqlState::InvalidTransactionState,
                        "cannot roll back: the writes of this block are durable",
                    )
                    .hint("each statement commits by itself; the block has ended"));
                }
                Answer::words("ROLLBACK")
            }
        })
    }

    fn end_block(&mut self, commit: bool) {
        self.block = Block::Idle;
        self.settings.end_block(commit);
    }

    fn show(&self, name: Option<&str>) -> Result<Answer> {
        let rows = match name {
            None => {
                let columns =
                    columns(["name", "setting", "description"].map(|n| (n, SqlType::Text)));
                let row = |(n, v, d): (String, String, String)| vec![text(n), text(v), text(d)];
                Rows::datums(columns, self.settings.all().into_iter().map(row).collect())
            }
            Some("limits") => limits_rows(self.cx.limits()),
            Some(name) => {
                let (shown, value) = self.settings.show(name)?;
                let columns = columns([(shown, SqlType::Text)]);
                Rows::datums(columns, vec![vec![text(value)]])
            }
        };
        Ok(Answer::rows(rows, Tag::Words("SHOW")))
    }
}

/// What `SHOW limits` answers.
pub const LIMITS_COLUMNS: [(&str, SqlType); 4] = [
    ("name", SqlType::Text),
    ("value", SqlType::Int8),
    ("unit", SqlType::Text),
    ("description", SqlType::Text),
];

fn limits_rows(limits: &Limits) -> Rows {
    let columns = columns(LIMITS_COLUMNS);
    let row = |info: &strandline_core::limits::LimitInfo| {
        let value = limits.get(info.name).unwrap_or(info.default);
        let unit = match info.unit {
            Unit::Bytes => "bytes",
            Unit::Count => "count",
            Unit::Millis => "ms",
        };
        vec![
            text(info.name),
            Datum::Int(i64::try_from(value).unwrap_or(i64::MAX)),
            text(unit),
            text(info.doc.trim()),
        ]
    };
    Rows::datums(columns, Limits::ALL.iter().map(row).collect())
}

/// How the counters see a plan.
pub fn kind_of(plan: &Plan) -> StatementKind {
    match plan {
        Plan::InsertStream { .. }
        | Plan::InsertRows { .. }
        | Plan::UpdateRow { .. }
        | Plan::DeleteRow { .. }
        | Plan::DeleteEntity { .. } => StatementKind::Write,
        Plan::Select { .. }
        | Plan::System(_)
        | Plan::ShowFeed(_)
        | Plan::ShowSetting(_)
        | Plan::Explain { .. } => StatementKind::Read,
        _ => StatementKind::Other,
    }
}
