//! Very many entities with one sample each.

use super::{Run, drain, must_count};
use crate::data::{Rng, START_S};
use crate::load::millis;
use crate::pg::Pg;
use crate::progress::Progress;
use crate::report::{Line, median};
use std::io::{Error, Result, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Loads them, and asks for the latest of one again and again.
pub fn run(run: &mut Run) -> Result<()> {
    let server = run.fresh("entities")?;
    let entities = run.size.entities;
    let mut pg = Pg::connect(&server.pg)?;
    let mut rng = Rng(7);
    let began = Instant::now();
    let mut progress = Progress::new(&format!("{entities} entities"), entities as u64);
    let mut stream = TcpStream::connect(&server.ilp)?;
    let mut lines = Vec::with_capacity(1 << 21);
    for i in 0..entities {
        let level = rng.bits() % 100;
        writeln!(
            lines,
            "fleet,hostname=device-{i:08} level={level} {START_S}000000000"
        )?;
        if lines.len() > 1 << 20 {
            stream.write_all(&lines)?;
            lines.clear();
            progress.at(i as u64);
        }
    }
    stream.write_all(&lines)?;
    drain(stream)?;
    must_count(&mut pg, "SELECT count(*) FROM fleet", entities)?;
    let load = began.elapsed().as_secs_f64();
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
    run.report.add(line.at_most(1.0, "ms"));
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
