//! The stream store on one shard: ingest into the memtable, the queries that users feel, from memory and
//! from segments, flush, merge, and the memory of an entity. Plain timing over the test world's files;
//! prints a line per figure. With `--test` it runs on little data, so that it cannot rot.
#![allow(clippy::disallowed_methods)] // a benchmark reads the real clock

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use strandline_core::ids::{ColumnId, Lsn, TableId};
use strandline_core::limits::Limits;
use strandline_core::routing::hash64;
use strandline_core::scan::{
    Aggregate, AggregateFn, ChannelRead, CmpOp, Entities, LatestScan, Predicate, Quantile,
    RowFilter, SampleBy, StreamAggregate, StreamScan, TsRange,
};
use strandline_core::schema::{ColumnDef, Family, Fill, Label, TableDef};
use strandline_core::stream::batch::{StreamBatch, StreamBatchBuilder};
use strandline_core::stream::wire;
use strandline_core::time::Interval;
use strandline_core::value::{Kind, Value};
use strandline_shard::segment::BlockCache;
use strandline_shard::store::{Collect, StoreContext};
use strandline_shard::stream::StreamTable;
use strandline_shard::testing::{block_on, env};

const METRICS: u32 = 10;
const STEP_MS: i64 = 10_000;
const START: i64 = 1_767_225_600_000;

fn metric(n: u32) -> ColumnId {
    ColumnId(64 + n)
}

fn def() -> TableDef {
    TableDef {
        id: TableId(1),
        name: "cpu".into(),
        family: Family::Timeseries,
        columns: (0..METRICS)
            .map(|n| ColumnDef {
                id: metric(n),
                name: format!("m{n}"),
                label: Label::Double,
                fill: Fill::None,
                declared: true,
            })
            .collect(),
        entity_uuid: false,
        options: Default::default(),
        next_column: metric(METRICS),
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn host(n: usize) -> String {
    format!("host_{n}")
}

/// Every host every 10 s, whole numbers that walk, 1,000 rows a batch.
fn batches(hosts: usize, from_step: i64, steps: i64, random: &mut Random) -> Vec<StreamBatch> {
    let mut values = vec![50.0f64; hosts * METRICS as usize];
    let mut b = StreamBatchBuilder::default();
    let mut out = Vec::new();
    let names: Vec<(String, u64)> = (0..hosts)
        .map(|h| (host(h), hash64(host(h).as_bytes())))
        .collect();
    for step in from_step..from_step + steps {
        for (h, (name, hash)) in names.iter().enumerate() {
            b.begin_row(name, *hash, START + step * STEP_MS);
            for m in 0..METRICS {
                let v = &mut values[h * METRICS as usize + m as usize];
                *v = (*v + (random.next() % 3) as f64 - 1.0).clamp(0.0, 100.0);
                let slot = b.slot(metric(m), Kind::F64);
                b.push_f64(slot, *v);
            }
            if b.rows() == 1000 {
                out.push(b.finish());
            }
        }
    }
    if b.rows() > 0 {
        out.push(b.finish());
    }
    out
}

fn table(dir: &tempfile::TempDir) -> StreamTable {
    let env = env(dir.path());
    block_on(env.disk.create_dir_all("seg")).unwrap();
    let cx = StoreContext {
        dir: "seg".into(),
        limits: Arc::new(Limits::default()),
        next_segment: Rc::new(Cell::new(1)),
        cache: BlockCache::new(512 << 20),
    };
    StreamTable::new(env, Arc::new(def()), cx)
}

fn time<T>(what: &str, times: usize, mut f: impl FnMut() -> T) -> T {
    let start = Instant::now();
    let mut out = f();
    let first = start.elapsed();
    let mut best = first;
    for _ in 1..times {
        let start = Instant::now();
        out = f();
        best = best.min(start.elapsed());
    }
    println!(
        "{what:<52} first {:>9.3} ms   best {:>9.3} ms",
        first.as_secs_f64() * 1e3,
        best.as_secs_f64() * 1e3
    );
    out
}

fn avg(func: AggregateFn, n: u32) -> Vec<Aggregate> {
    vec![Aggregate {
        func,
        column: Some((metric(n), Kind::F64)),
    }]
}

fn queries(t: &StreamTable, hosts: usize, steps: i64, state: &str) {
    let table = TableId(1);
    let limits = Limits::default();
    let end = START + steps * STEP_MS;
    let run = |q: &StreamAggregate| {
        let part = block_on(t.aggregate(q)).unwrap();
        part.finish(q, &limits).unwrap().rows
    };
    let a = StreamAggregate {
        filter: None,
        floor: i64::MIN,
        table,
        entities: Entities::In(vec![host(hosts / 2)]),
        range: TsRange {
            from: end - 2 * 3_600_000 - 7_000,
            to: end - 3_600_000 - 7_000,
        },
        aggregates: avg(AggregateFn::Max, 3),
        sample: Some(SampleBy {
            interval: Interval::Ms(60_000),
            fill: None,
        }),
        by_entity: false,
    };
    time(
        &format!("{state}: a, one host, 1 h, max per minute"),
        20,
        || run(&a),
    );
    let b = StreamAggregate {
        floor: i64::MIN,
        entities: Entities::All,
        range: TsRange {
            from: START,
            to: end,
        },
        aggregates: avg(AggregateFn::Avg, 4),
        sample: Some(SampleBy {
            interval: Interval::Ms(3_600_000),
            fill: None,
        }),
        by_entity: true,
        ..a.clone()
    };
    time(
        &format!("{state}: b, all hosts, avg per hour by host"),
        10,
        || run(&b),
    );
    let read = |n| ChannelRead {
        column: metric(n),
        kind: Kind::F64,
        fill: Fill::None,
    };
    let c = LatestScan {
        floor: i64::MIN,
        table,
        entities: Entities::All,
        until: i64::MAX,
        from: i64::MIN,
        channels: (0..METRICS).map(read).collect(),
    };
    time(
        &format!("{state}: c, latest of all hosts, 10 channels"),
        20,
        || {
            block_on(t.latest(&c, &mut Collect::default())).unwrap();
        },
    );
    let d = StreamAggregate {
        floor: i64::MIN,
        range: TsRange::ALL,
        aggregates: avg(AggregateFn::Avg, 5),
        sample: None,
        by_entity: false,
        ..b.clone()
    };
    time(
        &format!("{state}: d, avg of one metric over all"),
        10,
        || run(&d),
    );
    let where_ = |n, op, k| {
        Some(RowFilter {
            channels: vec![(metric(n), Kind::F64)],
            predicate: Predicate::Compare {
                channel: 0,
                op,
                value: Value::F64(k),
            },
        })
    };
    let other = StreamAggregate {
        filter: where_(6, CmpOp::Gt, 50.0),
        ..d.clone()
    };
    time(&format!("{state}: d where another metric > 50"), 10, || {
        run(&other)
    });
    let all_pass = StreamAggregate {
        filter: where_(6, CmpOp::Ge, 0.0),
        ..d.clone()
    };
    time(
        &format!("{state}: d where statistics say all rows pass"),
        10,
        || run(&all_pass),
    );
    let own = StreamAggregate {
        filter: where_(5, CmpOp::Gt, 50.0),
        ..d.clone()
    };
    time(&format!("{state}: d where it is > 50 itself"), 10, || {
        run(&own)
    });
    let b_where = StreamAggregate {
        filter: where_(6, CmpOp::Gt, 50.0),
        ..b.clone()
    };
    time(&format!("{state}: b where another metric > 50"), 10, || {
        run(&b_where)
    });
    for (what, func) in [
        ("stddev", AggregateFn::StddevSamp),
        ("median", AggregateFn::Percentile(Quantile::HALF)),
        (
            "approx_percentile_cont",
            AggregateFn::ApproxPercentile(Quantile::HALF),
        ),
    ] {
        let q = StreamAggregate {
            aggregates: avg(func, 5),
            ..d.clone()
        };
        time(&format!("{state}: {what} of one metric"), 5, || run(&q));
    }
    let count = StreamAggregate {
        floor: i64::MIN,
        aggregates: vec![Aggregate {
            func: AggregateFn::Count,
            column: None,
        }],
        ..d.clone()
    };
    time(&format!("{state}: count(*)"), 10, || run(&count));
    let by_host = StreamAggregate {
        by_entity: true,
        ..count
    };
    time(&format!("{state}: count(*) by host"), 10, || run(&by_host));
    let scan = StreamScan {
        floor: i64::MIN,
        table,
        entities: Entities::In(vec![host(1)]),
        range: TsRange {
            from: end - 600_000,
            to: end,
        },
        channels: (0..METRICS)
            .map(|n| ChannelRead {
                fill: Fill::Hold { staleness_ms: None },
                ..read(n)
            })
            .collect(),
        output: METRICS as usize,
        filled: true,
        predicate: None,
        limit: None,
    };
    time(
        &format!("{state}: scan, one host, 10 min, 10 channels"),
        20,
        || {
            block_on(t.scan(&scan, &mut Collect::default())).unwrap();
        },
    );
    let all = StreamScan {
        floor: i64::MIN,
        entities: Entities::All,
        range: TsRange::ALL,
        ..scan
    };
    time(
        &format!("{state}: scan of everything, 10 channels"),
        2,
        || {
            block_on(t.scan(&all, &mut Collect::default())).unwrap();
        },
    );
}

fn flush(t: &StreamTable) {
    block_on(async {
        t.freeze();
        while let Some(done) = t.flush().await.unwrap() {
            t.install_flush(done);
        }
    });
}

fn main() {
    let small = std::env::args().any(|a| a == "--test");
    let (hosts, steps, entities) = if small {
        (10, 400, 5_000)
    } else {
        (100, 8640, 1_000_000)
    };
    let parts = 4;
    let mut random = Random(0x5EED);
    let dir = tempfile::tempdir().unwrap();
    let t = table(&dir);
    let mut lsn = 0;
    for part in 0..parts {
        let each = steps / parts;
        let data = batches(hosts, part * each, each, &mut random);
        let rows: usize = data.iter().map(StreamBatch::rows).sum();
        let mut log = Vec::new();
        let start = Instant::now();
        for b in &data {
            log.clear();
            wire::encode_batch(b, &mut log);
        }
        let encode = start.elapsed();
        let start = Instant::now();
        for b in &data {
            lsn += 1;
            t.apply(b, Lsn(lsn));
        }
        let apply = start.elapsed();
        let per = |d: std::time::Duration| rows as f64 / d.as_secs_f64() / 1e6;
        println!(
            "{rows} rows of 10: log encode {:.2} M rows/s ({} bytes/row), apply {:.2} M rows/s",
            per(encode),
            log.len() / data[data.len() - 1].rows(),
            per(apply)
        );
    }
    let used = t.memory_bytes();
    println!(
        "memtable {} bytes/row, tails {} bytes",
        used.active / t.rows() as usize,
        used.tails
    );
    queries(&t, hosts, steps, "memory");
    let start = Instant::now();
    flush(&t);
    let rate = t.rows() as f64 / start.elapsed().as_secs_f64() / 1e6;
    let bytes: u64 = t.segments().iter().map(|s| s.bytes()).sum();
    println!(
        "flush {rate:.2} M rows/s, {:.2} bytes/value",
        bytes as f64 / (t.rows() as f64 * f64::from(METRICS))
    );
    queries(&t, hosts, steps, "segment");

    let dir = tempfile::tempdir().unwrap();
    let t = table(&dir);
    for part in 0..parts {
        let each = steps / parts;
        for b in batches(hosts, part * each, each, &mut random) {
            lsn += 1;
            t.apply(&b, Lsn(lsn));
        }
        flush(&t);
    }
    queries(&t, hosts, steps, "4 segments");
    let start = Instant::now();
    let job = t.pick_merge().expect("four segments of like size");
    let done = block_on(t.merge(&job)).unwrap();
    t.install_merge(done);
    let rate = t.rows() as f64 / start.elapsed().as_secs_f64() / 1e6;
    let bytes: u64 = t.segments().iter().map(|s| s.bytes()).sum();
    println!(
        "merge {rate:.2} M rows/s, {:.2} bytes/value",
        bytes as f64 / (t.rows() as f64 * f64::from(METRICS))
    );
    queries(&t, hosts, steps, "merged");

    let dir = tempfile::tempdir().unwrap();
    let t = table(&dir);
    let mut b = StreamBatchBuilder::default();
    let start = Instant::now();
    for n in 0..entities {
        let name = format!(
            "device-{:012x}",
            (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16
        );
        b.begin_row(&name, hash64(name.as_bytes()), START + n as i64);
        let slot = b.slot(metric(0), Kind::F64);
        b.push_f64(slot, n as f64);
        if b.rows() == 1000 || n + 1 == entities {
            lsn += 1;
            t.apply(&b.finish(), Lsn(lsn));
        }
    }
    println!(
        "{entities} entities: built and applied in {:.2} s, {} bytes each in dictionary and tails, {} in the memtable",
        start.elapsed().as_secs_f64(),
        t.memory_bytes().tails / entities,
        t.memory_bytes().active / entities
    );
    let start = Instant::now();
    flush(&t);
    println!("flush of them {:.2} s", start.elapsed().as_secs_f64());
    let q = StreamAggregate {
        filter: None,
        floor: i64::MIN,
        table: TableId(1),
        entities: Entities::All,
        range: TsRange::ALL,
        aggregates: vec![Aggregate {
            func: AggregateFn::Count,
            column: None,
        }],
        sample: None,
        by_entity: false,
    };
    time("count(*) over entities of one sample", 3, || {
        block_on(t.aggregate(&q)).unwrap().groups()
    });
    let segments = t.segments();
    let fresh = table(&dir);
    let start = Instant::now();
    block_on(fresh.open_segments(segments)).unwrap();
    println!(
        "tails of them rebuilt in {:.2} s",
        start.elapsed().as_secs_f64()
    );
    assert_eq!(fresh.entities(), entities);
}
