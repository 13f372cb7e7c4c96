//! Flush, merge and CHECKPOINT on a disk that is full.

use crate::api::Engine;
use crate::engine::LocalEngine;
use crate::hop::{Hop, Job};
use crate::router::ExecutorState;
use crate::shared::{Options, Shared};
use crate::worker::Shard;
use crate::{start, testing};
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use strandline_core::error::SqlState;
use strandline_core::ids::ColumnId;
use strandline_core::io::{Disk, Env, File, FileMode, LocalFuture};
use strandline_core::limits::Limits;
use strandline_core::schema::{ColumnSpec, Family, Fill, Label, TableSpec};
use strandline_core::value::Value;

/// There is one executor: nobody to send to.
struct NoHop;

impl Hop for NoHop {
    fn send(&self, executor: usize, _job: Job) {
        panic!("there is no executor {executor}");
    }
}

/// A disk that has no room for segments while `full` says so.
struct SmallDisk {
    disk: Rc<dyn Disk>,
    full: Rc<Cell<bool>>,
}

struct SmallFile {
    file: Rc<dyn File>,
    full: Rc<Cell<bool>>,
}

impl File for SmallFile {
    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalFuture<'a, io::Result<Vec<u8>>> {
        self.file.read_at(offset, len)
    }
    fn write_at<'a>(&'a self, offset: u64, data: &'a [u8]) -> LocalFuture<'a, io::Result<()>> {
        if self.full.get() {
            return Box::pin(async { Err(io::ErrorKind::StorageFull.into()) });
        }
        self.file.write_at(offset, data)
    }
    fn sync<'a>(&'a self) -> LocalFuture<'a, io::Result<()>> {
        self.file.sync()
    }
    fn size<'a>(&'a self) -> LocalFuture<'a, io::Result<u64>> {
        self.file.size()
    }
}

impl Disk for SmallDisk {
    fn create<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            let file = self.disk.create(path, mode).await?;
            if !path.contains("/seg/") {
                return Ok(file);
            }
            let full = self.full.clone();
            Ok(Rc::new(SmallFile { file, full }) as Rc<dyn File>)
        })
    }
    fn open<'a>(
        &'a self,
        path: &'a str,
        mode: FileMode,
    ) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        self.disk.open(path, mode)
    }
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.disk.rename(from, to)
    }
    fn remove<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.disk.remove(path)
    }
    fn hard_link<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.disk.hard_link(from, to)
    }
    fn create_dir_all<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.disk.create_dir_all(path)
    }
    fn list<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<Vec<String>>> {
        self.disk.list(path)
    }
    fn sync_dir<'a>(&'a self, path: &'a str) -> LocalFuture<'a, io::Result<()>> {
        self.disk.sync_dir(path)
    }
}

/// A database of one shard that flushes past 128 KiB.
pub(crate) async fn database(dir: &Path) -> (Rc<LocalEngine>, Rc<Shard>, Env, Rc<Cell<bool>>) {
    let env = testing::env(dir);
    let full = Rc::new(Cell::new(false));
    let disk = Rc::new(SmallDisk {
        disk: env.disk.clone(),
        full: full.clone(),
    });
    let env = Env { disk, ..env };
    let options = Options {
        shards: 1,
        limits: Limits {
            memory_bytes: 1 << 20,
            ..Limits::default()
        },
        ..Options::default()
    };
    let (shared, file) = Shared::open(&env, &options).await.unwrap();
    let state = ExecutorState::new(0, env.clone());
    let opened = start::open_executor(&state, &shared, Rc::new(NoHop), 1, Some(file.clone())).await;
    let (router, found) = opened.unwrap();
    shared
        .finish_recovery(start::max_xid(&found), &file)
        .unwrap();
    start::start_executor(&state);
    let shard = state.local_shards().remove(0);
    (LocalEngine::new(router), shard, env, full)
}

#[test]
fn a_full_disk_keeps_nothing_of_what_could_not_be_written() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (engine, shard, env, full) = database(dir.path()).await;
        let column = ColumnSpec {
            name: "s".into(),
            label: Label::TEXT,
            fill: Fill::None,
            declared: true,
        };
        let spec = TableSpec {
            name: "t".into(),
            family: Family::Rows,
            columns: vec![column],
            entity_uuid: false,
            options: Default::default(),
        };
        engine.create_table(spec, false).await.unwrap();
        let table = engine.catalog().table("t").unwrap().id;
        full.set(true);
        let row = || vec![Value::str("x".repeat(1000))];
        let rows = (0..200).map(|_| row()).collect();
        let inserted = engine.insert_rows(table, vec![ColumnId::FIRST_USER], rows);
        assert_eq!(inserted.await.unwrap().len(), 200);
        let segments = || env.disk.list("shard-0000/seg");

        // Several tries, each under another number; the last may be under way.
        while shard.cx.next_segment.get() < 5 {
            env.tasks.sleep(Duration::from_millis(100)).await;
        }
        assert!(segments().await.unwrap().len() <= 1);
        let e = engine.checkpoint().await.unwrap_err();
        assert_eq!(e.state(), SqlState::DiskFull);
        assert!(segments().await.unwrap().len() <= 1);

        full.set(false);
        while shard.flush_error.borrow().is_some() {
            env.tasks.sleep(Duration::from_millis(100)).await;
        }
        let there = segments().await.unwrap();
        assert!(there.iter().all(|n| n.ends_with(".seg")), "{there:?}");
        engine.checkpoint().await.unwrap();
        shard.stop().await;
    });
}
