//! ALTER TABLE under writers and readers over SQL, prepared statements and line protocol: it fails none of
//! them, loses nothing acknowledged, and a restart finds the same table.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_tests::server::Server;
use tokio_postgres::error::SqlState;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Whether an error is that of a column which is not there at this moment.
fn column_is_gone(e: &tokio_postgres::Error) -> bool {
    e.code() == Some(&SqlState::UNDEFINED_COLUMN)
}

/// Writes `keep` with each row and `flip` whenever it is there; how many rows were acknowledged.
async fn sql_writer(server: &Server, me: usize, stop: &AtomicBool) -> u64 {
    let client = server.connect().await;
    let (mut acked, mut ts) = (0, 0i64);
    while !stop.load(Ordering::Relaxed) {
        ts += 1;
        let with = format!(
            "INSERT INTO tele (entity, ts, keep, flip) VALUES ('s{me}', {ts}, {ts}, '7'), ('x{me}', {ts}, 1, '8')"
        );
        let without = format!(
            "INSERT INTO tele (entity, ts, keep) VALUES ('s{me}', {ts}, {ts}), ('x{me}', {ts}, 1)"
        );
        match client.simple_query(&with).await {
            Ok(_) => {}
            Err(e) if column_is_gone(&e) => {
                client.simple_query(&without).await.expect("written");
            }
            Err(e) => panic!("{e:?}"),
        }
        acked += 1;
    }
    acked
}

/// As [`sql_writer`], by statements prepared once: those that name `flip` are bound anew each time.
async fn prepared_writer(server: &Server, me: usize, stop: &AtomicBool) -> u64 {
    let client = server.connect().await;
    let keep = client
        .prepare("INSERT INTO tele (entity, ts, keep) VALUES ($1, $2, $3)")
        .await
        .expect("prepared");
    let flip = loop {
        let sql = "INSERT INTO tele (entity, ts, flip) VALUES ($1, $2, '5')";
        match client.prepare(sql).await {
            Ok(statement) => break statement,
            Err(e) => assert!(column_is_gone(&e), "{e:?}"),
        }
    };
    let entity = format!("p{me}");
    let (mut acked, mut ts) = (0, 0i64);
    while !stop.load(Ordering::Relaxed) {
        ts += 1;
        let done = client.execute(&keep, &[&entity, &ts, &ts]).await;
        assert_eq!(done.expect("written"), 1);
        acked += 1;
        if let Err(e) = client.execute(&flip, &[&entity, &ts]).await {
            assert!(column_is_gone(&e), "{e:?}");
        }
    }
    acked
}

/// Lines that bring `flip` back whenever it was dropped; how many were sent.
fn line_writer(server: &Server, me: usize, stop: &AtomicBool) -> u64 {
    let mut stream = TcpStream::connect(&server.ilp).expect("ilp");
    let mut ts = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let lines: String = (0..20)
            .map(|_| {
                ts += 1;
                format!("tele,entity=l{me} keep={ts}i,other{me}={ts}i {ts}000000\n")
            })
            .collect();
        stream.write_all(lines.as_bytes()).expect("sent");
        // A steady trickle: what the readers go through stays small beside what the writers do.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    stream.shutdown(std::net::Shutdown::Write).expect("closed");
    // The server closes once all is durable.
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
    ts
}

async fn reader(server: &Server, stop: &AtomicBool) {
    let client = server.connect().await;
    let prepared = client
        .prepare("SELECT ts, keep FROM tele WHERE entity = 's0'")
        .await
        .expect("prepared");
    while !stop.load(Ordering::Relaxed) {
        client.query(&prepared, &[]).await.expect("read");
        for sql in [
            "SELECT * FROM tele WHERE entity = 's1'",
            "SELECT * FROM tele LATEST ON ts PARTITION BY entity",
            "SELECT ts, count(keep) FROM tele SAMPLE BY 1 s",
        ] {
            client.simple_query(sql).await.expect("read");
        }
    }
}

fn count_of(server: &Server, entity: &str) -> u64 {
    let rows = server.query(&format!(
        "SELECT count(keep) FROM tele WHERE entity = '{entity}'"
    ));
    rows[0][0].parse().expect("a count")
}

#[test]
fn writers_and_readers_go_on_under_alter() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Arc::new(Server::start(data.path(), &["--shards", "2"]));
    server.query("CREATE TABLE tele (keep INT FILL HOLD, flip INT)");
    let stop = Arc::new(AtomicBool::new(false));
    let expected = std::thread::scope(|threads| {
        let mut writers = Vec::new();
        for me in 0..2 {
            let (server, stop) = (&server, &stop);
            let sql = move || runtime().block_on(sql_writer(server, me, stop));
            writers.push((format!("s{me}"), threads.spawn(sql)));
            let prepared = move || runtime().block_on(prepared_writer(server, me, stop));
            writers.push((format!("p{me}"), threads.spawn(prepared)));
            let lines = move || line_writer(server, me, stop);
            writers.push((format!("l{me}"), threads.spawn(lines)));
        }
        let readers = threads.spawn(|| runtime().block_on(reader(&server, &stop)));
        runtime().block_on(async {
            let client = server.connect().await;
            let alter = async |action: &str| {
                let done = client
                    .simple_query(&format!("ALTER TABLE tele {action}"))
                    .await;
                if let Err(e) = done {
                    panic!("{action}: {e:?}\n{}", server.log());
                }
            };
            for round in 0..60 {
                let label = ["INT", "TEXT", "DOUBLE FILL HOLD STALENESS 5 s", "BOOL"][round % 4];
                // '7' is no BOOL: those writers hear it, as they would in any table.
                let label = if label == "BOOL" { "VARCHAR(3)" } else { label };
                alter("DROP COLUMN flip").await;
                alter("DROP COLUMN IF EXISTS other0, DROP COLUMN IF EXISTS other1").await;
                alter("ALTER COLUMN keep SET FILL NONE, SET RETENTION 5000 w").await;
                alter(&format!("ADD COLUMN flip {label}, SET RETENTION NONE")).await;
                alter("ALTER COLUMN keep SET FILL HOLD STALENESS 1 h").await;
                if round % 20 == 7 {
                    client.simple_query("CHECKPOINT").await.expect("a snapshot");
                }
            }
        });
        stop.store(true, Ordering::Relaxed);
        readers.join().expect("the reader");
        let written = writers.into_iter().map(|(entity, w)| {
            let acked = w.join().expect("a writer");
            (entity, acked)
        });
        written.collect::<Vec<_>>()
    });
    let check = |server: &Server| {
        for (entity, acked) in &expected {
            assert!(*acked > 0, "{entity} wrote nothing");
            assert_eq!(count_of(server, entity), *acked, "{entity}");
        }
        // A line to a dropped channel makes it anew: the last ones of each connection came behind every DROP.
        let shown = server.query("SHOW TABLE tele");
        let names: Vec<&str> = shown.iter().map(|row| row[0].as_str()).collect();
        for name in ["keep", "flip", "other0", "other1"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        let refusals =
            server.query("SELECT shard FROM $sys.shards WHERE write_refusal IS NOT NULL");
        assert!(refusals.is_empty(), "{refusals:?}");
        shown
    };
    let before = check(&server);
    Arc::into_inner(server).expect("the last").kill();
    let server = Server::start(data.path(), &[]);
    assert_eq!(check(&server), before, "after kill -9");
    assert_eq!(server.terminate(), Some(0));
    let server = Server::start(data.path(), &[]);
    assert_eq!(check(&server), before, "after a clean end");
}

/// What ALTER and WITH said is there after a crash and after a clean end, and a dropped name is empty then.
#[test]
fn restarts_keep_every_change() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(data.path(), &[]);
    for sql in [
        "CREATE TABLE a (x DOUBLE FILL HOLD, y INT) WITH (RETENTION 90 d, DEDUP, ENTITY TAG \"Host\")",
        "CREATE TABLE m (x INT) WITH (MUTABLE)",
        "CREATE ROWS TABLE r (n INT)",
        "INSERT INTO a (entity, ts, x, y) VALUES ('e', 1000, 1.5, 2), ('e', now(), 3, 4)",
        "ALTER TABLE a DROP COLUMN x, ADD COLUMN x TEXT, ALTER COLUMN y SET FILL HOLD STALENESS 1 h",
        "ALTER TABLE a SET RETENTION NONE",
        "ALTER TABLE a RENAME COLUMN y TO z",
        "ALTER TABLE r RENAME TO registry",
        "CREATE TABLE gone (n INT)",
        "DROP TABLE gone",
    ] {
        server.query(sql);
    }
    let seen = |server: &Server| {
        [
            "SHOW TABLE a",
            "SELECT x, z FROM a",
            "SELECT name, family, retention, mutable, dedup, entity_tag FROM $sys.tables ORDER BY name",
            "SELECT table_name, name, type, fill, staleness FROM $sys.columns ORDER BY 1, position",
        ]
        .map(|sql| server.query(sql))
    };
    let first = seen(&server);
    assert_eq!(
        first[1],
        vec![vec!["", "4"]],
        "one row is expired, for good"
    );
    for round in 0..4 {
        if round % 2 == 0 {
            server.kill();
        } else {
            assert_eq!(server.terminate(), Some(0));
        }
        server = Server::start(data.path(), &[]);
        assert_eq!(seen(&server), first, "round {round}");
        // A change after each start: it begins a new file of the catalog.
        server.query("ALTER TABLE m ADD COLUMN tmp INT");
        server.query("ALTER TABLE m DROP COLUMN tmp");
    }
    let log = server.psql(&["-c", "SHOW TABLE a"]);
    assert!(
        log.1
            .contains("table \"a\": WITH (DEDUP, ENTITY TAG \"Host\")"),
        "{log:?}"
    );
    let (shown, _) = server.psql(&["-c", "\\d+ m"]);
    assert!(shown.contains("Options: mutable=true"), "{shown}");
}
