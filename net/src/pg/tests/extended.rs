//! Prepared statements and portals.

use super::*;

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

/// A text parameter that the client did not declare, or declared as `unknown`, is what a quoted literal is: it
/// takes the type of where it stands. One that was declared as text is text.
#[test]
fn undeclared_text_parameters_convert_where_they_stand() {
    session(&engine(), |mut c, _| async move {
        c.query(DEVICES).await;
        c.query(TELEMETRY).await;
        let values: [Option<&[u8]>; 5] = [
            Some(b"12"),
            Some(b" 1.5 "),
            Some(b"12"),
            Some(b"yes"),
            Some(b"2026-01-01T10:00:00.250Z"),
        ];
        let insert = "INSERT INTO devices (name, score, n, ok, at) VALUES ($1, $2, $3, $4, $5) \
                      RETURNING name, score, n, ok, at";
        for oids in [&[][..], &[0; 5], &[705; 5]] {
            let run = [
                parse("", insert, oids),
                bind("", "", &[], &values, &[]),
                execute("", 0),
                sync(),
            ];
            assert_eq!(
                ask(&mut c, run).await[2..],
                [
                    "D 12|1.5|12|t|2026-01-01 10:00:00.25+00",
                    "C INSERT 0 1",
                    "Z I"
                ],
                "{oids:?}"
            );
        }
        for (sql, text, tag) in [
            ("SELECT name FROM devices LIMIT $1", "1", "C SELECT"),
            (
                "SELECT ts FROM telemetry WHERE ts > $1",
                "yesterday",
                "C SELECT",
            ),
            (
                "SELECT ts FROM telemetry WHERE ts > $1",
                "1767261600250",
                "C SELECT",
            ),
            ("SELECT ts FROM telemetry WHERE speed = $1", "5", "C SELECT"),
            (
                "INSERT INTO telemetry (entity, ts, speed) VALUES ('a', $1, 1)",
                "2026-01-01T10:00:00Z",
                "C INSERT 0 1",
            ),
            (
                "SELECT name FROM $sys.tables WHERE columns > $1 - 1 AND name = 'devices'",
                "5",
                "C SELECT",
            ),
        ] {
            let run = [
                parse("", sql, &[]),
                bind("", "", &[], &[Some(text.as_bytes())], &[]),
                execute("", 0),
                sync(),
            ];
            let heard = ask(&mut c, run).await;
            assert!(heard.iter().any(|m| m.starts_with(tag)), "{sql}: {heard:?}");
        }
        let insert = "INSERT INTO devices (n) VALUES ($1)";
        for (oid, text, state) in [
            (
                0,
                "x",
                "22P02 \"x\" is not a valid value for INT column \"n\"",
            ),
            (0, "9007199254740993", "22003"),
            (25, "12", "42804"),
            (1043, "12", "42804"),
        ] {
            let run = [
                parse("", insert, &[oid]),
                bind("", "", &[], &[Some(text.as_bytes())], &[]),
                sync(),
            ];
            let heard = ask(&mut c, run).await;
            assert!(
                heard[1].starts_with(&format!("E ERROR {state}")),
                "{oid} {text}: {heard:?}"
            );
        }
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
        // What EXECUTE answers is what it names, with its parameters or without.
        c.query("PREPARE one (int) AS SELECT n, xid FROM devices WHERE n = $1")
            .await;
        let heard = ask(
            &mut c,
            [
                parse("", "EXECUTE one ($1)", &[]),
                describe(b'S', ""),
                sync(),
            ],
        )
        .await;
        assert_eq!(heard, ["1", "t [25]", "T n:20 xid:25", "Z I"]);
        let heard = ask(
            &mut c,
            [
                parse("", "EXECUTE ins ('b', 4)", &[]),
                bind("", "", &[], &[], &[]),
                describe(b'P', ""),
                sync(),
            ],
        )
        .await;
        assert_eq!(heard, ["1", "2", "T xid:25", "Z I"]);
        assert!(c.query("PREPARE beg AS BEGIN").await[0].starts_with("E ERROR 42601"));
        assert!(c.query("EXECUTE ins ('a')").await[0].starts_with("E ERROR 42601"));
        assert!(c.query("EXECUTE nope").await[0].starts_with("E ERROR 26000"));
        assert_eq!(c.query("DEALLOCATE ins").await, ["C DEALLOCATE", "Z I"]);
        assert!(c.query("EXECUTE ins ('a', 1)").await[0].starts_with("E ERROR 26000"));
        assert_eq!(c.query("DEALLOCATE ALL").await, ["C DEALLOCATE ALL", "Z I"]);
    });
}

#[test]
fn statements_that_are_too_long_together() {
    let text = format!("SHOW TABLES{}", " ".repeat(40_000));
    let e = FakeEngine::new(Limits {
        prepared_bytes: 64 << 10,
        ..Limits::default()
    });
    session(&e, |mut c, _| async move {
        ask(&mut c, [parse("a", &text, &[]), sync()]).await;
        let heard = ask(&mut c, [parse("b", &text, &[]), sync()]).await;
        assert!(heard[0].starts_with("E ERROR 53400"), "{heard:?}");
        assert!(heard[0].contains("prepared_bytes"), "{heard:?}");
        // The unnamed one is replaced, and what is closed counts no more.
        let heard = ask(
            &mut c,
            [
                close(b'S', "a"),
                parse("", &text, &[]),
                parse("", &text, &[]),
                sync(),
            ],
        )
        .await;
        assert_eq!(heard, ["3", "1", "1", "Z I"]);
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
