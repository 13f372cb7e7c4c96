//! One run of one seed: clients write and read while the world crashes under them, again and again; after
//! each recovery everything anybody saw is checked.

use crate::sim::disk::{DiskFaults, SimDisk};
use crate::sim::model::{Attempt, Model, Seen};
use crate::sim::process::{Process, Starting};
use crate::sim::world::World;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, SqlState};
use strandline_core::ids::{ColumnId, Rev};
use strandline_core::limits::Limits;
use strandline_core::routing::{hash64, shard_of_hash};
use strandline_core::scan::{
    Aggregate, AggregateFn, ChannelRead, Entities, FeedRange, KeyedColumn, KeyedScan, LatestScan,
    StreamAggregate, StreamScan, TsRange,
};
use strandline_core::schema::{ColumnSpec, Family, Fill, Label, TableDef, TableSpec};
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::value::{Batch, Cell as ValueCell, Kind, Value};
use strandline_core::xid::Xid;
use strandline_shard::api::{BatchStream, Engine};
use strandline_shard::shared::{Faults, Options};

/// What is planted for a run that must be caught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// Nothing: the run must pass.
    #[default]
    Nothing,
    /// The disk answers a sync without doing it.
    SkipSync,
    /// A writer is answered before its log record is durable.
    AckEarly,
    /// The watermark passes a write before its rows are visible.
    PublishEarly,
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Equal for equal seeds.
    pub trace: u64,
    /// Tasks polled.
    pub steps: u64,
    /// Writes acknowledged.
    pub acked: u64,
    /// Crashes.
    pub crashes: u64,
}

type Shared = Rc<RefCell<Model>>;
type Failure = Rc<RefCell<Option<String>>>;

/// A replica: what a client of the feed holds. Outlives every crash.
#[derive(Default)]
struct Replica {
    cursor: u64,
    rows: BTreeMap<Xid, Seen>,
}

const TABLE: &str = "registry";
const STREAM: &str = "telemetry";

fn table(engine: &Rc<dyn Engine>, name: &str) -> Result<Arc<TableDef>, Error> {
    engine
        .catalog()
        .table(name)
        .cloned()
        .ok_or_else(|| Error::internal(format!("no table {name}")))
}

fn keyed_scan(def: &TableDef, feed: Option<FeedRange>, limit: Option<u64>) -> KeyedScan {
    KeyedScan {
        table: def.id,
        columns: vec![
            KeyedColumn::Xid,
            KeyedColumn::Rev,
            KeyedColumn::Deleted,
            KeyedColumn::User(ColumnId::FIRST_USER, Kind::Str),
        ],
        filter: None,
        feed,
        order: Vec::new(),
        limit,
        offset: 0,
        count: false,
    }
}

async fn collect(mut rows: Box<dyn BatchStream>) -> Result<Vec<Batch>, Error> {
    let mut all = Vec::new();
    while let Some(batch) = rows.next().await? {
        all.push(batch);
    }
    Ok(all)
}

fn seen_rows(batches: &[Batch]) -> Vec<(Xid, Seen)> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.rows {
            let cell = |i: usize| batch.columns[i].cell(row);
            let (ValueCell::Str(xid), ValueCell::I64(rev), ValueCell::I64(deleted)) =
                (cell(0), cell(1), cell(2))
            else {
                panic!("columns of the wrong type")
            };
            let token = if let ValueCell::Str(t) = cell(3) {
                t.to_string()
            } else {
                String::new()
            };
            let xid = Xid::parse(xid).expect("an xid");
            rows.push((
                xid,
                Seen {
                    rev: rev as u64,
                    deleted: deleted != 0,
                    token,
                },
            ));
        }
    }
    rows
}

async fn read_rows(
    engine: &Rc<dyn Engine>,
    feed: Option<FeedRange>,
    limit: Option<u64>,
) -> Result<Vec<(Xid, Seen)>, Error> {
    let def = table(engine, TABLE)?;
    let rows = engine.scan_keyed(keyed_scan(&def, feed, limit)).await?;
    Ok(seen_rows(&collect(rows).await?))
}

fn feed_after(after: u64, given: bool) -> FeedRange {
    FeedRange {
        after: Rev(after),
        after_given: given,
        until: Rev::MAX,
        deleted: None,
        watermark: Rev(0),
    }
}

/// One page of the feed into the replica. True: there was nothing new.
async fn follow(
    world: &World,
    engine: &Rc<dyn Engine>,
    replica: &Rc<RefCell<Replica>>,
    model: &Shared,
    fail: &Failure,
) -> Result<bool, Error> {
    let cursor = replica.borrow().cursor;
    let limit = 1 + world.rng.below(20);
    let page = match read_rows(engine, Some(feed_after(cursor, true)), Some(limit)).await {
        Err(e) if e.state() == SqlState::ObjectNotInPrerequisiteState => {
            // The resync recipe: the watermark, a scan, on from the watermark.
            let status = engine.feed_status(table(engine, TABLE)?.id).await?;
            let rows = read_rows(engine, None, None).await?;
            let mut replica = replica.borrow_mut();
            replica.cursor = status.watermark.0;
            replica.rows = rows.into_iter().collect();
            return Ok(false);
        }
        page => page?,
    };
    let mut last = cursor;
    for (xid, seen) in &page {
        if seen.rev <= last {
            note(
                fail,
                Err(format!(
                    "the feed after {cursor} answered {} after {last}",
                    seen.rev
                )),
            );
        }
        last = seen.rev;
        note(fail, model.borrow_mut().saw("feed", *xid, seen.clone()));
    }
    let mut replica = replica.borrow_mut();
    replica.cursor = last;
    for (xid, seen) in &page {
        if seen.deleted {
            replica.rows.remove(xid);
        } else {
            replica.rows.insert(*xid, seen.clone());
        }
    }
    Ok(page.is_empty())
}

fn note(fail: &Failure, check: Result<(), String>) {
    if let Err(e) = check {
        fail.borrow_mut().get_or_insert(e);
    }
}

/// Whether an error says for sure that nothing was written.
fn surely_not_written(e: &Error) -> bool {
    e.state() == SqlState::DiskFull
}

async fn client_step(
    world: &Rc<World>,
    engine: &Rc<dyn Engine>,
    me: usize,
    clock: &Cell<i64>,
    model: &Shared,
    fail: &Failure,
) -> Result<(), Error> {
    let rng = &world.rng;
    let def = table(engine, TABLE)?;
    let before = model.borrow().highest;
    match rng.below(100) {
        0..=29 => {
            let n = if rng.one_in(12) {
                100
            } else {
                1 + rng.below(6)
            };
            let tokens: Vec<String> = (0..n).map(|_| model.borrow_mut().token()).collect();
            let rows = tokens
                .iter()
                .map(|t| vec![Value::str(t.as_str()), Value::F64(n as f64)])
                .collect();
            let columns = vec![def.columns[0].id, def.columns[1].id];
            model
                .borrow_mut()
                .attempts
                .push(Attempt::Insert(tokens.clone()));
            match engine.insert_rows(def.id, columns, rows).await {
                Ok(rows) => {
                    let mut model = model.borrow_mut();
                    forget(&mut model, &tokens[0]);
                    model.acked += 1;
                    for (row, token) in rows.iter().zip(tokens) {
                        if row.rev.0 <= before {
                            note(
                                fail,
                                Err(format!(
                                    "insert got x_rev {} after {before} was seen",
                                    row.rev.0
                                )),
                            );
                        }
                        note(fail, model.saw_insert(row.rev.0, row.xid));
                        note(
                            fail,
                            model.saw(
                                "insert",
                                row.xid,
                                Seen {
                                    rev: row.rev.0,
                                    deleted: false,
                                    token,
                                },
                            ),
                        );
                    }
                }
                Err(e) => refuse(model, &tokens, &e),
            }
        }
        30..=54 => {
            let Some((xid, known)) = pick(rng.next(), model) else {
                return Ok(());
            };
            let token = model.borrow_mut().token();
            let expected = match rng.below(3) {
                0 => None,
                1 => Some(Rev(known.rev)),
                _ => Some(Rev(known.rev.saturating_sub(1))),
            };
            model
                .borrow_mut()
                .attempts
                .push(Attempt::Update(xid, token.clone()));
            let set = vec![(def.columns[0].id, Value::str(token.as_str()))];
            match engine.update_row(def.id, xid, expected, set).await {
                Ok(done) => {
                    let mut model = model.borrow_mut();
                    forget(&mut model, &token);
                    model.acked += 1;
                    let Some(version) = done else {
                        model.refused.insert(token);
                        return Ok(());
                    };
                    if version.rev.0 <= before {
                        note(
                            fail,
                            Err(format!(
                                "update got x_rev {} after {before} was seen",
                                version.rev.0
                            )),
                        );
                    }
                    if let Some(expected) = expected
                        && !model.won.insert((xid, expected.0))
                    {
                        note(
                            fail,
                            Err(format!(
                                "two compare-and-sets on {xid} won against x_rev {}",
                                expected.0
                            )),
                        );
                    }
                    let seen = Seen {
                        rev: version.rev.0,
                        deleted: false,
                        token,
                    };
                    note(fail, model.saw("update", xid, seen));
                }
                Err(e) => refuse(model, &[token], &e),
            }
        }
        55..=62 => {
            let Some((xid, _)) = pick(rng.next(), model) else {
                return Ok(());
            };
            model.borrow_mut().attempts.push(Attempt::Delete(xid));
            model.borrow_mut().deletes.insert(xid);
            if let Some(version) = engine.delete_row(def.id, xid, None).await? {
                let token = match version.value(def.columns[0].id) {
                    Value::Str(t) => t.to_string(),
                    _ => String::new(),
                };
                model.borrow_mut().acked += 1;
                let seen = Seen {
                    rev: version.rev.0,
                    deleted: true,
                    token,
                };
                note(fail, model.borrow_mut().saw("delete", xid, seen));
            }
        }
        63..=92 => {
            let def = table(engine, STREAM)?;
            let mut batches = BTreeMap::new();
            let mut keys = Vec::new();
            for _ in 0..1 + rng.below(12) {
                let entity = format!("e{me}-{}", rng.below(4));
                let hash = hash64(entity.as_bytes());
                // Never the same ts twice; now and then far behind the others.
                clock.set(clock.get() + 1);
                let ts = clock.get() * 1000 - if rng.one_in(5) { 500_500_000 } else { 0 };
                let value = rng.below(1_000) as f64;
                let batch: &mut StreamBatchBuilder = batches
                    .entry(shard_of_hash(hash, engine.shards()))
                    .or_default();
                let slot = batch.slot(def.columns[0].id, Kind::F64);
                batch.begin_row(&entity, hash, ts);
                batch.push_f64(slot, value);
                keys.push(((entity, ts), value));
            }
            model.borrow_mut().sample_attempts.extend(keys.clone());
            let batches = batches
                .into_iter()
                .map(|(s, mut b)| (s, b.finish()))
                .collect();
            if engine.write_stream(def.id, batches).await.is_ok() {
                let mut model = model.borrow_mut();
                for (key, value) in keys {
                    model.sample_attempts.remove(&key);
                    model.samples.insert(key, value);
                }
                model.acked += 1;
            }
        }
        93..=94 => {
            engine.vacuum(def.id).await?;
        }
        95..=96 => {
            engine.checkpoint().await?;
        }
        97 => world.skew(rng.below(20_000) as i64 - 10_000),
        _ => {
            let name = format!("scratch{}", rng.below(3));
            let spec = spec(
                &name,
                if rng.one_in(2) {
                    Family::Rows
                } else {
                    Family::Timeseries
                },
            );
            if rng.one_in(2) {
                engine.drop_table(&name, true).await?;
            } else if engine.catalog().table(&name).is_none() {
                // Another client may be faster: then it is there, which is as good.
                let _ = engine.create_table(spec, true).await;
            }
        }
    }
    Ok(())
}

fn forget(model: &mut Model, token: &str) {
    model.attempts.retain(|a| match a {
        Attempt::Insert(tokens) => tokens[0] != token,
        Attempt::Update(_, t) => t != token,
        Attempt::Delete(_) => true,
    });
}

fn refuse(model: &Shared, tokens: &[String], e: &Error) {
    if surely_not_written(e) {
        let mut model = model.borrow_mut();
        forget(&mut model, &tokens[0]);
        model.refused.extend(tokens.iter().cloned());
    }
}

fn pick(random: u64, model: &Shared) -> Option<(Xid, Seen)> {
    let model = model.borrow();
    let n = model.rows.len() as u64;
    // Mostly among the first rows, so that clients meet on them.
    let at = if random & 1 == 0 {
        random / 2 % n.clamp(1, 4)
    } else {
        random / 2 % n.max(1)
    };
    model
        .rows
        .iter()
        .nth(at as usize)
        .map(|(x, s)| (*x, s.clone()))
}

fn spec(name: &str, family: Family) -> TableSpec {
    let fill = if family == Family::Timeseries {
        Fill::Hold { staleness_ms: None }
    } else {
        Fill::None
    };
    let column = |name: &str, label| ColumnSpec {
        name: name.into(),
        label,
        fill,
        declared: true,
    };
    let columns = match family {
        Family::Rows => vec![column("token", Label::TEXT), column("n", Label::Int)],
        Family::Timeseries => vec![column("v", Label::Double)],
    };
    TableSpec {
        name: name.into(),
        family,
        columns,
        entity_uuid: false,
    }
}

/// With nobody writing: everything anybody saw is there, nothing else, and each replica catches up.
async fn check(
    world: Rc<World>,
    engine: Rc<dyn Engine>,
    model: Shared,
    replicas: Vec<Rc<RefCell<Replica>>>,
) -> Result<(), String> {
    let text = |e: Error| format!("a read after recovery failed: {e}");
    let def = table(&engine, TABLE).map_err(text)?;
    let horizon = engine
        .feed_status(def.id)
        .await
        .map_err(text)?
        .vacuum_horizon
        .0;
    let all = read_rows(&engine, Some(feed_after(0, false)), None)
        .await
        .map_err(text)?;
    if !all.windows(2).all(|w| w[0].1.rev < w[1].1.rev) {
        return Err("the feed is not in the order of x_rev".into());
    }
    let all: BTreeMap<Xid, Seen> = all.into_iter().collect();
    model.borrow_mut().check_table(&all, horizon)?;
    let live = read_rows(&engine, None, None).await.map_err(text)?;
    if !live.windows(2).all(|w| w[0].0 < w[1].0) {
        return Err("a scan is not in the order of xid".into());
    }
    let live: BTreeMap<Xid, Seen> = live.into_iter().collect();
    let expected: BTreeMap<Xid, Seen> = all.into_iter().filter(|(_, s)| !s.deleted).collect();
    if live != expected {
        return Err(format!(
            "the scan and the feed differ: {live:?} against {expected:?}"
        ));
    }
    let status = engine.feed_status(def.id).await.map_err(text)?;
    if status.live_rows != live.len() as u64 {
        return Err(format!(
            "SHOW FEED counts {} live rows of {}",
            status.live_rows,
            live.len()
        ));
    }
    if status.watermark.0 < model.borrow().highest {
        return Err(format!(
            "the watermark {} is below {}, which was seen",
            status.watermark.0,
            model.borrow().highest
        ));
    }
    let fail: Failure = Rc::default();
    for replica in &replicas {
        while !follow(&world, &engine, replica, &model, &fail)
            .await
            .map_err(text)?
        {}
        let rows = &replica.borrow().rows;
        if rows != &live {
            return Err(format!(
                "a replica at {} differs: {rows:?} against {live:?}",
                replica.borrow().cursor
            ));
        }
    }
    if let Some(e) = fail.borrow_mut().take() {
        return Err(e);
    }
    let def = table(&engine, STREAM).map_err(text)?;
    let channel = ChannelRead {
        column: def.columns[0].id,
        kind: Kind::F64,
        fill: def.columns[0].fill,
    };
    let scan = StreamScan {
        table: def.id,
        entities: Entities::All,
        range: TsRange::ALL,
        channels: vec![channel.clone()],
        output: 1,
        filled: false,
        predicate: None,
        limit: None,
    };
    let batches = collect(engine.scan_stream(scan).await.map_err(text)?)
        .await
        .map_err(text)?;
    let mut found = Vec::new();
    for batch in &batches {
        for row in 0..batch.rows {
            match (
                batch.columns[0].cell(row),
                batch.columns[1].cell(row),
                batch.columns[2].cell(row),
            ) {
                (ValueCell::Str(e), ValueCell::I64(ts), ValueCell::F64(v)) => {
                    found.push((e.to_string(), ts, v))
                }
                other => return Err(format!("a sample without its value: {other:?}")),
            }
        }
    }
    model.borrow_mut().check_samples(&found)?;
    let mut newest: BTreeMap<String, (i64, f64)> = BTreeMap::new();
    for (entity, ts, value) in &found {
        let last = newest.entry(entity.clone()).or_insert((*ts, *value));
        if last.0 <= *ts {
            *last = (*ts, *value);
        }
    }
    let latest = LatestScan {
        table: def.id,
        entities: Entities::All,
        until: i64::MAX,
        from: i64::MIN,
        channels: vec![channel.clone()],
    };
    let mut shadow = BTreeMap::new();
    for batch in collect(engine.latest(latest).await.map_err(text)?)
        .await
        .map_err(text)?
    {
        for row in 0..batch.rows {
            if let (ValueCell::Str(e), ValueCell::I64(ts), ValueCell::F64(v)) = (
                batch.columns[0].cell(row),
                batch.columns[1].cell(row),
                batch.columns[2].cell(row),
            ) {
                shadow.insert(e.to_string(), (ts, v));
            }
        }
    }
    if shadow != newest {
        return Err(format!(
            "the device shadow is {shadow:?}, the samples say {newest:?}"
        ));
    }
    let query = StreamAggregate {
        table: def.id,
        entities: Entities::All,
        range: TsRange::ALL,
        aggregates: vec![
            Aggregate {
                func: AggregateFn::Count,
                column: None,
            },
            Aggregate {
                func: AggregateFn::Sum,
                column: Some((channel.column, Kind::F64)),
            },
        ],
        sample: None,
        by_entity: false,
    };
    let answer = engine.aggregate(query).await.map_err(text)?;
    let sum: f64 = found.iter().map(|f| f.2).sum();
    let counted = answer.columns[0].cell(0);
    if counted != ValueCell::I64(found.len() as i64) {
        return Err(format!("count(*) is {counted:?} of {}", found.len()));
    }
    if !found.is_empty() && answer.columns[1].cell(0) != ValueCell::F64(sum) {
        return Err(format!("sum is {:?}, not {sum}", answer.columns[1].cell(0)));
    }
    Ok(())
}

/// Limits so small that a few hundred writes flush, merge and recycle.
fn limits(world: &World) -> Limits {
    let mut limits = Limits::default();
    limits.memory_bytes = [96 << 10, 512 << 10, 64 << 20][world.rng.below(3) as usize];
    limits.log_file_bytes = 64 << 10;
    limits.log_bytes = [128 << 10, 1 << 20][world.rng.below(2) as usize];
    limits.block_rows = 16 + world.rng.below(64);
    limits.merge_fan_in = 2 + world.rng.below(3);
    limits.rev_reservation = [16, 300, 1 << 20][world.rng.below(3) as usize];
    limits.ranges_in_flight = [16, 64, 1024][world.rng.below(3) as usize];
    limits
}

/// Runs a seed.
pub fn run(seed: u64, planted: Planted) -> Result<Summary, String> {
    let world = World::new(seed);
    let disk = SimDisk::new(world.clone());
    let model: Shared = Rc::default();
    let replicas: Vec<Rc<RefCell<Replica>>> = (0..2).map(|_| Rc::default()).collect();
    let clocks: Vec<Rc<Cell<i64>>> = (0..4).map(|_| Rc::new(Cell::new(2_000_000))).collect();
    let shards = 1 + world.rng.below(3) as u16;
    let limits = limits(&world);
    let mut crashes = 0;
    let rounds = 2 + world.rng.below(3);
    for round in 0..=rounds {
        let last = round == rounds;
        let executors = 1 + world.rng.below(2) as usize;
        let options = Options {
            shards,
            node_id: 0,
            limits: limits.clone(),
            accept_loss: false,
            faults: match planted {
                Planted::AckEarly => Faults {
                    ack_early: true,
                    publish_early: false,
                },
                Planted::PublishEarly => Faults {
                    ack_early: false,
                    publish_early: true,
                },
                _ => Faults::default(),
            },
        };
        disk.faults.set(DiskFaults {
            sync_lies: planted == Planted::SkipSync,
            ..DiskFaults::default()
        });
        let starting: Starting = Rc::default();
        let start = Process::start(
            world.clone(),
            disk.clone(),
            "main".into(),
            options,
            executors,
            starting.clone(),
        );
        let slot: Rc<RefCell<Option<Result<Process, Error>>>> = Rc::default();
        let out = slot.clone();
        world.spawn(Box::pin(async move {
            let process = start.await;
            *out.borrow_mut() = Some(process);
        }));
        let crash = |states: &[Rc<strandline_shard::router::ExecutorState>]| {
            world.kill_tasks();
            states.iter().for_each(|s| s.clear());
            disk.crash();
        };
        if !last && world.rng.one_in(4) {
            // A crash while it starts.
            let end = world.steps() + world.rng.below(400);
            world.run_until("start", || slot.borrow().is_some() || world.steps() >= end)?;
            crashes += 1;
            crash(&starting.borrow());
            slot.borrow_mut().take();
            continue;
        }
        world.run_until("start", || slot.borrow().is_some())?;
        let process = match slot.borrow_mut().take() {
            Some(Ok(process)) => process,
            Some(Err(e)) => return Err(format!("round {round}: the start failed: {e}")),
            None => return Err("no start".into()),
        };
        let engines: Vec<Rc<dyn Engine>> = process
            .engines
            .iter()
            .map(|e| e.clone() as Rc<dyn Engine>)
            .collect();
        let engine = engines[0].clone();
        let (w, m, r, e) = (
            world.clone(),
            model.clone(),
            replicas.clone(),
            engine.clone(),
        );
        world
            .block_on("check", async move {
                for (name, family) in [(TABLE, Family::Rows), (STREAM, Family::Timeseries)] {
                    e.create_table(spec(name, family), true)
                        .await
                        .map_err(|e| e.to_string())?;
                }
                check(w, e, m, r).await
            })?
            .map_err(|e| format!("round {round}: {e}"))?;
        if last {
            let stopped: Rc<RefCell<Option<Result<(), Error>>>> = Rc::default();
            let out = stopped.clone();
            drop((engines, engine));
            world.spawn(Box::pin(async move {
                let done = process.stop().await;
                *out.borrow_mut() = Some(done);
            }));
            world.run_until("stop", || stopped.borrow().is_some())?;
            if let Some(Err(e)) = stopped.borrow_mut().take() {
                return Err(format!("the stop failed: {e}"));
            }
            break;
        }
        // The work, under whatever goes wrong this time.
        if world.rng.one_in(3) && planted == Planted::Nothing {
            let (a, b, c) = (world.rng.below(2), world.rng.below(2), world.rng.below(2));
            disk.faults.set(DiskFaults {
                write_errors: a * 200,
                sync_errors: b * 200,
                no_space: c * 20,
                sync_lies: false,
            });
        }
        let fail: Failure = Rc::default();
        let clients = 1 + world.rng.below(4) as usize;
        for me in 0..clients {
            let engine = engines[me % engines.len()].clone();
            let (w, m, f, clock) = (
                world.clone(),
                model.clone(),
                fail.clone(),
                clocks[me].clone(),
            );
            world.spawn(Box::pin(async move {
                while client_step(&w, &engine, me, &clock, &m, &f).await.is_ok()
                    || !w.rng.one_in(20)
                {
                    w.sleep_ns(w.rng.below(500_000)).await;
                }
            }));
        }
        for (i, replica) in replicas.iter().enumerate() {
            let engine = engines[i % engines.len()].clone();
            let (w, m, f, replica) = (world.clone(), model.clone(), fail.clone(), replica.clone());
            world.spawn(Box::pin(async move {
                loop {
                    let _ = follow(&w, &engine, &replica, &m, &f).await;
                    w.sleep_ns(w.rng.below(2_000_000)).await;
                }
            }));
        }
        let end = world.steps() + world.rng.between(100, 2_500);
        let mut ran = true;
        while ran && world.steps() < end && fail.borrow().is_none() {
            ran = world.step();
        }
        if let Some(e) = fail.borrow_mut().take() {
            return Err(format!("round {round}: {e}"));
        }
        crashes += 1;
        crash(process.states());
        drop((engines, engine, process));
    }
    let acked = model.borrow().acked;
    Ok(Summary {
        trace: world.trace(),
        steps: world.steps(),
        acked,
        crashes,
    })
}
