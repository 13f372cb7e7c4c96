//! `strandline-perf`: prints the table of figures.

// A load generator lives by files and the clock.
#![allow(clippy::disallowed_methods)]

use clap::Parser;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strandline_perf::data::{Data, Mode};
use strandline_perf::peers;
use strandline_perf::report::{Report, write_json};
use strandline_perf::scenario::{ALL, DEVICES, Run, Size};
use strandline_perf::server::Starter;

/// Measures Strandline, client included, and prints a table: what was seen, its target, the floor or other
/// yardstick of the same run, and OK or short. Build first: `cargo build --release --workspace`.
#[derive(Parser, Debug)]
struct Args {
    /// Where the data directories are made, on the disk that is to be measured.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// What to measure, separated by commas: insert, ilp, float, latency, late, count, restart, entities, year. All when
    /// left out; `none` measures the floor alone.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Everything tiny: shows within seconds that each line can be measured; the figures mean nothing.
    #[arg(long)]
    small: bool,
    /// Repetitions of which the median is taken.
    #[arg(long)]
    rounds: Option<usize>,
    /// Entities of the last line.
    #[arg(long)]
    entities: Option<usize>,
    /// Share of the year's 1,000 devices, more than 0 to 1: 1 is 5.3 billion values, 70 GB of lines and some GB of disk.
    #[arg(long)]
    scale: Option<f64>,
    /// The same work on VictoriaMetrics, InfluxDB, ClickHouse, DuckDB and SQLite, as far as installed.
    #[arg(long)]
    peers: bool,
    /// The Python that runs peers.py.
    #[arg(long, default_value = "python3")]
    python: String,
    /// Writes the figures into this file too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only writes the data into this folder, as cpu.lp, cpu.csv and meta.json.
    #[arg(long, value_name = "DIR")]
    write_data: Option<PathBuf>,
    /// Two decimals in place of whole numbers, for --write-data.
    #[arg(long, requires = "write_data")]
    decimals: bool,
    /// The server. Default: the `strandline` beside this program.
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Further arguments of `strandline serve`.
    #[arg(last = true)]
    serve: Vec<String>,
}

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("strandline-perf: {e}");
            ExitCode::FAILURE
        }
    }
}

impl Args {
    /// Whether every line was measured.
    fn run(self) -> Result<bool> {
        let mut size = if self.small {
            Size::small()
        } else {
            Size::full()
        };
        size.rounds = self.rounds.unwrap_or(size.rounds).max(1);
        size.entities = self.entities.unwrap_or(size.entities).max(1);
        if let Some(scale) = self.scale {
            if !(scale > 0.0 && scale <= 1.0) {
                return Err(Error::other(format!("--scale {scale}: more than 0 to 1")));
            }
            size.year_devices = ((DEVICES as f64 * scale).round() as usize).max(1);
        }
        if let Some(dir) = &self.write_data {
            let mode = if self.decimals {
                Mode::Float
            } else {
                Mode::Int
            };
            return Data::new(size.shape, mode).write(dir).map(|()| true);
        }
        let known = |name: &str| name == "none" || ALL.iter().any(|(n, ..)| *n == name);
        if let Some(name) = self.only.iter().find(|n| !known(n)) {
            let names = ALL.map(|(n, ..)| n).join(", ");
            return Err(Error::other(format!(
                "--only {name}: there are {names}, none"
            )));
        }
        let dir = tempfile::Builder::new()
            .prefix("strandline-perf-")
            .tempdir_in(&self.dir)?;
        let mut starter = Starter::beside(self.serve.clone())?;
        if let Some(server) = &self.server {
            starter.binary = server.clone();
        }
        let mut run = Run {
            dir: dir.path().canonicalize()?,
            starter,
            size,
            report: Report::default(),
        };
        run.all(|name| self.only.is_empty() || self.only.iter().any(|o| o == name))?;
        let peers = match self.peers {
            true => Some(self.peers(&run, dir.path())?),
            false => None,
        };
        if let Some(peers) = &peers {
            peers::judge(&mut run.report, peers);
        }
        println!("{}", run.report.table());
        if let Some(peers) = &peers {
            println!("{}", peers::table(&run.report, peers));
        }
        if let Some(file) = &self.json {
            write_json(
                file,
                &serde_json::json!({ "lines": run.report.json(), "peers": peers }),
            )?;
        }
        Ok(run.report.complete())
    }

    fn peers(&self, run: &Run, dir: &Path) -> Result<serde_json::Value> {
        for (mode, name) in [(Mode::Int, "data"), (Mode::Float, "float-data")] {
            Data::new(run.size.shape, mode).write(&dir.join(name))?;
        }
        peers::run(&self.python, dir, run.size.rounds, self.small)
    }
}
