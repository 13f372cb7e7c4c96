//! SQL expectations as text files. A file is a list of cases:
//!
//! ```text
//! # a comment
//! SELECT speed FROM t WHERE entity = 'a';
//! ----
//! speed
//! 50
//!
//! ```
//!
//! A statement ends with `;` at the end of a line. Under `----` stands what psql-like output is expected: the
//! column names and the rows, cells separated by ` | `, NULL as `∅`; or `OK tag`; or `ERROR code: message`,
//! with `HINT: …` and `POSITION: n` lines where there are some. A blank line ends a case. xids are replaced
//! by `<xid1>`, `<xid2>`, … in order of appearance, and `{xid1}` in a statement stands for that one, `{XID1}`
//! for the same in upper case and with dashes.
//!
//! Of an error a case says as much as matters: the code, and of the rest what it names. `…` stands for any
//! characters; `HINT` and `POSITION` are compared when they are written. So `ERROR 22P02: …"speed"…` is an
//! error of that code whose message names speed.
//!
//! A line `@checkpoint` moves what memory holds into segments and asks every SELECT and SHOW since the last
//! other statement again: the answers must be the same.
//!
//! With `STRANDLINE_REWRITE=1` the files are rewritten to what the server answers.

use crate::server::Server;
use std::fmt::Write;
use std::path::Path;
use tokio_postgres::{Client, SimpleQueryMessage};

/// Runs a file against a server; the error shows the first difference of each case.
pub async fn run_file(server: &Server, path: &Path) -> Result<usize, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let client = server.connect().await;
    let mut ids = Vec::new();
    let mut out = String::new();
    let mut failures = String::new();
    let mut cases = 0;
    // What was read since the last write: statement and answer.
    let mut reads: Vec<(String, String)> = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        if line == "@checkpoint" {
            let _ = writeln!(out, "{line}");
            let flushed = answer(&client, "CHECKPOINT", &mut ids).await;
            if reads.is_empty() || flushed != "OK 0\n" {
                let _ = writeln!(failures, "line {}: {line}: {flushed}", number + 1);
            }
            for (sql, before) in &reads {
                let got = answer(&client, sql, &mut ids).await;
                if got != *before {
                    let _ = writeln!(
                        failures,
                        "{sql}\n  before CHECKPOINT:\n{before}  after:\n{got}"
                    );
                }
            }
            continue;
        }
        let mut sql = line.to_string();
        while !sql.trim_end().ends_with(';') {
            let (_, more) = lines
                .next()
                .ok_or_else(|| format!("{}: no `;` after {sql}", path.display()))?;
            sql.push('\n');
            sql.push_str(more);
        }
        let mut expected = String::new();
        if lines.peek().is_some_and(|(_, l)| l.starts_with("----")) {
            lines.next();
            while let Some((_, line)) = lines.next_if(|(_, l)| !l.trim().is_empty()) {
                expected.push_str(line);
                expected.push('\n');
            }
        }
        let got = answer(&client, &sql, &mut ids).await;
        cases += 1;
        let shown = if matches(&expected, &got) {
            &expected
        } else {
            &got
        };
        let _ = write!(out, "{sql}\n----\n{shown}");
        if *shown != expected {
            let _ = writeln!(
                failures,
                "line {}: {sql}\n  expected:\n{expected}  got:\n{got}",
                number + 1
            );
        }
        let first = sql.split_whitespace().next().unwrap_or_default();
        if ["SELECT", "SHOW"].contains(&first) {
            reads.push((sql, got));
        } else {
            reads.clear();
        }
    }
    if failures.is_empty() {
        return Ok(cases);
    }
    if std::env::var_os("STRANDLINE_REWRITE").is_some() {
        std::fs::write(path, out).map_err(|e| e.to_string())?;
        return Ok(cases);
    }
    Err(format!("{}:\n{failures}", path.display()))
}

/// Whether an answer is what a case says.
fn matches(expected: &str, got: &str) -> bool {
    if !expected.starts_with("ERROR ") {
        return expected == got;
    }
    let mut got: Vec<&str> = got.lines().collect();
    let said: Vec<&str> = expected.lines().collect();
    // A HINT or POSITION that the case is silent about is not looked at.
    got.retain(|line| {
        let key = line.split(": ").next().unwrap_or_default();
        !["HINT", "POSITION"].contains(&key) || said.iter().any(|s| s.starts_with(key))
    });
    said.len() == got.len() && said.iter().zip(got).all(|(s, g)| is_like(s, g))
}

/// Whether a line is like a pattern, in which `…` stands for any characters.
fn is_like(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut last = "";
    let mut open = false;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        (last, open) = (part, true);
    }
    rest.is_empty() || (open && (last.is_empty() || line.ends_with(last)))
}

async fn answer(client: &Client, sql: &str, ids: &mut Vec<String>) -> String {
    let mut text = sql.to_string();
    for (i, id) in ids.iter().enumerate() {
        text = text.replace(&format!("{{xid{}}}", i + 1), id);
        let name = format!("{{XID{}}}", i + 1);
        if text.contains(&name) {
            let cut = [0..8, 8..12, 12..16, 16..20, 20..32].map(|r| id[r].to_uppercase());
            text = text.replace(&name, &cut.join("-"));
        }
    }
    let mut out = String::new();
    match client.simple_query(&text).await {
        Ok(messages) => {
            for message in messages {
                match message {
                    SimpleQueryMessage::RowDescription(columns) => {
                        let names: Vec<&str> = columns.iter().map(|c| c.name()).collect();
                        let _ = writeln!(out, "{}", names.join(" | "));
                    }
                    SimpleQueryMessage::Row(row) => {
                        let cells: Vec<String> = (0..row.len())
                            .map(|i| row.get(i).unwrap_or("∅").replace('\n', "\\n"))
                            .collect();
                        let _ = writeln!(out, "{}", cells.join(" | "));
                    }
                    SimpleQueryMessage::CommandComplete(n) => {
                        let _ = writeln!(out, "OK {n}");
                    }
                    _ => {}
                }
            }
        }
        Err(e) => match e.as_db_error() {
            Some(e) => {
                let _ = writeln!(
                    out,
                    "ERROR {}: {}",
                    e.code().code(),
                    e.message().replace('\n', "\\n")
                );
                if let Some(hint) = e.hint() {
                    let _ = writeln!(out, "HINT: {}", hint.replace('\n', "\\n"));
                }
                if let Some(tokio_postgres::error::ErrorPosition::Original(at)) = e.position() {
                    let _ = writeln!(out, "POSITION: {at}");
                }
            }
            None => {
                let _ = writeln!(out, "LOST: {e}");
            }
        },
    }
    mask(&out, ids)
}

/// Puts `<xidN>` in the place of each 32-digit id.
fn mask(text: &str, ids: &mut Vec<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let len = rest[at..].bytes().take_while(u8::is_ascii_hexdigit).count();
        out.push_str(&rest[..at]);
        let word = &rest[at..at + len];
        if len == 32 && word.starts_with("01") {
            let n = ids.iter().position(|i| i == word).unwrap_or_else(|| {
                ids.push(word.to_string());
                ids.len() - 1
            });
            let _ = write!(out, "<xid{}>", n + 1);
        } else {
            out.push_str(word);
        }
        rest = &rest[at + len..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_compared_as_far_as_a_case_speaks() {
        let got =
            "ERROR 22P02: \"x\" is not a value for \"speed\"\nHINT: write a number\nPOSITION: 7\n";
        for (expected, fits) in [
            (got, true),
            ("ERROR 22P02: …\n", true),
            ("ERROR 22P02: …\"speed\"…\n", true),
            ("ERROR 22P02: …\"speed\"\n", true),
            ("ERROR 22P02: \"x\"…\nPOSITION: 7\n", true),
            ("ERROR 22P02: …\nHINT: …number\n", true),
            ("ERROR 22P02: …\nHINT: …numb\n", false),
            ("ERROR 22P02: …\nPOSITION: 8\n", false),
            ("ERROR 22P02: …\"speed\"…\"x\"…\n", false),
            ("ERROR 22P02: \"x\"\n", false),
            ("ERROR 22P03: …\n", false),
            ("OK 1\n", false),
            ("", false),
        ] {
            assert_eq!(matches(expected, got), fits, "{expected}");
        }
        assert!(!matches("ERROR 42601: …\nHINT: …\n", "ERROR 42601: x\n"));
        assert!(matches("a\n1\n", "a\n1\n") && !matches("a\n…\n", "a\n1\n"));
    }
}
