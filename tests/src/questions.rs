//! Questions about a timeseries table, made up from a seed: through the engine in the simulator, as
//! statements to a real server, always against [`crate::reference`].

use crate::reference::{self, Answered, Contents, Current};
use crate::sim::world::Rng;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use strandline_core::ids::ColumnId;
use strandline_core::like::LikePattern;
use strandline_core::scan::{
    Aggregate, AggregateFn, BucketFill, ChannelRead, CmpOp, Entities, LatestScan, Predicate,
    Quantile, RowFilter, SampleBy, StreamAggregate, StreamScan, TsRange,
};
use strandline_core::schema::{ColumnDef, TableDef};
use strandline_core::time::Interval;
use strandline_core::value::{Kind, Value};

/// A question about a timeseries table.
#[derive(Clone, Debug)]
pub enum Question {
    /// Rows.
    Scan(StreamScan),
    /// The device shadow.
    Latest(LatestScan),
    /// Aggregates.
    Aggregate(StreamAggregate),
}

impl Question {
    /// What must be answered, by entity.
    pub fn expected(&self, contents: &Contents) -> Vec<Answered> {
        match self {
            Question::Scan(q) => reference::scan(contents, q),
            Question::Latest(q) => reference::latest(contents, q),
            Question::Aggregate(q) => reference::aggregate(contents, q),
        }
    }
}

impl Question {
    /// What must be answered of a MUTABLE table, by entity.
    pub fn expected_of_state(&self, current: &Current) -> Vec<Answered> {
        match self {
            Question::Scan(q) => current.scan(q),
            Question::Latest(q) => current.latest(q),
            Question::Aggregate(q) => reference::aggregate(&current.contents(), q),
        }
    }

    /// As of a moment at which RETENTION has expired everything before `floor`.
    #[must_use]
    pub fn since(mut self, floor: i64) -> Question {
        match &mut self {
            Question::Scan(q) => q.floor = floor,
            Question::Latest(q) => q.floor = floor,
            Question::Aggregate(q) => q.floor = floor,
        }
        self
    }
}

/// Every channel of a table as its policy reads it.
pub fn reads(def: &TableDef) -> Vec<ChannelRead> {
    let read = |c: &ColumnDef| ChannelRead {
        column: c.id,
        kind: c.label.kind(),
        fill: c.fill,
    };
    def.columns.iter().map(read).collect()
}

/// Times and values that are there, so that questions are about them.
#[derive(Debug, Default)]
pub struct Hints {
    times: Vec<i64>,
    values: BTreeMap<ColumnId, Vec<Value>>,
}

impl Hints {
    /// Of a table's contents.
    pub fn of(contents: &Contents) -> Hints {
        let mut values: BTreeMap<ColumnId, Vec<Value>> = BTreeMap::new();
        let cells = contents.entities.values().flat_map(|rows| rows.values());
        for (column, samples) in cells.flatten() {
            let known = values.entry(*column).or_default();
            known.extend(samples.iter().cloned());
        }
        Hints {
            times: contents.times(),
            values,
        }
    }

    fn time(&self, rng: &Rng) -> Option<i64> {
        let near = [0, 0, 0, 1, -1][rng.below(5) as usize];
        let at = rng.below(self.times.len() as u64) as usize;
        Some(self.times.get(at)?.saturating_add(near))
    }

    /// One that was there, or (for numbers) one beside it.
    fn value(&self, rng: &Rng, read: &ChannelRead) -> Value {
        let known = self.values.get(&read.column).map_or(&[][..], Vec::as_slice);
        match (known.get(rng.below(known.len() as u64) as usize), read.kind) {
            (Some(Value::F64(x)), _) if rng.one_in(4) => Value::F64(x + 1.0),
            (Some(value), _) => value.clone(),
            (None, Kind::F64) => Value::F64(rng.below(100) as f64),
            (None, Kind::Str) => Value::str("nothing"),
        }
    }
}

/// A question over these entities (all of them: `None`).
pub fn question(rng: &Rng, def: &TableDef, of: Option<Vec<String>>, hints: &Hints) -> Question {
    let one = of.as_ref().is_some_and(|e| e.len() == 1);
    let entities = of.map_or(Entities::All, Entities::In);
    let mut channels = reads(def);
    channels.retain(|_| !rng.one_in(3));
    if channels.is_empty() {
        channels = reads(def);
    }
    let range = range(rng, hints);
    match rng.below(3) {
        0 => scan(rng, def, entities, one, range, channels, hints),
        1 => {
            let whole = rng.one_in(2);
            Question::Latest(LatestScan {
                floor: i64::MIN,
                table: def.id,
                entities,
                until: if whole { i64::MAX } else { range.to },
                from: if whole { i64::MIN } else { range.from },
                channels,
            })
        }
        _ => aggregates(rng, def, entities, one, range, &channels, hints),
    }
}

fn range(rng: &Rng, hints: &Hints) -> TsRange {
    let moment = |open: i64| match hints.time(rng) {
        Some(ts) if !rng.one_in(3) => ts,
        _ => open,
    };
    let (a, b) = (moment(i64::MIN), moment(i64::MAX));
    // A range that ends before it begins is a question too, but a rare one.
    match rng.one_in(8) {
        true => TsRange { from: a, to: b },
        false => TsRange {
            from: a.min(b),
            to: a.max(b),
        },
    }
}

fn scan(
    rng: &Rng,
    def: &TableDef,
    entities: Entities,
    one: bool,
    range: TsRange,
    mut channels: Vec<ChannelRead>,
    hints: &Hints,
) -> Question {
    if rng.one_in(10) {
        channels.clear();
    }
    let asks = !channels.is_empty() && rng.one_in(2);
    let predicate = asks.then(|| predicate(rng, &channels, hints, 2));
    let mut output = channels.len();
    if let Some(p) = &predicate {
        let mut named = false;
        p.each_channel(&mut |c| named |= c == output - 1);
        output -= usize::from(named && output > 1 && rng.one_in(2));
    }
    Question::Scan(StreamScan {
        floor: i64::MIN,
        table: def.id,
        entities,
        range,
        output,
        channels,
        // A MUTABLE table has no RAW: there is nothing behind its state.
        filled: def.options.mutable || !rng.one_in(3),
        predicate,
        limit: (one && rng.one_in(3)).then(|| rng.below(20)),
    })
}

fn predicate(rng: &Rng, channels: &[ChannelRead], hints: &Hints, depth: u32) -> Predicate {
    let channel = rng.below(channels.len() as u64) as usize;
    let inner = || predicate(rng, channels, hints, depth - 1);
    match rng.below(10) {
        0 if depth > 0 => Predicate::And(vec![inner(), inner()]),
        1 if depth > 0 => Predicate::Or(vec![inner(), inner()]),
        2 if depth > 0 => Predicate::Not(Box::new(inner())),
        3 => Predicate::IsNull {
            channel,
            negated: rng.one_in(2),
        },
        4 => {
            let value = |_| hints.value(rng, &channels[channel]);
            let mut values: Vec<Value> = (0..1 + rng.below(4)).map(value).collect();
            values.sort_by(|a, b| match (a, b) {
                (Value::F64(a), Value::F64(b)) => a.total_cmp(b),
                (Value::Str(a), Value::Str(b)) => a.cmp(b),
                _ => Ordering::Equal,
            });
            values.dedup();
            Predicate::In { channel, values }
        }
        5 if channels[channel].kind == Kind::Str => Predicate::Like {
            channel,
            pattern: like(rng, &hints.value(rng, &channels[channel])),
        },
        _ => {
            use CmpOp::{Eq, Ge, Gt, Le, Lt, Ne};
            Predicate::Compare {
                channel,
                op: [Eq, Ne, Lt, Le, Gt, Ge][rng.below(6) as usize],
                value: hints.value(rng, &channels[channel]),
            }
        }
    }
}

/// A pattern that fits a text, or nearly does.
fn like(rng: &Rng, near: &Value) -> LikePattern {
    let text = match near {
        Value::Str(text) => text.to_string(),
        _ => String::new(),
    };
    let mut pattern = String::new();
    for c in text.chars() {
        match rng.below(6) {
            0 => pattern.push('_'),
            1 => pattern.push('%'),
            2 => pattern.extend(c.to_uppercase()),
            _ => pattern.push(c),
        }
    }
    if rng.one_in(3) {
        pattern.push('%');
    }
    let made = LikePattern::new(&pattern, rng.one_in(3), Some('\\'));
    made.expect("no escape at its end")
}

fn aggregates(
    rng: &Rng,
    def: &TableDef,
    entities: Entities,
    one: bool,
    range: TsRange,
    channels: &[ChannelRead],
    hints: &Hints,
) -> Question {
    let by_entity = rng.one_in(2);
    let mut aggregates = vec![Aggregate {
        func: AggregateFn::Count,
        column: None,
    }];
    // Across entities the order of samples at one ts is open.
    let ordered = one || by_entity;
    for read in channels {
        aggregates.push(Aggregate {
            func: function(rng, read.kind, ordered),
            column: Some((read.column, read.kind)),
        });
    }
    if rng.one_in(2) {
        aggregates.remove(0);
    }
    let filter = rng.one_in(3).then(|| {
        let all = reads(def);
        let on = &all[..1 + rng.below(all.len() as u64) as usize];
        RowFilter {
            channels: on.iter().map(|r| (r.column, r.kind)).collect(),
            predicate: predicate(rng, on, hints, 1),
        }
    });
    Question::Aggregate(StreamAggregate {
        floor: i64::MIN,
        table: def.id,
        entities,
        range,
        filter,
        sample: (!def.options.mutable && rng.one_in(2)).then(|| sample_by(rng, range, &aggregates)),
        aggregates,
        by_entity,
    })
}

fn function(rng: &Rng, kind: Kind, ordered: bool) -> AggregateFn {
    use AggregateFn as F;
    let share = Quantile::new(rng.below(5) as f64 / 4.0, rng.one_in(4)).unwrap_or(Quantile::HALF);
    let all = [
        F::Count,
        F::Min,
        F::Max,
        F::First,
        F::Last,
        F::Sum,
        F::Avg,
        F::StddevSamp,
        F::StddevPop,
        F::VarSamp,
        F::VarPop,
        F::Percentile(share),
        // Exact of so few samples as tests have.
        F::ApproxPercentile(Quantile::new(share.share(), false).unwrap_or(share)),
    ];
    let fit = match kind {
        Kind::F64 => all.len(),
        Kind::Str => 5,
    };
    match all[rng.below(fit as u64) as usize] {
        F::First | F::Last if !ordered => F::Max,
        func => func,
    }
}

fn is_text(a: &Aggregate) -> bool {
    a.func != AggregateFn::Count && a.column.is_some_and(|(_, kind)| kind == Kind::Str)
}

/// Buckets, filled only where the range bounds their number.
fn sample_by(rng: &Rng, range: TsRange, aggregates: &[Aggregate]) -> SampleBy {
    let bounded = range.from != i64::MIN && range.to != i64::MAX;
    let span = if bounded {
        range.to.saturating_sub(range.from).max(1)
    } else {
        0
    };
    let intervals = [
        Interval::Ms(span / 40 + 1),
        Interval::Ms((span / 7 + 1).max(1_000)),
        Interval::Ms(86_400_000),
        Interval::Months(1),
        Interval::Months(12),
    ];
    let interval = match bounded {
        true => intervals[rng.below(5) as usize],
        false => [
            Interval::Ms(7_000),
            Interval::Ms(3_600_000),
            Interval::Months(1),
        ][rng.below(3) as usize],
    };
    // A day's buckets over centuries, or a month's over a second, are no more to compare than these.
    let few = |i: Interval| !matches!(i, Interval::Ms(ms) if span / ms > 500);
    let fill = (bounded && few(interval) && rng.one_in(2)).then(|| match rng.below(5) {
        0 => BucketFill::Null,
        1 | 2 => BucketFill::Prev,
        3 => BucketFill::Linear,
        // A number does not fit a text.
        _ if aggregates.iter().any(is_text) => BucketFill::Null,
        _ => BucketFill::Number(rng.below(8) as f64 / 2.0),
    });
    SampleBy { interval, fill }
}
