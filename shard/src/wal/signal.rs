//! Waiting on this executor until something is so.

use std::cell::RefCell;
use std::task::{Poll, Waker};

/// Wakes everybody who waits; each looks again for itself.
#[derive(Debug, Default)]
pub(super) struct Signal(RefCell<Vec<Waker>>);

impl Signal {
    /// Something may have changed.
    pub(super) fn notify(&self) {
        // Taken first: a waker may run code that waits again.
        let waiting = std::mem::take(&mut *self.0.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until `look` answers.
    pub(super) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        std::future::poll_fn(|cx| match look() {
            Some(answer) => Poll::Ready(answer),
            None => {
                let mut waiting = self.0.borrow_mut();
                if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}
