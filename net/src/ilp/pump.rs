//! From a stream of lines to the engine: read, parse, hand over, read on while that commits. The stream is a
//! TCP connection or the body of an HTTP request.
//!
//! A batch is handed over when it is large; over TCP also when the socket has nothing more to read and
//! nothing of this stream is being committed. So a lone line commits at once, and under load each commit
//! gathers what came during the one before, without a timer.
//!
//! What is parsed and not durable is bounded, for a stream (`ilp_in_flight_bytes`) and for all of them
//! (`ilp_in_flight_total_bytes`): past a bound the stream is not read, which is all the answer that TCP can
//! give. A stream that has less than [`FLOOR_BYTES`] of it is read whatever the others hold, so that no few
//! greedy writers shut the others out.

use super::bad::BadLine;
use super::buffer::LineBuffer;
use super::connection::IlpContext;
use super::parser::{Parser, Step};
use super::table::ShardWrite;
use futures_lite::AsyncRead;
use futures_util::stream::{FuturesUnordered, Stream};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::TableId;
use strandline_core::io::LocalFuture;
use strandline_core::schema::ColumnSpec;

/// First and longest pause before a write that was refused for want of disk or memory is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// What a stream may have in flight however much the others have.
const FLOOR_BYTES: u64 = 16 << 10;

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// A future that may be asked again after it was ready.
pub(crate) struct Stop<'a> {
    future: LocalFuture<'a, ()>,
    heard: bool,
}

impl<'a> Stop<'a> {
    /// Not asked yet.
    pub fn new(future: LocalFuture<'a, ()>) -> Self {
        Stop {
            future,
            heard: false,
        }
    }

    /// Whether it is time to stop.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.heard = self.heard || self.future.as_mut().poll(cx).is_ready();
        self.heard
    }
}

/// Who is told about lines that are not written.
pub(crate) trait Complaints {
    /// A line is bad.
    fn bad_line(&mut self, error: &BadLine, line: &[u8]);
    /// The engine left out so many `lines`, somewhere in `among` (first and last, from 1).
    fn left_out(&mut self, why: &Error, lines: u64, among: (u64, u64));
}

/// How a stream ended.
#[derive(Debug)]
pub(crate) enum End {
    /// By its own end.
    Whole,
    /// By an error of reading.
    Broken(std::io::Error),
    /// Because the server stops.
    Stopped,
}

/// What one stream of lines needs on its way.
pub(crate) struct Pump<'a, 'b, S, C> {
    stream: S,
    /// TCP: waits a full disk out, since it has no other answer, and writes what came before a break. HTTP
    /// tells its client instead, who sends the body again.
    patient: bool,
    stop: &'a mut Stop<'b>,
    complaints: C,
    cx: IlpContext,
    input: LineBuffer,
    parser: Parser,
    in_flight: FuturesUnordered<LocalFuture<'static, Written>>,
    in_flight_bytes: u64,
    /// What of this stream stands in the counter of all.
    counted_bytes: u64,
    /// Writes that wait for disk or memory.
    blocked: Rc<Cell<u32>>,
    /// Lines that had ended when rows were taken last.
    taken_lines: u64,
    counted_lines: u64,
    rows_written: u64,
}

/// A write that has ended.
struct Written {
    bytes: u64,
    rows: u64,
    table: TableId,
    lines: (u64, u64),
    /// Rows that were left out.
    outcome: Result<u64>,
}

enum Event {
    Read(std::io::Result<usize>),
    Written(Written),
    /// Rows to hand over, and nothing else to do.
    Idle,
    Stop,
}

impl<'a, 'b, S: AsyncRead + Unpin, C: Complaints> Pump<'a, 'b, S, C> {
    pub fn new(
        stream: S,
        patient: bool,
        cx: IlpContext,
        stop: &'a mut Stop<'b>,
        complaints: C,
    ) -> Self {
        let limits = cx.engine.limits();
        Pump {
            input: LineBuffer::new(limits.ilp_line_bytes),
            parser: Parser::new(
                limits.clone(),
                cx.options.clone(),
                cx.engine.shards(),
                cx.engine.catalog(),
            ),
            stream,
            patient,
            stop,
            complaints,
            cx,
            in_flight: FuturesUnordered::new(),
            in_flight_bytes: 0,
            counted_bytes: 0,
            blocked: Rc::default(),
            taken_lines: 0,
            counted_lines: 0,
            rows_written: 0,
        }
    }

    /// Rows that are durable and visible.
    pub fn rows_written(&self) -> u64 {
        self.rows_written
    }
    /// Rows that are parsed and were never handed over.
    pub fn rows_left(&self) -> u64 {
        self.parser.rows() as u64
    }
    /// Lines that have ended.
    pub fn lines(&self) -> u64 {
        self.parser.lines()
    }
    /// The stream and who was told.
    pub fn parts(&mut self) -> (&mut S, &mut C) {
        (&mut self.stream, &mut self.complaints)
    }

    /// Reads to the end. All that was handed over is durable when it answers; after a break or a stop the
    /// impatient hand nothing more over.
    ///
    /// # Errors
    /// A write that failed for good.
    pub async fn run(&mut self) -> Result<End> {
        let mut ended = self.read_on().await;
        if let Ok(end) = &ended
            && (self.patient || matches!(end, End::Whole))
            && let Err(e) = self.hand_over()
        {
            ended = Err(e);
        }
        // After an error too, since only then it is known how much is durable; but the patient might wait for
        // ever.
        while ended.is_ok() || !self.patient {
            let Some(done) = self.next_written().await else {
                break;
            };
            if let Err(e) = self.settle(done)
                && ended.is_ok()
            {
                ended = Err(e);
            }
        }
        self.count();
        ended
    }

    async fn read_on(&mut self) -> Result<End> {
        loop {
            match self.event().await {
                Event::Read(Ok(0)) => {
                    self.input.finish();
                    self.parse().await?;
                    return Ok(End::Whole);
                }
                Event::Read(Ok(count)) => {
                    self.input.filled(count);
                    self.parse().await?;
                }
                Event::Read(Err(e)) => return Ok(End::Broken(e)),
                Event::Written(done) => self.settle(done)?,
                Event::Idle => self.hand_over()?,
                Event::Stop => return Ok(End::Stopped),
            }
        }
    }

    /// Whether there is room for more.
    fn may_read(&mut self) -> bool {
        self.count();
        let limits = self.cx.engine.limits();
        let all = &self.cx.counters.in_flight_bytes;
        self.blocked.get() == 0
            && self.counted_bytes < limits.ilp_in_flight_bytes
            && (self.counted_bytes < FLOOR_BYTES
                || all.load(Ordering::Relaxed) < limits.ilp_in_flight_total_bytes)
    }

    /// Brings what all streams together have up to date.
    fn count(&mut self) {
        let counters = &self.cx.counters;
        let now = self.in_flight_bytes + self.parser.gathered_bytes() as u64;
        // Adding the difference, which wraps where it is negative.
        add(
            &counters.in_flight_bytes,
            now.wrapping_sub(self.counted_bytes),
        );
        self.counted_bytes = now;
        let lines = self.parser.lines();
        add(&counters.lines_total, lines - self.counted_lines);
        self.counted_lines = lines;
    }

    /// Waits for the next thing to happen.
    async fn event(&mut self) -> Event {
        let may_read = self.may_read();
        let mut rested = false;
        if may_read {
            let streams = self.cx.counters.streams_open();
            let total = self.cx.engine.limits().ilp_in_flight_total_bytes;
            self.input.bound_reads(total / 4 / streams);
            self.parser.bound(streams);
        }
        poll_fn(|cx| {
            if let Poll::Ready(Some(done)) = Pin::new(&mut self.in_flight).poll_next(cx) {
                return Poll::Ready(Event::Written(done));
            }
            if self.stop.poll(cx) {
                return Poll::Ready(Event::Stop);
            }
            if may_read
                && let Poll::Ready(read) =
                    Pin::new(&mut self.stream).poll_read(cx, self.input.space())
            {
                return Poll::Ready(Event::Read(read));
            }
            if self.in_flight.is_empty() {
                if self.parser.rows() > 0 && (self.patient || !may_read) {
                    return Poll::Ready(Event::Idle);
                }
                if self.parser.rows() == 0 && !rested {
                    rested = true;
                    self.parser.rest();
                }
                self.input.rest();
            }
            Poll::Pending
        })
        .await
    }

    async fn next_written(&mut self) -> Option<Written> {
        poll_fn(|cx| Pin::new(&mut self.in_flight).poll_next(cx)).await
    }

    /// Parses every whole line that is there.
    async fn parse(&mut self) -> Result<()> {
        let tasks = self.cx.tasks.clone();
        self.parser.sync(&self.cx.engine.catalog());
        loop {
            let now_ms = self.cx.engine.now_ms();
            let complaints = &mut self.complaints;
            let mut report = |error: &BadLine, line: &[u8]| complaints.bad_line(error, line);
            match self.parser.step(&mut self.input, now_ms, &mut report) {
                Step::Drained => return Ok(()),
                Step::More => {
                    if tasks.should_yield() {
                        tasks.yield_if_needed().await;
                    }
                }
                Step::Full => {
                    self.hand_over()?;
                    while !self.may_read() {
                        match self.next_written().await {
                            Some(done) => self.settle(done)?,
                            None => break,
                        }
                    }
                }
                Step::Needs { table, columns } => self.ensure(&table, columns).await?,
            }
        }
    }

    /// Has the engine make what a line needs. Its refusal makes the line bad.
    async fn ensure(&mut self, table: &str, columns: Vec<ColumnSpec>) -> Result<()> {
        let mut pause = RETRY.0;
        loop {
            match self.cx.engine.ensure_columns(table, columns.clone()).await {
                Ok(def) => self.parser.install(def),
                Err(e) if is_passing(&e) && self.patient => {
                    add(&self.cx.counters.retries_total, 1);
                    tracing::warn!(table, "line protocol waits: {e}");
                    self.cx.tasks.sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                    continue;
                }
                Err(e) if is_the_server_s(&e) && !self.patient => return Err(e),
                Err(e) => self.parser.refuse(e.message()),
            }
            return Ok(());
        }
    }

    /// Hands the parsed rows to the engine, in order; they commit while the next ones are read.
    fn hand_over(&mut self) -> Result<()> {
        let lines = (self.taken_lines + 1, self.parser.lines());
        self.taken_lines = lines.1;
        for write in self.parser.take() {
            let bytes = write.batch.memory_bytes() as u64;
            self.in_flight_bytes += bytes;
            self.in_flight.push(Box::pin(write_until_done(
                self.cx.clone(),
                write,
                self.patient,
                (bytes, lines),
                self.blocked.clone(),
            )));
        }
        // The engine has a write once its future was polled: now, in this order, not after the next parse.
        let waker = std::task::Waker::noop();
        let mut poll = Context::from_waker(waker);
        while let Poll::Ready(Some(done)) = Pin::new(&mut self.in_flight).poll_next(&mut poll) {
            self.settle(done)?;
        }
        Ok(())
    }

    fn settle(&mut self, done: Written) -> Result<()> {
        self.in_flight_bytes -= done.bytes;
        let counters = &self.cx.counters;
        match done.outcome {
            Ok(left_out) => {
                add(&counters.rows_total, done.rows - left_out);
                self.rows_written += done.rows - left_out;
                if left_out > 0 {
                    let why = too_many_entities(&self.cx, done.table);
                    self.complaints.left_out(&why, left_out, done.lines);
                }
                Ok(())
            }
            Err(e) if e.state() == SqlState::UndefinedTable => {
                // Dropped under the writer: its rows went with it, and the next line makes it anew.
                add(&counters.rows_lost_total, done.rows);
                tracing::warn!(
                    "line protocol: {} rows of a dropped table are gone: {e}",
                    done.rows
                );
                Ok(())
            }
            Err(e) => {
                add(
                    &counters.rows_lost_total,
                    if self.patient { done.rows } else { 0 },
                );
                Err(e)
            }
        }
    }
}

impl<S, C> Drop for Pump<'_, '_, S, C> {
    fn drop(&mut self) {
        let all = &self.cx.counters.in_flight_bytes;
        all.fetch_sub(self.counted_bytes, Ordering::Relaxed);
    }
}

/// Why lines are left out whose entities are too many for their table.
fn too_many_entities(cx: &IlpContext, table: TableId) -> Error {
    let catalog = cx.engine.catalog();
    let name = catalog.table_by_id(table).map_or("", |t| &t.name);
    cx.engine.entities_refusal(name)
}

/// Whether waiting helps.
fn is_passing(e: &Error) -> bool {
    matches!(e.state(), SqlState::DiskFull | SqlState::OutOfMemory)
}

/// Whether an error says nothing against the line: another time the same line may be good.
fn is_the_server_s(e: &Error) -> bool {
    is_passing(e) || matches!(e.state(), SqlState::IoError | SqlState::AdminShutdown)
}

/// Writes one shard's batch. The patient keep trying while the disk or the memory is full; then nothing was
/// written, so that trying again makes no row twice.
async fn write_until_done(
    cx: IlpContext,
    write: ShardWrite,
    patient: bool,
    (bytes, lines): (u64, (u64, u64)),
    blocked: Rc<Cell<u32>>,
) -> Written {
    let rows = write.batch.rows() as u64;
    let mut pause = RETRY.0;
    loop {
        let batch = write.batch.clone();
        let outcome = match cx.engine.write_lines(write.table, write.shard, batch).await {
            Err(e) if is_passing(&e) && patient => {
                add(&cx.counters.retries_total, 1);
                if pause == RETRY.0 {
                    tracing::warn!("line protocol waits with {rows} rows: {e}");
                }
                blocked.set(blocked.get() + 1);
                cx.tasks.sleep(pause).await;
                blocked.set(blocked.get() - 1);
                pause = (pause * 2).min(RETRY.1);
                continue;
            }
            outcome => outcome,
        };
        return Written {
            bytes,
            rows,
            table: write.table,
            lines,
            outcome,
        };
    }
}
