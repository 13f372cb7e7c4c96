//! The choice of merges, over random arrivals: does it end, how many segments stay, how often is a byte
//! written, does order of arrival survive.

use super::pick::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use strandline_core::time::DAY_MS;

/// A segment with what is in it: bytes of each day, and of each day the flushes they came by, in the order a
/// reader would see them.
#[derive(Clone, Debug)]
struct Model {
    piece: Piece,
    days: BTreeMap<i64, u64>,
    arrivals: BTreeMap<i64, Vec<u64>>,
}

impl Model {
    fn new(
        flushes: (u64, u64),
        days: BTreeMap<i64, u64>,
        arrivals: BTreeMap<i64, Vec<u64>>,
    ) -> Model {
        let (first, last) = (
            days.keys().next().unwrap(),
            days.keys().next_back().unwrap(),
        );
        Model {
            piece: Piece {
                flushes,
                range: (first * DAY_MS, last * DAY_MS + DAY_MS - 1),
                bytes: days.values().sum(),
            },
            days,
            arrivals,
        }
    }
}

struct Table {
    rules: Rules,
    segments: Vec<Model>,
    flushes: u64,
    flushed_bytes: u64,
    merged_bytes: u64,
    merges: usize,
}

impl Table {
    fn new(rules: Rules) -> Table {
        Table {
            rules,
            segments: Vec::new(),
            flushes: 0,
            flushed_bytes: 0,
            merged_bytes: 0,
            merges: 0,
        }
    }

    /// Cuts rows by a route, as a writer does.
    fn write(
        &mut self,
        flushes: (u64, u64),
        days: BTreeMap<i64, u64>,
        arrivals: &BTreeMap<i64, Vec<u64>>,
        route: &mut Route,
    ) {
        let mut out: BTreeMap<Option<Bucket>, BTreeMap<i64, u64>> = BTreeMap::new();
        for (day, bytes) in days {
            out.entry(route.bucket(day * DAY_MS))
                .or_default()
                .insert(day, bytes);
        }
        for days in out.into_values() {
            let arrivals = days.keys().map(|d| (*d, arrivals[d].clone())).collect();
            self.segments.push(Model::new(flushes, days, arrivals));
        }
        self.segments.sort_by_key(|s| s.piece.flushes);
    }

    fn flush(&mut self, days: BTreeMap<i64, u64>) {
        self.flushes += 1;
        let n = self.flushes;
        self.flushed_bytes += days.values().sum::<u64>();
        let arrivals = days.keys().map(|d| (*d, vec![n])).collect();
        let plan = plan_flush(&days, self.rules.top.unwrap(), 8);
        let mut route = plan.map_or(Route::Whole, Route::Buckets);
        self.write((n, n), days, &arrivals, &mut route);
        self.check();
    }

    /// Merges until nothing is due.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let pieces: Vec<Piece> = self.segments.iter().map(|s| s.piece).collect();
            let Some(inputs) = pick(&pieces, &self.rules) else {
                return;
            };
            self.merge(&inputs);
        }
        panic!("merges without end: {:?}", self.segments);
    }

    fn merge(&mut self, inputs: &[usize]) {
        self.merges += 1;
        let (mut days, mut arrivals) = (BTreeMap::new(), BTreeMap::<i64, Vec<u64>>::new());
        let mut flushes = (u64::MAX, 0);
        let read: u64 = inputs.iter().map(|&n| self.segments[n].piece.bytes).sum();
        assert!(inputs.len() == 1 || read <= self.rules.most);
        assert!(inputs.is_sorted());
        for &n in inputs {
            let s = &self.segments[n];
            flushes = (
                flushes.0.min(s.piece.flushes.0),
                flushes.1.max(s.piece.flushes.1),
            );
            for (day, bytes) in &s.days {
                *days.entry(*day).or_insert(0) += bytes;
                arrivals.entry(*day).or_default().extend(&s.arrivals[day]);
            }
        }
        self.merged_bytes += read;
        let blocks = days
            .iter()
            .map(|(d, b)| ((d * DAY_MS, d * DAY_MS + DAY_MS - 1), *b))
            .collect();
        let mut n = 0;
        self.segments.retain(|_| {
            n += 1;
            !inputs.contains(&(n - 1))
        });
        let range = (
            *days.keys().next().unwrap() * DAY_MS,
            *days.keys().next_back().unwrap() * DAY_MS + DAY_MS - 1,
        );
        let mut route = Route::over(range, &self.rules, Weights::new(blocks));
        self.write(flushes, days, &arrivals, &mut route);
        self.check();
    }

    /// Readers go through segments in this order: every day's rows come as they arrived.
    fn check(&self) {
        let mut seen: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for s in &self.segments {
            for (day, arrivals) in &s.arrivals {
                seen.entry(*day).or_default().extend(arrivals);
            }
        }
        for (day, arrivals) in &seen {
            assert!(arrivals.is_sorted(), "day {day}: {arrivals:?}");
        }
        for (n, a) in self.segments.iter().enumerate() {
            for b in &self.segments[n + 1..] {
                if a.days.keys().any(|d| b.days.contains_key(d)) {
                    assert!(a.piece.flushes.1 < b.piece.flushes.0, "{a:?} {b:?}");
                }
            }
        }
    }
}

fn rules(fan_in: u64, most: u64, retention_days: Option<i64>) -> Rules {
    Rules::new(
        fan_in,
        most,
        retention_days.map(|d| d * DAY_MS),
        i64::MAX / 4,
    )
}

/// One flush: days that pass before it, and its rows by days back from now, with bytes.
type Arrival = (i64, Vec<(i64, u64)>);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let bytes = prop_oneof![1u64..100, 1_000u64..100_000, 100_000u64..4_000_000];
    let back = prop_oneof![6 => Just(0i64), 3 => 0i64..3, 1 => 0i64..40, 1 => 0i64..3_000];
    let rows = prop::collection::vec((back, bytes), 1..12);
    prop::collection::vec((0i64..4, rows), 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_arrivals_are_merged_in_order_and_bounded(
        arrivals in arrivals(),
        fan_in in 2u64..6,
        retention in prop_oneof![Just(None), Just(Some(30i64)), Just(Some(400))],
    ) {
        let most = 64 << 20;
        let mut t = Table::new(rules(fan_in, most, retention));
        let mut day = 5_000;
        for (passed, rows) in arrivals {
            day += passed;
            let mut days = BTreeMap::new();
            for (back, bytes) in rows {
                *days.entry(day - back).or_insert(0) += bytes;
            }
            t.flush(days);
            t.settle();
        }
        let top = t.rules.top.unwrap();
        // Every segment is in a bucket, and none has more than a crowd of neighbours.
        let mut own: BTreeMap<Bucket, usize> = BTreeMap::new();
        for s in &t.segments {
            let bucket = Bucket::of(s.piece.range, top);
            prop_assert!(bucket.is_some(), "{:?}", s.piece);
            *own.entry(bucket.unwrap()).or_default() += 1;
        }
        let crowd = fan_in as usize * 8;
        for (bucket, count) in own {
            prop_assert!(count <= crowd, "{bucket:?} has {count}");
        }
        // A rewrite for each tier of size, for each level that it may be cut to, and to end a bucket.
        let tiers = (t.flushed_bytes as f64).log(fan_in as f64).ceil() + 1.0;
        let amplification = t.merged_bytes as f64 / t.flushed_bytes as f64;
        prop_assert!(amplification <= 2.0 * tiers + 8.0, "{amplification} of {tiers} tiers");
    }
}

/// What a load leaves: segments, and bytes written by merges for each byte of a flush.
fn load(flushes: impl Iterator<Item = BTreeMap<i64, u64>>) -> (usize, f64) {
    let mut t = Table::new(rules(4, 2 << 30, None));
    for days in flushes {
        t.flush(days);
        t.settle();
    }
    (
        t.segments.len(),
        t.merged_bytes as f64 / t.flushed_bytes as f64,
    )
}

const MIB: u64 = 1 << 20;

#[test]
fn a_row_a_day_for_years_is_a_handful_of_files() {
    let (segments, amplification) = load((4_000..6_000).map(|day| [(day, 200)].into()));
    // Four of 512 days, and of the smaller buckets since a few each.
    assert!(segments <= 28, "{segments}");
    assert!(amplification < 12.0, "{amplification}");
}

#[test]
fn days_in_order_are_written_a_few_times() {
    // 24 flushes of 10 MiB a day.
    let hours = (0..24 * 60).map(|h| [(5_000 + h / 24, 10 * MIB)].into());
    let (segments, amplification) = load(hours);
    assert!(segments <= 60 + 8, "{segments}");
    assert!(amplification < 4.0, "{amplification}");
}

#[test]
fn a_tenth_that_comes_a_day_late_costs_little_more() {
    let hours = (0..24 * 60).map(|h| {
        let day = 5_000 + h / 24;
        [(day, 9 * MIB), (day - 1, MIB)].into()
    });
    let (segments, amplification) = load(hours);
    assert!(segments <= 60 + 16, "{segments}");
    assert!(amplification < 4.5, "{amplification}");
}

#[test]
fn years_that_come_entity_by_entity_are_cut_as_they_grow() {
    // Each flush has a year of a few entities.
    let year = || (4_000..4_365).map(|day| (day, 32 * MIB / 365)).collect();
    let (segments, amplification) = load((0..256).map(|_| year()));
    assert!(segments <= 365, "{segments}");
    assert!(amplification < 8.0, "{amplification}");
}
