//! psql and a Rust driver against a real server.

use std::path::Path;
use strandline_tests::server::Server;
use strandline_tests::sqltext;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Every file under `tests/sql/` against a server of its own; `STRANDLINE_SQL=name` takes that one alone.
#[test]
fn sql_files() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .expect("tests/sql")
        .map(|e| e.expect("an entry").path())
        .collect();
    files.sort();
    let only = std::env::var("STRANDLINE_SQL").ok();
    if let Some(only) = &only {
        files.retain(|f| f.file_stem().is_some_and(|s| s == only.as_str()));
    }
    let mut cases = 0;
    let mut failures = String::new();
    for file in files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "test"))
    {
        let data = tempfile::tempdir().expect("a folder");
        let server = Server::start(data.path(), &[]);
        match runtime().block_on(sqltext::run_file(&server, file)) {
            Ok(n) => cases += n,
            Err(e) => failures.push_str(&e),
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(cases > 100 || only.is_some(), "only {cases} cases");
}

#[test]
fn psql_connects_and_describes() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    server.query("CREATE ROWS TABLE devices (name TEXT, model VARCHAR(8), active BOOL, n INT, seen TIMESTAMP, x DOUBLE)");
    server.query("CREATE TABLE telemetry (speed DOUBLE FILL HOLD STALENESS 60 s, event TEXT)");
    let (out, err) = server.psql(&["-c", "\\dt"]);
    assert!(err.is_empty(), "{err}");
    assert!(
        out.contains("devices") && out.contains("telemetry") && out.contains("public"),
        "{out}"
    );
    assert!(out.contains("(2 rows)"), "{out}");
    let (out, err) = server.psql(&["-c", "\\d devices"]);
    assert!(err.is_empty(), "{err}");
    for word in [
        "xid",
        "name",
        "text",
        "boolean",
        "bigint",
        "timestamp with time zone",
        "double precision",
    ] {
        assert!(out.contains(word), "no {word} in {out}");
    }
    assert!(!out.contains("x_rev"), "{out}");
    let (out, err) = server.psql(&["-c", "\\d telemetry"]);
    assert!(
        err.is_empty() && out.contains("speed") && out.contains("entity") && out.contains("ts"),
        "{out}{err}"
    );
    for command in [
        "\\d",
        "\\l",
        "\\dn",
        "\\du",
        "\\dt public.*",
        "\\d+ devices",
    ] {
        let (_, err) = server.psql(&["-c", command]);
        assert!(err.is_empty(), "{command}: {err}");
    }
    let (_, err) = server.psql(&["-c", "\\d nothing"]);
    assert!(err.contains("Did not find any relation"), "{err}");
}

#[test]
fn the_driver_binds_and_reads_every_label_in_binary() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    runtime().block_on(async {
        let client = server.connect().await;
        client
            .batch_execute("CREATE ROWS TABLE t (d DOUBLE, i INT, b BOOL, s TEXT, w TIMESTAMP)")
            .await
            .expect("created");
        let insert = client
            .prepare(
                "INSERT INTO t (d, i, b, s, w) VALUES ($1, $2, $3, $4, $5) RETURNING xid, x_rev",
            )
            .await
            .expect("prepared");
        assert_eq!(
            insert.params(),
            [
                Type::FLOAT8,
                Type::INT8,
                Type::BOOL,
                Type::TEXT,
                Type::TIMESTAMPTZ
            ]
        );
        let when = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_767_225_600_250);
        let row = client
            .query_one(&insert, &[&1.5f64, &-(1i64 << 53), &true, &"it's", &when])
            .await
            .expect("inserted");
        let (xid, rev): (String, i64) = (row.get(0), row.get(1));
        let row = client
            .query_one("SELECT d, i, b, s, w FROM t WHERE xid = $1", &[&xid])
            .await
            .expect("read");
        assert_eq!(row.get::<_, f64>(0), 1.5);
        assert_eq!(row.get::<_, i64>(1), -(1i64 << 53));
        assert!(row.get::<_, bool>(2));
        assert_eq!(row.get::<_, String>(3), "it's");
        assert_eq!(row.get::<_, std::time::SystemTime>(4), when);
        let nulls = client
            .query_one(
                &insert,
                &[
                    &None::<f64>,
                    &None::<i64>,
                    &None::<bool>,
                    &None::<&str>,
                    &None::<std::time::SystemTime>,
                ],
            )
            .await
            .expect("inserted");
        let row = client
            .query_one(
                "SELECT d, w FROM t WHERE xid = $1",
                &[&nulls.get::<_, String>(0)],
            )
            .await
            .expect("read");
        assert_eq!(
            (
                row.get::<_, Option<f64>>(0),
                row.get::<_, Option<std::time::SystemTime>>(1)
            ),
            (None, None)
        );

        // Compare-and-set: the first wins, the second loses.
        let update = client
            .prepare("UPDATE t SET i = $1 WHERE xid = $2 AND x_rev = $3")
            .await
            .expect("prepared");
        assert_eq!(
            client
                .execute(&update, &[&7i64, &xid, &rev])
                .await
                .expect("updated"),
            1
        );
        assert_eq!(
            client
                .execute(&update, &[&8i64, &xid, &rev])
                .await
                .expect("lost"),
            0
        );
        // What the client declares as text is text, and no number.
        let text = client
            .query_typed("SELECT i FROM t WHERE i = $1", &[(&"7", Type::TEXT)])
            .await;
        assert_eq!(
            text.expect_err("text is no number").code(),
            Some(&SqlState::DATATYPE_MISMATCH)
        );

        let out_of_range = client
            .execute(&update, &[&(1i64 << 53).wrapping_add(1), &xid, &rev])
            .await;
        assert_eq!(
            out_of_range.expect_err("too large").code(),
            Some(&SqlState::NUMERIC_VALUE_OUT_OF_RANGE)
        );
    });
}

#[test]
fn errors_have_code_position_and_hint() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    let (_, err) = server.psql(&[
        "-v",
        "VERBOSITY=verbose",
        "-c",
        "SELECT nothing FROM nowhere",
    ]);
    assert!(
        err.contains("42P01") && err.contains("nowhere") && err.contains('^'),
        "{err}"
    );
    server.query("CREATE ROWS TABLE t (a INT)");
    let (_, err) = server.psql(&[
        "-v",
        "VERBOSITY=verbose",
        "-c",
        "SELECT a FROM t WHERE b = 1",
    ]);
    assert!(err.contains("42703") && err.contains('b'), "{err}");
    let (_, err) = server.psql(&[
        "-v",
        "VERBOSITY=verbose",
        "-c",
        "SELECT a FROM t WHERE a = 1 AND a = 2",
    ]);
    assert!(err.contains("0A000") && err.contains("HINT"), "{err}");
}

#[test]
fn blocks_commit_statement_by_statement() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    runtime().block_on(async {
        let client = server.connect().await;
        client
            .batch_execute(
                "CREATE ROWS TABLE t (a INT); BEGIN; INSERT INTO t (a) VALUES (1); COMMIT",
            )
            .await
            .expect("a block");
        let e = client
            .batch_execute("BEGIN; INSERT INTO t (a) VALUES (2); ROLLBACK")
            .await
            .expect_err("cannot be undone");
        assert_eq!(e.code().map(SqlState::code), Some("25000"));
        assert_eq!(
            client
                .query("SELECT a FROM t", &[])
                .await
                .expect("read")
                .len(),
            2
        );
        // After an error in a block nothing runs until its end.
        client.batch_execute("BEGIN").await.expect("begun");
        client
            .batch_execute("SELECT nothing FROM t")
            .await
            .expect_err("no such column");
        let e = client
            .batch_execute("SELECT a FROM t")
            .await
            .expect_err("failed block");
        assert_eq!(e.code().map(SqlState::code), Some("25P02"));
        client.batch_execute("ROLLBACK").await.expect("ended");
        // Of several statements the first error ends the message; what came before stays.
        client
            .batch_execute(
                "INSERT INTO t (a) VALUES (3); SELECT * FROM missing; INSERT INTO t (a) VALUES (4)",
            )
            .await
            .expect_err("42P01");
        assert_eq!(
            client
                .query("SELECT a FROM t", &[])
                .await
                .expect("read")
                .len(),
            3
        );
    });
}

#[test]
fn a_running_statement_can_be_cancelled() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    let mut lines = String::new();
    for i in 0..200_000 {
        lines.push_str(&format!(
            "big,entity=e{} a={i},b={i} {}000000\n",
            i % 50,
            i / 50 + 1
        ));
    }
    server.send_lines(lines.as_bytes());
    runtime().block_on(async {
        let client = server.connect().await;
        let token = client.cancel_token();
        let mut cancelled = false;
        for _ in 0..20 {
            let query = client.simple_query("SELECT entity, ts, a, b FROM big ORDER BY a DESC");
            let (result, _) = tokio::join!(query, token.cancel_query(tokio_postgres::NoTls));
            if let Err(e) = result {
                assert_eq!(e.code(), Some(&SqlState::QUERY_CANCELED));
                cancelled = true;
                break;
            }
        }
        assert!(cancelled, "twenty cancels hit nothing");
        // The connection goes on.
        assert_eq!(
            client
                .query("SELECT count(*) FROM big", &[])
                .await
                .expect("read")
                .len(),
            1
        );
    });
}

#[test]
fn the_feed_pages_past_deletes_and_vacuum() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    server.query("CREATE ROWS TABLE t (a INT)");
    let ids = server.query("INSERT INTO t (a) VALUES (1), (2), (3) RETURNING xid, x_rev");
    server.query(&format!("DELETE FROM t WHERE xid = '{}'", ids[0][0]));
    let feed = server.query("SELECT xid, x_rev, x_deleted, a FROM t WHERE x_rev > 0");
    assert_eq!(feed.len(), 3);
    assert_eq!(
        (
            feed[2][0].as_str(),
            feed[2][2].as_str(),
            feed[2][3].as_str()
        ),
        (ids[0][0].as_str(), "t", "1")
    );
    let page = server.query("SELECT x_rev FROM t WHERE x_rev > 0 LIMIT 1");
    let next = server.query(&format!(
        "SELECT x_rev FROM t WHERE x_rev > {} LIMIT 1",
        page[0][0]
    ));
    assert!(next[0][0].parse::<u64>().expect("n") > page[0][0].parse().expect("n"));
    server.query("VACUUM t");
    let status = server.query("SHOW FEED t");
    assert_eq!(
        status[0][2..4],
        ["2".to_string(), "0".to_string()],
        "{status:?}"
    );
    assert_eq!(
        status[0][1], feed[2][1],
        "the horizon is the highest purged x_rev"
    );
    let (_, err) = server.psql(&[
        "-v",
        "VERBOSITY=verbose",
        "-c",
        "SELECT xid FROM t WHERE x_rev > 0",
    ]);
    assert!(err.contains("55000") && err.contains("resync"), "{err}");
    assert_eq!(
        server
            .query("SELECT a FROM t WHERE x_deleted = false")
            .len(),
        2
    );
    server.kill();
    let server = Server::start(data.path(), &[]);
    assert_eq!(
        server.query("SHOW FEED t")[0][1],
        feed[2][1],
        "the horizon survives"
    );
}

#[test]
fn http_answers() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    assert_eq!(server.get("/health").0, 200);
    assert_eq!(server.get("/ready").0, 200);
    assert_eq!(server.get("/nothing").0, 404);
    server.query("CREATE ROWS TABLE t (a INT)");
    server.query("INSERT INTO t (a) VALUES (1)");
    let (status, body) = server.get("/metrics");
    assert_eq!(status, 200);
    for line in body
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        let value = line.rsplit(' ').next().expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let ours = line.starts_with("strandline_") || line.starts_with("process_");
        assert!(ours, "{line}");
    }
    assert!(body.contains("# TYPE") && body.contains("commit"), "{body}");
}
