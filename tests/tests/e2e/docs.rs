//! The documentation against a real server: its SQL runs, what it says is refused is refused, its tables of
//! metrics and settings are those of the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use strandline_core::limits::{Limits, Unit};
use strandline_tests::server::Server;

fn page(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
}

/// The code blocks of a page whose first line says exactly this, each with its line number.
fn blocks(text: &str, info: &str) -> Vec<(usize, String)> {
    let fence = format!("```{info}");
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((n, line)) = lines.next() {
        if line == fence {
            let body = lines.by_ref().map(|(_, l)| l).take_while(|l| *l != "```");
            found.push((n + 2, body.collect::<Vec<_>>().join("\n")));
        }
    }
    found
}

/// Runs a script through psql, which stops at the first error.
fn script(server: &Server, name: &str, sql: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("script.sql");
    std::fs::write(&file, sql).expect("written");
    let file = file.to_string_lossy();
    let (out, err) = server.psql(&["-v", "ON_ERROR_STOP=1", "-f", &file]);
    assert!(
        !err.contains("ERROR") && !err.contains("FATAL"),
        "{name}: {err}\n{out}"
    );
}

/// All blocks of `sql` in order, as one session: variables of psql live on. The refusals after that.
fn run_page(server: &Server, name: &str, least: usize) {
    let text = page(name);
    let good = blocks(&text, "sql");
    assert!(
        good.len() >= least,
        "{name} has only {} blocks of SQL",
        good.len()
    );
    let all: Vec<String> = good.into_iter().map(|(_, sql)| sql).collect();
    script(server, name, &all.join("\n"));
    for (line, refused) in blocks(&text, "sql refused") {
        for (n, one) in refused.lines().enumerate() {
            let at = format!("{name}:{}", line + n);
            let (sql, code) = one
                .rsplit_once("-- ")
                .unwrap_or_else(|| panic!("{at}: no code"));
            let (out, err) = server.psql(&["-v", "VERBOSITY=sqlstate", "-c", sql]);
            assert!(err.contains(code.trim()), "{at}: {err}{out}");
        }
    }
}

#[test]
fn the_sql_of_the_documentation_runs() {
    for (name, least) in [("docs/sql.md", 20), ("README.md", 4)] {
        let data = tempfile::tempdir().expect("a folder");
        let server = Server::start(data.path(), &[]);
        run_page(&server, name, least);
    }
}

#[test]
fn the_metrics_of_the_documentation_are_those_of_the_server() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    server.query("CREATE TABLE t (a DOUBLE)");
    let (status, body) = server.get("/metrics");
    assert_eq!(status, 200);
    let served: BTreeSet<&str> = body
        .lines()
        .filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let text = page("docs/protocols.md");
    let listed: BTreeSet<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split('`').next())
        .filter(|n| n.starts_with("strandline_") || n.starts_with("process_"))
        .collect();
    assert_eq!(listed, served);
    for reason in strandline_net::ilp::Reason::ALL {
        assert!(
            text.contains(&format!("| `{}` |", reason.name())),
            "docs/protocols.md does not explain bad lines of reason {}",
            reason.name()
        );
    }
}

#[test]
fn the_settings_of_the_documentation_are_those_of_the_server() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), &[]);
    let text = page("docs/sql.md");
    let all = server.query("SHOW ALL");
    assert!(all.len() > 30);
    for row in all {
        assert!(
            text.contains(&format!("`{}`", row[0])),
            "docs/sql.md does not name {}",
            row[0]
        );
    }
    for view in ["tables", "columns", "shards", "segments"] {
        let (out, err) = server.psql(&[
            "-A",
            "-F",
            " ",
            "-c",
            &format!("SELECT * FROM $sys.{view} LIMIT 0"),
        ]);
        assert!(err.is_empty(), "{err}");
        let columns = out.lines().next().expect("a head");
        let line = text
            .lines()
            .find(|l| l.starts_with(&format!("| `$sys.{view}` |")))
            .expect("a line");
        for column in columns.split(' ') {
            assert!(
                line.contains(&format!("`{column}`")),
                "docs/sql.md does not name $sys.{view}.{column}"
            );
        }
    }
}

#[test]
fn the_flags_of_the_documentation_are_those_of_the_command() {
    let out = Command::new(strandline_tests::server::binary())
        .args(["serve", "--help"])
        .output()
        .expect("the command runs");
    let help = String::from_utf8_lossy(&out.stdout);
    let text = page("docs/operations.md");
    let mut flags = 0;
    for word in help.split_whitespace().filter_map(|w| w.strip_prefix("--")) {
        let flag: String = word
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '-')
            .collect();
        if flag != "help" {
            assert!(
                text.contains(&format!("`--{flag}")),
                "docs/operations.md does not name --{flag}"
            );
            flags += 1;
        }
    }
    assert!(flags >= 10, "{help}");
}

/// `2G`, `127`, `1,048,576`, `30,000 ms`.
fn shown(value: u64, unit: Unit) -> String {
    let mut text = value.to_string();
    if unit == Unit::Bytes {
        for (shift, letter) in [(30, "G"), (20, "M"), (10, "K")] {
            if value > 0 && value.is_multiple_of(1 << shift) {
                return format!("{}{letter}", value >> shift);
            }
        }
    }
    let mut at = text.len();
    while at > 3 {
        at -= 3;
        text.insert(at, ',');
    }
    if unit == Unit::Millis {
        text.push_str(" ms");
    }
    text
}

#[test]
fn the_limits_of_the_documentation_are_those_of_the_code() {
    let text = page("docs/limits.md");
    let listed: Vec<&str> = text.lines().filter(|l| l.starts_with("| `")).collect();
    let limits = Limits::ALL.iter().map(|i| {
        format!(
            "| `{}` | {} | {} |",
            i.name,
            shown(i.default, i.unit),
            i.doc.trim()
        )
    });
    assert_eq!(listed, limits.collect::<Vec<_>>());
}

/// All source text of the server.
fn sources() -> String {
    let mut text = String::new();
    let mut dirs: Vec<_> = ["core", "shard", "sql", "net"]
        .iter()
        .map(|c| root().join(c).join("src"))
        .collect();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                text.push_str(&std::fs::read_to_string(&path).expect("text"));
            }
        }
    }
    text
}

#[test]
fn the_log_lines_of_the_documentation_are_in_the_code() {
    let text = page("docs/operations.md");
    let table = text.split("## Log lines").nth(1).expect("the section");
    let sources = sources();
    let mut checked = 0;
    for line in table.lines().filter(|l| l.starts_with("| `")) {
        for quoted in line
            .split('|')
            .nth(1)
            .expect("a cell")
            .split('`')
            .skip(1)
            .step_by(2)
        {
            // What stands between the parts that differ from line to line.
            let parts = quoted.split(['…', 'N']).flat_map(|p| p.split("DIR"));
            let fixed = parts.max_by_key(|p| p.len()).unwrap_or_default().trim();
            assert!(fixed.len() > 3, "{quoted} says nothing");
            assert!(sources.contains(fixed), "no log line has \"{fixed}\"");
            checked += 1;
        }
    }
    assert!(checked > 15);
}
