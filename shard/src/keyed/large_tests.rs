//! Texts that are long against what a block and a batch may hold: blocks and batches are cut by their bytes,
//! and every read answers what was written.

use super::*;
use crate::segment::BlockCache;
use crate::store::{BATCH_BYTES, Collect};
use crate::testing::{block_on, env};
use std::path::Path;
use strandline_core::error::SqlState;
use strandline_core::format::block::BlockData;
use strandline_core::ids::TableId;
use strandline_core::keyed::ScanLayout;
use strandline_core::limits::Limits;
use strandline_core::scan::{FeedRange, KeyedColumn, KeyedOrder};
use strandline_core::schema::{ColumnDef, Family, Fill, Label};
use strandline_core::value::{Batch, Cell as C, Kind, Value};
use strandline_core::xid::Xid;

const T: ColumnId = ColumnId(64);
const N: ColumnId = ColumnId(65);

fn def() -> Arc<TableDef> {
    let column = |id, name: &str, label| ColumnDef {
        id,
        name: name.into(),
        label,
        fill: Fill::None,
        declared: true,
    };
    Arc::new(TableDef {
        id: TableId(1),
        name: "t".into(),
        family: Family::Rows,
        columns: vec![column(T, "t", Label::TEXT), column(N, "n", Label::Int)],
        entity_uuid: false,
        options: Default::default(),
        next_column: ColumnId(66),
    })
}

fn table(dir: &Path, limits: &Limits) -> KeyedTable {
    let env = env(dir);
    block_on(env.disk.create_dir_all("seg")).unwrap();
    let cx = StoreContext {
        dir: "seg".into(),
        limits: Arc::new(limits.clone()),
        next_segment: Rc::new(Cell::new(1)),
        cache: BlockCache::new(1 << 20),
    };
    KeyedTable::new(env, def(), cx)
}

fn key(n: u64) -> Box<[u8]> {
    Box::new(Xid(0x0190_0000_0000_0000_0000_0000_0000_0000 + u128::from(n)).to_bytes())
}

fn version(n: u64, rev: u64, text: &str) -> Version {
    Version {
        key: key(n),
        rev: Rev(rev),
        deleted: false,
        first: n == rev,
        values: vec![(T, Value::str(text)), (N, Value::F64(n as f64))],
    }
}

fn put(table: &KeyedTable, version: Version) {
    let lsn = Lsn(version.rev.0);
    let version = Rc::new(version);
    table.stage(version.clone());
    table.apply(version, lsn);
}

fn flush(table: &KeyedTable, watermark: Rev) {
    table.freeze();
    while let Some(done) = block_on(table.flush(watermark)).unwrap() {
        table.install_flush(done);
    }
}

fn scan(order: Option<(KeyedColumn, bool)>, feed: bool, limit: Option<u64>) -> KeyedScan {
    KeyedScan {
        table: TableId(1),
        columns: vec![
            KeyedColumn::User(N, Kind::F64),
            KeyedColumn::User(T, Kind::Str),
        ],
        filter: None,
        feed: feed.then_some(FeedRange {
            after: Rev(0),
            after_given: false,
            until: Rev::MAX,
            deleted: None,
            watermark: Rev::MAX,
        }),
        order: order
            .map(|(column, descending)| KeyedOrder {
                column,
                descending,
                nulls_first: false,
            })
            .into_iter()
            .collect(),
        limit,
        offset: 0,
        count: false,
    }
}

/// What a scan answers; none of its batches holds more than it may.
fn answer(table: &KeyedTable, scan: &KeyedScan, longest: usize) -> Result<Vec<(u64, String)>> {
    let mut out = Collect::default();
    block_on(table.scan(scan, Rev::MAX, &def(), &mut out))?;
    let layout = ScanLayout::of(scan);
    let mut rows = Vec::new();
    for batch in out.batches {
        let all = batch.rows;
        let batch: Batch = layout.visible(batch, 0, all);
        let mut bytes = 0;
        for row in 0..batch.rows {
            let (C::F64(n), C::Str(text)) =
                (batch.columns[0].cell(row), batch.columns[1].cell(row))
            else {
                panic!("a cell is missing");
            };
            bytes += text.len();
            rows.push((n as u64, text.to_owned()));
        }
        assert!(bytes < BATCH_BYTES + longest, "a batch of {bytes} bytes");
    }
    Ok(rows)
}

/// Every way of reading answers what `rows` say, by number and x_rev.
fn check(table: &KeyedTable, rows: &BTreeMap<u64, (u64, String)>) {
    let longest = rows.values().map(|r| r.1.len()).max().unwrap_or(0);
    let all: Vec<(u64, String)> = rows.iter().map(|(&n, r)| (n, r.1.clone())).collect();
    let get = |scan| answer(table, &scan, longest).unwrap();
    assert!(get(scan(None, false, None)) == all, "by xid");
    assert!(get(scan(None, false, Some(7))) == all[..7], "some by xid");
    let mut by_rev: Vec<(u64, u64)> = rows.iter().map(|(&n, r)| (r.0, n)).collect();
    by_rev.sort_unstable();
    let by_rev: Vec<_> = by_rev
        .iter()
        .map(|(_, n)| (*n, rows[n].1.clone()))
        .collect();
    assert!(get(scan(None, true, None)) == by_rev, "the feed");
    let number = KeyedColumn::User(N, Kind::F64);
    let mut down = all.clone();
    down.reverse();
    let sorted = scan(Some((number, true)), false, None);
    assert!(get(sorted.clone()) == down, "sorted");
    let first = KeyedScan {
        limit: Some(5),
        ..sorted
    };
    assert!(get(first) == down[..5], "first of sorted");
    for n in rows.keys().step_by(7) {
        let found = block_on(table.newest(&key(*n))).unwrap().unwrap();
        assert_eq!(found.rev, Rev(rows[n].0));
        assert!(*found.value(T) == Value::str(rows[n].1.as_str()));
    }
}

fn check_blocks(table: &KeyedTable, limits: &Limits) {
    let mut alone = 0;
    for segment in table.segments() {
        for (n, meta) in segment.blocks(BY_KEY).iter().enumerate() {
            assert!(u64::from(meta.rows) <= limits.block_rows);
            let block = block_on(segment.read(BY_KEY, n, &[T])).unwrap();
            let bytes = block.get(T).map_or(0, |t| match &t.data {
                BlockData::Str(v) => v.bytes().len() as u64,
                other => panic!("{other:?}"),
            });
            if meta.rows > 1 {
                assert!(bytes <= limits.block_bytes, "block {n}: {bytes} bytes");
            } else {
                alone += u64::from(bytes > limits.block_bytes);
            }
        }
    }
    assert!(alone > 0, "no row had a block of its own for its length");
}

/// A text of 0 to 15 units, now and then of 90.
fn text(n: u64, unit: usize) -> String {
    let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let units = if mixed.is_multiple_of(19) {
        90
    } else {
        mixed % 16
    };
    let letter = char::from(b'a' + (mixed % 26) as u8);
    letter.to_string().repeat(units as usize * unit)
}

fn fill(
    table: &KeyedTable,
    unit: usize,
    watermark: impl Fn(u64) -> Rev,
) -> BTreeMap<u64, (u64, String)> {
    let mut rows = BTreeMap::new();
    let mut rev = 0;
    for part in 0..4 {
        for _ in 0..60 {
            rev += 1;
            // Now and then another version of a row that is there.
            let n = if rev % 5 == 0 { rev / 2 } else { rev };
            let n = if rows.contains_key(&n) { n } else { rev };
            put(table, version(n, rev, &text(rev, unit)));
            rows.insert(n, (rev, text(rev, unit)));
        }
        check(table, &rows);
        if part < 3 {
            flush(table, watermark(rev));
            check(table, &rows);
        }
    }
    rows
}

#[test]
fn blocks_are_cut_by_bytes_and_read_the_same() {
    for (block_rows, behind) in [(16, 0), (4096, 50)] {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits {
            block_rows,
            block_bytes: 640,
            merge_fan_in: 2,
            ..Limits::default()
        };
        let table = table(dir.path(), &limits);
        let watermark = |rev: u64| Rev(rev.saturating_sub(behind));
        let rows = fill(&table, 10, watermark);
        check_blocks(&table, &limits);
        flush(&table, watermark(240));
        while let Some(job) = table.pick_merge() {
            let done = block_on(table.merge(&job, watermark(240))).unwrap();
            table.install_merge(done);
            check(&table, &rows);
            check_blocks(&table, &limits);
        }
    }
}

/// Texts of 30 KiB on average.
#[test]
fn batches_are_cut_by_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits::default();
    let table = table(dir.path(), &limits);
    let rows = fill(&table, 4 << 10, Rev);
    check(&table, &rows);
}

#[test]
fn a_sort_with_a_limit_holds_what_it_answers() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        result_bytes: 4 << 20,
        ..Limits::default()
    };
    let table = table(dir.path(), &limits);
    let long = "x".repeat(100_000);
    for n in 1..=200 {
        put(&table, version(n, n, &long));
    }
    let by = |limit| scan(Some((KeyedColumn::User(N, Kind::F64), true)), false, limit);
    let first = answer(&table, &by(Some(10)), long.len()).unwrap();
    let numbers: Vec<u64> = first.iter().map(|r| r.0).collect();
    assert_eq!(numbers, (191..=200).rev().collect::<Vec<u64>>());
    for limit in [None, Some(100)] {
        let e = answer(&table, &by(limit), long.len()).unwrap_err();
        assert_eq!(e.state(), SqlState::ProgramLimitExceeded);
        assert!(e.message().contains("result_bytes"), "{e}");
    }
}

/// All versions of a key are looked at together when a memtable is flushed; they are not copied for it.
#[test]
fn many_versions_of_one_row() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        block_bytes: 1000,
        ..Limits::default()
    };
    let table = table(dir.path(), &limits);
    for rev in 1..=50 {
        put(&table, version(1, rev, &rev.to_string().repeat(150)));
    }
    // Every version may still be asked for.
    flush(&table, Rev(0));
    let blocks: Vec<u32> = (table.segments()[0].blocks(BY_KEY).iter())
        .map(|b| b.rows)
        .collect();
    assert_eq!(blocks.iter().sum::<u32>(), 50);
    assert!(blocks.len() >= 15, "{blocks:?}");
    for rev in [1, 2, 25, 49, 50] {
        let found = block_on(table.snapshot().newest(&key(1), Rev(rev)))
            .unwrap()
            .unwrap();
        assert_eq!((found.rev, found.first), (Rev(rev), rev == 1));
        assert!(*found.value(T) == Value::str(rev.to_string().repeat(150)));
    }
}
