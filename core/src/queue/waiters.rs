//! Tasks that wait for a condition which other threads make true.
//!
//! Waiting is a store-buffer race: the waiter announces itself and then looks at the condition, the other
//! side changes the condition and then looks for waiters. Each may miss the other's store unless both put a
//! `SeqCst` fence between their store and their load; with the fences at least one sees the other.

use crate::sync::{AtomicBool, Mutex, Ordering, fence, lock};
use std::task::Waker;

/// Who waits. Costs one fence and one load where nobody does.
#[derive(Debug)]
pub(crate) struct Waiters {
    /// Whether `list` may hold somebody; written only under its lock.
    waiting: AtomicBool,
    list: Mutex<Vec<Waker>>,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Waiters {
            waiting: AtomicBool::new(false),
            list: Mutex::new(Vec::new()),
        }
    }

    /// Announces a waiter, which must then look at its condition once more before it sleeps.
    ///
    /// A task stands in the list once, however often it polls, so the list is no longer than there are tasks.
    pub(crate) fn register(&self, waker: &Waker) {
        {
            let mut list = lock(&self.list);
            if !list.iter().any(|w| w.will_wake(waker)) {
                list.push(waker.clone());
            }
            self.waiting.store(true, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Wakes everybody; call it after the condition has become true.
    ///
    /// Everybody, because a wake given to one task is lost when that task was dropped in the meantime.
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if !self.waiting.load(Ordering::Relaxed) {
            return;
        }
        let woken = {
            let mut list = lock(&self.list);
            self.waiting.store(false, Ordering::Relaxed);
            std::mem::take(&mut *list)
        };
        // Outside the lock: waking may run a scheduler's code.
        for waker in woken {
            waker.wake();
        }
    }
}
