//! A whole database on one executor over files in memory, and everything that a client can read of it.

use crate::memdisk::{Files, MemDisk};
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::ids::Rev;
use strandline_core::limits::Limits;
use strandline_core::routing::{hash64, shard_of_hash};
use strandline_core::scan::{
    Aggregate, AggregateFn, BucketFill, ChannelRead, Entities, FeedRange, KeyedColumn, KeyedScan,
    LatestScan, SampleBy, StreamAggregate, StreamScan, TsRange,
};
use strandline_core::schema::{ColumnSpec, Family, Fill, Label, TableDef, TableSpec};
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::time::Interval;
use strandline_core::value::{Batch, Kind, Value};
use strandline_shard::api::{BatchStream, Engine};
use strandline_shard::engine::LocalEngine;
use strandline_shard::hop::{Hop, Job};
use strandline_shard::router::ExecutorState;
use strandline_shard::shared::{Options, Shared};
use strandline_shard::start;
use strandline_tests::sim::world::{Rng, World};

/// With one executor there is no other one to send to.
struct NoHop;

impl Hop for NoHop {
    fn send(&self, _executor: usize, job: Job) {
        drop(job);
    }
}

/// Small, so that a little data makes many blocks, segments and log files.
pub fn limits() -> Limits {
    Limits {
        memory_bytes: 64 << 20,
        log_file_bytes: 32 << 10,
        block_rows: 16,
        merge_fan_in: 3,
        rev_reservation: 64,
        insert_run_rows: 32,
        ranges_in_flight: 16,
        ..Limits::default()
    }
}

/// A running database.
pub struct Database {
    pub engine: Rc<LocalEngine>,
    state: Rc<ExecutorState>,
    shared: std::sync::Arc<Shared>,
}

impl Database {
    /// Opens what is on the disk, or makes a database.
    pub async fn open(disk: Rc<MemDisk>, world: Rc<World>) -> Result<Database> {
        let env = disk.env(&world);
        let options = Options {
            shards: 2,
            node_id: 1,
            limits: limits(),
            accept_loss: false,
            faults: Default::default(),
        };
        let (shared, file) = Shared::open(&env, &options).await?;
        let state = ExecutorState::new(0, env);
        let opened = async {
            let (router, found) =
                start::open_executor(&state, &shared, Rc::new(NoHop), 1, Some(file.clone()))
                    .await?;
            shared.finish_recovery(start::max_xid(&found), &file)?;
            Result::<_>::Ok(LocalEngine::new(router))
        };
        match opened.await {
            Ok(engine) => {
                start::start_executor(&state);
                Ok(Database {
                    engine,
                    state,
                    shared,
                })
            }
            Err(e) => {
                state.clear();
                Err(e)
            }
        }
    }

    /// Down, cleanly.
    pub async fn close(self) -> Result<()> {
        self.shared.start_draining();
        start::stop_shards(&self.state).await?;
        start::close_coordinator(&self.state).await?;
        self.state.clear();
        Ok(())
    }

    fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    fn table(&self, name: &str) -> Result<std::sync::Arc<TableDef>> {
        let found = self.engine().catalog().table(name).cloned();
        found.ok_or_else(|| strandline_core::error::Error::internal(format!("no table {name}")))
    }

    async fn flush(&self, name: &str) -> Result<()> {
        let table = self.table(name)?.id;
        for shard in self.state.local_shards() {
            let guard = shard.flushing.lock().await;
            shard.flush_table(table).await?;
            drop(guard);
        }
        Ok(())
    }

    async fn lines(&self, rng: &Rng, from_ms: i64, rows: usize) -> Result<()> {
        let def = self.table("tele")?;
        let shards = self.engine().shards();
        let mut builders: Vec<StreamBatchBuilder> = Vec::new();
        builders.resize_with(usize::from(shards), StreamBatchBuilder::default);
        for i in 0..rows as i64 {
            let entity = format!("veh-{}", rng.below(5));
            let hash = hash64(entity.as_bytes());
            let b = &mut builders[usize::from(shard_of_hash(hash, shards).0)];
            b.begin_row(&entity, hash, from_ms + i / 2 * 1000);
            let slot = b.slot(def.columns[0].id, Kind::F64);
            b.push_f64(slot, rng.below(500) as f64 / 4.0);
            if rng.one_in(3) {
                let slot = b.slot(def.columns[1].id, Kind::Str);
                b.push_str(slot, ["on", "off", "größe"][rng.below(3) as usize]);
            }
            if rng.one_in(2) {
                let slot = b.slot(def.columns[2].id, Kind::F64);
                b.push_f64(slot, rng.below(9) as f64);
            }
        }
        let batches = (0..)
            .map(strandline_core::ids::ShardId)
            .zip(builders.iter_mut().map(|b| b.finish()));
        let batches = batches.filter(|(_, b)| b.rows() > 0).collect();
        self.engine().write_stream(def.id, batches).await
    }

    async fn rows(&self, rng: &Rng, n: usize) -> Result<Vec<strandline_core::xid::Xid>> {
        let def = self.table("planes")?;
        let columns = def.columns.iter().map(|c| c.id).collect();
        let one = |_| {
            let name = format!("plane {}", rng.below(1000));
            let size = match rng.below(3) {
                0 => Value::Null,
                _ => Value::F64(rng.below(100) as f64),
            };
            vec![Value::str(name), size]
        };
        let inserted = self
            .engine()
            .insert_rows(def.id, columns, (0..n).map(one).collect())
            .await?;
        Ok(inserted.iter().map(|r| r.xid).collect())
    }

    /// Tables of both families with history in segments, merged segments and the log; a vacuum horizon.
    pub async fn fill(&self) -> Result<()> {
        let rng = Rng::new(4);
        let column = |name: &str, label, fill| ColumnSpec {
            name: name.into(),
            label,
            fill,
            declared: true,
        };
        let hold = Fill::Hold {
            staleness_ms: Some(60_000),
        };
        let spec = |name: &str, family, columns| TableSpec {
            name: name.into(),
            family,
            columns,
            entity_uuid: false,
            options: Default::default(),
        };
        let channels = vec![
            column("speed", Label::Double, hold),
            column("event", Label::TEXT, Fill::None),
            column("gear", Label::Int, Fill::None),
        ];
        let e = self.engine();
        e.create_table(spec("tele", Family::Timeseries, channels), false)
            .await?;
        let columns = vec![
            column("name", Label::TEXT, Fill::None),
            column("size", Label::Int, Fill::None),
        ];
        e.create_table(spec("planes", Family::Rows, columns), false)
            .await?;
        let planes = self.table("planes")?;
        let (name, size) = (planes.columns[0].id, planes.columns[1].id);
        for round in 0..5 {
            self.lines(&rng, 1_700_000_000_000 + round * 40_000, 60)
                .await?;
            let xids = self.rows(&rng, 14).await?;
            e.update_row(
                planes.id,
                xids[0],
                None,
                vec![(name, Value::str("renamed"))],
            )
            .await?;
            e.update_row(planes.id, xids[1], None, vec![(size, Value::Null)])
                .await?;
            e.delete_row(planes.id, xids[2], None).await?;
            if round < 4 {
                self.flush("tele").await?;
                self.flush("planes").await?;
            }
            if round == 1 {
                e.vacuum(planes.id).await?;
            }
        }
        Ok(())
    }

    /// Everything that can be read, question by question.
    pub async fn answers(&self) -> Vec<(&'static str, Result<String>)> {
        vec![
            ("rows", self.keyed(None, false).await),
            ("count", self.keyed(None, true).await),
            ("feed", self.keyed(Some(Rev(0)), false).await),
            ("later feed", self.keyed(Some(Rev(60)), false).await),
            ("feed status", self.status().await),
            ("raw", self.stream(false, None).await),
            ("held", self.stream(true, None).await),
            ("one entity", self.stream(true, Some("veh-3")).await),
            ("latest", self.latest(Entities::All).await),
            (
                "latest of two",
                self.latest(Entities::In(vec!["veh-1".into(), "veh-4".into()]))
                    .await,
            ),
            ("aggregates", self.aggregate(None).await),
            ("buckets", self.aggregate(Some(7_000)).await),
        ]
    }

    async fn keyed(&self, feed: Option<Rev>, count: bool) -> Result<String> {
        let def = self.table("planes")?;
        let mut columns = vec![KeyedColumn::Xid, KeyedColumn::Rev, KeyedColumn::Deleted];
        columns.extend(
            def.columns
                .iter()
                .map(|c| KeyedColumn::User(c.id, c.label.kind())),
        );
        let feed = feed.map(|after| FeedRange {
            after,
            after_given: false,
            until: Rev::MAX,
            deleted: None,
            watermark: Rev(0),
        });
        let scan = KeyedScan {
            table: def.id,
            columns: if count { Vec::new() } else { columns },
            filter: None,
            feed,
            order: Vec::new(),
            limit: None,
            offset: 0,
            count,
        };
        text(self.engine().scan_keyed(scan).await?, false).await
    }

    async fn status(&self) -> Result<String> {
        // What was reserved before a crash is gone, and with it the watermark goes up: no part of the answer.
        let status = self.engine().feed_status(self.table("planes")?.id).await?;
        Ok(format!(
            "{} {} {}",
            status.vacuum_horizon, status.live_rows, status.tombstones
        ))
    }

    fn channels(def: &TableDef) -> Vec<ChannelRead> {
        let channel = |c: &strandline_core::schema::ColumnDef| ChannelRead {
            column: c.id,
            kind: c.label.kind(),
            fill: c.fill,
        };
        def.columns.iter().map(channel).collect()
    }

    async fn stream(&self, filled: bool, entity: Option<&str>) -> Result<String> {
        let def = self.table("tele")?;
        let channels = Self::channels(&def);
        let scan = StreamScan {
            floor: i64::MIN,
            table: def.id,
            entities: entity.map_or(Entities::All, |e| Entities::In(vec![e.into()])),
            range: TsRange::ALL,
            output: channels.len(),
            channels,
            filled,
            predicate: None,
            limit: None,
        };
        text(self.engine().scan_stream(scan).await?, true).await
    }

    async fn latest(&self, entities: Entities) -> Result<String> {
        let def = self.table("tele")?;
        let scan = LatestScan {
            floor: i64::MIN,
            table: def.id,
            entities,
            until: i64::MAX,
            from: i64::MIN,
            channels: Self::channels(&def),
        };
        text(self.engine().latest(scan).await?, true).await
    }

    async fn aggregate(&self, interval_ms: Option<i64>) -> Result<String> {
        let def = self.table("tele")?;
        let of = |func, n: usize| Aggregate {
            func,
            column: Some((def.columns[n].id, def.columns[n].label.kind())),
        };
        let query = StreamAggregate {
            filter: None,
            floor: i64::MIN,
            table: def.id,
            entities: Entities::All,
            range: TsRange {
                from: 1_699_999_000_000,
                to: 1_700_000_400_000,
            },
            aggregates: vec![
                Aggregate {
                    func: AggregateFn::Count,
                    column: None,
                },
                of(AggregateFn::Sum, 0),
                of(AggregateFn::Min, 0),
                of(AggregateFn::Max, 2),
                of(AggregateFn::Last, 1),
            ],
            sample: interval_ms.map(|interval_ms| SampleBy {
                interval: Interval::Ms(interval_ms),
                fill: Some(BucketFill::Null),
            }),
            by_entity: interval_ms.is_none(),
        };
        Ok(lines(&self.engine().aggregate(query).await?).join("\n"))
    }
}

fn lines(batch: &Batch) -> Vec<String> {
    let row = |row| {
        let cells = batch.columns.iter().map(|c| format!("{:?}", c.cell(row)));
        cells.collect::<Vec<_>>().join(" ")
    };
    (0..batch.rows).map(row).collect()
}

/// The rows of an answer; sorted where shards answer in any order.
async fn text(mut rows: Box<dyn BatchStream>, sort: bool) -> Result<String> {
    let mut all = Vec::new();
    while let Some(batch) = rows.next().await? {
        all.extend(lines(&batch));
    }
    if sort {
        all.sort();
    }
    Ok(all.join("\n"))
}

/// The files of a filled database, as kill -9 leaves them.
pub fn files() -> Files {
    let disk = MemDisk::of(&Files::new());
    let world = World::new(8);
    let at = (disk.clone(), world.clone());
    let filled = world.block_on("filling a database", async move {
        let database = Database::open(at.0, at.1.clone()).await?;
        database.fill().await?;
        // Merges go on until there is nothing to merge.
        at.1.sleep_ns(60_000_000_000).await;
        Result::<()>::Ok(())
    });
    filled.expect("an end").expect("a filled database");
    world.kill_tasks();
    disk.copy()
}

/// Opens these files and asks everything; an error for each question when they cannot be opened.
pub fn ask(files: &Files) -> Result<Vec<(&'static str, Result<String>)>> {
    let disk = MemDisk::of(files);
    let world = World::new(9);
    let at = world.clone();
    let answers = world.block_on("reading a database", async move {
        let database = Database::open(disk, at).await?;
        let answers = database.answers().await;
        let _ = database.close().await;
        Ok(answers)
    });
    world.kill_tasks();
    answers.unwrap_or_else(|hang| panic!("{hang}"))
}
