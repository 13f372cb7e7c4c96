//! The same work on other databases: `peers.py` does it, since two of them live in a Python process; here it
//! is run, and its figures are put beside our own of the same run.

use crate::report::{Line, Report};
use serde_json::{Value, json};
use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers.py");
/// The peers that it knows.
pub const NAMES: [&str; 5] = [
    "VictoriaMetrics",
    "InfluxDB",
    "ClickHouse",
    "DuckDB",
    "SQLite",
];

const QUESTIONS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Those that keep columns apart, as we do.
const COLUMNAR: [&str; 2] = ["ClickHouse", "DuckDB"];
/// Line protocol must take so many times the rows of the best peer.
const TIMES_THE_BEST: f64 = 3.0;

/// Runs the script over `data` and `float-data` in `dir`, which also takes the peers' own directories.
/// `quick` waits for none of their merges.
pub fn run(python: &str, dir: &Path, rounds: usize, quick: bool) -> Result<Value> {
    eprintln!("peers: the same work on other databases");
    let json = dir.join("peers.json");
    let mut command = Command::new(python);
    command
        .arg(SCRIPT)
        .arg("--data")
        .arg(dir.join("data"))
        .arg("--float-data")
        .arg(dir.join("float-data"))
        .arg("--work")
        .arg(dir)
        .arg("--json")
        .arg(&json)
        .args(["--rounds", &rounds.to_string()])
        .stdout(std::process::Stdio::null());
    if quick {
        command.arg("--quick");
    }
    let status = match command.status() {
        Err(e) => {
            let why = format!("{python}: {e}");
            eprintln!("  no peers: {why}");
            let skipped = NAMES.map(|peer| json!({ "peer": peer, "why": why }));
            return Ok(json!({ "measured": [], "skipped": skipped }));
        }
        Ok(status) => status,
    };
    if !status.success() {
        return Err(Error::other(format!("{SCRIPT} ended with {status}")));
    }
    Ok(serde_json::from_str(&std::fs::read_to_string(&json)?)?)
}

fn question(ours: &Report, q: &str) -> Option<f64> {
    let line = ours
        .lines
        .iter()
        .find(|l| l.work.starts_with(&format!("question {q}:")) && l.work.ends_with("in segments"));
    line.and_then(|l| l.figure)
}

/// Adds what is judged against peers of the same run, as far as both sides were measured.
pub fn judge(ours: &mut Report, peers: &Value) {
    let measured: Vec<&Value> = peers["measured"].as_array().into_iter().flatten().collect();
    let name = |p: &Value| p["peer"].as_str().unwrap_or_default().to_string();
    // The best of those that `wanted` lets through: its figure and name.
    let best = |wanted: &dyn Fn(&Value) -> bool, figure: &dyn Fn(&Value) -> Option<f64>| {
        let of = measured.iter().filter(|p| wanted(p));
        let of = of.filter_map(|p| Some((figure(p)?, name(p))));
        of.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let lines = |p: &Value| {
        p["way"]
            .as_str()
            .is_some_and(|w| w.starts_with("line protocol"))
    };
    let rates = ["line protocol until", "the same, 2 connections"];
    let rates = rates.iter().filter_map(|work| ours.figure("ilp", work));
    let rate = rates.reduce(f64::max);
    if let (Some(rate), Some((peer, name))) = (
        rate,
        best(&lines, &|p| p["rows_per_s"].as_f64().map(|r| -r)),
    ) {
        let times = rate / -peer;
        let line = Line::told(
            "peers",
            "line protocol: rows/s over those of the best peer that takes it",
            format!("{times:.2} ×"),
            times,
        );
        let line = line.yardstick(format!("{name}: {:.0} rows/s", -peer));
        ours.add(line.target(format!("≥ {TIMES_THE_BEST} ×"), times >= TIMES_THE_BEST));
    }
    let columnar = |p: &Value| COLUMNAR.iter().any(|c| name(p).starts_with(c));
    if let (Some(ms), Some((peer, name))) = (
        question(ours, "e"),
        best(&columnar, &|p| p["ms"]["e"].as_f64()),
    ) {
        let times = ms / peer;
        let line = Line::told(
            "peers",
            "question e: time over that of the best columnar peer",
            format!("{times:.2} ×"),
            times,
        );
        let line = line.yardstick(format!("{name}: {peer:.3} ms"));
        ours.add(line.at_most(1.0, "×"));
    }
    for (only, what, key) in [
        ("ilp", "whole numbers", "bytes_per_value"),
        ("float", "two decimals", "float_bytes_per_value"),
    ] {
        if let (Some(bytes), Some((peer, name))) = (
            ours.figure(only, "bytes per value"),
            best(&|_| true, &|p| p[key].as_f64()),
        ) {
            let times = bytes / peer;
            let line = Line::told(
                "peers",
                format!("bytes per value, {what}: over those of the smallest peer"),
                format!("{times:.2} ×"),
                times,
            );
            ours.add(line.yardstick(format!("{name}: {peer:.3}")));
        }
    }
}

/// Strandline's line and the peers' below it, as Markdown.
pub fn table(ours: &Report, peers: &Value) -> String {
    let number =
        |v: Option<f64>, digits: usize| v.map_or("–".into(), |v| format!("{v:.digits$}"));
    let mut out = String::from(
        "| system | way in | rows/s | durable | bytes/value | two decimals | a ms | b ms | c ms | d ms | e ms |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let figure = |work: &str| ours.figure("ilp", work);
    let asked = QUESTIONS.map(|q| number(question(ours, q), 3));
    out += &format!(
        "| **Strandline** | line protocol, 1 connection | {} | yes, each ack | {} | {} | {} |\n",
        number(figure("line protocol until"), 0),
        number(figure("bytes per value"), 3),
        number(ours.figure("float", "bytes per value"), 3),
        asked.join(" | ")
    );
    for p in peers["measured"].as_array().into_iter().flatten() {
        let text = |key: &str| p[key].as_str().unwrap_or("–").to_string();
        let asked = QUESTIONS.map(|q| number(p["ms"][q].as_f64(), 2));
        out += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            text("peer"),
            text("way"),
            number(p["rows_per_s"].as_f64(), 0),
            text("durable"),
            number(p["bytes_per_value"].as_f64(), 2),
            number(p["float_bytes_per_value"].as_f64(), 2),
            asked.join(" | ")
        );
    }
    for s in peers["skipped"].as_array().into_iter().flatten() {
        out += &format!(
            "\nNot measured: {} ({})\n",
            s["peer"].as_str().unwrap_or("?"),
            s["why"].as_str().unwrap_or("?")
        );
    }
    out
}
