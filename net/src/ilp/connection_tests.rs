//! Connections over a pipe in memory, with an engine that does as each test says.

use super::counters::IlpCounters;
use super::local::LocalCatalog;
use super::reference::Row;
use super::tests::rows_of;
use super::{IlpContext, IlpOptions, serve};
use crate::testing::{FakeEngine, pipe};
use futures_channel::oneshot;
use futures_lite::AsyncWriteExt;
use futures_lite::future::{or, zip};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::io::LocalFuture;
use strandline_core::limits::Limits;
use strandline_shard::testing::{block_on, env};

type Outcomes = Rc<RefCell<VecDeque<LocalFuture<'static, Result<()>>>>>;

pub(crate) struct Stage {
    pub cx: IlpContext,
    pub engine: Rc<FakeEngine>,
    pub catalog: Rc<RefCell<LocalCatalog>>,
    /// What the next writes answer; when empty, they are done at once.
    pub outcomes: Outcomes,
    /// Every write that was asked for.
    pub written: Rc<RefCell<Vec<Row>>>,
    pub writes: Rc<Cell<usize>>,
    _dir: tempfile::TempDir,
}

pub(crate) fn stage(limits: Limits) -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let engine = FakeEngine::new(limits);
    let catalog = Rc::<RefCell<LocalCatalog>>::default();
    let outcomes = Outcomes::default();
    let written = Rc::<RefCell<Vec<Row>>>::default();
    let writes = Rc::<Cell<usize>>::default();
    let answering = (catalog.clone(), engine.clone());
    *engine.on_ensure.borrow_mut() = Some(Box::new(move |table, columns| {
        if table == "refused" {
            return Err(Error::unsupported("no such luck"));
        }
        let def = answering.0.borrow_mut().ensure(table, columns);
        *answering.1.catalog.borrow_mut() = answering.0.borrow().catalog();
        Ok(def)
    }));
    let writing = (
        catalog.clone(),
        outcomes.clone(),
        written.clone(),
        writes.clone(),
    );
    *engine.on_write.borrow_mut() = Some(Box::new(move |table, batches| {
        let (catalog, outcomes, written, writes) = &writing;
        writes.set(writes.get() + 1);
        for (_, batch) in &batches {
            let rows = rows_of(&catalog.borrow(), table, batch);
            written.borrow_mut().extend(rows);
        }
        outcomes
            .borrow_mut()
            .pop_front()
            .unwrap_or_else(|| Box::pin(std::future::ready(Ok(()))))
    }));
    Stage {
        cx: IlpContext {
            engine: engine.clone(),
            tasks: env(dir.path()).tasks,
            counters: Arc::new(IlpCounters::default()),
            options: IlpOptions::default(),
        },
        engine,
        catalog,
        outcomes,
        written,
        writes,
        _dir: dir,
    }
}

impl Stage {
    fn serve(&self, room: usize) -> (crate::testing::Pipe, LocalFuture<'_, ()>) {
        let (client, server) = pipe(room);
        let stop = Box::pin(std::future::pending());
        (
            client,
            Box::pin(serve(server, "test", self.cx.clone(), stop)),
        )
    }
    pub fn fail_next(&self, state: SqlState) {
        let e = Error::new(state, "as the test wants it");
        self.outcomes
            .borrow_mut()
            .push_back(Box::pin(std::future::ready(Err(e))));
    }
    /// The next write ends when the sender is used.
    pub fn hold_next(&self) -> oneshot::Sender<()> {
        let (done, wait) = oneshot::channel();
        self.outcomes.borrow_mut().push_back(Box::pin(async move {
            let _ = wait.await;
            Ok(())
        }));
        done
    }
    pub fn values(&self) -> Vec<i64> {
        self.written.borrow().iter().map(|r| r.ts).collect()
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn lines(range: std::ops::Range<i64>) -> String {
    range
        .map(|i| format!("t,entity=e{} x={i}i {}\n", i % 7, i * 1_000_000))
        .collect()
}

#[test]
fn a_clean_close_drains_and_everything_is_counted() {
    let s = stage(Limits::default());
    let (mut client, serving) = s.serve(64);
    let text = lines(0..500) + "oops\nrefused,entity=a x=1\nt,entity=a x=1";
    block_on(zip(serving, async {
        client.write_all(text.as_bytes()).await.unwrap();
        client.close().await.unwrap();
    }));
    let c = &s.cx.counters;
    assert_eq!(s.written.borrow().len(), 501);
    assert_eq!((get(&c.rows_total), get(&c.rows_lost_total)), (501, 0));
    assert_eq!(
        (get(&c.connections_total), get(&c.connections_open)),
        (1, 0)
    );
    assert_eq!(get(&c.received_bytes), text.len() as u64);
    let bad: Vec<_> = c
        .bad_lines()
        .filter(|(_, n)| *n > 0)
        .map(|(r, n)| (r.name(), n))
        .collect();
    assert_eq!(bad, [("syntax", 1), ("refused", 1)]);
}

#[test]
fn while_one_commit_runs_the_next_batch_gathers_in_order() {
    let s = stage(Limits::default());
    let done = s.hold_next();
    let (mut client, serving) = s.serve(1 << 20);
    block_on(zip(serving, async {
        client.write_all(b"t,entity=a x=1i 0\n").await.unwrap();
        while s.writes.get() == 0 {
            futures_lite::future::yield_now().await;
        }
        for i in 1..50i64 {
            client
                .write_all(format!("t,entity=a x=1i {}\n", i * 1_000_000).as_bytes())
                .await
                .unwrap();
            futures_lite::future::yield_now().await;
        }
        assert_eq!(s.writes.get(), 1);
        done.send(()).unwrap();
        while s.values().len() < 50 {
            futures_lite::future::yield_now().await;
        }
        client.close().await.unwrap();
    }));
    assert_eq!(
        s.writes.get(),
        2,
        "one commit gathers what came during the other"
    );
    assert_eq!(s.values(), (0..50).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_is_waited_out_and_no_row_is_lost_or_doubled() {
    let s = stage(Limits::default());
    s.fail_next(SqlState::DiskFull);
    s.fail_next(SqlState::OutOfMemory);
    s.fail_next(SqlState::DiskFull);
    let (mut client, serving) = s.serve(1 << 20);
    block_on(zip(serving, async {
        client
            .write_all(b"t,entity=a x=1i 7000000\n")
            .await
            .unwrap();
        client.close().await.unwrap();
    }));
    assert_eq!(s.values(), [7; 4], "the same batch until it is taken");
    let c = &s.cx.counters;
    assert_eq!(
        (
            get(&c.rows_total),
            get(&c.retries_total),
            get(&c.rows_lost_total)
        ),
        (1, 3, 0)
    );
}

#[test]
fn a_dead_shard_closes_the_connection() {
    let s = stage(Limits::default());
    s.fail_next(SqlState::IoError);
    let (mut client, serving) = s.serve(1 << 20);
    block_on(zip(serving, async {
        client.write_all(lines(0..1).as_bytes()).await.unwrap();
        while client.write_all(b"#\n").await.is_ok() {
            futures_lite::future::yield_now().await;
        }
    }));
    let c = &s.cx.counters;
    assert_eq!(
        (
            get(&c.rows_total),
            get(&c.rows_lost_total),
            get(&c.connections_open)
        ),
        (0, 1, 0)
    );
}

#[test]
fn a_dropped_table_is_made_anew() {
    let s = stage(Limits::default());
    let (mut client, serving) = s.serve(1 << 20);
    block_on(zip(serving, async {
        client
            .write_all(b"t,entity=a x=1i 1000000\n")
            .await
            .unwrap();
        while s.writes.get() < 1 {
            futures_lite::future::yield_now().await;
        }
        // Dropped: this executor's catalog says so, and a write on its way meets it.
        *s.catalog.borrow_mut() = LocalCatalog::new(vec![super::tests::table(
            9,
            "other",
            strandline_core::schema::Family::Timeseries,
            &[],
        )]);
        *s.engine.catalog.borrow_mut() = s.catalog.borrow().catalog();
        client
            .write_all(b"t,entity=a y=2.5 2000000\n")
            .await
            .unwrap();
        client.close().await.unwrap();
    }));
    let catalog = s.catalog.borrow().catalog();
    let columns: Vec<_> = catalog
        .table("t")
        .unwrap()
        .columns
        .iter()
        .map(|c| c.name.clone())
        .collect();
    assert_eq!(columns, ["y"]);
    assert_eq!(s.values(), [1, 2]);

    let s = stage(Limits::default());
    s.fail_next(SqlState::UndefinedTable);
    let (mut client, serving) = s.serve(1 << 20);
    block_on(zip(serving, async {
        client.write_all(lines(0..1).as_bytes()).await.unwrap();
        client.close().await.unwrap();
    }));
    assert_eq!(get(&s.cx.counters.rows_lost_total), 1);
}

#[test]
fn past_the_bound_the_socket_is_not_read() {
    let limits = Limits {
        ilp_in_flight_bytes: 64 << 10,
        ..Limits::default()
    };
    let s = stage(limits);
    let held: Vec<_> = (0..1000).map(|_| s.hold_next()).collect();
    let (mut client, serving) = s.serve(1 << 10);
    let sent = Cell::new(0usize);
    let text = lines(0..200_000);
    let sending = async {
        for chunk in text.as_bytes().chunks(512) {
            client.write_all(chunk).await.unwrap();
            sent.set(sent.get() + chunk.len());
        }
    };
    // The sender gets stuck: give both many turns, then look.
    let turns = async {
        for _ in 0..20_000 {
            futures_lite::future::yield_now().await;
        }
    };
    block_on(or(
        or(
            async {
                serving.await;
            },
            sending,
        ),
        turns,
    ));
    assert!(sent.get() < 1 << 20, "{} bytes were read", sent.get());
    drop(held);
}

/// Thousands of writers and an engine that takes nothing: what they hold together stays within its bound, each
/// is read a little further all the same, and all of it is written once the engine goes on.
#[test]
fn many_streams_share_one_bound_and_none_is_shut_out() {
    const STREAMS: usize = 40;
    let limits = Limits {
        ilp_in_flight_bytes: 1 << 20,
        ilp_in_flight_total_bytes: 1 << 20,
        ..Limits::default()
    };
    let s = stage(limits);
    let held: Vec<_> = (0..100_000).map(|_| s.hold_next()).collect();
    let text = lines(0..20_000);
    let mut sent = vec![Cell::new(0); STREAMS];
    let run = async {
        let all = sent.iter_mut().map(|sent| {
            let (mut client, serving) = s.serve(1 << 10);
            let text = text.as_bytes();
            zip(serving, async move {
                for chunk in text.chunks(512) {
                    client.write_all(chunk).await.unwrap();
                    sent.set(sent.get() + chunk.len());
                }
                client.close().await.unwrap();
            })
        });
        futures_util::future::join_all(all).await;
    };
    let in_flight = || get(&s.cx.counters.in_flight_bytes);
    let mut most = 0;
    let settled = async {
        // The writers get stuck: their turns change nothing any more.
        let mut same = 0;
        while same < 200 {
            let before = in_flight();
            for _ in 0..STREAMS {
                futures_lite::future::yield_now().await;
            }
            most = most.max(in_flight());
            same = if in_flight() == before { same + 1 } else { 0 };
        }
        drop(held);
        std::future::pending::<()>().await;
    };
    block_on(or(run, settled));
    // The bound, and for each its 16 KiB and the read that went over it.
    let floor = (STREAMS as u64) * ((16 + 64) << 10);
    assert!(most <= (1 << 20) + floor, "{most} bytes in flight");
    assert!(sent.iter().all(|s| s.get() == text.len()));
    assert_eq!(get(&s.cx.counters.rows_total), STREAMS as u64 * 20_000);
    assert_eq!(get(&s.cx.counters.lines_total), STREAMS as u64 * 20_000);
    assert_eq!(in_flight(), 0);
}

#[test]
fn a_quiet_connection_holds_next_to_nothing() {
    let mut input = super::buffer::LineBuffer::new(1 << 20);
    input.push(&vec![b'x'; 300 << 10]);
    input.push(b"\nrest");
    let whole = input.region().len();
    input.advance(whole);
    let before = input.memory_bytes();
    input.rest();
    assert_eq!(input.memory_bytes(), before, "a line has begun");
    input.push(b"\n");
    input.advance(usize::MAX);
    input.rest();
    assert_eq!(input.memory_bytes(), 0);
    // And it goes on.
    input.push(b"more\n");
    assert_eq!(input.region(), b"more\n");

    // Remembered series are shared out: the more streams, the fewer each keeps.
    let parser = |streams| {
        let catalog = LocalCatalog::default().catalog();
        let limits = Arc::new(Limits::default());
        let mut parser = super::parser::Parser::new(limits, IlpOptions::default(), 1, catalog);
        let mut input = super::buffer::LineBuffer::new(1 << 20);
        let mut catalog = LocalCatalog::default();
        for i in 0..20_000 {
            input.push(format!("t,entity=e{i} x=1 0\n").as_bytes());
            while let super::parser::Step::Needs { table, columns } =
                parser.step(&mut input, 0, &mut |_, _| {})
            {
                parser.install(catalog.ensure(&table, &columns));
            }
        }
        assert_eq!(parser.take()[0].batch.rows(), 20_000);
        parser.bound(streams);
        parser.rest();
        parser.remembered_series()
    };
    assert_eq!(parser(1), 20_000);
    assert_eq!(parser(5_000), 0);
}

#[test]
fn rows_of_entities_too_many_are_bad_lines_and_the_others_are_written() {
    let s = stage(Limits::default());
    s.engine.left_out.set(2);
    let (mut client, serving) = s.serve(1 << 20);
    block_on(zip(serving, async {
        client.write_all(lines(0..5).as_bytes()).await.unwrap();
        client.close().await.unwrap();
    }));
    assert_eq!(get(&s.cx.counters.rows_total), 3);
    assert_eq!(get(&s.cx.counters.rows_lost_total), 0);
    let refused =
        s.cx.counters
            .bad_lines()
            .find(|(r, _)| r.name() == "refused");
    assert_eq!(refused.map(|r| r.1), Some(2));
}

#[test]
fn stop_drains_what_was_read() {
    let s = stage(Limits::default());
    let done = s.hold_next();
    let (mut client, server) = pipe(1 << 20);
    let (ask, asked) = oneshot::channel::<()>();
    let ended = Cell::new(false);
    let serving = async {
        serve(
            server,
            "test",
            s.cx.clone(),
            Box::pin(async {
                let _ = asked.await;
            }),
        )
        .await;
        ended.set(true);
    };
    block_on(zip(serving, async {
        client.write_all(b"t,entity=a x=1i 0\n").await.unwrap();
        while s.writes.get() == 0 {
            futures_lite::future::yield_now().await;
        }
        client
            .write_all(b"t,entity=a x=1i 1000000\n")
            .await
            .unwrap();
        for _ in 0..10 {
            futures_lite::future::yield_now().await;
        }
        ask.send(()).unwrap();
        for _ in 0..10 {
            futures_lite::future::yield_now().await;
        }
        assert!(!ended.get(), "a write is not durable yet");
        done.send(()).unwrap();
    }));
    assert_eq!(s.values(), [0, 1]);
    assert_eq!(get(&s.cx.counters.rows_total), 2);
}
