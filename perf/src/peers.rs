//! The same work on other databases: `peers.py` does it, since two of them live in a Python process; here it
//! is run, and its figures are put beside our own of the same run.

use crate::report::Report;
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

/// Strandline's line and the peers' below it, as Markdown.
pub fn table(ours: &Report, peers: &Value) -> String {
    let number =
        |v: Option<f64>, digits: usize| v.map_or("–".into(), |v| format!("{v:.digits$}"));
    let mut out = String::from(
        "| system | way in | rows/s | durable | bytes/value | two decimals | a ms | b ms | c ms | d ms |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let figure = |work: &str| ours.figure("ilp", work);
    let asked = ["a", "b", "c", "d"].map(|q| {
        let segments = ours.lines.iter().find(|l| {
            l.work.starts_with(&format!("question {q}:")) && l.work.ends_with("in segments")
        });
        number(segments.and_then(|l| l.figure), 3)
    });
    out += &format!(
        "| **Strandline** | line protocol, 1 connection | {} | yes, each ack | {} | {} | {} |\n",
        number(figure("line protocol until"), 0),
        number(figure("bytes per value"), 3),
        number(ours.figure("float", "bytes per value"), 3),
        asked.join(" | ")
    );
    for p in peers["measured"].as_array().into_iter().flatten() {
        let text = |key: &str| p[key].as_str().unwrap_or("–").to_string();
        let asked = ["a", "b", "c", "d"].map(|q| number(p["ms"][q].as_f64(), 2));
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
