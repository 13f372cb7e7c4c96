//! The ring between cores: nothing lost, nothing twice, nobody asleep while there is work.

use loom::future::block_on;
use loom::thread;
use strandline_core::queue::{TrySendError, ring};

fn check(bound: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(f);
}

#[test]
fn two_senders_and_a_sleeping_receiver() {
    check(3, || {
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
        drop(tx);
        let mut got = Vec::new();
        while let Some(v) = block_on(rx.recv()) {
            got.push(v);
        }
        assert_eq!(got[..2], [0, 1]);
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3]);
        senders.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// loom also complains when the boxed value is dropped twice or never.
#[test]
fn a_receiver_that_goes_while_a_sender_sends() {
    check(3, || {
        let (tx, rx) = ring::<loom::sync::Arc<u32>>(2);
        let sender = thread::spawn(move || {
            for n in 0..3 {
                match tx.try_send(loom::sync::Arc::new(n)) {
                    Ok(()) => {}
                    Err(TrySendError::Closed(_)) => return,
                    Err(TrySendError::Full(v)) => {
                        // Nobody reads: only the receiver's end can wake us.
                        assert!(block_on(tx.send(v)).is_err());
                        return;
                    }
                }
            }
        });
        drop(rx);
        sender.join().unwrap();
    });
}
