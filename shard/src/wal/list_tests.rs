//! Files of the log that somebody removed or cut, and what the list of files proves about them.
#![allow(clippy::disallowed_methods)] // operators' mistakes, made behind the log's back

use super::tests::{append, edit, log_files, open, open_with, write_each};
use super::*;
use crate::testing;
use std::path::Path;
use strandline_core::format::log::BLOCK_BYTES;

const LISTED: WalOptions = WalOptions {
    after: Lsn(0),
    accept_loss: false,
    listed: true,
    reached: Lsn(0),
};
const ACCEPT: WalOptions = WalOptions {
    accept_loss: true,
    ..LISTED
};

/// Twenty commits of one record in three files and, in the end, a spare one.
async fn filled(root: &Path) -> Env {
    let env = testing::env(root);
    let (wal, ..) = open(&env, 0).await;
    write_each(&wal, 20, 5000).await;
    wal.quiesce().await.unwrap();
    wal.close().await;
    assert!(log_files(root, "log").len() >= 3);
    env
}

async fn refused(env: &Env, options: WalOptions) -> Error {
    let e = open_with(env, options).await.err().expect("a refusal");
    assert_eq!(e.state(), SqlState::DataCorrupted, "{e}");
    assert!(e.hint_text().unwrap().contains("--accept-loss"), "{e}");
    e
}

/// Accepts the loss: everything is there but what is reported, it stays accepted, and numbers go on above
/// what was lost.
async fn accepted(env: &Env, options: WalOptions) -> WalReport {
    let (wal, report, records) = open_with(env, options).await.unwrap();
    assert!(report.lost + report.lost_files > 0, "{report:?}");
    let most = report.lost as usize + records.len();
    assert!(most == 20 || report.lost_files > 0, "{report:?}");
    let last = wal.last_lsn();
    assert!(last.0 >= records.last().map_or(0, |r| r.0) && last >= options.reached);
    wal.close().await;
    let later = WalOptions {
        accept_loss: false,
        ..options
    };
    let (wal, again, same) = open_with(env, later).await.unwrap();
    assert_eq!((again.lost, again.lost_files), (0, 0));
    assert_eq!(same, records, "it stays accepted");
    assert_eq!(wal.last_lsn(), last);
    write_each(&wal, 30, 5000).await;
    wal.close().await;
    let (wal, _, more) = open_with(env, later).await.unwrap();
    assert_eq!(more.len(), records.len() + 30, "what came later is safe");
    wal.close().await;
    report
}

#[test]
fn any_file_that_is_gone_is_missed() {
    for victim in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        testing::block_on(async {
            let env = filled(dir.path()).await;
            let files = log_files(dir.path(), "log");
            // The last but `victim`: the spare, the active one, a full one.
            let file = &files[files.len() - 1 - victim];
            std::fs::remove_file(file).unwrap();
            let e = refused(&env, LISTED).await;
            if victim == 0 {
                let name = file.file_name().unwrap().to_str().unwrap();
                assert!(e.message().contains(name), "{e}");
            }
            accepted(&env, ACCEPT).await;
        });
    }
}

#[test]
fn all_files_that_are_gone_are_missed() {
    for list_too in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        testing::block_on(async {
            let env = filled(dir.path()).await;
            for file in log_files(dir.path(), "log") {
                std::fs::remove_file(file).unwrap();
            }
            if list_too {
                std::fs::remove_file(dir.path().join("shard/log").join(list::NAME)).unwrap();
            }
            refused(&env, LISTED).await;
            let report = accepted(&env, ACCEPT).await;
            assert!(report.lost_files > 0);
            assert_eq!(report.lost > 0, !list_too, "the list counts them");
        });
    }
}

#[test]
fn a_file_cut_between_two_records_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let (wal, ..) = open(&env, 0).await;
        write_each(&wal, 5, 10).await;
        wal.close().await;
        let file = log_files(dir.path(), "log")[0].clone();
        edit(&file, |bytes| bytes.truncate(4 * BLOCK_BYTES));
        let e = refused(&env, LISTED).await;
        assert!(e.message().contains("ends at offset 16384"), "{e}");
        let (wal, report, records) = open_with(&env, ACCEPT).await.unwrap();
        assert_eq!((report.lost_files, records.len()), (1, 3));
        wal.close().await;
        open_with(&env, LISTED).await.unwrap();
    });
}

/// The end of an older file is overwritten with zeros, and the newer files are empty: the list knows better.
#[test]
fn records_that_the_list_counts_are_missed() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = filled(dir.path()).await;
        let (wal, ..) = open_with(&env, LISTED).await.unwrap(); // notes twenty commits
        wal.close().await;
        for file in &log_files(dir.path(), "log")[1..] {
            edit(file, |bytes| bytes[BLOCK_BYTES..].fill(0));
        }
        let e = refused(&env, LISTED).await;
        assert!(e.message().contains("records that were durable"), "{e}");
        let report = accepted(&env, ACCEPT).await;
        assert!(report.lost > 0 && report.lost_files == 0, "{report:?}");
    });
}

#[test]
fn what_is_in_segments_may_be_gone() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = filled(dir.path()).await;
        std::fs::remove_file(&log_files(dir.path(), "log")[0]).unwrap();
        let (wal, _, records) = open_with(
            &env,
            WalOptions {
                after: Lsn(12),
                ..LISTED
            },
        )
        .await
        .unwrap();
        assert_eq!(records.len(), 8);
        wal.close().await;
    });
}

#[test]
fn the_list_is_missed_and_its_damage_noticed() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = filled(dir.path()).await;
        let path = dir.path().join("shard/log").join(list::NAME);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            edit(&path, |bytes| bytes[at] ^= 2);
            let e = open_with(&env, LISTED).await.err().expect("a refusal");
            assert!(e.message().contains("log/files"), "{e}");
            std::fs::write(&path, &whole).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        let e = refused(&env, LISTED).await;
        assert!(e.message().contains("log/files"), "{e}");
        let (wal, report, records) = open_with(&env, ACCEPT).await.unwrap();
        assert_eq!((report.lost, report.lost_files, records.len()), (0, 1, 20));
        wal.close().await;
        // A log of a release without the list has none, and gets one.
        std::fs::remove_file(&path).unwrap();
        let (wal, ..) = open_with(&env, WalOptions::default()).await.unwrap();
        wal.close().await;
        open_with(&env, LISTED).await.unwrap();
    });
}

/// The way a crash between the two steps leaves it: the file has its name, and the list does not name it.
#[test]
fn a_file_that_is_not_listed_yet_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = filled(dir.path()).await;
        let files = Directory {
            env: env.clone(),
            dir: "shard/log".into(),
        };
        let Ok(list::Found::List(mut list)) = list::read(&files).await else {
            panic!("no list");
        };
        list.files.pop_last();
        crate::files::replace(&env, "shard/log", list::NAME, list::KIND, &list)
            .await
            .unwrap();
        let (wal, report, records) = open_with(&env, LISTED).await.unwrap();
        assert_eq!((report.lost, report.lost_files, records.len()), (0, 0, 20));
        wal.close().await;
    });
}

#[test]
fn a_log_that_ends_before_what_was_flushed_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let env = testing::env(dir.path());
        let (wal, ..) = open(&env, 0).await;
        write_each(&wal, 3, 10).await;
        wal.close().await;
        let file = log_files(dir.path(), "log")[0].clone();
        edit(&file, |bytes| bytes[2 * BLOCK_BYTES..].fill(0));
        std::fs::remove_file(dir.path().join("shard/log").join(list::NAME)).unwrap();
        let reached = WalOptions {
            reached: Lsn(3),
            ..WalOptions::default()
        };
        let e = refused(&env, reached).await;
        assert!(e.message().contains("2 records"), "{e}");
        let accept = WalOptions {
            accept_loss: true,
            ..reached
        };
        let (wal, report, records) = open_with(&env, accept).await.unwrap();
        assert_eq!((report.lost, records.len(), wal.last_lsn()), (2, 1, Lsn(3)));
        let answers = Default::default();
        assert_eq!(append(&wal, &answers, 1, b"new"), 4);
        wal.flush().await.unwrap();
        wal.close().await;
        let (_, _, records) = open_with(&env, reached).await.unwrap();
        assert_eq!((records.len(), records[1].0), (2, 4));
    });
}
