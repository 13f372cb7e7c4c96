//! Line protocol until everything is durable and visible; then the four questions; then bytes on disk.

use super::{Run, must_count, send, settle};
use crate::data::{self, Data, Mode};
use crate::load::millis;
use crate::pg::{Answer, Pg};
use crate::report::{Line, median};
use crate::server::Server;
use std::io::{Error, Result};
use std::time::Instant;

/// Whole numbers: everything.
pub fn int(run: &mut Run) -> Result<()> {
    let data = Data::new(run.size.shape, Mode::Int);
    for connections in [1, 2] {
        load(run, &data, connections, false)?;
    }
    load(run, &data, 1, true)?;
    let (server, table) = kept(run, &data)?;
    let mut pg = Pg::connect(&server.pg)?;
    questions(run, &mut pg, &data, &table, "in memory")?;
    bytes(run, &server, &mut pg, &data, &table, 0.67)?;
    questions(run, &mut pg, &data, &table, "in segments")?;
    run.done(server)
}

/// Two decimals: bytes alone.
pub fn float(run: &mut Run) -> Result<()> {
    let data = Data::new(run.size.shape, Mode::Float);
    let (server, table) = kept(run, &data)?;
    let mut pg = Pg::connect(&server.pg)?;
    bytes(run, &server, &mut pg, &data, &table, 1.9)?;
    run.done(server)
}

/// A server that holds the data once.
fn kept(run: &Run, data: &Data) -> Result<(Server, String)> {
    let table = format!("cpu_{}", data.mode.name());
    let server = run.fresh(&table)?;
    send(&server.ilp, &data.lines(&table))?;
    Ok((server, table))
}

/// Rows/s over some connections, the hosts shared out among them; with the other tags stored as channels too,
/// where the table declares them.
fn load(run: &mut Run, data: &Data, connections: usize, tags: bool) -> Result<()> {
    let server = run.fresh("ilp")?;
    let mut pg = Pg::connect(&server.pg)?;
    let (rows, mut rates, mut cpu) = (data.shape.rows(), Vec::new(), Vec::new());
    for round in 0..run.size.rounds {
        let table = format!("load{round}");
        if tags {
            let fields = data::FIELDS.map(|f| format!("{f} DOUBLE")).join(", ");
            pg.query(&format!(
                "CREATE TABLE {table} (region TEXT, datacenter TEXT, {fields})"
            ))?;
        }
        let parts: Vec<Vec<u8>> = (0..connections)
            .map(|c| data.lines_of(&table, |h| h % connections == c))
            .collect();
        let count = format!("SELECT count(usage_user) FROM {table}");
        let before = server.cpu_seconds()?;
        let began = Instant::now();
        std::thread::scope(|scope| {
            let sending: Vec<_> = parts
                .iter()
                .map(|part| scope.spawn(|| send(&server.ilp, part)))
                .collect();
            sending
                .into_iter()
                .try_for_each(|s| s.join().map_err(|_| Error::other("a client died"))?)
        })?;
        must_count(&mut pg, &count, rows)?;
        rates.push(rows as f64 / began.elapsed().as_secs_f64());
        cpu.push((server.cpu_seconds()? - before) * 1e6 / rows as f64);
        all_there(&mut pg, data, &table)?;
        pg.query(&format!("DROP TABLE {table}"))?;
    }
    let rate = median(rates);
    let work = match (connections, tags) {
        (1, false) => "line protocol until durable and visible, 1 connection".into(),
        (n, false) => format!("the same, {n} connections"),
        (_, true) => "the same, 1 connection, region and datacenter stored too".to_string(),
    };
    let line = Line::told(
        "ilp",
        work,
        format!(
            "{rate:.0} rows/s (server {:.2} µs of CPU a row)",
            median(cpu)
        ),
        rate,
    );
    run.report.add(if tags {
        line
    } else {
        line.target("≥ 1,000,000 rows/s", rate >= 1_000_000.0)
    });
    run.done(server)
}

/// Fails unless the sum of every metric is that of the data.
fn all_there(pg: &mut Pg, data: &Data, table: &str) -> Result<()> {
    let sums = data::FIELDS.map(|f| format!("sum({f})")).join(", ");
    let answer = pg.query(&format!("SELECT {sums} FROM {table}"))?;
    let cells = answer.rows.first().cloned().unwrap_or_default();
    let seen = cells.iter().flatten().filter_map(|c| c.parse::<f64>().ok());
    let seen: Vec<f64> = seen.collect();
    let expected = data.sums();
    let equal = seen.iter().zip(expected).all(|(a, b)| data::agree(*a, b));
    if seen.len() != expected.len() || !equal {
        return Err(Error::other(format!(
            "the sums of {table} are {seen:?}, not {expected:?}"
        )));
    }
    Ok(())
}

/// Bytes of the table's segments after everything is flushed and merged.
fn bytes(
    run: &mut Run,
    server: &Server,
    pg: &mut Pg,
    data: &Data,
    table: &str,
    most: f64,
) -> Result<()> {
    pg.query("CHECKPOINT")?;
    settle(pg)?;
    let segments = pg.query(&format!(
        "SELECT sum(bytes), count(*), sum(rows) FROM $sys.segments WHERE table_name = '{table}'"
    ))?;
    let cell = |i: usize| -> Result<u64> {
        let cell = segments.rows.first().and_then(|r| r.get(i)?.clone());
        cell.and_then(|c| c.parse().ok())
            .ok_or_else(|| Error::other(format!("$sys.segments says nothing of {table}")))
    };
    let (bytes, count) = (cell(0)?, cell(1)?);
    let files = server.segment_files()?;
    if bytes > files || bytes == 0 {
        return Err(Error::other(format!(
            "$sys.segments says {bytes} bytes, the directory has {files}"
        )));
    }
    all_there(pg, data, table)?;
    let per_value = bytes as f64 / data.shape.values() as f64;
    let line = Line::told(
        if data.mode == Mode::Int {
            "ilp"
        } else {
            "float"
        },
        format!(
            "bytes per value on disk after merge, {}",
            match data.mode {
                Mode::Int => "whole numbers",
                Mode::Float => "two decimals",
            }
        ),
        format!("{per_value:.3} ({count} segments, {bytes} bytes; all .seg files {files})"),
        per_value,
    );
    run.report.add(line.at_most(most, ""));
    Ok(())
}

/// The four questions that every store is asked.
pub fn asked(table: &str, asked_host: usize) -> [(&'static str, f64, usize, String); 4] {
    let (from, to) = data::range_ms();
    let (hour_from, hour_to) = data::asked_hour_ms();
    [
        (
            "a: one host, one metric, max per minute over 1 h",
            0.25,
            1,
            format!(
                "SELECT ts, max(usage_user) FROM {table} WHERE entity = 'host_{asked_host}' AND ts BETWEEN {hour_from} AND {hour_to} SAMPLE BY 1m"
            ),
        ),
        (
            "b: all hosts, one metric, avg per hour over 24 h by host",
            4.0,
            2,
            format!(
                "SELECT entity, ts, avg(usage_user) FROM {table} WHERE ts BETWEEN {from} AND {to} SAMPLE BY 1h"
            ),
        ),
        (
            "c: last value of every metric of every host",
            0.3,
            2,
            format!("SELECT * FROM {table} LATEST ON ts PARTITION BY entity"),
        ),
        (
            "d: avg of one metric over all rows",
            1.0,
            0,
            format!("SELECT avg(usage_user) FROM {table}"),
        ),
    ]
}

/// As (d), but only statistics of whole blocks do not answer it. Its target is the best columnar peer's time.
pub fn asked_above(table: &str) -> (&'static str, f64, usize, String) {
    (
        "e: avg of one metric over the rows in which another is above 50",
        f64::INFINITY,
        0,
        format!(
            "SELECT avg(usage_user) FROM {table} WHERE usage_system > {}",
            data::ABOVE
        ),
    )
}

/// How many numbers stand behind the first cells of the rows, and their sum.
pub fn numbers(answer: &Answer, skip: usize) -> (usize, f64) {
    let cells = answer.rows.iter().flat_map(|r| r.iter().skip(skip));
    cells
        .flatten()
        .filter_map(|c| c.parse::<f64>().ok())
        .fold((0, 0.0), |(n, sum), v| (n + 1, sum + v))
}

fn questions(run: &mut Run, pg: &mut Pg, data: &Data, table: &str, place: &str) -> Result<()> {
    let e = data.expected();
    let expected = [e.a, e.b, e.c, e.d, e.e];
    for ((name, most, skip, sql), expected) in asked(table, data.shape.asked_host())
        .into_iter()
        .chain([asked_above(table)])
        .zip(expected)
    {
        let mut times = Vec::new();
        for round in 0..run.size.rounds + 2 {
            let began = Instant::now();
            let answer = pg.query(&sql)?;
            // The first two warm the caches.
            if round >= 2 {
                times.push(millis(began.elapsed()));
            }
            let (count, sum) = numbers(&answer, skip);
            if count != expected.0 || !data::agree(sum, expected.1) {
                return Err(Error::other(format!(
                    "{sql}: {count} numbers of sum {sum}, not {} of sum {}",
                    expected.0, expected.1
                )));
            }
        }
        let ms = median(times);
        let line = Line::told(
            "ilp",
            format!("question {name}, {place}"),
            format!("{ms:.3} ms"),
            ms,
        );
        run.report.add(if most.is_finite() {
            line.at_most(most, "ms")
        } else {
            line
        });
    }
    Ok(())
}
