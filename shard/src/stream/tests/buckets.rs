//! Rows of many days: flushes and merges that cut by time, blocks that are copied, samples that expire.

use super::*;
use crate::stream::pick::{Bucket, TOP_LEVEL};
use strandline_core::time::DAY_MS;

/// Rows whose times are a multiple of what [`rows`] makes, so that they touch many days.
fn spread(rows: &[Row], by: i64) -> Vec<Row> {
    let at = |r: &Row| (r.0, r.1 * by, r.2, r.3, r.4.clone());
    rows.iter().map(at).collect()
}

fn spread_range(range: TsRange, by: i64) -> TsRange {
    let end = |ts: i64| {
        if ts == i64::MIN || ts == i64::MAX {
            ts
        } else {
            ts * by
        }
    };
    TsRange {
        from: end(range.from),
        to: end(range.to),
    }
}

fn spread_fill(fill: Fill, by: i64) -> Fill {
    match fill {
        Fill::Hold { staleness_ms } => Fill::Hold {
            staleness_ms: staleness_ms.map(|s| s * by),
        },
        other => other,
    }
}

/// Every segment lies in a bucket, or cuts are still due; and in every bucket order of flushes is order of
/// arrival.
fn check_segments(t: &StreamTable) {
    let segments = t.segments();
    for (n, a) in segments.iter().enumerate() {
        let (fa, ra) = (a.info().flushes, a.info().range);
        for b in &segments[n + 1..] {
            let (fb, rb) = (b.info().flushes, b.info().range);
            let apart = ra.1 < rb.0 || rb.1 < ra.0 || fa.1 < fb.0;
            // Two of one mixed flush hold rows of different buckets.
            let cut = Bucket::of(ra, TOP_LEVEL).is_none() || Bucket::of(rb, TOP_LEVEL).is_none();
            assert!(apart || cut, "{a:?} and {b:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn reads_over_many_days_agree_with_the_model(
        steps in steps(), by in prop_oneof![Just(DAY_MS / 3), Just(DAY_MS), Just(20 * DAY_MS), Just(300 * DAY_MS)],
        scans in prop::collection::vec(scans(), 6), latests in prop::collection::vec(latests(), 4), settle in any::<bool>(),
    ) {
        let mut world = World::new();
        for step in &steps {
            match step {
                Step::Apply(rows) => world.step(&Step::Apply(spread(rows, by))),
                other => world.step(other),
            }
            check_segments(&world.table);
        }
        while settle && world.table.pick_merge().is_some() {
            world.step(&Step::Merge);
            check_segments(&world.table);
        }
        for q in &scans {
            let mut q = q.clone();
            q.range = spread_range(q.range, by);
            q.channels.iter_mut().for_each(|c| c.fill = spread_fill(c.fill, by));
            let mut got = scan(&world.table, &q);
            if q.limit.is_none() {
                got.sort_by(|a, b| a.0.cmp(&b.0));
            }
            prop_assert_eq!(got, world.model.scan(&q), "{:?}", q);
        }
        for q in &latests {
            let range = spread_range(TsRange { from: q.from, to: q.until }, by);
            let mut q = LatestScan { from: range.from, until: range.to, ..q.clone() };
            q.channels.iter_mut().for_each(|c| c.fill = spread_fill(c.fill, by));
            prop_assert_eq!(latest(&world.table, &q), world.model.latest(&q), "{:?}", q);
        }
    }
}

fn flush(world: &mut World, rows: Vec<Row>) {
    world.step(&Step::Apply(rows));
    world.step(&Step::Flush);
}

fn ranges_of(t: &StreamTable) -> Vec<(i64, i64)> {
    t.segments().iter().map(|s| s.info().range).collect()
}

#[test]
fn a_flush_is_cut_at_midnight() {
    let mut world = World::new();
    let day = |d: i64, ms: i64| (0, d * DAY_MS + ms, Some(1.0), None, None);
    flush(
        &mut world,
        vec![day(10, 0), day(10, DAY_MS - 1), day(11, 0), day(13, 5)],
    );
    let at = |d: i64, ms: i64| d * DAY_MS + ms;
    assert_eq!(
        ranges_of(&world.table),
        [
            (at(10, 0), at(10, DAY_MS - 1)),
            (at(11, 0), at(11, 0)),
            (at(13, 5), at(13, 5))
        ]
    );
    // All days of two months: no more than eight segments.
    flush(&mut world, (100..160).map(|d| day(d, 0)).collect());
    assert!(world.table.segments().len() <= 3 + 8);
    assert!(
        ranges_of(&world.table)
            .iter()
            .all(|r| Bucket::of(*r, TOP_LEVEL).is_some())
    );
}

/// Rows of two entities in order, in flushes that are merged: what was merged once and overlaps nothing is
/// not encoded again.
#[test]
fn blocks_that_nothing_overlaps_are_copied() {
    let mut world = World::new();
    let rows = |from: i64, n: i64| -> Vec<Row> {
        let of = |e: u8| (from..from + n).map(move |i| (e, i, Some(i as f64), None, None));
        of(0).chain(of(1)).collect()
    };
    let merge = |world: &mut World| {
        block_on(async {
            let job = world.table.pick_merge().expect("two of like size");
            let done = world.table.merge(&job).await.unwrap();
            let blocks = done.blocks;
            world.table.install_merge(done);
            blocks
        })
    };
    // Blocks have 16 rows: each flush has four of each entity, the first merge makes eight of each.
    for n in 0..4 {
        flush(&mut world, rows(n * 64, 64));
        if n % 2 == 1 {
            assert_eq!(merge(&mut world), (16, 0));
        }
    }
    assert_eq!(merge(&mut world), (0, 32));
    let count = |world: &World| scan(&world.table, &everything(vec![read(A, Fill::None)])).len();
    assert_eq!(count(&world), 512);
    // A late row of one entity: the block it falls into is encoded anew, and no other.
    for _ in 0..2 {
        flush(&mut world, vec![(0, 100, None, Some(1.0), None)]);
    }
    assert_eq!(merge(&mut world).1, 0);
    flush(&mut world, vec![(0, 101, None, Some(1.0), None)]);
    assert_eq!(merge(&mut world).1, 0);
    let (encoded, copied) = merge(&mut world);
    assert_eq!((encoded, copied), (2, 31), "the block and its rest");
    assert_eq!(count(&world), 512);
    let mut q = everything(vec![read(A, Fill::None), read(B, Fill::None)]);
    q.range = TsRange { from: 100, to: 101 };
    q.entities = Entities::In(vec![entity_name(0)]);
    let got = scan(&world.table, &q);
    let cells: Vec<&Vec<Value>> = got.iter().map(|r| &r.2).collect();
    let (a, one) = (|x: f64| Value::F64(x), Value::F64(1.0));
    assert_eq!(
        cells,
        [
            &vec![a(100.0), one.clone()],
            &vec![Value::Null, one.clone()],
            &vec![a(101.0), one]
        ]
    );
}
