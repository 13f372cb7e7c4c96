//! What must hold with nobody writing: everything anybody saw is there and nothing else, every kind of read
//! agrees with every other and with the model, replicas catch up, and a snapshot is one consistent cut.

use crate::questions::{Hints, question, reads as reads_of};
use crate::reference::{self, Answered};
use crate::sim::client::{Replica, Run, compare};
use crate::sim::model::rows::Seen;
use crate::sim::model::{Check, Snapshot};
use crate::sim::reads::{
    self, Db, STREAM, TABLE, count_rows, feed_after, read_row, read_rows, table,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use strandline_core::error::Error;
use strandline_core::ids::{ColumnId, TableId};
use strandline_core::scan::Entities;
use strandline_core::schema::{Family, TableDef};
use strandline_core::xid::Xid;

fn text(e: Error) -> String {
    format!("a read with nobody writing failed: {e}")
}

/// All that a database answers about one table.
#[derive(Clone, Debug, PartialEq)]
pub enum Dump {
    /// Rows and tombstones, the vacuum horizon.
    Rows(Vec<(Xid, Seen)>, u64),
    /// Channels and stored rows.
    Stream(Vec<ColumnId>, Vec<Answered>),
}

async fn dump_table(db: &Db, def: &TableDef) -> Result<Dump, String> {
    Ok(match def.family {
        Family::Rows => {
            let status = db.feed_status(def.id).await.map_err(text)?;
            let all = read_rows(db, def, Some(feed_after(0, false)), None).await;
            Dump::Rows(all.map_err(text)?, status.vacuum_horizon.0)
        }
        Family::Timeseries => {
            let all = reads::scan(db, reads::raw(def, Entities::All)).await;
            Dump::Stream(reads::channels(def), all.map_err(text)?)
        }
    })
}

/// All that a database answers.
pub async fn dump(db: Db) -> Result<BTreeMap<TableId, Dump>, String> {
    let mut all = BTreeMap::new();
    for def in db.catalog().tables() {
        all.insert(def.id, dump_table(&db, def).await?);
    }
    Ok(all)
}

/// Checks everything. With `settle`, after a crash: what was not known is known from here on.
pub async fn check(
    run: Rc<Run>,
    db: Db,
    replicas: Vec<Rc<RefCell<Replica>>>,
    settle: bool,
) -> Check {
    let catalog = db.catalog();
    if settle {
        run.model.borrow_mut().check_catalog(&catalog)?;
    }
    for def in catalog.tables() {
        run.model.borrow_mut().saw_table(def)?;
        let name = |e: String| format!("table {} ({}): {e}", def.name, def.id.0);
        match dump_table(&db, def).await.map_err(name)? {
            Dump::Rows(all, horizon) => check_rows(&run, &db, def, all, horizon, settle).await,
            Dump::Stream(_, all) if def.options.mutable => {
                let mut model = run.model.borrow_mut();
                model.state(def.id).check_all(&all, &reads_of(def), settle)
            }
            Dump::Stream(channels, all) => {
                check_stream(&run, &db, def, &channels, &all, settle).await
            }
        }
        .map_err(name)?;
    }
    let Ok(def) = table(&db, TABLE) else {
        return Ok(());
    };
    let live = read_rows(&db, &def, None, None).await.map_err(text)?;
    let live: BTreeMap<Xid, Seen> = live.into_iter().collect();
    for replica in &replicas {
        while !run.follow(&db, replica).await.map_err(text)? {}
        let replica = replica.borrow();
        if replica.rows != live {
            let only = |a: &BTreeMap<Xid, Seen>, b: &BTreeMap<Xid, Seen>| {
                let other = |(xid, seen): &(&Xid, &Seen)| b.get(*xid) != Some(*seen);
                let some: Vec<String> = a
                    .iter()
                    .filter(other)
                    .take(5)
                    .map(|(xid, seen)| format!("{xid} {seen:?}"))
                    .collect();
                some.join(", ")
            };
            return Err(format!(
                "a replica at {} has [{}] where a scan has [{}]",
                replica.cursor,
                only(&replica.rows, &live),
                only(&live, &replica.rows)
            ));
        }
    }
    Ok(())
}

async fn check_rows(
    run: &Run,
    db: &Db,
    def: &TableDef,
    all: Vec<(Xid, Seen)>,
    horizon: u64,
    settle: bool,
) -> Check {
    if !all.windows(2).all(|w| w[0].1.rev < w[1].1.rev) {
        return Err("the feed is not in the order of x_rev".into());
    }
    let all: BTreeMap<Xid, Seen> = all.into_iter().collect();
    run.model
        .borrow_mut()
        .rows(def.id)
        .check_table(&all, horizon, settle)?;
    let live = read_rows(db, def, None, None).await.map_err(text)?;
    if !live.is_sorted_by_key(|r| r.0) {
        return Err("a scan is not in the order of xid".into());
    }
    let live: BTreeMap<Xid, Seen> = live.into_iter().collect();
    let (expected, dead): (BTreeMap<Xid, Seen>, BTreeMap<Xid, Seen>) =
        all.into_iter().partition(|(_, s)| !s.deleted);
    if live != expected {
        return Err(format!(
            "the scan and the feed differ: {live:?} against {expected:?}"
        ));
    }
    let status = db.feed_status(def.id).await.map_err(text)?;
    let counted = count_rows(db, def).await.map_err(text)?;
    let counts = (status.live_rows, status.tombstones, counted);
    if counts != (live.len() as u64, dead.len() as u64, live.len() as i64) {
        return Err(format!(
            "SHOW FEED and count(*) say {counts:?} of {} live rows and {} tombstones",
            live.len(),
            dead.len()
        ));
    }
    let highest = run.model.borrow_mut().rows(def.id).highest;
    if status.watermark.0 < highest {
        return Err(format!(
            "the watermark {} is below {highest}, which was seen",
            status.watermark.0
        ));
    }
    for _ in 0..3 {
        let at = run.world.rng.below(live.len() as u64 + dead.len() as u64) as usize;
        if let Some((&xid, seen)) = live.iter().chain(&dead).nth(at) {
            let found = read_row(db, def, xid).await.map_err(text)?;
            let expected = (!seen.deleted).then(|| (xid, seen.clone()));
            if found != expected.as_slice() {
                return Err(format!(
                    "WHERE xid = '{xid}' answers {found:?}, not {seen:?}"
                ));
            }
        }
    }
    Ok(())
}

async fn check_stream(
    run: &Run,
    db: &Db,
    def: &TableDef,
    channels: &[ColumnId],
    all: &[Answered],
    settle: bool,
) -> Check {
    let contents = {
        let mut model = run.model.borrow_mut();
        let stream = model.stream(def.id);
        stream.check_all(all, channels, settle)?;
        stream.contents_behind(&stream.parts_in(all, None)?, &stream.certain())
    };
    if channels.is_empty() {
        return Ok(());
    }
    let rng = &run.world.rng;
    let hints = Hints::of(&contents);
    for _ in 0..4 {
        let of = (!rng.one_in(3)).then(|| {
            let names: Vec<&String> = contents.entities.keys().collect();
            let mut some: Vec<String> = names
                .iter()
                .filter(|_| rng.one_in(3))
                .map(|n| n.to_string())
                .collect();
            if some.is_empty() {
                let one = names.get(rng.below(names.len() as u64) as usize);
                some.push(one.map_or("nobody".to_string(), |n| n.to_string()));
            }
            some
        });
        let query = question(rng, def, of, &hints);
        let found = reads::ask(db, &query).await.map_err(text)?;
        compare(&query, &found, &contents)?;
    }
    Ok(())
}

/// A snapshot, opened as a database of its own, is one consistent cut: it has what was acknowledged before
/// it was asked for, nothing that was sent after it was answered, and with any write all that was
/// acknowledged before that one was sent.
pub async fn check_cut(run: Rc<Run>, db: Db, snapshot: Snapshot) -> Check {
    let (mut rows, mut streams) = (Vec::new(), Vec::new());
    let mut moment = snapshot.sent;
    let tables = [TABLE, STREAM].map(|name| table(&db, name));
    for def in tables.into_iter().flatten() {
        let dump = dump_table(&db, &def).await?;
        let mut model = run.model.borrow_mut();
        match dump {
            Dump::Rows(all, horizon) => {
                let all: BTreeMap<Xid, Seen> = all.into_iter().collect();
                moment = moment.max(model.rows(def.id).sent_in(&all, snapshot.acked)?);
                rows.push((def.id, all, horizon));
            }
            Dump::Stream(channels, all) => {
                let stream = model.stream(def.id);
                let parts = stream.parts_in(&all, None)?;
                let stored = reads::channels(&def);
                let expected = reference::stored(&stream.contents(&parts), &stored);
                reference::same("the cut's rows", &all, &expected)?;
                moment = moment.max(stream.sent_in(&parts, snapshot.acked)?);
                streams.push((def.id, parts));
                debug_assert_eq!(channels, stored);
            }
        }
    }
    let mut model = run.model.borrow_mut();
    for (id, all, horizon) in rows {
        model.rows(id).all_before(&all, horizon, moment)?;
    }
    for (id, parts) in streams {
        model.stream(id).all_before(&parts, moment)?;
    }
    Ok(())
}
