//! Texts of a mebibyte in both families, through a server that has 64 MiB: they are written, flushed, merged,
//! read in every way and read again after a crash and a restart, and the server stays small.

use std::path::Path;
use std::time::{Duration, Instant};
use strandline_tests::server::Server;
use tokio_postgres::{Client, SimpleQueryMessage};

const VALUES: usize = 200;
const LENGTH: usize = 1 << 20;
/// Entities of the timeseries table.
const ENTITIES: usize = 8;
/// What the process may have been at most. It holds 64 MiB of data by its own count, and beside those its
/// program, its buffers and what the allocator has not given back; all values are 400 MiB.
const MOST_RESIDENT_KIB: u64 = 300 << 10;

/// Text that does not compress; each value is another part of it.
fn noise() -> String {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut text = String::with_capacity(LENGTH * 2);
    while text.len() < LENGTH * 2 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for shift in (0..60).step_by(6) {
            text.push(char::from(b'0' + (state >> shift & 63) as u8));
        }
    }
    text
}

fn value(noise: &str, n: usize) -> &str {
    &noise[n * 5003..][..LENGTH]
}

fn start(data: &Path) -> Server {
    Server::start(data, &["--memory", "64M", "--shards", "2"])
}

fn check_resident(server: &Server, when: &str) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("status");
    let peak: u64 = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .and_then(|l| l.trim().strip_suffix(" kB"))
        .and_then(|n| n.trim().parse().ok())
        .expect("a peak");
    println!("{when}: {} MiB at most", peak >> 10);
    assert!(peak < MOST_RESIDENT_KIB, "{when}: {} MiB", peak >> 10);
}

async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    let messages = client
        .simple_query(sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    let text = |row: &tokio_postgres::SimpleQueryRow, i| row.get(i).unwrap_or_default().to_owned();
    messages
        .iter()
        .filter_map(|m| match m {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| text(row, i)).collect()),
            _ => None,
        })
        .collect()
}

async fn check(server: &Server, noise: &str, when: &str) {
    let client = server.connect().await;
    // Rows of (number, text) in some order, as many as are expected.
    let same = |mut got: Vec<Vec<String>>, numbers: Vec<usize>, what: &str| {
        got.sort_by_key(|row| row[0].parse::<usize>().expect("a number"));
        assert_eq!(got.len(), numbers.len(), "{when}: {what}");
        for (row, n) in got.iter().zip(numbers) {
            assert_eq!(row[0], n.to_string(), "{when}: {what}");
            assert!(row[1] == value(noise, n), "{when}: {what}: value {n}");
        }
    };
    let all = || (0..VALUES).collect::<Vec<_>>();
    let sql = "SELECT ts, message FROM logs";
    same(rows(&client, sql).await, all(), sql);
    let sql = "SELECT ts, message FROM logs WHERE entity = 'host-3' AND ts >= 100";
    let third = (100..VALUES).filter(|n| n % ENTITIES == 3).collect();
    same(rows(&client, sql).await, third, sql);
    let sql = "SELECT ts, message FROM logs LATEST ON ts PARTITION BY entity";
    let last = (VALUES - ENTITIES..VALUES).collect();
    same(rows(&client, sql).await, last, sql);
    let sql = "SELECT ts, message FROM logs ORDER BY ts DESC LIMIT 9";
    same(
        rows(&client, sql).await,
        (VALUES - 9..VALUES).collect(),
        sql,
    );
    let sql = "SELECT n, body FROM documents";
    same(rows(&client, sql).await, all(), sql);
    let sql = "SELECT n, body FROM documents WHERE x_rev > 0";
    same(rows(&client, sql).await, all(), sql);
    let sql = "SELECT n, body FROM documents ORDER BY n LIMIT 9";
    same(rows(&client, sql).await, (0..9).collect(), sql);
    check_resident(server, when);
}

#[test]
fn long_texts_stay_within_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let noise = noise();
    let data = tempfile::tempdir().expect("a folder");
    let server = start(data.path());
    server.query("CREATE TABLE logs (message TEXT)");
    server.query("CREATE ROWS TABLE documents (n INT, body TEXT)");
    runtime.block_on(async {
        let client = server.connect().await;
        let observation = client
            .prepare("INSERT INTO logs (entity, ts, message) VALUES ($1, $2, $3)")
            .await
            .expect("prepared");
        let document = client
            .prepare("INSERT INTO documents (n, body) VALUES ($1, $2)")
            .await
            .expect("prepared");
        for n in 0..VALUES {
            let (entity, number) = (format!("host-{}", n % ENTITIES), n as i64);
            let text = value(&noise, n);
            let done = client
                .execute(&observation, &[&entity, &number, &text])
                .await;
            done.expect("an observation");
            let done = client.execute(&document, &[&number, &text]).await;
            done.expect("a document");
        }
        check_resident(&server, "written");
        check(&server, &noise, "after the writes").await;
        // Some of it is in segments, some of those were merged.
        let began = Instant::now();
        loop {
            let (_, metrics) = server.get("/metrics");
            let merges: f64 = metrics
                .lines()
                .filter(|l| l.starts_with("strandline_merges_total"))
                .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
                .sum();
            if merges >= 2.0 {
                break;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "nothing was merged"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        check(&server, &noise, "after merges").await;
        server.kill();
        let server = start(data.path());
        check(&server, &noise, "after a crash").await;
        let client = server.connect().await;
        client
            .batch_execute("CHECKPOINT")
            .await
            .expect("a checkpoint");
        check_resident(&server, "after a checkpoint");
        assert_eq!(server.terminate(), Some(0));
        let server = start(data.path());
        check(&server, &noise, "after a restart").await;
    });
}
