//! The no-skip guarantee: writers, one of which may fail, and a reader of the feed. What a scan sees is an
//! array of flags, written with Relaxed stores: only the ledger's own orders can carry them to the reader.

use crate::complaint;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use strandline_core::ids::{Rev, TableId};
use strandline_core::queue::ring;
use strandline_core::revision::{Allocator, Ledger, Orders, Ticket};
use strandline_core::sync::Arc;
use strandline_core::xid::Xid;

const T: TableId = TableId(1);

/// What a writer does with its grant.
#[derive(Clone, Copy, PartialEq)]
enum Deed {
    /// Makes its row visible, then lands.
    Write,
    /// Makes nothing visible and voids.
    Fail,
    /// Broken: lands, then makes its row visible.
    LandTooEarly,
    /// Broken: forgets its range.
    Leak,
}

/// A table: its numbers, and per x_rev whether a scan finds a row.
struct World {
    allocator: Allocator,
    ledger: Arc<Ledger>,
    visible: Vec<AtomicBool>,
}

impl World {
    fn new(ring: usize, writes: usize, orders: Orders) -> Arc<World> {
        let allocator = Allocator::new(0, 1, Xid(0), ring);
        let ledger = allocator.add_table_with(T, Rev(1), Rev::MAX, orders);
        Arc::new(World {
            allocator,
            ledger,
            visible: (0..=writes).map(|_| AtomicBool::new(false)).collect(),
        })
    }

    fn show(&self, rev: Rev) {
        self.visible[rev.0 as usize].store(true, Ordering::Relaxed);
    }

    fn settle(&self, deed: Deed, rev: Rev, ticket: Ticket) {
        match deed {
            Deed::Write => {
                self.show(rev);
                ticket.land();
            }
            Deed::Fail => ticket.void(),
            Deed::LandTooEarly => {
                ticket.land();
                self.show(rev);
            }
            Deed::Leak => ticket.leak(),
        }
    }

    /// All rows with x_rev ≤ W.
    fn scan(&self, w: Rev) -> Vec<bool> {
        (1..=w.0 as usize)
            .map(|rev| self.visible[rev].load(Ordering::Relaxed))
            .collect()
    }
}

/// Writers with these deeds, one after the other where a thread has several, and a reader that answers at W.
/// In the end the table must hold, up to W, what the reader saw, and nothing may be in flight.
fn model(threads: &'static [&'static [Deed]], orders: Orders, bound: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(move || {
        let writes = threads.iter().map(|d| d.len()).sum::<usize>();
        let world = World::new(4, writes, orders);
        let writers: Vec<_> = threads
            .iter()
            .map(|deeds| {
                let world = world.clone();
                thread::spawn(move || {
                    for deed in *deeds {
                        let g = world.allocator.write(T).expect("the ring has room");
                        world.settle(*deed, g.rev, g.ticket);
                    }
                })
            })
            .collect();
        // The reader is this thread. Points 1 and 2: W first, then the scan.
        let w = world.ledger.watermark();
        let answered = world.scan(w);
        let again = world.ledger.watermark();
        assert!(again >= w, "the watermark went down");
        writers.into_iter().for_each(|t| t.join().unwrap());
        // Point 3: nothing at or below W has come since.
        assert_eq!(answered, world.scan(w), "a write appeared at or below W");
        assert_eq!(
            world.ledger.watermark(),
            world.ledger.highest(),
            "the watermark stalls"
        );
        assert_eq!(world.ledger.in_flight(), 0);
    });
}

use Deed::{Fail, LandTooEarly, Leak, Write};

#[test]
fn two_writers_and_a_reader() {
    model(&[&[Write], &[Write]], Orders::SOUND, 3);
}

#[test]
fn a_writer_a_failing_writer_and_a_reader() {
    model(&[&[Write], &[Fail]], Orders::SOUND, 3);
}

#[test]
fn three_writers_one_fails() {
    model(&[&[Write], &[Fail], &[Write]], Orders::SOUND, 2);
}

#[test]
fn two_writers_that_write_twice() {
    model(&[&[Write, Write], &[Fail, Write]], Orders::SOUND, 2);
}

/// An answer to the writer means that the next feed read on its connection sees the write, unless an earlier
/// one is in flight: here both threads have landed, so whoever comes back last finds everything published.
#[test]
fn landing_returns_with_the_watermark_published() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let world = World::new(2, 2, Orders::SOUND);
        let first = world.allocator.write(T).unwrap();
        let second = world.allocator.write(T).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let other = {
            let (world, done) = (world.clone(), done.clone());
            thread::spawn(move || {
                world.settle(Write, first.rev, first.ticket);
                done.store(true, Ordering::Release);
            })
        };
        world.settle(Write, second.rev, second.ticket);
        if done.load(Ordering::Acquire) {
            assert_eq!(world.ledger.watermark(), Rev(2));
            assert_eq!(world.scan(Rev(2)), [true, true]);
        }
        other.join().unwrap();
        assert_eq!(world.ledger.watermark(), Rev(2));
    });
}

/// Slots are used again and again: a helper that is late must never publish the new range in the old one's
/// place.
#[test]
fn a_ring_of_two_wraps_around() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let world = World::new(2, 6, Orders::SOUND);
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        // Full at most while the other thread's two are not settled.
                        if let Ok(g) = world.allocator.write(T) {
                            world.settle(Write, g.rev, g.ticket);
                        }
                    }
                })
            })
            .collect();
        let w = world.ledger.watermark();
        assert!(world.scan(w).into_iter().all(|seen| seen));
        writers.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(world.ledger.watermark(), world.ledger.highest());
    });
}

/// A full ring's writer waits for the signal, and it always comes.
#[test]
fn a_writer_that_waits_for_room_is_woken() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let world = World::new(1, 2, Orders::SOUND);
        let held = world.allocator.write(T).unwrap();
        let waiter = {
            let world = world.clone();
            thread::spawn(move || {
                let g = loop {
                    match world.allocator.write(T) {
                        Ok(g) => break g,
                        Err(_) => loom::future::block_on(world.ledger.room()),
                    }
                };
                world.settle(Write, g.rev, g.ticket);
            })
        };
        world.settle(Write, held.rev, held.ticket);
        waiter.join().unwrap();
        assert_eq!(world.ledger.watermark(), Rev(2));
    });
}

/// The whole way: writers send their grants through the queue to the shard, which makes rows visible and
/// lands them; one grant is dropped on the way, as when a connection goes.
#[test]
fn grants_through_the_queue_to_a_shard() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let world = World::new(4, 3, Orders::SOUND);
        let (tx, mut rx) = ring::<(Rev, Ticket)>(2);
        let sender = |deed: Deed| {
            let (world, tx) = (world.clone(), tx.clone());
            thread::spawn(move || {
                let g = world.allocator.write(T).unwrap();
                if deed == Write {
                    assert!(tx.try_send((g.rev, g.ticket)).is_ok());
                }
            })
        };
        let writers = [sender(Write), sender(Fail)];
        drop(tx);
        let shard = {
            let world = world.clone();
            thread::spawn(move || {
                while let Some((rev, ticket)) = loom::future::block_on(rx.recv()) {
                    world.settle(Write, rev, ticket);
                }
            })
        };
        let w = world.ledger.watermark();
        let answered = world.scan(w);
        writers.into_iter().for_each(|t| t.join().unwrap());
        shard.join().unwrap();
        assert_eq!(answered, world.scan(w));
        assert_eq!(world.ledger.watermark(), Rev(2));
    });
}

#[test]
fn landing_before_visible_is_found() {
    let said = complaint(|| model(&[&[Write], &[LandTooEarly]], Orders::SOUND, 3));
    assert!(said.contains("a write appeared at or below W"), "{said}");
}

#[test]
fn a_relaxed_publish_is_found() {
    let orders = Orders {
        publish: Ordering::Relaxed,
        ..Orders::SOUND
    };
    let said = complaint(move || model(&[&[Write], &[Write]], orders, 3));
    assert!(said.contains("a write appeared at or below W"), "{said}");
}

#[test]
fn a_relaxed_landing_is_found() {
    let orders = Orders {
        land: Ordering::Relaxed,
        ..Orders::SOUND
    };
    let said = complaint(move || model(&[&[Write], &[Write]], orders, 3));
    assert!(said.contains("a write appeared at or below W"), "{said}");
}

#[test]
fn a_leaked_range_is_found() {
    let said = complaint(|| model(&[&[Write], &[Leak]], Orders::SOUND, 3));
    assert!(said.contains("the watermark stalls"), "{said}");
}

#[test]
fn a_missing_fence_is_found() {
    let orders = Orders {
        fenced: false,
        ..Orders::SOUND
    };
    let said = complaint(move || model(&[&[Write], &[Write]], orders, 3));
    assert!(said.contains("the watermark stalls"), "{said}");
}
