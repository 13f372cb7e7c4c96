//! The work that is measured, one function each.

use crate::data::{self, Mode, Rng};
use crate::floor::Floor;
use crate::pg::Pg;
use crate::report::{Report, median};
use crate::server::Server;
use hdrhistogram::Histogram;
use std::io::{Error, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("fixed bounds")
}

fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

const CREATE: &str =
    "CREATE ROWS TABLE IF NOT EXISTS perf_rows (name TEXT, model TEXT, active BOOL, n INT)";
const INSERT: &str = "INSERT INTO perf_rows (name, model, active, n) VALUES ($1, $2, true, $3)";

/// Single-row durable inserts: one connection against the floor, then 64.
pub fn inserts(server: &Server, floor: &Floor, seconds: u64, report: &mut Report) -> Result<()> {
    let mut pg = Pg::connect(&server.pg)?;
    pg.query(CREATE)?;
    pg.prepare("i", INSERT)?;
    let mut medians = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..5 {
        let mut h = histogram();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(seconds) {
            let one = Instant::now();
            pg.execute("i", &["vehicle", "S8", "17"])?;
            h.saturating_record(one.elapsed().as_micros() as u64);
        }
        rates.push(h.len() as f64 / began.elapsed().as_secs_f64());
        medians.push(h.value_at_quantile(0.5) as f64);
    }
    let (p50, rate) = (median(medians), median(rates));
    let ratio = p50 / floor.sum_us();
    report.add(
        "single-row durable INSERT, 1 connection, p50",
        "≤ 1.5 × floor",
        format!(
            "{p50:.0} µs = {ratio:.2} × floor ({:.0} + {:.0} µs); {rate:.0}/s",
            floor.write_us, floor.round_trip_us
        ),
        Some(ratio <= 1.5),
    );
    let mut many = Vec::new();
    for _ in 0..3 {
        many.push(insert_rate(server, 64, seconds)?);
    }
    let many = median(many);
    report.add(
        "the same, 64 connections",
        "≥ 15 × the rate of 1",
        format!("{many:.0}/s = {:.1} ×", many / rate),
        Some(many >= 15.0 * rate),
    );
    Ok(())
}

fn insert_rate(server: &Server, connections: usize, seconds: u64) -> Result<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..connections {
        let (stop, done) = (stop.clone(), done.clone());
        let mut pg = Pg::connect(&server.pg)?;
        pg.prepare("i", INSERT)?;
        threads.push(std::thread::spawn(move || -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                pg.execute("i", &["vehicle", "S8", "17"])?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }));
    }
    std::thread::sleep(Duration::from_millis(300));
    let (from, began) = (done.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let rate = (done.load(Ordering::Relaxed) - from) as f64 / began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for t in threads {
        t.join().map_err(|_| Error::other("a client died"))??;
    }
    Ok(rate)
}

fn send(server: &Server, lines: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(&server.ilp)?;
    stream.write_all(lines)?;
    stream.shutdown(Shutdown::Write)?;
    // The server closes its side once everything is durable.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    Ok(())
}

fn count(pg: &mut Pg, sql: &str) -> Result<u64> {
    let answer = pg.query(sql)?;
    let cell = answer
        .rows
        .first()
        .and_then(|r| r.first().cloned().flatten());
    cell.and_then(|c| c.parse().ok())
        .ok_or_else(|| Error::other(format!("{sql}: no number")))
}

/// Line protocol until everything is durable and visible; then the four queries; then bytes on disk.
pub fn telemetry(server: &Server, mode: Mode, report: &mut Report) -> Result<()> {
    let (name, bytes_target) = match mode {
        Mode::Int => ("int", 0.9),
        Mode::Float => ("float", 2.4),
    };
    let mut pg = Pg::connect(&server.pg)?;
    let mut rates = Vec::new();
    let rounds = if mode == Mode::Int { 5 } else { 1 };
    let mut table = String::new();
    for round in 0..rounds {
        if !table.is_empty() {
            pg.query(&format!("DROP TABLE {table}"))?;
        }
        table = format!("cpu_{name}{round}");
        let lines = data::line_protocol(mode, &table);
        let began = Instant::now();
        send(server, &lines)?;
        let rows = count(&mut pg, &format!("SELECT count(*) FROM {table}"))?;
        let took = began.elapsed();
        if rows != data::ROWS as u64 {
            return Err(Error::other(format!(
                "{rows} rows are visible of {}",
                data::ROWS
            )));
        }
        rates.push(rows as f64 / took.as_secs_f64());
    }
    let rate = median(rates);
    report.add(
        &format!("line protocol, {name} data, until durable and visible"),
        if mode == Mode::Int {
            "≥ 500,000 rows/s"
        } else {
            "–"
        },
        format!("{rate:.0} rows/s"),
        (mode == Mode::Int).then_some(rate >= 500_000.0),
    );
    if mode == Mode::Int {
        queries(&mut pg, &table, "in memory", report)?;
    }
    pg.query("CHECKPOINT")?;
    settle(&mut pg)?;
    let bytes = count(
        &mut pg,
        &format!("SELECT bytes FROM $sys.tables WHERE name = '{table}'"),
    )?;
    let per_value = bytes as f64 / (data::ROWS * data::FIELDS.len()) as f64;
    report.add(
        &format!("bytes per value on disk after merge, {name} data"),
        &format!("≤ {bytes_target}"),
        format!("{per_value:.3}"),
        Some(per_value <= bytes_target),
    );
    if mode == Mode::Int {
        queries(&mut pg, &table, "in segments", report)?;
    }
    pg.query(&format!("DROP TABLE {table}"))?;
    Ok(())
}

/// Waits until no merge is due.
fn settle(pg: &mut Pg) -> Result<()> {
    for _ in 0..600 {
        if count(
            pg,
            "SELECT coalesce(sum(merge_debt_bytes), 0) FROM $sys.shards",
        )? == 0
        {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(Error::other("merges do not end"))
}

fn queries(pg: &mut Pg, t: &str, place: &str, report: &mut Report) -> Result<()> {
    let start = data::START_S * 1000;
    let hour = start + 12 * 3_600_000;
    let end = start + 86_400_000 - 1;
    let list = [
        (
            "a: one host, max per minute over 1 h",
            0.5,
            60,
            format!(
                "SELECT ts, max(usage_user) FROM {t} WHERE entity = 'host_42' AND ts BETWEEN {hour} AND {} SAMPLE BY 1m",
                hour + 3_599_999
            ),
        ),
        (
            "b: all hosts, avg per hour over 24 h by host",
            10.0,
            2400,
            format!(
                "SELECT entity, ts, avg(usage_user) FROM {t} WHERE ts BETWEEN {start} AND {end} SAMPLE BY 1h"
            ),
        ),
        (
            "c: last value of every metric of every host",
            0.5,
            100,
            format!("SELECT * FROM {t} LATEST ON ts PARTITION BY entity"),
        ),
        (
            "d: avg of one metric over all rows",
            5.0,
            1,
            format!("SELECT avg(usage_user) FROM {t}"),
        ),
    ];
    for (name, target, rows, sql) in list {
        let mut times = Vec::new();
        for round in 0..55 {
            let began = Instant::now();
            let answer = pg.query(&sql)?;
            if round >= 5 {
                times.push(millis(began.elapsed()));
            }
            if answer.rows.len() != rows {
                return Err(Error::other(format!(
                    "{sql}: {} rows, not {rows}",
                    answer.rows.len()
                )));
            }
        }
        let ms = median(times);
        report.add(
            &format!("query {name}, {place}"),
            &format!("≤ {target} ms"),
            format!("{ms:.3} ms"),
            Some(ms <= target),
        );
    }
    Ok(())
}

/// `count(*)` of rows tables in segments.
pub fn counts(server: &Server, report: &mut Report) -> Result<()> {
    let mut pg = Pg::connect(&server.pg)?;
    for (rows, target) in [(20_000usize, 1.0), (1_000_000, 50.0)] {
        let table = format!("counted_{rows}");
        pg.query(&format!(
            "CREATE ROWS TABLE {table} (a INT, b TEXT, c DOUBLE, d BOOL, e INT)"
        ))?;
        let began = Instant::now();
        let mut left = rows;
        while left > 0 {
            let n = left.min(5_000);
            let values: Vec<String> = (0..n)
                .map(|i| format!("({i}, 'row {i}', {}.5, true, {})", i % 977, i % 13))
                .collect();
            pg.query(&format!(
                "INSERT INTO {table} (a, b, c, d, e) VALUES {}",
                values.join(", ")
            ))?;
            left -= n;
        }
        let load = began.elapsed();
        pg.query("CHECKPOINT")?;
        settle(&mut pg)?;
        let mut times = Vec::new();
        for _ in 0..25 {
            let began = Instant::now();
            let n = count(&mut pg, &format!("SELECT count(*) FROM {table}"))?;
            times.push(millis(began.elapsed()));
            if n != rows as u64 {
                return Err(Error::other(format!("count(*) is {n}, not {rows}")));
            }
        }
        let ms = median(times);
        report.add(
            &format!("count(*) of a rows table of {rows} rows in segments"),
            &format!("≤ {target} ms"),
            format!(
                "{ms:.3} ms (loaded at {:.0} rows/s)",
                rows as f64 / load.as_secs_f64()
            ),
            Some(ms <= target),
        );
    }
    Ok(())
}

/// Durable inserts on a fixed schedule (a stall counts for every insert it delays), alone and beside a full
/// scan and a merge.
pub fn latency_under_load(server: &Server, seconds: u64, report: &mut Report) -> Result<()> {
    let mut pg = Pg::connect(&server.pg)?;
    pg.query(CREATE)?;
    let idle = open_loop(server, 200, seconds)?;
    let lines = data::line_protocol(Mode::Float, "busy");
    send(server, &lines)?;
    let stop = Arc::new(AtomicBool::new(false));
    let scanner = {
        let (stop, address) = (stop.clone(), server.pg.clone());
        std::thread::spawn(move || -> Result<u64> {
            let mut pg = Pg::connect(&address)?;
            let mut scans = 0;
            while !stop.load(Ordering::Relaxed) {
                pg.query(
                    "SELECT entity, ts, usage_user, usage_idle FROM busy WHERE usage_user > 99.9",
                )?;
                scans += 1;
            }
            Ok(scans)
        })
    };
    let merger = {
        let (stop, address, ilp) = (stop.clone(), server.pg.clone(), server.ilp.clone());
        std::thread::spawn(move || -> Result<()> {
            let mut pg = Pg::connect(&address)?;
            let part = &lines[..lines.len() / 8];
            let part = &part[..part.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1)];
            while !stop.load(Ordering::Relaxed) {
                // Late duplicates of the first hours: every CHECKPOINT leaves segments that overlap.
                let mut stream = TcpStream::connect(&ilp)?;
                stream.write_all(part)?;
                stream.shutdown(Shutdown::Write)?;
                stream.read_to_end(&mut Vec::new())?;
                pg.query("CHECKPOINT")?;
            }
            Ok(())
        })
    };
    let busy = open_loop(server, 200, seconds.max(8))?;
    stop.store(true, Ordering::Relaxed);
    let scans = scanner
        .join()
        .map_err(|_| Error::other("the scanner died"))??;
    merger
        .join()
        .map_err(|_| Error::other("the merger died"))??;
    let merges = count(&mut pg, "SELECT sum(merges) FROM $sys.shards")?;
    let (p50, p99) = (idle.value_at_quantile(0.5), busy.value_at_quantile(0.99));
    let ratio = p99 as f64 / p50 as f64;
    report.add(
        "p99 of a durable INSERT while a full scan and merges run (200/s, open loop)",
        "≤ 10 × its idle p50",
        format!(
            "{p99} µs = {ratio:.1} × {p50} µs (idle p99 {} µs; {scans} scans, {merges} merges)",
            idle.value_at_quantile(0.99)
        ),
        Some(ratio <= 10.0),
    );
    pg.query("DROP TABLE busy")?;
    Ok(())
}

fn open_loop(server: &Server, per_second: u64, seconds: u64) -> Result<Histogram<u64>> {
    let mut pg = Pg::connect(&server.pg)?;
    pg.prepare("i", INSERT)?;
    pg.execute("i", &["vehicle", "S8", "17"])?;
    let mut h = histogram();
    let began = Instant::now();
    let gap = Duration::from_secs(1) / per_second as u32;
    for i in 0..(per_second * seconds) as u32 {
        let due = began + gap * i;
        if let Some(wait) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
        // From when it was due: sleeping too long is the client's fault, waiting is the server's.
        let sent = Instant::now().min(due.max(Instant::now() - gap));
        pg.execute("i", &["vehicle", "S8", "17"])?;
        h.saturating_record(sent.elapsed().as_micros().max(1) as u64);
    }
    Ok(h)
}

/// A start after kill -9 with 256 MiB of log.
pub fn restart(server: Server, args: &[&str], report: &mut Report) -> Result<Server> {
    let mut pg = Pg::connect(&server.pg)?;
    let mut round = 0;
    let mut log = 0;
    while log < 256 << 20 {
        let lines = data::line_protocol(Mode::Int, &format!("restart{round}"));
        send(&server, &lines)?;
        round += 1;
        log = count(&mut pg, "SELECT sum(log_bytes) FROM $sys.shards")?;
        if round > 12 {
            break;
        }
    }
    let data = server.kill();
    let server = Server::start(&data, args)?;
    let seconds = server.start.as_secs_f64();
    let mut pg = Pg::connect(&server.pg)?;
    let rows = count(&mut pg, "SELECT count(*) FROM restart0")?;
    if rows != data::ROWS as u64 {
        return Err(Error::other(format!(
            "{rows} rows after the restart, of {}",
            data::ROWS
        )));
    }
    report.add(
        "start after kill -9 with 256 MiB of log",
        "≤ 3 s",
        format!("{seconds:.2} s ({} MiB of log)", log >> 20),
        Some(seconds <= 3.0),
    );
    for r in 0..round {
        pg.query(&format!("DROP TABLE restart{r}"))?;
    }
    Ok(server)
}

/// Ten million entities with one sample each.
pub fn many_entities(server: &Server, entities: usize, report: &mut Report) -> Result<()> {
    let mut pg = Pg::connect(&server.pg)?;
    let began = Instant::now();
    let mut lines = Vec::new();
    let mut stream = TcpStream::connect(&server.ilp)?;
    let mut rng = Rng(7);
    for i in 0..entities {
        let _ = writeln!(
            lines,
            "fleet,hostname=device-{i:08} level={} {}000000000",
            rng.next() % 100,
            data::START_S
        );
        if lines.len() > 1 << 20 {
            stream.write_all(&lines)?;
            lines.clear();
        }
    }
    stream.write_all(&lines)?;
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_end(&mut Vec::new())?;
    let rows = count(&mut pg, "SELECT count(*) FROM fleet")?;
    if rows != entities as u64 {
        return Err(Error::other(format!("{rows} entities of {entities}")));
    }
    let load = began.elapsed();
    let mut times = Vec::new();
    for i in 0..200 {
        let entity = (i * 49_999) % entities;
        let sql = format!(
            "SELECT * FROM fleet WHERE entity = 'device-{entity:08}' LATEST ON ts PARTITION BY entity"
        );
        let began = Instant::now();
        let answer = pg.query(&sql)?;
        times.push(millis(began.elapsed()));
        if answer.rows.len() != 1 {
            return Err(Error::other(format!("{sql}: {} rows", answer.rows.len())));
        }
    }
    let (ms, rss) = (median(times), server.rss() as f64 / (1u64 << 30) as f64);
    report.add(
        &format!("{entities} entities with one sample each: LATEST of one"),
        "≤ 1 ms, RSS ≤ 4 GiB",
        format!(
            "{ms:.3} ms, RSS {rss:.2} GiB (loaded in {:.1} s)",
            load.as_secs_f64()
        ),
        Some(ms <= 1.0 && rss <= 4.0),
    );
    Ok(())
}
