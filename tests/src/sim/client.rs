//! Clients: what they write, what they read while others write, and what must hold of every answer.

use crate::questions::{Hints, Question, question};
use crate::reference::{self, Answered, Contents, Current, Fragment};
use crate::sim::model::rows::{Seen, What};
use crate::sim::model::state::Event;
use crate::sim::model::{Check, Model, Snapshot};
use crate::sim::reads::{self, CURRENT, Db, TABLE, feed_after, read_row, read_rows, spec, table};
use crate::sim::run::{Coverage, Plan};
use crate::sim::world::World;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, SqlState};
use strandline_core::ids::{Rev, TableId};
use strandline_core::routing::{hash64, shard_of_hash};
use strandline_core::scan::Entities;
use strandline_core::schema::{ColumnSpec, Family, Fill, Label, TableDef};
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::value::{Kind, Value};
use strandline_core::xid::Xid;

/// A replica: what a client of the feed holds. Outlives every crash.
#[derive(Default)]
pub struct Replica {
    /// The highest x_rev it applied.
    pub cursor: u64,
    /// Its rows.
    pub rows: BTreeMap<Xid, Seen>,
}

/// What all tasks of a run share.
pub struct Run {
    /// The world.
    pub world: Rc<World>,
    /// What is known.
    pub model: RefCell<Model>,
    /// What was met.
    pub seen: Cell<Coverage>,
    /// The first thing that was wrong.
    pub failure: RefCell<Option<String>>,
    /// What may go wrong now.
    pub plan: Cell<Plan>,
    /// Clients and readers come to an end.
    pub quiet: Cell<bool>,
    /// Tasks of clients and readers that have not ended.
    pub busy: Cell<usize>,
}

/// Whether a table that others drop may be missing: what such an error says.
fn dropped(e: &Error) -> bool {
    e.state() == SqlState::UndefinedTable
}

impl Run {
    /// Notes what was met.
    pub fn met(&self, note: impl FnOnce(&mut Coverage)) {
        let mut seen = self.seen.get();
        note(&mut seen);
        self.seen.set(seen);
    }

    /// Keeps the first failure.
    pub fn note(&self, check: Check) {
        if let Err(e) = check {
            self.failure.borrow_mut().get_or_insert(e);
        }
    }

    fn tick(&self) -> u64 {
        self.model.borrow_mut().tick()
    }

    /// A write failed: only as the plan allows.
    fn write_failed(&self, what: &str, e: &Error) {
        let full = e.state() == SqlState::DiskFull;
        self.met(|c| c.refused_full += u64::from(full));
        let allowed = match self.plan.get() {
            Plan::Quiet => false,
            Plan::Full => full,
            Plan::Errors | Plan::Both => true,
        };
        if !allowed && !dropped(e) && e.state() != SqlState::AdminShutdown {
            self.note(Err(format!("{what} failed: {e}")));
        }
    }

    /// A read failed: it never may, but for what its statement is told of.
    fn read_failed(&self, what: &str, e: &Error) {
        if !dropped(e) && e.state() != SqlState::AdminShutdown {
            self.note(Err(format!("{what} failed: {e}")));
        }
    }

    /// One page of the feed into the replica. True: there was nothing new.
    pub async fn follow(&self, db: &Db, replica: &RefCell<Replica>) -> Result<bool, Error> {
        let cursor = replica.borrow().cursor;
        let limit = 1 + self.world.rng.below(20);
        let def = table(db, TABLE)?;
        let page = match read_rows(db, &def, Some(feed_after(cursor, true)), Some(limit)).await {
            Err(e) if e.state() == SqlState::ObjectNotInPrerequisiteState => {
                self.met(|c| c.horizon_refusals += 1);
                // The resync recipe: the watermark, a scan, on from the watermark.
                let status = db.feed_status(def.id).await?;
                let rows = read_rows(db, &def, None, None).await?;
                let mut replica = replica.borrow_mut();
                replica.cursor = status.watermark.0;
                replica.rows = rows.into_iter().collect();
                return Ok(false);
            }
            page => page?,
        };
        let mut last = cursor;
        for (xid, seen) in &page {
            if seen.rev <= last {
                let rev = seen.rev;
                self.note(Err(format!(
                    "the feed after {cursor} answered {rev} after {last}"
                )));
            }
            last = seen.rev;
            let mut model = self.model.borrow_mut();
            self.note(model.rows(def.id).saw("the feed", *xid, seen.clone()));
        }
        let mut replica = replica.borrow_mut();
        replica.cursor = last;
        for (xid, seen) in &page {
            if seen.deleted {
                replica.rows.remove(xid);
            } else {
                replica.rows.insert(*xid, seen.clone());
            }
        }
        Ok(page.is_empty())
    }

    /// Follows the feed until it is time to be quiet.
    pub async fn reader(&self, db: Db, replica: Rc<RefCell<Replica>>) {
        while !self.quiet.get() {
            if let Err(e) = self.follow(&db, &replica).await {
                self.read_failed("a page of the feed", &e);
            }
            self.world.sleep_ns(self.world.rng.below(2_000_000)).await;
        }
        self.busy.set(self.busy.get() - 1);
    }
}

/// One client.
pub struct Client {
    /// What all share.
    pub run: Rc<Run>,
    /// Its engine.
    pub db: Db,
    /// Its number: of each (entity, ts) one client alone writes.
    pub me: usize,
    /// Its own time axis; outlives every crash.
    pub clock: Rc<Cell<i64>>,
}

/// Clients at most.
pub const CLIENTS: usize = 4;

impl Client {
    /// Works until it is time to be quiet.
    pub async fn work(self) {
        while !self.run.quiet.get() {
            self.step().await;
            let pause = self.run.world.rng.below(500_000);
            self.run.world.sleep_ns(pause).await;
        }
        self.run.busy.set(self.run.busy.get() - 1);
    }

    async fn step(&self) {
        let rng = &self.run.world.rng;
        match rng.below(100) {
            0..=24 => self.insert().await,
            25..=42 => self.update().await,
            43..=49 => self.delete().await,
            50..=70 => self.write().await,
            71..=74 => self.write_state().await,
            75..=76 => self.read_state().await,
            77..=82 => self.read_rows().await,
            83..=89 => self.read_stream().await,
            90..=91 => self.vacuum().await,
            92..=93 => self.checkpoint().await,
            94 => self.run.world.skew(rng.below(20_000) as i64 - 10_000),
            95 => self.add_channel().await,
            _ => self.create_or_drop().await,
        }
    }

    /// A table of a family: mostly the one that is never dropped.
    fn pick_table(&self, family: Family) -> Option<Arc<TableDef>> {
        let rng = &self.run.world.rng;
        let catalog = self.db.catalog();
        let fits = |t: &&Arc<TableDef>| t.family == family && !t.options.mutable;
        let of: Vec<_> = catalog.tables().filter(fits).collect();
        let def = if rng.one_in(4) {
            of.get(rng.below(of.len() as u64) as usize)
        } else {
            of.iter().find(|t| !t.name.starts_with("scratch"))
        };
        let def = Arc::clone(def?);
        let saw = self.run.model.borrow_mut().saw_table(&def).map(drop);
        self.run.note(saw);
        Some(def)
    }

    /// A row of a table, and what is known of it: mostly among the first, so that clients meet on them.
    fn pick_row(&self, table: TableId) -> Option<(Xid, Seen)> {
        let rng = &self.run.world.rng;
        let mut model = self.run.model.borrow_mut();
        let rows = &model.rows(table).rows;
        let n = rows.len() as u64;
        let among = if rng.one_in(2) { n.clamp(1, 4) } else { n };
        let at = rng.below(among) as usize;
        rows.iter().nth(at).map(|(x, s)| (*x, s.clone()))
    }

    /// A write to a rows table ended with an error.
    fn rows_failed(&self, table: TableId, sent: u64, one: bool, what: &str, e: &Error) {
        // A full disk refuses before anything is written, commit by commit.
        if e.state() == SqlState::DiskFull && one {
            self.run.model.borrow_mut().rows(table).settled(sent, false);
        }
        self.run.write_failed(what, e);
    }

    async fn insert(&self) {
        let Some(def) = self.pick_table(Family::Rows) else {
            return;
        };
        let rng = &self.run.world.rng;
        let n = if rng.one_in(12) {
            100
        } else {
            1 + rng.below(6)
        };
        let sent = self.run.tick();
        let tokens: Vec<String> = (0..n).map(|i| format!("t{sent}-{i}")).collect();
        let run_rows = self.db.limits().insert_run_rows as usize;
        let runs: Vec<Vec<String>> = tokens.chunks(run_rows).map(<[_]>::to_vec).collect();
        let one = runs.len() == 1;
        let row = |t: &String| vec![Value::str(t.as_str()), Value::F64(n as f64)];
        let rows = tokens.iter().map(row).collect();
        let columns = vec![def.columns[0].id, def.columns[1].id];
        let before = {
            let mut model = self.run.model.borrow_mut();
            let rows = model.rows(def.id);
            rows.sent(sent, What::Insert(runs));
            rows.highest
        };
        match self.db.insert_rows(def.id, columns, rows).await {
            Ok(rows) => {
                let now = self.run.tick();
                let mut model = self.run.model.borrow_mut();
                model.acked += 1;
                let facts = model.rows(def.id);
                facts.settled(sent, true);
                if rows.len() != tokens.len() {
                    self.run
                        .note(Err(format!("INSERT of {n} answered {}", rows.len())));
                }
                for (row, token) in rows.iter().zip(tokens) {
                    let rev = row.rev.0;
                    if rev <= before {
                        self.run
                            .note(Err(format!("{rev} was given after {before}")));
                    }
                    let seen = Seen {
                        rev,
                        deleted: false,
                        token,
                    };
                    self.run.note(facts.saw_insert(rev, row.xid));
                    self.run.note(facts.acked("insert", now, row.xid, seen));
                }
            }
            Err(e) => self.rows_failed(def.id, sent, one, "an INSERT", &e),
        }
    }

    async fn update(&self) {
        let Some(def) = self.pick_table(Family::Rows) else {
            return;
        };
        let Some((xid, known)) = self.pick_row(def.id) else {
            return;
        };
        let sent = self.run.tick();
        let token = format!("t{sent}");
        let expected = match self.run.world.rng.below(3) {
            0 => None,
            1 => Some(known.rev),
            _ => Some(known.rev.saturating_sub(1)),
        };
        let before = {
            let mut model = self.run.model.borrow_mut();
            let rows = model.rows(def.id);
            rows.sent(sent, What::Update(xid, token.clone()));
            rows.highest
        };
        let set = vec![(def.columns[0].id, Value::str(token.as_str()))];
        match self
            .db
            .update_row(def.id, xid, expected.map(Rev), set)
            .await
        {
            Ok(done) => {
                let now = self.run.tick();
                let mut model = self.run.model.borrow_mut();
                model.acked += 1;
                let facts = model.rows(def.id);
                facts.settled(sent, done.is_some());
                self.run
                    .note(facts.compared(xid, expected, &known, done.is_some()));
                self.run.met(|c| match (&done, expected) {
                    (Some(_), Some(_)) => c.compares_won += 1,
                    (None, Some(_)) => c.compares_lost += 1,
                    _ => {}
                });
                let Some(version) = done else { return };
                let rev = version.rev.0;
                if rev <= before {
                    self.run
                        .note(Err(format!("{rev} was given after {before}")));
                }
                let seen = Seen {
                    rev,
                    deleted: false,
                    token,
                };
                self.run.note(facts.acked("update", now, xid, seen));
            }
            Err(e) => self.rows_failed(def.id, sent, true, "an UPDATE", &e),
        }
    }

    async fn delete(&self) {
        let Some(def) = self.pick_table(Family::Rows) else {
            return;
        };
        let Some((xid, _)) = self.pick_row(def.id) else {
            return;
        };
        let sent = self.run.tick();
        let what = What::Delete(xid);
        self.run.model.borrow_mut().rows(def.id).sent(sent, what);
        match self.db.delete_row(def.id, xid, None).await {
            Ok(done) => {
                let now = self.run.tick();
                let mut model = self.run.model.borrow_mut();
                model.acked += 1;
                let facts = model.rows(def.id);
                facts.settled(sent, done.is_some());
                let Some(version) = done else { return };
                let token = match version.value(def.columns[0].id) {
                    Value::Str(t) => t.to_string(),
                    _ => String::new(),
                };
                let seen = Seen {
                    rev: version.rev.0,
                    deleted: true,
                    token,
                };
                self.run.note(facts.acked("delete", now, xid, seen));
            }
            Err(e) => self.rows_failed(def.id, sent, true, "a DELETE", &e),
        }
    }

    /// Its own entities, or those that it shares with others.
    fn entity(&self) -> String {
        let rng = &self.run.world.rng;
        if rng.one_in(2) {
            format!("own-{}-{}", self.me, rng.below(3))
        } else {
            format!("shared-{}", rng.below(4))
        }
    }

    /// A ts that no other client uses: mostly new, at times one of its last ones, at times far behind.
    fn ts(&self) -> i64 {
        let rng = &self.run.world.rng;
        let mut at = self.clock.get();
        if rng.one_in(3) {
            at -= rng.below(4) as i64;
        } else {
            at += 1;
            self.clock.set(at);
        }
        if rng.one_in(6) {
            at -= 500;
        }
        (at * CLIENTS as i64 + self.me as i64) * 1_500
    }

    fn fragment(&self, def: &TableDef) -> Fragment {
        let rng = &self.run.world.rng;
        let first = rng.below(def.columns.len() as u64) as usize;
        let mut cells = Vec::new();
        for (n, column) in def.columns.iter().enumerate() {
            if n == first || rng.one_in(2) {
                let unique = self.run.tick();
                let value = match column.label.kind() {
                    Kind::F64 => Value::F64(unique as f64),
                    Kind::Str => Value::str(format!("x{unique}")),
                };
                cells.push((column.id, value));
            }
        }
        Fragment {
            entity: self.entity(),
            ts: self.ts(),
            cells,
        }
    }

    async fn write(&self) {
        let Some(def) = self.pick_table(Family::Timeseries) else {
            return;
        };
        if def.columns.is_empty() {
            return;
        }
        let rng = &self.run.world.rng;
        let rows = if rng.one_in(10) {
            60
        } else {
            1 + rng.below(12)
        };
        let mut parts: BTreeMap<_, (StreamBatchBuilder, Vec<Fragment>)> = BTreeMap::new();
        for _ in 0..rows {
            let fragment = self.fragment(&def);
            let hash = hash64(fragment.entity.as_bytes());
            let shard = shard_of_hash(hash, self.db.shards());
            let (batch, fragments) = parts.entry(shard).or_default();
            add_row(batch, &fragment);
            fragments.push(fragment);
        }
        let (mut batches, mut fragments) = (Vec::new(), Vec::new());
        for (shard, (mut batch, part)) in parts {
            batches.push((shard, batch.finish()));
            fragments.push(part);
        }
        let sent = self.run.tick();
        let numbers = {
            let mut model = self.run.model.borrow_mut();
            model.stream(def.id).sent(sent, fragments)
        };
        let done = self.db.write_stream(def.id, batches).await;
        let now = self.run.tick();
        let mut model = self.run.model.borrow_mut();
        match done {
            Ok(()) => {
                model.acked += 1;
                model.stream(def.id).acked(now, &numbers);
            }
            Err(e) => {
                if e.state() == SqlState::DiskFull && numbers.len() == 1 {
                    model.stream(def.id).refused(&numbers);
                }
                self.run.write_failed("a write", &e);
            }
        }
    }

    /// The MUTABLE table, and an entity that only this client writes, when all is known of it.
    fn pick_state(&self) -> Option<(Arc<TableDef>, String, Current)> {
        let def = self.db.catalog().table(CURRENT).cloned()?;
        let entity = format!("own-{}-{}", self.me, self.run.world.rng.below(3));
        let mut model = self.run.model.borrow_mut();
        let saw = model.saw_table(&def).map(drop);
        self.run.note(saw);
        let known = model.state(def.id).certain(&entity)?;
        Some((def, entity, known))
    }

    async fn write_state(&self) {
        let Some((def, entity, _)) = self.pick_state() else {
            return;
        };
        let rng = &self.run.world.rng;
        let delete = rng.one_in(4);
        let mut fragments = Vec::new();
        for _ in 0..1 + rng.below(3) {
            let mut fragment = self.fragment(&def);
            fragment.entity.clone_from(&entity);
            fragments.push(fragment);
        }
        let mut batch = StreamBatchBuilder::default();
        fragments.iter().for_each(|f| add_row(&mut batch, f));
        let event = match delete {
            true => Event::Delete(entity.clone()),
            false => Event::Insert(fragments),
        };
        self.run
            .model
            .borrow_mut()
            .state(def.id)
            .sent(&entity, event);
        let done = if delete {
            self.db.delete_entity(def.id, entity.clone()).await
        } else {
            let shard = shard_of_hash(hash64(entity.as_bytes()), self.db.shards());
            let write = self.db.write_stream(def.id, vec![(shard, batch.finish())]);
            write.await.map(|()| true)
        };
        let mut model = self.run.model.borrow_mut();
        match done {
            Ok(found) => {
                model.acked += 1;
                let expected = model.state(def.id).acked(&entity);
                if found != expected {
                    let says = format!("DELETE of {entity} answers {found}");
                    self.run.note(Err(says));
                }
                self.run.met(|c| {
                    c.entities_deleted += u64::from(delete && found);
                    c.entities_missed += u64::from(delete && !found);
                });
            }
            Err(e) => {
                if e.state() == SqlState::DiskFull {
                    model.state(def.id).refused(&entity);
                }
                self.run.write_failed("a write to the MUTABLE table", &e);
            }
        }
    }

    async fn read_state(&self) {
        let Some((def, entity, known)) = self.pick_state() else {
            return;
        };
        let (of, hints) = (Some(vec![entity]), Hints::of(&known.contents()));
        let query = question(&self.run.world.rng, &def, of, &hints);
        self.run.met(|c| c.state_reads += 1);
        match reads::ask(&self.db, &query).await {
            Ok(found) => {
                let expected = query.expected_of_state(&known);
                let what = format!("{query:?}");
                self.run.note(reference::same(&what, &found, &expected));
            }
            Err(e) => self.run.read_failed("a query of the MUTABLE table", &e),
        }
    }

    async fn read_rows(&self) {
        let Some(def) = self.pick_table(Family::Rows) else {
            return;
        };
        let before = self.run.model.borrow_mut().rows(def.id).rows.clone();
        let found = if self.run.world.rng.one_in(2)
            && let Some((xid, fact)) = self.pick_row(def.id)
        {
            let before = BTreeMap::from([(xid, fact)]);
            let found = read_row(&self.db, &def, xid).await;
            found.map(|rows| (before, rows))
        } else {
            let found = read_rows(&self.db, &def, None, None).await;
            found.map(|rows| (before, rows))
        };
        match found {
            Ok((before, rows)) => {
                if !rows.is_sorted_by_key(|r| r.0) {
                    self.run
                        .note(Err("a scan is not in the order of xid".into()));
                }
                let rows = rows.into_iter().collect();
                let mut model = self.run.model.borrow_mut();
                self.run.note(model.rows(def.id).check_scan(&before, &rows));
            }
            Err(e) => self.run.read_failed("a scan", &e),
        }
    }

    async fn read_stream(&self) {
        let Some(def) = self.pick_table(Family::Timeseries) else {
            return;
        };
        let entity = self.entity();
        let (before, certain) = {
            let mut model = self.run.model.borrow_mut();
            let stream = model.stream(def.id);
            (stream.certain(), stream.is_certain(&entity))
        };
        let own = entity.starts_with("own");
        if own && certain && !self.run.world.rng.one_in(3) {
            // Nobody else writes it: the answer is known to the last cell.
            let mut contents = self.run.model.borrow_mut().stream(def.id).contents(&before);
            contents.entities.retain(|e, _| *e == entity);
            let (of, hints) = (Some(vec![entity]), Hints::of(&contents));
            let query = question(&self.run.world.rng, &def, of, &hints);
            self.run.met(|c| {
                c.exact_reads += 1;
                c.dedup_reads += u64::from(def.options.dedup);
            });
            match reads::ask(&self.db, &query).await {
                Ok(found) => self.run.note(compare(&query, &found, &contents)),
                Err(e) => self.run.read_failed("a query", &e),
            }
            return;
        }
        let q = reads::raw(&def, Entities::In(vec![entity.clone()]));
        match reads::scan(&self.db, q).await {
            Ok(found) => {
                let channels = reads::channels(&def);
                let mut model = self.run.model.borrow_mut();
                let stream = model.stream(def.id);
                self.run
                    .note(stream.check_some(&found, &entity, &before, &channels));
            }
            Err(e) => self.run.read_failed("a scan of an entity", &e),
        }
    }

    async fn vacuum(&self) {
        let Some(def) = self.pick_table(Family::Rows) else {
            return;
        };
        match self.db.vacuum(def.id).await {
            Ok(report) => self.run.met(|c| c.purged += report.purged),
            Err(e) => self.run.write_failed("VACUUM", &e),
        }
    }

    async fn checkpoint(&self) {
        let sent = self.run.tick();
        match self.db.checkpoint().await {
            Ok(path) => {
                let acked = self.run.tick();
                self.run.met(|c| c.checkpoints += 1);
                let snapshot = Snapshot { path, sent, acked };
                self.run.model.borrow_mut().snapshots.push(snapshot);
            }
            Err(e) => self.run.write_failed("CHECKPOINT", &e),
        }
    }

    async fn add_channel(&self) {
        let Some(def) = self.pick_table(Family::Timeseries) else {
            return;
        };
        let channel = ColumnSpec {
            name: format!("c{}", self.run.world.rng.below(3)),
            label: Label::Double,
            fill: Fill::None,
            declared: false,
        };
        match self.db.ensure_columns(&def.name, vec![channel]).await {
            Ok(answered) => {
                // The table may have gone on since, or be gone.
                let catalog = self.db.catalog();
                if let Some(def) = catalog.table_by_id(answered.id) {
                    let saw = self.run.model.borrow_mut().saw_table(def).map(drop);
                    self.run.note(saw);
                    if def.columns.len() < answered.columns.len() {
                        self.run.note(Err(format!("{} lost a channel", def.name)));
                    }
                }
            }
            Err(e) => self.run.write_failed("a new channel", &e),
        }
    }

    async fn create_or_drop(&self) {
        let rng = &self.run.world.rng;
        let name = format!("scratch{}", rng.below(3));
        if rng.one_in(2) {
            let ids = self.run.model.borrow_mut().drop_sent(&name);
            match self.db.drop_table(&name, true).await {
                Ok(dropped) => {
                    self.run.met(|c| c.drops += u64::from(dropped));
                    self.run.model.borrow_mut().drop_acked(&name, &ids);
                }
                Err(e) => {
                    // A table that is seen after the error is there to stay.
                    let catalog = self.db.catalog();
                    self.run
                        .model
                        .borrow_mut()
                        .drop_failed(&name, &ids, &catalog);
                    self.run.write_failed("DROP", &e);
                }
            }
            return;
        }
        let family = if rng.one_in(2) {
            Family::Rows
        } else {
            Family::Timeseries
        };
        if self.db.catalog().table(&name).is_none() {
            match self.db.create_table(spec(&name, family), true).await {
                Ok(_) => {}
                // Another client was faster, with the other family.
                Err(e) if e.state() == SqlState::DuplicateTable => {}
                Err(e) => self.run.write_failed("CREATE", &e),
            }
        }
    }
}

fn add_row(batch: &mut StreamBatchBuilder, fragment: &Fragment) {
    let entity = &fragment.entity;
    batch.begin_row(entity, hash64(entity.as_bytes()), fragment.ts);
    for (column, value) in &fragment.cells {
        match value {
            Value::F64(x) => {
                let slot = batch.slot(*column, Kind::F64);
                batch.push_f64(slot, *x);
            }
            Value::Str(s) => {
                let slot = batch.slot(*column, Kind::Str);
                batch.push_str(slot, s);
            }
            Value::Null => {}
        }
    }
}

/// An answer against the reference.
pub fn compare(question: &Question, found: &[Answered], contents: &Contents) -> Check {
    let expected = question.expected(contents);
    reference::same(&format!("{question:?}"), found, &expected)
}
