//! Mailboxes: the way of a job to another executor. Each executor reads one bounded ring of `core::queue`, and
//! all others put jobs into it.
//!
//! ```text
//! send ─► ring of the other executor ─► its serving task ─► job(&state)
//!   │ full                 ▲
//!   ▼                      │ as room comes, in order
//! overflow, per receiver ──┘
//! ```
//! [`Hop::send`] neither waits nor refuses, so what a full ring cannot take goes to the sender's own overflow,
//! and everything after it too, until a task has handed it all over: the order of sending is kept. Two
//! executors that fill each other's rings cannot lock up: the serving task waits for nobody, so a ring that
//! is full always empties.
//!
//! The overflow is as small as what the executor has admitted: a statement sends each shard one message and
//! waits for its answer, and a line-protocol connection is not read while `ilp_in_flight_bytes` of it are on
//! their way.

use super::executors::spawn;
use crate::hop::{Hop, Job};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use strandline_core::io::TaskQueue;
use strandline_core::queue::{Receiver, Sender, TrySendError, ring};

/// Jobs that one executor's ring takes: one of each connection, of which there are 1000 by default, and some
/// of the shards' own; 24 KiB.
const RING_JOBS: usize = 1024;

/// A ring for each of `count` executors.
pub(super) fn rings(count: usize) -> (Vec<Sender<Job>>, Vec<Receiver<Job>>) {
    (0..count).map(|_| ring(RING_JOBS)).unzip()
}

struct Way {
    ring: Sender<Job>,
    overflow: RefCell<VecDeque<Job>>,
    /// A task hands the overflow over; until it is done nothing may overtake it.
    handing_over: Cell<bool>,
}

/// What one executor has on its way to the others.
pub(super) struct Outbox {
    ways: Vec<Way>,
    closed: Cell<bool>,
}

impl Outbox {
    pub(super) fn new(rings: &[Sender<Job>]) -> Rc<Outbox> {
        let way = |ring: &Sender<Job>| Way {
            ring: ring.clone(),
            overflow: RefCell::default(),
            handing_over: Cell::new(false),
        };
        Rc::new(Outbox {
            ways: rings.iter().map(way).collect(),
            closed: Cell::new(false),
        })
    }

    /// The executor ends: what was not handed over is dropped, and so is what is sent from now on.
    pub(super) fn close(&self) {
        self.closed.set(true);
        for way in &self.ways {
            // Taken first: a job that is dropped may send another.
            drop(way.overflow.take());
        }
    }
}

/// The mailboxes of all executors, for one that sends.
#[derive(Clone)]
pub struct Mailboxes(pub(super) Rc<Outbox>);

impl Hop for Mailboxes {
    fn send(&self, executor: usize, job: Job) {
        let Some(way) = self.0.ways.get(executor) else {
            return;
        };
        if self.0.closed.get() {
            return;
        }
        if way.handing_over.get() {
            way.overflow.borrow_mut().push_back(job);
            return;
        }
        match way.ring.try_send(job) {
            // Closed: that executor has ended, and the job is dropped, as promised.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(job)) => {
                way.overflow.borrow_mut().push_back(job);
                way.handing_over.set(true);
                spawn(TaskQueue::Ingest, hand_over(self.0.clone(), executor));
            }
        }
    }
}

async fn hand_over(outbox: Rc<Outbox>, executor: usize) {
    let way = &outbox.ways[executor];
    loop {
        let next = way.overflow.borrow_mut().pop_front();
        let Some(job) = next else { break };
        // Closed: dropped, and so are the rest, one by one.
        let _ = way.ring.send(job).await;
    }
    // Nothing was awaited since the look.
    way.handing_over.set(false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::executors::{ExecutorContext, Executors};
    use futures_channel::oneshot;
    use std::any::Any;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use strandline_core::error::{Error, Result};

    /// What each executor has seen: the next number of each sender's each stream.
    struct Seen(RefCell<Vec<Vec<u32>>>);

    fn lost<E>(_: E) -> Error {
        Error::internal("a job was dropped")
    }

    /// All executors flood each other at once, with rings far smaller than what is on its way.
    #[test]
    fn floods_in_all_directions_arrive_once_and_in_order() {
        const EXECUTORS: usize = 3;
        const STREAMS: usize = 4;
        const EACH: u32 = 20_000;
        async fn flood(cx: ExecutorContext, ended: Arc<AtomicUsize>) -> Result<()> {
            let seen = Rc::new(Seen(RefCell::new(vec![vec![0; STREAMS]; EXECUTORS])));
            cx.serve(seen.clone());
            let (mailboxes, from) = (cx.mailboxes(), cx.index());
            let mut ends = Vec::new();
            for stream in 0..STREAMS {
                let (end, ended) = oneshot::channel();
                ends.push(ended);
                let mailboxes = mailboxes.clone();
                spawn(TaskQueue::Ingest, async move {
                    let mut replies = Vec::new();
                    // Some in one go, so that rings are full for certain; then with turns for the others.
                    for n in 0..EACH {
                        for to in 0..EXECUTORS {
                            let (reply, answer) = oneshot::channel();
                            let job = move |state: &Rc<dyn Any>| {
                                let seen = state.downcast_ref::<Seen>().unwrap();
                                let next = &mut seen.0.borrow_mut()[from][stream];
                                assert_eq!(*next, n, "from {from}, stream {stream}");
                                *next += 1;
                                let _ = reply.send(());
                            };
                            mailboxes.send(to, Box::new(job));
                            if n + 1 == EACH {
                                replies.push(answer);
                            }
                        }
                        if n > EACH / 2 && n % 16 == 0 {
                            futures_lite::future::yield_now().await;
                        }
                    }
                    for answer in replies {
                        answer.await.expect("the last job was run, so all were");
                    }
                    let _ = end.send(());
                });
            }
            for ended in ends {
                ended.await.map_err(lost)?;
            }
            if ended.fetch_add(1, Ordering::AcqRel) + 1 == EXECUTORS {
                cx.stop();
            }
            // Nobody may end while the others still send here.
            cx.stopped().await;
            let seen = seen.0.borrow();
            assert!(seen.iter().flatten().all(|n| *n == EACH), "{seen:?}");
            for way in &mailboxes.0.ways {
                assert!(!way.handing_over.get() && way.overflow.borrow().is_empty());
            }
            Ok(())
        }
        let ended = Arc::new(AtomicUsize::new(0));
        let executors = Executors::start(EXECUTORS, move |cx| Box::pin(flood(cx, ended.clone())));
        executors.unwrap().join().unwrap();
    }

    /// More than a ring holds is on its way to an executor that ends without having looked at any of it.
    #[test]
    fn jobs_for_an_executor_that_ends_are_dropped_wherever_they_are() {
        const JOBS: usize = 3 * RING_JOBS;
        let (end, told) = flume::bounded::<()>(1);
        let executors = Executors::start(2, move |cx| {
            let (end, told) = (end.clone(), told.clone());
            Box::pin(async move {
                if cx.index() == 1 {
                    return told.recv_async().await.map_err(lost);
                }
                let mailboxes = cx.mailboxes();
                let send = || {
                    let (reply, answer) = oneshot::channel::<()>();
                    mailboxes.send(1, Box::new(move |_| reply.send(()).unwrap_or(())));
                    answer
                };
                let answers: Vec<_> = (0..JOBS).map(|_| send()).collect();
                assert!(mailboxes.0.ways[1].handing_over.get());
                end.send_async(()).await.map_err(lost)?;
                for answer in answers {
                    assert!(answer.await.is_err(), "nobody served it");
                }
                assert!(send().await.is_err(), "it has ended");
                Ok(())
            })
        });
        executors.unwrap().join().unwrap();
    }

    /// The sender ends with jobs that it could not hand over: they are dropped with it.
    #[test]
    fn what_an_executor_has_not_handed_over_ends_with_it() {
        let counted = Arc::new(());
        let held = counted.clone();
        let executors = Executors::start(2, move |cx| {
            let held = held.clone();
            Box::pin(async move {
                if cx.index() == 0 {
                    // It does not serve, and lives longer.
                    cx.stopped().await;
                    return Ok(());
                }
                let mailboxes = cx.mailboxes();
                for _ in 0..2 * RING_JOBS {
                    let held = held.clone();
                    mailboxes.send(0, Box::new(move |_| drop(held)));
                }
                let overflow = mailboxes.clone();
                spawn(TaskQueue::Background, async move {
                    let _kept = overflow;
                    std::future::pending().await
                });
                cx.stop();
                Ok(())
            })
        });
        executors.unwrap().join().unwrap();
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
