//! `count(*)` of rows tables, in memory and in segments.

use super::{Run, must_count, settle};
use crate::load::millis;
use crate::pg::Pg;
use crate::progress::Progress;
use crate::report::{Line, median};
use std::io::Result;
use std::time::Instant;

/// Both tables.
pub fn run(run: &mut Run) -> Result<()> {
    let server = run.fresh("count")?;
    let mut pg = Pg::connect(&server.pg)?;
    for (rows, most) in run.size.counted {
        let table = format!("counted_{rows}");
        pg.query(&format!(
            "CREATE ROWS TABLE {table} (a INT, b TEXT, c DOUBLE, d BOOL, e INT)"
        ))?;
        let began = Instant::now();
        let mut progress = Progress::new(&format!("loading {rows} rows"), rows as u64);
        let mut done = 0;
        while done < rows {
            let n = (rows - done).min(5_000);
            let values: Vec<String> = (done..done + n)
                .map(|i| format!("({i}, 'row {i}', {}.5, true, {})", i % 977, i % 13))
                .collect();
            pg.query(&format!(
                "INSERT INTO {table} (a, b, c, d, e) VALUES {}",
                values.join(", ")
            ))?;
            done += n;
            progress.at(done as u64);
        }
        let rate = rows as f64 / began.elapsed().as_secs_f64();
        let memory = count(run, &mut pg, &table, rows)?;
        pg.query("CHECKPOINT")?;
        settle(&mut pg)?;
        let segments = count(run, &mut pg, &table, rows)?;
        for (place, ms) in [("in memory", memory), ("in segments", segments)] {
            let line = Line::told(
                "count",
                format!("count(*) of a rows table of {rows} rows {place}"),
                format!("{ms:.3} ms (loaded at {rate:.0} rows/s)"),
                ms,
            );
            run.report.add(line.at_most(most, "ms"));
        }
    }
    run.done(server)
}

fn count(run: &Run, pg: &mut Pg, table: &str, rows: usize) -> Result<f64> {
    let sql = format!("SELECT count(*) FROM {table}");
    let mut times = Vec::new();
    for round in 0..run.size.rounds + 2 {
        let began = Instant::now();
        must_count(pg, &sql, rows)?;
        if round >= 2 {
            times.push(millis(began.elapsed()));
        }
    }
    Ok(median(times))
}
