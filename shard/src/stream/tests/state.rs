//! MUTABLE tables against a map that does what each statement says, in order.

use super::*;
use crate::stream::source::Reader;
use strandline_core::scan::RowFilter;

/// An entity as it is now: the last tombstone, and each channel's newest sample since.
#[derive(Default)]
struct Entity {
    tombstone: Option<i64>,
    channels: [Option<(i64, Value)>; 3],
}

impl Entity {
    /// The row's ts, if the entity is live.
    fn ts(&self) -> Option<i64> {
        self.channels.iter().flatten().map(|c| c.0).max()
    }
}

#[derive(Default)]
struct States {
    entities: BTreeMap<String, Entity>,
}

impl States {
    fn insert(&mut self, rows: &[Row]) {
        for (e, ts, a, b, t) in rows {
            let entity = self.entities.entry(entity_name(*e)).or_default();
            if entity.tombstone.is_some_and(|at| *ts <= at) {
                continue;
            }
            let cells = [
                a.map(Value::F64),
                b.map(Value::F64),
                t.as_ref().map(|t| Value::str(t.as_str())),
            ];
            for (channel, cell) in entity.channels.iter_mut().zip(cells) {
                if let Some(cell) = cell
                    && channel.as_ref().is_none_or(|(at, _)| ts >= at)
                {
                    *channel = Some((*ts, cell));
                }
            }
        }
    }

    /// Whether there was one.
    fn delete(&mut self, e: u8) -> bool {
        let Some(entity) = self.entities.get_mut(&entity_name(e)) else {
            return false;
        };
        let Some(ts) = entity.ts() else { return false };
        *entity = Entity {
            tombstone: Some(ts),
            ..Entity::default()
        };
        true
    }

    fn scan(&self, q: &StreamScan) -> Vec<Answered> {
        let mut out = Vec::new();
        for (name, entity) in &self.entities {
            let wanted = match &q.entities {
                Entities::All => true,
                Entities::In(list) => list.contains(name),
            };
            let Some(ts) = entity.ts().filter(|&ts| wanted && q.range.contains(ts)) else {
                continue;
            };
            let mut row: Vec<Value> = (q.channels.iter())
                .map(|c| match c.column {
                    ColumnId::ENTITY => Value::str(name.as_str()),
                    ColumnId::TS => Value::F64(ts as f64),
                    id => {
                        let channel = &entity.channels[Model::index(id)];
                        channel.as_ref().map_or(Value::Null, |c| c.1.clone())
                    }
                })
                .collect();
            if q.predicate
                .as_ref()
                .is_none_or(|p| truth(p, &row) == Some(true))
            {
                row.truncate(q.output);
                out.push((name.clone(), ts, row));
            }
        }
        out
    }
}

#[derive(Clone, Debug)]
enum Act {
    Do(Step),
    Delete(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let text = || {
        prop::option::weighted(
            0.3,
            prop_oneof![3 => "[a-c]{0,2}", 1 => "[xy]".prop_map(|t| t.repeat(5000))],
        )
    };
    let number = || prop::option::weighted(0.5, (0i32..50).prop_map(f64::from));
    let row = (0u8..4, 0i64..12, number(), number(), text()).prop_filter("a row has a cell", |r| {
        r.2.is_some() || r.3.is_some() || r.4.is_some()
    });
    let act = prop_oneof![
        6 => prop::collection::vec(row, 1..12).prop_map(|rows| Act::Do(Step::Apply(rows))),
        3 => (0u8..5).prop_map(Act::Delete),
        1 => Just(Act::Do(Step::Freeze)),
        3 => Just(Act::Do(Step::Flush)),
        3 => Just(Act::Do(Step::Merge)),
        1 => Just(Act::Do(Step::Reopen)),
    ];
    prop::collection::vec(act, 1..20)
}

fn mutable() -> World {
    World::of(with(|o| o.mutable = true))
}

fn act(world: &mut World, states: &mut States, act: &Act) {
    match act {
        Act::Do(step) => {
            world.step(step);
            if let Step::Apply(rows) = step {
                states.insert(rows);
            }
        }
        Act::Delete(e) => {
            let tombstone = world.table.tombstone(&entity_name(*e));
            assert_eq!(tombstone.is_some(), states.delete(*e), "{act:?}");
            if let Some(batch) = tombstone {
                world.log(batch);
            }
        }
    }
}

fn whole() -> StreamScan {
    everything(CHANNELS.iter().map(|c| read(c.0, Fill::None)).collect())
}

fn sorted(mut rows: Vec<Answered>) -> Vec<Answered> {
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_current_state_is_the_maps(
        acts in acts(), entities in entity_choice(), range in prop_oneof![Just(TsRange::ALL), (0i64..12, 0i64..12).prop_map(|(from, to)| TsRange { from, to })],
        column in 0usize..5, operand in 0i32..30, output in 0usize..3,
    ) {
        let mut world = mutable();
        let mut states = States::default();
        for a in &acts {
            act(&mut world, &mut states, a);
            // After each: what one flush or merge loses, the next write may hide.
            prop_assert_eq!(sorted(scan(&world.table, &whole())), states.scan(&whole()), "after {:?}", a);
        }
        let mut q = whole();
        q.channels.push(ChannelRead { column: ColumnId::ENTITY, kind: Kind::Str, fill: Fill::None });
        q.channels.push(ChannelRead { column: ColumnId::TS, kind: Kind::F64, fill: Fill::None });
        let value = match column {
            2 => Value::str("b"),
            3 => Value::str(entity_name(1)),
            4 => Value::F64(f64::from(operand % 12)),
            _ => Value::F64(f64::from(operand)),
        };
        let predicate = Predicate::Compare { channel: column, op: CmpOp::Ge, value };
        q.predicate = Some(predicate.clone());
        (q.entities, q.range, q.output) = (entities.clone(), range, output);
        let rows = states.scan(&q);
        prop_assert_eq!(sorted(scan(&world.table, &q)), rows.clone());
        // LATEST says the same.
        let l = LatestScan { floor: i64::MIN, table: TableId(3), entities: entities.clone(), from: range.from, until: range.to, channels: whole().channels };
        let mut same = whole();
        (same.entities, same.range) = (entities.clone(), range);
        prop_assert_eq!(latest(&world.table, &l), states.scan(&same));
        // Aggregates are over those rows.
        q.output = 3;
        let rows = states.scan(&q);
        let numbers: Vec<f64> = rows.iter().filter_map(|r| match r.2[0] { Value::F64(x) => Some(x), _ => None }).collect();
        let func = |func, column| Aggregate { func, column };
        let mut a = StreamAggregate {
            floor: i64::MIN, table: TableId(3), entities, range, sample: None, by_entity: false,
            filter: Some(RowFilter { channels: q.channels.iter().map(|c| (c.column, c.kind)).collect(), predicate }),
            aggregates: vec![
                func(AggregateFn::Count, None), func(AggregateFn::Count, Some((A, Kind::F64))), func(AggregateFn::Sum, Some((A, Kind::F64))),
                func(AggregateFn::Max, Some((A, Kind::F64))), func(AggregateFn::Count, Some((T, Kind::Str))),
            ],
        };
        let texts = rows.iter().filter(|r| !r.2[2].is_null()).count();
        let or_null = |x: f64| if numbers.is_empty() { Value::Null } else { Value::F64(x) };
        let want = vec![
            Value::F64(rows.len() as f64), Value::F64(numbers.len() as f64), or_null(numbers.iter().sum()),
            or_null(numbers.iter().copied().fold(f64::MIN, f64::max)), Value::F64(texts as f64),
        ];
        prop_assert_eq!(&aggregate(&world.table, &a)[0].2, &want);
        // The newest row's, and each entity's own.
        a.aggregates = vec![func(AggregateFn::Last, Some((T, Kind::Str))), func(AggregateFn::Count, None)];
        a.by_entity = true;
        let want: Vec<Answered> = rows.iter().map(|r| (r.0.clone(), 0, vec![r.2[2].clone(), Value::F64(1.0)])).collect();
        prop_assert_eq!(sorted(aggregate(&world.table, &a)), want);
    }
}

/// What merges leave of a table whose entities are written and deleted over and over.
#[test]
fn merges_keep_only_what_may_count() {
    let mut world = mutable();
    let mut states = States::default();
    for round in 0..16i64 {
        let rows: Vec<Row> = (0..40)
            .map(|n| {
                let e = (n % 4) as u8;
                (
                    e,
                    round * 100 + n,
                    Some(n as f64),
                    (n < 4).then_some(1.0),
                    None,
                )
            })
            .collect();
        act(&mut world, &mut states, &Act::Do(Step::Apply(rows)));
        if round % 3 == 0 {
            act(&mut world, &mut states, &Act::Delete((round % 4) as u8));
        }
        world.step(&Step::Flush);
        // Each flush: two rows of an entity (a newer and an older channel), perhaps a tombstone.
        let stored = world.table.segments().last().unwrap().info().rows;
        assert!(stored <= 9, "{stored} rows");
        world.step(&Step::Merge);
    }
    while world.table.pick_merge().is_some() {
        world.step(&Step::Merge);
    }
    assert_eq!(sorted(scan(&world.table, &whole())), states.scan(&whole()));
    let stored: u64 = world.table.segments().iter().map(|s| s.info().rows).sum();
    assert!(
        stored <= 4 * 3 * world.table.segments().len() as u64,
        "{stored} rows"
    );
    // Two are enough to see it: an old sample comes back for none of them, wherever it goes.
    act(&mut world, &mut states, &Act::Delete(0));
    world.step(&Step::Flush);
    let late: Vec<Row> = vec![(0, 5, Some(9.0), Some(9.0), Some("late".into()))];
    act(&mut world, &mut states, &Act::Do(Step::Apply(late)));
    for after in [Step::Flush, Step::Merge, Step::Reopen] {
        assert!(
            scan(&world.table, &whole())
                .iter()
                .all(|r| r.0 != entity_name(0))
        );
        world.step(&after);
    }
}

/// A deleted entity's texts are not held in memory for good.
#[test]
fn a_tombstone_frees_the_tails() {
    let mut world = mutable();
    let text = |e: u8, ts| (e, ts, None, None, Some("x".repeat(4000)));
    world.step(&Step::Apply(vec![text(0, 1), text(1, 1)]));
    let before = world.table.memory_bytes().tails;
    let batch = world.table.tombstone(&entity_name(0)).unwrap();
    world.log(batch);
    // The tombstones have a chunk of their own.
    let chunk = 1024 * 17;
    let after = world.table.memory_bytes().tails;
    assert!(
        after + 4000 <= before + chunk,
        "{before} before, {after} after"
    );
    assert_eq!(world.table.tombstone(&entity_name(0)), None);
    world.step(&Step::Flush);
    world.step(&Step::Reopen);
    assert_eq!(world.table.tombstone(&entity_name(0)), None);
    assert_eq!(scan(&world.table, &whole()).len(), 1);
}

/// The row is one moment's, also where its text is so long that it is read from history.
#[test]
fn long_texts_are_read_from_history() {
    let mut world = mutable();
    let long = "y".repeat(5000);
    world.step(&Step::Apply(vec![
        (0, 5, Some(1.0), None, Some(long.clone())),
        (0, 5, None, None, Some(format!("{long}z"))),
        (0, 9, Some(2.0), None, None),
        (1, 1, None, None, Some(long.clone())),
    ]));
    let want = |e: u8, ts, a: Option<f64>, t: &str| {
        let a = a.map_or(Value::Null, Value::F64);
        (entity_name(e), ts, vec![a, Value::Null, Value::str(t)])
    };
    for after in [Step::Freeze, Step::Flush, Step::Reopen] {
        let rows = sorted(scan(&world.table, &whole()));
        assert_eq!(
            rows,
            [
                want(0, 9, Some(2.0), &format!("{long}z")),
                want(1, 1, None, &long)
            ]
        );
        world.step(&after);
    }
    let batch = world.table.tombstone(&entity_name(1)).unwrap();
    world.log(batch);
    world.step(&Step::Apply(vec![(
        1,
        1,
        None,
        None,
        Some(format!("{long}late")),
    )]));
    assert_eq!(scan(&world.table, &whole()).len(), 1);
    let reader = Reader::new(
        world
            .table
            .snapshot(&EntityList::All(Rc::default()), TsRange::ALL, None),
        vec![(ColumnId::DELETED, Kind::F64)],
    );
    assert_eq!(reader.snapshot.stored_channels().len(), 4);
}
