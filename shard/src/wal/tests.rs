//! The log against a model, against damage, and on real executors.

use super::*;
use crate::testing;
use proptest::prelude::*;
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use strandline_core::format::log::BLOCK_BYTES;
use strandline_core::io::{Disk, File, FileMode, LocalFuture};

const KIB: u64 = 1 << 10;
/// Smaller than a configuration may say, so that few records fill several files.
const FILE_BYTES: u64 = 64 * KIB;

pub(super) type Records = Vec<(u64, u8, Vec<u8>)>;
pub(super) type Answers = Rc<RefCell<Vec<(u64, Result<Lsn>)>>>;

fn limits() -> Limits {
    Limits {
        log_file_bytes: FILE_BYTES,
        log_pending_bytes: 1 << 20,
        ..Limits::default()
    }
}

pub(super) async fn open_with(env: &Env, options: WalOptions) -> Result<(Wal, WalReport, Records)> {
    let mut records = Vec::new();
    let mut replay = |lsn: Lsn, kind: RecordKind, bytes: &[u8]| {
        records.push((lsn.0, kind.0, bytes.to_vec()));
        Ok(())
    };
    let (wal, report) = Wal::open(env, "shard/log", &limits(), options, &mut replay).await?;
    Ok((wal, report, records))
}

pub(super) async fn open(env: &Env, after: u64) -> (Wal, WalReport, Records) {
    let options = WalOptions {
        after: Lsn(after),
        ..WalOptions::default()
    };
    open_with(env, options).await.unwrap()
}

pub(super) fn append(wal: &Wal, answers: &Answers, kind: u8, bytes: &[u8]) -> u64 {
    let next = wal.last_lsn().0 + 1;
    let answers = answers.clone();
    let done = Box::new(move |result| answers.borrow_mut().push((next, result)));
    let lsn = wal.append(
        RecordKind(kind),
        &mut |out| out.extend_from_slice(bytes),
        done,
    );
    assert_eq!(lsn.unwrap(), Lsn(next));
    next
}

/// One record per commit.
pub(super) async fn write_each(wal: &Wal, count: usize, len: usize) {
    let answers = Answers::default();
    for n in 0..count {
        let lsn = append(wal, &answers, n as u8, &vec![n as u8; len]);
        wal.flush().await.unwrap();
        assert_eq!(answers.borrow_mut().pop(), Some((lsn, Ok(Lsn(lsn)))));
    }
}

pub(super) fn log_files(root: &Path, kind: &str) -> Vec<PathBuf> {
    let dir = std::fs::read_dir(root.join("shard/log")).unwrap();
    let mut files: Vec<_> = dir
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == kind))
        .collect();
    files.sort();
    files
}

/// Changes bytes of a file in place.
pub(super) fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    #[allow(clippy::disallowed_methods)] // damage is made behind the log's back
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn records_come_back_and_share_commits() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let (wal, report, records) = open(&env, 41).await;
        assert_eq!((report, records), (WalReport::default(), vec![]));
        let answers = Answers::default();
        for n in 0..100_u8 {
            append(&wal, &answers, n % 3, &[n; 10]);
        }
        assert!(answers.borrow().is_empty(), "nothing is durable yet");
        wal.flush().await.unwrap();
        let order: Vec<u64> = answers.borrow().iter().map(|(lsn, _)| *lsn).collect();
        assert_eq!(order, (42..142).collect::<Vec<_>>());
        assert!(answers.borrow().iter().all(|(lsn, r)| *r == Ok(Lsn(*lsn))));
        let stats = wal.stats();
        assert_eq!((stats.commits, stats.records), (1, 100));
        assert_eq!(stats.commit_us.len(), 1);
        assert_eq!(wal.live_bytes(), stats.bytes);
        assert_eq!((wal.last_lsn(), wal.ended_lsn()), (Lsn(141), Lsn(141)));
        wal.close().await;
        let refused = wal.append(RecordKind(0), &mut |_| {}, Box::new(|_| {}));
        assert_eq!(refused.unwrap_err().state(), SqlState::AdminShutdown);

        let (wal, report, records) = open(&env, 41).await;
        assert_eq!((report.records, report.torn_bytes), (100, 0));
        assert_eq!(records[7], (49, 1, vec![7; 10]));
        wal.close().await;
        let (_, report, records) = open(&env, 100).await;
        assert_eq!((report.records, records[0].0), (41, 101));
    });
}

#[test]
fn callbacks_may_append() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let (wal, ..) = open(&env, 0).await;
        let answers = Answers::default();
        let (again, inner) = (wal.clone(), answers.clone());
        wal.append(
            RecordKind(1),
            &mut |out| out.push(1),
            Box::new(move |_| {
                append(&again, &inner, 2, b"from a callback");
            }),
        )
        .unwrap();
        wal.flush().await.unwrap();
        wal.quiesce().await.unwrap();
        assert_eq!(*answers.borrow(), [(2, Ok(Lsn(2)))]);
    });
}

#[test]
fn released_files_are_used_again_and_their_past_is_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let (wal, ..) = open(&env, 0).await;
        for round in 1..=20_u64 {
            // 15 blocks are left for frames in a file; each of these takes two.
            write_each(&wal, 30, 5000).await;
            wal.release(Lsn(round * 30 - 3));
            wal.quiesce().await.unwrap();
            let count = log_files(dir.path(), "log").len() + log_files(dir.path(), "free").len();
            assert!(count <= 8, "{count} files in round {round}");
            assert!(wal.live_bytes() <= 3 * FILE_BYTES);
        }
        assert!(!log_files(dir.path(), "free").is_empty());
        wal.close().await;
        let (wal, report, records) = open(&env, 20 * 30 - 3).await;
        let lsns: Vec<u64> = records.iter().map(|r| r.0).collect();
        assert_eq!(lsns, [598, 599, 600]);
        assert_eq!((report.torn_bytes, report.lost), (0, 0));
        wal.release(Lsn(600));
        assert_eq!(wal.live_bytes(), 0);
    });
}

#[test]
fn a_record_larger_than_a_file_gets_a_larger_file() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let (wal, ..) = open(&env, 0).await;
        write_each(&wal, 12, 5000).await; // a spare is ready by now, and too small
        write_each(&wal, 1, 300 << 10).await;
        write_each(&wal, 3, 10).await;
        wal.close().await;
        let (wal, _, records) = open(&env, 0).await;
        let sizes: Vec<usize> = records.iter().map(|r| r.2.len()).collect();
        assert_eq!(sizes[12..], [300 << 10, 10, 10, 10]);
        write_each(&wal, 40, 5000).await;
        wal.release(Lsn(56));
        wal.quiesce().await.unwrap();
        for file in log_files(dir.path(), "free") {
            assert!(file.metadata().unwrap().len() <= 2 * FILE_BYTES);
        }
    });
}

#[test]
fn damage_before_intact_records_is_refused_until_accepted() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let (wal, ..) = open(&env, 0).await;
        write_each(&wal, 20, 5000).await;
        wal.close().await;
        let first = log_files(dir.path(), "log")[0].clone();
        edit(&first, |bytes| bytes[3 * BLOCK_BYTES + 5] ^= 1); // commit 2

        let e = open_with(&env, WalOptions::default()).await.err().unwrap();
        assert_eq!(e.state(), SqlState::DataCorrupted);
        assert!(e.message().contains("0000000000000001.log"), "{e}");
        assert!(e.message().contains("offset 12288: 1 records"), "{e}");
        // What is in segments already may be damaged.
        let (wal, _, records) = open(&env, 2).await;
        assert_eq!((records.len(), records[0].0), (18, 3));
        wal.close().await;

        let accept = WalOptions {
            after: Lsn(0),
            accept_loss: true,
            ..WalOptions::default()
        };
        let (wal, report, records) = open_with(&env, accept).await.unwrap();
        assert_eq!((report.lost, report.records), (1, 19));
        assert_eq!((records[0].0, records[1].0), (1, 3));
        write_each(&wal, 1, 9).await;
        wal.close().await;
        let (wal, report, records) = open(&env, 0).await;
        assert_eq!((report.lost, records.len()), (0, 20), "it stays accepted");
        wal.close().await;
        // Another damage is another decision.
        edit(&first, |bytes| bytes[BLOCK_BYTES] ^= 1); // commit 1
        assert!(open_with(&env, WalOptions::default()).await.is_err());
        let (wal, ..) = open(&env, 3).await;
        wal.close().await;
        let note = dir.path().join("shard/log/accepted-loss");
        assert!(!note.exists(), "what it was about is in segments");
    });
}

#[test]
fn a_damaged_last_commit_behind_damage_is_no_torn_tail() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let (wal, ..) = open(&env, 0).await;
        write_each(&wal, 3, 5000).await;
        wal.close().await;
        let file = log_files(dir.path(), "log")[0].clone();
        edit(&file, |bytes| {
            bytes[3 * BLOCK_BYTES + 50] ^= 1; // commit 2
            bytes[5 * BLOCK_BYTES + 50] ^= 1; // commit 3: its header proves that 2 was durable
        });
        assert!(open_with(&env, WalOptions::default()).await.is_err());
        let accept = WalOptions {
            after: Lsn(0),
            accept_loss: true,
            ..WalOptions::default()
        };
        let (wal, report, records) = open_with(&env, accept).await.unwrap();
        assert_eq!((report.lost, records.len(), wal.last_lsn()), (2, 1, Lsn(3)));
        wal.close().await;
        let (wal, ..) = open(&env, 0).await;
        wal.close().await;
        let (wal, ..) = open(&env, 0).await;
        write_each(&wal, 2, 10).await;
        wal.close().await;
        let (_, _, records) = open(&env, 0).await;
        assert_eq!(records.len(), 3);
    });
}

#[test]
fn missing_files_and_damaged_headers_are_refused() {
    for (victim, remove) in [(0, true), (1, true), (1, false)] {
        let dir = tempfile::tempdir().unwrap();
        testing::block_on(async {
            let env = testing::env(dir.path());
            let (wal, ..) = open(&env, 0).await;
            write_each(&wal, 20, 5000).await;
            wal.close().await;
            let file = log_files(dir.path(), "log")[victim].clone();
            if remove {
                #[allow(clippy::disallowed_methods)] // an operator's mistake
                std::fs::remove_file(&file).unwrap();
            } else {
                edit(&file, |bytes| bytes[20] ^= 1);
            }
            let e = open_with(&env, WalOptions::default()).await.err().unwrap();
            assert_eq!(e.state(), SqlState::DataCorrupted);
            assert!(e.hint_text().unwrap().contains("--accept-loss"));
            let accept = WalOptions {
                after: Lsn(0),
                accept_loss: true,
                ..WalOptions::default()
            };
            let (wal, report, records) = open_with(&env, accept).await.unwrap();
            assert_eq!(report.lost as usize + records.len(), 20);
            assert!(report.lost > 0);
            wal.close().await;
            let (_, _, again) = open(&env, 0).await;
            assert_eq!(again, records);
        });
    }
}

/// Lets everything through, until told otherwise.
struct Faults {
    disk: Rc<dyn Disk>,
    commit: Cell<Option<io::ErrorKind>>,
    fill: Cell<Option<io::ErrorKind>>,
    /// A file cannot grow past this.
    room: Cell<u64>,
}

struct FaultyFile(Rc<dyn File>, Rc<Faults>);

struct FaultyDisk(Rc<Faults>);

impl File for FaultyFile {
    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        self.0.read_at(offset, len)
    }
    fn write_at<'a>(&'a self, offset: u64, data: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        let full = offset + data.len() as u64 > self.1.room.get();
        let full = full.then_some(io::ErrorKind::StorageFull);
        match self.1.fill.get().or(full) {
            Some(kind) => Box::pin(async move { Err(kind.into()) }),
            None => self.0.write_at(offset, data),
        }
    }
    fn sync<'a>(&'a self) -> LocalFuture<'a, io::Result<()>> {
        self.0.sync()
    }
    fn write_and_sync<'a>(
        &'a self,
        offset: u64,
        data: &'a [u8],
    ) -> LocalFuture<'a, io::Result<()>> {
        match self.1.commit.get() {
            Some(kind) => Box::pin(async move { Err(kind.into()) }),
            None => Box::pin(async move {
                self.0.write_at(offset, data).await?;
                self.0.sync().await
            }),
        }
    }
    fn size<'a>(&'a self) -> LocalFuture<'a, io::Result<u64>> {
        self.0.size()
    }
}

impl Disk for FaultyDisk {
    fn create<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            let file = self.0.disk.create(path, mode).await?;
            Ok(Rc::new(FaultyFile(file, self.0.clone())) as Rc<dyn File>)
        })
    }
    fn open<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            let file = self.0.disk.open(path, mode).await?;
            Ok(Rc::new(FaultyFile(file, self.0.clone())) as Rc<dyn File>)
        })
    }
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.0.disk.rename(from, to)
    }
    fn remove<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.0.disk.remove(path)
    }
    fn hard_link<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.0.disk.hard_link(from, to)
    }
    fn create_dir_all<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.0.disk.create_dir_all(path)
    }
    fn list<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<Vec<String>>> {
        self.0.disk.list(path)
    }
    fn sync_dir<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.0.disk.sync_dir(path)
    }
}

fn faulty(root: &Path) -> (Env, Rc<Faults>) {
    let env = testing::env(root);
    let faults = Rc::new(Faults {
        disk: env.disk.clone(),
        commit: Cell::new(None),
        fill: Cell::new(None),
        room: Cell::new(u64::MAX),
    });
    let disk = Rc::new(FaultyDisk(faults.clone()));
    (Env { disk, ..env }, faults)
}

#[test]
fn after_a_failed_commit_nothing_is_taken_any_more() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (env, faults) = faulty(dir.path());
        let (wal, ..) = open(&env, 0).await;
        write_each(&wal, 2, 10).await;
        faults.commit.set(Some(io::ErrorKind::Other));
        let answers = Answers::default();
        append(&wal, &answers, 1, b"lost");
        append(&wal, &answers, 1, b"too");
        let e = wal.flush().await.unwrap_err();
        assert_eq!(e.state(), SqlState::IoError);
        assert!(e.message().contains("takes no more writes"), "{e}");
        let told = answers.borrow().clone();
        assert_eq!(told, [(3, Err(e.clone())), (4, Err(e.clone()))]);
        faults.commit.set(None);
        let refused = wal.append(RecordKind(0), &mut |_| {}, Box::new(|_| unreachable!()));
        assert_eq!(refused.unwrap_err(), e);
        assert_eq!(wal.failed(), Some(e.clone()));
        assert_eq!(wal.flush().await, Err(e));
        wal.room().await;
        wal.close().await;
        let (_, _, records) = open(&env, 0).await;
        assert_eq!(records.len(), 2);
    });
}

#[test]
fn without_space_for_a_new_file_writes_are_refused_and_then_resume() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (env, faults) = faulty(dir.path());
        let (wal, ..) = open(&env, 0).await;
        faults.fill.set(Some(io::ErrorKind::StorageFull));
        let answers = Answers::default();
        let mut written = 0;
        let e = loop {
            append(&wal, &answers, 1, &[1; 5000]);
            match wal.flush().await {
                Ok(()) => written += 1,
                Err(e) => break e,
            }
            assert!(written < 20);
        };
        assert_eq!(written, 7, "the first file is used to its end");
        assert_eq!(e.state(), SqlState::DiskFull);
        assert_eq!(answers.borrow()[7], (8, Err(e)));
        assert_eq!(wal.failed(), None);
        append(&wal, &answers, 1, &[1; 5000]);
        assert!(wal.flush().await.is_err());
        assert!(
            log_files(dir.path(), "new").is_empty(),
            "the space is given back"
        );
        append(&wal, &answers, 1, &[1; 10]);
        wal.flush().await.unwrap();

        faults.fill.set(None);
        testing::advance(std::time::Duration::from_secs(1));
        append(&wal, &answers, 1, &[1; 5000]);
        wal.flush().await.unwrap();
        wal.close().await;
        let (wal, report, records) = open(&env, 0).await;
        let lsns: Vec<u64> = records.iter().map(|r| r.0).collect();
        assert_eq!((lsns, report.lost), (vec![1, 2, 3, 4, 5, 6, 7, 10, 11], 0));
        wal.close().await;
        // The refused records are not missed even when they would be the first.
        let (..) = open(&env, 7).await;
    });
}

#[test]
fn with_room_for_a_small_file_alone_writes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (env, faults) = faulty(dir.path());
        // The first file has 1 MiB, the second would have 4.
        let limits = Limits {
            log_file_bytes: 4 << 20,
            ..limits()
        };
        let mut replay = |_: Lsn, _: RecordKind, _: &[u8]| Ok(());
        let opened = Wal::open(
            &env,
            "shard/log",
            &limits,
            WalOptions::default(),
            &mut replay,
        );
        let (wal, _) = opened.await.unwrap();
        faults.room.set(2 << 20);
        write_each(&wal, 20, 100 << 10).await;
        let sizes = |kind| {
            log_files(dir.path(), kind)
                .iter()
                .map(|p| p.metadata().unwrap().len())
                .collect::<Vec<_>>()
        };
        assert!(sizes("log").len() >= 2, "{:?}", sizes("log"));
        assert!(
            sizes("log").iter().all(|&s| s == 1 << 20),
            "{:?}",
            sizes("log")
        );
        assert!(sizes("new").is_empty());
        wal.close().await;
        let (.., records) = open(&env, 0).await;
        assert_eq!(records.len(), 20);
    });
}

#[test]
fn refused_records_at_the_seam_of_files_are_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (env, faults) = faulty(dir.path());
        let (wal, ..) = open(&env, 0).await;
        faults.fill.set(Some(io::ErrorKind::StorageFull));
        let answers = Answers::default();
        for _ in 0..9 {
            append(&wal, &answers, 1, &[1; 5000]);
            let _ = wal.flush().await;
        }
        faults.fill.set(None);
        testing::advance(std::time::Duration::from_secs(1));
        append(&wal, &answers, 1, &[1; 5000]);
        wal.flush().await.unwrap();
        // The first file ends with record 7; it is released.
        wal.release(Lsn(7));
        wal.close().await;
        let (_, report, records) = open(&env, 7).await;
        assert_eq!((records.len(), records[0].0, report.lost), (1, 10, 0));
    });
}

#[test]
fn writers_wait_for_room() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let (wal, ..) = open(&env, 0).await;
        let answers = Answers::default();
        let mut count = 0;
        while !wal.is_full() {
            append(&wal, &answers, 0, &[0; 100_000]);
            count += 1;
        }
        assert_eq!(count, 11);
        wal.room().await;
        assert!(!wal.is_full());
        wal.flush().await.unwrap();
        assert_eq!(answers.borrow().len(), 11);
    });
}

/// The zeros of a file of megabytes, written at once, held up every commit behind them for tenths of a second.
#[test]
fn the_next_file_keeps_pace_with_the_log() {
    const FILE: u64 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let limits = Limits {
            log_file_bytes: FILE,
            ..Limits::default()
        };
        let mut replay = |_, _, _: &[u8]| Ok(());
        let options = WalOptions::default();
        let (wal, _) = Wal::open(&env, "shard/log", &limits, options, &mut replay)
            .await
            .unwrap();
        let written = || {
            log_files(dir.path(), "new")
                .iter()
                .map(|p| std::fs::metadata(p).unwrap().len())
                .sum::<u64>()
        };
        let ready = || matches!(wal.0.state.borrow().spare, Spare::Ready(_));
        let used = || {
            let state = wal.0.state.borrow();
            (state.active.number, state.active.at, state.active.size)
        };
        let (mut before, mut most, mut files) = (0, 0, 0);
        // Through the first file, of 1 MiB, and the one of 4 MiB that comes after it.
        while used().0 < 3 {
            let (number, at, size) = used();
            write_each(&wal, 1, 3000).await;
            // What it has started goes on as far as it may.
            for _ in 0..200 {
                env.tasks.sleep(std::time::Duration::ZERO).await;
                futures_lite::future::yield_now().await;
            }
            if used().0 != number {
                files += 1;
                before = 0;
                continue;
            }
            if at < size / 4 - 4096 {
                assert_eq!(written(), 0, "nothing yet at {at} of {size}");
            }
            if at > size / 4 * 3 + 4096 {
                assert!(
                    ready(),
                    "it is there before it is needed, at {at} of {size}"
                );
            }
            most = most.max(written().saturating_sub(before));
            before = written();
        }
        assert_eq!(files, 2);
        assert!(most > 0, "none was seen on its way");
        assert!(
            most <= 128 << 10,
            "{most} bytes of zeros with one commit of 4 KiB"
        );
        // Whoever waits for it does not wait for the log to go on.
        while used().1 < used().2 / 2 {
            write_each(&wal, 1, 3000).await;
        }
        assert!(!ready());
        wal.quiesce().await.unwrap();
        assert!(ready());
    });
}

/// What a model test does next.
#[derive(Clone, Debug)]
enum Op {
    /// Appends records of these sizes in one commit.
    Append(Vec<u16>),
    /// Releases so many of the records that are there, in percent.
    Release(u8),
    /// Ends and starts in good order.
    Reopen,
    /// A commit of these records is cut off by a crash at this place of its frame, in percent: what is behind
    /// stays as it was before. The other half keeps a random choice of blocks instead.
    Crash(Vec<u16>, u8, u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let sizes = || proptest::collection::vec(prop_oneof![0..200_u16, 0..20_000_u16], 1..5);
    let op = prop_oneof![
        4 => sizes().prop_map(Op::Append),
        1 => (0..=100_u8).prop_map(Op::Release),
        1 => Just(Op::Reopen),
        2 => (sizes(), 0..100_u8, any::<u64>()).prop_map(|(s, at, b)| Op::Crash(s, at, b)),
    ];
    proptest::collection::vec(op, 1..40)
}

fn snapshot(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    log_files(root, "log")
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// Undoes a part of the last commit.
fn tear(before: &[(PathBuf, Vec<u8>)], percent: u8, blocks: u64) {
    for (path, old) in before.iter().rev() {
        let Ok(new) = std::fs::read(path) else {
            continue;
        };
        let differs = |i: &usize| old[*i] != new[*i];
        let len = old.len().min(new.len());
        let Some(first) = (BLOCK_BYTES..len).find(differs) else {
            continue;
        };
        let last = (first..len).rfind(differs).unwrap_or(first);
        let mut torn = new.clone();
        if blocks.is_multiple_of(2) {
            let cut = first + (last + 1 - first) * usize::from(percent) / 100;
            torn[cut..len].copy_from_slice(&old[cut..len]);
        } else {
            let (first, last) = (first / BLOCK_BYTES, last / BLOCK_BYTES);
            for block in (first..=last).filter(|b| blocks >> ((b - first) % 63 + 1) & 1 == 0) {
                let bytes = block * BLOCK_BYTES..((block + 1) * BLOCK_BYTES).min(len);
                torn[bytes.clone()].copy_from_slice(&old[bytes]);
            }
        }
        edit(path, |bytes| *bytes = torn);
        return;
    }
    panic!("the last commit changed no file");
}

async fn run_model(root: &Path, ops: Vec<Op>) {
    let env = testing::env(root);
    let mut after = 0;
    let mut model: Records = Vec::new();
    let mut byte = 0_u8;
    let mut fresh = |sizes: &[u16]| -> Vec<Vec<u8>> {
        let record = |size: &u16| {
            byte = byte.wrapping_add(1);
            vec![byte; usize::from(*size)]
        };
        sizes.iter().map(record).collect()
    };
    let (mut wal, ..) = open(&env, 0).await;
    for op in ops {
        let records = match &op {
            Op::Append(sizes) | Op::Crash(sizes, ..) => fresh(sizes),
            _ => Vec::new(),
        };
        let mut reopen = matches!(op, Op::Reopen);
        let first = wal.last_lsn().0 + 1;
        let numbered: Records = (first..)
            .zip(records)
            .map(|(lsn, record)| (lsn, record.len() as u8, record))
            .collect();
        let mut in_flight = Records::new();
        let answers = Answers::default();
        let append_all = || {
            for (_, kind, record) in &numbered {
                append(&wal, &answers, *kind, record);
            }
        };
        match op {
            Op::Append(_) => {
                append_all();
                wal.flush().await.unwrap();
                assert_eq!(answers.borrow().len(), numbered.len());
                model.extend(numbered);
            }
            Op::Release(percent) => {
                let count = model.len() * usize::from(percent) / 100;
                after = model[..count].last().map_or(after, |r| r.0);
                model.drain(..count);
                wal.release(Lsn(after));
                wal.quiesce().await.unwrap();
            }
            Op::Reopen => {}
            Op::Crash(_, percent, blocks) => {
                // The file that the commit goes to must be there before it.
                wal.quiesce().await.unwrap();
                let size: usize = numbered.iter().map(|r| r.2.len() + 8).sum::<usize>() + 40;
                wal.0
                    .place(size.next_multiple_of(BLOCK_BYTES) as u64)
                    .await
                    .unwrap();
                wal.quiesce().await.unwrap();
                let before = snapshot(root);
                let list = root.join("shard/log").join(list::NAME);
                let listed = std::fs::read(&list).unwrap();
                append_all();
                wal.flush().await.unwrap();
                wal.quiesce().await.unwrap();
                tear(&before, percent, blocks);
                // Nothing that was written behind the commit knows of it: that crash came first.
                edit(&list, |bytes| *bytes = listed);
                in_flight = numbered;
                reopen = true;
            }
        }
        if reopen {
            wal.close().await;
            let (reopened, report, records) = open(&env, after).await;
            if records.len() > model.len() {
                // What was torn was padding only, or nothing: then the commit is there as a whole.
                model.extend(in_flight);
            }
            assert_eq!(records, model);
            assert_eq!((report.records, report.lost), (model.len() as u64, 0));
            wal = reopened;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn crashes_cut_nothing_that_was_acknowledged(ops in ops()) {
        let dir = tempfile::tempdir().unwrap();
        testing::block_on(run_model(dir.path(), ops));
    }
}

#[test]
fn many_writers_on_an_executor_share_commits() {
    const WRITERS: usize = 64;
    const EACH: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_path_buf();
    let executors = crate::runtime::Executors::start(1, move |cx| {
        let env = cx.env(&root);
        Box::pin(async move {
            let (wal, ..) = open(&env, 0).await;
            let writers = (0..WRITERS).map(|writer| {
                let wal = wal.clone();
                async move {
                    for _ in 0..EACH {
                        let (told, durable) = futures_channel::oneshot::channel();
                        wal.append(
                            RecordKind(writer as u8),
                            &mut |out| out.extend_from_slice(&[writer as u8; 100]),
                            Box::new(move |result| {
                                let _ = told.send(result);
                            }),
                        )
                        .unwrap();
                        durable.await.unwrap().unwrap();
                    }
                }
            });
            futures_util::future::join_all(writers).await;
            let stats = wal.stats();
            assert_eq!(stats.records, (WRITERS * EACH) as u64);
            assert!(
                stats.commits <= stats.records / 16,
                "{} commits for {} records",
                stats.commits,
                stats.records
            );
            wal.release(Lsn(3000));
            wal.close().await;
            let (_, _, records) = open(&env, 3000).await;
            assert_eq!(records.len(), 200);
            Ok(())
        })
    });
    executors.unwrap().join().unwrap();
}
