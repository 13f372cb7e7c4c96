//! DELETE of entities of MUTABLE tables through the engine: statements at the same time, restarts, flushes.

use crate::api::Engine;
use crate::engine::LocalEngine;
use crate::maintain_tests::database;
use crate::testing;
use crate::worker::Shard;
use futures_util::future::{join_all, join3};
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::ids::{ColumnId, ShardId, TableId};
use strandline_core::routing::hash64;
use strandline_core::scan::{ChannelRead, Entities, StreamScan, TsRange};
use strandline_core::schema::{ColumnSpec, Family, Fill, Label, StreamOptions, TableSpec};
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::value::{Cell, Kind};

async fn create(engine: &LocalEngine, name: &str, mutable: bool) -> TableId {
    let column = |name: &str| ColumnSpec {
        name: name.into(),
        label: Label::Double,
        fill: Fill::None,
        declared: true,
    };
    let spec = TableSpec {
        name: name.into(),
        family: Family::Timeseries,
        columns: vec![column("x"), column("y")],
        entity_uuid: false,
        options: StreamOptions {
            mutable,
            ..StreamOptions::default()
        },
    };
    engine.create_table(spec, false).await.unwrap();
    engine.catalog().table(name).unwrap().id
}

/// One sample of channel 0 or 1.
async fn write(engine: &LocalEngine, t: TableId, e: &str, ts: i64, channel: u32) -> Result<()> {
    let mut batch = StreamBatchBuilder::default();
    batch.begin_row(e, hash64(e.as_bytes()), ts);
    let slot = batch.slot(ColumnId(ColumnId::FIRST_USER.0 + channel), Kind::F64);
    batch.push_f64(slot, ts as f64);
    let batches = vec![(ShardId(0), batch.finish())];
    engine.write_stream(t, batches).await
}

async fn delete(engine: &LocalEngine, t: TableId, e: &str) -> bool {
    engine.delete_entity(t, e.to_owned()).await.unwrap()
}

/// Entity, ts, x and y of every row.
async fn state(engine: &LocalEngine, table: TableId) -> Vec<(String, i64, String)> {
    let read = |n| ChannelRead {
        column: ColumnId(ColumnId::FIRST_USER.0 + n),
        kind: Kind::F64,
        fill: Fill::None,
    };
    let scan = StreamScan {
        table,
        floor: i64::MIN,
        entities: Entities::All,
        range: TsRange::ALL,
        channels: vec![read(0), read(1)],
        output: 2,
        filled: false,
        predicate: None,
        limit: None,
    };
    let mut rows = Vec::new();
    let mut batches = engine.scan_stream(scan).await.unwrap();
    while let Some(b) = batches.next().await.unwrap() {
        for r in 0..b.rows {
            let (Cell::Str(e), Cell::I64(ts)) = (b.columns[0].cell(r), b.columns[1].cell(r)) else {
                panic!("not entity and ts");
            };
            let cells = format!("{:?}", (b.columns[2].cell(r), b.columns[3].cell(r)));
            rows.push((e.to_owned(), ts, cells));
        }
    }
    rows.sort();
    rows
}

async fn flush(shard: &Shard, table: TableId) {
    let _guard = shard.flushing.lock().await;
    shard.flush_table(table).await.unwrap();
}

#[test]
fn one_of_two_deletes_at_once_takes_effect() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (engine, shard, _, _) = database(dir.path()).await;
        let t = create(&engine, "t", true).await;
        for round in 0..20 {
            write(&engine, t, "e", round * 10, 0).await.unwrap();
            let all = (0..4).map(|_| delete(&engine, t, "e"));
            let done: usize = join_all(all).await.into_iter().map(usize::from).sum();
            assert_eq!(done, 1);
            assert_eq!(state(&engine, t).await, []);
        }
        assert!(!delete(&engine, t, "nobody").await);
        shard.stop().await;
    });
}

/// A DELETE among writes of the same entity that are on their way: what it decides is the same after a
/// restart, with what was flushed in between and what was not, and after a channel was dropped.
#[test]
fn a_delete_among_writes_replays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let mut random = 0x5EED_u64;
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below) as i64
        };
        let (mut engine, mut shard, _, _) = database(dir.path()).await;
        let t = create(&engine, "t", true).await;
        for round in 0..60i64 {
            let e = ["a", "b"][next(2) as usize];
            let (first, second) = (round * 3 + next(5), round * 3 + next(5));
            let (one, deleted, two) = join3(
                write(&engine, t, e, first, next(2) as u32),
                delete(&engine, t, e),
                write(&engine, t, e, second, next(2) as u32),
            )
            .await;
            one.unwrap();
            two.unwrap();
            let rows = state(&engine, t).await;
            if deleted {
                // What came before it is below its tombstone; what came later only counts above it.
                let live = rows.iter().find(|r| r.0 == e);
                assert!(live.is_none_or(|r| r.1 == first.max(second)), "{rows:?}");
            }
            if next(4) == 0 {
                flush(&shard, t).await;
                assert_eq!(state(&engine, t).await, rows);
            }
            if next(4) == 0 {
                shard.stop().await;
                drop((engine, shard));
                (engine, shard, ..) = database(dir.path()).await;
                assert_eq!(state(&engine, t).await, rows);
            }
        }
        shard.stop().await;
    });
}

/// The newest ts was of a channel that is gone at the restart: the tombstone stands where it stood.
#[test]
fn a_dropped_channel_moves_no_tombstone() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (engine, shard, _, _) = database(dir.path()).await;
        let t = create(&engine, "t", true).await;
        write(&engine, t, "e", 1, 0).await.unwrap();
        write(&engine, t, "e", 5, 1).await.unwrap();
        flush(&shard, t).await;
        assert!(delete(&engine, t, "e").await);
        let drop_y = strandline_core::schema_change::TableChange::DropColumn {
            name: "y".into(),
            if_exists: false,
        };
        engine.alter_table(t, vec![drop_y]).await.unwrap();
        write(&engine, t, "e", 3, 0).await.unwrap();
        assert_eq!(state_of_x(&engine, t).await, 0);
        shard.stop().await;
        drop((engine, shard));
        let (engine, shard, _, _) = database(dir.path()).await;
        assert_eq!(state_of_x(&engine, t).await, 0);
        write(&engine, t, "e", 6, 0).await.unwrap();
        assert_eq!(state_of_x(&engine, t).await, 1);
        shard.stop().await;
    });
}

async fn state_of_x(engine: &LocalEngine, t: TableId) -> usize {
    state(engine, t).await.len()
}

/// Entities that are deleted all the time hold up no write of another, nor one of their own.
#[test]
fn writers_pass_between_deletes() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (engine, shard, _, _) = database(dir.path()).await;
        let t = create(&engine, "t", true).await;
        for e in ["a", "b", "c"] {
            write(&engine, t, e, 0, 0).await.unwrap();
        }
        let done = std::cell::Cell::new(false);
        let again = |e: &'static str, shift: usize| {
            let (engine, done) = (&engine, &done);
            async move {
                let mut ts = shift as i64;
                while !done.get() {
                    delete(engine, t, e).await;
                    ts += 10;
                    write(engine, t, e, ts, 0).await.unwrap();
                }
                ts
            }
        };
        let writer = async {
            for ts in 1..50 {
                write(&engine, t, "c", ts, 0).await.unwrap();
                write(&engine, t, "a", ts, 1).await.unwrap();
            }
            done.set(true);
        };
        let deletes = join_all([again("a", 0), again("a", 3), again("b", 0), again("b", 5)]);
        let (ts, ()) = futures_util::future::join(deletes, writer).await;
        assert!(ts.iter().all(|&ts| ts > 10), "{ts:?}");
        let rows = state(&engine, t).await;
        assert!(rows.iter().any(|r| (&*r.0, r.1) == ("c", 49)), "{rows:?}");
        shard.stop().await;
    });
}

#[test]
fn other_tables_have_no_delete() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (engine, shard, _, _) = database(dir.path()).await;
        let engine = Rc::new(engine);
        let t = create(&engine, "t", false).await;
        write(&engine, t, "e", 1, 0).await.unwrap();
        let e = engine.delete_entity(t, "e".into()).await.unwrap_err();
        assert_eq!(e.state().code(), "0A000");
        assert_eq!(state_of_x(&engine, t).await, 1);
        shard.stop().await;
    });
}
