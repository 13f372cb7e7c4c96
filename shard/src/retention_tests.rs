//! What expires, with a clock that is moved; and many small tables.

use crate::api::Engine;
use crate::engine::LocalEngine;
use crate::maintain_tests::database;
use crate::stream::StreamTable;
use crate::testing;
use crate::worker::Shard;
use std::rc::Rc;
use std::time::Duration;
use strandline_core::ids::{ColumnId, ShardId, TableId};
use strandline_core::io::Env;
use strandline_core::routing::hash64;
use strandline_core::schema::{ColumnSpec, Family, Fill, Label, StreamOptions, TableSpec};
use strandline_core::schema_change::TableChange;
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::time::DAY_MS;
use strandline_core::value::Kind;

async fn create(engine: &LocalEngine, name: &str, retention_days: Option<i64>) -> TableId {
    let column = ColumnSpec {
        name: "x".into(),
        label: Label::Double,
        fill: Fill::None,
        declared: true,
    };
    let spec = TableSpec {
        name: name.into(),
        family: Family::Timeseries,
        columns: vec![column],
        entity_uuid: false,
        options: StreamOptions {
            retention_ms: retention_days.map(|d| d * DAY_MS),
            ..StreamOptions::default()
        },
    };
    engine.create_table(spec, false).await.unwrap();
    engine.catalog().table(name).unwrap().id
}

/// Writes one sample of entity `e` at each of these times.
async fn write(engine: &LocalEngine, table: TableId, times: &[i64]) {
    let mut batch = StreamBatchBuilder::default();
    for &ts in times {
        batch.begin_row("e", hash64(b"e"), ts);
        let slot = batch.slot(ColumnId::FIRST_USER, Kind::F64);
        batch.push_f64(slot, 1.0);
    }
    let batches = vec![(ShardId(0), batch.finish())];
    engine.write_stream(table, batches).await.unwrap();
}

async fn flush(shard: &Shard, table: TableId) {
    let _guard = shard.flushing.lock().await;
    shard.flush_table(table).await.unwrap();
}

/// Days from now on which the table's segments begin.
fn days(t: &StreamTable, now: i64) -> Vec<i64> {
    let from = |s: Rc<crate::segment::Segment>| (s.info().range.0 - now).div_euclid(DAY_MS);
    let mut days: Vec<i64> = t.segments().into_iter().map(from).collect();
    days.sort_unstable();
    days
}

async fn files(env: &Env) -> usize {
    env.disk.list("shard-0000/seg").await.unwrap().len()
}

async fn until(env: &Env, done: impl Fn() -> bool) {
    for _ in 0..100 {
        if done() {
            return;
        }
        env.tasks.sleep(Duration::from_millis(1)).await;
    }
    panic!("it does not come to pass");
}

#[test]
fn expired_days_give_their_disk_back_at_midnight_and_when_retention_is_made_shorter() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (engine, shard, env, _) = database(dir.path()).await;
        let now = testing::START_MS + 10 * DAY_MS + 1000;
        testing::set_wall_ms(now);
        let table = create(&engine, "t", Some(3)).await;
        let other = create(&engine, "other", None).await;
        let midnight = now - now.rem_euclid(DAY_MS);
        // Noon of today and of six days before; three of these have expired when they are written.
        let times: Vec<i64> = (0..7).map(|d| midnight - d * DAY_MS + DAY_MS / 2).collect();
        write(&engine, table, &times).await;
        write(&engine, other, &times[5..]).await;
        flush(&shard, table).await;
        flush(&shard, other).await;
        let t = shard.stream(table).unwrap();
        assert_eq!(days(&t, midnight), [-3, -2, -1, 0]);
        let before = files(&env).await;

        // A reader of the oldest day, over midnight: the segment goes, its file does not.
        let held: Vec<_> = t.segments().into_iter().take(1).collect();
        let paths: Vec<String> = held.iter().map(|s| s.path().to_string()).collect();
        assert_eq!(shard.counters.expired_segments.get(), 0);
        env.tasks.sleep(Duration::from_secs(86_400)).await;
        until(&env, || shard.counters.expired_segments.get() == 1).await;
        assert_eq!(days(&t, midnight), [-2, -1, 0]);
        assert_eq!(files(&env).await, before);
        assert_eq!(shard.status().held_segments, 1);
        drop(held);
        until(&env, || shard.trash.paths.borrow().is_empty()).await;
        env.tasks.sleep(Duration::from_millis(1)).await;
        let name = paths[0].rsplit('/').next().unwrap().to_string();
        let there = env.disk.list("shard-0000/seg").await.unwrap();
        assert!(!there.contains(&name), "{name} is still among {there:?}");
        assert_eq!(shard.status().held_segments, 0);

        let shorter = TableChange::SetRetention {
            retention_ms: Some(DAY_MS),
        };
        engine.alter_table(table, vec![shorter]).await.unwrap();
        until(&env, || shard.counters.expired_segments.get() == 3).await;
        assert_eq!(days(&t, midnight), [0]);
        // The other table keeps everything, and a restart finds it so.
        let manifest = shard.manifest.lock().await.current().clone();
        assert_eq!(manifest.tables[&table].segments.len(), 1);
        assert_eq!(manifest.tables[&other].segments.len(), 2);
        shard.stop().await;
    });
}

#[test]
fn expired_rows_in_memory_give_their_log_back() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (engine, shard, env, _) = database(dir.path()).await;
        testing::set_wall_ms(testing::START_MS + 10 * DAY_MS);
        let table = create(&engine, "t", Some(2)).await;
        write(&engine, table, &[testing::START_MS + 10 * DAY_MS]).await;
        assert!(shard.stream(table).unwrap().oldest_unflushed().is_some());
        env.tasks.sleep(Duration::from_secs(4 * 86_400)).await;
        until(&env, || {
            let t = shard.stream(table).unwrap();
            t.oldest_unflushed().is_none() && t.segments().is_empty()
        })
        .await;
        assert_eq!(
            shard.manifest.lock().await.current().log_after,
            shard.applied()
        );
        shard.stop().await;
    });
}

#[test]
fn a_segment_of_many_days_is_cut_when_it_is_long_against_the_retention() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (engine, shard, env, _) = database(dir.path()).await;
        let now = testing::START_MS + 10 * DAY_MS;
        testing::set_wall_ms(now);
        let table = create(&engine, "t", None).await;
        // 400 days in one flush: a few large buckets.
        let times: Vec<i64> = (0..400).map(|d| now - d * DAY_MS).collect();
        write(&engine, table, &times).await;
        flush(&shard, table).await;
        let t = shard.stream(table).unwrap();
        assert!(t.segments().len() <= 9);
        let shorter = TableChange::SetRetention {
            retention_ms: Some(20 * DAY_MS),
        };
        engine.alter_table(table, vec![shorter]).await.unwrap();
        // Days alone are left, of those that have not expired.
        until(&env, || {
            let segments = t.segments();
            let one_day = |r: (i64, i64)| r.1 - r.0 < DAY_MS;
            let live = now - 20 * DAY_MS;
            segments
                .iter()
                .all(|s| one_day(s.info().range) && s.info().range.0 >= live)
        })
        .await;
        assert_eq!(t.segments().len(), 21);
        shard.stop().await;
    });
}

#[test]
fn many_small_tables_are_flushed_with_one_edit_of_the_manifest() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (engine, shard, _, _) = database(dir.path()).await;
        let mut tables = Vec::new();
        for n in 0..60 {
            tables.push(create(&engine, &format!("t{n}"), None).await);
        }
        for &table in &tables {
            write(&engine, table, &[testing::START_MS]).await;
        }
        let before = shard.manifest.lock().await.changes();
        let guard = shard.flushing.lock().await;
        shard.flush_tables(&tables).await.unwrap();
        drop(guard);
        let manifest = shard.manifest.lock().await;
        // One for the segments, one for the log that is given back.
        assert_eq!(manifest.changes() - before, 2);
        assert!(
            tables
                .iter()
                .all(|t| manifest.current().tables[t].segments.len() == 1)
        );
        assert_eq!(manifest.current().log_after, shard.applied());
        drop(manifest);
        shard.stop().await;
    });
}
