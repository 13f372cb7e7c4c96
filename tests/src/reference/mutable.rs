//! `WITH (MUTABLE)`: the current state of each entity.

use super::Answered;
use super::facts::{Contents, Fragment};
use super::rows::truth;
use std::collections::BTreeMap;
use strandline_core::ids::ColumnId;
use strandline_core::scan::{ChannelRead, Entities, LatestScan, Predicate, StreamScan, TsRange};
use strandline_core::value::Value;

/// One entity.
#[derive(Clone, Debug, Default)]
struct Entity {
    /// Nothing at or before it counts.
    tombstone: Option<i64>,
    /// The newest sample of each channel above it; live when there is one.
    newest: BTreeMap<ColumnId, (i64, Value)>,
}

impl Entity {
    fn ts(&self) -> Option<i64> {
        self.newest.values().map(|s| s.0).max()
    }
}

/// What a MUTABLE table holds, kept up to date write by write.
#[derive(Clone, Debug, Default)]
pub struct Current {
    entities: BTreeMap<String, Entity>,
}

impl Current {
    /// An INSERT: channel by channel, what is older than what is known changes nothing, and neither does
    /// what is not above a tombstone.
    pub fn arrive(&mut self, f: &Fragment) {
        let entity = self.entities.entry(f.entity.clone()).or_default();
        if entity.tombstone.is_some_and(|t| f.ts <= t) {
            return;
        }
        for (column, value) in &f.cells {
            let known = entity.newest.get(column);
            if known.is_none_or(|(ts, _)| f.ts >= *ts) {
                entity.newest.insert(*column, (f.ts, value.clone()));
            }
        }
    }

    /// A DELETE: a tombstone at the entity's newest ts. False: it is not live.
    pub fn delete(&mut self, name: &str) -> bool {
        let Some(entity) = self.entities.get_mut(name) else {
            return false;
        };
        let Some(ts) = entity.ts() else {
            return false;
        };
        entity.tombstone = Some(ts);
        entity.newest.clear();
        true
    }

    /// A channel was dropped.
    pub fn drop_channel(&mut self, column: ColumnId) {
        for entity in self.entities.values_mut() {
            entity.newest.remove(&column);
        }
    }

    /// Live entities as one row each at the newest ts: what aggregates run over.
    pub fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        for (name, entity) in &self.entities {
            let cells = entity.newest.iter().map(|(c, s)| (*c, s.1.clone()));
            if let Some(ts) = entity.ts() {
                contents.arrive(&Fragment {
                    entity: name.clone(),
                    ts,
                    cells: cells.collect(),
                });
            }
        }
        contents
    }

    fn rows(
        &self,
        wanted: &Entities,
        range: TsRange,
        channels: &[ChannelRead],
        predicate: Option<&Predicate>,
        output: usize,
    ) -> Vec<Answered> {
        let mut out = Vec::new();
        for (name, entity) in &self.entities {
            let asked = match wanted {
                Entities::All => true,
                Entities::In(list) => list.contains(name),
            };
            let Some(ts) = entity.ts().filter(|ts| asked && range.contains(*ts)) else {
                continue;
            };
            let cell = |r: &ChannelRead| entity.newest.get(&r.column).map(|s| s.1.clone());
            let mut row: Vec<Value> = channels
                .iter()
                .map(|r| cell(r).unwrap_or_default())
                .collect();
            if predicate.is_none_or(|p| truth(p, &row) == Some(true)) {
                row.truncate(output);
                out.push((name.clone(), ts, row));
            }
        }
        out
    }

    /// `SELECT`: one row per live entity.
    pub fn scan(&self, q: &StreamScan) -> Vec<Answered> {
        let predicate = q.predicate.as_ref();
        let mut rows = self.rows(&q.entities, q.range, &q.channels, predicate, q.output);
        rows.truncate(usize::try_from(q.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX));
        rows
    }

    /// `LATEST ON`: the same.
    pub fn latest(&self, q: &LatestScan) -> Vec<Answered> {
        let range = TsRange {
            from: q.from,
            to: q.until,
        };
        self.rows(&q.entities, range, &q.channels, None, q.channels.len())
    }
}
