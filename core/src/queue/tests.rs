//! The queue against a model, at its edges, and under real threads.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
struct Wakes(AtomicUsize);
impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls by hand and counts wakes.
struct Hand {
    wakes: Arc<Wakes>,
    waker: Waker,
}
impl Hand {
    fn new() -> Self {
        let wakes = Arc::new(Wakes::default());
        Hand {
            waker: Waker::from(wakes.clone()),
            wakes,
        }
    }
    fn poll<F: Future>(&self, future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&self.waker))
    }
    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }
}

/// Parks the thread between polls: a lost wake hangs the test instead of passing it.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(v) => return v,
            Poll::Pending => std::thread::park(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn behaves_like_a_bounded_deque(capacity in 0usize..9, ops in prop::collection::vec(any::<bool>(), 1..200)) {
        let real = capacity.max(2).next_power_of_two();
        let (tx, mut rx) = ring::<u32>(capacity);
        let mut model = VecDeque::new();
        for (i, send) in ops.into_iter().enumerate() {
            let i = i as u32;
            if send {
                let got = tx.try_send(i);
                if model.len() == real {
                    prop_assert_eq!(got, Err(TrySendError::Full(i)));
                } else {
                    prop_assert_eq!(got, Ok(()));
                    model.push_back(i);
                }
            } else {
                prop_assert_eq!(rx.try_recv(), model.pop_front());
            }
        }
        drop(tx);
        while let Some(want) = model.pop_front() {
            prop_assert_eq!(block_on(rx.recv()), Some(want));
        }
        prop_assert_eq!(block_on(rx.recv()), None);
    }
}

#[test]
fn an_empty_ring_wakes_its_receiver_for_a_value_and_for_the_end() {
    let (tx, mut rx) = ring::<u8>(4);
    let hand = Hand::new();
    {
        let mut recv = pin!(rx.recv());
        assert!(hand.poll(recv.as_mut()).is_pending());
        tx.try_send(7).unwrap();
        tx.try_send(8).unwrap();
        assert_eq!(hand.wakes(), 1, "one wake for many values");
        assert_eq!(hand.poll(recv.as_mut()), Poll::Ready(Some(7)));
    }
    let mut out = Vec::new();
    assert_eq!(block_on(rx.recv_many(&mut out, 10)), 1);
    assert_eq!(out, [8]);
    let tx2 = tx.clone();
    let mut recv = pin!(rx.recv());
    assert!(hand.poll(recv.as_mut()).is_pending());
    drop(tx);
    assert_eq!(hand.wakes(), 1, "another sender is still there");
    drop(tx2);
    assert_eq!(hand.wakes(), 2);
    assert_eq!(hand.poll(recv.as_mut()), Poll::Ready(None));
}

#[test]
fn a_full_ring_wakes_its_senders() {
    let (tx, mut rx) = ring::<u8>(2);
    let hand = Hand::new();
    tx.try_send(1).unwrap();
    tx.try_send(2).unwrap();
    let mut a = pin!(tx.send(3));
    assert!(hand.poll(a.as_mut()).is_pending());
    assert_eq!(rx.try_recv(), Some(1));
    assert_eq!(hand.wakes(), 1);
    assert_eq!(hand.poll(a.as_mut()), Poll::Ready(Ok(())));
    let mut out = Vec::new();
    assert_eq!(block_on(rx.recv_many(&mut out, 1)), 1);
    assert_eq!(block_on(rx.recv_many(&mut out, 9)), 1);
    assert_eq!(out, [2, 3]);
}

#[test]
fn a_dropped_send_has_sent_nothing() {
    let (tx, mut rx) = ring::<u8>(2);
    tx.try_send(1).unwrap();
    tx.try_send(2).unwrap();
    {
        let mut send = pin!(tx.send(3));
        assert!(Hand::new().poll(send.as_mut()).is_pending());
    }
    drop(tx);
    let mut out = Vec::new();
    while block_on(rx.recv_many(&mut out, 2)) > 0 {}
    assert_eq!(out, [1, 2]);
}

#[test]
fn a_receiver_that_goes_drops_what_waits_and_gives_the_rest_back() {
    let counted = Arc::new(());
    let (tx, rx) = ring(2);
    tx.try_send(counted.clone()).unwrap();
    tx.try_send(counted.clone()).unwrap();
    let hand = Hand::new();
    let mut waiting = pin!(tx.send(counted.clone()));
    assert!(hand.poll(waiting.as_mut()).is_pending());
    drop(rx);
    assert_eq!(hand.wakes(), 1);
    assert_eq!(
        Arc::strong_count(&counted),
        2,
        "ours and the waiting sender's"
    );
    assert!(matches!(
        hand.poll(waiting.as_mut()),
        Poll::Ready(Err(Closed(_)))
    ));
    assert!(tx.is_closed());
    assert!(matches!(
        tx.try_send(counted.clone()),
        Err(TrySendError::Closed(_))
    ));
    assert_eq!(Arc::strong_count(&counted), 1);
}

/// Under real threads, many times over: whatever a sender is in the middle of when the receiver goes, no
/// value stays in the ring, which lives on.
#[test]
#[allow(clippy::disallowed_methods)] // The point is real threads.
fn a_receiver_that_goes_leaves_nothing_in_the_ring() {
    const SENDERS: usize = 2;
    for round in 0..2000 {
        let counted = Arc::new(());
        let (tx, mut rx) = ring(4);
        let start = Arc::new(std::sync::Barrier::new(SENDERS + 1));
        let threads: Vec<_> = (0..SENDERS)
            .map(|_| {
                let (tx, value, start) = (tx.clone(), counted.clone(), start.clone());
                std::thread::spawn(move || {
                    start.wait();
                    while tx.try_send(value.clone()).is_ok() {}
                })
            })
            .collect();
        start.wait();
        for _ in 0..round % 7 {
            rx.try_recv();
        }
        drop(rx);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(Arc::strong_count(&counted), 1, "round {round}");
        assert!(tx.is_closed());
    }
}

#[test]
fn values_left_behind_are_dropped_with_the_ring() {
    let counted = Arc::new(());
    let (tx, mut rx) = ring(4);
    for _ in 0..3 {
        tx.try_send(counted.clone()).unwrap();
    }
    assert!(rx.try_recv().is_some());
    for _ in 0..2 {
        tx.try_send(counted.clone()).unwrap();
    }
    assert_eq!(Arc::strong_count(&counted), 5);
    drop(tx);
    drop(rx);
    assert_eq!(Arc::strong_count(&counted), 1);
}

/// Everything sent arrives once and in each sender's order, with a ring so small that both sides wait often.
#[test]
#[allow(clippy::disallowed_methods)] // The point is real threads; nothing here depends on their order.
fn threads_lose_nothing() {
    const SENDERS: u64 = 3;
    const EACH: u64 = 20_000;
    let (tx, mut rx) = ring::<(u64, u64)>(4);
    let threads: Vec<_> = (0..SENDERS)
        .map(|s| {
            let tx = tx.clone();
            std::thread::spawn(move || {
                for i in 0..EACH {
                    block_on(tx.send((s, i))).unwrap();
                }
            })
        })
        .collect();
    drop(tx);
    let mut next = [0u64; SENDERS as usize];
    let mut out = Vec::new();
    while block_on(rx.recv_many(&mut out, 3)) > 0 {
        for (s, i) in out.drain(..) {
            assert_eq!(next[s as usize], i);
            next[s as usize] += 1;
        }
    }
    assert_eq!(next, [EACH; SENDERS as usize]);
    for t in threads {
        t.join().unwrap();
    }
}
