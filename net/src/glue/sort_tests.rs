//! The sorter against a plain stable sort.

use super::*;
use crate::testing::FakeTasks;
use futures_lite::future::block_on;
use proptest::prelude::*;

type Row = (Option<i64>, Option<String>, i64);

fn batch(rows: &[Row]) -> Batch {
    let (mut a, mut b, mut c) = (
        ColumnBuilder::f64(),
        ColumnBuilder::str(),
        ColumnBuilder::i64(),
    );
    for (x, s, n) in rows {
        a.push(x.map_or(Cell::Null, |x| Cell::F64(x as f64)));
        b.push(s.as_deref().map_or(Cell::Null, Cell::Str));
        c.push(Cell::I64(*n));
    }
    Batch::new(vec![a.finish(), b.finish(), c.finish()])
}

fn sorted(
    batches: &[Vec<Row>],
    order: &[SortKey],
    keep: Option<u64>,
    limits: Limits,
) -> Result<Vec<i64>> {
    let tasks: Rc<dyn Tasks> = Rc::new(FakeTasks);
    block_on(async {
        let mut sorter = Sorter::new(order.to_vec(), keep, &Arc::new(limits), &tasks);
        for rows in batches {
            sorter.push(batch(rows)).await?;
        }
        sorter.finish();
        let mut out = vec![];
        while let Some(b) = sorter.next().await {
            assert!(b.rows > 0);
            for row in 0..b.rows {
                match b.columns[2].cell(row) {
                    Cell::I64(n) => out.push(n),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(sorter.next().await.is_none());
        Ok(out)
    })
}

fn model(batches: &[Vec<Row>], order: &[SortKey]) -> Vec<i64> {
    let mut all: Vec<Row> = batches.concat();
    all.sort_by(|a, b| {
        let mut result = Ordering::Equal;
        for key in order {
            let nulls = |a: bool, b: bool| match (a, b) {
                (true, false) if key.nulls_first => Ordering::Less,
                (true, false) => Ordering::Greater,
                (false, true) if key.nulls_first => Ordering::Greater,
                (false, true) => Ordering::Less,
                _ => Ordering::Equal,
            };
            let (n, o) = if key.column == 0 {
                (nulls(a.0.is_none(), b.0.is_none()), a.0.cmp(&b.0))
            } else {
                (nulls(a.1.is_none(), b.1.is_none()), a.1.cmp(&b.1))
            };
            let o = if key.descending { o.reverse() } else { o };
            result = result.then(if n.is_ne() { n } else { o });
        }
        result
    });
    all.iter().map(|r| r.2).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn as_a_stable_sort(
        shape in prop::collection::vec(0usize..3000, 0..12),
        seed in any::<u64>(),
        keys in prop::collection::vec((0usize..2, any::<bool>(), any::<bool>()), 1..3),
        keep in prop::option::of(0u64..3000),
    ) {
        let order: Vec<SortKey> = keys
            .iter()
            .map(|&(column, descending, nulls_first)| SortKey { column, descending, nulls_first })
            .collect();
        let mut state = seed | 1;
        let mut n = 0;
        let batches: Vec<Vec<Row>> = shape
            .iter()
            .map(|&rows| {
                (0..rows)
                    .map(|_| {
                        // xorshift64
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        n += 1;
                        let x = (state % 50) as i64;
                        let s = (state >> 20) % 20;
                        ((x > 5).then_some(x), (s > 2).then(|| format!("s{s}")), n)
                    })
                    .collect()
            })
            .collect();
        let mut expected = model(&batches, &order);
        if let Some(k) = keep {
            expected.truncate(k as usize);
        }
        prop_assert_eq!(sorted(&batches, &order, keep, Limits::default()).unwrap(), expected);
    }
}

#[test]
fn memory_is_bounded() {
    let order = [SortKey {
        column: 0,
        descending: false,
        nulls_first: false,
    }];
    let rows: Vec<Row> = (0..10_000).map(|n| (Some(-n), None, n)).collect();
    let batches: Vec<_> = (0..30).map(|_| rows.clone()).collect();
    let limits = Limits {
        result_bytes: 1 << 20,
        ..Limits::default()
    };
    let e = sorted(&batches, &order, None, limits.clone()).unwrap_err();
    assert_eq!(e.state(), SqlState::OutOfMemory);
    // With a LIMIT the same rows fit: only those that can be answered are held.
    let first = sorted(&batches, &order, Some(3), limits).unwrap();
    assert_eq!(first, [9999, 9999, 9999]);
}

#[test]
fn long_texts_are_bounded_by_their_bytes() {
    let order = [SortKey {
        column: 0,
        descending: true,
        nulls_first: false,
    }];
    let long = "x".repeat(200_000);
    let batches: Vec<Vec<Row>> = (0..100)
        .map(|n| vec![(Some(n), Some(long.clone()), n)])
        .collect();
    let limits = Limits {
        result_bytes: 4 << 20,
        ..Limits::default()
    };
    // 20 MB of rows, of which 2 MB can be answered.
    let first = sorted(&batches, &order, Some(10), limits.clone()).unwrap();
    assert_eq!(first, (90..100).rev().collect::<Vec<i64>>());
    for keep in [None, Some(50)] {
        let e = sorted(&batches, &order, keep, limits.clone()).unwrap_err();
        assert_eq!(e.state(), SqlState::OutOfMemory);
    }
    // What goes out at once is bounded as well.
    let tasks: Rc<dyn Tasks> = Rc::new(FakeTasks);
    block_on(async {
        let mut sorter = Sorter::new(order.to_vec(), None, &Arc::new(Limits::default()), &tasks);
        for rows in &batches {
            sorter.push(batch(rows)).await.unwrap();
        }
        sorter.finish();
        let mut rows = 0;
        while let Some(b) = sorter.next().await {
            assert!(b.rows <= OUT_BYTES / long.len() + 1, "{} rows", b.rows);
            rows += b.rows;
        }
        assert_eq!(rows, 100);
    });
}
