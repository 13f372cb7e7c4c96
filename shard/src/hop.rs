//! Crossing to another executor. The real mailbox stands in `runtime/`, the simulated one in `tests/sim`.

use std::any::Any;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// What is done on another executor. It gets what that executor serves (the value it gave to its
/// mailbox), must not block, and starts a task of its own there for anything that waits.
pub type Job = Box<dyn FnOnce(&Rc<dyn Any>) + Send>;

/// Sends work to executors.
pub trait Hop {
    /// Runs `job` on executor `executor` soon, in the order of sending. It never waits, so whoever sends
    /// must bound what is on its way: by an answer that it waits for, or by bytes in flight. Work for an
    /// executor that has ended is dropped, which the sender notices by whatever reply it waits for being
    /// dropped too; and so is what an executor could not hand over before it ended itself.
    fn send(&self, executor: usize, job: Job);
}

/// The answer of a read, or `None` once nobody wants it any more: a statement that is cancelled, times out or
/// loses its client ends on all shards, and gives back what it held. Looked at at each step of the work, which
/// for anything long is once in a time slice.
pub async fn while_wanted<T>(
    unwanted: impl Fn() -> bool,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| match unwanted() {
        true => Poll::Ready(None),
        false => work.as_mut().poll(cx).map(Some),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_channel::oneshot;
    use futures_lite::future::{block_on, poll_once, yield_now};
    use std::cell::Cell;

    #[test]
    fn work_ends_with_whoever_wants_it() {
        let (steps, held) = (Rc::new(Cell::new(0)), Rc::new(()));
        let (tx, rx) = oneshot::channel::<u32>();
        let work = {
            let (steps, held) = (steps.clone(), held.clone());
            async move {
                let _held = held;
                loop {
                    steps.set(steps.get() + 1);
                    yield_now().await;
                }
            }
        };
        block_on(async {
            let mut wanted = pin!(while_wanted(|| tx.is_canceled(), work));
            for n in 1..5 {
                assert!(poll_once(wanted.as_mut()).await.is_none());
                assert_eq!(steps.get(), n);
            }
            drop(rx);
            let ended: Option<Option<u32>> = poll_once(wanted.as_mut()).await;
            assert_eq!(ended, Some(None));
            assert_eq!(steps.get(), 4);
        });
        assert_eq!(Rc::strong_count(&held), 1, "what it held is given back");
        assert_eq!(block_on(while_wanted(|| false, async { 7 })), Some(7));
    }
}
