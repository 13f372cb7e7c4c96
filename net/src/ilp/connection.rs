//! One line-protocol connection over TCP: read, parse, hand over, read on while that commits.
//!
//! A batch is handed over when the socket has nothing more to read and nothing of this connection is being
//! committed, or when it is large. So a lone line commits at once, and under load each commit gathers
//! what came during the one before, without a timer. What is parsed and not durable is bounded: past the
//! bound the socket is not read, which is all the answer that TCP can give.

use super::buffer::LineBuffer;
use super::counters::IlpCounters;
use super::parser::{IlpOptions, Parser, Step};
use super::table::ShardWrite;
use futures_lite::{AsyncRead, AsyncWrite};
use futures_util::stream::{FuturesUnordered, Stream};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use strandline_core::error::{Error, SqlState};
use strandline_core::ids::TableId;
use strandline_core::io::{LocalFuture, Tasks};
use strandline_shard::api::Engine;

/// First and longest pause before a write that was refused for want of disk or memory is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// What the connections of one executor share.
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

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// A write that has ended.
struct Written {
    bytes: u64,
    outcome: Result<(), Error>,
}

enum Event {
    Read(std::io::Result<usize>),
    Written(Written),
    /// Nothing to read, nothing being committed, rows to hand over.
    Idle,
    Stop,
}

/// Serves one connection to its end, which is the client's clean close, a broken line, a dead shard, or
/// `stop`. On a clean close and on `stop` it ends only once everything read is durable.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: &str,
    cx: IlpContext,
    stop: LocalFuture<'_, ()>,
) {
    let _open = Open::new(&cx.counters);
    let limits = cx.engine.limits().clone();
    let mut connection = Connection {
        input: LineBuffer::new(limits.ilp_line_bytes),
        parser: Parser::new(
            limits.clone(),
            cx.options.clone(),
            cx.engine.shards(),
            cx.engine.catalog(),
        ),
        stream,
        stop,
        peer,
        in_flight: FuturesUnordered::new(),
        in_flight_bytes: 0,
        in_flight_max: limits.ilp_in_flight_bytes,
        log_rate: limits.ilp_log_lines_per_second,
        blocked: Rc::new(Cell::new(0)),
        cx,
    };
    if let Err(error) = connection.run().await {
        let lost = connection.parser.rows() as u64;
        add(&connection.cx.counters.rows_lost_total, lost);
        tracing::error!(
            peer,
            lost,
            "line protocol: the connection is closed: {error}"
        );
    }
}

struct Connection<'a, S> {
    input: LineBuffer,
    parser: Parser,
    stream: S,
    stop: LocalFuture<'a, ()>,
    peer: &'a str,
    in_flight: FuturesUnordered<LocalFuture<'static, Written>>,
    in_flight_bytes: u64,
    in_flight_max: u64,
    log_rate: u64,
    /// Writes that wait for disk or memory.
    blocked: Rc<Cell<u32>>,
    cx: IlpContext,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    async fn run(&mut self) -> Result<(), Error> {
        loop {
            match self.event().await {
                Event::Read(Ok(count @ 1..)) => {
                    add(&self.cx.counters.received_bytes, count as u64);
                    self.input.filled(count);
                    self.parse().await?;
                }
                Event::Read(Ok(0)) => {
                    self.input.finish();
                    self.parse().await?;
                    break;
                }
                Event::Read(Err(e)) => {
                    tracing::debug!(peer = self.peer, "line protocol: the connection broke: {e}");
                    break;
                }
                Event::Written(done) => self.settle(done)?,
                Event::Idle => self.hand_over()?,
                Event::Stop => break,
            }
        }
        // Whole lines that came before the end are written, however it ended.
        self.hand_over()?;
        while let Some(done) = self.next_written().await {
            self.settle(done)?;
        }
        Ok(())
    }

    /// Waits for the next thing to happen.
    async fn event(&mut self) -> Event {
        let may_read = self.in_flight_bytes < self.in_flight_max && self.blocked.get() == 0;
        poll_fn(|cx| {
            if let Poll::Ready(Some(done)) = Pin::new(&mut self.in_flight).poll_next(cx) {
                return Poll::Ready(Event::Written(done));
            }
            if self.stop.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Stop);
            }
            if may_read
                && let Poll::Ready(read) =
                    Pin::new(&mut self.stream).poll_read(cx, self.input.space())
            {
                return Poll::Ready(Event::Read(read));
            }
            if self.in_flight.is_empty() && self.parser.rows() > 0 {
                return Poll::Ready(Event::Idle);
            }
            Poll::Pending
        })
        .await
    }

    async fn next_written(&mut self) -> Option<Written> {
        poll_fn(|cx| Pin::new(&mut self.in_flight).poll_next(cx)).await
    }

    /// Parses every whole line that is there.
    async fn parse(&mut self) -> Result<(), Error> {
        let cx = self.cx.clone();
        self.parser.sync(&cx.engine.catalog());
        loop {
            let now_ms = cx.engine.now_ms();
            let mut report = |error: &super::BadLine, line: &[u8]| {
                let now_ns = cx.engine.monotonic_ns();
                cx.counters
                    .bad_line(error, line, self.peer, now_ns, self.log_rate);
            };
            match self.parser.step(&mut self.input, now_ms, &mut report) {
                Step::Drained => return Ok(()),
                Step::More => {
                    if cx.tasks.should_yield() {
                        cx.tasks.yield_if_needed().await;
                    }
                }
                Step::Full => {
                    self.hand_over()?;
                    while self.in_flight_bytes >= self.in_flight_max || self.blocked.get() > 0 {
                        match self.next_written().await {
                            Some(done) => self.settle(done)?,
                            None => break,
                        }
                    }
                }
                Step::Needs { table, columns } => {
                    self.ensure(&table, columns).await;
                }
            }
        }
    }

    /// Has the engine make what a line needs. Its refusal makes the line bad.
    async fn ensure(&mut self, table: &str, columns: Vec<strandline_core::schema::ColumnSpec>) {
        let mut pause = RETRY.0;
        loop {
            match self.cx.engine.ensure_columns(table, columns.clone()).await {
                Ok(def) => return self.parser.install(def),
                Err(e) if is_passing(&e) => {
                    add(&self.cx.counters.retries_total, 1);
                    tracing::warn!(peer = self.peer, table, "line protocol waits: {e}");
                    self.cx.tasks.sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
                Err(e) => return self.parser.refuse(e.message()),
            }
        }
    }

    /// Hands the parsed rows to the engine, in order; they commit while the next ones are read.
    fn hand_over(&mut self) -> Result<(), Error> {
        for write in self.parser.take() {
            // The copy that a retry needs is held beside the one that the engine takes.
            let bytes = write.batch.memory_bytes() as u64 * 2;
            self.in_flight_bytes += bytes;
            self.in_flight.push(Box::pin(write_until_done(
                self.cx.clone(),
                write,
                bytes,
                self.blocked.clone(),
            )));
        }
        // The engine has a write once its future was polled: now, in this order, not after the next parse.
        let waker = std::task::Waker::noop();
        let mut poll = std::task::Context::from_waker(waker);
        while let Poll::Ready(Some(done)) = Pin::new(&mut self.in_flight).poll_next(&mut poll) {
            self.settle(done)?;
        }
        Ok(())
    }

    fn settle(&mut self, done: Written) -> Result<(), Error> {
        self.in_flight_bytes -= done.bytes;
        done.outcome
    }
}

/// Lines whose entities are too many for their table: each is a bad line.
fn refused_entities(cx: &IlpContext, table: TableId, lines: u64) {
    let catalog = cx.engine.catalog();
    let limits = cx.engine.limits();
    let error = limits.exceeded(
        "entities",
        SqlState::ProgramLimitExceeded,
        format_args!(
            "{lines} lines bring too many entities for table {}",
            catalog.table_by_id(table).map_or("", |t| &t.name)
        ),
    );
    let now_ns = cx.engine.monotonic_ns();
    cx.counters.bad_rows(
        error.message(),
        lines,
        now_ns,
        limits.ilp_log_lines_per_second,
    );
}

/// Whether waiting helps.
fn is_passing(e: &Error) -> bool {
    matches!(e.state(), SqlState::DiskFull | SqlState::OutOfMemory)
}

/// Writes one shard's batch. It keeps trying while the disk or the memory is full; then nothing was written,
/// so that trying again makes no row twice.
async fn write_until_done(
    cx: IlpContext,
    write: ShardWrite,
    bytes: u64,
    blocked: Rc<Cell<u32>>,
) -> Written {
    let rows = write.batch.rows() as u64;
    let mut pause = RETRY.0;
    loop {
        let batch = write.batch.clone();
        let outcome = match cx.engine.write_lines(write.table, write.shard, batch).await {
            Ok(left_out) => {
                add(&cx.counters.rows_total, rows - left_out);
                if left_out > 0 {
                    refused_entities(&cx, write.table, left_out);
                }
                Ok(())
            }
            Err(e) if is_passing(&e) => {
                add(&cx.counters.retries_total, 1);
                if pause == RETRY.0 {
                    tracing::warn!(rows, "line protocol waits: {e}");
                }
                blocked.set(blocked.get() + 1);
                cx.tasks.sleep(pause).await;
                blocked.set(blocked.get() - 1);
                pause = (pause * 2).min(RETRY.1);
                continue;
            }
            Err(e) if e.state() == SqlState::UndefinedTable => {
                // Dropped under the writer: its rows went with it, and the next line makes it anew.
                add(&cx.counters.rows_lost_total, rows);
                tracing::warn!(rows, "line protocol: rows of a dropped table are gone: {e}");
                Ok(())
            }
            Err(e) => {
                add(&cx.counters.rows_lost_total, rows);
                Err(e)
            }
        };
        return Written { bytes, outcome };
    }
}
