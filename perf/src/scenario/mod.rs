//! The work that is measured, one file each.

mod counts;
mod entities;
mod inserts;
mod late;
mod latency;
mod restart;
mod telemetry;
mod year;

use crate::data::Shape;
use crate::pg::Pg;
use crate::report::{Line, Report};
use crate::server::{Server, Starter};
use crate::{data, floor, machine};
use std::io::{Error, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use year::DEVICES;

/// How much of everything.
#[derive(Clone, Debug)]
pub struct Size {
    /// Of how many repetitions the median is taken.
    pub rounds: usize,
    /// The telemetry.
    pub shape: Shape,
    /// Each timed loop.
    pub loop_time: Duration,
    /// Each window of the open loop beside scans and merges.
    pub busy_time: Duration,
    /// Writes and round trips of one measurement of the floor.
    pub floor_rounds: usize,
    /// Rows of the two counted tables, with the ms that each may take.
    pub counted: [(usize, f64); 2],
    /// The log that a start replays.
    pub log_bytes: u64,
    /// Entities of which one is asked for, one sample each.
    pub entities: usize,
    /// Entities of which all are asked for.
    pub latest_all: usize,
    /// Devices of the year of data, of [`DEVICES`].
    pub year_devices: usize,
    /// Days of the year of data.
    pub year_days: usize,
}

impl Size {
    /// What the targets speak of.
    pub fn full() -> Size {
        Size {
            rounds: 5,
            shape: data::FULL,
            loop_time: Duration::from_secs(3),
            busy_time: Duration::from_secs(8),
            floor_rounds: 1_500,
            counted: [(20_000, 1.0), (1_000_000, 50.0)],
            log_bytes: 256 << 20,
            entities: 10_000_000,
            latest_all: 1_000_000,
            year_devices: DEVICES / 50,
            year_days: 365,
        }
    }

    /// A trial of everything within seconds, a debug build included; its figures mean nothing.
    pub fn small() -> Size {
        Size {
            rounds: 1,
            shape: data::SMALL,
            loop_time: Duration::from_millis(300),
            busy_time: Duration::from_millis(1_000),
            floor_rounds: 50,
            counted: [(500, 1.0), (2_000, 50.0)],
            log_bytes: 2 << 20,
            entities: 2_000,
            latest_all: 500,
            year_devices: 2,
            year_days: 3,
        }
    }
}

/// One run.
pub struct Run {
    /// Where the data directories are made.
    pub dir: PathBuf,
    /// How the server is started.
    pub starter: Starter,
    /// How much of everything.
    pub size: Size,
    /// What was measured.
    pub report: Report,
}

type Scenario = fn(&mut Run) -> Result<()>;

/// All scenarios by the name that `--only` takes.
pub const ALL: [(&str, &str, Scenario); 9] = [
    (
        "insert",
        "durable single-row INSERTs, 1 and 64 connections, against the floor",
        inserts::run,
    ),
    (
        "ilp",
        "line protocol: rows/s, questions a–d, bytes per value; whole numbers",
        telemetry::int,
    ),
    (
        "float",
        "bytes per value of two-decimal numbers",
        telemetry::float,
    ),
    (
        "latency",
        "durable INSERTs on a schedule, beside a full scan and merges",
        latency::run,
    ),
    (
        "late",
        "a tenth of the rows up to a day late: load, bytes written, questions a–d",
        late::run,
    ),
    ("count", "count(*) of rows tables", counts::run),
    ("restart", "start-up after kill -9", restart::run),
    ("entities", "ten million entities", entities::run),
    (
        "year",
        "a year of 1,000 devices, or a share of them (--scale)",
        year::run,
    ),
];

impl Run {
    /// Measures the floor, and then the scenarios that `wanted` names; before and after, what else the
    /// machine does.
    pub fn all(&mut self, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let before = machine::busy(self.size.loop_time)?;
        self.measure(wanted)?;
        let after = machine::busy(self.size.loop_time)?;
        let busy = before.max(after);
        let cores = std::thread::available_parallelism()?;
        let line = Line::told(
            "machine",
            "other work on the machine before and after",
            format!(
                "{:.0} % and {:.0} % of {cores} cores",
                before * 100.0,
                after * 100.0
            ),
            busy,
        );
        let most = format!(
            "≤ {:.0} %, or the figures are rough",
            machine::QUIET * 100.0
        );
        self.report.add(line.target(most, busy <= machine::QUIET));
        Ok(())
    }

    fn measure(&mut self, wanted: impl Fn(&str) -> bool) -> Result<()> {
        eprintln!("floor: the machine without us");
        let floor = floor::measure(&self.dir, self.size.floor_rounds)?;
        self.report.add(Line::told(
            "floor",
            "floor: aligned 4 KiB direct write + fdatasync; loopback round trip (p50)",
            format!("{:.0} µs + {:.0} µs", floor.write_us, floor.round_trip_us),
            floor.sum_us(),
        ));
        for (name, what, scenario) in ALL.into_iter().filter(|(name, ..)| wanted(name)) {
            eprintln!("{name}: {what}");
            let began = Instant::now();
            if let Err(e) = scenario(self) {
                self.report.failed(name, &e);
            }
            eprintln!("  ({:.1} s)", began.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// A server over an empty directory.
    fn fresh(&self, name: &str) -> Result<Server> {
        Server::start(&self.starter, &self.dir.join(name))
    }

    /// Stops a server and takes its directory away.
    fn done(&self, server: Server) -> Result<()> {
        std::fs::remove_dir_all(server.kill())
    }
}

/// Sends lines over one connection; returns once the server has closed its side, which it does when
/// everything is durable.
fn send(address: &str, lines: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(lines)?;
    drain(stream)
}

/// Closes our side, and waits for the other.
fn drain(mut stream: TcpStream) -> Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    Ok(())
}

/// Fails unless `sql` counts this many.
fn must_count(pg: &mut Pg, sql: &str, rows: usize) -> Result<()> {
    let seen = pg.number(sql)?;
    if seen != rows as f64 {
        return Err(Error::other(format!("{sql}: {seen}, not {rows}")));
    }
    Ok(())
}

/// Waits until no merge is due.
fn settle(pg: &mut Pg) -> Result<()> {
    settle_within(pg, Duration::from_secs(120))
}

fn settle_within(pg: &mut Pg, most: Duration) -> Result<()> {
    let began = Instant::now();
    while pg.number("SELECT coalesce(sum(merge_debt_bytes), 0) FROM $sys.shards")? != 0.0 {
        if began.elapsed() > most {
            return Err(Error::other(format!(
                "merges do not end within {} s",
                most.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
