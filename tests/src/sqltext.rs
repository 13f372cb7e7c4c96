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
//! by `<xid1>`, `<xid2>`, … in order of appearance, and `{xid1}` in a statement stands for that one.
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
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let mut sql = line.to_string();
        while !sql.trim_end().ends_with(';') {
            let more = lines
                .next()
                .ok_or_else(|| format!("{}: no `;` after {sql}", path.display()))?;
            sql.push('\n');
            sql.push_str(more);
        }
        let mut expected = String::new();
        if lines.peek().is_some_and(|l| l.starts_with("----")) {
            lines.next();
            while let Some(line) = lines.next_if(|l| !l.trim().is_empty()) {
                expected.push_str(line);
                expected.push('\n');
            }
        }
        let got = answer(&client, &sql, &mut ids).await;
        cases += 1;
        if got != expected {
            let _ = writeln!(failures, "{sql}\n  expected:\n{expected}  got:\n{got}");
        }
        let _ = write!(out, "{sql}\n----\n{got}");
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

async fn answer(client: &Client, sql: &str, ids: &mut Vec<String>) -> String {
    let mut text = sql.to_string();
    for (i, id) in ids.iter().enumerate() {
        text = text.replace(&format!("{{xid{}}}", i + 1), id);
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
