//! kill -9 at random times under writers over SQL and line protocol: what was acknowledged is there, nothing
//! else is, numbers are never used twice.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strandline_tests::server::Server;

/// What clients know.
#[derive(Default)]
struct Known {
    /// token → (xid, x_rev), acknowledged.
    acked: BTreeMap<String, (String, u64)>,
    /// Sent, no answer.
    unknown: BTreeSet<String>,
    /// Samples whose connection was closed cleanly and drained: entity → first and last ts of each. What a
    /// killed connection sent before or between them was never promised.
    drained: BTreeMap<String, Vec<(i64, i64)>>,
    /// Samples sent: entity → highest ts.
    sent: BTreeMap<String, i64>,
}

fn random(state: &AtomicU64) -> u64 {
    let s = state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    let z = (s ^ (s >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

fn sql_writer(
    server: &Arc<Server>,
    me: usize,
    round: usize,
    stop: &AtomicBool,
    known: &Mutex<Known>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let Ok(client) = server.try_connect().await else {
            return;
        };
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            let tokens: Vec<String> = (0..1 + n % 3)
                .map(|i| format!("r{round}-w{me}-{n}-{i}"))
                .collect();
            let values: Vec<String> = tokens.iter().map(|t| format!("('{t}', {n})")).collect();
            known
                .lock()
                .expect("known")
                .unknown
                .extend(tokens.iter().cloned());
            let sql = format!(
                "INSERT INTO log (token, n) VALUES {} RETURNING xid, x_rev",
                values.join(", ")
            );
            let Ok(rows) = client.simple_query(&sql).await else {
                return;
            };
            let mut known = known.lock().expect("known");
            let rows = rows.iter().filter_map(|m| match m {
                tokio_postgres::SimpleQueryMessage::Row(r) => Some(r),
                _ => None,
            });
            for (token, row) in tokens.iter().zip(rows) {
                let (xid, rev) = (
                    row.get(0).expect("xid").to_string(),
                    row.get(1).expect("x_rev"),
                );
                known.unknown.remove(token);
                known
                    .acked
                    .insert(token.clone(), (xid, rev.parse().expect("a number")));
            }
        }
    });
}

fn line_writer(address: &str, me: usize, stop: &AtomicBool, known: &Mutex<Known>) {
    let entity = format!("dev{me}");
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(address) else {
            return;
        };
        let mut ts = known
            .lock()
            .expect("known")
            .sent
            .get(&entity)
            .copied()
            .unwrap_or(0);
        let first = ts + 1;
        for _ in 0..20 {
            let mut lines = String::new();
            for _ in 0..50 {
                ts += 1;
                lines.push_str(&format!("tele,entity={entity} v={ts} {ts}000000\n"));
            }
            known.lock().expect("known").sent.insert(entity.clone(), ts);
            if stream.write_all(lines.as_bytes()).is_err() {
                return;
            }
        }
        if stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        // A clean end (not a reset) says that everything is durable.
        let mut end = [0u8; 1];
        if !matches!(std::io::Read::read(&mut stream, &mut end), Ok(0)) {
            return;
        }
        if stop.load(Ordering::Relaxed) {
            // The server may have been killed while this end was read: its word does not count.
            return;
        }
        known
            .lock()
            .expect("known")
            .drained
            .entry(entity.clone())
            .or_default()
            .push((first, ts));
    }
}

fn check(server: &Server, known: &mut Known) {
    let rows = server.query("SELECT token, xid, x_rev FROM log WHERE x_rev > 0");
    let mut there: BTreeMap<String, (String, u64)> = BTreeMap::new();
    let mut revs = BTreeSet::new();
    let mut last_xid = String::new();
    for row in rows {
        let rev = row[2].parse().expect("x_rev");
        assert!(revs.insert(rev), "x_rev {rev} twice");
        assert!(
            row[1] > last_xid,
            "xid {} is not after {last_xid}, in the order of x_rev",
            row[1]
        );
        last_xid = row[1].clone();
        assert!(
            there
                .insert(row[0].clone(), (row[1].clone(), rev))
                .is_none(),
            "{} twice",
            row[0]
        );
    }
    for (token, ids) in &known.acked {
        assert_eq!(
            there.get(token),
            Some(ids),
            "an acknowledged row is not what it was"
        );
    }
    for (token, ids) in there {
        if !known.acked.contains_key(&token) {
            assert!(known.unknown.contains(&token), "{token} was invented");
            known.acked.insert(token, ids);
        }
    }
    known.unknown.clear();
    if known.sent.is_empty() {
        return;
    }
    for (entity, &sent) in &known.sent {
        let rows = server.query(&format!("SELECT ts, v FROM tele WHERE entity = '{entity}'"));
        let drained = known.drained.get(entity).cloned().unwrap_or_default();
        let mut found = BTreeSet::new();
        for row in rows {
            assert_eq!(row[0], row[1], "a sample of {entity} has another's value");
            let ts: i64 = row[0].parse().expect("ts");
            assert!(
                ts <= sent && found.insert(ts),
                "{entity}: {ts} twice or never sent"
            );
        }
        for (first, last) in drained {
            let lost = (first..=last).find(|ts| !found.contains(ts));
            assert_eq!(lost, None, "{entity}: of {first} to {last}, all durable");
        }
    }
}

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    let rounds: usize = std::env::var("STRANDLINE_CRASH_ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(8);
    let dir = tempfile::tempdir().expect("a folder");
    // So little memory and log that flushes and merges are under way when it dies.
    let config = dir.path().join("small.toml");
    std::fs::write(
        &config,
        "[limits]\nmemory_bytes = \"64M\"\nlog_bytes = \"4M\"\nlog_file_bytes = \"1M\"\n",
    )
    .expect("config");
    let args = ["--config", config.to_str().expect("a path")];
    let data = dir.path().join("data");
    let seed = AtomicU64::new(std::process::id().into());
    let known = Arc::new(Mutex::new(Known::default()));
    for round in 0..rounds {
        let server = Arc::new(Server::start(&data, &args));
        server.query("CREATE ROWS TABLE IF NOT EXISTS log (token TEXT, n INT)");
        server.query("CREATE TABLE IF NOT EXISTS tele (v DOUBLE)");
        check(&server, &mut known.lock().expect("known"));
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for me in 0..3 {
            let (server, stop, known) = (server.clone(), stop.clone(), known.clone());
            threads.push(std::thread::spawn(move || {
                sql_writer(&server, me, round, &stop, &known)
            }));
        }
        for me in 0..2 {
            let (address, stop, known) = (server.ilp.clone(), stop.clone(), known.clone());
            threads.push(std::thread::spawn(move || {
                line_writer(&address, me, &stop, &known)
            }));
        }
        std::thread::sleep(Duration::from_millis(100 + random(&seed) % 900));
        if round % 3 == 2 {
            // Dies in the middle of a CHECKPOINT.
            let server = server.clone();
            threads.push(std::thread::spawn(move || {
                // Its error is the kill.
                server.psql(&["-c", "CHECKPOINT"]);
            }));
            std::thread::sleep(Duration::from_millis(random(&seed) % 60));
        }
        // First the flag: from here no drained connection counts, because it could be the kill that ends it.
        stop.store(true, Ordering::SeqCst);
        // SAFETY: a signal to a child that is not yet waited for.
        unsafe { libc::kill(server.pid() as i32, libc::SIGKILL) };
        threads
            .into_iter()
            .for_each(|t| t.join().expect("a writer"));
        // Every thread has given its share back: this waits for the process to be gone, and its lock with it.
        drop(server);
    }
    let server = Server::start(&data, &args);
    check(&server, &mut known.lock().expect("known"));
    let known = known.lock().expect("known");
    println!(
        "{} rows acknowledged, {} connections of 1,000 samples drained",
        known.acked.len(),
        known.drained.values().map(Vec::len).sum::<usize>()
    );
    assert!(
        known.acked.len() > 50 && !known.drained.is_empty(),
        "the writers did next to nothing"
    );
}

#[test]
fn a_second_server_on_the_same_directory_refuses() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &[]);
    let second = Server::try_start(dir.path(), &[]);
    let e = second.err().expect("it refuses");
    assert!(
        e.contains(&server.pid().to_string()),
        "it names the process that holds it: {e}"
    );
}

#[test]
fn sigterm_drains_and_exits_0() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &[]);
    server.query("CREATE ROWS TABLE t (n INT)");
    let first = server.query("INSERT INTO t (n) VALUES (1) RETURNING x_rev")[0][0].clone();
    assert_eq!(server.terminate(), Some(0));
    let server = Server::start(dir.path(), &[]);
    assert_eq!(
        server.query("SELECT n, x_rev FROM t"),
        vec![vec!["1".to_string(), first]]
    );
}
