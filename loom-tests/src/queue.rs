//! The ring between cores: nothing lost, nothing twice, nobody asleep while there is work.

use crate::complaint;
use loom::future::block_on;
use loom::sync::atomic::Ordering;
use loom::thread;
use std::mem::ManuallyDrop;
use strandline_core::queue::{Orders, TrySendError, ring, ring_with};

fn check(bound: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(f);
}

#[test]
fn two_senders_and_a_sleeping_receiver() {
    check(2, || {
        let (tx, mut rx) = ring::<Box<u32>>(2);
        let senders: Vec<_> = (0..2u32)
            .map(|n| {
                let tx = tx.clone();
                thread::spawn(move || tx.try_send(Box::new(n)).unwrap())
            })
            .collect();
        drop(tx);
        let mut got = Vec::new();
        while let Some(v) = block_on(rx.recv()) {
            got.push(*v);
        }
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
        senders.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn a_sender_that_waits_for_room_is_woken() {
    check(3, || {
        let (tx, mut rx) = ring::<Box<u32>>(2);
        let sender = thread::spawn(move || {
            for n in 0..3 {
                block_on(tx.send(Box::new(n))).unwrap();
            }
        });
        let mut got = Vec::new();
        while block_on(rx.recv_many(&mut got, 2)) > 0 {}
        assert_eq!(got, [0, 1, 2].map(Box::new));
        sender.join().unwrap();
    });
}

#[test]
fn two_waiting_senders_and_a_small_ring() {
    check(2, || {
        let (tx, mut rx) = ring::<u32>(2);
        tx.try_send(0).unwrap();
        tx.try_send(1).unwrap();
        let senders: Vec<_> = [2u32, 3]
            .into_iter()
            .map(|n| {
                let tx = tx.clone();
                thread::spawn(move || block_on(tx.send(n)).unwrap())
            })
            .collect();
        // Not up to the end of all senders: that is another test's, and would take minutes here.
        let mut got: Vec<u32> = (0..4).filter_map(|_| block_on(rx.recv())).collect();
        assert_eq!(got[..2], [0, 1]);
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3]);
        senders.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// A sender whose room comes from the receiver's end may be told that its value was sent; then it was dropped
/// at once, and not when the last sender goes: a reply that somebody waits for may hang on it. loom also
/// complains when a value is dropped twice or never.
#[test]
fn a_receiver_that_goes_while_a_sender_sends() {
    check(3, || {
        let (tx, rx) = ring::<loom::sync::Arc<u32>>(2);
        let value = loom::sync::Arc::new(7);
        let sender = {
            let (tx, value) = (tx.clone(), value.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    match tx.try_send(value.clone()) {
                        Ok(()) => {}
                        Err(TrySendError::Closed(_)) => return,
                        Err(TrySendError::Full(v)) => {
                            // Nobody reads: only the receiver's end can wake us.
                            if block_on(tx.send(v)).is_ok() {
                                assert!(tx.is_closed());
                            }
                            return;
                        }
                    }
                }
            })
        };
        drop(rx);
        sender.join().unwrap();
        assert!(tx.is_closed());
        assert_eq!(loom::sync::Arc::strong_count(&value), 1, "a value stays");
    });
}

/// Two senders at once into a ring whose receiver goes: the one that is ahead may publish last.
#[test]
fn a_receiver_that_goes_while_two_senders_send() {
    check(2, || {
        let (tx, rx) = ring::<loom::sync::Arc<u32>>(2);
        let value = loom::sync::Arc::new(7);
        let senders = [(); 2].map(|()| {
            let (tx, value) = (tx.clone(), value.clone());
            thread::spawn(move || drop(tx.try_send(value)))
        });
        drop(rx);
        senders.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(loom::sync::Arc::strong_count(&value), 1, "a value stays");
    });
}

/// One sender, one receiver, more values than slots: every slot is used twice.
fn passes_values(orders: Orders) {
    check(3, move || {
        let (tx, rx) = ring_with::<u32>(2, orders);
        // A broken model ends inside the ring: its ends must not be dropped on the way out.
        let (tx, mut rx) = (ManuallyDrop::new(tx), ManuallyDrop::new(rx));
        let sender = thread::spawn(move || {
            for n in 0..3 {
                block_on(tx.send(n)).unwrap();
            }
            drop(ManuallyDrop::into_inner(tx));
        });
        for n in 0..3 {
            assert_eq!(block_on(rx.recv()), Some(n));
        }
        sender.join().unwrap();
        drop(ManuallyDrop::into_inner(rx));
    });
}

#[test]
fn values_pass_with_the_orders_that_run() {
    passes_values(Orders::SOUND);
}

#[test]
fn a_relaxed_publish_of_a_slot_is_found() {
    let said = complaint(|| {
        passes_values(Orders {
            publish: Ordering::Relaxed,
            ..Orders::SOUND
        })
    });
    assert!(said.contains("Causality violation"), "{said}");
}

#[test]
fn a_slot_given_back_relaxed_is_found() {
    let said = complaint(|| {
        passes_values(Orders {
            free: Ordering::Relaxed,
            ..Orders::SOUND
        })
    });
    assert!(said.contains("Causality violation"), "{said}");
}
