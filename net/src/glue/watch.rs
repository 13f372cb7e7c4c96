//! Stops a read when its client cancels or its time is up. Stopping drops the read's future, and with it the
//! work in the shards. Writes are not watched: once handed to the engine they run to their end, because the
//! client could not know otherwise whether they are durable.

use crate::pg::cancel::Cancel;
use futures_lite::future::poll_fn;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::io::{LocalFuture, Tasks};

/// Watches one statement.
pub struct Watch {
    cancel: Arc<Cancel>,
    timer: Option<LocalFuture<'static, ()>>,
}

impl Watch {
    /// From now on. A cancel request from before is forgotten. `timeout_ms` 0: no timeout.
    pub fn start(cancel: Arc<Cancel>, tasks: &Rc<dyn Tasks>, timeout_ms: u64) -> Self {
        cancel.reset();
        let timer = (timeout_ms > 0).then(|| {
            let tasks = tasks.clone();
            let timer: LocalFuture<'static, ()> =
                Box::pin(async move { tasks.sleep(Duration::from_millis(timeout_ms)).await });
            timer
        });
        Watch { cancel, timer }
    }

    /// The future's result, or `57014` if a cancel or the timeout comes first.
    pub async fn run<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = pin!(work);
        let Watch { cancel, timer } = self;
        poll_fn(|cx| {
            // Looked at first, so that work that never waits is stopped too.
            if cancel.poll_requested(cx).is_ready() {
                return Poll::Ready(Err(stopped("canceling statement due to user request")));
            }
            if let Some(t) = timer
                && t.as_mut().poll(cx).is_ready()
            {
                // Polling it again would be an error.
                *timer = None;
                return Poll::Ready(Err(stopped("canceling statement due to statement timeout")));
            }
            work.as_mut().poll(cx)
        })
        .await
    }
}

/// For work that runs without a break: `57014` when a cancel has come, or the time is up.
pub fn asked_to_stop(cancel: &Cancel, late: bool) -> Result<()> {
    if cancel.is_requested() {
        return Err(stopped(BY_USER));
    }
    if late { Err(stopped(LATE)) } else { Ok(()) }
}

const BY_USER: &str = "canceling statement due to user request";
const LATE: &str = "canceling statement due to statement timeout";

fn stopped(message: &str) -> Error {
    Error::new(SqlState::QueryCanceled, message)
}
