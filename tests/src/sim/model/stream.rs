//! Facts about one timeseries table, and its reads by the rules of the contract, done the slow way.
//!
//! Every value is written once only, so that it names the write that it came from. Of each (entity, ts) only
//! one client writes: the order of arrival is the order in which that client sent.

use super::Check;
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::ids::ColumnId;
use strandline_core::scan::{
    Aggregate, AggregateFn, CmpOp, Entities, LatestScan, Predicate, StreamAggregate, StreamScan,
    TsRange,
};
use strandline_core::schema::Fill;
use strandline_core::value::Value;

/// One written row.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Of which entity.
    pub entity: String,
    /// When.
    pub ts: i64,
    /// What arrived.
    pub cells: Vec<(ColumnId, Value)>,
}

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

/// A row of an answer: entity, ts or bucket, cells.
pub type Answered = (String, i64, Vec<Value>);

/// Per ts, the arrivals of each channel.
pub type Rows = BTreeMap<i64, BTreeMap<ColumnId, Vec<Value>>>;

/// Per entity, its rows.
pub type Contents = BTreeMap<String, Rows>;

/// See the module.
#[derive(Debug, Default)]
pub struct StreamModel {
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
        let mut contents = Contents::new();
        for fragment in parts.iter().flat_map(|&n| &self.parts[n].fragments) {
            let rows = contents.entry(fragment.entity.clone()).or_default();
            let cells = rows.entry(fragment.ts).or_default();
            for (column, value) in &fragment.cells {
                cells.entry(*column).or_default().push(value.clone());
            }
        }
        contents
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
            if count != all {
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
        if let Some(lost) = self.certain().difference(&found).next() {
            return Err(format!("a write is lost: {:?}", self.parts[*lost]));
        }
        let expected = unfilled(&self.contents(&found), channels);
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
        if let Some(lost) = lost {
            return Err(format!("a read misses {:?}", self.parts[*lost]));
        }
        let mut contents = self.contents(&found);
        contents.retain(|e, _| e == entity);
        same("rows of an entity", rows, &unfilled(&contents, channels))
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

/// Whether an answer is as expected; names the first difference.
pub fn same(what: &str, found: &[Answered], expected: &[Answered]) -> Check {
    if found == expected {
        return Ok(());
    }
    let n = found.len().min(expected.len());
    let at = (0..n).find(|&i| found[i] != expected[i]).unwrap_or(n);
    Err(format!(
        "{what}: row {at} of {} is {:?}, expected {:?} of {}",
        found.len(),
        found.get(at),
        expected.get(at),
        expected.len()
    ))
}

/// All stored rows of these channels.
pub fn unfilled(contents: &Contents, channels: &[ColumnId]) -> Vec<Answered> {
    let mut out = Vec::new();
    for (entity, rows) in contents {
        for (&ts, cells) in rows {
            let lists: Vec<_> = channels.iter().map(|c| cells.get(c)).collect();
            let height = lists.iter().flatten().map(|l| l.len()).max().unwrap_or(0);
            for k in 0..height {
                let cell = |l: &Option<&Vec<Value>>| l.and_then(|l| l.get(k)).cloned();
                let row = lists.iter().map(|l| cell(l).unwrap_or_default()).collect();
                out.push((entity.clone(), ts, row));
            }
        }
    }
    out
}

fn wanted<'a>(contents: &'a Contents, entities: &Entities) -> Vec<(&'a String, &'a Rows)> {
    let asked = |e: &String| match entities {
        Entities::All => true,
        Entities::In(list) => list.contains(e),
    };
    contents.iter().filter(|(e, _)| asked(e)).collect()
}

/// A scan, by entity.
pub fn scan(contents: &Contents, q: &StreamScan) -> Vec<Answered> {
    let mut out = Vec::new();
    for (entity, rows) in wanted(contents, &q.entities) {
        let mut held: Vec<Option<(i64, Value)>> = vec![None; q.channels.len()];
        for (&ts, cells) in rows {
            let lists: Vec<_> = q.channels.iter().map(|r| cells.get(&r.column)).collect();
            let height = lists.iter().flatten().map(|l| l.len()).max().unwrap_or(0);
            for k in 0..height {
                let mut row = Vec::new();
                for (c, read) in q.channels.iter().enumerate() {
                    if let Some(v) = lists[c].and_then(|l| l.get(k)) {
                        held[c] = Some((ts, v.clone()));
                        row.push(v.clone());
                        continue;
                    }
                    row.push(match (read.fill, &held[c]) {
                        (Fill::Hold { staleness_ms }, Some((at, v)))
                            if q.filled && staleness_ms.is_none_or(|s| ts - at <= s) =>
                        {
                            v.clone()
                        }
                        _ => Value::Null,
                    });
                }
                let passes = |p: &Predicate| truth(p, &row) == Some(true);
                if q.range.contains(ts) && q.predicate.as_ref().is_none_or(passes) {
                    row.truncate(q.output);
                    out.push((entity.clone(), ts, row));
                }
            }
        }
    }
    out.truncate(q.limit.unwrap_or(u64::MAX) as usize);
    out
}

/// The device shadow, by entity.
pub fn latest(contents: &Contents, q: &LatestScan) -> Vec<Answered> {
    let range = TsRange {
        from: q.from,
        to: q.until,
    };
    let mut out = Vec::new();
    for (entity, rows) in wanted(contents, &q.entities) {
        let newest = |column: ColumnId| {
            let mut back = rows.iter().rev().filter(|(ts, _)| range.contains(**ts));
            back.find_map(|(&ts, cells)| Some((ts, cells.get(&column)?.last()?.clone())))
        };
        let newest: Vec<_> = q.channels.iter().map(|r| newest(r.column)).collect();
        let Some(ts) = newest.iter().flatten().map(|n| n.0).max() else {
            continue;
        };
        let cells = newest
            .iter()
            .zip(&q.channels)
            .map(|(n, r)| match (n, r.fill) {
                (
                    Some((at, _)),
                    Fill::Hold {
                        staleness_ms: Some(s),
                    },
                ) if ts - at > s => Value::Null,
                (Some((_, v)), _) => v.clone(),
                (None, _) => Value::Null,
            });
        out.push((entity.clone(), ts, cells.collect()));
    }
    out
}

#[derive(Default)]
struct Group {
    rows: usize,
    samples: BTreeMap<ColumnId, Vec<(i64, Value)>>,
}

impl Group {
    fn of(&self, a: &Aggregate) -> &[(i64, Value)] {
        let samples = a.column.and_then(|(id, _)| self.samples.get(&id));
        samples.map_or(&[], Vec::as_slice)
    }

    fn answer(&self, a: &Aggregate) -> Value {
        if a.column.is_none() {
            return Value::F64(self.rows as f64);
        }
        let samples = self.of(a);
        let numbers = samples.iter().map(|(_, v)| match v {
            Value::F64(x) => *x,
            _ => 0.0,
        });
        let less = |a: &Value, b: &Value| match (a, b) {
            (Value::F64(a), Value::F64(b)) => a.total_cmp(b),
            (Value::Str(a), Value::Str(b)) => a.cmp(b),
            _ => unreachable!("one channel, one kind"),
        };
        let values = samples.iter().map(|(_, v)| v);
        let found = match a.func {
            AggregateFn::Count => return Value::F64(samples.len() as f64),
            AggregateFn::Sum if !samples.is_empty() => return Value::F64(numbers.sum()),
            AggregateFn::Avg if !samples.is_empty() => {
                return Value::F64(numbers.sum::<f64>() / samples.len() as f64);
            }
            AggregateFn::Sum | AggregateFn::Avg => None,
            AggregateFn::Min => values.min_by(|a, b| less(a, b)),
            AggregateFn::Max => values.max_by(|a, b| less(a, b)),
            AggregateFn::First => samples.first().map(|s| &s.1),
            AggregateFn::Last => samples.last().map(|s| &s.1),
        };
        found.cloned().unwrap_or_default()
    }
}

/// Aggregates without FILL: (entity, bucket, values).
pub fn aggregate(contents: &Contents, q: &StreamAggregate) -> Vec<Answered> {
    let whole = !q.by_entity && q.sample.is_none();
    let mut groups: BTreeMap<(String, i64), Group> = BTreeMap::new();
    if whole {
        groups.insert((String::new(), 0), Group::default());
    }
    for (entity, rows) in wanted(contents, &q.entities) {
        for (&ts, cells) in rows.iter().filter(|(ts, _)| q.range.contains(**ts)) {
            let entity = if q.by_entity {
                entity.clone()
            } else {
                String::new()
            };
            let bucket = q.sample.map_or(0, |s| s.interval.floor(ts));
            let group = groups.entry((entity, bucket)).or_default();
            group.rows += cells.values().map(Vec::len).max().unwrap_or(0);
            for (column, list) in cells {
                let samples = group.samples.entry(*column).or_default();
                samples.extend(list.iter().map(|v| (ts, v.clone())));
            }
        }
    }
    let asked = |g: &Group| {
        let any = |a: &Aggregate| a.column.map_or(g.rows > 0, |_| !g.of(a).is_empty());
        whole || q.aggregates.iter().any(any)
    };
    let answers = |g: &Group| q.aggregates.iter().map(|a| g.answer(a)).collect();
    groups
        .into_iter()
        .filter(|(_, g)| asked(g))
        .map(|((entity, bucket), g)| (entity, bucket, answers(&g)))
        .collect()
}

fn truth(p: &Predicate, row: &[Value]) -> Option<bool> {
    match p {
        Predicate::IsNull { channel, negated } => Some(row[*channel].is_null() != *negated),
        Predicate::Compare { channel, op, value } => match (&row[*channel], value) {
            (Value::F64(a), Value::F64(b)) => Some(op.holds(a.total_cmp(b))),
            (Value::Str(a), Value::Str(b)) => Some(op.holds(a.cmp(b))),
            _ => None,
        },
        Predicate::Not(p) => truth(p, row).map(|b| !b),
        Predicate::Const(b) => *b,
        // The simulator asks for none of these.
        Predicate::And(_) | Predicate::Or(_) => None,
    }
}

/// The comparison that the simulator's predicates use.
pub const COMPARE: CmpOp = CmpOp::Gt;
