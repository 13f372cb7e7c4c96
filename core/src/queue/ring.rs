//! The ring itself: Vyukov's bounded queue, read by one receiver.
//!
//! ```text
//! slot i holds turn:   turn == pos          free for the sender that takes position pos (pos mod n == i)
//!                      turn == pos + 1      filled, for the receiver at position pos
//!                      turn == pos + n      read; free for the next round
//! ```
//! A sender takes a position by one compare-and-swap, writes the value, then publishes `turn` (Release); the
//! receiver takes it after reading `turn` (Acquire). So each slot is owned by exactly one side at a time.
//!
//! When the receiver goes, what is in the ring is dropped. A sender that was in the middle of sending then
//! meets the same race as a waiter (see `waiters`): it publishes and looks whether the receiver is gone, the
//! receiver says so and looks what is published, with a fence on both sides. Whoever sees the other clears up.

use super::Waiters;
use crate::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, UnsafeCell, fence, lock,
};
use std::fmt;
use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::task::Poll;

/// Why [`Sender::try_send`] gave the value back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// No room now.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full",
            TrySendError::Closed(_) => "Closed",
        })
    }
}

/// The receiver is gone; the value comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Closed<T>(pub T);

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed")
    }
}

/// The memory orders that the ring hangs on. `loom-tests` weakens one at a time and expects its models to
/// fail; every other build uses [`Orders::SOUND`], known when it is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    /// Publishing a filled slot: Release, so that the receiver finds the value in it.
    pub publish: Ordering,
    /// Giving a slot back: Release, so that the next value is written after this one was read.
    pub free: Ordering,
}

impl Orders {
    /// What runs.
    pub const SOUND: Orders = Orders {
        publish: Ordering::Release,
        free: Ordering::Release,
    };
}

struct Slot<T> {
    turn: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

struct Shared<T> {
    slots: Box<[Slot<T>]>,
    /// The next position a sender takes.
    next: AtomicU64,
    /// Senders alive.
    senders: AtomicUsize,
    /// The receiver is gone.
    closed: AtomicBool,
    /// The next position to read once the receiver is gone.
    rest: Mutex<u64>,
    /// The receiver's task, when it waits for a value or for the last sender to go.
    filled: Waiters,
    /// Senders' tasks that wait for room or for the receiver to go.
    room: Waiters,
    #[cfg(loom)]
    orders: Orders,
}

// SAFETY: the values are only moved through the ring, from the one thread that filled a slot to the one that
// reads it, ordered by `turn`; so sharing the ring asks for no more than that they may change threads.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above; no `&T` is ever handed out.
unsafe impl<T: Send> Sync for Shared<T> {}

/// Puts values in. Cloned for each producer.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Takes values out. There is one.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The next position to read.
    pos: u64,
}

/// A ring for `capacity` values, rounded up to a power of two and at least 2.
pub fn ring<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    make(capacity, Orders::SOUND)
}

/// [`ring`] with broken memory orders, for models that must fail.
#[cfg(loom)]
pub fn ring_with<T: Send>(capacity: usize, orders: Orders) -> (Sender<T>, Receiver<T>) {
    make(capacity, orders)
}

fn make<T: Send>(
    capacity: usize,
    #[cfg_attr(not(loom), allow(unused_variables))] orders: Orders,
) -> (Sender<T>, Receiver<T>) {
    // With one slot "filled" and "free for the next round" would be the same number.
    let capacity = capacity.max(2).next_power_of_two();
    let slots = (0..capacity as u64)
        .map(|i| Slot {
            turn: AtomicU64::new(i),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        })
        .collect();
    let shared = Arc::new(Shared {
        slots,
        next: AtomicU64::new(0),
        senders: AtomicUsize::new(1),
        closed: AtomicBool::new(false),
        rest: Mutex::new(0),
        filled: Waiters::new(),
        room: Waiters::new(),
        #[cfg(loom)]
        orders,
    });
    let sender = Sender {
        shared: shared.clone(),
    };
    (sender, Receiver { shared, pos: 0 })
}

impl<T> Shared<T> {
    fn slot(&self, pos: u64) -> &Slot<T> {
        &self.slots[(pos as usize) & (self.slots.len() - 1)]
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

    /// Takes the value at `pos`, if it is there. Only the receiver calls it; whoever holds `rest` once the
    /// receiver is gone; or the last owner.
    fn take(&self, pos: u64) -> Option<T> {
        let slot = self.slot(pos);
        if slot.turn.load(Ordering::Acquire) != pos + 1 {
            return None;
        }
        // SAFETY: turn == pos + 1 says that the sender of `pos` has written the value (Acquire pairs with its
        // Release) and that nobody else touches the slot until `turn` moves on below; there is one reader.
        let value = slot.value.with_mut(|v| unsafe { (*v).assume_init_read() });
        slot.turn
            .store(pos + self.slots.len() as u64, self.orders().free);
        Some(value)
    }

    /// Drops what is in the ring; the receiver is gone.
    fn clear_up(&self) {
        loop {
            let value = {
                let mut rest = lock(&self.rest);
                let value = self.take(*rest);
                *rest += u64::from(value.is_some());
                value
            };
            // Outside the lock: dropping may run anybody's code.
            if value.is_none() {
                return;
            }
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // The last owner may be the receiver itself, or a sender that never got to publish.
        let end = self.next.load(Ordering::Acquire);
        let start = end.saturating_sub(self.slots.len() as u64);
        for pos in start..end {
            drop(self.take(pos));
        }
    }
}

impl<T: Send> Sender<T> {
    /// Puts a value in if there is room. Never blocks; wakes the receiver. A value that comes while the
    /// receiver goes is given back or dropped, never kept.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let shared = &*self.shared;
        if shared.closed.load(Ordering::Acquire) {
            return Err(TrySendError::Closed(value));
        }
        let mut pos = shared.next.load(Ordering::Relaxed);
        loop {
            let slot = shared.slot(pos);
            let turn = slot.turn.load(Ordering::Acquire);
            if turn == pos {
                match shared.next.compare_exchange_weak(
                    pos,
                    pos + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // SAFETY: turn == pos says the slot is empty and free for whoever owns position pos,
                        // and the compare-and-swap made that us alone.
                        slot.value
                            .with_mut(|v| unsafe { v.write(MaybeUninit::new(value)) });
                        slot.turn.store(pos + 1, shared.orders().publish);
                        // Begins with the fence between this store and the look at `closed`.
                        shared.filled.wake_all();
                        if shared.closed.load(Ordering::Relaxed) {
                            shared.clear_up();
                        }
                        return Ok(());
                    }
                    Err(now) => pos = now,
                }
            } else if turn < pos {
                // Last round's value is still there. Full, unless `pos` itself is old news.
                let now = shared.next.load(Ordering::Relaxed);
                if now == pos {
                    return Err(TrySendError::Full(value));
                }
                pos = now;
            } else {
                // Another sender has taken `pos`.
                pos = shared.next.load(Ordering::Relaxed);
            }
        }
    }

    /// Puts a value in, waiting for room. A dropped future has sent nothing.
    pub async fn send(&self, value: T) -> Result<(), Closed<T>> {
        let mut value = Some(value);
        poll_fn(move |cx| {
            let Some(mut v) = value.take() else {
                // Polled again after it was done.
                return Poll::Pending;
            };
            for registered in [false, true] {
                v = match self.try_send(v) {
                    Ok(()) => return Poll::Ready(Ok(())),
                    Err(TrySendError::Closed(v)) => return Poll::Ready(Err(Closed(v))),
                    Err(TrySendError::Full(v)) => v,
                };
                if !registered {
                    self.shared.room.register(cx.waker());
                }
            }
            value = Some(v);
            Poll::Pending
        })
        .await
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        // Relaxed: we hold a sender, so the count cannot reach 0 meanwhile.
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // AcqRel: whoever sees 0 sees all that every sender put in.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.filled.wake_all();
        }
    }
}

impl<T: Send> Receiver<T> {
    /// The next value if one is there now.
    pub fn try_recv(&mut self) -> Option<T> {
        let value = self.pop()?;
        self.shared.room.wake_all();
        Some(value)
    }

    /// The next value; `None` once every sender is gone and all is read. A dropped future has taken nothing.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// [`Receiver::recv`] for hand-written futures.
    pub fn poll_recv(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Option<T>> {
        for registered in [false, true] {
            if let Some(value) = self.try_recv() {
                return Poll::Ready(Some(value));
            }
            if self.shared.senders.load(Ordering::Acquire) == 0 {
                // A value may have come between the look and the last sender's end.
                return Poll::Ready(self.try_recv());
            }
            if !registered {
                self.shared.filled.register(cx.waker());
            }
        }
        Poll::Pending
    }

    /// Waits for a value, then takes up to `max` (≥ 1) of those that are there, for one wake. Answers how
    /// many it put into `out`; 0 once every sender is gone and all is read.
    pub async fn recv_many(&mut self, out: &mut Vec<T>, max: usize) -> usize {
        let Some(first) = self.recv().await else {
            return 0;
        };
        out.push(first);
        let mut taken = 1;
        while taken < max {
            let Some(value) = self.pop() else { break };
            out.push(value);
            taken += 1;
        }
        if taken > 1 {
            self.shared.room.wake_all();
        }
        taken
    }

    fn pop(&mut self) -> Option<T> {
        let value = self.shared.take(self.pos)?;
        self.pos += 1;
        Some(value)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        *lock(&self.shared.rest) = self.pos;
        self.shared.closed.store(true, Ordering::Release);
        // Between this store and the look at what is published; see the module.
        fence(Ordering::SeqCst);
        // What waits in the ring is dropped now, not when the last sender goes: it may hold replies that
        // somebody waits for.
        self.shared.clear_up();
        self.shared.room.wake_all();
    }
}
