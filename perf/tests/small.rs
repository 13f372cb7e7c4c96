//! Every line of the table is measured, tiny, so that nothing rots. Targets mean nothing at this size; that
//! each figure exists, and that the answers behind it were right, does.

// A load generator lives by files and processes.
#![allow(clippy::disallowed_methods)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use strandline_perf::peers::NAMES;

/// The server of this build, built where a run of this package alone has not done so.
fn server() -> PathBuf {
    if let Some(path) = std::env::var_os("STRANDLINE_BIN") {
        return path.into();
    }
    let own = Path::new(env!("CARGO_BIN_EXE_strandline-perf"));
    let path = own.with_file_name("strandline");
    if !path.exists() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args([
            "build",
            "--quiet",
            "-p",
            "strandline-net",
            "--bin",
            "strandline",
        ]);
        if own.parent().is_some_and(|d| d.ends_with("release")) {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo runs").success());
    }
    path
}

/// Runs `strandline-perf --small` and answers its table and JSON.
fn perf(args: &[&str]) -> (String, Value) {
    // Not the system's temporary folder: the floor is measured on a disk.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let json = dir.path().join("perf.json");
    let out = Command::new(env!("CARGO_BIN_EXE_strandline-perf"))
        .args(["--small", "--dir"])
        .arg(dir.path())
        .arg("--json")
        .arg(&json)
        .arg("--server")
        .arg(server())
        .args(args)
        .output()
        .expect("it runs");
    let table = String::from_utf8_lossy(&out.stdout).to_string();
    assert!(
        out.status.success(),
        "{table}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let json = std::fs::read_to_string(&json).expect("its JSON");
    (table, serde_json::from_str(&json).expect("JSON"))
}

#[test]
fn every_line_is_measured() {
    let (table, json) = perf(&[]);
    let lines = json["lines"].as_array().expect("lines");
    for (only, count) in [
        ("machine", 1),
        ("floor", 1),
        ("insert", 3),
        ("ilp", 14),
        ("float", 1),
        ("latency", 1),
        ("count", 4),
        ("restart", 1),
        ("entities", 3),
        ("year", 3),
    ] {
        let of = lines.iter().filter(|l| l["only"] == only);
        assert_eq!(of.count(), count, "lines of {only}:\n{table}");
    }
    for line in lines {
        let figure = line["figure"].as_f64().unwrap_or(f64::NAN);
        // A machine may have no other work.
        let least = if line["only"] == "machine" { -1.0 } else { 0.0 };
        assert!(figure > least, "{line}");
        let verdict = line["verdict"].as_str().expect("a verdict");
        let judged = !line["target"].as_str().expect("a target").is_empty();
        assert_eq!(judged, ["OK", "short", "void"].contains(&verdict), "{line}");
    }
    assert_eq!(
        table.lines().filter(|l| l.starts_with('|')).count(),
        lines.len() + 2
    );
}

#[test]
fn only_what_is_asked_for_is_measured() {
    let (table, json) = perf(&["--only", "count"]);
    let lines = json["lines"].as_array().expect("lines");
    assert!(
        lines.iter().all(|l| ["count", "floor", "machine"]
            .iter()
            .any(|o| l["only"] == *o)),
        "{table}"
    );
    assert_eq!(lines.len(), 6);
    let out = Command::new(env!("CARGO_BIN_EXE_strandline-perf"))
        .args(["--only", "counts"])
        .output()
        .expect("it runs");
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("there are insert, ilp,"));
}

/// Each peer is either measured, with the right answers, or named as missing.
#[test]
fn no_peer_is_passed_over_in_silence() {
    let (table, json) = perf(&["--only", "none", "--peers"]);
    let named_all = |json: &Value| {
        for name in NAMES {
            let named = ["measured", "skipped"].iter().any(|list| {
                let list = json["peers"][list].as_array().expect("a list");
                list.iter()
                    .any(|p| p["peer"].as_str().is_some_and(|p| p.starts_with(name)))
            });
            assert!(named, "{name} is not named: {json}");
        }
    };
    named_all(&json);
    assert!(NAMES.iter().all(|name| table.contains(name)), "{table}");
    let measured = json["peers"]["measured"].as_array().expect("a list");
    for p in measured {
        assert!(p["rows_per_s"].as_f64().is_some_and(|r| r > 0.0), "{p}");
        for q in ["a", "b", "c", "d"] {
            assert!(p["ms"][q].as_f64().is_some_and(|ms| ms > 0.0), "{p}");
        }
        // Conditions on another channel are not what PromQL is for.
        let peer = p["peer"].as_str().expect("a name");
        assert_eq!(
            p["ms"]["e"].as_f64().is_some_and(|ms| ms > 0.0),
            !peer.starts_with("VictoriaMetrics"),
            "{p}"
        );
    }
    // What is installed is measured: a peer that fails is skipped too, but not for that reason.
    for p in json["peers"]["skipped"].as_array().expect("a list") {
        let why = p["why"].as_str().expect("a reason");
        assert!(!why.starts_with("it failed"), "{p}");
    }
    let (_, json) = perf(&["--only", "none", "--peers", "--python", "no-such-python"]);
    named_all(&json);
    assert!(
        json["peers"]["measured"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
}
