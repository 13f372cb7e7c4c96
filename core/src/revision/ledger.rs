//! Which ranges of x_rev have landed, without a lock: a ring of ranges in flight whose longest landed prefix
//! is the watermark.
//!
//! ```text
//!   tail ──────────────► head           ticket t lives in slot t mod n
//!   │ landed │ in flight │ landed │     slot.hi    = last x_rev of its range (the allocator writes it)
//!   ▼                                  slot.state = t + 1 once ticket t has landed
//!   watermark = hi of the last ticket before tail
//! ```
//! The allocator, under its lock, fills a slot and then moves `head`. Whoever lands sets `state` and then
//! carries the tail forward over all that has landed, other writers' tickets too, so that on return either
//! the watermark covers its range or an earlier range was still in flight.

use crate::ids::Rev;
use crate::queue::Waiters;
use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering, fence};
use std::fmt;
use std::future::poll_fn;
use std::task::Poll;

/// The memory orders that the guarantee hangs on. `loom-tests` weakens one at a time and expects its models
/// to fail; every other build uses [`Orders::SOUND`], known when it is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    /// Publishing the watermark: Release, so that a reader of W sees the rows up to W.
    pub publish: Ordering,
    /// Marking a ticket landed: Release, so that whoever publishes has seen the rows.
    pub land: Ordering,
    /// Whether a `SeqCst` fence stands between marking a ticket and looking at others'. Without it two
    /// neighbours can both look too early, and the watermark stalls.
    pub fenced: bool,
}

impl Orders {
    /// What runs.
    pub const SOUND: Orders = Orders {
        publish: Ordering::Release,
        land: Ordering::Release,
        fenced: true,
    };
}

struct Slot {
    hi: AtomicU64,
    state: AtomicU64,
}

/// The writes of one table: how many are in flight and how far all have landed.
pub struct Ledger {
    slots: Box<[Slot]>,
    /// Tickets handed out. Written under the allocator's lock alone.
    head: AtomicU64,
    /// Every ticket below has landed.
    tail: AtomicU64,
    watermark: AtomicU64,
    highest: AtomicU64,
    /// The table is gone: nobody waits for room any more.
    closed: AtomicBool,
    room: Waiters,
    #[cfg(loom)]
    orders: Orders,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("watermark", &self.watermark())
            .field("highest", &self.highest())
            .field("in_flight", &self.in_flight())
            .finish()
    }
}

impl Ledger {
    /// Nothing in flight, everything below `next_free` landed. `ring` is rounded up to a power of two.
    pub(super) fn new(
        next_free: Rev,
        ring: usize,
        #[cfg_attr(not(loom), allow(unused_variables))] orders: Orders,
    ) -> Self {
        let last = next_free.0.saturating_sub(1);
        Ledger {
            slots: (0..ring.max(1).next_power_of_two())
                .map(|_| Slot {
                    hi: AtomicU64::new(0),
                    state: AtomicU64::new(0),
                })
                .collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            watermark: AtomicU64::new(last),
            highest: AtomicU64::new(last),
            closed: AtomicBool::new(false),
            room: Waiters::new(),
            #[cfg(loom)]
            orders,
        }
    }

    /// Every write with an x_rev at or below it has landed, and its rows are visible to whoever has read
    /// this. Load it *before* the scan that it bounds. Never goes down.
    pub fn watermark(&self) -> Rev {
        Rev(self.watermark.load(Ordering::Acquire))
    }

    /// The highest x_rev handed out.
    pub fn highest(&self) -> Rev {
        Rev(self.highest.load(Ordering::Acquire))
    }

    /// Ranges that have not landed, or stand behind one that has not.
    pub fn in_flight(&self) -> usize {
        // The tail first: loaded the other way round it could be past the head that we saw.
        let tail = self.tail.load(Ordering::Acquire);
        self.head.load(Ordering::Acquire).saturating_sub(tail) as usize
    }

    /// Whether another range fits, or the table is gone (so that waiting for room makes no sense).
    fn has_room(&self) -> bool {
        self.in_flight() < self.slots.len() || self.closed.load(Ordering::Acquire)
    }

    /// Waits until a range may fit. Ask the allocator again afterwards: another writer may have been faster,
    /// or the table may be gone.
    pub async fn room(&self) {
        poll_fn(|cx| {
            if self.has_room() {
                return Poll::Ready(());
            }
            self.room.register(cx.waker());
            if self.has_room() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.room.wake_all();
    }

    /// Puts a range that ends at `hi` into the ring; `None` when it is full. Only under the allocator's lock.
    pub(super) fn enter(ledger: &Arc<Ledger>, hi: Rev) -> Option<Ticket> {
        // Relaxed: the lock orders us after the last one who wrote it.
        let number = ledger.head.load(Ordering::Relaxed);
        // Acquire: whoever moved the tail has done with the slot that we are about to fill again.
        if number - ledger.tail.load(Ordering::Acquire) >= ledger.slots.len() as u64 {
            return None;
        }
        // Release: a late helper that reads this `hi` in the place of an older one then sees the tail that
        // lets it notice (see `advance`).
        ledger.slot(number).hi.store(hi.0, Ordering::Release);
        ledger.highest.store(hi.0, Ordering::Release);
        ledger.head.store(number + 1, Ordering::Release);
        Some(Ticket {
            ledger: ledger.clone(),
            number,
            settled: false,
        })
    }

    fn slot(&self, ticket: u64) -> &Slot {
        &self.slots[(ticket as usize) & (self.slots.len() - 1)]
    }

    fn settle(&self, ticket: u64) {
        let orders = self.orders();
        self.slot(ticket).state.store(ticket + 1, orders.land);
        if self.advance(orders) {
            self.room.wake_all();
        }
    }

    /// Carries the tail over all that has landed. Answers whether this thread moved it.
    fn advance(&self, orders: Orders) -> bool {
        let mut moved = false;
        if orders.fenced {
            // We have stored our `state` (or moved the tail) and are about to look at other tickets, while
            // others do the same: with a fence on each side at least one sees the other, so no landed
            // ticket is left for nobody.
            fence(Ordering::SeqCst);
        }
        let mut tail = self.tail.load(Ordering::Acquire);
        loop {
            let slot = self.slot(tail);
            // Acquire: what its writer made visible is visible to us, and by `publish` to readers of W.
            if slot.state.load(Ordering::Acquire) != tail + 1 {
                // Not landed; or `tail` is old news and the slot is another ticket's by now.
                let now = self.tail.load(Ordering::Acquire);
                if now == tail {
                    return moved;
                }
                tail = now;
                continue;
            }
            let hi = slot.hi.load(Ordering::Acquire);
            // If the slot has been filled again, this load sees the tail that allowed it, and `hi` is not
            // published before its time.
            let now = self.tail.load(Ordering::Acquire);
            if now != tail {
                tail = now;
                continue;
            }
            // Before the tail moves: whoever finds the tail past its own ticket also finds the watermark there.
            self.watermark.fetch_max(hi, orders.publish);
            match self
                .tail
                .compare_exchange(tail, tail + 1, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    moved = true;
                    tail += 1;
                    if orders.fenced {
                        fence(Ordering::SeqCst);
                    }
                }
                Err(now) => tail = now,
            }
        }
    }

    #[cfg(loom)]
    fn orders(&self) -> Orders {
        self.orders
    }
    #[cfg(not(loom))]
    #[inline(always)]
    fn orders(&self) -> Orders {
        Orders::SOUND
    }
}

/// A range in flight. It may change threads. Dropped, it is void: nothing of its write can ever appear.
#[must_use = "a dropped ticket voids its write"]
pub struct Ticket {
    ledger: Arc<Ledger>,
    number: u64,
    settled: bool,
}

impl Ticket {
    /// The write is durable and its rows are visible to every scan that starts from now on. Once it has
    /// returned, the watermark covers the range unless an earlier one is still in flight.
    pub fn land(mut self) {
        self.finish();
    }

    /// The write failed before anything of it could reach the disk or a reader.
    pub fn void(mut self) {
        self.finish();
    }

    /// Nobody knows whether the write is on disk: the range stays in flight until the process ends, and no
    /// feed reads past it.
    pub fn leak(mut self) {
        self.settled = true;
    }

    /// The table's ledger.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn finish(&mut self) {
        if !self.settled {
            self.settled = true;
            self.ledger.settle(self.number);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.finish();
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.number).finish()
    }
}
