//! A shard's log: the scanner over one file, and the replay of a row of files.

use crate::fuzz::{Outcome, Target};
use crate::memdisk::{Files, MemDisk};
use crate::wire;
use std::cell::RefCell;
use std::rc::Rc;
use strandline_core::format::log::{
    BLOCK_BYTES, FRAME_HEADER_BYTES, FRAME_MAGIC, FileHeader, FrameBuilder, survey,
};
use strandline_core::ids::Lsn;
use strandline_core::keyed::wire::encode_versions;
use strandline_core::limits::Limits;
use strandline_core::stream::wire::encode_batch;
use strandline_shard::wal::{Wal, WalOptions, WalReport};
use strandline_tests::sim::world::{Rng, World};

/// A record as replay sees it: lsn, kind, bytes.
type Record = (u64, u8, Vec<u8>);

const SALTS: [u64; 2] = [0x5EED_0000_0000_0001, 77];

/// Two files of a log, their records, and the commit of each record.
struct Log {
    files: [Vec<u8>; 2],
    records: Vec<Record>,
    commits: Vec<u64>,
    /// Where the last commit's frame begins in the second file.
    last_frame: usize,
}

fn log() -> Log {
    let rng = Rng::new(3);
    let (mut records, mut commits) = (Vec::new(), Vec::new());
    let (mut commit, mut last_frame) = (0, 0);
    let files = [0, 1].map(|n| {
        let number = n as u64 + 1;
        let salt = SALTS[n];
        let mut file = FileHeader { number, salt }.encode();
        for _ in 0..3 {
            commit += 1;
            let first = records.len() as u64 + 1;
            let mut frame = FrameBuilder::default();
            for i in 0..1 + rng.below(3) {
                let mut bytes = 1u32.to_le_bytes().to_vec();
                let kind = 1 + (i % 2) as u8;
                if kind == 1 {
                    encode_batch(&wire::batch(&rng, 40, 3, false), &mut bytes);
                } else {
                    encode_versions(&wire::versions(&rng, 30), &mut bytes);
                }
                frame
                    .push(kind, &mut |out| out.extend_from_slice(&bytes))
                    .expect("small");
                records.push((records.len() as u64 + 1, kind, bytes));
                commits.push(commit);
            }
            last_frame = file.len();
            file.extend_from_slice(frame.finish(salt, commit, first, 0));
        }
        // Behind the last frame: nothing yet, and a frame of an earlier life of the file.
        file.resize(file.len() + BLOCK_BYTES, 0);
        let mut old = FrameBuilder::default();
        old.push(1, &mut |out| out.push(9)).expect("small");
        file.extend_from_slice(old.finish(salt + 1, 2, 2, 0));
        file
    });
    Log {
        files,
        records,
        commits,
        last_frame,
    }
}

/// What a log of these files replays.
fn replay(files: &[Vec<u8>; 2], accept_loss: bool) -> (Vec<Record>, Result<WalReport, String>) {
    let named = files
        .iter()
        .zip(1..)
        .map(|(bytes, n)| (format!("log/{n:016}.log"), bytes.clone()));
    let disk = MemDisk::of(&Files::from_iter(named));
    let world = World::new(1);
    let env = disk.env(&world);
    let limits = Limits {
        log_file_bytes: 2 * BLOCK_BYTES as u64,
        ..Limits::default()
    };
    let records: Rc<RefCell<Vec<Record>>> = Rc::default();
    let sink = records.clone();
    let opened = world.block_on("replay", async move {
        let options = WalOptions {
            after: Lsn(0),
            accept_loss,
            ..WalOptions::default()
        };
        let mut replay = |lsn: Lsn, kind: strandline_shard::wal::RecordKind, bytes: &[u8]| {
            sink.borrow_mut().push((lsn.0, kind.0, bytes.to_vec()));
            Ok(())
        };
        let opened = Wal::open(&env, "log", &limits, options, &mut replay).await;
        opened.map(|(_, report)| report).map_err(|e| e.to_string())
    });
    world.kill_tasks();
    (records.take(), opened.expect("replay ends"))
}

/// Checksums of the file header and of every frame that there seems to be.
pub fn mend(file: &mut [u8]) {
    let Some(crc) = file.get(..32).map(crc32c::crc32c) else {
        return;
    };
    if let Some(place) = file.get_mut(32..36) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
    let salt = file[24..32].to_vec();
    let salted = |bytes: &[u8]| crc32c::crc32c_append(crc32c::crc32c(&salt), bytes).to_le_bytes();
    for at in (BLOCK_BYTES..file.len()).step_by(BLOCK_BYTES) {
        let Some(frame) = file.get_mut(at..) else {
            return;
        };
        if frame.len() < FRAME_HEADER_BYTES || !frame.starts_with(&FRAME_MAGIC) {
            continue;
        }
        let len = u32::from_le_bytes([frame[8], frame[9], frame[10], frame[11]]) as usize;
        if let Some(payload) = frame.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + len) {
            let crc = salted(payload);
            frame[12..16].copy_from_slice(&crc);
        }
        let crc = salted(&frame[8..FRAME_HEADER_BYTES]);
        frame[4..8].copy_from_slice(&crc);
    }
}

#[test]
fn scanner() {
    Target {
        name: "log scanner",
        corpus: log().files.into(),
        tokens: &[],
        mend: Some(&|input: &mut Vec<u8>| mend(input)),
        memory: (16 << 10, 0),
        run: &|input| match survey(input) {
            Ok(found) => Outcome::of((found.frames, found.records, found.broken)),
            Err(e) => Outcome::error(e),
        },
    }
    .fuzz();
}

/// The first byte of an input says which of the two files the rest stands for, and whether losses are
/// accepted.
fn replayed(log: &Log, input: &[u8]) -> (Vec<Record>, Result<WalReport, String>) {
    let Some((choice, file)) = input.split_first() else {
        return (Vec::new(), Err("no input".into()));
    };
    let mut files = log.files.clone();
    files[usize::from(choice & 1)] = file.to_vec();
    replay(&files, choice & 2 != 0)
}

fn replay_corpus(log: &Log) -> Vec<Vec<u8>> {
    let choices = [0u8, 1, 2, 3];
    choices
        .map(|c| [&[c], &log.files[usize::from(c & 1)][..]].concat())
        .into()
}

fn outcome((records, opened): &(Vec<Record>, Result<WalReport, String>)) -> Outcome {
    match opened {
        Ok(report) => Outcome::of((records.len(), report.torn_bytes > 0, report.lost)),
        Err(e) => Outcome::error(e),
    }
}

#[test]
fn replay_behind_the_checksum() {
    let log = log();
    Target {
        name: "log replay behind the checksum",
        corpus: replay_corpus(&log),
        tokens: &[],
        mend: Some(&|input: &mut Vec<u8>| {
            if input.len() > 1 {
                mend(&mut input[1..]);
            }
        }),
        memory: (1 << 20, 8),
        run: &|input| outcome(&replayed(&log, input)),
    }
    .fuzz();
}

/// Whatever happens to a file, no record is replayed that was not written, and none twice or out of order.
#[test]
fn replay_invents_nothing() {
    let log = log();
    Target {
        name: "log replay",
        corpus: replay_corpus(&log),
        tokens: &[],
        mend: None,
        memory: (1 << 20, 8),
        run: &|input| {
            let done = replayed(&log, input);
            assert!(done.0.windows(2).all(|w| w[0].0 < w[1].0), "out of order");
            for (lsn, kind, bytes) in &done.0 {
                let written = &log.records[*lsn as usize - 1];
                assert_eq!((lsn, kind, bytes), (&written.0, &written.1, &written.2));
            }
            outcome(&done)
        },
    }
    .fuzz();
}

/// A flipped bit is an error, or nothing of it is seen; but in the last commit, which a crash may have torn, it
/// may cost that commit.
#[test]
fn a_flipped_bit_loses_no_record_but_the_last_commits() {
    let log = log();
    let (records, opened) = replay(&log.files, false);
    assert_eq!(
        (&records, opened.as_ref().map(|r| r.torn_bytes)),
        (&log.records, Ok(0))
    );
    let last = *log.commits.last().expect("commits");
    let without_last = log.commits.iter().filter(|&&c| c != last).count();
    let rng = Rng::new(9);
    let (mut refused, mut unseen, mut cut) = (0, 0, 0);
    for n in 0..2 {
        let file = &log.files[n];
        let headers = (0..file.len())
            .step_by(BLOCK_BYTES)
            .flat_map(|at| at..at + FRAME_HEADER_BYTES);
        let places = headers.chain((0..600).map(|_| rng.below(file.len() as u64) as usize));
        for at in places.collect::<Vec<_>>() {
            let mut files = log.files.clone();
            files[n][at] ^= 1 << rng.below(8);
            let (records, opened) = replay(&files, false);
            match opened {
                Err(_) => refused += 1,
                Ok(_) if records == log.records => unseen += 1,
                Ok(_) => {
                    assert!(n == 1 && at >= log.last_frame, "file {n}, byte {at}");
                    assert_eq!(records, log.records[..without_last]);
                    cut += 1;
                }
            }
        }
    }
    println!("{refused} refused, {unseen} of no effect, {cut} cut the last commit");
    assert!(refused > 100 && unseen > 100 && cut > 10);
}
