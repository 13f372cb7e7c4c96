//! `strandline-perf`: prints the table of figures.

// A load generator lives by files and the clock.
#![allow(clippy::disallowed_methods)]

use clap::Parser;
use std::io::Result;
use std::path::PathBuf;
use strandline_perf::data::Mode;
use strandline_perf::report::Report;
use strandline_perf::server::Server;
use strandline_perf::{floor, scenario};

/// Measures Strandline, client included, and prints a table with its targets. Build the server first:
/// `cargo build --release --workspace`.
#[derive(Parser, Debug)]
struct Args {
    /// Where the data directories are made; on the disk that is to be measured.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Seconds of each timed loop.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Entities of the last scenario.
    #[arg(long, default_value_t = 10_000_000)]
    entities: usize,
    /// Which to run: inserts, int, float, counts, latency, restart, entities. All when none is named.
    scenarios: Vec<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let wanted = |name: &str| args.scenarios.is_empty() || args.scenarios.iter().any(|s| s == name);
    let dir = tempfile::Builder::new()
        .prefix("strandline-perf-")
        .tempdir_in(&args.dir)?;
    let mut report = Report::default();
    let flags = ["--ilp-entity-tag", "hostname"];
    let fresh = |name: &str| Server::start(&dir.path().join(name), &flags);
    eprintln!("measuring the floor …");
    let floor = floor::measure(dir.path(), 2_000)?;
    report.add(
        "floor: 4 KiB direct write + fdatasync; loopback round trip (p50)",
        "–",
        format!("{:.0} µs; {:.0} µs", floor.write_us, floor.round_trip_us),
        None,
    );
    if wanted("inserts") {
        scenario::inserts(&fresh("inserts")?, &floor, args.seconds, &mut report)?;
    }
    if wanted("int") {
        scenario::telemetry(&fresh("int")?, Mode::Int, &mut report)?;
    }
    if wanted("float") {
        scenario::telemetry(&fresh("float")?, Mode::Float, &mut report)?;
    }
    if wanted("counts") {
        scenario::counts(&fresh("counts")?, &mut report)?;
    }
    if wanted("latency") {
        scenario::latency_under_load(&fresh("latency")?, args.seconds, &mut report)?;
    }
    if wanted("restart") {
        scenario::restart(fresh("restart")?, &flags, &mut report)?;
    }
    if wanted("entities") {
        scenario::many_entities(&fresh("entities")?, args.entities, &mut report)?;
    }
    report.print();
    Ok(())
}
