//! Catalog questions: gathers from the engine what the named tables need, and lets `sql`'s evaluator answer.

use super::{Answer, Rows, Tag, columns, text, watch};
use crate::session::{MAIN_DATABASE, Session};
use crate::settings::SERVER_VERSION;
use strandline_core::error::Result;
use strandline_core::schema::Catalog;
use strandline_shard::api::{Engine, SegmentStatus, ShardStatus};
use strandline_sql::catalog::{Stop, SystemAnswer, SystemContext, SystemQuery};
use strandline_sql::types::{Datum, SqlType};

/// Asks `f` with what is known without the engine's statuses; the tables that need them have their columns
/// and no rows.
fn with_context<T>(
    session: &Session,
    stop: Stop<'_>,
    f: impl FnOnce(&mut SystemContext<'_>) -> Result<T>,
) -> Result<T> {
    let cx = session.context();
    let catalog = cx.engine.catalog();
    let version = format!("PostgreSQL {SERVER_VERSION}");
    let mut context = SystemContext {
        database: MAIN_DATABASE,
        user: session.user(),
        version: &version,
        settings: session.settings.all(),
        backend_pid: session.registered().pid,
        stop,
        shards: shard_rows([]),
        segments: named_segments(),
        ..SystemContext::bare(&catalog, cx.limits(), cx.engine.now_ms())
    };
    f(&mut context)
}

/// Answers a question about the database itself.
pub async fn run(session: &Session, query: &SystemQuery) -> Result<Answer> {
    let needs = with_context(session, Stop::default(), |cx| query.named(cx))?;
    let engine = &*session.context().engine;
    let asks = |name: &str| needs.contains(name);
    let shards = match asks("$sys.shards") {
        true => Some(shards(engine).await?),
        false => None,
    };
    let segments = match asks("$sys.segments") {
        true => Some(segments(engine).await?),
        false => None,
    };
    let tables = match asks("$sys.tables") {
        true => tables(engine, &engine.catalog()).await?,
        false => SystemAnswer::default(),
    };
    let (context, cancel) = (session.context(), &session.registered().cancel);
    let (began, timeout_ms) = (
        context.engine.monotonic_ns(),
        session.settings.statement_timeout_ms(),
    );
    // It runs without a break, so that the watch over the statement never gets a turn.
    let stop = || {
        let ms = context.engine.monotonic_ns().saturating_sub(began) / 1_000_000;
        watch::asked_to_stop(cancel, timeout_ms > 0 && ms >= timeout_ms)
    };
    let answer = with_context(session, Stop(Some(&stop)), |cx| {
        if let Some(shards) = shards {
            cx.shards = shards;
        }
        if let Some(segments) = segments {
            cx.segments = segments;
        }
        cx.tables = tables;
        query.run(cx)
    })?;
    let columns = columns(answer.columns.iter().map(|(n, t)| (n.as_str(), *t)));
    Ok(Answer::rows(
        Rows::datums(columns, answer.rows),
        Tag::RowsSent("SELECT"),
    ))
}

/// The columns of its answer, before it is asked.
pub fn describe(session: &Session, query: &SystemQuery) -> Result<Vec<(String, SqlType)>> {
    with_context(session, Stop::default(), |cx| query.describe(cx))
}

fn int(n: u64) -> Datum {
    Datum::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Makes a table of statuses: name, type and value of each column stand side by side, so that they cannot
/// drift apart.
macro_rules! status_table {
    ($(#[$doc:meta])* $name:ident($status:ident: $of:ty) { $($column:literal $ty:ident = $value:expr;)+ }) => {
        $(#[$doc])*
        pub fn $name<'a>(rows: impl IntoIterator<Item = &'a $of>) -> SystemAnswer {
            SystemAnswer {
                columns: vec![$(($column.to_owned(), SqlType::$ty)),+],
                rows: rows.into_iter().map(|$status| vec![$($value),+]).collect(),
            }
        }
    };
}

status_table! {
    /// `$sys.shards`.
    shard_rows(s: ShardStatus) {
        "shard" Int8 = int(s.shard.0.into());
        "executor" Int8 = int(s.executor as u64);
        "write_refusal" Text = s.write_refusal.as_ref().map_or(Datum::Null, text);
        "commits" Int8 = int(s.commits);
        "records" Int8 = int(s.records);
        "log_written_bytes" Int8 = int(s.log_written_bytes);
        "log_bytes" Int8 = int(s.log_bytes);
        "commit_us_p50" Int8 = int(s.commit_us[2]);
        "commit_us_p99" Int8 = int(s.commit_us[3]);
        "commit_us_max" Int8 = int(s.commit_us[4]);
        "stream_rows" Int8 = int(s.stream_rows);
        "keyed_versions" Int8 = int(s.keyed_versions);
        "memtable_bytes" Int8 = int(s.memtable_bytes);
        "tail_bytes" Int8 = int(s.tail_bytes);
        "tails_given_up" Int8 = int(s.tails_given_up);
        "name_bytes" Int8 = int(s.name_bytes);
        "cache_bytes" Int8 = int(s.cache_bytes);
        "entities" Int8 = int(s.entities);
        "segments" Int8 = int(s.segments);
        "damaged_segments" Int8 = int(s.damaged_segments);
        "segment_bytes" Int8 = int(s.segment_bytes);
        "flushes" Int8 = int(s.flushes);
        "merges" Int8 = int(s.merges);
        "merge_debt_bytes" Int8 = int(s.merge_debt_bytes);
        "flushed_bytes" Int8 = int(s.flushed_bytes);
        "merge_read_bytes" Int8 = int(s.merge_read_bytes);
        "merge_written_bytes" Int8 = int(s.merge_written_bytes);
        "blocks_encoded" Int8 = int(s.blocks_encoded);
        "blocks_copied" Int8 = int(s.blocks_copied);
        "expired_segments" Int8 = int(s.expired_segments);
        "expired_bytes" Int8 = int(s.expired_bytes);
        "held_segments" Int8 = int(s.held_segments);
        "slow_down_us" Int8 = int(s.slow_down_us);
        "writers_waiting" Int8 = int(s.writers_waiting);
        "messages" Int8 = int(s.messages);
    }
}

status_table! {
    /// One row per segment with the number of its table; see [`segments`].
    segment_rows(s: SegmentStatus) {
        "table_id" Int8 = int(s.table.0.into());
        "shard" Int8 = int(s.shard.0.into());
        "segment" Int8 = int(s.segment.0);
        "rows" Int8 = unless(s.unreadable, int(s.rows));
        "bytes" Int8 = int(s.bytes);
        "blocks" Int8 = unless(s.unreadable, int(s.blocks));
        "range_from" Int8 = unless(s.unreadable, Datum::Int(s.range.0));
        "range_to" Int8 = unless(s.unreadable, Datum::Int(s.range.1));
        "level" Int8 = unless(s.unreadable, int(s.level.into()));
        "damage" Text = s.damage.as_ref().map_or(Datum::Null, text);
        "bucket_days" Int8 = s.bucket_days.map_or(Datum::Null, Datum::Int);
    }
}

/// NULL where it is not known.
fn unless(unknown: bool, value: Datum) -> Datum {
    if unknown { Datum::Null } else { value }
}

/// The columns of `$sys.segments`.
fn named_segments() -> SystemAnswer {
    let mut answer = segment_rows([]);
    if let Some(first) = answer.columns.first_mut() {
        *first = ("table_name".to_owned(), SqlType::Text);
    }
    answer
}

/// `$sys.segments`: the table by name, then what [`segment_rows`] says. Segments of a table that was dropped
/// meanwhile are left out.
pub async fn segments(engine: &dyn Engine) -> Result<SystemAnswer> {
    let statuses = engine.segment_status().await?;
    let catalog = engine.catalog();
    let known: Vec<(&SegmentStatus, &str)> = statuses
        .iter()
        .filter_map(|s| Some((s, catalog.table_by_id(s.table)?.name.as_str())))
        .collect();
    let mut answer = named_segments();
    answer.rows = segment_rows(known.iter().map(|(s, _)| *s)).rows;
    for (row, (_, name)) in answer.rows.iter_mut().zip(&known) {
        if let Some(first) = row.first_mut() {
            *first = text(*name);
        }
    }
    Ok(answer)
}

/// `$sys.shards`.
pub async fn shards(engine: &dyn Engine) -> Result<SystemAnswer> {
    Ok(shard_rows(&engine.shard_status().await?))
}

/// What the engine knows of each table of a catalog, for `$sys.tables`: name, rows, segment_bytes,
/// memtable_bytes, segments. A table that was dropped meanwhile is left out.
pub async fn tables(engine: &dyn Engine, catalog: &Catalog) -> Result<SystemAnswer> {
    let mut answer = SystemAnswer {
        columns: vec![("name".to_owned(), SqlType::Text)],
        rows: vec![],
    };
    for name in ["rows", "segment_bytes", "memtable_bytes", "segments"] {
        answer.columns.push((name.to_owned(), SqlType::Int8));
    }
    for def in catalog.tables() {
        match engine.table_status(def.id).await {
            Ok(s) => answer.rows.push(vec![
                text(def.name.as_str()),
                int(s.rows),
                int(s.segment_bytes),
                int(s.memtable_bytes),
                int(s.segments),
            ]),
            Err(_) if engine.catalog().table_by_id(def.id).is_none() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glue::Chunk;
    use crate::settings::Settings;
    use crate::testing::{FakeEngine, context};
    use futures_lite::future::block_on;
    use strandline_core::error::SqlState;
    use strandline_core::ids::{SegmentId, ShardId, TableId};
    use strandline_core::limits::Limits;
    use strandline_core::schema::{Family, TableSpec};
    use strandline_sql::plan::Plan;

    #[test]
    fn statuses_become_rows() {
        let engine = FakeEngine::new(Limits::default());
        let spec = TableSpec {
            name: "t".into(),
            family: Family::Rows,
            columns: vec![],
            entity_uuid: false,
            options: Default::default(),
        };
        block_on(async {
            engine.create_table(spec, false).await.unwrap();
            let id = engine.catalog().table("t").unwrap().id;
            let status = |table| SegmentStatus {
                shard: ShardId(1),
                segment: SegmentId(7),
                table,
                rows: 10,
                bytes: 100,
                blocks: 1,
                range: (-5, 5),
                damage: None,
                unreadable: false,
                level: 0,
                bucket_days: None,
            };
            *engine.segments.borrow_mut() = vec![status(id), status(TableId(999))];
            let answer = segments(&*engine).await.unwrap();
            assert_eq!(answer.rows.len(), 1);
            assert_eq!(answer.columns.len(), answer.rows[0].len());
            assert_eq!(answer.rows[0][0], text("t"));
            assert_eq!(answer.rows[0][6], Datum::Int(-5));
            let answer = shards(&*engine).await.unwrap();
            assert_eq!(answer.rows.len(), 2);
            assert_eq!(answer.columns.len(), answer.rows[0].len());
            assert_eq!(answer.rows[0][2], Datum::Null);
            let answer = tables(&*engine, &engine.catalog()).await.unwrap();
            assert_eq!(answer.rows.len(), 1);
            assert_eq!(answer.columns.len(), answer.rows[0].len());
        });
    }

    #[test]
    fn sessions_ask_the_catalog() {
        let engine = FakeEngine::new(Limits::default());
        let mut session = Session::new(context(engine), "ada", Settings::new("ada"));
        let mut ask = |sql: &str| -> Result<(Vec<String>, Vec<Vec<Datum>>)> {
            let limits = session.context().limits().clone();
            let statement = strandline_sql::parse(sql, &limits)?.remove(0);
            let plan = session.bind(&statement, &[])?;
            let told = match &plan {
                Plan::System(query) => Some(describe(&session, query)?),
                _ => None,
            };
            let mut watch = session.watch();
            block_on(async {
                let answer = session.execute(plan, &mut watch).await?;
                let Some(mut rows) = answer.rows else {
                    return Ok((vec![], vec![]));
                };
                let shown = |c: &strandline_sql::plan::OutputColumn| (c.name.clone(), c.ty);
                let columns: Vec<_> = rows.columns().iter().map(shown).collect();
                assert_eq!(told, Some(columns.clone()), "{sql}");
                let mut all = vec![];
                while rows.ready().await? {
                    let (chunk, range) = rows.here();
                    let n = range.len();
                    match chunk {
                        Chunk::Datums(rows) => all.extend(rows[range].to_vec()),
                        _ => panic!("a chunk of the engine"),
                    }
                    rows.advance(n);
                }
                Ok((columns.into_iter().map(|c| c.0).collect(), all))
            })
        };
        ask("CREATE TABLE t (speed DOUBLE FILL HOLD STALENESS 60 s)").unwrap();
        let (names, rows) = ask("SELECT * FROM $sys.tables").unwrap();
        assert_eq!(names[..2], ["name", "family"]);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0][..3], [text("t"), text("timeseries"), Datum::Int(3)]);
        assert_eq!(ask("SHOW TABLES").unwrap().1.len(), 1);
        assert_eq!(ask("DESCRIBE t").unwrap().1.len(), 3);
        let (names, rows) = ask("SELECT * FROM $sys.shards").unwrap();
        assert_eq!((names.len(), rows.len()), (shard_rows([]).columns.len(), 2));
        assert_eq!(
            ask("SELECT table_name, bytes FROM $sys.segments")
                .unwrap()
                .1
                .len(),
            0
        );
        let (_, rows) = ask("SELECT current_user, current_database()").unwrap();
        assert_eq!(rows, [[text("ada"), text(MAIN_DATABASE)]]);
        let e = ask("SELECT * FROM $sys.nothing").unwrap_err();
        assert_eq!(e.state(), SqlState::UndefinedTable);
    }
}
