//! What stands alone stays apart from what must be merged.

use super::*;
use crate::stream::overlap::Alone;
use crate::stream::source::Reader;

const DAY: i64 = 1_000;

/// A day of `entities`, in order, in one segment of many blocks.
fn day(world: &mut World, entities: u8) {
    let rows: Vec<Row> = (0..DAY)
        .flat_map(|ts| (0..entities).map(move |e| (e, ts, Some(1.0), None, None)))
        .collect();
    world.step(&Step::Apply(rows));
    world.step(&Step::Flush);
}

/// Blocks of the first segment, and those of them that stand alone.
fn blocks(t: &StreamTable) -> (usize, usize) {
    let snapshot = t.snapshot(&EntityList::All(Rc::default()), TsRange::ALL, None);
    let overlap = block_on(t.overlap_of_all(&snapshot, TsRange::ALL)).unwrap();
    let all = snapshot.segments[0].blocks(0).len();
    let alone = (0..all).filter(|&b| overlap.block_alone(0, b)).count();
    (all, alone)
}

/// The same for one entity, by its own look; and the span of time that must be merged.
fn blocks_of(t: &StreamTable, e: u8) -> (usize, i64) {
    let list = block_on(t.entity_list(&Entities::In(vec![entity_name(e)])));
    let snapshot = t.snapshot(&list, TsRange::ALL, None);
    let mut reader = Reader::new(snapshot, Vec::new());
    let e = t.entity_ref(&list, 0).unwrap();
    let found = block_on(t.overlap_of_entity(&mut reader, &e, Some(e.hash), TsRange::ALL)).unwrap();
    let first = |a: &&Alone| matches!(a, Alone::Block { segment: 0, .. });
    let merged = found.merged.iter().map(|r| r.to - r.from + 1).sum();
    (found.alone.iter().filter(first).count(), merged)
}

fn counted(world: &World) -> (Vec<Answered>, Vec<Answered>) {
    let count = |column| Aggregate {
        func: AggregateFn::Count,
        column,
    };
    let q = StreamAggregate {
        floor: i64::MIN,
        table: TableId(3),
        entities: Entities::All,
        range: TsRange::ALL,
        aggregates: vec![count(None), count(Some((A, Kind::F64)))],
        sample: None,
        by_entity: true,
        filter: None,
    };
    (aggregate(&world.table, &q), world.model.aggregate(&q))
}

/// A device sends minute 300 again while it goes on with what is new: in memory, and once flushed.
#[test]
fn a_retry_leaves_the_rest_of_the_day_to_statistics() {
    for entities in [1u8, 3] {
        let mut world = World::of(with(|o| o.dedup = true));
        day(&mut world, entities);
        let (all, alone) = blocks(&world.table);
        assert!(all >= 60 && alone == all, "{all} blocks, {alone} alone");
        let mut again: Vec<Row> = (300..310)
            .map(|ts| (0, ts, Some(2.0), None, None))
            .collect();
        again.extend((DAY..DAY + 300).map(|ts| (0, ts, Some(3.0), None, None)));
        world.step(&Step::Apply(again));
        for after in [Step::Freeze, Step::Flush, Step::Freeze] {
            let (all, alone) = blocks(&world.table);
            assert!(
                (all - 3..all).contains(&alone),
                "{all} blocks, {alone} alone"
            );
            let (alone, merged) = blocks_of(&world.table, 0);
            assert!(alone + 3 >= all / usize::from(entities), "{alone} alone");
            assert!(merged <= 360, "{merged} ms are merged");
            let (got, want) = counted(&world);
            assert_eq!(got, want);
            world.step(&after);
        }
    }
}

/// Flushes that follow each other overlap at their edges only in the times of different entities.
#[test]
fn borders_of_flushes_are_no_overlap() {
    let mut world = World::of(with(|o| o.dedup = true));
    // Blocks hold several entities, each of which goes from flush to flush without a step back.
    for part in 0..4i64 {
        let rows: Vec<Row> = (0..12)
            .map(|n| {
                (
                    (n % 4) as u8,
                    part * 10 + n + (n % 4) * 3,
                    Some(1.0),
                    None,
                    None,
                )
            })
            .collect();
        world.step(&Step::Apply(rows));
        world.step(&Step::Flush);
    }
    let (got, want) = counted(&world);
    assert_eq!(got, want);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 400, ..ProptestConfig::default() })]

    /// What stands alone and what is merged hold each row once, whatever the sources.
    #[test]
    fn each_row_is_counted_once(steps in steps(), dedup in any::<bool>()) {
        let mut world = World::of(with(|o| o.dedup = dedup));
        for step in &steps {
            world.step(step);
        }
        let (got, want) = counted(&world);
        prop_assert_eq!(got, want);
    }
}
