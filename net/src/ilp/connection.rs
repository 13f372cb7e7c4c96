//! One line-protocol connection over TCP. It has no way to answer: bad lines are logged, and the server's
//! close of its side says that everything is durable.

use super::bad::BadLine;
use super::counters::IlpCounters;
use super::parser::IlpOptions;
use super::pump::{Complaints, End, Pump, Stop, add};
use futures_lite::{AsyncRead, AsyncWrite};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use strandline_core::error::Error;
use strandline_core::io::{LocalFuture, Tasks};
use strandline_shard::api::Engine;

/// What the streams of lines of one executor share.
#[derive(Clone)]
pub struct IlpContext {
    /// The engine.
    pub engine: Rc<dyn Engine>,
    /// For yielding and for pauses between retries.
    pub tasks: Rc<dyn Tasks>,
    /// Shared by all executors.
    pub counters: Arc<IlpCounters>,
    /// The listener's.
    pub options: IlpOptions,
}

/// Counts a connection for as long as it is open.
struct Open(Arc<IlpCounters>);

impl Open {
    fn new(counters: &Arc<IlpCounters>) -> Self {
        add(&counters.connections_total, 1);
        add(&counters.connections_open, 1);
        Open(counters.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts what is read.
struct Counted<S> {
    stream: S,
    counters: Arc<IlpCounters>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<std::io::Result<usize>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Ok(count)) = read {
            add(&self.counters.received_bytes, count as u64);
        }
        read
    }
}

/// Counts and logs.
struct Log<'a> {
    cx: IlpContext,
    peer: &'a str,
}

impl Complaints for Log<'_> {
    fn bad_line(&mut self, error: &BadLine, line: &[u8]) {
        let (now_ns, engine) = (self.cx.engine.monotonic_ns(), &self.cx.engine);
        let per_second = engine.limits().ilp_log_lines_per_second;
        self.cx
            .counters
            .bad_line(error, line, self.peer, now_ns, per_second);
    }
    fn left_out(&mut self, why: &Error, lines: u64, _: (u64, u64)) {
        let (now_ns, engine) = (self.cx.engine.monotonic_ns(), &self.cx.engine);
        let per_second = engine.limits().ilp_log_lines_per_second;
        self.cx
            .counters
            .bad_rows(why.message(), lines, self.peer, now_ns, per_second);
    }
}

/// Serves one connection to its end, which is the client's clean close, a broken line, a dead shard, or
/// `stop`. On a clean close and on `stop` it ends only once everything read is durable; whole lines that came
/// before the line broke are written too.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: &str,
    cx: IlpContext,
    stop: LocalFuture<'_, ()>,
) {
    let _open = Open::new(&cx.counters);
    let mut stop = Stop::new(stop);
    let counters = cx.counters.clone();
    let stream = Counted {
        stream,
        counters: counters.clone(),
    };
    let log = Log {
        cx: cx.clone(),
        peer,
    };
    let mut pump = Pump::new(stream, true, cx, &mut stop, log);
    match pump.run().await {
        Ok(End::Broken(e)) => tracing::debug!(peer, "line protocol: the connection broke: {e}"),
        Ok(End::Whole | End::Stopped) => {}
        Err(error) => {
            let lost = pump.rows_left();
            add(&counters.rows_lost_total, lost);
            tracing::error!(
                peer,
                lost,
                "line protocol: the connection is closed: {error}"
            );
        }
    }
}
