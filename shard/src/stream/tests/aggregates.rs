//! Aggregates of the store, and queries to compare with the reference's.

use super::*;
use strandline_core::like::LikePattern;
use strandline_core::scan::{Quantile, RowFilter};
use strandline_core::stream::bucket::PartialAggregates;

/// Equal, but for the rounding of sums in another order.
pub fn close(a: &[Answered], b: &[Answered]) -> bool {
    reference::same("", a, b).is_ok()
}

pub fn aggregate(t: &StreamTable, q: &StreamAggregate) -> Vec<Answered> {
    let part = block_on(t.aggregate(q)).unwrap();
    let mut all = PartialAggregates::default();
    all.merge(part);
    let b = all.finish(q, &limits()).unwrap();
    (0..b.rows)
        .map(|r| {
            let mut columns = b.columns.iter();
            let mut next = || value(columns.next().unwrap().cell(r));
            let entity = match q.by_entity.then(&mut next) {
                Some(Value::Str(s)) => s.to_string(),
                _ => String::new(),
            };
            let bucket = match q.sample.map(|_| next()) {
                Some(Value::F64(x)) => x as i64,
                _ => 0,
            };
            (
                entity,
                bucket,
                q.aggregates.iter().map(|_| next()).collect(),
            )
        })
        .collect()
}

fn predicates() -> impl Strategy<Value = Predicate> {
    let op = || {
        prop::sample::select(vec![
            CmpOp::Eq,
            CmpOp::Ne,
            CmpOp::Lt,
            CmpOp::Le,
            CmpOp::Gt,
            CmpOp::Ge,
        ])
    };
    let leaf = prop_oneof![
        4 => (0usize..2, op(), -5i32..50).prop_map(|(channel, op, k)| Predicate::Compare { channel, op, value: Value::F64(f64::from(k) / 2.0) }),
        1 => (op(), "[a-c]{0,2}").prop_map(|(op, k)| Predicate::Compare { channel: 2, op, value: Value::str(k) }),
        2 => (0usize..3, any::<bool>()).prop_map(|(channel, negated)| Predicate::IsNull { channel, negated }),
        1 => (0usize..2, prop::collection::btree_set(-5i32..50, 0..20)).prop_map(|(channel, v)| Predicate::In { channel, values: v.into_iter().map(|x| Value::F64(f64::from(x) / 2.0)).collect() }),
        1 => "[ab%_]{0,3}".prop_map(|p| Predicate::Like { channel: 2, pattern: LikePattern::new(&p, false, None).unwrap() }),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(Predicate::And),
            prop::collection::vec(inner.clone(), 1..3).prop_map(Predicate::Or),
            inner.prop_map(|p| Predicate::Not(Box::new(p))),
        ]
    })
}

prop_compose! {
    pub fn aggregates()(
        entities in entity_choice(), range in ranges(), by_entity in any::<bool>(), interval in prop::option::of(1i64..40),
        list in prop::collection::vec((0usize..14, 0usize..4), 1..5), share in 0.0f64..=1.0, descending in any::<bool>(),
        predicate in prop::option::weighted(0.7, predicates()),
    ) -> StreamAggregate {
        use AggregateFn as F;
        let q = Quantile::new(share, descending).unwrap();
        let all = [
            F::Count, F::Sum, F::Avg, F::Min, F::Max, F::First, F::Last, F::StddevSamp, F::StddevPop, F::VarSamp, F::VarPop,
            F::Percentile(q), F::ApproxPercentile(q), F::Percentile(Quantile::HALF),
        ];
        let of_numbers = |f: F| matches!(f, F::Sum | F::Avg | F::Percentile(_) | F::ApproxPercentile(_)) || f.is_moment();
        let aggregates = list.into_iter().map(|(f, c)| {
            let func = all[f];
            match c {
                3 => Aggregate { func: F::Count, column: None },
                2 if of_numbers(func) => Aggregate { func: F::Count, column: Some(CHANNELS[2]) },
                // Across entities the order of samples at one ts is open.
                c if !by_entity && matches!(func, F::First | F::Last) => Aggregate { func: F::Max, column: Some(CHANNELS[c]) },
                c => Aggregate { func, column: Some(CHANNELS[c]) },
            }
        }).collect();
        let sample = interval.map(|ms| SampleBy { interval: Interval::Ms(ms), fill: None });
        let filter = predicate.map(|predicate| RowFilter { channels: CHANNELS.to_vec(), predicate });
        StreamAggregate { floor: i64::MIN, table: TableId(3), entities, range, filter, aggregates, sample, by_entity }
    }
}

/// A block between the rows of a run, which another block makes go through the merge.
#[test]
fn a_block_between_rows_of_a_run_is_counted_once() {
    let mut world = World::new();
    let at = |e: u8, ts: i64| (e, ts, Some(1.0), None, None);
    let mut first: Vec<Row> = vec![at(2, 11)];
    first.extend((0..8).map(|n| at(1, 10 + n)));
    world.step(&Step::Apply(first));
    world.step(&Step::Flush);
    world.step(&Step::Apply(vec![at(1, 9), at(1, 12), at(2, 5), at(2, 40)]));
    let q = StreamAggregate {
        floor: i64::MIN,
        table: TableId(3),
        entities: Entities::All,
        range: TsRange::ALL,
        filter: None,
        aggregates: vec![Aggregate {
            func: AggregateFn::Count,
            column: None,
        }],
        sample: Some(SampleBy {
            interval: Interval::Ms(1),
            fill: None,
        }),
        by_entity: true,
    };
    assert_eq!(aggregate(&world.table, &q), world.model.aggregate(&q));
}
