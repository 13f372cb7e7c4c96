//! Very many entities with one sample each.

use super::{Run, drain, must_count};
use crate::data::{Rng, START_S};
use crate::load::millis;
use crate::pg::Pg;
use crate::progress::Progress;
use crate::report::{Line, median};
use crate::scenario::telemetry::numbers;
use crate::server::Server;
use std::io::{Error, Result, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Loads one sample of each entity; seconds.
fn load(server: &Server, pg: &mut Pg, table: &str, entities: usize) -> Result<f64> {
    let mut rng = Rng(7);
    let began = Instant::now();
    let mut progress = Progress::new(&format!("{entities} entities"), entities as u64);
    let mut stream = TcpStream::connect(&server.ilp)?;
    let mut lines = Vec::with_capacity(1 << 21);
    for i in 0..entities {
        let level = rng.bits() % 100;
        writeln!(
            lines,
            "{table},hostname=device-{i:08} level={level} {START_S}000000000"
        )?;
        if lines.len() > 1 << 20 {
            stream.write_all(&lines)?;
            lines.clear();
            progress.at(i as u64);
        }
    }
    stream.write_all(&lines)?;
    drain(stream)?;
    must_count(pg, &format!("SELECT count(*) FROM {table}"), entities)?;
    Ok(began.elapsed().as_secs_f64())
}

/// The latest of all, as every row of it reaches the client.
fn all(run: &mut Run) -> Result<()> {
    let server = run.fresh("latest")?;
    let entities = run.size.latest_all;
    let mut pg = Pg::connect(&server.pg)?;
    load(&server, &mut pg, "fleet", entities)?;
    let mut rng = Rng(7);
    let expected: f64 = (0..entities).map(|_| (rng.bits() % 100) as f64).sum();
    let sql = "SELECT * FROM fleet LATEST ON ts PARTITION BY entity";
    let mut times = Vec::new();
    for _ in 0..run.size.rounds {
        let began = Instant::now();
        let answer = pg.query(sql)?;
        times.push(millis(began.elapsed()));
        let (count, sum) = numbers(&answer, 2);
        if count != entities || sum != expected {
            return Err(Error::other(format!(
                "{sql}: {count} numbers of sum {sum}, not {entities} of sum {expected}"
            )));
        }
    }
    let ms = median(times);
    let line = Line::told(
        "entities",
        format!("{entities} entities: LATEST of all, every row at the client"),
        format!("{ms:.1} ms"),
        ms,
    );
    run.report.add(line.at_most(300.0, "ms"));
    run.done(server)
}

/// Asks for all of some, and for one of very many again and again.
pub fn run(run: &mut Run) -> Result<()> {
    all(run)?;
    let server = run.fresh("entities")?;
    let entities = run.size.entities;
    let mut pg = Pg::connect(&server.pg)?;
    let load = load(&server, &mut pg, "fleet", entities)?;
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
    let ms = median(times.clone());
    times.sort_by(f64::total_cmp);
    let line = Line::told(
        "entities",
        format!("{entities} entities, one sample each: LATEST of one"),
        format!(
            "{ms:.3} ms (worst of 200: {:.3} ms; loaded in {load:.1} s, {:.0} rows/s)",
            times.last().copied().unwrap_or_default(),
            entities as f64 / load
        ),
        ms,
    );
    run.report.add(line.at_most(0.3, "ms"));
    let gib = |b: u64| b as f64 / (1u64 << 30) as f64;
    let (now, highest) = server.rss()?;
    let line = Line::told(
        "entities",
        "the same: highest RSS of the server",
        format!("{:.2} GiB ({:.2} GiB at the end)", gib(highest), gib(now)),
        gib(highest),
    );
    run.report.add(line.at_most(4.0, "GiB"));
    run.done(server)
}
