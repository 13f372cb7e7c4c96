//! The catalog file and its log: what comes back after any number of edits, cuts and failures.

use crate::catalog_log::{self, CatalogWriter};
use crate::files;
use crate::shared::{CATALOG_KIND, CATALOG_NAME, CatalogFile, Options, Shared};
use crate::testing::{block_on, env};
use std::path::Path;
use std::sync::Arc;
use strandline_core::error::SqlState;
use strandline_core::ids::{ColumnId, Rev, TableId};
use strandline_core::schema::{Family, TableDef, TableRevisions};

fn table(id: u32, name: &str) -> Arc<TableDef> {
    Arc::new(TableDef {
        id: TableId(id),
        name: name.into(),
        family: Family::Timeseries,
        columns: Vec::new(),
        entity_uuid: false,
        options: Default::default(),
        next_column: ColumnId::FIRST_USER,
    })
}

/// One change of each kind, by turns.
fn change(file: &mut CatalogFile, step: u32) {
    file.version += 1;
    match step % 5 {
        0 | 1 => {
            let id = file.next_table;
            file.next_table = TableId(id.0 + 1);
            file.tables.push(table(id.0, &format!("t{}", id.0)));
            let revisions = TableRevisions {
                reserved: Rev(u64::from(step)),
                horizon: Rev(0),
            };
            file.revisions.insert(id, revisions);
        }
        2 => {
            let at = step as usize % file.tables.len();
            Arc::make_mut(&mut file.tables[at]).name = format!("renamed{step}");
        }
        3 => {
            let at = step as usize % file.tables.len();
            let id = file.tables.remove(at).id;
            file.revisions.remove(&id);
        }
        _ => file
            .revisions
            .values_mut()
            .for_each(|r| r.horizon = Rev(u64::from(step))),
    }
}

fn begin() -> CatalogFile {
    CatalogFile {
        shards: 2,
        next_table: TableId(1),
        ..CatalogFile::default()
    }
}

async fn opened(dir: &Path) -> Result<CatalogFile, strandline_core::error::Error> {
    Ok(Shared::open(&env(dir), &Options::default()).await?.1)
}

#[test]
fn every_edit_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let env = env(dir.path());
        let mut now = begin();
        for start in 0..3 {
            let mut writer = CatalogWriter::new(env.clone(), &now);
            for step in 0..40 {
                let mut next = now.clone();
                change(&mut next, step + start);
                assert!(writer.commit(&now, &mut next).await.is_ok());
                now = next;
                assert_eq!(opened(dir.path()).await.unwrap(), now);
            }
            let logs = |names: Vec<String>| names.iter().filter(|n| n.ends_with(".log")).count();
            assert_eq!(logs(env.disk.list("").await.unwrap()), 1);
            if start == 1 {
                writer.close(&now).await.unwrap();
                now.log = 0;
                assert_eq!(opened(dir.path()).await.unwrap(), now);
                assert_eq!(logs(env.disk.list("").await.unwrap()), 0);
            }
        }
    });
}

#[test]
fn a_torn_edit_is_none_and_damage_before_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let env = env(dir.path());
        let (mut now, mut states, mut ends) = (begin(), Vec::new(), Vec::new());
        let mut writer = CatalogWriter::new(env.clone(), &now);
        let size = |log: u64| {
            let path = dir.path().join(catalog_log::name(log));
            std::fs::metadata(path).unwrap().len() as usize
        };
        for step in 0..5 {
            let mut next = now.clone();
            change(&mut next, step);
            assert!(writer.commit(&now, &mut next).await.is_ok());
            now = next;
            states.push(now.clone());
            ends.push(size(now.log));
        }
        assert_eq!(ends[0], 0, "the first is the file");
        let path = dir.path().join(catalog_log::name(now.log));
        let whole = std::fs::read(&path).unwrap();
        for cut in (0..whole.len()).step_by(7).chain(ends.iter().copied()) {
            let torn = [&whole[..cut], &vec![0; cut % 40]].concat();
            std::fs::write(&path, torn).unwrap();
            let state = ends.iter().rposition(|&e| e <= cut).unwrap();
            assert_eq!(opened(dir.path()).await.unwrap(), states[state], "at {cut}");
        }
        for at in (0..ends[3]).step_by(5) {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            std::fs::write(&path, bad).unwrap();
            let e = opened(dir.path()).await.unwrap_err();
            assert!(e.message().contains(".log"), "{e}");
            let newer = e.state() == SqlState::FeatureNotSupported;
            assert!(newer || e.state() == SqlState::DataCorrupted, "{e}");
        }
        // After a torn edit the next change goes to a new file and a new log.
        std::fs::write(&path, &whole[..ends[2] + 9]).unwrap();
        let (mut now, log) = (opened(dir.path()).await.unwrap(), now.log);
        assert_eq!(now, states[2]);
        let mut writer = CatalogWriter::new(env.clone(), &now);
        for step in 5..8 {
            let mut next = now.clone();
            change(&mut next, step);
            assert!(writer.commit(&now, &mut next).await.is_ok());
            now = next;
            assert!(now.log > log);
            assert_eq!(opened(dir.path()).await.unwrap(), now);
        }
        std::fs::remove_file(dir.path().join(catalog_log::name(now.log))).unwrap();
        let e = opened(dir.path()).await.unwrap_err();
        assert_eq!(e.state(), SqlState::DataCorrupted, "{e}");
    });
}

#[test]
fn a_catalog_from_before_the_log_opens() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let mut old = begin();
        (0..3).for_each(|step| change(&mut old, step));
        let mut body = serde_json::to_value(&old).unwrap();
        body.as_object_mut().unwrap().remove("log");
        // The tables in any order, as that format did not promise one.
        body["tables"].as_array_mut().unwrap().reverse();
        let env = env(dir.path());
        files::replace(&env, "", CATALOG_NAME, CATALOG_KIND, &body)
            .await
            .unwrap();
        assert_eq!(opened(dir.path()).await.unwrap(), old);
    });
}

#[test]
fn a_long_log_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let env = env(dir.path());
        let mut now = begin();
        let mut writer = CatalogWriter::new(env.clone(), &now);
        let (mut logs, mut rewritten) = (std::collections::BTreeSet::new(), 0);
        for step in 0..600 {
            let mut next = now.clone();
            next.version += 1;
            // 8 KiB each.
            next.next_table = TableId(step + 2);
            next.tables.push(table(step + 1, &"x".repeat(8 << 10)));
            assert!(writer.commit(&now, &mut next).await.is_ok());
            rewritten += u32::from(logs.insert(next.log));
            now = next;
        }
        // At 1, 2 and 4 MiB, and not for each edit.
        assert!((3..=5).contains(&rewritten), "{rewritten}");
        assert_eq!(opened(dir.path()).await.unwrap(), now);
    });
}
