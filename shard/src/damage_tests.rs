//! Damaged and missing segments under a whole database: reads that could need one fail, and say where; all
//! others answer as before, and nothing answers wrong.

use crate::api::{BatchStream, Engine};
use crate::damage::GIVEN_UP_SUFFIX;
use crate::engine::LocalEngine;
use crate::hop::{Hop, Job};
use crate::router::ExecutorState;
use crate::shared::{Options, Shared};
use crate::{start, testing};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Result, SqlState};
use strandline_core::ids::Rev;
use strandline_core::limits::Limits;
use strandline_core::routing::hash64;
use strandline_core::scan::{
    Aggregate, AggregateFn, ChannelRead, Entities, FeedRange, KeyedColumn, KeyedFilter, KeyedScan,
    LatestScan, StreamAggregate, StreamScan, TsRange,
};
use strandline_core::schema::{ColumnSpec, Family, Fill, Label, TableDef, TableSpec};
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::value::{Kind, Value};

struct NoHop;

impl Hop for NoHop {
    fn send(&self, executor: usize, _job: Job) {
        panic!("there is no executor {executor}");
    }
}

struct Db {
    engine: Rc<LocalEngine>,
    state: Rc<ExecutorState>,
}

const SEG: &str = "shard-0000/seg";

impl Db {
    async fn open(dir: &Path, accept_loss: bool) -> Result<Db> {
        let env = testing::env(dir);
        let options = Options {
            shards: 1,
            accept_loss,
            limits: Limits {
                block_rows: 8,
                ..Limits::default()
            },
            ..Options::default()
        };
        let (shared, file) = Shared::open(&env, &options).await?;
        let state = ExecutorState::new(0, env);
        let opened =
            start::open_executor(&state, &shared, Rc::new(NoHop), 1, Some(file.clone())).await;
        let (router, found) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                state.clear();
                return Err(e);
            }
        };
        shared.finish_recovery(start::max_xid(&found), &file)?;
        if accept_loss {
            start::give_up_damaged(&state).await?;
        }
        Ok(Db {
            engine: LocalEngine::new(router),
            state,
        })
    }

    async fn close(self) {
        start::stop_shards(&self.state).await.unwrap();
        start::close_coordinator(&self.state).await.unwrap();
        self.state.clear();
    }

    fn table(&self, name: &str) -> Arc<TableDef> {
        self.engine.catalog().table(name).cloned().unwrap()
    }

    async fn create(&self, name: &str, family: Family, columns: [(&str, Label); 2]) {
        let columns = columns.map(|(name, label)| ColumnSpec {
            name: name.into(),
            label,
            fill: Fill::None,
            declared: true,
        });
        let spec = TableSpec {
            name: name.into(),
            family,
            columns: columns.into(),
            entity_uuid: false,
            options: Default::default(),
        };
        self.engine.create_table(spec, false).await.unwrap();
    }

    async fn flush(&self) {
        for shard in self.state.local_shards() {
            let _guard = shard.flushing.lock().await;
            for name in ["tele", "planes"] {
                shard.flush_table(self.table(name).id).await.unwrap();
            }
        }
    }

    /// Ten rows of five entities, from a ts on; of a sixth entity in one round only.
    async fn lines(&self, round: i64) {
        let def = self.table("tele");
        let mut b = StreamBatchBuilder::default();
        for i in 0..10 {
            let alone = round == 1 && i == 9;
            let entity = if alone {
                "only once".to_string()
            } else {
                format!("veh-{}", i % 5)
            };
            b.begin_row(
                &entity,
                hash64(entity.as_bytes()),
                1_700_000_000_000 + round * 100_000 + i * 1000,
            );
            let slot = b.slot(def.columns[0].id, Kind::F64);
            b.push_f64(slot, (round * 100 + i * i) as f64 / 4.0);
            if i % 3 != 0 {
                let slot = b.slot(def.columns[1].id, Kind::Str);
                b.push_str(slot, ["on", "off", "größe"][i as usize % 3]);
            }
        }
        let batches = vec![(strandline_core::ids::ShardId(0), b.finish())];
        self.engine.write_stream(def.id, batches).await.unwrap();
    }

    async fn rows(&self, round: i64) -> Result<()> {
        let def = self.table("planes");
        let columns: Vec<_> = def.columns.iter().map(|c| c.id).collect();
        let values = (0..8).map(|n| {
            vec![
                Value::str(format!("plane {round}.{n}")),
                Value::F64(n as f64),
            ]
        });
        let inserted = self
            .engine
            .insert_rows(def.id, columns.clone(), values.collect())
            .await?;
        let set = vec![(columns[1], Value::F64(99.0))];
        (self.engine.update_row(def.id, inserted[0].xid, None, set)).await?;
        (self.engine.delete_row(def.id, inserted[1].xid, None)).await?;
        Ok(())
    }

    /// Both tables in three segments each, and a little in the log.
    async fn filled(dir: &Path) -> Db {
        let db = Db::open(dir, false).await.unwrap();
        let channels = [("speed", Label::Double), ("event", Label::TEXT)];
        db.create("tele", Family::Timeseries, channels).await;
        let columns = [("name", Label::TEXT), ("size", Label::Int)];
        db.create("planes", Family::Rows, columns).await;
        for round in 0..4 {
            db.lines(round).await;
            db.rows(round).await.unwrap();
            if round < 3 {
                db.flush().await;
            }
        }
        db
    }

    async fn keyed(
        &self,
        after: Option<Rev>,
        filter: Option<KeyedFilter>,
        count: bool,
    ) -> Result<String> {
        let def = self.table("planes");
        let mut columns = vec![KeyedColumn::Xid, KeyedColumn::Rev, KeyedColumn::Deleted];
        let user = def.columns.iter();
        columns.extend(user.map(|c| KeyedColumn::User(c.id, c.label.kind())));
        let feed = after.map(|after| FeedRange {
            after,
            after_given: after.0 > 0,
            until: Rev::MAX,
            deleted: None,
            watermark: Rev(0),
        });
        let scan = KeyedScan {
            table: def.id,
            columns: if count { Vec::new() } else { columns },
            filter,
            feed,
            order: Vec::new(),
            limit: None,
            offset: 0,
            count,
        };
        text(self.engine.scan_keyed(scan).await?).await
    }

    fn channels(&self) -> Vec<ChannelRead> {
        let channel = |c: &strandline_core::schema::ColumnDef| ChannelRead {
            column: c.id,
            kind: c.label.kind(),
            fill: c.fill,
        };
        self.table("tele").columns.iter().map(channel).collect()
    }

    async fn scan(&self, entities: Entities, range: TsRange, held: bool) -> Result<String> {
        let mut channels = self.channels();
        if held {
            channels.iter_mut().for_each(|c| {
                c.fill = Fill::Hold {
                    staleness_ms: Some(1_000_000),
                };
            });
        }
        let scan = StreamScan {
            floor: i64::MIN,
            table: self.table("tele").id,
            entities,
            range,
            output: channels.len(),
            channels,
            filled: held,
            predicate: None,
            limit: None,
        };
        text(self.engine.scan_stream(scan).await?).await
    }

    async fn latest(&self, entities: Entities) -> Result<String> {
        let scan = LatestScan {
            floor: i64::MIN,
            table: self.table("tele").id,
            entities,
            until: i64::MAX,
            from: i64::MIN,
            channels: self.channels(),
        };
        text(self.engine.latest(scan).await?).await
    }

    async fn aggregate(&self, entities: Entities, by_entity: bool) -> Result<String> {
        let def = self.table("tele");
        let of = |func, column: Option<usize>| Aggregate {
            func,
            column: column.map(|n| (def.columns[n].id, def.columns[n].label.kind())),
        };
        let query = StreamAggregate {
            filter: None,
            floor: i64::MIN,
            table: def.id,
            entities,
            range: TsRange::ALL,
            aggregates: vec![
                of(AggregateFn::Count, None),
                of(AggregateFn::Sum, Some(0)),
                of(AggregateFn::Last, Some(1)),
            ],
            sample: None,
            by_entity,
        };
        Ok(format!("{:?}", self.engine.aggregate(query).await?))
    }

    /// What can be asked: of which table, and the answer.
    async fn answers(&self) -> Vec<(&'static str, &'static str, Result<String>)> {
        let one = |name: &str| Entities::In(vec![name.to_string()]);
        let late = TsRange {
            from: 1_700_000_300_000,
            to: i64::MAX,
        };
        let sized = KeyedFilter::IsNull {
            column: self.table("planes").columns[1].id,
            negated: true,
        };
        vec![
            ("planes", "rows", self.keyed(None, None, false).await),
            ("planes", "some", self.keyed(None, Some(sized), false).await),
            ("planes", "count", self.keyed(None, None, true).await),
            (
                "planes",
                "feed",
                self.keyed(Some(Rev(0)), None, false).await,
            ),
            (
                "tele",
                "raw",
                self.scan(Entities::All, TsRange::ALL, false).await,
            ),
            ("tele", "held", self.scan(Entities::All, late, true).await),
            (
                "tele",
                "one",
                self.scan(one("veh-3"), TsRange::ALL, false).await,
            ),
            (
                "tele",
                "once",
                self.scan(one("only once"), TsRange::ALL, false).await,
            ),
            ("tele", "late", self.scan(one("veh-2"), late, false).await),
            ("tele", "latest", self.latest(Entities::All).await),
            ("tele", "latest of one", self.latest(one("veh-1")).await),
            (
                "tele",
                "latest of once",
                self.latest(one("only once")).await,
            ),
            ("tele", "sums", self.aggregate(Entities::All, false).await),
            (
                "tele",
                "sums by entity",
                self.aggregate(Entities::All, true).await,
            ),
            (
                "tele",
                "sums of one",
                self.aggregate(one("only once"), false).await,
            ),
        ]
    }
}

async fn text(mut rows: Box<dyn BatchStream>) -> Result<String> {
    let mut all = Vec::new();
    while let Some(batch) = rows.next().await? {
        for row in 0..batch.rows {
            let cells = batch.columns.iter().map(|c| format!("{:?}", c.cell(row)));
            all.push(cells.collect::<Vec<_>>().join(" "));
        }
    }
    all.sort();
    Ok(all.join("\n"))
}

/// Segment files, and the table that each says it is of.
fn segments(dir: &Path, db: &Db) -> Vec<(PathBuf, &'static str)> {
    let mut files: Vec<_> = std::fs::read_dir(dir.join(SEG))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "seg"))
        .collect();
    files.sort();
    let of = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        let id = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
        let tele = db.table("tele").id.0 == id;
        (path, if tele { "tele" } else { "planes" })
    };
    files.into_iter().map(of).collect()
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// Every answer is as it was, or `XX001` naming the file; of other tables always as it was. How many failed.
async fn check(
    db: &Db,
    whole: &[(&'static str, &'static str, Result<String>)],
    table: &str,
    file: &str,
    what: &str,
) -> usize {
    let mut failed = 0;
    for (now, before) in db.answers().await.into_iter().zip(whole) {
        match now.2 {
            Ok(answer) => assert_eq!(&answer, before.2.as_ref().unwrap(), "{what}: {}", now.1),
            Err(e) => {
                assert_eq!(now.0, table, "{what}: {} of another table: {e}", now.1);
                assert_eq!(e.state(), SqlState::DataCorrupted, "{what}: {}: {e}", now.1);
                assert!(e.message().contains(file), "{what}: {}: {e}", now.1);
                failed += 1;
            }
        }
    }
    failed
}

#[test]
fn a_segment_without_its_index_fails_the_reads_of_its_table() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let db = Db::filled(dir.path()).await;
        let whole = db.answers().await;
        let files = segments(dir.path(), &db);
        assert!(files.len() >= 6, "{files:?}");
        db.close().await;
        for (path, table) in &files {
            let name = path.file_name().unwrap().to_str().unwrap();
            let good = std::fs::read(path).unwrap();
            for damage in ["trailer", "footer", "cut", "empty", "missing", "header"] {
                let end = good.len();
                match damage {
                    "trailer" => edit(path, |b| b[end - 20] ^= 4),
                    "footer" => edit(path, |b| b[end - 60] ^= 4),
                    "cut" => edit(path, |b| b.truncate(end - 1)),
                    "empty" => edit(path, |b| b.clear()),
                    "header" => edit(path, |b| b[17] ^= 1),
                    _ => std::fs::remove_file(path).unwrap(),
                }
                let what = format!("{damage} of {name} of {table}");
                let db = Db::open(dir.path(), false)
                    .await
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                let failed = check(&db, &whole, table, name, &what).await;
                assert!(failed >= 4, "{what}: {failed} reads failed");
                let shown = db.engine.segment_status().await.unwrap();
                let shown: Vec<_> = shown.iter().filter(|s| s.damage.is_some()).collect();
                assert_eq!(shown.len(), 1, "{what}");
                assert!(shown[0].unreadable && shown[0].table == db.table(table).id);
                assert_eq!(
                    db.engine.shard_status().await.unwrap()[0].damaged_segments,
                    1
                );
                db.close().await;
                std::fs::write(path, &good).unwrap();
            }
        }
        let db = Db::open(dir.path(), false).await.unwrap();
        assert_eq!(check(&db, &whole, "", "", "whole again").await, 0);
        db.close().await;
    });
}

#[test]
fn writes_go_on_beside_damage_and_drop_table_removes_it() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let db = Db::filled(dir.path()).await;
        let files = segments(dir.path(), &db);
        db.close().await;
        for (path, _) in &files[..2] {
            edit(path, |b| b.truncate(b.len() - 3));
        }
        let db = Db::open(dir.path(), false).await.unwrap();
        db.lines(7).await;
        db.rows(7).await.unwrap();
        db.flush().await;
        let snapshot = db.engine.checkpoint().await.unwrap();
        for (path, _) in &files {
            let linked = dir
                .path()
                .join(&snapshot)
                .join(path.strip_prefix(dir.path()).unwrap());
            assert!(linked.exists(), "{linked:?}");
        }
        for shard in db.state.local_shards() {
            let _guard = shard.merging.lock().await;
            for name in ["tele", "planes"] {
                while shard.merge_step(db.table(name).id).await.unwrap() {}
            }
        }
        db.close().await;
        assert!(
            files[..2].iter().all(|(path, _)| path.exists()),
            "merges leave it"
        );
        let db = Db::open(dir.path(), false).await.unwrap();
        for name in ["tele", "planes"] {
            assert!(db.engine.drop_table(name, false).await.unwrap());
        }
        assert!(
            files[..2].iter().all(|(path, _)| !path.exists()),
            "its file goes"
        );
        db.close().await;
        Db::open(dir.path(), false).await.unwrap().close().await;
    });
}

#[test]
fn a_damaged_block_fails_only_what_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let db = Db::filled(dir.path()).await;
        let whole = db.answers().await;
        let files = segments(dir.path(), &db);
        db.close().await;
        let (mut tried, mut failed, mut answered) = (0, 0, 0);
        for (path, table) in &files {
            let name = path.file_name().unwrap().to_str().unwrap();
            let good = std::fs::read(path).unwrap();
            let end = good.len();
            let bloom = u64::from_le_bytes(good[end - 40..end - 32].try_into().unwrap()) as usize;
            for at in (32..bloom).step_by(5) {
                edit(path, |b| b[at] ^= 0x11);
                let what = format!("byte {at} of {name} of {table}");
                let db = Db::open(dir.path(), false)
                    .await
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                let errors = check(&db, &whole, table, name, &what).await;
                tried += 1;
                failed += errors;
                answered += whole.len() - errors;
                db.close().await;
                std::fs::write(path, &good).unwrap();
            }
        }
        assert!(
            tried > 40 && failed > tried && answered > failed,
            "{tried} {failed} {answered}"
        );
    });
}

#[test]
fn accepting_the_loss_gives_a_segment_up_and_makes_replicas_begin_again() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let db = Db::filled(dir.path()).await;
        let (planes, before) = (db.table("planes").id, db.answers().await);
        let seen = db.engine.feed_status(planes).await.unwrap().watermark;
        let files = segments(dir.path(), &db);
        db.close().await;
        let of = |table| files.iter().find(|f| f.1 == table).unwrap().0.clone();
        let lost = [of("tele"), of("planes")];
        for path in &lost {
            edit(path, |b| b.truncate(b.len() - 3));
        }
        let db = Db::open(dir.path(), true).await.unwrap();
        for (table, question, answer) in db.answers().await {
            answer.unwrap_or_else(|e| panic!("{table}: {question}: {e}"));
        }
        assert_ne!(db.answers().await[0].2, before[0].2);
        // Whoever has read the feed before, to its very end even, would not learn what is gone.
        let e = db.keyed(Some(seen), None, false).await.unwrap_err();
        assert_eq!(e.state(), SqlState::ObjectNotInPrerequisiteState, "{e}");
        let status = db.engine.feed_status(planes).await.unwrap();
        assert!(status.watermark > seen && status.vacuum_horizon <= status.watermark);
        db.keyed(Some(status.watermark), None, false).await.unwrap();
        db.rows(9).await.unwrap();
        assert!(
            !db.keyed(Some(status.watermark), None, false)
                .await
                .unwrap()
                .is_empty()
        );
        let kept = db.answers().await;
        db.close().await;
        for path in &lost {
            assert!(!path.exists());
            let aside = format!("{}{GIVEN_UP_SUFFIX}", path.display());
            assert!(Path::new(&aside).exists(), "its file is kept");
        }
        let db = Db::open(dir.path(), false).await.unwrap();
        assert_eq!(check(&db, &kept, "", "", "the next start").await, 0);
        db.close().await;
    });
}
