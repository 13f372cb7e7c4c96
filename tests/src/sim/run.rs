//! One run of one seed: clients write and read while the world crashes under them, again and again; after
//! each recovery everything anybody saw is checked.

use crate::sim::check::{check, check_cut, dump};
use crate::sim::client::{CLIENTS, Client, Replica, Run};
use crate::sim::disk::{Class, DiskFaults, Lie, SimDisk};
use crate::sim::model::{Model, Snapshot};
use crate::sim::process::{Process, Starting};
use crate::sim::reads::{CURRENT, Db, STREAM, TABLE, spec, table};
use crate::sim::world::World;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::AddAssign;
use std::rc::Rc;
use std::time::Duration;
use strandline_core::error::{Error, SqlState};
use strandline_core::ids::ShardId;
use strandline_core::limits::Limits;
use strandline_core::routing::{hash64, shard_of_entity};
use strandline_core::schema::Family;
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::value::{Kind, Value};
use strandline_shard::api::Engine;
use strandline_shard::shared::{Faults, Options};

/// What is planted for a run that must be caught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// Nothing: the run must pass.
    #[default]
    Nothing,
    /// The disk answers a sync without doing it.
    SkipSync(Lie),
    /// A writer is answered before its log record is durable.
    AckEarly,
    /// The watermark passes a write before its rows are visible.
    PublishEarly,
}

/// What goes wrong while clients work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plan {
    /// Nothing: no statement may fail.
    #[default]
    Quiet,
    /// The disk is full for a while: writes may fail with `53100`, and only so.
    Full,
    /// Reads and writes of the disk fail: writes may fail.
    Errors,
    /// All of it.
    Both,
}

macro_rules! coverage {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a run met. Tests ask that over many seeds nothing of it stays 0.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Coverage { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl AddAssign for Coverage {
            fn add_assign(&mut self, other: Coverage) { $(self.$name += other.$name;)+ }
        }

        impl Coverage {
            /// Names of what was not met.
            pub fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $(if self.$name == 0 { missing.push(stringify!($name)); })+
                missing
            }
        }
    };
}

coverage! {
    /// Writes acknowledged.
    acked,
    /// Crashes while clients worked.
    crashes,
    /// Crashes in the middle of a start.
    start_crashes,
    /// Clean ends.
    stops,
    /// Starts that failed because the disk did.
    failed_starts,
    /// Starts that cut a torn commit off a log.
    torn_tails,
    /// Writes that a crash tore.
    torn_writes,
    /// Starts again without a write between, whose answers were compared.
    same_again,
    /// Memtables flushed.
    flushes,
    /// Merges.
    merges,
    /// Channels whose tails had no room.
    tails_given_up,
    /// Entities of the MUTABLE table deleted.
    entities_deleted,
    /// DELETEs of entities that were not live.
    entities_missed,
    /// Answers about the MUTABLE table compared to the last cell.
    state_reads,
    /// Tables WITH (DEDUP) whose answers were compared to the last cell.
    dedup_reads,
    /// Messages between executors.
    hops,
    /// Log files taken into use again.
    recycled,
    /// Moments at which writers waited for memory.
    pressure,
    /// Failed logs whose last records were fenced off.
    fences,
    /// Errors that the disk injected.
    disk_errors,
    /// Operations that found no space.
    disk_full,
    /// Statements refused with `53100`.
    refused_full,
    /// Disks that had space again, after which writes went on.
    resumed,
    /// Feed pages refused because of a VACUUM.
    horizon_refusals,
    /// Tombstones purged.
    purged,
    /// Tables dropped.
    drops,
    /// CHECKPOINTs answered.
    checkpoints,
    /// Snapshots opened and compared.
    cuts,
    /// Compare-and-sets that won.
    compares_won,
    /// Compare-and-sets that lost.
    compares_lost,
    /// Answers compared to the last cell while others wrote.
    exact_reads,
    /// Damaged logs that were refused.
    damage_refused,
    /// Damaged logs that lost nothing: what was damaged was not needed.
    damage_needless,
    /// Reads that met a damaged segment and said so.
    damage_read,
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Equal for equal seeds.
    pub trace: u64,
    /// Tasks polled.
    pub steps: u64,
    /// What it met.
    pub seen: Coverage,
}

/// Limits so small that a few hundred writes flush, merge and recycle.
fn limits(world: &World) -> Limits {
    let rng = &world.rng;
    let pick = |list: &[u64]| list[rng.below(list.len() as u64) as usize];
    Limits {
        memory_bytes: pick(&[48 << 10, 96 << 10, 512 << 10, 64 << 20]),
        tails_percent: pick(&[0, 1, 10]),
        log_file_bytes: 64 << 10,
        log_bytes: pick(&[128 << 10, 1 << 20]),
        block_rows: 16 + rng.below(64),
        merge_fan_in: 2 + rng.below(3),
        segment_bytes: pick(&[16 << 10, 2 << 30]),
        rev_reservation: pick(&[16, 300, 1 << 20]),
        ranges_in_flight: pick(&[16, 64, 1024]),
        insert_run_rows: pick(&[16, 32, 65_536]),
        ..Limits::default()
    }
}

/// One database on its disk, over all its lives.
struct Life {
    run: Rc<Run>,
    disk: Rc<SimDisk>,
    options: Options,
    replicas: Vec<Rc<RefCell<Replica>>>,
    clocks: Vec<Rc<Cell<i64>>>,
    lie: Option<Lie>,
    planted: bool,
}

/// The database's directory.
const ROOT: &str = "main";

impl Life {
    fn world(&self) -> &Rc<World> {
        &self.run.world
    }

    fn set_faults(&self, faults: DiskFaults) {
        self.disk.faults.set(DiskFaults {
            sync_lies: self.lie,
            ..faults
        });
    }

    /// The machine dies with all that runs on it.
    fn crash(&self, states: &[Rc<strandline_shard::router::ExecutorState>]) {
        self.world().kill_tasks();
        states.iter().for_each(|s| s.clear());
        self.disk.crash();
    }

    /// Starts a process over `root`. `None`: it was crashed after `steps`.
    fn start(
        &self,
        root: &str,
        steps: Option<u64>,
    ) -> Result<Option<Result<Process, Error>>, String> {
        let world = self.world();
        let starting: Starting = Rc::default();
        let start = Process::start(
            world.clone(),
            self.disk.clone(),
            root.into(),
            self.options.clone(),
            1 + world.rng.below(2) as usize,
            starting.clone(),
        );
        let slot: Rc<RefCell<Option<Result<Process, Error>>>> = Rc::default();
        let out = slot.clone();
        world.spawn(Box::pin(async move {
            let process = start.await;
            *out.borrow_mut() = Some(process);
        }));
        let end = steps.map_or(u64::MAX, |n| world.steps() + n);
        world.run_until("start", || slot.borrow().is_some() || world.steps() >= end)?;
        let process = slot.borrow_mut().take();
        match process {
            Some(Ok(process)) => {
                let torn = process
                    .recoveries
                    .iter()
                    .filter(|r| r.torn_bytes > 0)
                    .count();
                self.run.met(|c| c.torn_tails += torn as u64);
                Ok(Some(Ok(process)))
            }
            other => {
                // A process that failed is gone as one that crashed.
                let crashed = other.is_none();
                self.run.met(|c| c.start_crashes += u64::from(crashed));
                self.crash(&starting.borrow());
                Ok(other)
            }
        }
    }

    /// Starts the database, through crashes and failures of the disk in the middle of it.
    fn come_up(&self) -> Result<Process, String> {
        let rng = &self.world().rng;
        for _ in 0..rng.below(6).saturating_sub(2) {
            let faulty = !self.planted && rng.one_in(3);
            if faulty {
                self.set_faults(DiskFaults {
                    write_errors: 30,
                    sync_errors: 30,
                    dir_sync_errors: 30,
                    read_errors: 60,
                    full: rng.one_in(4),
                    ..DiskFaults::default()
                });
            }
            let steps = (!faulty).then(|| rng.below(500));
            match self.start(ROOT, steps)? {
                Some(Ok(process)) => self.crash(process.states()),
                Some(Err(e)) if !faulty => return Err(format!("a start failed: {e}")),
                Some(Err(_)) => self.run.met(|c| c.failed_starts += 1),
                None => {}
            }
            self.set_faults(DiskFaults::default());
        }
        self.set_faults(DiskFaults::default());
        match self.start(ROOT, None)? {
            Some(Ok(process)) => Ok(process),
            Some(Err(e)) => Err(format!("the start failed: {e}")),
            None => Err("no start".into()),
        }
    }

    fn block_on<T: 'static>(
        &self,
        what: &str,
        future: impl Future<Output = Result<T, String>> + 'static,
    ) -> Result<T, String> {
        self.world().block_on(what, future)?
    }

    fn db(&self, process: &Process, n: usize) -> Db {
        process.engines[n % process.engines.len()].clone()
    }

    fn check(&self, process: &Process, settle: bool) -> Result<(), String> {
        let (run, db, replicas) = (self.run.clone(), self.db(process, 0), self.replicas.clone());
        self.block_on("check", check(run, db, replicas, settle))
    }

    /// A log with damage before intact commits is refused, unless nothing needs what was damaged.
    fn meet_damaged_log(&self) -> Result<(), String> {
        let Some(damage) = self.disk.damage_log() else {
            return Ok(());
        };
        match self.start(ROOT, None)? {
            Some(Err(e)) if e.state() == SqlState::DataCorrupted => {
                if !e.message().contains("offset") {
                    return Err(format!("{}: no place in the error: {e}", damage.place));
                }
                self.run.met(|c| c.damage_refused += 1);
                self.disk.repair(&damage);
                Ok(())
            }
            Some(Err(e)) => Err(format!("{}: the start failed: {e}", damage.place)),
            Some(Ok(process)) => {
                self.run.met(|c| c.damage_needless += 1);
                let checked = self.check(&process, true);
                checked.map_err(|e| format!("{} went unnoticed: {e}", damage.place))?;
                self.crash(process.states());
                self.disk.repair(&damage);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A damaged segment: reads are right or say so, and other reads go on.
    fn meet_damaged_segment(&self) -> Result<(), String> {
        let Some(damage) = self.disk.damage_segment() else {
            return Ok(());
        };
        let place = |e: String| format!("{}: {e}", damage.place);
        let corrupted = |e: &str| e.contains("XX001") || e.contains("damaged");
        match self.start(ROOT, None)? {
            Some(Ok(process)) => {
                match self.check(&process, true) {
                    Ok(()) => {}
                    Err(e) if corrupted(&e) => self.run.met(|c| c.damage_read += 1),
                    Err(e) => return Err(place(e)),
                }
                self.crash(process.states());
            }
            Some(Err(e)) if e.state() == SqlState::DataCorrupted => {
                self.run.met(|c| c.damage_read += 1);
            }
            Some(Err(e)) => return Err(place(e.to_string())),
            None => {}
        }
        self.disk.repair(&damage);
        Ok(())
    }

    /// A snapshot, opened as a database of its own.
    fn open_snapshot(&self, snapshot: Snapshot) -> Result<(), String> {
        let place = |e: String| format!("snapshot {}: {e}", snapshot.path);
        let root = format!("{ROOT}/{}", snapshot.path);
        let process = match self.start(&root, None)? {
            Some(Ok(process)) => process,
            Some(Err(e)) => return Err(place(e.to_string())),
            None => return Err(place("no start".into())),
        };
        let cut = check_cut(self.run.clone(), self.db(&process, 0), snapshot.clone());
        self.block_on("cut", cut).map_err(place)?;
        self.run.met(|c| c.cuts += 1);
        self.crash(process.states());
        Ok(())
    }

    /// Crashes and starts over and over, with nothing written between: the answers stay.
    fn start_again(&self, mut process: Process) -> Result<Process, String> {
        let before = self.block_on("dump", dump(self.db(&process, 0)))?;
        for _ in 0..1 + self.world().rng.below(3) {
            // Flushes and merges may go on for a while first.
            let end = self.world().steps() + self.world().rng.below(300);
            while self.world().steps() < end && self.world().step() {}
            self.crash(process.states());
            process = self.come_up()?;
        }
        let after = self.block_on("dump", dump(self.db(&process, 0)))?;
        self.run.met(|c| c.same_again += 1);
        if before != after {
            return Err(format!(
                "a start again answers {after:?}\nbefore: {before:?}"
            ));
        }
        Ok(process)
    }

    fn run_steps(&self, steps: u64) -> Result<(), String> {
        let world = self.world();
        let end = world.steps() + steps;
        while world.steps() < end && self.run.failure.borrow().is_none() {
            if let Some(rule) = self.disk.broken_rule.borrow_mut().take() {
                return Err(rule);
            }
            if !world.step() {
                return Err("clients work, and nothing will ever happen again".into());
            }
        }
        match self.run.failure.borrow_mut().take() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Clients work on the database while the plan's faults happen.
    fn work(&self, process: &Process) -> Result<(), String> {
        let rng = &self.world().rng;
        let plan = match rng.below(10) {
            _ if self.planted => Plan::Quiet,
            0..=4 => Plan::Quiet,
            5..=6 => Plan::Full,
            7..=8 => Plan::Errors,
            _ => Plan::Both,
        };
        let run = &self.run;
        run.plan.set(plan);
        run.quiet.set(false);
        let clients = 1 + rng.below(CLIENTS as u64) as usize;
        run.busy.set(clients + self.replicas.len());
        for me in 0..clients {
            let client = Client {
                run: run.clone(),
                db: self.db(process, me),
                me,
                clock: self.clocks[me].clone(),
            };
            self.world().spawn(Box::pin(client.work()));
        }
        for (n, replica) in self.replicas.iter().enumerate() {
            let (run, db, replica) = (run.clone(), self.db(process, n), replica.clone());
            self.world()
                .spawn(Box::pin(async move { run.reader(db, replica).await }));
        }
        let length = if rng.one_in(4) { 6_000 } else { 2_500 };
        self.run_steps(rng.between(50, length))?;
        if matches!(plan, Plan::Errors | Plan::Both) {
            let (writes, syncs) = (rng.below(2), rng.below(3));
            self.set_faults(DiskFaults {
                write_errors: writes * 150,
                sync_errors: syncs * 100,
                dir_sync_errors: syncs * 20,
                ..DiskFaults::default()
            });
            self.run_steps(rng.between(50, 1_500))?;
        }
        if matches!(plan, Plan::Full | Plan::Both) {
            let full = true;
            self.set_faults(DiskFaults {
                full,
                ..self.disk.faults.get()
            });
            self.run_steps(rng.between(200, 4_000))?;
        }
        self.note_pressure(process);
        if rng.one_in(3) {
            self.come_to_rest(process, plan)?;
        }
        Ok(())
    }

    fn note_pressure(&self, process: &Process) {
        for shard in process.states().iter().flat_map(|s| s.local_shards()) {
            let waiting = shard.writers_waiting() as u64;
            self.run.met(|c| c.pressure += waiting);
        }
    }

    /// The faults end and clients finish what they do: then no number is in flight, reads are right, and
    /// after a full disk writes go on.
    fn come_to_rest(&self, process: &Process, plan: Plan) -> Result<(), String> {
        self.set_faults(DiskFaults::default());
        self.run.quiet.set(true);
        let (run, busy) = (self.run.clone(), self.run.clone());
        self.world().run_until("rest", move || {
            busy.busy.get() == 0 || busy.failure.borrow().is_some()
        })?;
        if let Some(e) = run.failure.borrow_mut().take() {
            return Err(e);
        }
        if plan == Plan::Full {
            for shard in 0..process.shared.shards {
                let probe = probe(self.run.clone(), self.db(process, 0), ShardId(shard));
                self.block_on("a write after a full disk", probe)?;
            }
            if let Err(e) = process.engines[0].ready() {
                return Err(format!("a full disk counted as a failed log: {e}"));
            }
            self.run.met(|c| c.resumed += 1);
        }
        let (world, db) = (self.world().clone(), self.db(process, 0));
        let wait = async move {
            // Fences are written beside the statements that they belong to.
            world
                .sleep_ns(Duration::from_secs(2).as_nanos() as u64)
                .await;
            table(&db, TABLE).map_err(|e| e.to_string())
        };
        let def = self.block_on("rest", wait)?;
        let ledger = process.shared.ledger(def.id).map_err(|e| e.to_string())?;
        if ledger.in_flight() > 0 {
            return Err(format!(
                "{} numbers stay in flight ({plan:?})",
                ledger.in_flight()
            ));
        }
        self.check(process, false)
    }

    /// The end of a process: a crash, or a clean stop and then a crash of the machine.
    fn end(&self, process: Process) -> Result<(), String> {
        for shard in process.states().iter().flat_map(|s| s.local_shards()) {
            self.run.met(|c| {
                c.flushes += shard.counters.flushes.get();
                c.merges += shard.counters.merges.get();
                c.tails_given_up += shard.status().tails_given_up;
                c.hops += shard.counters.messages.get();
            });
        }
        let states = process.states().to_vec();
        if self.world().rng.one_in(6) && self.run.plan.get() == Plan::Quiet {
            let stopped: Rc<RefCell<Option<Result<(), Error>>>> = Rc::default();
            let out = stopped.clone();
            self.world().spawn(Box::pin(async move {
                let done = process.stop().await;
                *out.borrow_mut() = Some(done);
            }));
            self.world()
                .run_until("stop", || stopped.borrow().is_some())?;
            if let Some(Err(e)) = stopped.borrow_mut().take() {
                return Err(format!("the stop failed: {e}"));
            }
            self.run.met(|c| c.stops += 1);
        } else {
            self.run.met(|c| c.crashes += 1);
        }
        self.crash(&states);
        self.set_faults(DiskFaults::default());
        if let Some(e) = self.run.failure.borrow_mut().take() {
            return Err(e);
        }
        Ok(())
    }

    fn round(&self) -> Result<(), String> {
        let rng = &self.world().rng;
        if !self.planted {
            if rng.one_in(5) {
                self.meet_damaged_log()?;
            }
            if rng.one_in(8) {
                self.meet_damaged_segment()?;
            }
        }
        let mut process = self.come_up()?;
        let db = self.db(&process, 0);
        self.block_on("create", async move {
            for (name, family) in [
                (TABLE, Family::Rows),
                (STREAM, Family::Timeseries),
                (CURRENT, Family::Timeseries),
            ] {
                let done = db.create_table(spec(name, family), true).await;
                done.map_err(|e| e.to_string())?;
            }
            Ok(())
        })?;
        self.check(&process, true)?;
        if rng.one_in(4) {
            process = self.start_again(process)?;
        }
        let made = self.run.model.borrow().snapshots.len();
        self.work(&process)?;
        self.end(process)?;
        let snapshots = self.run.model.borrow().snapshots.clone();
        if snapshots.len() > made && rng.one_in(2) {
            self.open_snapshot(snapshots[made].clone())?;
        } else if !snapshots.is_empty() && rng.one_in(6) {
            let any = rng.below(snapshots.len() as u64) as usize;
            self.open_snapshot(snapshots[any].clone())?;
        }
        Ok(())
    }
}

/// A write to one shard succeeds within seconds, and a read sees it.
async fn probe(run: Rc<Run>, db: Db, shard: ShardId) -> Result<(), String> {
    let text = |e: Error| format!("after a full disk: {e}");
    let def = table(&db, STREAM).map_err(text)?;
    let entity = (0..).map(|n| format!("probe-{n}"));
    let entity = entity
        .take(10_000)
        .find(|e| shard_of_entity(e, db.shards()) == shard)
        .ok_or("no entity of that shard")?;
    for attempt in 0..40 {
        let (number, sent, value) = {
            let mut model = run.model.borrow_mut();
            let sent = model.tick();
            let value = Value::F64(sent as f64);
            let fragment = crate::reference::Fragment {
                entity: entity.clone(),
                ts: sent as i64,
                cells: vec![(def.columns[0].id, value.clone())],
            };
            let number = model.stream(def.id).sent(sent, vec![vec![fragment]]);
            (number, sent, value)
        };
        let mut batch = StreamBatchBuilder::default();
        batch.begin_row(&entity, hash64(entity.as_bytes()), sent as i64);
        let slot = batch.slot(def.columns[0].id, Kind::F64);
        if let Value::F64(x) = value {
            batch.push_f64(slot, x);
        }
        let done = db.write_stream(def.id, vec![(shard, batch.finish())]).await;
        {
            let mut model = run.model.borrow_mut();
            let now = model.tick();
            match done {
                Ok(()) => {
                    model.stream(def.id).acked(now, &number);
                    return Ok(());
                }
                Err(e) if e.state() == SqlState::DiskFull && attempt < 39 => {
                    model.stream(def.id).refused(&number);
                }
                Err(e) => return Err(text(e)),
            }
        }
        run.world.sleep_ns(250_000_000).await;
    }
    Err("writes did not resume".into())
}

/// Runs a seed.
pub fn run(seed: u64, planted: Planted) -> Result<Summary, String> {
    let world = World::new(seed);
    let disk = SimDisk::new(world.clone());
    let run = Rc::new(Run {
        world: world.clone(),
        model: RefCell::new(Model::default()),
        seen: Cell::default(),
        failure: RefCell::default(),
        plan: Cell::default(),
        quiet: Cell::new(false),
        busy: Cell::new(0),
    });
    let options = Options {
        shards: 1 + world.rng.below(3) as u16,
        node_id: 0,
        limits: limits(&world),
        accept_loss: false,
        faults: Faults {
            ack_early: planted == Planted::AckEarly,
            publish_early: planted == Planted::PublishEarly,
        },
    };
    let life = Life {
        run: run.clone(),
        disk: disk.clone(),
        options,
        replicas: (0..2).map(|_| Rc::default()).collect(),
        clocks: (0..CLIENTS).map(|_| Rc::new(Cell::new(1_000))).collect(),
        lie: match planted {
            Planted::SkipSync(lie) => Some(lie),
            _ => None,
        },
        planted: planted != Planted::Nothing,
    };
    let rounds = 2 + world.rng.below(3);
    for round in 0..rounds {
        life.round().map_err(|e| format!("round {round}: {e}"))?;
    }
    let last = |e: String| format!("the last start: {e}");
    let process = life.come_up().map_err(last)?;
    life.check(&process, true).map_err(last)?;
    life.crash(process.states());
    let mut seen = run.seen.get();
    disk.clear();
    let disk = disk.counts.get();
    seen.acked = run.model.borrow().acked;
    seen.torn_writes = disk.torn;
    seen.recycled = disk.recycled;
    seen.fences = disk.fences;
    seen.disk_errors = disk.errors;
    seen.disk_full = disk.refused;
    Ok(Summary {
        trace: world.trace(),
        steps: world.steps(),
        seen,
    })
}

/// Every sync that can be skipped.
pub const LIES: [Lie; 5] = [
    Lie::Everywhere,
    Lie::Of(Class::Log),
    Lie::Of(Class::Segment),
    Lie::Of(Class::Small),
    Lie::Directories,
];
