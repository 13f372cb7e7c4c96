//! Whole databases over damaged files.

use crate::database::{ask, files};
use crate::fuzz::{Outcome, Target, seconds, seed};
use crate::log;
use crate::memdisk::Files;
use crate::{sealed, segments};
use std::time::Instant;
use strandline_core::error::Result;
use strandline_core::format::log::{FileHeader, Scanner, Step};
use strandline_tests::sim::world::Rng;

type Answers = Vec<(&'static str, Result<String>)>;

fn good(answers: &Answers) -> Vec<(&'static str, &String)> {
    answers
        .iter()
        .map(|(q, a)| (*q, a.as_ref().unwrap_or_else(|e| panic!("{q}: {e}"))))
        .collect()
}

/// Whether a file is one of a shard's log; the catalog's edits end in `.log` too.
fn is_log(path: &str) -> bool {
    path.contains("/log/") && path.ends_with(".log")
}

/// The last frame of each shard's log: what a crash may tear.
fn last_frames(files: &Files) -> Vec<(String, std::ops::Range<usize>)> {
    let mut last: Vec<(String, std::ops::Range<usize>)> = Vec::new();
    for (path, bytes) in files.iter().filter(|(p, _)| is_log(p)) {
        let salt = FileHeader::decode(bytes).expect("a log file").salt;
        let mut scanner = Scanner::new(salt, bytes.len() as u64);
        loop {
            match scanner.step(0, bytes) {
                Step::Frame { offset, header, .. } => {
                    let start = offset as usize;
                    let shard = path.split('/').next().unwrap_or_default();
                    last.retain(|(p, _)| !p.starts_with(shard));
                    last.push((path.clone(), start..start + header.frame_bytes() as usize));
                }
                Step::Broken { .. } => {}
                Step::Need { .. } | Step::End => break,
            }
        }
    }
    last
}

#[test]
fn the_files_hold_what_this_test_is_about() {
    let files = files();
    let count = |end: &str| files.keys().filter(|p| p.ends_with(end)).count();
    let logs = files.keys().filter(|p| is_log(p)).count();
    assert!(count(".seg") >= 4, "{:?}", files.keys());
    assert!(logs >= 2 && count("manifest") == 2 && count("catalog") == 1);
    let answers = ask(&files).expect("opens");
    assert_eq!(good(&answers), good(&ask(&files).expect("opens again")));
    for (question, answer) in good(&answers) {
        assert!(!answer.is_empty(), "{question}");
    }
    assert_eq!(last_frames(&files).len(), 2);
}

/// The last edit of each file of edits: what a crash may tear.
fn last_edits(files: &Files) -> Vec<(String, std::ops::Range<usize>)> {
    const BEGIN: &[u8] = b"strandline-";
    let edits = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with("catalog-") || name.starts_with("edits-")
    };
    files
        .iter()
        .filter(|(path, _)| edits(path))
        .filter_map(|(path, bytes)| {
            let at = bytes.windows(BEGIN.len()).rposition(|w| w == BEGIN)?;
            Some((path.clone(), at..bytes.len()))
        })
        .collect()
}

/// A flipped bit anywhere: an error, or the answer as it was. In the last commit of a log it may cost that
/// commit, as a crash may; and so in the last edit of a catalog or a manifest.
#[test]
fn a_flipped_bit_gives_no_wrong_rows() {
    let files = files();
    let whole = ask(&files).expect("opens");
    let whole = good(&whole);
    let mut torn = last_frames(&files);
    torn.extend(last_edits(&files));
    let cut: Vec<Answers> = torn
        .iter()
        .map(|(path, range)| {
            let mut files = files.clone();
            files.get_mut(path).expect("a file")[range.clone()].fill(0);
            ask(&files).expect("a torn tail is cut")
        })
        .collect();
    let paths: Vec<&String> = files
        .iter()
        .filter(|(_, b)| !b.is_empty())
        .map(|(p, _)| p)
        .collect();
    let (mut refused, mut failed, mut same, mut lost) = (0, 0, 0, 0);
    let began = Instant::now();
    let rng = Rng::new(seed());
    while began.elapsed() < seconds() {
        let path = paths[rng.below(paths.len() as u64) as usize];
        let mut damaged = files.clone();
        let bytes = damaged.get_mut(path).expect("a file");
        // Most of a log file are zeros: half of the flips are where something is.
        let at = loop {
            let at = rng.below(bytes.len() as u64) as usize;
            if bytes[at] != 0 || rng.one_in(8) {
                break at;
            }
        };
        let bit = rng.below(8);
        bytes[at] ^= 1 << bit;
        let Ok(answers) = ask(&damaged) else {
            refused += 1;
            continue;
        };
        let allowed = torn
            .iter()
            .zip(&cut)
            .find(|((p, r), _)| p == path && r.contains(&at))
            .map(|(_, a)| good(a));
        let mut errors = false;
        let mut less = false;
        for (n, (question, answer)) in answers.iter().enumerate() {
            match answer {
                Err(_) => errors = true,
                Ok(answer) if answer == whole[n].1 => {}
                Ok(answer) => {
                    less = true;
                    let cut = allowed.as_ref().map(|a| a[n].1);
                    assert!(
                        cut == Some(answer),
                        "{path}, bit {bit} of byte {at}: {question} answers other rows"
                    );
                }
            }
        }
        match (errors, less) {
            (true, _) => failed += 1,
            (_, true) => lost += 1,
            _ => same += 1,
        }
    }
    println!(
        "{refused} not opened, {failed} with a failed read, {same} as before, {lost} without the last commit"
    );
    assert!(refused > 10 && same > 0);
}

/// An input is the number of a file, in order of paths, and its content.
fn with_file(files: &Files, input: &[u8]) -> Option<Files> {
    let (n, content) = input.split_first()?;
    let mut files = files.clone();
    let file = files.values_mut().nth(usize::from(*n))?;
    *file = content.to_vec();
    Some(files)
}

/// What damaged files answer, as a kind.
fn outcome(files: &Files) -> Outcome {
    match ask(files) {
        Err(e) => Outcome::error(e),
        Ok(answers) => Outcome::of(
            answers
                .iter()
                .map(|(_, a)| {
                    a.as_ref()
                        .map(|a| a.len() / 64)
                        .map_err(|e| e.message().len())
                })
                .collect::<Vec<_>>(),
        ),
    }
}

/// Fuzzes the content of the files that `picked` picks, behind their checksums.
fn fuzz_files(name: &'static str, tokens: &'static [&'static str], picked: impl Fn(&str) -> bool) {
    let files = files();
    let paths: Vec<&String> = files.keys().collect();
    let mend = |input: &mut Vec<u8>| {
        let Some(path) = input.first().and_then(|n| paths.get(usize::from(*n))) else {
            return;
        };
        let mut content = input.split_off(1);
        if path.ends_with(".seg") {
            segments::mend(&mut content);
        } else if is_log(path) {
            log::mend(&mut content);
        } else {
            sealed::mend(&mut content);
        }
        input.append(&mut content);
    };
    let corpus = files
        .iter()
        .zip(0u8..)
        .filter(|((p, b), _)| b.len() > 32 && picked(p));
    Target {
        name,
        corpus: corpus
            .map(|((_, bytes), n)| [&[n], &bytes[..]].concat())
            .collect(),
        tokens,
        mend: Some(&mend),
        memory: (256 << 20, 64),
        run: &|input| match with_file(&files, input) {
            None => Outcome::of("no such file"),
            Some(files) => outcome(&files),
        },
    }
    .fuzz();
}

#[test]
fn damage_in_segments_behind_the_checksums() {
    fuzz_files("segments of a database", &[], |path| path.ends_with(".seg"));
}

#[test]
fn damage_in_logs_behind_the_checksums() {
    fuzz_files("logs of a database", &[], is_log);
}

#[test]
fn damage_in_small_files_behind_the_checksums() {
    fuzz_files("small files of a database", sealed::TOKENS, |path| {
        !path.contains('.')
    });
}
