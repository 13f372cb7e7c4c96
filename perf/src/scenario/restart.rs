//! A start after kill -9 with much log to replay.

use super::{Run, must_count, send};
use crate::data::{Data, Mode};
use crate::pg::Pg;
use crate::report::{Line, median};
use crate::server::Server;
use std::io::{Error, Result};
use std::path::Path;

/// Fills the log, kills, and starts a copy of the directory once per round.
pub fn run(run: &mut Run) -> Result<()> {
    let server = run.fresh("restart")?;
    let mut pg = Pg::connect(&server.pg)?;
    let data = Data::new(run.size.shape, Mode::Int);
    let mut tables = 0;
    let mut log = 0.0;
    while log < run.size.log_bytes as f64 {
        send(&server.ilp, &data.lines(&format!("restart{tables}")))?;
        tables += 1;
        let more = pg.number("SELECT sum(log_bytes) FROM $sys.shards")?;
        if more <= log {
            return Err(Error::other(format!(
                "the log does not grow past {log} bytes: a flush has released it"
            )));
        }
        log = more;
    }
    drop(pg);
    let killed = server.kill();
    let (mut times, mut rss) = (Vec::new(), 0);
    for round in 0..run.size.rounds {
        // A start may flush and release; each has the same to do.
        let copy = run.dir.join(format!("restart-{round}"));
        copy_dir(&killed, &copy)?;
        let server = Server::start(&run.starter, &copy)?;
        times.push(server.start.as_secs_f64());
        rss = rss.max(server.rss()?.1);
        let mut pg = Pg::connect(&server.pg)?;
        for table in 0..tables {
            let sql = format!("SELECT count(usage_user) FROM restart{table}");
            must_count(&mut pg, &sql, run.size.shape.rows())?;
        }
        drop(pg);
        run.done(server)?;
    }
    let seconds = median(times);
    let line = Line::told(
        "restart",
        "start-up after kill -9, until ready",
        format!(
            "{seconds:.2} s with {:.0} MiB of log ({} rows; highest RSS {} MiB)",
            log / 1048576.0,
            tables * run.size.shape.rows(),
            rss >> 20
        ),
        seconds,
    );
    run.report.add(line.at_most(3.0, "s with 256 MiB of log"));
    std::fs::remove_dir_all(killed)
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_dir(&from, &to)?;
        } else if kind.is_file() {
            std::fs::copy(&from, &to)?;
            // The copy is on the disk, as the original is, before a start is timed.
            std::fs::File::open(&to)?.sync_all()?;
        }
    }
    Ok(())
}
