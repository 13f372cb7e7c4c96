//! Texts that are long against what a block and a batch may hold: blocks and batches are cut by their bytes,
//! and every read answers what was written.

use super::*;
use crate::segment::BlockCache;
use crate::store::{BATCH_BYTES, Collect};
use crate::testing::{block_on, env};
use std::path::Path;
use strandline_core::format::block::BlockMeta;
use strandline_core::ids::TableId;
use strandline_core::limits::Limits;
use strandline_core::scan::{
    Aggregate, AggregateFn, ChannelRead, LatestScan, StreamAggregate, StreamScan,
};
use strandline_core::schema::{ColumnDef, Family, Fill, Label};
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::stream::tails::TAIL_TEXT_BYTES;
use strandline_core::value::Batch;

const T: ColumnId = ColumnId(64);
const N: ColumnId = ColumnId(65);

/// Entity, ts, text, number.
type Row = (String, i64, Option<String>, Option<f64>);

fn def() -> Arc<TableDef> {
    let column = |id: ColumnId, label| ColumnDef {
        id,
        name: format!("c{id}"),
        label,
        fill: Fill::Hold { staleness_ms: None },
        declared: true,
    };
    Arc::new(TableDef {
        id: TableId(3),
        name: "t".into(),
        family: Family::Timeseries,
        columns: vec![column(T, Label::TEXT), column(N, Label::Double)],
        entity_uuid: false,
        options: Default::default(),
        next_column: ColumnId(66),
    })
}

fn context(limits: Limits, first_segment: u64) -> StoreContext {
    StoreContext {
        dir: "seg".into(),
        limits: Arc::new(limits),
        next_segment: Rc::new(std::cell::Cell::new(first_segment)),
        cache: BlockCache::new(1 << 20),
    }
}

fn table(dir: &Path, limits: Limits) -> StreamTable {
    let env = env(dir);
    block_on(env.disk.create_dir_all("seg")).unwrap();
    StreamTable::new(env, def(), context(limits, 1))
}

fn batch(rows: &[Row]) -> StreamBatch {
    let mut builder = StreamBatchBuilder::default();
    for (entity, ts, text, number) in rows {
        builder.begin_row(entity, hash64(entity.as_bytes()), *ts);
        if let Some(text) = text {
            let slot = builder.slot(T, Kind::Str);
            builder.push_str(slot, text);
        }
        if let Some(x) = number {
            let slot = builder.slot(N, Kind::F64);
            builder.push_f64(slot, *x);
        }
    }
    builder.finish()
}

fn read(column: ColumnId, kind: Kind, fill: Fill) -> ChannelRead {
    ChannelRead { column, kind, fill }
}

fn channels(fill: Fill) -> Vec<ChannelRead> {
    vec![read(T, Kind::Str, fill), read(N, Kind::F64, fill)]
}

/// Rows of batches, none of which holds more than it may.
fn rows_of(batches: &[Batch], longest: usize) -> Vec<Row> {
    let mut out = Vec::new();
    for b in batches {
        let start = out.len();
        for row in 0..b.rows {
            let (Cell::Str(entity), Cell::I64(ts)) =
                (b.columns[0].cell(row), b.columns[1].cell(row))
            else {
                panic!("no key");
            };
            let text = match b.columns[2].cell(row) {
                Cell::Str(s) => Some(s.to_owned()),
                _ => None,
            };
            let number = match b.columns[3].cell(row) {
                Cell::F64(x) => Some(x),
                _ => None,
            };
            out.push((entity.to_owned(), ts, text, number));
        }
        let bytes: usize = out[start..].iter().map(|r| text_of(r) + r.0.len()).sum();
        assert!(
            bytes < BATCH_BYTES + longest + 100,
            "a batch of {bytes} bytes"
        );
    }
    out
}

fn text_of(row: &Row) -> usize {
    row.2.as_ref().map_or(0, String::len)
}

fn scan(table: &StreamTable, entities: Entities, filled: bool) -> Vec<Batch> {
    let scan = StreamScan {
        floor: i64::MIN,
        table: TableId(3),
        entities,
        range: TsRange::ALL,
        channels: channels(if filled {
            Fill::Hold { staleness_ms: None }
        } else {
            Fill::None
        }),
        output: 2,
        filled,
        predicate: None,
        limit: None,
    };
    let mut out = Collect::default();
    block_on(table.scan(&scan, &mut out)).unwrap();
    out.batches
}

fn latest(table: &StreamTable, from: i64) -> Vec<Batch> {
    let scan = LatestScan {
        floor: i64::MIN,
        table: TableId(3),
        entities: Entities::All,
        from,
        until: i64::MAX,
        channels: channels(Fill::None),
    };
    let mut out = Collect::default();
    block_on(table.latest(&scan, &mut out)).unwrap();
    out.batches
}

fn flush(table: &StreamTable) {
    table.freeze();
    while let Some(done) = block_on(table.flush()).unwrap() {
        table.install_flush(done);
    }
}

/// Every way of reading answers what `rows` say; they are unique by (entity, ts).
fn check(table: &StreamTable, rows: &[Row]) {
    let longest = rows.iter().map(text_of).max().unwrap_or(0);
    let mut sorted = rows.to_vec();
    sorted.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    assert!(rows_of(&scan(table, Entities::All, false), longest) == sorted);
    let mut entities: Vec<String> = sorted.iter().map(|r| r.0.clone()).collect();
    entities.dedup();
    for name in entities.iter().step_by(3) {
        let want: Vec<Row> = sorted.iter().filter(|r| r.0 == *name).cloned().collect();
        let got = scan(table, Entities::In(vec![name.clone()]), false);
        assert!(rows_of(&got, longest) == want, "{name}");
    }
    let mut held = sorted.clone();
    for i in 1..held.len() {
        if held[i - 1].0 == held[i].0 {
            let before = held[i - 1].clone();
            held[i].2 = held[i].2.take().or(before.2);
            held[i].3 = held[i].3.or(before.3);
        }
    }
    assert!(rows_of(&scan(table, Entities::All, true), longest) == held);
    // The shadow: of each entity the last of the rows that are filled, which is its last row here.
    let last_of = |from: i64| -> Vec<Row> {
        let mut out: Vec<Row> = Vec::new();
        for row in sorted.iter().filter(|r| r.1 >= from) {
            match out.last_mut().filter(|o| o.0 == row.0) {
                Some(o) => {
                    o.1 = row.1;
                    o.2 = row.2.clone().or(o.2.take());
                    o.3 = row.3.or(o.3);
                }
                None => out.push(row.clone()),
            }
        }
        out
    };
    for from in [i64::MIN, 5] {
        let mut got = rows_of(&latest(table, from), longest);
        got.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(got == last_of(from), "the shadow from {from}");
    }
    let query = StreamAggregate {
        filter: None,
        floor: i64::MIN,
        table: TableId(3),
        entities: Entities::All,
        range: TsRange::ALL,
        by_entity: false,
        sample: None,
        aggregates: vec![
            Aggregate {
                func: AggregateFn::Count,
                column: None,
            },
            Aggregate {
                func: AggregateFn::Max,
                column: Some((T, Kind::Str)),
            },
        ],
    };
    let limits = &table.cx.limits;
    let answer = block_on(table.aggregate(&query)).unwrap();
    let answer = answer.finish(&query, limits).unwrap();
    assert_eq!(answer.columns[0].cell(0), Cell::I64(rows.len() as i64));
    let max = rows.iter().filter_map(|r| r.2.as_deref()).max();
    assert!(answer.columns[1].cell(0) == max.map_or(Cell::Null, Cell::Str));
}

fn reopened(table: &StreamTable, limits: Limits) -> StreamTable {
    let env = table.env.clone();
    let fresh = StreamTable::new(
        env.clone(),
        def(),
        context(limits, table.cx.next_segment.get()),
    );
    block_on(async {
        let mut segments = Vec::new();
        for s in table.segments() {
            let cache = fresh.cx.cache.clone();
            segments.push(Segment::open(&env, "seg", s.id(), cache).await.unwrap());
        }
        fresh.open_segments(segments).await.unwrap();
    });
    fresh
}

/// Blocks of several rows, and their text by what a scan of the whole says of it in the same order.
fn check_blocks(segment: &Segment, limits: &Limits) {
    let mut alone = 0;
    for (n, meta) in segment.blocks(0).iter().enumerate() {
        assert!(u64::from(meta.rows) <= limits.block_rows);
        let columns = [T, ColumnId::ENTITY];
        let block = block_on(segment.read(0, n, &columns)).unwrap();
        let texts = block.get(T).map_or(0, |t| match &t.data {
            strandline_core::format::block::BlockData::Str(v) => v.bytes().len(),
            other => panic!("{other:?}"),
        });
        if meta.rows > 1 {
            assert!(
                texts as u64 <= limits.block_bytes,
                "block {n}: {texts} bytes"
            );
        } else {
            alone += usize::from(texts as u64 > limits.block_bytes);
        }
    }
    assert!(alone > 0, "no row had a block of its own for its length");
    let rows = |b: &BlockMeta| u64::from(b.rows);
    assert_eq!(
        segment.blocks(0).iter().map(rows).sum::<u64>(),
        segment.info().rows
    );
}

/// Rows of some entities, with texts of 0 to 15 units, now and then one of 90.
fn rows(entities: usize, each: i64, unit: usize, seed: u64) -> Vec<Row> {
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    let mut rows = Vec::new();
    for ts in 0..each {
        for e in 0..entities {
            let units = if random() % 23 == 0 {
                90
            } else {
                random() % 16
            };
            let letter = char::from(b'a' + (random() % 26) as u8);
            let text = letter.to_string().repeat(units as usize * unit);
            let text = (units > 0).then_some(text);
            let number = (text.is_none() || random() % 2 == 0).then_some(ts as f64);
            rows.push((format!("entity-{e}"), ts, text, number));
        }
    }
    rows
}

#[test]
fn blocks_are_cut_by_bytes_and_read_the_same() {
    for (entities, each, block_rows) in [(3, 60, 16), (40, 12, 64), (1, 200, 4096)] {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits {
            block_rows,
            block_bytes: 640,
            merge_fan_in: 2,
            ..Limits::default()
        };
        let table = table(dir.path(), limits.clone());
        let rows = rows(entities, each, 10, each as u64);
        let parts: Vec<&[Row]> = rows.chunks(rows.len() / 3 + 1).collect();
        for (n, part) in parts.iter().enumerate() {
            table.apply(&batch(part), Lsn(n as u64 + 1));
            check(&table, &parts[..=n].concat());
            flush(&table);
        }
        check(&table, &rows);
        table
            .segments()
            .iter()
            .for_each(|s| check_blocks(s, &limits));
        let fresh = reopened(&table, limits.clone());
        check(&fresh, &rows);
        while let Some(job) = fresh.pick_merge() {
            let done = block_on(fresh.merge(&job)).unwrap();
            fresh.install_merge(done);
            fresh
                .segments()
                .iter()
                .for_each(|s| check_blocks(s, &limits));
        }
        check(&fresh, &rows);
        check(&reopened(&fresh, limits), &rows);
    }
}

/// Texts of 30 KiB on average: batches and runs are cut, and the tails keep none of them.
#[test]
fn batches_are_cut_by_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path(), Limits::default());
    let rows = rows(60, 7, 4 << 10, 7);
    let mut short = 0;
    for (n, part) in rows.chunks(100).enumerate() {
        table.apply(&batch(part), Lsn(n as u64 + 1));
        short += part
            .iter()
            .map(text_of)
            .filter(|&n| n <= TAIL_TEXT_BYTES)
            .count();
    }
    check(&table, &rows);
    let tails = table.memory_bytes().tails;
    assert!(
        tails < short * TAIL_TEXT_BYTES + (1 << 20),
        "{tails} bytes of tails"
    );
    flush(&table);
    check(&table, &rows);
    let fresh = reopened(&table, Limits::default());
    check(&fresh, &rows);
    let tails = fresh.memory_bytes().tails;
    assert!(
        tails < short * TAIL_TEXT_BYTES + (1 << 20),
        "{tails} bytes of tails"
    );
}

#[test]
fn texts_of_buckets_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        result_bytes: 1 << 20,
        ..Limits::default()
    };
    let table = table(dir.path(), limits.clone());
    let rows: Vec<Row> = (0..80)
        .map(|i| (format!("e{i}"), i, Some("x".repeat(30_000)), None))
        .collect();
    table.apply(&batch(&rows), Lsn(1));
    let mut query = StreamAggregate {
        filter: None,
        floor: i64::MIN,
        table: TableId(3),
        entities: Entities::All,
        range: TsRange::ALL,
        by_entity: true,
        sample: None,
        aggregates: vec![Aggregate {
            func: AggregateFn::Last,
            column: Some((T, Kind::Str)),
        }],
    };
    let e = block_on(table.aggregate(&query)).unwrap_err();
    assert!(e.message().contains("result_bytes"), "{e}");
    // The parts of each shard fit; the answer does not.
    query.entities = Entities::In((0..6).map(|i| format!("e{i}")).collect());
    let part = block_on(table.aggregate(&query)).unwrap();
    let small = Limits {
        result_bytes: 100_000,
        ..Limits::default()
    };
    let e = part.clone().finish(&query, &small).unwrap_err();
    assert!(e.message().contains("result_bytes"), "{e}");
    assert_eq!(part.finish(&query, &limits).unwrap().rows, 6);
}
