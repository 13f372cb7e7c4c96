//! Faults that the seeds have found, each as a story of its own, and rules that one scene shows best.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use strandline_core::error::{Error, SqlState};
use strandline_core::io::Disk;
use strandline_core::limits::Limits;
use strandline_core::routing::{hash64, shard_of_entity};
use strandline_core::schema::Family;
use strandline_core::schema_change::TableChange;
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::value::{Kind, Value};
use strandline_shard::api::Engine;
use strandline_shard::shared::{Faults, Options};
use strandline_tests::sim::disk::{DiskFaults, SimDisk, SimMount};
use strandline_tests::sim::process::Process;
use strandline_tests::sim::reads::{self, Db, STREAM, TABLE, spec, table};
use strandline_tests::sim::world::World;

/// A machine with one database of two shards on it.
struct Scene {
    world: Rc<World>,
    disk: Rc<SimDisk>,
    limits: Limits,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let world = World::new(seed);
        Scene {
            disk: SimDisk::new(world.clone()),
            world,
            limits: Limits {
                log_file_bytes: 64 << 10,
                ..Limits::default()
            },
        }
    }

    /// Runs something to its end.
    fn run<T: 'static>(&self, what: &str, future: impl Future<Output = T> + 'static) -> T {
        match self.world.block_on(what, future) {
            Ok(value) => value,
            Err(e) => panic!("{e}"),
        }
    }

    /// Starts the database, with its two tables.
    fn start(&self) -> Process {
        let options = Options {
            shards: 2,
            node_id: 0,
            limits: self.limits.clone(),
            accept_loss: false,
            faults: Faults::default(),
        };
        let start = Process::start(
            self.world.clone(),
            self.disk.clone(),
            "main".into(),
            options,
            2,
            Rc::default(),
        );
        let process = self.run("start", start).expect("the database starts");
        let db = db(&process);
        self.run("create", async move {
            for (name, family) in [(TABLE, Family::Rows), (STREAM, Family::Timeseries)] {
                db.create_table(spec(name, family), true).await?;
            }
            Ok::<_, Error>(())
        })
        .expect("tables");
        process
    }

    fn crash(&self, process: Process) {
        self.world.kill_tasks();
        process.states().iter().for_each(|s| s.clear());
        drop(process);
        self.disk.crash();
    }

    fn wait(&self, time: Duration) {
        let sleep = self.world.sleep_ns(time.as_nanos() as u64);
        self.run("wait", sleep);
    }
}

fn db(process: &Process) -> Db {
    process.engines[0].clone()
}

/// Writes rows of one entity.
async fn write(db: &Db, name: &str, entity: &str, rows: std::ops::Range<i64>) -> Result<(), Error> {
    let def = table(db, name)?;
    let hash = hash64(entity.as_bytes());
    let mut batch = StreamBatchBuilder::default();
    for ts in rows {
        batch.begin_row(entity, hash, ts);
        let slot = batch.slot(def.columns[0].id, Kind::F64);
        batch.push_f64(slot, ts as f64);
    }
    let shard = shard_of_entity(entity, db.shards());
    db.write_stream(def.id, vec![(shard, batch.finish())]).await
}

async fn insert(db: &Db) -> Result<u64, Error> {
    let def = table(db, TABLE)?;
    let columns = vec![def.columns[0].id];
    let rows = db.insert_rows(def.id, columns, vec![vec![Value::str("x")]]);
    Ok(rows.await?[0].rev.0)
}

fn entity_of(shard: u16) -> String {
    (0..)
        .map(|n| format!("e{n}"))
        .find(|e| shard_of_entity(e, 2).0 == shard)
        .expect("some entity")
}

/// The catalog said that the table is gone, the shard had not heard of it yet, and a flush was due: the
/// flush loop found that table, had nothing to do for it, and found it again. It never gave way, so the DROP
/// never came, and nothing else of that executor ever ran.
#[test]
fn a_drop_while_a_flush_is_due() {
    for seed in 0..40 {
        let mut scene = Scene::new(seed);
        scene.limits.memory_bytes = 32 << 10;
        let process = scene.start();
        let (db, other) = (db(&process), db(&process));
        let writers: Rc<RefCell<u32>> = Rc::default();
        let done = writers.clone();
        scene
            .run("drop", async move {
                db.create_table(spec("scratch", Family::Timeseries), false)
                    .await?;
                write(&db, "scratch", &entity_of(0), 0..100).await?;
                write(&db, "scratch", &entity_of(1), 0..100).await?;
                db.drop_table("scratch", false).await
            })
            .expect("the DROP comes to its end");
        scene
            .run("others", async move {
                for round in 0..20 {
                    let rows = round * 10..round * 10 + 10;
                    write(&other, STREAM, &entity_of(0), rows).await?;
                    *done.borrow_mut() += 1;
                }
                Ok::<_, Error>(())
            })
            .expect("others write on");
        assert_eq!(*writers.borrow(), 20);
        scene.crash(process);
    }
}

/// The log failed while the disk was full. The fence that makes its last numbers void could not be written,
/// was tried once, and the numbers stayed in flight: feeds of the healthy shards stood still until a
/// restart.
#[test]
fn a_fence_on_a_full_disk_is_written_once_there_is_space() {
    let scene = Scene::new(7);
    let process = scene.start();
    let first = db(&process);
    scene
        .run("insert", async move { insert(&first).await })
        .expect("an insert");
    scene.disk.faults.set(DiskFaults {
        write_errors: 1,
        full: true,
        ..DiskFaults::default()
    });
    let failing = db(&process);
    let e = scene
        .run("insert", async move { insert(&failing).await })
        .expect_err("the log fails");
    assert_eq!(e.state(), SqlState::IoError);
    scene.wait(Duration::from_secs(3));
    let def = table(&db(&process), TABLE).expect("the table");
    let ledger = process.shared.ledger(def.id).expect("a ledger");
    assert!(
        ledger.in_flight() > 0,
        "no fence is durable: its numbers may not be passed"
    );
    scene.disk.faults.set(DiskFaults::default());
    scene.wait(Duration::from_secs(3));
    assert_eq!(ledger.in_flight(), 0, "feeds go on");
    assert_eq!(scene.disk.counts.get().fences, 1);
    scene.crash(process);
    let process = scene.start();
    let again = db(&process);
    let rows = scene
        .run("read", async move {
            let def = table(&again, TABLE)?;
            reads::read_rows(&again, &def, None, None).await
        })
        .expect("a read");
    assert_eq!(rows.len(), 1, "what was refused does not come back");
}

/// One shard could not flush, the others gave up, and CHECKPOINT answered that it was given up (`55000`) in
/// place of the reason. What it had linked by then stayed, and kept the space of old segments for ever.
#[test]
fn a_checkpoint_on_a_full_disk_says_so_and_leaves_nothing() {
    let scene = Scene::new(11);
    let process = scene.start();
    let first = db(&process);
    scene
        .run("write", async move {
            write(&first, STREAM, &entity_of(0), 0..50).await?;
            first.checkpoint().await?;
            write(&first, STREAM, &entity_of(1), 0..50).await
        })
        .expect("writes and a first snapshot");
    scene.disk.faults.set(DiskFaults {
        full: true,
        ..DiskFaults::default()
    });
    let full = db(&process);
    let e = scene
        .run("checkpoint", async move { full.checkpoint().await })
        .expect_err("no space");
    assert_eq!(e.state(), SqlState::DiskFull, "{e}");
    scene.disk.faults.set(DiskFaults::default());
    let again = db(&process);
    scene
        .run("checkpoint", async move { again.checkpoint().await })
        .expect("space again");
    let mount = SimMount::new(scene.disk.clone(), "main");
    let left = scene.run("list", async move {
        let mut left = Vec::new();
        for name in mount.list("snapshots").await? {
            for shard in 0..2 {
                let dir = format!("snapshots/{name}/shard-000{shard}/seg");
                let files = mount.list(&dir).await?;
                left.push((name.ends_with(".partial"), files.len()));
            }
        }
        Ok::<_, std::io::Error>(left)
    });
    let left = left.expect("a list");
    assert!(
        left.iter().all(|&(partial, files)| !partial || files == 0),
        "{left:?}"
    );
    assert_eq!(left.iter().filter(|l| !l.0).count(), 4, "two snapshots");
}

/// What stands in front of a reader while the disk is full: nothing.
#[test]
fn reads_go_on_while_the_disk_is_full_and_writes_resume() {
    let mut scene = Scene::new(13);
    scene.limits.memory_bytes = 64 << 10;
    let process = scene.start();
    scene.disk.faults.set(DiskFaults {
        full: true,
        ..DiskFaults::default()
    });
    let full = db(&process);
    let (written, refused) = scene
        .run("write", async move {
            let (mut written, mut refused) = (0, 0);
            for round in 0..400 {
                let rows = round * 20..round * 20 + 20;
                match write(&full, STREAM, &entity_of(0), rows).await {
                    Ok(()) => written += 20,
                    Err(e) if e.state() == SqlState::DiskFull => refused += 1,
                    Err(e) => return Err(e),
                }
                let def = table(&full, STREAM)?;
                let all = reads::raw(&def, strandline_core::scan::Entities::All);
                if round % 40 == 0 && reads::scan(&full, all).await?.len() != written {
                    return Err(Error::internal("a read does not show what was written"));
                }
            }
            Ok((written, refused))
        })
        .expect("53100 and nothing else");
    assert!(
        written > 0 && refused > 0,
        "{written} rows, {refused} refused"
    );
    assert!(
        process.engines[0].ready().is_ok(),
        "a full disk is no failed fsync"
    );
    scene.disk.faults.set(DiskFaults::default());
    scene.wait(Duration::from_secs(3));
    let again = db(&process);
    scene
        .run("write", async move {
            write(&again, STREAM, &entity_of(0), 100_000..100_020).await
        })
        .expect("writes resume by themselves");
    scene.crash(process);
}

/// Each shard held its writers back as soon as it had itself flushed, and until the last of the others had:
/// they stood still for as long as the longest flush or merge of any shard.
#[test]
fn a_checkpoint_holds_no_writer_while_another_shard_flushes() {
    let scene = Scene::new(17);
    let process = scene.start();
    let (filler, one, other) = (db(&process), db(&process), db(&process));
    scene
        .run("fill", async move {
            for n in 0..200 {
                let name = format!("full{n}");
                filler
                    .create_table(spec(&name, Family::Timeseries), false)
                    .await?;
                write(&filler, &name, &entity_of(1), 0..50).await?;
            }
            Ok::<_, Error>(())
        })
        .expect("much to flush on one shard");
    let both = async move {
        let taken = Cell::new(None);
        let checkpoint = async {
            let began = one.now_ms();
            one.checkpoint().await?;
            taken.set(Some(one.now_ms() - began));
            Ok::<_, Error>(())
        };
        let writes = async {
            let mut longest = 0;
            for ts in 0.. {
                if taken.get().is_some() {
                    break;
                }
                let began = other.now_ms();
                write(&other, STREAM, &entity_of(0), ts..ts + 1).await?;
                longest = longest.max(other.now_ms() - began);
            }
            Ok::<_, Error>(longest)
        };
        let (checkpoint, longest) = futures_lite::future::zip(checkpoint, writes).await;
        checkpoint?;
        Ok::<_, Error>((taken.get(), longest?))
    };
    let (taken, longest) = scene.run("both", both).expect("a snapshot and writes");
    let taken = taken.expect("it came to its end");
    assert!(taken > 40, "there was much to flush: {taken} ms");
    assert!(
        longest * 4 < taken,
        "a write took {longest} ms of the snapshot's {taken} ms"
    );
}

/// DROP had written the new catalog and could not sync it. It answered an error and the
/// table went on taking writes, though a crash could leave the catalog without it: acknowledged, and gone.
#[test]
fn a_drop_in_doubt_takes_the_table_out_of_use() {
    let (mut there, mut gone) = (0, 0);
    for seed in 0..30 {
        let scene = Scene::new(seed);
        let process = scene.start();
        let first = db(&process);
        scene
            .run("write", async move {
                first
                    .create_table(spec("scratch", Family::Timeseries), false)
                    .await?;
                write(&first, "scratch", &entity_of(0), 0..30).await
            })
            .expect("a write");
        // The edit is written and its sync fails, and so does all that would undo it.
        scene.disk.faults.set(DiskFaults {
            sync_errors: 1,
            dir_sync_errors: 1,
            ..DiskFaults::default()
        });
        let again = db(&process);
        let (dropped, written) = scene.run("drop", async move {
            let dropped = again.drop_table("scratch", false).await;
            let written = write(&again, "scratch", &entity_of(0), 30..60).await;
            (dropped, written)
        });
        assert_eq!(dropped.expect_err("no sync").state(), SqlState::IoError);
        let e = written.expect_err("nobody knows whether the table is there");
        assert_eq!(e.state(), SqlState::UndefinedTable);
        scene.disk.faults.set(DiskFaults::default());
        scene.crash(process);
        let process = scene.start();
        let last = db(&process);
        let rows = scene.run("read", async move {
            let def = table(&last, "scratch")?;
            let all = reads::raw(&def, strandline_core::scan::Entities::All);
            reads::scan(&last, all).await
        });
        match rows {
            Ok(rows) => {
                assert_eq!(rows.len(), 30, "it came back whole");
                there += 1;
            }
            Err(e) => {
                assert_eq!(e.state(), SqlState::UndefinedTable);
                gone += 1;
            }
        }
        scene.crash(process);
    }
    assert!(
        there > 0 && gone > 0,
        "{there} times there, {gone} times gone"
    );
}

/// The same for a column: after an ALTER whose edit could not be synced, nor undone, no write finds the column
/// any more that the next start may not find.
#[test]
fn a_dropped_column_in_doubt_is_out_of_use() {
    let (mut there, mut gone) = (0, 0);
    for seed in 0..30 {
        let scene = Scene::new(seed);
        let process = scene.start();
        let first = db(&process);
        let column = scene
            .run("write", async move {
                first
                    .create_table(spec("scratch", Family::Timeseries), false)
                    .await?;
                write(&first, "scratch", &entity_of(0), 0..30).await?;
                Ok::<_, Error>(table(&first, "scratch")?.columns[0].clone())
            })
            .expect("a write");
        scene.disk.faults.set(DiskFaults {
            sync_errors: 1,
            dir_sync_errors: 1,
            ..DiskFaults::default()
        });
        let (again, id) = (db(&process), column.id);
        let (altered, after) = scene.run("alter", async move {
            let def = table(&again, "scratch").expect("it is there");
            let drop = TableChange::DropColumn {
                name: column.name,
                if_exists: false,
            };
            let altered = again.alter_table(def.id, vec![drop]).await;
            (altered, table(&again, "scratch").expect("it is there"))
        });
        assert_eq!(altered.expect_err("no sync").state(), SqlState::IoError);
        assert!(
            after.column_by_id(id).is_none(),
            "nobody knows whether it is there"
        );
        scene.disk.faults.set(DiskFaults::default());
        scene.crash(process);
        let process = scene.start();
        let last = db(&process);
        let rows = scene.run("read", async move {
            let def = table(&last, "scratch")?;
            if def.column_by_id(id).is_none() {
                return Ok::<_, Error>(None);
            }
            let all = reads::raw(&def, strandline_core::scan::Entities::All);
            Ok(Some(reads::scan(&last, all).await?.len()))
        });
        match rows.expect("the table is there") {
            Some(rows) => {
                assert_eq!(rows, 30, "it came back whole");
                there += 1;
            }
            None => gone += 1,
        }
        scene.crash(process);
    }
    assert!(
        there > 0 && gone > 0,
        "{there} times there, {gone} times gone"
    );
}
