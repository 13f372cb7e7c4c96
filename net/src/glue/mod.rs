//! From a checked plan to the engine and back to rows: everything a protocol needs to carry out a statement
//! and nothing of the protocol itself.
//!
//! | module | holds |
//! |---|---|
//! | [`rows`] | an answer's rows as they come: limit, offset, constants |
//! | [`sort`] | ORDER BY over gathered rows, bounded |
//! | [`write`] | INSERT, UPDATE, DELETE and what RETURNING answers |
//! | [`system`] | catalog questions |
//! | [`explain`] | a plan as text, and what it looked at |
//! | [`watch`] | cancelling and `statement_timeout` |

pub mod explain;
pub mod rows;
pub mod sort;
pub mod system;
pub mod watch;
pub mod write;

pub use rows::{Chunk, Rows};

use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_shard::api::Engine;
use strandline_sql::plan::{OutputColumn, OutputSource, Plan};
use strandline_sql::types::{Datum, SqlType};

/// How severe a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeSeverity {
    /// WARNING.
    Warning,
    /// NOTICE.
    Notice,
    /// INFO: the answer of VERBOSE.
    Info,
}

impl NoticeSeverity {
    /// As it goes over the wire.
    pub fn name(self) -> &'static str {
        match self {
            NoticeSeverity::Warning => "WARNING",
            NoticeSeverity::Notice => "NOTICE",
            NoticeSeverity::Info => "INFO",
        }
    }
}

/// Something to tell the client beside the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How severe.
    pub severity: NoticeSeverity,
    /// SQLSTATE.
    pub code: &'static str,
    /// One line.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Notice {
    fn new(severity: NoticeSeverity, code: &'static str, message: impl Into<String>) -> Self {
        Notice {
            severity,
            code,
            message: message.into(),
            hint: None,
        }
    }
    /// A WARNING.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(NoticeSeverity::Warning, code, message)
    }
    /// A NOTICE.
    pub fn plain(message: impl Into<String>) -> Self {
        Self::new(NoticeSeverity::Notice, "00000", message)
    }
    /// An INFO.
    pub fn info(message: impl Into<String>) -> Self {
        Self::new(NoticeSeverity::Info, "00000", message)
    }
}

/// The words of CommandComplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Nothing but these words.
    Words(&'static str),
    /// Words and a number.
    Count(&'static str, u64),
    /// Words and the number of rows that were sent.
    RowsSent(&'static str),
    /// The statement was empty: EmptyQueryResponse.
    Empty,
}

/// What a statement answers.
pub struct Answer {
    /// Its rows, if it is one that answers rows.
    pub rows: Option<Rows>,
    /// Its tag.
    pub tag: Tag,
    /// Whether something is durable now that was not before.
    pub wrote: bool,
}

impl Answer {
    /// A tag alone.
    pub fn words(tag: &'static str) -> Self {
        Answer {
            rows: None,
            tag: Tag::Words(tag),
            wrote: false,
        }
    }
    /// Rows and how many there were.
    pub fn rows(rows: Rows, tag: Tag) -> Self {
        Answer {
            rows: Some(rows),
            tag,
            wrote: false,
        }
    }
    /// Marks it as a write.
    #[must_use]
    pub fn written(mut self) -> Self {
        self.wrote = true;
        self
    }
}

/// Columns of an answer made of single values.
pub fn columns<'a>(names: impl IntoIterator<Item = (&'a str, SqlType)>) -> Rc<[OutputColumn]> {
    names
        .into_iter()
        .enumerate()
        .map(|(i, (name, ty))| OutputColumn {
            name: name.to_owned(),
            ty,
            source: OutputSource::Column(i),
        })
        .collect()
}

/// Text of a known type.
pub fn text(s: impl Into<String>) -> Datum {
    Datum::Text {
        text: s.into(),
        unknown: false,
    }
}

/// The command that a plan's write would be, for refusals; `None` when it writes nothing.
pub fn write_command(plan: &Plan) -> Option<&'static str> {
    Some(match plan {
        Plan::CreateTable { .. } => "CREATE TABLE",
        Plan::AlterTable { .. } => "ALTER TABLE",
        Plan::DropTables { .. } => "DROP TABLE",
        Plan::InsertStream { .. } | Plan::InsertRows { .. } => "INSERT",
        Plan::UpdateRow { .. } => "UPDATE",
        Plan::DeleteRow { .. } | Plan::DeleteEntity { .. } => "DELETE",
        Plan::Vacuum { .. } => "VACUUM",
        _ => return None,
    })
}

/// Whether a plan's work may be dropped half-way: it only reads.
pub fn is_read(plan: &Plan) -> bool {
    matches!(
        plan,
        Plan::Select { .. } | Plan::System(_) | Plan::ShowFeed(_) | Plan::Explain { .. }
    )
}

/// Carries out a plan that needs the engine alone. Notices are pushed to `notices`.
pub async fn run(
    engine: &Rc<dyn Engine>,
    tasks: &Rc<dyn strandline_core::io::Tasks>,
    plan: Plan,
    insert_returns_none: bool,
    notices: &mut Vec<Notice>,
) -> Result<Answer> {
    match plan {
        Plan::Select { source, shape } => {
            let rows = rows::select(engine, tasks, source, shape).await?;
            Ok(Answer::rows(rows, Tag::RowsSent("SELECT")))
        }
        Plan::Explain { analyze, plan } => explain::run(engine, tasks, analyze, *plan).await,
        Plan::InsertStream { .. }
        | Plan::InsertRows { .. }
        | Plan::UpdateRow { .. }
        | Plan::DeleteRow { .. }
        | Plan::DeleteEntity { .. } => write::run(engine, plan, insert_returns_none).await,
        Plan::CreateTable {
            spec,
            if_not_exists,
        } => {
            let name = spec.name.clone();
            if engine.create_table(spec, if_not_exists).await? {
                return Ok(Answer::words("CREATE TABLE").written());
            }
            let mut notice = Notice::plain(format!("table \"{name}\" already exists, skipping"));
            notice.code = SqlState::DuplicateTable.code();
            notices.push(notice);
            Ok(Answer::words("CREATE TABLE"))
        }
        Plan::AlterTable { table, changes } => {
            for (state, words) in engine.alter_table(table, changes).await? {
                let mut notice = Notice::plain(words);
                notice.code = state.code();
                notices.push(notice);
            }
            Ok(Answer::words("ALTER TABLE").written())
        }
        Plan::AlterAbsent { name } => {
            let words = format!("relation \"{name}\" does not exist, skipping");
            let mut notice = Notice::plain(words);
            notice.code = SqlState::UndefinedTable.code();
            notices.push(notice);
            Ok(Answer::words("ALTER TABLE"))
        }
        Plan::DropTables { names, if_exists } => {
            drop_tables(engine, names, if_exists, notices).await
        }
        Plan::ShowFeed(table) => {
            let feed = engine.feed_status(table.id).await?;
            let columns = columns(
                ["watermark", "vacuum_horizon", "live_rows", "tombstones"]
                    .map(|n| (n, SqlType::Int8)),
            );
            let row = [
                feed.watermark.0,
                feed.vacuum_horizon.0,
                feed.live_rows,
                feed.tombstones,
            ]
            .map(|n| Datum::Int(i64::try_from(n).unwrap_or(i64::MAX)));
            let rows = Rows::datums(columns, vec![row.into()]);
            Ok(Answer::rows(rows, Tag::Words("SHOW")))
        }
        Plan::Checkpoint => {
            let folder = engine.checkpoint().await?;
            notices.push(Notice::plain(format!("snapshot {folder}")));
            Ok(Answer::words("CHECKPOINT"))
        }
        Plan::Vacuum { table, verbose } => {
            let report = engine.vacuum(table.id).await?;
            if verbose {
                notices.push(Notice::info(format!(
                    "table \"{}\": {} tombstones purged, vacuum horizon is {}",
                    table.name, report.purged, report.horizon
                )));
            }
            let mut answer = Answer::words("VACUUM");
            answer.wrote = report.purged > 0;
            Ok(answer)
        }
        Plan::Empty => Ok(Answer {
            rows: None,
            tag: Tag::Empty,
            wrote: false,
        }),
        Plan::Prepare { .. }
        | Plan::Execute { .. }
        | Plan::Deallocate(_)
        | Plan::Nothing(_)
        | Plan::System(_)
        | Plan::ShowSetting(_)
        | Plan::Set { .. }
        | Plan::ResetAll
        | Plan::DiscardAll
        | Plan::Transaction(_) => Err(Error::internal(
            "a statement of the session reached the engine",
        )),
    }
}

async fn drop_tables(
    engine: &Rc<dyn Engine>,
    names: Vec<String>,
    if_exists: bool,
    notices: &mut Vec<Notice>,
) -> Result<Answer> {
    // With several names, nothing is dropped when one of them is missing.
    if !if_exists && names.len() > 1 {
        let catalog = engine.catalog();
        if let Some(name) = names.iter().find(|n| catalog.table(n).is_none()) {
            return Err(Error::new(
                SqlState::UndefinedTable,
                format!("table \"{name}\" does not exist"),
            ));
        }
    }
    let mut answer = Answer::words("DROP TABLE");
    for name in &names {
        if engine.drop_table(name, if_exists).await? {
            answer.wrote = true;
        } else {
            notices.push(Notice::plain(format!(
                "table \"{name}\" does not exist, skipping"
            )));
        }
    }
    Ok(answer)
}
