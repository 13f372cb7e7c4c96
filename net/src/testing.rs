//! A pipe in memory, a small engine in memory, and a client that speaks through `pgwire`'s codec: what the
//! tests of this crate talk to and with.

use crate::admit::Admission;
use crate::counters::Counters;
use crate::pg::cancel::Registry;
use crate::session::SessionContext;
use bytes::BytesMut;
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use pgwire::messages::{DecodeContext, PgWireBackendMessage, ProtocolVersion};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{ColumnId, Rev, ShardId, TableId};
use strandline_core::io::{LocalFuture, Random, TaskQueue, Tasks};
use strandline_core::keyed::Version;
use strandline_core::limits::Limits;
use strandline_core::scan::{
    KeyedColumn, KeyedFilter, KeyedScan, LatestScan, StreamAggregate, StreamScan,
};
use strandline_core::schema::{Catalog, ColumnDef, ColumnSpec, TableDef, TableSpec};
use strandline_core::schema_change::{Skipped, TableChange};
use strandline_core::stream::batch::StreamBatch;
use strandline_core::value::{
    Batch, Cell as ValueCell, Column, ColumnBuilder, ColumnData, Kind, Value,
};
use strandline_core::xid::Xid;
use strandline_shard::api::{
    BatchStream, Engine, FeedStatus, InsertedRow, SegmentStatus, ShardStatus, TableStatus,
    VacuumReport,
};

#[derive(Default)]
struct Half {
    bytes: VecDeque<u8>,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// One end of a pipe that holds at most `room` bytes each way.
pub struct Pipe {
    read: Rc<RefCell<Half>>,
    write: Rc<RefCell<Half>>,
    room: usize,
    /// Writes so far.
    pub writes: Rc<Cell<usize>>,
}

/// Two ends.
pub fn pipe(room: usize) -> (Pipe, Pipe) {
    let (a, b) = (Rc::<RefCell<Half>>::default(), Rc::default());
    let end = |read, write| Pipe {
        read,
        write,
        room,
        writes: Rc::default(),
    };
    (end(Rc::clone(&a), Rc::clone(&b)), end(b, a))
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut half = self.read.borrow_mut();
        if half.bytes.is_empty() && !half.closed {
            half.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = buf.len().min(half.bytes.len());
        for slot in &mut buf[..n] {
            *slot = half.bytes.pop_front().unwrap();
        }
        if let Some(w) = half.writer.take() {
            w.wake();
        }
        Poll::Ready(Ok(n))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut half = self.write.borrow_mut();
        if half.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let n = buf.len().min(self.room - half.bytes.len());
        if n == 0 {
            half.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.writes.set(self.writes.get() + 1);
        half.bytes.extend(&buf[..n]);
        if let Some(w) = half.reader.take() {
            w.wake();
        }
        Poll::Ready(Ok(n))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        close(&self.write);
        Poll::Ready(Ok(()))
    }
}

fn close(half: &RefCell<Half>) {
    let mut half = half.borrow_mut();
    half.closed = true;
    half.reader.take().into_iter().for_each(Waker::wake);
    half.writer.take().into_iter().for_each(Waker::wake);
}

impl Drop for Pipe {
    fn drop(&mut self) {
        close(&self.read);
        close(&self.write);
    }
}

/// Sleeps of 7 ms are over at once; all others never end. Always asks to yield.
pub struct FakeTasks;

impl Tasks for FakeTasks {
    fn spawn(&self, _: TaskQueue, _: LocalFuture<'static, ()>) {
        panic!("a session starts no tasks");
    }
    fn yield_if_needed(&self) -> LocalFuture<'_, ()> {
        Box::pin(futures_lite::future::yield_now())
    }
    fn should_yield(&self) -> bool {
        true
    }
    fn sleep(&self, time: Duration) -> LocalFuture<'_, ()> {
        if time == Duration::from_millis(7) {
            Box::pin(std::future::ready(()))
        } else {
            Box::pin(std::future::pending())
        }
    }
}

struct FakeRandom(Cell<u64>);

impl Random for FakeRandom {
    fn next_u64(&self) -> u64 {
        self.0
            .set(self.0.get().wrapping_mul(6_364_136_223_846_793_005) + 1);
        self.0.get()
    }
}

/// Rows of rows tables in memory; timeseries reads answer `stream_batches`.
pub struct FakeEngine {
    pub limits: Arc<Limits>,
    pub catalog: RefCell<Arc<Catalog>>,
    rows: RefCell<Vec<(TableId, Version)>>,
    next: Cell<u64>,
    /// What a timeseries scan answers.
    pub stream_batches: RefCell<Vec<Batch>>,
    /// Timeseries scans never end by themselves.
    pub endless: Cell<bool>,
    /// What `segment_status` answers.
    pub segments: RefCell<Vec<SegmentStatus>>,
    /// Streams that are open.
    pub open_streams: Rc<Cell<usize>>,
    /// Batches handed out.
    pub handed_out: Rc<Cell<usize>>,
    /// Rows of timeseries INSERTs.
    pub stream_rows: Cell<usize>,
    /// Inserts wait one turn, as for a disk.
    pub slow_writes: Cell<bool>,
    /// Takes the place of `ensure_columns`.
    pub on_ensure: RefCell<Option<OnEnsure>>,
    /// Takes the place of `write_stream`.
    pub on_write: RefCell<Option<OnWrite>>,
    /// Rows that the next `write_lines` leaves out.
    pub left_out: Cell<u64>,
    /// What `ready` answers.
    pub refusal: RefCell<Option<Error>>,
}

/// See [`FakeEngine::on_ensure`].
pub type OnEnsure = Box<dyn FnMut(&str, &[ColumnSpec]) -> Result<Arc<TableDef>>>;
/// See [`FakeEngine::on_write`].
pub type OnWrite =
    Box<dyn FnMut(TableId, Vec<(ShardId, StreamBatch)>) -> LocalFuture<'static, Result<()>>>;

impl FakeEngine {
    pub fn new(limits: Limits) -> Rc<Self> {
        Rc::new(FakeEngine {
            limits: Arc::new(limits),
            catalog: RefCell::default(),
            rows: RefCell::default(),
            next: Cell::new(1),
            stream_batches: RefCell::default(),
            endless: Cell::new(false),
            segments: RefCell::default(),
            open_streams: Rc::default(),
            handed_out: Rc::default(),
            stream_rows: Cell::new(0),
            slow_writes: Cell::new(false),
            on_ensure: RefCell::default(),
            on_write: RefCell::default(),
            left_out: Cell::new(0),
            refusal: RefCell::default(),
        })
    }

    fn newest(&self, table: TableId, xid: Xid) -> Option<usize> {
        let key = xid.to_bytes();
        self.rows
            .borrow()
            .iter()
            .position(|(t, v)| *t == table && v.key[..] == key && !v.deleted)
    }

    fn bump(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }
}

struct FakeStream {
    batches: VecDeque<Batch>,
    endless: bool,
    open: Rc<Cell<usize>>,
    handed_out: Rc<Cell<usize>>,
}

impl BatchStream for FakeStream {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if self.batches.is_empty() && self.endless {
                std::future::pending::<()>().await;
            }
            self.handed_out.set(self.handed_out.get() + 1);
            Ok(self.batches.pop_front())
        })
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        self.open.set(self.open.get() - 1);
    }
}

fn ready<'a, T: 'a>(value: T) -> LocalFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Engine for FakeEngine {
    fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }
    fn shards(&self) -> u16 {
        2
    }
    fn now_ms(&self) -> i64 {
        1_767_261_600_250
    }
    fn monotonic_ns(&self) -> u64 {
        0
    }
    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.borrow().clone()
    }
    fn ready(&self) -> Result<()> {
        self.refusal.borrow().clone().map_or(Ok(()), Err)
    }
    fn create_table(&self, spec: TableSpec, if_not_exists: bool) -> LocalFuture<'_, Result<bool>> {
        let mut catalog = self.catalog.borrow_mut();
        if catalog.table(&spec.name).is_some() {
            let e = Error::new(
                SqlState::DuplicateTable,
                format!("relation \"{}\" already exists", spec.name),
            );
            return ready(if if_not_exists { Ok(false) } else { Err(e) });
        }
        let columns = spec.columns.into_iter().zip(64..).map(|(c, id)| ColumnDef {
            id: ColumnId(id),
            name: c.name,
            label: c.label,
            fill: c.fill,
            declared: c.declared,
        });
        let def = TableDef {
            id: TableId(self.bump() as u32),
            name: spec.name,
            family: spec.family,
            columns: columns.collect(),
            entity_uuid: spec.entity_uuid,
            options: spec.options,
            next_column: ColumnId(1000),
        };
        let tables = catalog.tables().cloned().chain([Arc::new(def)]);
        *catalog = Arc::new(Catalog::new(catalog.version + 1, tables));
        ready(Ok(true))
    }
    fn alter_table(
        &self,
        table: TableId,
        changes: Vec<TableChange>,
    ) -> LocalFuture<'_, Result<Vec<Skipped>>> {
        let mut catalog = self.catalog.borrow_mut();
        let mut skipped = Vec::new();
        let mut tables: Vec<TableDef> = catalog.tables().map(|t| (**t).clone()).collect();
        for change in &changes {
            for t in tables.iter_mut().filter(|t| t.id == table) {
                match t.change(change, &self.limits, 0) {
                    Ok(s) => skipped.extend(s),
                    Err(e) => return ready(Err(e)),
                }
            }
        }
        *catalog = Arc::new(Catalog::new(
            catalog.version + 1,
            tables.into_iter().map(Arc::new),
        ));
        ready(Ok(skipped))
    }
    fn drop_table<'a>(&'a self, name: &'a str, if_exists: bool) -> LocalFuture<'a, Result<bool>> {
        let mut catalog = self.catalog.borrow_mut();
        if catalog.table(name).is_none() {
            let e = Error::new(
                SqlState::UndefinedTable,
                format!("table \"{name}\" does not exist"),
            );
            return ready(if if_exists { Ok(false) } else { Err(e) });
        }
        let tables = catalog.tables().filter(|t| t.name != name).cloned();
        *catalog = Arc::new(Catalog::new(catalog.version + 1, tables));
        ready(Ok(true))
    }
    fn ensure_columns<'a>(
        &'a self,
        table: &'a str,
        columns: Vec<ColumnSpec>,
    ) -> LocalFuture<'a, Result<Arc<TableDef>>> {
        ready(match &mut *self.on_ensure.borrow_mut() {
            Some(answer) => answer(table, &columns),
            None => Err(Error::internal("not here")),
        })
    }
    fn write_stream(
        &self,
        table: TableId,
        batches: Vec<(ShardId, StreamBatch)>,
    ) -> LocalFuture<'_, Result<()>> {
        if let Some(write) = &mut *self.on_write.borrow_mut() {
            return write(table, batches);
        }
        let rows: usize = batches.iter().map(|(_, b)| b.rows()).sum();
        self.stream_rows.set(self.stream_rows.get() + rows);
        ready(Ok(()))
    }
    fn write_lines(
        &self,
        table: TableId,
        shard: ShardId,
        batch: Arc<StreamBatch>,
    ) -> LocalFuture<'_, Result<u64>> {
        let left_out = self.left_out.take();
        let written = self.write_stream(table, vec![(shard, StreamBatch::clone(&batch))]);
        Box::pin(async move { written.await.map(|()| left_out) })
    }
    fn insert_rows(
        &self,
        table: TableId,
        columns: Vec<ColumnId>,
        rows: Vec<Vec<Value>>,
    ) -> LocalFuture<'_, Result<Vec<InsertedRow>>> {
        Box::pin(async move {
            if self.slow_writes.get() {
                futures_lite::future::yield_now().await;
            }
            let mut inserted = vec![];
            for row in rows {
                let n = self.bump();
                let xid = Xid(u128::from(n));
                let mut values: Vec<_> = columns.iter().copied().zip(row).collect();
                values.retain(|(_, v)| !v.is_null());
                values.sort_by_key(|(c, _)| *c);
                let version = Version {
                    key: xid.to_bytes().into(),
                    rev: Rev(n),
                    first: true,
                    deleted: false,
                    values,
                };
                self.rows.borrow_mut().push((table, version));
                inserted.push(InsertedRow { xid, rev: Rev(n) });
            }
            Ok(inserted)
        })
    }
    fn update_row(
        &self,
        table: TableId,
        xid: Xid,
        expected: Option<Rev>,
        set: Vec<(ColumnId, Value)>,
    ) -> LocalFuture<'_, Result<Option<Version>>> {
        let Some(i) = self.newest(table, xid) else {
            return ready(Ok(None));
        };
        let row = &mut self.rows.borrow_mut()[i].1;
        if expected.is_some_and(|r| r != row.rev) {
            return ready(Ok(None));
        }
        row.rev = Rev(self.bump());
        for (c, v) in set {
            row.values.retain(|(id, _)| *id != c);
            row.values.push((c, v));
        }
        row.values.sort_by_key(|(c, _)| *c);
        ready(Ok(Some(row.clone())))
    }
    fn delete_entity(&self, _: TableId, _: String) -> LocalFuture<'_, Result<bool>> {
        ready(Ok(false))
    }
    fn delete_row(
        &self,
        table: TableId,
        xid: Xid,
        _: Option<Rev>,
    ) -> LocalFuture<'_, Result<Option<Version>>> {
        let Some(i) = self.newest(table, xid) else {
            return ready(Ok(None));
        };
        let row = &mut self.rows.borrow_mut()[i].1;
        row.rev = Rev(self.bump());
        row.deleted = true;
        ready(Ok(Some(row.clone())))
    }
    fn scan_stream(&self, _: StreamScan) -> LocalFuture<'_, Result<Box<dyn BatchStream>>> {
        self.open_streams.set(self.open_streams.get() + 1);
        ready(Ok(Box::new(FakeStream {
            batches: self.stream_batches.borrow().clone().into(),
            endless: self.endless.get(),
            open: self.open_streams.clone(),
            handed_out: self.handed_out.clone(),
        })))
    }
    fn latest(&self, _: LatestScan) -> LocalFuture<'_, Result<Box<dyn BatchStream>>> {
        ready(Err(Error::internal("not here")))
    }
    fn aggregate(&self, _: StreamAggregate) -> LocalFuture<'_, Result<Batch>> {
        ready(Err(Error::internal("not here")))
    }
    fn scan_keyed(&self, scan: KeyedScan) -> LocalFuture<'_, Result<Box<dyn BatchStream>>> {
        let rows = self.rows.borrow();
        let rows = rows.iter().filter(|(t, v)| {
            *t == scan.table
                && !v.deleted
                && match &scan.filter {
                    None => true,
                    Some(KeyedFilter::XidEq(x)) => v.key[..] == x.to_bytes(),
                    Some(other) => panic!("{other:?} is not in this engine"),
                }
        });
        let mut columns: Vec<ColumnBuilder> = scan
            .columns
            .iter()
            .map(|c| match c {
                KeyedColumn::Xid | KeyedColumn::User(_, Kind::Str) => ColumnBuilder::str(),
                KeyedColumn::User(_, Kind::F64) => ColumnBuilder::f64(),
                KeyedColumn::Rev | KeyedColumn::Deleted => ColumnBuilder::i64(),
            })
            .collect();
        let mut count = 0;
        for (_, v) in rows {
            count += 1;
            for (builder, column) in columns.iter_mut().zip(&scan.columns) {
                match column {
                    KeyedColumn::Xid => {
                        let xid = Xid::from_bytes(v.key[..].try_into().unwrap());
                        builder.push(ValueCell::Str(&xid.to_string()));
                    }
                    KeyedColumn::Rev => builder.push(ValueCell::I64(v.rev.0 as i64)),
                    KeyedColumn::Deleted => builder.push(ValueCell::I64(v.deleted.into())),
                    KeyedColumn::User(id, _) => builder.push_value(v.value(*id)),
                }
            }
        }
        let batch = if scan.count {
            Batch::new(vec![Column::full(ColumnData::I64(vec![count]))])
        } else {
            Batch::new(columns.into_iter().map(ColumnBuilder::finish).collect())
        };
        self.open_streams.set(self.open_streams.get() + 1);
        ready(Ok(Box::new(FakeStream {
            batches: [batch].into(),
            endless: false,
            open: self.open_streams.clone(),
            handed_out: self.handed_out.clone(),
        })))
    }
    fn feed_status(&self, _: TableId) -> LocalFuture<'_, Result<FeedStatus>> {
        ready(Ok(FeedStatus {
            watermark: Rev(9),
            vacuum_horizon: Rev(2),
            live_rows: 5,
            tombstones: 1,
        }))
    }
    fn vacuum(&self, _: TableId) -> LocalFuture<'_, Result<VacuumReport>> {
        ready(Ok(VacuumReport {
            purged: 3,
            horizon: Rev(8),
        }))
    }
    fn checkpoint(&self) -> LocalFuture<'_, Result<String>> {
        ready(Ok("snapshots/2026-01-01T10-00-00Z-1".into()))
    }
    fn shard_status(&self) -> LocalFuture<'_, Result<Vec<ShardStatus>>> {
        ready(Ok(vec![ShardStatus::default(), ShardStatus::default()]))
    }
    fn segment_status(&self) -> LocalFuture<'_, Result<Vec<SegmentStatus>>> {
        ready(Ok(self.segments.borrow().clone()))
    }
    fn table_status(&self, _: TableId) -> LocalFuture<'_, Result<TableStatus>> {
        ready(Ok(TableStatus::default()))
    }
}

/// What sessions share in a test.
pub fn context(engine: Rc<FakeEngine>) -> Rc<SessionContext> {
    Rc::new(SessionContext {
        admission: Admission::new(engine.limits.clone()),
        engine,
        tasks: Rc::new(FakeTasks),
        random: Rc::new(FakeRandom(Cell::new(1))),
        registry: Registry::new(),
        counters: Arc::new(Counters::default()),
    })
}

/// A client. What it hears it writes down in short, one string a message.
pub struct Client {
    pub pipe: Pipe,
    heard: BytesMut,
    decode: DecodeContext,
    /// BackendKeyData.
    pub key: (i32, Vec<u8>),
}

impl Client {
    pub fn new(pipe: Pipe) -> Self {
        let mut decode = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
        decode.awaiting_frontend_ssl = false;
        decode.awaiting_frontend_startup = false;
        Client {
            pipe,
            heard: BytesMut::new(),
            decode,
            key: (0, vec![]),
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.pipe.write_all(bytes).await.unwrap();
    }

    /// Sends a start-up packet of version 3.`minor`.
    pub async fn start(&mut self, minor: u16, parameters: &[(&str, &str)]) {
        let mut body = vec![0, 3];
        body.extend(minor.to_be_bytes());
        for (k, v) in parameters {
            body.extend([k.as_bytes(), b"\0", v.as_bytes(), b"\0"].concat());
        }
        body.push(0);
        let len = (body.len() as u32 + 4).to_be_bytes();
        self.send(&[&len[..], &body].concat()).await;
    }

    /// The next message; "closed" at the end of the stream.
    pub async fn hear(&mut self) -> String {
        loop {
            let message = PgWireBackendMessage::decode(&mut self.heard, &self.decode).unwrap();
            if let Some(m) = message {
                return self.short(m);
            }
            let mut more = [0; 4096];
            let n = self.pipe.read(&mut more).await.unwrap();
            if n == 0 {
                assert!(self.heard.is_empty(), "half a message: {:?}", self.heard);
                return "closed".into();
            }
            self.heard.extend_from_slice(&more[..n]);
        }
    }

    /// Messages up to and with ReadyForQuery (or the end), leaving ParameterStatus out.
    pub async fn hear_all(&mut self) -> Vec<String> {
        let mut all = vec![];
        loop {
            let m = self.hear().await;
            let end = m.starts_with("Z ") || m == "closed";
            if !m.starts_with("S ") {
                all.push(m);
            }
            if end {
                return all;
            }
        }
    }

    pub async fn query(&mut self, text: &str) -> Vec<String> {
        self.send(&frame(b'Q', &[text.as_bytes(), b"\0"].concat()))
            .await;
        self.hear_all().await
    }

    fn short(&mut self, message: PgWireBackendMessage) -> String {
        use PgWireBackendMessage as M;
        let report = |kind: &str, fields: &[(u8, String)]| {
            let mut text = kind.to_owned();
            for (field, value) in fields {
                if matches!(field, b'S' | b'C' | b'M') {
                    text += &format!(" {value}");
                } else if *field != b'V' {
                    text += &format!(" {}={value}", *field as char);
                }
            }
            text
        };
        match message {
            M::Authentication(a) => format!("R {a:?}"),
            M::ParameterStatus(p) => format!("S {}={}", p.name, p.value),
            M::BackendKeyData(k) => {
                let mut bytes = BytesMut::new();
                k.secret_key.encode(&mut bytes).unwrap();
                self.key = (k.pid, bytes.to_vec());
                "K".into()
            }
            M::NegotiateProtocolVersion(n) => {
                format!("v {} {:?}", n.newest_minor_protocol, n.unsupported_options)
            }
            M::ParseComplete(_) => "1".into(),
            M::BindComplete(_) => "2".into(),
            M::CloseComplete(_) => "3".into(),
            M::PortalSuspended(_) => "s".into(),
            M::CommandComplete(c) => format!("C {}", c.tag),
            M::EmptyQueryResponse(_) => "I".into(),
            M::ReadyForQuery(z) => format!("Z {}", z.status as u8 as char),
            M::ErrorResponse(e) => report("E", &e.fields),
            M::NoticeResponse(n) => report("N", &n.fields),
            M::ParameterDescription(p) => format!("t {:?}", p.types),
            M::RowDescription(t) => {
                let field = |f: &pgwire::messages::data::FieldDescription| {
                    let binary = if f.format_code == 1 { "b" } else { "" };
                    format!("{}:{}{binary}", f.name, f.type_id)
                };
                let fields: Vec<_> = t.fields.iter().map(field).collect();
                format!("T {}", fields.join(" "))
            }
            M::DataRow(d) => {
                let mut rest = &d.data[..];
                let mut cells = vec![];
                for _ in 0..d.field_count {
                    let len = i32::from_be_bytes(rest[..4].try_into().unwrap());
                    rest = &rest[4..];
                    let Ok(len) = usize::try_from(len) else {
                        cells.push("NULL".to_owned());
                        continue;
                    };
                    let (cell, after) = rest.split_at(len);
                    rest = after;
                    cells.push(match std::str::from_utf8(cell) {
                        Ok(s) if !s.contains(char::is_control) => s.to_owned(),
                        _ => format!("{cell:02x?}").replace(", ", ""),
                    });
                }
                assert!(rest.is_empty());
                format!("D {}", cells.join("|"))
            }
            M::NoData(_) => "n".into(),
            other => format!("{other:?}"),
        }
    }
}

/// A frame by hand.
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 4).to_be_bytes();
    [&[kind], &len[..], body].concat()
}
