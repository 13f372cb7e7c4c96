//! Answers of a real server that must agree with each other, whatever they are: two halves of a range with
//! the whole, wide buckets with narrow ones, filled rows with raw ones, aggregates with rows, entities one by
//! one with all of them; in memory, in segments, after merges and restarts.

use std::collections::BTreeMap;
use strandline_tests::server::Server;
use strandline_tests::sim::world::Rng;
use strandline_tests::statements;
use tokio_postgres::Client;

const ENTITIES: u64 = 9;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// 2024-02-29T12:00: a leap day and a month's end are near.
const START: i64 = 1_709_208_000_000;
const STALENESS: i64 = 10 * MINUTE;

type Row = Vec<Option<String>>;

async fn ask(client: &Client, sql: &str) -> Vec<Row> {
    let rows = statements::rows(client, sql).await;
    let rows = rows.unwrap_or_else(|e| panic!("{e}"));
    let cells = |r: &tokio_postgres::SimpleQueryRow| {
        let cells = (0..r.len()).map(|i| r.get(i).map(str::to_string));
        cells.collect::<Row>()
    };
    rows.iter().map(cells).collect()
}

/// By entity and ts, the first two columns; rows of one (entity, ts) stay in their order.
fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    let ts = |r: &Row| r[1].as_ref().and_then(|t| t.parse::<i64>().ok());
    rows.sort_by(|a, b| (&a[0], ts(a)).cmp(&(&b[0], ts(b))));
    rows
}

fn number(cell: &Option<String>) -> Option<f64> {
    cell.as_ref().map(|t| t.parse().expect("a number"))
}

fn ts_of(row: &Row, at: usize) -> i64 {
    row[at].as_ref().and_then(|t| t.parse().ok()).expect("a ts")
}

/// Lines: mostly in order, a tenth of them hours late, a twentieth again.
fn lines(rng: &Rng, rows: u64, from: i64) -> String {
    let mut text = String::new();
    let mut at = from;
    for _ in 0..rows {
        at += rng.below(4) as i64 * 20_000;
        let late = if rng.one_in(10) {
            rng.below(30) as i64 * HOUR
        } else {
            0
        };
        let ts = (at - late) / 5_000 * 5_000;
        let mut fields = Vec::new();
        if rng.one_in(2) {
            fields.push(format!("v={}", rng.below(800) as f64 / 8.0 - 50.0));
        }
        if rng.one_in(3) {
            fields.push(format!("n={}i", rng.below(1_000)));
        }
        if fields.is_empty() || rng.one_in(5) {
            fields.push(format!(
                "s=\"{}\"",
                ["on", "off", "idle"][rng.below(3) as usize]
            ));
        }
        let line = format!(
            "m,entity=e{} {} {ts}000000\n",
            rng.below(ENTITIES),
            fields.join(",")
        );
        text.push_str(&line);
        if rng.one_in(20) {
            text.push_str(&line);
        }
    }
    text
}

/// Two halves of a range, rows and aggregates.
async fn halves(client: &Client, rng: &Rng) {
    for raw in ["", " RAW"] {
        let mut cuts = [0; 3].map(|_| START - DAY + rng.below(6 * 1440) as i64 * MINUTE);
        cuts.sort_unstable();
        let [a, b, c] = cuts;
        let rows = |from: i64, to: i64| {
            format!("SELECT entity, ts, v, n, s FROM m{raw} WHERE ts >= {from} AND ts < {to}")
        };
        let mut union = ask(client, &rows(a, b)).await;
        union.extend(ask(client, &rows(b, c)).await);
        let whole = sorted(ask(client, &rows(a, c)).await);
        assert_eq!(sorted(union), whole, "{raw}: {a} {b} {c}");
        let sums = |from: i64, to: i64| {
            format!(
                "SELECT count(*), count(v), sum(v), min(n), max(n) FROM m WHERE ts >= {from} AND ts < {to}"
            )
        };
        let (left, right) = (
            ask(client, &sums(a, b)).await,
            ask(client, &sums(b, c)).await,
        );
        let whole = &ask(client, &sums(a, c)).await[0];
        let (left, right) = (&left[0], &right[0]);
        for i in 0..5 {
            let pair = (number(&left[i]), number(&right[i]));
            let expected = match (i, pair) {
                (_, (None, x)) | (_, (x, None)) => x,
                (0..=2, (Some(x), Some(y))) => Some(x + y),
                (3, (Some(x), Some(y))) => Some(x.min(y)),
                (_, (Some(x), Some(y))) => Some(x.max(y)),
            };
            assert_eq!(number(&whole[i]), expected, "aggregate {i}: {a} {b} {c}");
        }
    }
}

/// Narrow buckets put together are the wide ones.
async fn buckets(client: &Client) {
    let ask_by = |of: &str, width: &str| {
        format!(
            "SELECT {of}, ts, count(*), count(v), sum(v), min(v), max(n), first(v), last(n) FROM m SAMPLE BY {width}"
        )
    };
    for (narrow, wide, ms) in [
        ("5m", "1h", HOUR),
        ("1h", "1d", DAY),
        ("7m", "35m", 35 * MINUTE),
    ] {
        let rows = sorted(ask(client, &ask_by("entity", narrow)).await);
        let mut made: BTreeMap<(String, i64), Row> = BTreeMap::new();
        for row in rows {
            let entity = row[0].clone().expect("an entity");
            let bucket = ts_of(&row, 1).div_euclid(ms) * ms;
            let known = made.entry((entity, bucket)).or_insert_with(|| {
                let mut new = vec![None; row.len()];
                (new[0], new[1]) = (row[0].clone(), Some(bucket.to_string()));
                new
            });
            for i in 2..row.len() {
                let pair = (number(&known[i]), number(&row[i]));
                let next = match (i, pair) {
                    (_, (None, x)) | (_, (x, None)) => x,
                    (2..=4, (Some(x), Some(y))) => Some(x + y),
                    (5, (Some(x), Some(y))) => Some(x.min(y)),
                    (6, (Some(x), Some(y))) => Some(x.max(y)),
                    // They come by time.
                    (7, (x, _)) => x,
                    (_, (_, y)) => y,
                };
                known[i] = next.map(|x| x.to_string());
            }
        }
        let wide_rows = sorted(ask(client, &ask_by("entity", wide)).await);
        assert_eq!(wide_rows.len(), made.len(), "{narrow} to {wide}");
        for (row, made) in wide_rows.iter().zip(made.values()) {
            assert_eq!(row[..2], made[..2]);
            for i in 2..row.len() {
                assert_eq!(
                    number(&row[i]),
                    number(&made[i]),
                    "{narrow} to {wide}: {row:?} {made:?}"
                );
            }
        }
    }
    // Days to months, all entities together.
    let days = ask(
        client,
        "SELECT ts, count(*), sum(v), max(v) FROM m SAMPLE BY 1d",
    )
    .await;
    let months = ask(
        client,
        "SELECT ts, count(*), sum(v), max(v) FROM m SAMPLE BY 1 month",
    )
    .await;
    assert!(months.len() > 1);
    for (n, month) in months.iter().enumerate() {
        let to = months.get(n + 1).map_or(i64::MAX, |m| ts_of(m, 0));
        let within = |r: &&Row| (ts_of(month, 0)..to).contains(&ts_of(r, 0));
        let days: Vec<&Row> = days.iter().filter(within).collect();
        let all = |i: usize| days.iter().filter_map(move |r| number(&r[i]));
        assert_eq!(number(&month[1]), Some(all(1).sum()));
        assert_eq!(number(&month[2]), all(2).reduce(|a, b| a + b));
        assert_eq!(number(&month[3]), all(3).reduce(f64::max));
    }
}

/// Filled rows are raw rows and what is carried; aggregates are those of raw rows; entities one by one are
/// all of them; the device shadow is the end of the raw rows.
async fn rows(client: &Client) {
    let raw = sorted(ask(client, "SELECT entity, ts, v, n, s FROM m RAW").await);
    let filled = sorted(ask(client, "SELECT entity, ts, v, n, s FROM m").await);
    let mut carried = Vec::new();
    let mut held: BTreeMap<(String, usize), (i64, String)> = BTreeMap::new();
    for row in &raw {
        let (entity, ts) = (row[0].clone().expect("an entity"), ts_of(row, 1));
        let mut out = row.clone();
        for (i, most) in [(2, STALENESS), (4, i64::MAX)] {
            let at = (entity.clone(), i);
            match (&row[i], held.get(&at)) {
                (Some(own), _) => drop(held.insert(at, (ts, own.clone()))),
                (None, Some((since, value))) if ts - since <= most => out[i] = Some(value.clone()),
                _ => {}
            }
        }
        carried.push(out);
    }
    assert_eq!(filled, carried);
    // The same of one channel alone: other rows, no other values.
    let own = sorted(ask(client, "SELECT entity, ts, v FROM m").await);
    let expected = raw.iter().filter(|r| r[2].is_some());
    let expected: Vec<Row> = expected.map(|r| r[..3].to_vec()).collect();
    assert_eq!(own, expected);

    let mut by_entity: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in &raw {
        by_entity
            .entry(row[0].clone().expect("an entity"))
            .or_default()
            .push(row);
    }
    assert_eq!(by_entity.len() as u64, ENTITIES);
    let grouped = ask(
        client,
        "SELECT entity, count(*), count(v), sum(v), avg(v), min(n), max(n), first(v), last(s), count(s) FROM m GROUP BY entity",
    )
    .await;
    let latest = sorted(ask(client, "SELECT * FROM m LATEST ON ts PARTITION BY entity").await);
    let mut united = Vec::new();
    for (n, (entity, rows)) in by_entity.iter().enumerate() {
        let cells = |i: usize| rows.iter().filter_map(move |r| r[i].clone());
        let numbers = |i: usize| cells(i).map(|t| t.parse::<f64>().expect("a number"));
        let count = numbers(2).count() as f64;
        let text = |x: f64| Some(x.to_string());
        let sum: f64 = numbers(2).sum();
        let expected: Row = vec![
            Some(entity.clone()),
            text(rows.len() as f64),
            text(count),
            text(sum),
            text(sum / count),
            numbers(3).reduce(f64::min).and_then(text),
            numbers(3).reduce(f64::max).and_then(text),
            cells(2).next(),
            cells(4).next_back(),
            text(cells(4).count() as f64),
        ];
        let grouped = grouped
            .iter()
            .find(|r| r[0].as_ref() == Some(entity))
            .expect("a group");
        for (i, (a, b)) in grouped.iter().zip(&expected).enumerate() {
            let equal = match i {
                0 | 8 => a == b,
                _ => number(a) == number(b),
            };
            assert!(
                equal,
                "{entity}: aggregate {i}: {grouped:?}, not {expected:?}"
            );
        }
        // The device shadow: the newest of each channel, and v only if it is fresh by then.
        let newest = |i: usize| rows.iter().rev().find(|r| r[i].is_some());
        let ts = (2..5)
            .filter_map(newest)
            .map(|r| ts_of(r, 1))
            .max()
            .expect("a sample");
        let fresh = |r: &&&Row| ts - ts_of(r, 1) <= STALENESS;
        let v = newest(2).filter(fresh).and_then(|r| r[2].clone());
        let of = |i: usize| newest(i).and_then(|r| r[i].clone());
        let expected = vec![Some(entity.clone()), Some(ts.to_string()), v, of(3), of(4)];
        assert_eq!(latest[n], expected);
        let sql = format!("SELECT entity, ts, v, n, s FROM m WHERE entity = '{entity}'");
        united.extend(ask(client, &sql).await);
    }
    assert_eq!(united, filled);
}

/// Answers that must not change as long as nobody writes.
async fn fingerprint(client: &Client) -> Vec<Vec<Row>> {
    let mut all = Vec::new();
    for sql in [
        "SELECT entity, ts, v, n, s FROM m",
        "SELECT entity, ts, v, n, s FROM m RAW WHERE n > 500 OR s = 'on'",
        "SELECT entity, ts, n FROM m WHERE v > 0",
        "SELECT entity, ts, count(*), sum(v), first(n), last(s) FROM m SAMPLE BY 11m",
        "SELECT entity, ts, v, s FROM m WHERE ts <= 1709250000000 LATEST ON ts PARTITION BY entity",
        "SELECT entity, ts, v, s FROM m LATEST ON ts PARTITION BY entity",
    ] {
        all.push(sorted(ask(client, sql).await));
    }
    for sql in [
        "SELECT count(*), count(v), sum(v), min(s), max(s) FROM m",
        "SELECT ts, avg(v), count(*) FROM m WHERE ts BETWEEN 1709078400000 AND 1709424000000 SAMPLE BY 1h FILL(LINEAR)",
        "SELECT ts, max(v), last(n) FROM m WHERE entity = 'e3' AND ts BETWEEN 1709078400000 AND 1709424000000 SAMPLE BY 2h FILL(PREV)",
    ] {
        all.push(ask(client, sql).await);
    }
    all
}

#[test]
fn answers_agree_with_each_other() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("small.toml");
    let limits = "[limits]\nmemory_bytes = \"64M\"\nlog_bytes = \"4M\"\nlog_file_bytes = \"1M\"\n\
                  block_rows = 64\nmerge_fan_in = 2\n";
    std::fs::write(&config, limits).expect("config");
    let args = ["--config", config.to_str().expect("a path")];
    let data = dir.path().join("data");
    let mut server = Server::start(&data, &args);
    server.query("CREATE TABLE m (v DOUBLE FILL HOLD STALENESS 10 m, n INT, s TEXT FILL HOLD)");
    let rng = Rng::new(20_240_229);
    for part in 0..3 {
        let text = lines(&rng, 3_000, START + part * DAY);
        server.send_lines(text.as_bytes());
        runtime.block_on(async {
            let client = server.connect().await;
            for _ in 0..4 {
                halves(&client, &rng).await;
            }
            buckets(&client).await;
            rows(&client).await;
        });
        let before = runtime.block_on(async { fingerprint(&server.connect().await).await });
        let same = |server: &Server, when: &str| {
            let after = runtime.block_on(async { fingerprint(&server.connect().await).await });
            for (n, (a, b)) in before.iter().zip(&after).enumerate() {
                assert!(
                    a == b,
                    "part {part}: question {n} is answered otherwise {when}"
                );
            }
        };
        server.query("CHECKPOINT");
        same(&server, "after CHECKPOINT");
        server.kill();
        server = Server::start(&data, &args);
        same(&server, "after kill -9");
        runtime.block_on(async {
            let client = server.connect().await;
            halves(&client, &rng).await;
            buckets(&client).await;
            rows(&client).await;
        });
    }
}
