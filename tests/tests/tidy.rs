//! Tidy is a test: file size, module docs, crate edges, words that must not be there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Files over the size bound, by name. The list only shrinks.
const LONG_FILES: &[&str] = &[];
const MAX_LINES: usize = 1_000;
/// `unwrap`, `expect` and `panic!` outside tests, all crates together. The number only shrinks.
const MAX_UNWRAPS: usize = 40;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
}

fn sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut dirs = vec![root()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .to_string();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    dirs.push(path);
                }
            } else if name.ends_with(".rs") {
                let relative = path
                    .strip_prefix(root())
                    .expect("inside")
                    .to_string_lossy()
                    .to_string();
                files.push((relative, std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    files.sort();
    assert!(
        files.len() > 50,
        "the sources are not where this test looks"
    );
    files
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/")
        || path.starts_with("loom-tests/")
        || path.starts_with("benches/")
        || path.starts_with("perf/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
        || path.contains("/tests/")
        || path.ends_with("/testing.rs")
}

/// The part of a file before its test module.
fn code(text: &str) -> &str {
    text.find("#[cfg(test)]").map_or(text, |at| &text[..at])
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for (path, text) in sources() {
        assert!(text.starts_with("//!"), "{path} does not open with //!");
        let lines = text.lines().count();
        assert!(
            lines <= MAX_LINES || LONG_FILES.contains(&path.as_str()),
            "{path} has {lines} lines"
        );
    }
}

#[test]
fn nothing_is_left_open() {
    // Put together so that this file does not hold them.
    let words = [
        ["FIX", "ME"],
        ["X", "XX"],
        ["todo", "!("],
        ["unimplemented", "!("],
        ["#[ign", "ore"],
        ["dbg", "!("],
    ];
    for (path, text) in sources() {
        for word in words.map(|w| w.concat()) {
            assert!(!text.contains(&word), "{path} holds {word}");
        }
    }
}

#[test]
fn panics_are_rationed() {
    let mut found = 0;
    for (path, text) in sources().iter().filter(|(p, _)| !is_test(p)) {
        for (n, line) in code(text).lines().enumerate() {
            let line = line.trim_start();
            if !line.starts_with("//")
                && [".unwrap()", ".expect(", "panic!("]
                    .iter()
                    .any(|w| line.contains(w))
            {
                println!("{path}:{}: {line}", n + 1);
                found += 1;
            }
        }
    }
    assert!(
        found <= MAX_UNWRAPS,
        "{found} panics outside tests, at most {MAX_UNWRAPS} are allowed"
    );
}

#[test]
fn the_runtime_is_named_in_one_place() {
    for (path, text) in sources() {
        if path.starts_with("shard/src/runtime/") || is_test(&path) {
            continue;
        }
        for word in ["glommio::", "io_uring::"] {
            let named = text
                .lines()
                .any(|l| !l.trim_start().starts_with("//") && l.contains(word));
            assert!(!named, "{path} names {word}");
        }
    }
}

#[test]
fn crate_edges_are_those_of_the_architecture() {
    let architecture =
        std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut allowed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in architecture
        .lines()
        .filter(|l| l.contains("| `strandline-"))
    {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let edges = cells[2].split(',').map(str::trim);
        let edges = edges
            .filter(|e| e.bytes().all(|b| b.is_ascii_lowercase()))
            .map(str::to_string)
            .collect();
        allowed.insert(cells[0].trim_matches('`').to_string(), edges);
    }
    assert_eq!(allowed.len(), 8, "eight crates in the table: {allowed:?}");
    for (folder, edges) in allowed {
        let manifest =
            std::fs::read_to_string(root().join(&folder).join("Cargo.toml")).expect("a manifest");
        for line in manifest
            .lines()
            .filter(|l| l.starts_with("strandline-") && l.contains("workspace"))
        {
            let name = line
                .split(['.', ' ', '='])
                .next()
                .unwrap_or_default()
                .trim_start_matches("strandline-");
            assert!(
                edges.contains(name),
                "{folder} depends on {name}, which ARCHITECTURE.md does not allow"
            );
        }
    }
}

#[test]
fn every_limit_is_documented() {
    let docs = std::fs::read_to_string(root().join("docs/limits.md")).expect("docs/limits.md");
    for limit in strandline_core::limits::Limits::ALL {
        assert!(
            docs.contains(&format!("`{}`", limit.name)),
            "docs/limits.md does not name {}",
            limit.name
        );
    }
}
