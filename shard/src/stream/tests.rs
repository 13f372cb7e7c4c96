//! The store against the reference of docs/sql.md's rules (`tests/src/reference/`), over random batches,
//! flushes and merges.

use super::*;
use crate::segment::BlockCache;
use crate::store::Collect;
use crate::testing::{block_on, env};
use proptest::prelude::*;
use std::cell::Cell as StdCell;
use std::collections::BTreeMap;
use std::path::Path;
use strandline_core::ids::{SegmentId, TableId};
use strandline_core::limits::Limits;
use strandline_core::scan::{
    Aggregate, AggregateFn, BucketFill, ChannelRead, CmpOp, LatestScan, Predicate, SampleBy,
    StreamAggregate, StreamScan,
};
use strandline_core::schema::{ColumnDef, Family, Fill, Label, StreamOptions};
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::time::Interval;
use strandline_core::value::Batch;

mod aggregates;
mod buckets;
mod overlap;
// The same for the store, the simulator and whole servers. Not all of it is asked for here.
#[allow(dead_code, unused_imports)]
#[path = "../../../tests/src/reference/mod.rs"]
mod reference;
mod state;
mod tails;
use aggregates::{aggregate, aggregates};
use reference::{Answered, Contents, Fragment, rows::truth};

const A: ColumnId = ColumnId(64);
const B: ColumnId = ColumnId(65);
const T: ColumnId = ColumnId(66);
const CHANNELS: [(ColumnId, Kind); 3] = [(A, Kind::F64), (B, Kind::F64), (T, Kind::Str)];

fn def() -> TableDef {
    let column = |id: ColumnId, label| ColumnDef {
        id,
        name: format!("c{id}"),
        label,
        fill: Fill::None,
        declared: true,
    };
    TableDef {
        id: TableId(3),
        name: "t".into(),
        family: Family::Timeseries,
        columns: vec![
            column(A, Label::Double),
            column(B, Label::Double),
            column(T, Label::TEXT),
        ],
        entity_uuid: false,
        options: Default::default(),
        next_column: ColumnId(67),
    }
}

fn limits() -> Limits {
    Limits {
        block_rows: 16,
        merge_fan_in: 2,
        ..Limits::default()
    }
}

fn context(limits: Limits, first_segment: u64) -> StoreContext {
    StoreContext {
        dir: "seg".into(),
        limits: Arc::new(limits),
        next_segment: Rc::new(StdCell::new(first_segment)),
        cache: BlockCache::new(1 << 20),
    }
}

fn table(dir: &Path, def: TableDef) -> StreamTable {
    let env = env(dir);
    block_on(env.disk.create_dir_all("seg")).unwrap();
    StreamTable::new(env, Arc::new(def), context(limits(), 1))
}

/// The table with other options.
fn with(set: impl FnOnce(&mut StreamOptions)) -> TableDef {
    let mut def = def();
    set(&mut def.options);
    def
}

/// One fragment: entity, ts, a, b, t.
type Row = (u8, i64, Option<f64>, Option<f64>, Option<String>);

fn entity_name(e: u8) -> String {
    format!("e{}", e * 3)
}

fn batch(rows: &[Row]) -> StreamBatch {
    let mut builder = StreamBatchBuilder::default();
    for (e, ts, a, b, t) in rows {
        let name = entity_name(*e);
        builder.begin_row(&name, hash64(name.as_bytes()), *ts);
        for (id, x) in [(A, a), (B, b)] {
            if let Some(x) = x {
                let slot = builder.slot(id, Kind::F64);
                builder.push_f64(slot, *x);
            }
        }
        if let Some(t) = t {
            let slot = builder.slot(T, Kind::Str);
            builder.push_str(slot, t);
        }
    }
    builder.finish()
}

/// What was written, and what the reference says must be answered.
#[derive(Default)]
struct Model {
    /// Of the arrivals of a channel only the last counts.
    dedup: bool,
    contents: Contents,
}

impl Model {
    fn apply(&mut self, rows: &[Row]) {
        for (e, ts, a, b, t) in rows {
            let text = t.as_ref().map(|t| Value::str(t.as_str()));
            let cells = [a.map(Value::F64), b.map(Value::F64), text];
            let cells = CHANNELS.iter().zip(cells);
            self.contents.arrive(&Fragment {
                entity: entity_name(*e),
                ts: *ts,
                cells: cells.filter_map(|(c, v)| Some((c.0, v?))).collect(),
            });
        }
    }

    fn index(id: ColumnId) -> usize {
        (id.0 - A.0) as usize
    }

    fn counting(&self) -> Contents {
        match self.dedup {
            true => self.contents.clone().dedup(),
            false => self.contents.clone(),
        }
    }

    /// (entity, ts, output cells) in order.
    fn scan(&self, q: &StreamScan) -> Vec<Answered> {
        reference::scan(&self.counting(), q)
    }

    fn latest(&self, q: &LatestScan) -> Vec<Answered> {
        reference::latest(&self.counting(), q)
    }

    /// (entity, bucket, aggregates).
    fn aggregate(&self, q: &StreamAggregate) -> Vec<Answered> {
        reference::aggregate(&self.counting(), q)
    }
}

fn value(cell: Cell<'_>) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::F64(x) => Value::F64(x),
        Cell::I64(x) => Value::F64(x as f64),
        Cell::Str(s) => Value::str(s),
    }
}

/// (entity, ts, cells) of batches whose first columns are entity and ts.
fn rows_of(batches: &[Batch]) -> Vec<Answered> {
    let mut out = Vec::new();
    for b in batches {
        for r in 0..b.rows {
            let Cell::Str(e) = b.columns[0].cell(r) else {
                panic!("entity")
            };
            let Cell::I64(ts) = b.columns[1].cell(r) else {
                panic!("ts")
            };
            out.push((
                e.to_string(),
                ts,
                b.columns[2..].iter().map(|c| value(c.cell(r))).collect(),
            ));
        }
    }
    out
}

fn scan(t: &StreamTable, q: &StreamScan) -> Vec<Answered> {
    let mut out = Collect::default();
    block_on(t.scan(q, &mut out)).unwrap();
    rows_of(&out.batches)
}

fn latest(t: &StreamTable, q: &LatestScan) -> Vec<Answered> {
    let mut out = Collect::default();
    block_on(t.latest(q, &mut out)).unwrap();
    let mut rows = rows_of(&out.batches);
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Row>),
    Freeze,
    Flush,
    Merge,
    Reopen,
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let number = || prop::option::weighted(0.6, (-5i32..50).prop_map(|x| f64::from(x) / 2.0));
    let text = || prop::option::weighted(0.3, "[a-c]{0,2}");
    // Crowded times: repeats must straddle blocks, and sources must touch at one ts.
    let row = move |from: i64, width: i64| {
        (0u8..4, from..from + width, number(), number(), text())
            .prop_filter("a row has a cell", |r| {
                r.2.is_some() || r.3.is_some() || r.4.is_some()
            })
    };
    (-20i64..50, prop_oneof![Just(80i64), Just(6), Just(2)])
        .prop_flat_map(move |(from, width)| prop::collection::vec(row(from, width), 1..40))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => rows().prop_map(Step::Apply),
        1 => Just(Step::Freeze),
        3 => Just(Step::Flush),
        2 => Just(Step::Merge),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..12)
}

fn fills() -> impl Strategy<Value = Fill> {
    prop_oneof![
        Just(Fill::None),
        Just(Fill::Hold { staleness_ms: None }),
        (0i64..30).prop_map(|s| Fill::Hold {
            staleness_ms: Some(s)
        }),
    ]
}

fn entity_choice() -> impl Strategy<Value = Entities> {
    prop_oneof![
        Just(Entities::All),
        prop::sample::subsequence(vec![0u8, 1, 2, 3, 9], 1..4)
            .prop_map(|l| Entities::In(l.into_iter().map(entity_name).collect())),
    ]
}

fn ranges() -> impl Strategy<Value = TsRange> {
    let ends = (
        prop_oneof![Just(i64::MIN), -25i64..65],
        prop_oneof![Just(i64::MAX), -25i64..65],
    );
    ends.prop_map(|(from, to)| TsRange { from, to })
}

prop_compose! {
    fn scans()(
        entities in entity_choice(), range in ranges(), pick in prop::sample::subsequence(vec![0usize, 1, 2], 0..=3),
        fill in prop::array::uniform3(fills()), filled in any::<bool>(), limit in prop::option::weighted(0.3, 0u64..30),
        cut in any::<prop::sample::Index>(), predicate in 0..5, operand in -5i32..25,
    ) -> StreamScan {
        let channels: Vec<ChannelRead> = pick.iter().map(|&c| ChannelRead { column: CHANNELS[c].0, kind: CHANNELS[c].1, fill: fill[c] }).collect();
        let on = if channels.is_empty() { 0 } else { cut.index(channels.len()) };
        let compare = |op| match channels.get(on) {
            None => None,
            Some(ChannelRead { kind: Kind::F64, .. }) => Some(Predicate::Compare { channel: on, op, value: Value::F64(f64::from(operand)) }),
            Some(_) => Some(Predicate::Compare { channel: on, op, value: Value::str("b") }),
        };
        let predicate = match predicate {
            0 => compare(CmpOp::Gt),
            1 => compare(CmpOp::Eq).map(|p| Predicate::Not(Box::new(p))),
            2 => compare(CmpOp::Lt).map(|_| Predicate::IsNull { channel: on, negated: operand > 5 }),
            _ => None,
        };
        StreamScan { floor: i64::MIN, table: TableId(3), entities, range, output: channels.len() - on.min(channels.len()), channels, filled, predicate, limit }
    }
}

prop_compose! {
    fn latests()(entities in entity_choice(), range in ranges(), pick in prop::sample::subsequence(vec![0usize, 1, 2], 1..=3), fill in prop::array::uniform3(fills())) -> LatestScan {
        let channels = pick.iter().map(|&c| ChannelRead { column: CHANNELS[c].0, kind: CHANNELS[c].1, fill: fill[c] }).collect();
        LatestScan { floor: i64::MIN, table: TableId(3), entities, until: range.to, from: range.from, channels }
    }
}

struct World {
    dir: tempfile::TempDir,
    def: TableDef,
    table: StreamTable,
    model: Model,
    logged: Vec<(Lsn, StreamBatch)>,
    flushed: Lsn,
}

impl World {
    fn new() -> World {
        World::of(def())
    }

    fn of(def: TableDef) -> World {
        let dir = tempfile::tempdir().unwrap();
        World {
            table: table(dir.path(), def.clone()),
            dir,
            model: Model {
                dedup: def.options.dedup,
                ..Model::default()
            },
            def,
            logged: Vec::new(),
            flushed: Lsn(0),
        }
    }

    fn log(&mut self, batch: StreamBatch) {
        let lsn = Lsn(self.logged.len() as u64 + 1);
        self.table.apply(&batch, lsn);
        self.logged.push((lsn, batch));
    }

    fn step(&mut self, step: &Step) {
        let t = &self.table;
        match step {
            Step::Apply(rows) => {
                self.log(batch(rows));
                self.model.apply(rows);
            }
            Step::Freeze => {
                t.freeze();
            }
            Step::Flush => block_on(async {
                t.freeze();
                while let Some(done) = t.flush().await.unwrap() {
                    self.flushed = done.flushed_lsn;
                    t.install_flush(done);
                }
                assert_eq!(t.oldest_unflushed(), None);
            }),
            Step::Merge => block_on(async {
                let debt = t.merge_debt_bytes();
                if let Some(job) = t.pick_merge() {
                    assert!(debt >= job.bytes());
                    let before = t.segments().len();
                    let done = t.merge(&job).await.unwrap();
                    let (gone, came) = (done.inputs.len(), done.outputs.len());
                    assert_eq!(t.install_merge(done).len(), gone);
                    assert_eq!(t.segments().len(), before - gone + came);
                }
            }),
            // A restart: segments from disk, the rest from the log.
            Step::Reopen => {
                let fresh = block_on(async {
                    let env = env(self.dir.path());
                    let ids: Vec<SegmentId> = t.segments().iter().map(|s| s.id()).collect();
                    let cx = context(limits(), t.cx.next_segment.get());
                    let mut segments = Vec::new();
                    for id in ids.into_iter().rev() {
                        segments.push(
                            Segment::open(&env, "seg", id, cx.cache.clone())
                                .await
                                .unwrap(),
                        );
                    }
                    let fresh = StreamTable::new(env, Arc::new(self.def.clone()), cx);
                    fresh.open_segments(segments).await.unwrap();
                    for (lsn, batch) in self.logged.iter().filter(|(lsn, _)| *lsn > self.flushed) {
                        fresh.apply(batch, *lsn);
                    }
                    fresh
                });
                self.table = fresh;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn reads_agree_with_the_model(
        steps in steps(), scans in prop::collection::vec(scans(), 6), latests in prop::collection::vec(latests(), 4),
        aggregates in prop::collection::vec(aggregates(), 6), dedup in any::<bool>(),
    ) {
        let mut world = World::of(with(|o| o.dedup = dedup));
        for step in &steps {
            world.step(step);
        }
        for q in &scans {
            let mut got = scan(&world.table, q);
            if matches!(q.entities, Entities::In(_)) {
                // Listed order is by name here too: the model's order.
                prop_assert!(got.is_sorted_by_key(|r| r.0.clone()));
            }
            if q.limit.is_none() {
                got.sort_by(|a, b| a.0.cmp(&b.0));
            }
            prop_assert_eq!(got, world.model.scan(q), "{:?}", q);
        }
        for q in &latests {
            prop_assert_eq!(latest(&world.table, q), world.model.latest(q), "{:?}", q);
        }
        for q in &aggregates {
            let (got, want) = (aggregate(&world.table, q), world.model.aggregate(q));
            prop_assert!(aggregates::close(&got, &want), "{:?}\n{:?}\n{:?}", q, got, want);
        }
    }
}

fn read(column: ColumnId, fill: Fill) -> ChannelRead {
    let kind = CHANNELS.iter().find(|c| c.0 == column).unwrap().1;
    ChannelRead { column, kind, fill }
}

fn everything(channels: Vec<ChannelRead>) -> StreamScan {
    StreamScan {
        floor: i64::MIN,
        table: TableId(3),
        entities: Entities::All,
        range: TsRange::ALL,
        output: channels.len(),
        channels,
        filled: true,
        predicate: None,
        limit: None,
    }
}

#[test]
fn the_speed_held_at_each_braking() {
    let mut world = World::new();
    let text = |t: &str| Some(t.to_string());
    world.step(&Step::Apply(vec![
        (0, 10, Some(50.0), None, None),
        (0, 20, None, None, text("brake")),
        (0, 30, Some(30.0), None, None),
    ]));
    world.step(&Step::Flush);
    world.step(&Step::Apply(vec![
        (0, 95, None, None, text("brake")),
        (0, 40, None, None, text("horn")),
    ]));
    let hold = Fill::Hold {
        staleness_ms: Some(60),
    };
    let mut q = everything(vec![read(A, hold), read(T, Fill::None)]);
    q.output = 1;
    q.range.from = 15;
    q.predicate = Some(Predicate::Compare {
        channel: 1,
        op: CmpOp::Eq,
        value: Value::str("brake"),
    });
    let e = entity_name(0);
    // At 95 the sample of 30 is 65 ms old.
    assert_eq!(
        scan(&world.table, &q),
        [
            (e.clone(), 20, vec![Value::F64(50.0)]),
            (e, 95, vec![Value::Null])
        ]
    );
}

#[test]
fn a_reader_keeps_what_it_began_with() {
    struct Meddle<'a> {
        world: &'a StreamTable,
        got: Vec<Batch>,
    }
    impl crate::store::BatchSink for Meddle<'_> {
        fn push(&mut self, batch: Batch) -> strandline_core::io::LocalFuture<'_, Result<bool>> {
            self.got.push(batch);
            Box::pin(async {
                let rows: Vec<Row> = (0..500).map(|i| (2, i, Some(7.0), None, None)).collect();
                self.world.apply(
                    &super::tests::batch(&rows),
                    Lsn(1000 + self.got.len() as u64),
                );
                self.world.freeze();
                while let Some(done) = self.world.flush().await? {
                    self.world.install_flush(done);
                }
                while let Some(job) = self.world.pick_merge() {
                    let done = self.world.merge(&job).await?;
                    self.world.install_merge(done);
                }
                Ok(true)
            })
        }
    }
    let mut world = World::new();
    for part in 0..4i64 {
        let rows: Vec<Row> = (0..3000)
            .map(|i| ((i % 3) as u8, part * 3000 + i, Some(i as f64), None, None))
            .collect();
        world.step(&Step::Apply(rows));
        if part < 3 {
            world.step(&Step::Flush);
        }
    }
    let q = everything(vec![read(A, Fill::None)]);
    let mut sink = Meddle {
        world: &world.table,
        got: Vec::new(),
    };
    block_on(world.table.scan(&q, &mut sink)).unwrap();
    assert!(sink.got.len() > 3);
    assert_eq!(rows_of(&sink.got), world.model.scan(&q));
}

#[test]
fn dropped_channels_go_and_their_rows_no_longer_count() {
    let mut world = World::new();
    let count = StreamAggregate {
        filter: None,
        floor: i64::MIN,
        table: TableId(3),
        entities: Entities::All,
        range: TsRange::ALL,
        aggregates: vec![Aggregate {
            func: AggregateFn::Count,
            column: None,
        }],
        sample: None,
        by_entity: false,
    };
    let rows = |from: i64| {
        (from..from + 10)
            .map(|i| (0, i, (i % 2 == 0).then_some(1.0), Some(2.0), None))
            .collect()
    };
    for from in [0, 100] {
        world.step(&Step::Apply(rows(from)));
        world.step(&Step::Flush);
    }
    world.step(&Step::Apply(rows(200)));
    let counted = |t: &StreamTable| aggregate(t, &count)[0].2[0].clone();
    assert_eq!(counted(&world.table), Value::F64(30.0));
    let mut smaller = def();
    smaller.columns.retain(|c| c.id != B);
    world.table.set_def(Arc::new(smaller));
    assert_eq!(counted(&world.table), Value::F64(15.0));
    let rows_before = world
        .table
        .segments()
        .iter()
        .map(|s| s.info().rows)
        .sum::<u64>();
    world.step(&Step::Merge);
    assert_eq!(counted(&world.table), Value::F64(15.0));
    let rows_after = world
        .table
        .segments()
        .iter()
        .map(|s| s.info().rows)
        .sum::<u64>();
    assert_eq!((rows_before, rows_after), (20, 10));
}

#[test]
fn fill_makes_the_empty_buckets() {
    let mut world = World::new();
    world.step(&Step::Apply(vec![
        (0, 10, Some(1.0), None, Some("x".into())),
        (0, 40, Some(4.0), Some(9.0), None),
        (0, 41, Some(4.0), None, None),
    ]));
    let query = |fill| StreamAggregate {
        filter: None,
        floor: i64::MIN,
        table: TableId(3),
        entities: Entities::All,
        range: TsRange { from: 5, to: 59 },
        aggregates: vec![
            Aggregate {
                func: AggregateFn::Avg,
                column: Some((A, Kind::F64)),
            },
            Aggregate {
                func: AggregateFn::Last,
                column: Some((T, Kind::Str)),
            },
            Aggregate {
                func: AggregateFn::Count,
                column: None,
            },
        ],
        sample: Some(SampleBy {
            interval: Interval::Ms(10),
            fill: Some(fill),
        }),
        by_entity: false,
    };
    let n = Value::F64;
    let x = || Value::str("x");
    let null = || Value::Null;
    let rows = |fill| {
        aggregate(&world.table, &query(fill))
            .into_iter()
            .map(|r| r.2)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        rows(BucketFill::Prev),
        [
            vec![null(), null(), null()],
            vec![n(1.0), x(), n(1.0)],
            vec![n(1.0), x(), n(1.0)],
            vec![n(1.0), x(), n(1.0)],
            vec![n(4.0), x(), n(2.0)],
            vec![n(4.0), x(), n(2.0)],
        ]
    );
    assert_eq!(
        rows(BucketFill::Linear),
        [
            vec![null(), null(), null()],
            vec![n(1.0), x(), n(1.0)],
            vec![n(2.0), null(), n(1.0 + 1.0 / 3.0)],
            vec![n(3.0), null(), n(1.0 + 2.0 / 3.0)],
            vec![n(4.0), null(), n(2.0)],
            vec![null(), null(), null()],
        ]
    );
    assert_eq!(
        rows(BucketFill::Number(7.4))[2],
        vec![n(7.4), null(), n(7.4)]
    );
    assert_eq!(rows(BucketFill::Null)[2], vec![null(), null(), null()]);
    let mut wide = query(BucketFill::Null);
    wide.range = TsRange {
        from: 0,
        to: i64::MAX,
    };
    let part = block_on(world.table.aggregate(&wide)).unwrap();
    let e = part.finish(&wide, &limits()).unwrap_err();
    assert_eq!(e.state().code(), "54000");
}

#[test]
fn damage_is_an_error_that_names_the_file() {
    let mut world = World::new();
    let rows: Vec<Row> = (0..200)
        .map(|i| ((i % 4) as u8, i, Some(i as f64 * 0.37), None, None))
        .collect();
    world.step(&Step::Apply(rows));
    world.step(&Step::Flush);
    let path = world.dir.path().join(world.table.segments()[0].path());
    let mut bytes = std::fs::read(&path).unwrap();
    let chunk = world.table.segments()[0].blocks(0)[0]
        .chunk(A)
        .unwrap()
        .offset as usize;
    bytes[chunk + 3] ^= 1;
    #[allow(clippy::disallowed_methods)] // damages a file behind the engine's back
    std::fs::write(&path, bytes).unwrap();
    let q = everything(vec![read(A, Fill::None)]);
    let e = block_on(world.table.scan(&q, &mut Collect::default())).unwrap_err();
    assert_eq!(e.state().code(), "XX001");
    assert!(e.message().contains(".seg"), "{e}");
}

/// Enough rows to seal several runs, out of order, with fragments and repeats on both sides of each seal.
#[test]
fn sealed_runs_hold_what_came() {
    let mut world = World::new();
    world.table = StreamTable::new(
        env(world.dir.path()),
        Arc::new(def()),
        context(Limits::default(), 1),
    );
    let mut random = 0x5EEDu64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for part in 0..8 {
        let rows: Vec<Row> = (0..5_000)
            .map(|_| {
                let ts = next(9_000) as i64;
                let x = next(100) as f64;
                match next(4) {
                    0 => (next(5) as u8, ts, Some(x), None, None),
                    1 => (next(5) as u8, ts, None, Some(x), None),
                    2 => (next(5) as u8, ts, None, None, Some(format!("t{x}"))),
                    _ => (next(5) as u8, ts, Some(x), Some(x), None),
                }
            })
            .collect();
        world.step(&Step::Apply(rows));
        if part == 3 {
            world.step(&Step::Flush);
        }
    }
    let hold = Fill::Hold {
        staleness_ms: Some(3),
    };
    let all = everything(vec![read(A, hold), read(B, Fill::None), read(T, hold)]);
    let count = StreamAggregate {
        filter: None,
        floor: i64::MIN,
        table: TableId(3),
        entities: Entities::All,
        range: TsRange {
            from: 100,
            to: 8_000,
        },
        aggregates: vec![
            Aggregate {
                func: AggregateFn::Count,
                column: None,
            },
            Aggregate {
                func: AggregateFn::Last,
                column: Some((T, Kind::Str)),
            },
        ],
        sample: Some(SampleBy {
            interval: Interval::Ms(70),
            fill: None,
        }),
        by_entity: true,
    };
    for after in [Step::Freeze, Step::Flush, Step::Reopen] {
        assert_eq!(scan(&world.table, &all), world.model.scan(&all));
        assert_eq!(
            aggregate(&world.table, &count),
            world.model.aggregate(&count)
        );
        world.step(&after);
    }
    assert_eq!(scan(&world.table, &all), world.model.scan(&all));
}

/// Forty samples at one ts fill several blocks; others of that ts stand in memory and in a later segment.
#[test]
fn repeats_that_straddle_blocks_stay_in_order() {
    let mut world = World::new();
    let at = |ts: i64, n: i32| (0, ts, Some(f64::from(n)), None, None);
    let text = |ts: i64, t: &str| (0, ts, None, None, Some(t.to_string()));
    let mut rows: Vec<Row> = (0..40).map(|n| at(7, n)).collect();
    rows.extend([at(6, 100), at(8, 101), text(7, "x")]);
    world.step(&Step::Apply(rows));
    world.step(&Step::Flush);
    world.step(&Step::Apply(vec![at(7, 200), text(7, "y")]));
    world.step(&Step::Flush);
    world.step(&Step::Apply(vec![at(7, 300), text(8, "z")]));
    let q = everything(vec![
        read(A, Fill::None),
        read(T, Fill::Hold { staleness_ms: None }),
    ]);
    for after in [Step::Merge, Step::Flush, Step::Merge] {
        let got = scan(&world.table, &q);
        assert_eq!(got.len(), 44);
        assert_eq!(got, world.model.scan(&q));
        world.step(&after);
    }
    assert_eq!(scan(&world.table, &q), world.model.scan(&q));
}
