//! Tails that were given up: LATEST and HOLD answer the same without them.

use super::*;
use crate::stream::budget::excess;
use strandline_core::stream::tails::TailCost;

fn give_up(world: &World, channels: &[usize]) {
    for &c in channels {
        world.table.give_up_tails(CHANNELS[c].0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_the_same_without_tails(
        before in steps(), after in steps(), gone in prop::sample::subsequence(vec![0usize, 1, 2], 0..=3),
        latests in prop::collection::vec(latests(), 5), scans in prop::collection::vec(scans(), 3),
    ) {
        let mut world = World::new();
        before.iter().for_each(|s| world.step(s));
        give_up(&world, &gone);
        after.iter().for_each(|s| world.step(s));
        for q in &latests {
            prop_assert_eq!(latest(&world.table, q), world.model.latest(q), "{:?}", q);
        }
        for q in &scans {
            let mut got = scan(&world.table, q);
            if q.limit.is_none() {
                got.sort_by(|a, b| a.0.cmp(&b.0));
            }
            prop_assert_eq!(got, world.model.scan(q), "{:?}", q);
        }
    }

    #[test]
    fn a_bound_is_kept_at_every_write_and_at_a_start(
        steps in steps(), latests in prop::collection::vec(latests(), 5), bound in 0usize..2_000,
    ) {
        let mut world = World::new();
        world.table.set_tails_bound(bound);
        for step in &steps {
            world.step(step);
            // A start has its bound before it reads anything.
            if let Step::Reopen = step {
                world.table.set_tails_bound(bound);
                world.table.keep_tails_within_bound();
            }
            // What is left of a column that was given up is its name.
            let most = bound.max(3 * 200);
            prop_assert!(world.table.memory_bytes().tails <= most, "{} of {}", world.table.memory_bytes().tails, most);
        }
        for q in &latests {
            prop_assert_eq!(latest(&world.table, q), world.model.latest(q), "{:?}", q);
        }
    }
}

#[test]
fn what_nobody_asks_for_goes_first_and_of_that_the_largest() {
    let cost = |column, bytes, asked_ms| TailCost {
        column: ColumnId(column),
        bytes,
        asked_ms,
    };
    let costs = vec![
        ("t", cost(64, 500, 20)),
        ("t", cost(65, 100, i64::MIN)),
        ("u", cost(64, 300, i64::MIN)),
        ("u", cost(65, 100, 10)),
    ];
    assert_eq!(excess(costs.clone(), 1_000), []);
    assert_eq!(excess(costs.clone(), 999), [("u", ColumnId(64))]);
    assert_eq!(
        excess(costs.clone(), 700),
        [("u", ColumnId(64)), ("t", ColumnId(65))]
    );
    assert_eq!(excess(costs, 0).len(), 4);
}
