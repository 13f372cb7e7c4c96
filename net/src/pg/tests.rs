//! Conversations over a pipe in memory, with `pgwire`'s codec at the other end.

use super::*;
use crate::testing::frame as raw;
use crate::testing::{Client, FakeEngine, Pipe, context, pipe};
use futures_lite::future::{block_on, or, zip};
use pgwire::messages::PgWireFrontendMessage as F;
use pgwire::messages::extendedquery as ext;
use pgwire::messages::startup::{GssEncRequest, SslRequest};
use pgwire::messages::{Message as _, SslNegotiationMetaMessage};
use proptest::prelude::*;
use std::future::Future;
use strandline_core::limits::Limits;
use strandline_core::value::{Batch, Cell, Column, ColumnBuilder, ColumnData};

/// Runs a server on one end of a pipe and `client` on the other.
fn talk<Fut: Future<Output = ()>>(
    engine: &Rc<FakeEngine>,
    client: impl FnOnce(Client, Rc<SessionContext>) -> Fut,
) {
    let cx = context(engine.clone());
    let (a, b) = pipe(1 << 20);
    block_on(zip(
        serve(a, cx.clone()),
        client(Client::new(b), cx.clone()),
    ));
    assert_eq!(cx.admission.open(), 0);
    assert_eq!(cx.registry.len(), 0);
    assert_eq!(engine.open_streams.get(), 0);
}

async fn ready_client(mut c: Client, parameters: &[(&str, &str)]) -> Client {
    let mut all = vec![("user", "ann"), ("database", "main")];
    all.extend_from_slice(parameters);
    c.start(0, &all).await;
    assert_eq!(c.hear_all().await, ["R Ok", "K", "Z I"]);
    c
}

fn session<Fut: Future<Output = ()>>(
    engine: &Rc<FakeEngine>,
    client: impl FnOnce(Client, Rc<SessionContext>) -> Fut,
) {
    talk(engine, |c, cx| async move {
        client(ready_client(c, &[]).await, cx).await;
    });
}

fn engine() -> Rc<FakeEngine> {
    FakeEngine::new(Limits::default())
}

fn encode(messages: impl IntoIterator<Item = F>) -> Vec<u8> {
    let mut buf = bytes::BytesMut::new();
    for m in messages {
        m.encode(&mut buf).unwrap();
    }
    buf.to_vec()
}

fn parse(name: &str, text: &str, oids: &[u32]) -> F {
    F::Parse(ext::Parse::new(
        Some(name.into()),
        text.into(),
        oids.to_vec(),
    ))
}
fn bind(portal: &str, name: &str, formats: &[i16], params: &[Option<&[u8]>], results: &[i16]) -> F {
    F::Bind(ext::Bind::new(
        Some(portal.into()),
        Some(name.into()),
        formats.to_vec(),
        params
            .iter()
            .map(|p| p.map(bytes::Bytes::copy_from_slice))
            .collect(),
        results.to_vec(),
    ))
}
fn describe(kind: u8, name: &str) -> F {
    F::Describe(ext::Describe::new(kind, Some(name.into())))
}
fn execute(portal: &str, max: i32) -> F {
    F::Execute(ext::Execute::new(Some(portal.into()), max))
}
fn close(kind: u8, name: &str) -> F {
    F::Close(ext::Close::new(kind, Some(name.into())))
}
fn sync() -> F {
    F::Sync(ext::Sync::new())
}

async fn ask(c: &mut Client, messages: impl IntoIterator<Item = F>) -> Vec<String> {
    c.send(&encode(messages)).await;
    c.hear_all().await
}

const DEVICES: &str =
    "CREATE ROWS TABLE devices (name TEXT, score DOUBLE, n INT, ok BOOL, at TIMESTAMP)";

#[test]
fn the_greeting() {
    talk(&engine(), |mut c, _| async move {
        let mut ssl = bytes::BytesMut::new();
        F::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(SslRequest::new()))
            .encode(&mut ssl)
            .unwrap();
        GssEncRequest::new().encode(&mut ssl).unwrap();
        c.send(&ssl).await;
        let mut no = [0; 2];
        futures_lite::AsyncReadExt::read_exact(&mut c.pipe, &mut no)
            .await
            .unwrap();
        assert_eq!(&no, b"NN");
        c.start(
            2,
            &[
                ("user", "ann"),
                ("_pq_.x", "1"),
                ("application_name", "t"),
                ("options", "-c statement_timeout=5s"),
            ],
        )
        .await;
        let mut all = vec![];
        while all.last().is_none_or(|m: &String| !m.starts_with("Z ")) {
            all.push(c.hear().await);
        }
        assert_eq!(all[0], "v 196608 [\"_pq_.x\"]");
        assert_eq!(all[1], "R Ok");
        for expected in [
            "S application_name=t",
            "S client_encoding=UTF8",
            "S DateStyle=ISO, MDY",
            "S TimeZone=UTC",
            "S integer_datetimes=on",
            "S standard_conforming_strings=on",
            "S IntervalStyle=postgres",
            "S is_superuser=on",
            "S session_authorization=ann",
            "S in_hot_standby=off",
            "S default_transaction_read_only=off",
            "S server_encoding=UTF8",
            concat!(
                "S server_version=15.0 (Strandline ",
                env!("CARGO_PKG_VERSION"),
                ")"
            ),
        ] {
            assert!(all.iter().any(|m| m == expected), "{expected} in {all:?}");
        }
        assert_eq!(all[all.len() - 2..], ["K", "Z I"]);
        assert_ne!(c.key.0, 0);
        assert_eq!(
            c.query("SHOW statement_timeout").await,
            ["T statement_timeout:25", "D 5s", "C SHOW", "Z I"]
        );
    });
}

#[test]
fn refused_at_the_door() {
    for (parameters, expected) in [
        (vec![], "E FATAL 28000"),
        (
            vec![("user", "ann"), ("database", "other")],
            "E FATAL 3D000",
        ),
        (vec![("user", "a"), ("no_such", "1")], "E FATAL 42704"),
        (vec![("user", "a"), ("options", "-x")], "E FATAL 42601"),
        (
            vec![("user", "a"), ("replication", "true")],
            "E FATAL 0A000",
        ),
        (
            vec![("user", "a"), ("client_encoding", "LATIN1")],
            "E FATAL 22023",
        ),
    ] {
        talk(&engine(), |mut c, _| async move {
            c.start(0, &parameters).await;
            let heard = c.hear_all().await;
            assert!(heard[0].starts_with(expected), "{heard:?}");
            assert_eq!(heard[1], "closed");
        });
    }
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "E FATAL 08P01"),
        (b"\0\0\0\x08\0\x02\0\0", "E FATAL 0A000"),
        (b"\0\0\0\x09\0\x03\0\0x", "E FATAL 08P01"),
        (b"\0\0\0\x07\0\x03\0", "E FATAL 08P01"),
        (b"\xff\xff\xff\xff", "E FATAL 08P01"),
    ] {
        talk(&engine(), |mut c, _| async move {
            c.send(bytes).await;
            assert!(c.hear().await.starts_with(expected));
        });
    }
}

#[test]
fn no_room_and_no_hurry() {
    let full = FakeEngine::new(Limits {
        connections: 1,
        ..Limits::default()
    });
    let cx = context(full);
    let place = cx.admission.admit().unwrap();
    let (a, b) = pipe(1 << 16);
    block_on(zip(serve(a, cx.clone()), async {
        let mut c = Client::new(b);
        c.start(0, &[("user", "ann")]).await;
        let e = c.hear().await;
        assert!(
            e.starts_with("E FATAL 53300") && e.contains("connections = 1"),
            "{e}"
        );
    }));
    drop(place);
    // The test's clock is at 7 ms already.
    let impatient = FakeEngine::new(Limits {
        startup_ms: 7,
        ..Limits::default()
    });
    talk(&impatient, |mut c, _| async move {
        assert_eq!(c.hear().await, "closed");
    });
}

#[test]
fn simple_queries() {
    session(&engine(), |mut c, cx| async move {
        assert_eq!(c.query("").await, ["I", "Z I"]);
        assert_eq!(c.query(DEVICES).await, ["C CREATE TABLE", "Z I"]);
        assert_eq!(
            c.query("INSERT INTO devices (name, score) VALUES ('a', 1.5), ('b', NULL)")
                .await,
            [
                "T xid:25",
                "D 00000000000000000000000000000002",
                "D 00000000000000000000000000000003",
                "C INSERT 0 2",
                "Z I"
            ]
        );
        assert_eq!(
            c.query("SELECT name, score, n FROM devices; SELECT count(*) FROM devices")
                .await,
            [
                "T name:25 score:701 n:20",
                "D a|1.5|NULL",
                "D b|NULL|NULL",
                "C SELECT 2",
                "T count:20",
                "D 2",
                "C SELECT 1",
                "Z I"
            ]
        );
        let first = "xid = '00000000000000000000000000000002'";
        assert_eq!(
            c.query(&format!(
                "UPDATE devices SET n = 7 WHERE {first} AND x_rev = 1"
            ))
            .await,
            ["C UPDATE 0", "Z I"]
        );
        assert_eq!(
            c.query(&format!("UPDATE devices SET n = 7, ok = true, at = '2026-01-01' WHERE {first} RETURNING n, ok, at, x_rev")).await,
            ["T n:20 ok:16 at:1184 x_rev:20", "D 7|t|2026-01-01 00:00:00+00|4", "C UPDATE 1", "Z I"]
        );
        assert_eq!(
            c.query(&format!("DELETE FROM devices WHERE {first}")).await,
            ["C DELETE 1", "Z I"]
        );
        assert_eq!(
            c.query("SHOW FEED devices").await,
            [
                "T watermark:20 vacuum_horizon:20 live_rows:20 tombstones:20",
                "D 9|2|5|1",
                "C SHOW",
                "Z I"
            ]
        );
        assert_eq!(
            c.query("CHECKPOINT").await,
            [
                "N NOTICE 00000 snapshot snapshots/2026-01-01T10-00-00Z-1",
                "C CHECKPOINT",
                "Z I"
            ]
        );
        let vacuum = c.query("VACUUM VERBOSE devices").await;
        assert!(vacuum[0].starts_with("N INFO"), "{vacuum:?}");
        assert_eq!(vacuum[1..], ["C VACUUM", "Z I"]);
        let skipped = c.query("DROP TABLE IF EXISTS nope").await;
        assert!(skipped[0].starts_with("N NOTICE 00000"), "{skipped:?}");
        assert_eq!(skipped[1..], ["C DROP TABLE", "Z I"]);
        assert_eq!(c.query("DROP TABLE devices").await, ["C DROP TABLE", "Z I"]);
        use crate::counters::StatementKind::Write;
        assert_eq!(cx.counters.latency(Write).buckets[0], 4);
    });
}

#[test]
fn the_first_error_ends_the_message() {
    session(&engine(), |mut c, cx| async move {
        let heard = c
            .query(&format!(
                "{DEVICES}; SELECT nope FROM devices; DROP TABLE devices"
            ))
            .await;
        assert_eq!(heard[0], "C CREATE TABLE");
        assert!(heard[1].starts_with("E ERROR 42703"), "{heard:?}");
        assert_eq!(heard[2..], ["Z I"]);
        // A syntax error anywhere, and nothing runs.
        let heard = c.query("DROP TABLE devices; SELEKT 1").await;
        assert!(
            heard[0].starts_with("E ERROR 42601") && heard[0].contains("P="),
            "{heard:?}"
        );
        assert_eq!(heard.len(), 2);
        assert_eq!(c.query("DROP TABLE devices").await, ["C DROP TABLE", "Z I"]);
        assert_eq!(cx.counters.errors().collect::<Vec<_>>(), [("42", 2)]);
    });
}

#[test]
fn insert_returns() {
    session(&engine(), |mut c, _| async move {
        c.query(DEVICES).await;
        assert_eq!(c.query("SET insert_returns = none").await, ["C SET", "Z I"]);
        let insert = "INSERT INTO devices (name) VALUES ('a')";
        assert_eq!(c.query(insert).await, ["C INSERT 0 1", "Z I"]);
        assert_eq!(
            c.query(&format!("{insert} RETURNING name, x_rev, x_deleted, n"))
                .await,
            [
                "T name:25 x_rev:20 x_deleted:16 n:20",
                "D a|3|f|NULL",
                "C INSERT 0 1",
                "Z I"
            ]
        );
        assert_eq!(c.query("RESET insert_returns").await, ["C RESET", "Z I"]);
        assert_eq!(c.query(insert).await[0], "T xid:25");
        // In the extended protocol too: the client is told of no rows, and gets none.
        c.query("SET insert_returns = none").await;
        let heard = ask(
            &mut c,
            [
                parse("", insert, &[]),
                bind("", "", &[], &[], &[]),
                describe(b'P', ""),
                execute("", 0),
                sync(),
            ],
        )
        .await;
        assert_eq!(heard, ["1", "2", "n", "C INSERT 0 1", "Z I"]);
    });
}

#[test]
fn blocks() {
    session(&engine(), |mut c, _| async move {
        c.query(DEVICES).await;
        let insert = "INSERT INTO devices (name) VALUES ('a')";
        // Nothing written: ROLLBACK is quiet.
        assert_eq!(c.query("BEGIN").await, ["C BEGIN", "Z T"]);
        let again = c.query("BEGIN").await;
        assert!(again[0].starts_with("N WARNING 25001"), "{again:?}");
        assert_eq!(again[1..], ["C BEGIN", "Z T"]);
        assert_eq!(c.query("ROLLBACK").await, ["C ROLLBACK", "Z I"]);
        // Written: it says so, and the block has ended.
        c.query("BEGIN").await;
        c.query(insert).await;
        let refused = c.query("ROLLBACK").await;
        assert!(
            refused[0].starts_with("E ERROR 25000") && refused[0].contains("durable"),
            "{refused:?}"
        );
        assert_eq!(refused[1..], ["Z I"]);
        c.query("BEGIN").await;
        c.query(insert).await;
        assert_eq!(c.query("COMMIT").await, ["C COMMIT", "Z I"]);
        // A write that changed nothing is none.
        c.query("BEGIN").await;
        c.query(&format!(
            "DELETE FROM devices WHERE xid = '{}'",
            "f".repeat(32)
        ))
        .await;
        assert_eq!(c.query("ROLLBACK").await, ["C ROLLBACK", "Z I"]);
        // After an error.
        c.query("BEGIN").await;
        assert_eq!(c.query("SELECT nope FROM devices").await[1..], ["Z E"]);
        let aborted = c.query(insert).await;
        assert!(aborted[0].starts_with("E ERROR 25P02"), "{aborted:?}");
        assert_eq!(aborted[1..], ["Z E"]);
        let heard = ask(&mut c, [parse("", insert, &[]), sync()]).await;
        assert!(heard[0].starts_with("E ERROR 25P02"), "{heard:?}");
        assert_eq!(c.query("COMMIT").await, ["C ROLLBACK", "Z I"]);
        // Outside of a block.
        for word in ["COMMIT", "ROLLBACK"] {
            let heard = c.query(word).await;
            assert!(heard[0].starts_with("N WARNING 25P01"), "{heard:?}");
            assert_eq!(heard[1..], [format!("C {word}"), "Z I".into()]);
        }
        // Settings of a block go with it.
        assert_eq!(
            c.query("BEGIN; SET statement_timeout = 9; ROLLBACK; SHOW statement_timeout")
                .await[4],
            "D 0"
        );
        let refused = c
            .query("BEGIN READ WRITE; SET TRANSACTION READ ONLY; DROP TABLE devices")
            .await;
        assert!(refused[2].starts_with("E ERROR 25006"), "{refused:?}");
        c.query("ROLLBACK").await;
    });
}

#[test]
fn settings_that_the_client_is_told() {
    session(&engine(), |mut c, _| async move {
        c.send(&raw(b'Q', b"SET TIME ZONE 'Europe/Berlin'\0")).await;
        assert_eq!(c.hear().await, "C SET");
        assert_eq!(c.hear().await, "S TimeZone=Europe/Berlin");
        assert_eq!(c.hear().await, "Z I");
        let heard = c.query("SHOW nonesuch").await;
        assert!(heard[0].starts_with("E ERROR 42704"), "{heard:?}");
        let heard = c.query("SET client_encoding = 'LATIN1'").await;
        assert!(heard[0].starts_with("E ERROR 22023"), "{heard:?}");
        c.send(&raw(b'Q', b"DISCARD ALL\0")).await;
        assert_eq!(c.hear().await, "C DISCARD ALL");
        assert_eq!(c.hear().await, "S TimeZone=UTC");
        assert_eq!(c.hear().await, "Z I");
        let limits = c.query("SHOW limits").await;
        assert!(
            limits
                .iter()
                .any(|m| m.starts_with("D connections|1000|count|")),
            "{limits:?}"
        );
        let all = c.query("SHOW ALL").await;
        assert!(
            all.iter().any(|m| m.starts_with("D insert_returns|xid|")),
            "{all:?}"
        );
    });
}

#[test]
fn prepared_statements() {
    session(&engine(), |mut c, _| async move {
        c.query(DEVICES).await;
        let insert = "INSERT INTO devices (name, score, n, ok, at) VALUES ($1, $2, $3, $4, $5)";
        assert_eq!(
            ask(
                &mut c,
                [parse("ins", insert, &[]), describe(b'S', "ins"), sync()]
            )
            .await,
            ["1", "t [25, 701, 20, 16, 1184]", "T xid:25", "Z I"]
        );
        let pg_ms = (1_767_261_600_250i64 - 946_684_800_000) * 1000;
        let binary: [Option<&[u8]>; 5] = [
            Some(b"x"),
            Some(&1.5f64.to_be_bytes()),
            Some(&(-7i64).to_be_bytes()),
            Some(&[1]),
            Some(&pg_ms.to_be_bytes()),
        ];
        assert_eq!(
            ask(
                &mut c,
                [bind("", "ins", &[1], &binary, &[1]), execute("", 0), sync()]
            )
            .await[2],
            "C INSERT 0 1"
        );
        let text: [Option<&[u8]>; 5] = [
            Some("ä".as_bytes()),
            Some(b"1e20"),
            None,
            Some(b"f"),
            Some(b"2026-01-01T10:00:00Z"),
        ];
        ask(
            &mut c,
            [bind("", "ins", &[], &text, &[]), execute("", 0), sync()],
        )
        .await;
        let select = "SELECT name, score, n, ok, at FROM devices";
        let heard = ask(
            &mut c,
            [
                parse("", select, &[]),
                bind("", "", &[], &[], &[]),
                describe(b'P', ""),
                execute("", 0),
                sync(),
            ],
        )
        .await;
        assert_eq!(
            heard,
            [
                "1",
                "2",
                "T name:25 score:701 n:20 ok:16 at:1184",
                "D x|1.5|-7|t|2026-01-01 10:00:00.25+00",
                "D ä|1e+20|NULL|f|2026-01-01 10:00:00+00",
                "C SELECT 2",
                "Z I"
            ]
        );
        let heard = ask(
            &mut c,
            [
                parse("", select, &[]),
                bind("", "", &[], &[], &[0, 1, 1, 1, 1]),
                describe(b'P', ""),
                execute("", 1),
                sync(),
            ],
        )
        .await;
        assert_eq!(
            heard[2..],
            [
                "T name:25 score:701b n:20b ok:16b at:1184b".to_owned(),
                format!(
                    "D x|[3ff8000000000000]|[{}]|[01]|{:02x?}",
                    "fffffffffffffff9",
                    pg_ms.to_be_bytes()
                )
                .replace(", ", ""),
                "s".into(),
                "Z I".into()
            ]
        );
        // Declared types that are not ours convert.
        let update = "UPDATE devices SET n = $1, score = $2 WHERE xid = $3";
        let xid = [vec![0; 15], vec![2]].concat();
        let heard = ask(
            &mut c,
            [
                parse("", update, &[21, 700, 2950]),
                describe(b'S', ""),
                bind(
                    "",
                    "",
                    &[1],
                    &[Some(&[0, 5]), Some(&2.5f32.to_be_bytes()), Some(&xid)],
                    &[],
                ),
                execute("", 0),
                sync(),
            ],
        )
        .await;
        assert_eq!(
            heard,
            ["1", "t [21, 700, 2950]", "n", "2", "C UPDATE 1", "Z I"]
        );
    });
}

#[test]
fn errors_skip_to_sync() {
    session(&engine(), |mut c, _| async move {
        c.query(DEVICES).await;
        let select = "SELECT name FROM devices";
        let cases: Vec<(Vec<F>, &str)> = vec![
            (vec![bind("", "none", &[], &[], &[])], "26000"),
            (vec![execute("none", 0)], "34000"),
            (vec![describe(b'P', "none")], "34000"),
            (vec![describe(b'S', "none")], "26000"),
            (vec![parse("", "SELECT nope FROM devices", &[])], "42703"),
            (vec![parse("", "SELECT 1; SELECT 2", &[])], "42601"),
            (
                vec![parse("a", select, &[]), parse("a", select, &[])],
                "42P05",
            ),
            (
                vec![parse("", select, &[]), bind("", "", &[], &[None], &[])],
                "08P01",
            ),
            (
                vec![parse("", select, &[]), bind("", "", &[], &[], &[0, 0])],
                "08P01",
            ),
            (
                vec![parse("", select, &[]), bind("", "", &[], &[], &[2])],
                "22023",
            ),
            (
                vec![bind("p", "a", &[], &[], &[]), bind("p", "a", &[], &[], &[])],
                "42P03",
            ),
            (
                vec![
                    parse("", "SELECT name FROM devices WHERE n = $1", &[]),
                    bind("", "", &[1], &[Some(&[1])], &[]),
                ],
                "22P03",
            ),
            (
                vec![
                    parse("", "SELECT name FROM devices WHERE n = $1", &[]),
                    bind("", "", &[], &[Some(b"x")], &[]),
                ],
                "22P02",
            ),
        ];
        for (messages, code) in cases {
            let good = messages.len() - 1;
            // What follows the error up to Sync is passed over.
            let messages =
                messages
                    .into_iter()
                    .chain([parse("", select, &[]), execute("", 0), sync()]);
            let heard = ask(&mut c, messages).await;
            assert!(
                heard[good].starts_with(&format!("E ERROR {code}")),
                "{code}: {heard:?}"
            );
            assert_eq!(heard[good + 1..], ["Z I"], "{code}");
        }
        // Named statements outlive errors; portals outside of a block do not outlive Sync.
        let heard = ask(
            &mut c,
            [bind("p", "a", &[], &[], &[]), execute("p", 0), sync()],
        )
        .await;
        assert_eq!(heard, ["2", "C SELECT 0", "Z I"]);
        let heard = ask(&mut c, [execute("p", 0), sync()]).await;
        assert!(heard[0].starts_with("E ERROR 34000"), "{heard:?}");
        // Closing is always fine.
        let heard = ask(
            &mut c,
            [
                close(b'S', "a"),
                close(b'S', "a"),
                close(b'P', "zz"),
                sync(),
            ],
        )
        .await;
        assert_eq!(heard, ["3", "3", "3", "Z I"]);
        // A message of COPY outside of one is passed over; garbage in a known frame is an error.
        c.send(&raw(b'd', b"xyz")).await;
        c.send(&raw(b'Q', b"no nul")).await;
        let heard = c.hear_all().await;
        assert!(heard[0].starts_with("E ERROR 08P01"), "{heard:?}");
        c.send(&raw(b'Q', b"SELECT '\xff'\0")).await;
        assert!(c.hear_all().await[0].starts_with("E ERROR 22021"));
        c.send(&raw(b'F', b"")).await;
        assert!(c.hear_all().await[0].starts_with("E ERROR 0A000"));
        assert_eq!(c.query("").await, ["I", "Z I"]);
        c.send(&raw(b'?', b"")).await;
        assert!(c.hear().await.starts_with("E FATAL 08P01"));
        assert_eq!(c.hear().await, "closed");
    });
}

fn numbers(from: i64, to: i64) -> Batch {
    let mut entity = ColumnBuilder::str();
    let mut speed = ColumnBuilder::f64();
    for n in from..to {
        entity.push(Cell::Str("veh"));
        speed.push(Cell::F64(n as f64));
    }
    let ts = Column::full(ColumnData::I64((from..to).collect()));
    Batch::new(vec![entity.finish(), ts, speed.finish()])
}

const TELEMETRY: &str = "CREATE TABLE telemetry (speed DOUBLE)";

#[test]
fn portals_keep_their_place() {
    let e = engine();
    session(&e.clone(), |mut c, _| async move {
        c.query(TELEMETRY).await;
        *e.stream_batches.borrow_mut() = vec![numbers(0, 3), numbers(3, 3), numbers(3, 5)];
        let select = "SELECT ts, speed FROM telemetry";
        c.query("BEGIN").await;
        let heard = ask(
            &mut c,
            [
                parse("s", select, &[]),
                bind("p", "s", &[], &[], &[]),
                execute("p", 2),
                execute("p", 2),
                sync(),
            ],
        )
        .await;
        assert_eq!(
            heard,
            [
                "1", "2", "D 0|0", "D 1|1", "s", "D 2|2", "D 3|3", "s", "Z T"
            ]
        );
        // In a block a portal outlives Sync.
        let heard = ask(&mut c, [execute("p", 2), execute("p", 2), sync()]).await;
        assert_eq!(heard, ["D 4|4", "C SELECT 1", "C SELECT 0", "Z T"]);
        let heard = ask(
            &mut c,
            [bind("q", "s", &[], &[], &[]), execute("q", 1), sync()],
        )
        .await;
        assert_eq!(heard.last().unwrap(), "Z T");
        assert_eq!(e.open_streams.get(), 1);
        c.query("COMMIT").await;
        assert_eq!(e.open_streams.get(), 0);
    });
}

#[test]
fn order_limit_offset() {
    let e = engine();
    session(&e.clone(), |mut c, _| async move {
        c.query(TELEMETRY).await;
        *e.stream_batches.borrow_mut() = vec![numbers(0, 3), numbers(3, 5)];
        let select = "SELECT ts FROM telemetry";
        let rows = |heard: Vec<String>| -> Vec<String> {
            let rows = heard.into_iter().filter(|m| m.starts_with("D "));
            rows.map(|m| m[2..].to_owned()).collect()
        };
        for (tail, expected) in [
            ("", &["0", "1", "2", "3", "4"][..]),
            ("LIMIT 2 OFFSET 2", &["2", "3"]),
            ("ORDER BY ts DESC", &["4", "3", "2", "1", "0"]),
            ("ORDER BY ts DESC LIMIT 2", &["4", "3"]),
            ("ORDER BY ts DESC LIMIT 2 OFFSET 4", &["0"]),
            ("ORDER BY ts LIMIT 0", &[]),
            ("OFFSET 9", &[]),
        ] {
            assert_eq!(
                rows(c.query(&format!("{select} {tail}")).await),
                expected,
                "{tail}"
            );
        }
    });
}

#[test]
fn ddl_under_a_prepared_statement() {
    session(&engine(), |mut c, _| async move {
        c.query("CREATE ROWS TABLE d (a TEXT)").await;
        ask(&mut c, [parse("s", "SELECT * FROM d", &[]), sync()]).await;
        // Another table changes nothing.
        c.query("CREATE ROWS TABLE e (a TEXT)").await;
        let run = || [bind("", "s", &[], &[], &[]), execute("", 0), sync()];
        assert_eq!(ask(&mut c, run()).await[1], "C SELECT 0");
        c.query("DROP TABLE d; CREATE ROWS TABLE d (a TEXT, b INT)")
            .await;
        let heard = ask(&mut c, run()).await;
        assert!(
            heard[0].starts_with("E ERROR 0A000 cached plan must not change result type"),
            "{heard:?}"
        );
        c.query("DROP TABLE d").await;
        assert!(ask(&mut c, run()).await[0].starts_with("E ERROR 42P01"));
    });
}

#[test]
fn prepare_and_execute_in_sql() {
    session(&engine(), |mut c, _| async move {
        c.query(DEVICES).await;
        assert_eq!(
            c.query("PREPARE ins AS INSERT INTO devices (name, n) VALUES ($1, $2)")
                .await,
            ["C PREPARE", "Z I"]
        );
        assert_eq!(c.query("EXECUTE ins ('a', 3)").await[2], "C INSERT 0 1");
        c.query("PREPARE sel AS SELECT name, n FROM devices").await;
        assert_eq!(
            c.query("EXECUTE sel").await,
            ["T name:25 n:20", "D a|3", "C SELECT 1", "Z I"]
        );
        let heard = ask(
            &mut c,
            [
                parse("", "EXECUTE sel", &[]),
                describe(b'S', ""),
                bind("", "", &[], &[], &[]),
                execute("", 0),
                sync(),
            ],
        )
        .await;
        assert_eq!(
            heard,
            [
                "1",
                "t []",
                "T name:25 n:20",
                "2",
                "D a|3",
                "C SELECT 1",
                "Z I"
            ]
        );
        assert!(c.query("EXECUTE ins ('a')").await[0].starts_with("E ERROR 42601"));
        assert!(c.query("EXECUTE nope").await[0].starts_with("E ERROR 26000"));
        assert_eq!(c.query("DEALLOCATE ins").await, ["C DEALLOCATE", "Z I"]);
        assert!(c.query("EXECUTE ins ('a', 1)").await[0].starts_with("E ERROR 26000"));
        assert_eq!(c.query("DEALLOCATE ALL").await, ["C DEALLOCATE ALL", "Z I"]);
    });
}

#[test]
fn cancel_and_timeout() {
    let e = engine();
    e.endless.set(true);
    *e.stream_batches.borrow_mut() = vec![numbers(0, 2)];
    session(&e.clone(), |mut c, cx| async move {
        c.query(TELEMETRY).await;
        let select = "SELECT ts FROM telemetry";
        c.send(&raw(b'Q', &[select.as_bytes(), b"\0"].concat()))
            .await;
        // The rows that are there come although the query goes on.
        assert_eq!(c.hear().await, "T ts:20");
        assert_eq!(c.hear().await, "D 0");
        assert_eq!(c.hear().await, "D 1");
        assert_eq!(e.open_streams.get(), 1);
        let cancel = |pid: i32, secret: &[u8]| {
            let body = [&80_877_102u32.to_be_bytes()[..], &pid.to_be_bytes(), secret].concat();
            let len = (body.len() as u32 + 4).to_be_bytes();
            [&len[..], &body].concat()
        };
        let (pid, secret) = c.key.clone();
        for (bytes, counted) in [(cancel(pid, b"nope"), 0), (cancel(pid, &secret), 1)] {
            let (a, b) = pipe(1 << 10);
            let mut other = Client::new(b);
            other.send(&bytes).await;
            serve(a, cx.clone()).await;
            assert_eq!(other.hear().await, "closed");
            let cancels = cx
                .counters
                .cancels_total
                .load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(cancels, counted);
        }
        assert_eq!(
            c.hear_all().await,
            [
                "E ERROR 57014 canceling statement due to user request",
                "Z I"
            ]
        );
        assert_eq!(e.open_streams.get(), 0);
        // A cancel between statements is forgotten.
        assert!(cx.registry.cancel(pid, &secret));
        assert_eq!(c.query("").await, ["I", "Z I"]);
        c.query("SET statement_timeout = 7").await;
        let heard = c.query(select).await;
        assert!(
            heard.iter().any(
                |m| m.starts_with("E ERROR 57014 canceling statement due to statement timeout")
            ),
            "{heard:?}"
        );
        // Sorting waits for all rows: it is stopped too.
        assert!(c.query(&format!("{select} ORDER BY ts")).await[0].starts_with("E ERROR 57014"));
        assert_eq!(e.open_streams.get(), 0);
    });
}

#[test]
fn a_client_that_stops_reading_stops_its_query() {
    let e = engine();
    *e.stream_batches.borrow_mut() = (0..1000)
        .map(|i| numbers(i * 1000, (i + 1) * 1000))
        .collect();
    let cx = context(e.clone());
    let (a, b) = pipe(1 << 16);
    block_on(or(serve(a, cx), async {
        let mut c = ready_client(Client::new(b), &[]).await;
        c.query(TELEMETRY).await;
        c.send(&raw(b'Q', b"SELECT ts, speed FROM telemetry\0"))
            .await;
        for _ in 0..10_000 {
            futures_lite::future::yield_now().await;
        }
        // About 20 bytes a row: the pipe and the buffer are full long before the million rows.
        let asked = e.handed_out.get();
        assert!((1..50).contains(&asked), "{asked} batches asked for");
        assert_eq!(e.open_streams.get(), 1);
        // It goes away.
        drop(c);
        for _ in 0..100 {
            futures_lite::future::yield_now().await;
        }
    }));
    assert_eq!(e.open_streams.get(), 0);
}

#[test]
fn one_write_per_round_trip() {
    let e = engine();
    e.slow_writes.set(true);
    let cx = context(e);
    let (a, b) = pipe(1 << 20);
    let writes = a.writes.clone();
    block_on(zip(serve(a, cx), async {
        let mut c = ready_client(Client::new(b), &[]).await;
        c.query(DEVICES).await;
        let insert = "INSERT INTO devices (name) VALUES ($1)";
        ask(&mut c, [parse("s", insert, &[]), sync()]).await;
        let before = writes.get();
        let run = || {
            [
                bind("", "s", &[], &[Some(b"x")], &[]),
                describe(b'P', ""),
                execute("", 0),
                sync(),
            ]
        };
        ask(&mut c, run()).await;
        assert_eq!(writes.get() - before, 1);
        // Of two pipelined statements the first is answered while the second waits for the disk.
        c.send(&encode(run().into_iter().chain(run()))).await;
        assert_eq!(c.hear_all().await.len(), 5);
        assert_eq!(c.hear_all().await.len(), 5);
        assert_eq!(writes.get() - before, 3);
    }));
}

#[test]
fn too_large_a_message() {
    let e = FakeEngine::new(Limits {
        statement_bytes: 64 * 1024,
        ..Limits::default()
    });
    session(&e, |mut c, _| async move {
        let long = format!("SELECT '{}'\0", "x".repeat(300_000));
        c.send(&raw(b'Q', long.as_bytes())).await;
        let heard = c.hear_all().await;
        assert!(
            heard[0].starts_with("E ERROR 54000") && heard[0].contains("statement_bytes"),
            "{heard:?}"
        );
        // What follows is read as ever.
        assert_eq!(c.query("").await, ["I", "Z I"]);
        let heard = ask(
            &mut c,
            [
                parse("", &long[..long.len() - 1], &[]),
                execute("", 0),
                sync(),
            ],
        )
        .await;
        assert!(heard[0].starts_with("E ERROR 54000"), "{heard:?}");
        assert_eq!(heard[1..], ["Z I"]);
        // More than any message may have.
        c.send(&[b'Q', 0x7f, 0xff, 0xff, 0xff]).await;
        assert!(c.hear().await.starts_with("E FATAL 08P01"));
        assert_eq!(c.hear().await, "closed");
    });
}

#[test]
fn too_many_statements() {
    let e = FakeEngine::new(Limits {
        prepared_statements: 2,
        ..Limits::default()
    });
    session(&e, |mut c, _| async move {
        ask(&mut c, [parse("a", "", &[]), parse("b", "", &[]), sync()]).await;
        let heard = ask(&mut c, [parse("c", "", &[]), sync()]).await;
        assert!(heard[0].starts_with("E ERROR 53400"), "{heard:?}");
        // An empty statement answers that it is empty.
        let heard = ask(
            &mut c,
            [
                bind("", "a", &[], &[], &[]),
                describe(b'P', ""),
                execute("", 0),
                sync(),
            ],
        )
        .await;
        assert_eq!(heard, ["2", "n", "I", "Z I"]);
    });
}

#[test]
fn going_down() {
    session(&engine(), |mut c, cx| async move {
        assert_eq!(c.query("").await, ["I", "Z I"]);
        cx.registry.close();
        assert!(c.hear().await.starts_with("E FATAL 57P01"));
        assert_eq!(c.hear().await, "closed");
    });
}

fn garbage(bytes: &[u8], start: bool) {
    let cx = context(engine());
    let (a, b): (Pipe, Pipe) = pipe(1 << 20);
    block_on(zip(serve(a, cx), async {
        let mut c = Client::new(b);
        if start {
            c = ready_client(c, &[]).await;
        }
        c.send(bytes).await;
        futures_lite::AsyncWriteExt::close(&mut c.pipe)
            .await
            .unwrap();
        while c.hear().await != "closed" {}
    }));
}

/// Frames that are almost right.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(255), Just(b'S'), Just(b'P')],
            0..40
        ),
        Just(b"\0SELECT 1\0\0\0".to_vec()),
        Just(b"BEGIN; SELECT 1\0".to_vec()),
    ];
    let kind = prop::sample::select(b"QPBDECHSXdcfFp?".to_vec());
    let one = (kind, body, -3i32..3).prop_map(|(kind, body, lie)| {
        let len = (body.len() as i32 + 4 + if lie.abs() > 1 { lie } else { 0 }).max(0);
        [&[kind], &len.to_be_bytes()[..], &body].concat()
    });
    prop::collection::vec(one, 0..8).prop_map(|f| f.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, frames in frames(), start: bool) {
        fuzz_entry(&bytes);
        fuzz_entry(&frames);
        garbage(&bytes, start);
        garbage(&frames, true);
    }

    #[test]
    fn frames_survive_any_split(cuts in prop::collection::vec(1usize..30, 1..20)) {
        let whole = encode([
            parse("name", "SELECT $1", &[20, 25]),
            bind("p", "name", &[1, 0], &[Some(&[0; 8]), None], &[1]),
            execute("p", 5),
            sync(),
        ]);
        let mut input = Input::default();
        let mut kinds = vec![];
        let mut rest = &whole[..];
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            input.push(now);
            rest = later;
            while let Next::Frame(kind, body) = input.next(1 << 20).unwrap() {
                frame::decode(kind, body).unwrap();
                kinds.push(kind);
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(kinds, b"PBES".to_vec());
        prop_assert!(input.is_empty());
    }
}
