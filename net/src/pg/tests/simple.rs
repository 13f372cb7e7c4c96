//! Simple queries, blocks, settings.

use super::*;

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
        let refused = c.query("BEGIN READ ONLY; DROP TABLE devices").await;
        assert!(refused[1].starts_with("E ERROR 25006"), "{refused:?}");
        // It ends with its block.
        assert_eq!(c.query("ROLLBACK").await, ["C ROLLBACK", "Z I"]);
        let shown = c.query("SHOW transaction_read_only").await;
        assert!(shown.iter().any(|m| m.contains("off")), "{shown:?}");
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
