//! Facts about one timeseries table: which writes are there. What they must answer is for
//! [`crate::reference`] to say.
//!
//! Every value is written once only, so that it names the write that it came from. Of each (entity, ts) only
//! one client writes: the order of arrival is the order in which that client sent.

use super::Check;
use crate::reference::{Answered, Contents, Fragment, same, stored};
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::ids::ColumnId;
use strandline_core::value::Value;

/// What is known of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unknown,
    There,
    Gone,
}

/// What one statement writes on one shard: all or nothing.
#[derive(Debug)]
struct Part {
    sent: u64,
    acked: Option<u64>,
    fate: Fate,
    fragments: Vec<Fragment>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct StreamModel {
    /// Of samples of a channel at one (entity, ts) the last to arrive alone is there.
    dedup: bool,
    parts: Vec<Part>,
    /// Which part a value came from.
    origin: BTreeMap<String, usize>,
}

/// A value as a name.
fn name(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::F64(x) => Some(x.to_string()),
        Value::Str(s) => Some(s.to_string()),
    }
}

impl StreamModel {
    /// Of a table WITH (DEDUP), or not.
    pub fn new(dedup: bool) -> StreamModel {
        StreamModel {
            dedup,
            ..StreamModel::default()
        }
    }

    /// Parts of a statement are sent. Answers their numbers.
    pub fn sent(&mut self, now: u64, parts: Vec<Vec<Fragment>>) -> Vec<usize> {
        let mut numbers = Vec::new();
        for fragments in parts {
            let number = self.parts.len();
            let values = fragments.iter().flat_map(|f| &f.cells);
            let names: Vec<String> = values.filter_map(|(_, v)| name(v)).collect();
            self.origin.extend(names.into_iter().map(|n| (n, number)));
            self.parts.push(Part {
                sent: now,
                acked: None,
                fate: Fate::Unknown,
                fragments,
            });
            numbers.push(number);
        }
        numbers
    }

    /// They were acknowledged.
    pub fn acked(&mut self, now: u64, parts: &[usize]) {
        for &n in parts {
            self.parts[n].acked = Some(now);
            self.parts[n].fate = Fate::There;
        }
    }

    /// They are known not to be there.
    pub fn refused(&mut self, parts: &[usize]) {
        for &n in parts {
            self.parts[n].fate = Fate::Gone;
        }
    }

    /// Whether everything that was ever sent about an entity has a known outcome.
    pub fn is_certain(&self, entity: &str) -> bool {
        let unknown = self.parts.iter().filter(|p| p.fate == Fate::Unknown);
        unknown
            .flat_map(|p| &p.fragments)
            .all(|f| f.entity != entity)
    }

    /// Parts that are there for sure now.
    pub fn certain(&self) -> BTreeSet<usize> {
        self.with(Fate::There)
    }

    fn with(&self, fate: Fate) -> BTreeSet<usize> {
        let parts = self.parts.iter().enumerate();
        parts
            .filter(|(_, p)| p.fate == fate)
            .map(|(n, _)| n)
            .collect()
    }

    /// The contents that these parts make.
    pub fn contents(&self, parts: &BTreeSet<usize>) -> Contents {
        let contents = Contents::of(parts.iter().flat_map(|&n| &self.parts[n].fragments));
        match self.dedup {
            true => contents.dedup(),
            false => contents,
        }
    }

    /// The contents behind an answer that shows `found`. With DEDUP a part that is there for sure may be hidden
    /// behind others.
    pub fn contents_behind(&self, found: &BTreeSet<usize>, certain: &BTreeSet<usize>) -> Contents {
        match self.dedup {
            true => self.contents(&found.union(certain).copied().collect()),
            false => self.contents(found),
        }
    }

    /// Which parts a full read shows: each of them whole. Those of other entities than `only` are not asked
    /// for.
    pub fn parts_in(
        &self,
        rows: &[Answered],
        only: Option<&str>,
    ) -> Result<BTreeSet<usize>, String> {
        let mut found: BTreeMap<usize, usize> = BTreeMap::new();
        for value in rows.iter().flat_map(|r| &r.2).filter_map(name) {
            let Some(&part) = self.origin.get(&value) else {
                return Err(format!("the value {value} was invented"));
            };
            *found.entry(part).or_default() += 1;
        }
        for (&part, &count) in &found {
            let fragments = &self.parts[part].fragments;
            let asked = fragments
                .iter()
                .filter(|f| only.is_none_or(|e| f.entity == e));
            let all: usize = asked.map(|f| f.cells.len()).sum();
            if count != all && !self.dedup {
                return Err(format!(
                    "of {all} values of one statement on one shard, {count} are there: {:?}",
                    self.parts[part]
                ));
            }
            if self.parts[part].fate == Fate::Gone {
                return Err(format!(
                    "a write that was not there is there now: {:?}",
                    self.parts[part]
                ));
            }
        }
        Ok(found.into_keys().collect())
    }

    /// A full read, unfilled, against everything known. With `settle`, after a crash: what was not known is
    /// known now.
    pub fn check_all(&mut self, rows: &[Answered], channels: &[ColumnId], settle: bool) -> Check {
        let found = self.parts_in(rows, None)?;
        let certain = self.certain();
        if let Some(lost) = certain.difference(&found).next()
            && !self.dedup
        {
            return Err(format!("a write is lost: {:?}", self.parts[*lost]));
        }
        let expected = stored(&self.contents_behind(&found, &certain), channels);
        same("the stored rows", rows, &expected)?;
        if settle {
            for n in self.with(Fate::Unknown) {
                self.parts[n].fate = if found.contains(&n) {
                    Fate::There
                } else {
                    Fate::Gone
                };
            }
        }
        Ok(())
    }

    /// A read of one entity that began when `before` was certain, while others write.
    pub fn check_some(
        &self,
        rows: &[Answered],
        entity: &str,
        before: &BTreeSet<usize>,
        channels: &[ColumnId],
    ) -> Check {
        let found = self.parts_in(rows, Some(entity))?;
        let lost = before.difference(&found).find(|&&n| {
            let mut fragments = self.parts[n].fragments.iter();
            fragments.any(|f| f.entity == entity)
        });
        if let Some(lost) = lost
            && !self.dedup
        {
            return Err(format!("a read misses {:?}", self.parts[*lost]));
        }
        let mut contents = self.contents_behind(&found, before);
        contents.entities.retain(|e, _| e == entity);
        same("rows of an entity", rows, &stored(&contents, channels))
    }

    /// When the last of the writes that a cut shows was sent. None of them may be later than `acked`.
    pub fn sent_in(&self, cut: &BTreeSet<usize>, acked: u64) -> Result<u64, String> {
        let mut latest = 0;
        for part in cut.iter().map(|&n| &self.parts[n]) {
            if part.sent > acked {
                return Err(format!("the cut has what was sent after it: {part:?}"));
            }
            latest = latest.max(part.sent);
        }
        Ok(latest)
    }

    /// Every write that was acknowledged before `moment` is in the cut.
    pub fn all_before(&self, cut: &BTreeSet<usize>, moment: u64) -> Check {
        for (n, part) in self.parts.iter().enumerate() {
            if part.acked.is_some_and(|at| at < moment) && !cut.contains(&n) {
                return Err(format!("the cut misses {part:?}"));
            }
        }
        Ok(())
    }
}
