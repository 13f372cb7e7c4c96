//! Selections against the condition asked of every row on its own.

use super::*;
use crate::format::block::{Bitmap, ChunkMeta, ChunkStats, Presence};
use crate::format::decoded::DecodedColumn;
use crate::ids::ColumnId;
use crate::like::LikePattern;
use crate::stream::fill::evaluate;
use crate::value::{Cell, Kind, StrVec};
use proptest::prelude::*;

const CHANNELS: [(ColumnId, Kind); 3] = [
    (ColumnId(64), Kind::F64),
    (ColumnId(65), Kind::F64),
    (ColumnId(66), Kind::Str),
];

type Row = (Option<f64>, Option<f64>, Option<String>);

fn predicates() -> impl Strategy<Value = Predicate> {
    let op = prop::sample::select(vec![
        CmpOp::Eq,
        CmpOp::Ne,
        CmpOp::Lt,
        CmpOp::Le,
        CmpOp::Gt,
        CmpOp::Ge,
    ]);
    let leaf = prop_oneof![
        4 => (0usize..2, op.clone(), 0i32..6).prop_map(|(channel, op, k)| Predicate::Compare { channel, op, value: Value::F64(f64::from(k)) }),
        2 => (op, "[ab]{0,2}").prop_map(|(op, k)| Predicate::Compare { channel: 2, op, value: Value::str(k) }),
        1 => (0usize..3, any::<bool>()).prop_map(|(channel, negated)| Predicate::IsNull { channel, negated }),
        1 => (0usize..2, prop::collection::btree_set(0i32..6, 0..4)).prop_map(|(channel, v)| Predicate::In { channel, values: v.into_iter().map(|x| Value::F64(f64::from(x))).collect() }),
        1 => prop::collection::btree_set("[ab]{0,2}", 0..4).prop_map(|v| Predicate::In { channel: 2, values: v.into_iter().map(Value::str).collect() }),
        1 => "[ab%_]{0,3}".prop_map(|p| Predicate::Like { channel: 2, pattern: LikePattern::new(&p, false, None).unwrap() }),
        1 => prop::option::of(any::<bool>()).prop_map(Predicate::Const),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Predicate::And),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Predicate::Or),
            inner.prop_map(|p| Predicate::Not(Box::new(p))),
        ]
    })
}

/// Columns with all cells, some, or none at all.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let share = || prop_oneof![Just(0.001), Just(0.999), Just(0.5)];
    (share(), share(), share(), 1usize..6, 1usize..200).prop_flat_map(|(a, b, t, top, n)| {
        let number =
            move |share: f64| prop::option::weighted(share, (0..top).prop_map(|x| x as f64));
        let text = prop::option::weighted(t, "[ab]{0,2}");
        prop::collection::vec((number(a), number(b), text), n)
    })
}

fn columns(rows: &[Row]) -> Vec<Option<DecodedColumn>> {
    let number = |get: &dyn Fn(&Row) -> Option<f64>| {
        BlockData::F64(rows.iter().filter_map(get).collect::<Vec<f64>>())
    };
    let texts: StrVec = rows.iter().filter_map(|r| r.2.as_deref()).collect();
    let data = [number(&|r| r.0), number(&|r| r.1), BlockData::Str(texts)];
    let here: [&dyn Fn(&Row) -> bool; 3] =
        [&|r| r.0.is_some(), &|r| r.1.is_some(), &|r| r.2.is_some()];
    data.into_iter()
        .zip(here)
        .map(|(data, here)| {
            let presence = if data.len() == rows.len() {
                Presence::All
            } else {
                let mut bits = Bitmap::new(rows.len());
                (0..rows.len())
                    .filter(|&i| here(&rows[i]))
                    .for_each(|i| bits.set(i));
                Presence::Some(bits)
            };
            (!data.is_empty()).then(|| DecodedColumn::new(presence, data))
        })
        .collect()
}

fn meta(rows: &[Row]) -> BlockMeta {
    let chunk = |id: ColumnId, numbers: Option<Vec<f64>>, count: usize| {
        let stats = numbers.map(|v| ChunkStats {
            min: v.iter().copied().fold(f64::INFINITY, f64::min),
            max: v.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            sum: 0.0,
            first: 0.0,
            last: 0.0,
        });
        (count > 0).then_some(ChunkMeta {
            id,
            offset: 0,
            len: 0,
            crc: 0,
            count: count as u32,
            stats,
            edges_ts: None,
        })
    };
    let a: Vec<f64> = rows.iter().filter_map(|r| r.0).collect();
    let b: Vec<f64> = rows.iter().filter_map(|r| r.1).collect();
    let t = rows.iter().filter(|r| r.2.is_some()).count();
    let (na, nb) = (a.len(), b.len());
    BlockMeta {
        section: 0,
        rows: rows.len() as u32,
        first_key: Vec::new(),
        last_key: Vec::new(),
        range: (0, 0),
        chunks: [
            chunk(CHANNELS[0].0, Some(a), na),
            chunk(CHANNELS[1].0, Some(b), nb),
            chunk(CHANNELS[2].0, None, t),
        ]
        .into_iter()
        .flatten()
        .collect(),
    }
}

fn truth(p: &Predicate, row: &Row) -> Option<bool> {
    let number = |x: Option<f64>| x.map_or(Cell::Null, Cell::F64);
    evaluate(p, &|c| match c {
        0 => number(row.0),
        1 => number(row.1),
        _ => row.2.as_deref().map_or(Cell::Null, Cell::Str),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn selections_are_those_of_every_row(rows in rows(), predicate in predicates(), a in 0usize..200, b in 0usize..200) {
        let filter = RowFilter { channels: CHANNELS.to_vec(), predicate };
        let columns = columns(&rows);
        let views: Vec<Option<ColView<'_>>> = columns.iter().map(|c| c.as_ref().map(ColView::new)).collect();
        let (a, b) = (a.min(rows.len()), b.min(rows.len()));
        let range = a.min(b)..a.max(b);
        let want: Vec<usize> = range.clone().filter(|&r| truth(&filter.predicate, &rows[r]) == Some(true)).collect();
        let mut selector = Selector::new(&filter);
        for _ in 0..2 {
            let got = selector.select(range.clone(), &views);
            prop_assert_eq!(got.count(range.clone()), want.len());
            prop_assert_eq!(&got.rows(range.clone()).collect::<Vec<_>>(), &want);
            for (c, get) in [(0, (|r: &Row| r.0) as fn(&Row) -> Option<f64>), (1, |r| r.1)] {
                let picked: Vec<usize> = want.iter().copied().filter(|&r| get(&rows[r]).is_some()).collect();
                let numbers: Vec<f64> = picked.iter().filter_map(|&r| get(&rows[r])).collect();
                let Some(view) = &views[c] else { continue };
                let BlockData::F64(cells) = view.data() else { continue };
                let mut out = Vec::new();
                let edges = got.pick(range.clone(), view, cells, &mut out);
                prop_assert_eq!(out, numbers);
                prop_assert_eq!(edges, picked.first().copied().zip(picked.last().copied()));
            }
        }
        let all = 0..rows.len();
        let passing = rows.iter().filter(|r| truth(&filter.predicate, r) == Some(true)).count();
        match verdict(&filter, &meta(&rows)) {
            Verdict::Always => prop_assert_eq!(passing, rows.len()),
            Verdict::Never => prop_assert_eq!(passing, 0),
            Verdict::Open => {}
        }
        selector.select(all.clone(), &views);
        let kept = selector.retain_present(all.clone(), &views[..1]);
        let want = rows.iter().filter(|r| r.0.is_some() && truth(&filter.predicate, r) == Some(true)).count();
        prop_assert_eq!(kept.count(all), want);
        prop_assert_eq!(filter.predicate.holds_of_nulls(), truth(&filter.predicate, &(None, None, None)) == Some(true));
    }
}

#[test]
fn statistics_settle_what_they_can() {
    let rows: Vec<Row> = (0..10)
        .map(|i| (Some(f64::from(i) + 10.0), (i > 5).then_some(1.0), None))
        .collect();
    let of = |predicate| {
        verdict(
            &RowFilter {
                channels: CHANNELS.to_vec(),
                predicate,
            },
            &meta(&rows),
        )
    };
    let cmp = |channel, op, k| Predicate::Compare {
        channel,
        op,
        value: Value::F64(k),
    };
    assert_eq!(of(cmp(0, CmpOp::Gt, 9.0)), Verdict::Always);
    assert_eq!(of(cmp(0, CmpOp::Gt, 19.0)), Verdict::Never);
    assert_eq!(of(cmp(0, CmpOp::Gt, 15.0)), Verdict::Open);
    // Some rows lack it: never all, and negation does not make unknown true.
    assert_eq!(of(cmp(1, CmpOp::Eq, 1.0)), Verdict::Open);
    assert_eq!(
        of(Predicate::Not(Box::new(cmp(1, CmpOp::Eq, 1.0)))),
        Verdict::Never
    );
    assert_eq!(of(cmp(2, CmpOp::Eq, 1.0)), Verdict::Never);
    assert_eq!(
        of(Predicate::IsNull {
            channel: 2,
            negated: false
        }),
        Verdict::Always
    );
    assert_eq!(
        of(Predicate::IsNull {
            channel: 0,
            negated: true
        }),
        Verdict::Always
    );
    let list = |v: &[f64]| Predicate::In {
        channel: 0,
        values: v.iter().map(|&x| Value::F64(x)).collect(),
    };
    assert_eq!(of(list(&[1.0, 30.0])), Verdict::Never);
    assert_eq!(of(list(&[1.0, 12.0])), Verdict::Open);
}
