//! Waiting on one executor: a gate that lets writers through in the order they came, and a signal for the
//! background tasks. Neither crosses cores.

use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Wakes one sleeping task; a ring while nobody sleeps is remembered.
#[derive(Debug, Default)]
pub struct Signal {
    rung: Cell<bool>,
    waiter: RefCell<Option<oneshot::Sender<()>>>,
}

impl Signal {
    /// Wakes the waiter, or the next one to come.
    pub fn ring(&self) {
        self.rung.set(true);
        if let Some(w) = self.waiter.borrow_mut().take() {
            let _ = w.send(());
        }
    }
    /// Waits for a ring since the last wait. One waiter at a time.
    pub async fn wait(&self) {
        while !self.rung.replace(false) {
            let (tx, rx) = oneshot::channel();
            *self.waiter.borrow_mut() = Some(tx);
            let _ = rx.await;
        }
    }
}

/// Lets tasks through while it is open; those that came while it was shut go first, in order.
#[derive(Debug, Default)]
pub struct Gate {
    shut: Cell<bool>,
    waiting: RefCell<VecDeque<oneshot::Sender<()>>>,
}

impl Gate {
    /// Makes newcomers wait.
    pub fn shut(&self) {
        self.shut.set(true);
    }
    /// Lets all through, the first to come first.
    pub fn open(&self) {
        self.shut.set(false);
        for w in self.waiting.borrow_mut().drain(..) {
            let _ = w.send(());
        }
    }
    /// Whether newcomers wait.
    pub fn is_shut(&self) -> bool {
        self.shut.get()
    }
    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }
    /// Passes, or waits for the next [`Gate::open`]. `true`: it had to wait, and what it checked before may
    /// have changed.
    pub async fn pass(&self) -> bool {
        let mut waited = false;
        while self.shut.get() {
            waited = true;
            let (tx, rx) = oneshot::channel();
            self.waiting.borrow_mut().push_back(tx);
            let _ = rx.await;
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn a_ring_before_the_wait_is_remembered() {
        let s = Signal::default();
        s.ring();
        block_on(s.wait());
        assert!(block_on(poll_once(s.wait())).is_none());
    }

    #[test]
    fn a_gate_lets_through_in_order() {
        block_on(async {
            let g = Gate::default();
            assert!(!g.pass().await);
            g.shut();
            let mut first = Box::pin(g.pass());
            let mut second = Box::pin(g.pass());
            assert!(poll_once(&mut first).await.is_none());
            assert!(poll_once(&mut second).await.is_none());
            assert_eq!(g.waiting(), 2);
            g.open();
            assert_eq!(poll_once(&mut first).await, Some(true));
            assert_eq!(poll_once(&mut second).await, Some(true));
        });
    }
}
