//! The promises of the allocator and the ledger, over arbitrary clocks, batches and orders of landing.

use super::*;
use crate::ids::{Rev, ShardId, TableId};
use crate::routing::shard_of_xid;
use crate::sync::Arc;
use crate::xid::Xid;
use by_hand::poll_once;
use proptest::prelude::*;

const T: TableId = TableId(1);

/// Just enough of an executor: polls by hand and counts wakes.
mod by_hand {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    #[derive(Default)]
    pub struct Wakes(AtomicUsize);
    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl Wakes {
        pub fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    pub fn poll_once<F: Future>(future: Pin<&mut F>, wakes: &Arc<Wakes>) -> Poll<F::Output> {
        let waker = Waker::from(wakes.clone());
        future.poll(&mut Context::from_waker(&waker))
    }
}
use by_hand::Wakes;

fn allocator(shards: u16, ring: usize) -> (Allocator, Arc<Ledger>) {
    let a = Allocator::new(0, shards, Xid(0), ring);
    let l = a.add_table(T, Rev(1), Rev::MAX);
    (a, l)
}

fn rows() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 1u32..10, 2 => 1u32..200, 1 => 1u32..=65_536, 1 => Just(65_536u32)]
}

/// Clocks that stand still, step back, jump, and lie about the century.
fn clock() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 1_700_000_000_000i64..1_700_000_000_003,
        2 => 1_699_999_999_000i64..1_700_000_001_000,
        1 => Just(-5i64),
        1 => Just(0i64),
    ]
}

/// Seeds at the edges of runs and of the sequence.
fn random() -> impl Strategy<Value = u64> {
    prop_oneof![2 => any::<u64>(), 1 => Just(0u64), 1 => Just(u64::MAX), 1 => (0u64..8).prop_map(|x| (0xFFF8 + x) << 1)]
}

/// What was void before the end carries the watermark along, and a new life begins above it: so after the seal
/// nothing may be void any more.
#[test]
fn after_the_seal_no_number_is_handed_out() {
    let a = Allocator::new(0, 2, Xid(0), 16);
    let ledger = a.add_table(T, Rev(1), Rev(100));
    drop(a.write(T).unwrap());
    let pending = a.insert(T, 3, 1, 1, None).unwrap();
    a.seal();
    assert_eq!(a.write(T).err(), Some(Refusal::Sealed));
    assert_eq!(a.insert(T, 1, 1, 1, None).err(), Some(Refusal::Sealed));
    // What is under way still ends.
    assert_eq!((ledger.watermark(), ledger.highest()), (Rev(1), Rev(4)));
    pending.ticket.land();
    assert_eq!((ledger.watermark(), ledger.highest()), (Rev(4), Rev(4)));
    a.raise_reserved(T, Rev(1000));
    assert_eq!(a.write(T).err(), Some(Refusal::Sealed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn xids_rise_with_x_rev_whatever_the_clock_does(
        recovered in any::<u128>().prop_map(|x| Xid(x >> 1)),
        node in any::<u16>(),
        shards in 1u16..20,
        calls in prop::collection::vec((rows(), clock(), random(), prop::option::of(0u16..20), any::<bool>()), 1..60),
    ) {
        let a = Allocator::new(node, shards, recovered, 4096);
        let tables = [TableId(1), TableId(2)];
        let ledgers = tables.map(|t| a.add_table(t, Rev(1), Rev::MAX));
        let mut last_xid = recovered;
        let mut next_rev = [1u64, 1];
        for (rows, now, random, prefer, second) in calls {
            let which = usize::from(second);
            let g = a.insert(tables[which], rows, now, random, prefer.map(ShardId)).unwrap();
            prop_assert!(g.first_xid > last_xid, "{:?} after {last_xid:?}", g.first_xid);
            prop_assert_eq!(g.first_rev.0, next_rev[which]);
            let end = g.xid(rows - 1);
            prop_assert!(end >= g.first_xid);
            prop_assert_eq!(end.ms(), g.first_xid.ms());
            prop_assert_eq!(end.sequence() >> 16, g.first_xid.sequence() >> 16);
            prop_assert_eq!(end.sequence() - g.first_xid.sequence(), u64::from(rows) - 1);
            prop_assert_eq!((end.node(), g.first_xid.node()), (node, node));
            for i in [0, rows / 2, rows - 1] {
                prop_assert_eq!(shard_of_xid(g.xid(i), shards), g.shard);
            }
            // The clock is followed as soon as it is ahead.
            prop_assert!(end.ms() as i64 >= now);
            last_xid = end;
            next_rev[which] = g.rev(rows - 1).0 + 1;
            g.ticket.land();
            prop_assert_eq!(ledgers[which].watermark().0, next_rev[which] - 1);
        }
    }

    /// The watermark is the end of the longest settled prefix, whatever the order of settling.
    #[test]
    fn the_watermark_is_the_longest_settled_prefix(
        sizes in prop::collection::vec(1u32..50, 1..40),
        order in prop::collection::vec((any::<prop::sample::Index>(), 0u8..4), 1..40),
    ) {
        let (a, l) = allocator(4, 64);
        let mut ends = Vec::new();
        let mut open = Vec::new();
        for (i, n) in sizes.iter().enumerate() {
            let g = a.insert(T, *n, 1, 7, None).unwrap();
            ends.push(g.rev(*n - 1).0);
            open.push((i, g.ticket));
        }
        let mut settled = vec![false; sizes.len()];
        for (index, how) in order {
            if open.is_empty() { break; }
            let (i, ticket) = open.remove(index.index(open.len()));
            settled[i] = how != 3;
            match how {
                0 => ticket.land(),
                1 => ticket.void(),
                2 => drop(ticket),
                _ => ticket.leak(),
            }
            let prefix = settled.iter().take_while(|s| **s).count();
            prop_assert_eq!(l.watermark().0, prefix.checked_sub(1).map_or(0, |p| ends[p]));
            prop_assert_eq!(l.in_flight(), sizes.len() - prefix);
        }
        prop_assert_eq!(l.highest().0, *ends.last().unwrap());
    }

    #[test]
    fn nothing_above_the_reservation_is_handed_out(
        next in prop_oneof![1u64..1000, (Rev::MAX.0 - 500)..=(Rev::MAX.0 + 1)],
        room in 0u64..300,
        calls in prop::collection::vec(prop::option::of(1u32..100), 1..30),
    ) {
        let reserved = next - 1 + room;
        let a = Allocator::new(0, 1, Xid(0), 64);
        a.add_table(T, Rev(next), Rev(reserved));
        let mut expect = next;
        for call in calls {
            let n = call.unwrap_or(1);
            let last = expect + u64::from(n) - 1;
            let got = match call {
                Some(n) => a.insert(T, n, 5, 5, None).map(|g| g.first_rev),
                None => a.write(T).map(|g| g.rev),
            };
            match got {
                Ok(first) => {
                    prop_assert_eq!(first.0, expect);
                    prop_assert!(last <= reserved && last <= Rev::MAX.0);
                    expect = last + 1;
                }
                Err(Refusal::Exhausted) => prop_assert!(last > Rev::MAX.0),
                Err(e) => {
                    prop_assert_eq!(e, Refusal::NeedReservation);
                    prop_assert!(last > reserved);
                }
            }
            prop_assert_eq!(a.reserve_left(T), Some((reserved + 1).saturating_sub(expect)));
        }
        // A refusal used nothing up: with a higher reservation it goes on where it stood.
        a.raise_reserved(T, Rev(reserved + 1000));
        a.raise_reserved(T, Rev(1));
        match a.write(T) {
            Ok(g) => prop_assert_eq!(g.rev.0, expect),
            Err(e) => prop_assert!(e == Refusal::Exhausted && expect > Rev::MAX.0),
        }
    }
}

#[test]
fn small_inserts_stay_on_the_writers_shard() {
    for shards in [1u16, 2, 3, 16, 64] {
        let (a, _l) = allocator(shards, 64);
        let mut local = 0u32;
        let mut random = 1u64;
        for i in 0..1000u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let want = ShardId((i % u32::from(shards)) as u16);
            let g = a
                .insert(T, 1 + i % 63, 1_000 + i64::from(i / 10), random, Some(want))
                .unwrap();
            local += u32::from(g.shard == want);
        }
        // It misses one time in e^4, 18 of 1000.
        assert!(local > 960, "{local} of 1000 on {shards} shards");
    }
}

#[test]
fn the_search_for_a_local_run_is_bounded() {
    let (a, _l) = allocator(8, 64);
    let before = a.insert(T, 1, 10, 0, None).unwrap().first_xid;
    // No such shard: it looks at 32 runs and then takes the first one.
    let g = a.insert(T, 1, 10, 0, Some(ShardId(900))).unwrap();
    assert_eq!(g.first_xid.sequence(), before.sequence() + 1);
    // Large batches do not look.
    let g = a.insert(T, 64, 10, 0, Some(ShardId(900))).unwrap();
    assert_eq!(g.first_xid.sequence(), before.sequence() + 2);
}

#[test]
fn a_sequence_at_its_end_moves_to_the_next_ms() {
    let end = Xid::new(500, u64::MAX - 1, 0);
    let a = Allocator::new(0, 4, end, 16);
    a.add_table(T, Rev(1), Rev::MAX);
    let g = a.insert(T, 1, 500, 9, None).unwrap();
    assert_eq!((g.first_xid.ms(), g.first_xid.sequence()), (500, u64::MAX));
    let g = a.insert(T, 2, 499, 8 << 1, None).unwrap();
    assert_eq!((g.first_xid.ms(), g.first_xid.sequence()), (501, 8));
    // A batch that no longer fits into the last run does the same.
    let b = Allocator::new(0, 4, end, 16);
    b.add_table(T, Rev(1), Rev::MAX);
    let g = b.insert(T, 65_536, 500, u64::MAX, None).unwrap();
    assert_eq!(g.first_xid.ms(), 501);
    assert_eq!(g.first_xid.sequence() & 0xFFFF, 0);
    // And at the end of time there is nothing left.
    let c = Allocator::new(0, 4, Xid::new((1 << 48) - 1, u64::MAX, 0), 16);
    let l = c.add_table(T, Rev(1), Rev::MAX);
    assert_eq!(
        c.insert(T, 1, i64::MAX, 0, None).unwrap_err(),
        Refusal::Exhausted
    );
    assert_eq!((l.highest(), l.in_flight()), (Rev(0), 0));
}

#[test]
fn a_fresh_ms_starts_at_a_random_sequence_with_its_top_bit_clear() {
    let (a, _l) = allocator(4, 16);
    let g = a.insert(T, 1, 100, u64::MAX, None).unwrap();
    assert_eq!(g.first_xid.sequence(), u64::MAX >> 1);
    let g = a.insert(T, 1, 101, 40, None).unwrap();
    assert_eq!(g.first_xid.sequence(), 20);
}

#[test]
fn a_full_ring_refuses_and_wakes_its_waiters_when_room_appears() {
    let (a, l) = allocator(2, 4);
    let mut tickets: Vec<_> = (0..4).map(|_| a.write(T).unwrap().ticket).collect();
    assert_eq!(a.write(T).unwrap_err(), Refusal::RingFull);
    assert_eq!(
        a.insert(T, 1, 5, 5, None).unwrap_err(),
        Refusal::RingFull,
        "inserts too"
    );
    let wakes = Arc::new(Wakes::default());
    let mut room = Box::pin(l.room());
    assert!(poll_once(room.as_mut(), &wakes).is_pending());
    assert!(poll_once(room.as_mut(), &wakes).is_pending());
    // The second of four lands: no room yet, for the first holds the tail.
    tickets.remove(1).land();
    assert_eq!(wakes.count(), 0);
    assert!(poll_once(room.as_mut(), &wakes).is_pending());
    tickets.remove(0).void();
    assert_eq!(wakes.count(), 1, "one task, one wake");
    assert!(poll_once(room.as_mut(), &wakes).is_ready());
    assert_eq!(l.watermark(), Rev(2));
    // Refusals used nothing up.
    let g = a.write(T).unwrap();
    assert_eq!(g.rev, Rev(5));
}

#[test]
fn a_leaked_range_holds_the_watermark() {
    let (a, l) = allocator(2, 8);
    a.write(T).unwrap().ticket.land();
    a.write(T).unwrap().ticket.leak();
    a.write(T).unwrap().ticket.land();
    assert_eq!((l.watermark(), l.highest()), (Rev(1), Rev(3)));
    assert_eq!(l.in_flight(), 2);
}

#[test]
fn a_dropped_table_refuses_and_frees_its_waiters() {
    let (a, l) = allocator(2, 2);
    let held = [a.write(T).unwrap().ticket, a.write(T).unwrap().ticket];
    let wakes = Arc::new(Wakes::default());
    let mut room = Box::pin(l.room());
    assert!(poll_once(room.as_mut(), &wakes).is_pending());
    a.remove_table(T);
    assert_eq!(wakes.count(), 1);
    assert!(poll_once(room.as_mut(), &wakes).is_ready());
    assert_eq!(a.write(T).unwrap_err(), Refusal::UnknownTable);
    assert!(a.ledger(T).is_none());
    held.into_iter().for_each(Ticket::land);
    assert_eq!(l.watermark(), Rev(2));
}

#[test]
fn a_known_table_stays_as_it_is() {
    let (a, l) = allocator(2, 2);
    a.write(T).unwrap().ticket.land();
    let again = a.add_table(T, Rev(1), Rev(1));
    assert!(Arc::ptr_eq(&l, &again));
    assert_eq!(a.write(T).unwrap().rev, Rev(2));
}

#[test]
fn batches_have_a_size() {
    let (a, _l) = allocator(2, 2);
    for rows in [0, 65_537] {
        assert_eq!(
            a.insert(T, rows, 5, 5, None).unwrap_err(),
            Refusal::BatchSize
        );
    }
}

#[test]
fn refusals_name_the_table_and_the_limit() {
    let limits = crate::limits::Limits::default();
    let e = Refusal::RingFull.to_error("devices", &limits);
    assert!(e.message().contains("ranges_in_flight") && e.message().contains("devices"));
    for r in [
        Refusal::UnknownTable,
        Refusal::BatchSize,
        Refusal::NeedReservation,
        Refusal::Exhausted,
    ] {
        assert!(r.to_error("devices", &limits).message().contains("devices"));
    }
}

/// Real threads, real atomics: every grant is settled, so in the end nothing is in flight.
#[test]
#[allow(clippy::disallowed_methods)] // The point is real threads; nothing here depends on their order.
fn threads_leave_nothing_in_flight() {
    fn is_send<T: Send>(_: &T) {}
    let (a, l) = allocator(4, 64);
    let a = Arc::new(a);
    let threads: Vec<_> = (0..4u64)
        .map(|n| {
            let (a, l) = (a.clone(), l.clone());
            std::thread::spawn(move || {
                let mut seen = Rev(0);
                for i in 0..5_000u64 {
                    let g = loop {
                        match a.insert(T, 3, i as i64, i * n, None) {
                            Ok(g) => break g,
                            Err(Refusal::RingFull) => std::thread::yield_now(),
                            Err(e) => panic!("{e:?}"),
                        }
                    };
                    is_send(&g.ticket);
                    let before = l.watermark();
                    assert!(before >= seen && before < g.first_rev);
                    seen = before;
                    if i % 7 == 0 {
                        drop(g.ticket);
                    } else {
                        g.ticket.land();
                    }
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    assert_eq!(l.in_flight(), 0);
    assert_eq!(l.watermark(), Rev(4 * 5_000 * 3));
    assert_eq!(l.highest(), l.watermark());
}
