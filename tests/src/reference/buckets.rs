//! Aggregates over stored samples, `SAMPLE BY`, `FILL`.

use super::Answered;
use super::calendar::{bucket_start, next_start};
use super::facts::{Contents, coalesced};
use super::rows::truth;
use std::collections::BTreeMap;
use strandline_core::ids::ColumnId;
use strandline_core::scan::{Aggregate, AggregateFn, BucketFill, SampleBy, StreamAggregate};
use strandline_core::value::{Kind, Value};

/// What falls into one bucket: its rows, in order of ts and arrival within an entity.
#[derive(Default)]
struct Group {
    rows: Vec<(i64, BTreeMap<ColumnId, Value>)>,
}

impl Group {
    /// The samples of an aggregate's channel.
    fn samples(&self, column: ColumnId) -> Vec<(i64, &Value)> {
        let rows = self.rows.iter();
        rows.filter_map(|(ts, row)| Some((*ts, row.get(&column)?)))
            .collect()
    }

    /// Whether an aggregate has anything to go by.
    fn has(&self, a: &Aggregate) -> bool {
        match a.column {
            None => !self.rows.is_empty(),
            Some((column, _)) => !self.samples(column).is_empty(),
        }
    }

    fn answer(&self, a: &Aggregate) -> Value {
        let Some((column, _)) = a.column else {
            return Value::F64(self.rows.len() as f64);
        };
        let samples = self.samples(column);
        let values: Vec<&Value> = samples.iter().map(|s| s.1).collect();
        if a.func == AggregateFn::Count {
            return Value::F64(values.len() as f64);
        }
        if values.is_empty() {
            return Value::Null;
        }
        let sum = || numbers(&values).iter().sum::<f64>();
        let variance = |free: usize| variance(&numbers(&values), free);
        match a.func {
            AggregateFn::Count => unreachable!("answered above"),
            AggregateFn::Sum => Value::F64(sum()),
            AggregateFn::Avg => Value::F64(sum() / values.len() as f64),
            AggregateFn::Min => sorted(&values)[0].clone(),
            AggregateFn::Max => sorted(&values)[values.len() - 1].clone(),
            AggregateFn::VarSamp => variance(1).map_or(Value::Null, Value::F64),
            AggregateFn::VarPop => variance(0).map_or(Value::Null, Value::F64),
            AggregateFn::StddevSamp => variance(1).map_or(Value::Null, |v| Value::F64(v.sqrt())),
            AggregateFn::StddevPop => variance(0).map_or(Value::Null, |v| Value::F64(v.sqrt())),
            // Questions made from a seed ask for the close one only where it is exact.
            AggregateFn::Percentile(q) | AggregateFn::ApproxPercentile(q) => {
                let mut sorted = numbers(&sorted(&values));
                if q.descending {
                    sorted.reverse();
                }
                Value::F64(percentile(&sorted, q.share()))
            }
            // Of equal ts the first to arrive is first, the last to arrive is last.
            AggregateFn::First => {
                let ts = samples.iter().map(|s| s.0).min();
                samples
                    .iter()
                    .find(|s| Some(s.0) == ts)
                    .map(|s| s.1.clone())
                    .unwrap_or_default()
            }
            AggregateFn::Last => {
                let ts = samples.iter().map(|s| s.0).max();
                samples
                    .iter()
                    .rfind(|s| Some(s.0) == ts)
                    .map(|s| s.1.clone())
                    .unwrap_or_default()
            }
        }
    }
}

fn numbers(values: &[&Value]) -> Vec<f64> {
    let number = |v: &&Value| match v {
        Value::F64(x) => Some(*x),
        _ => None,
    };
    values.iter().filter_map(number).collect()
}

/// The mean square of what lies between the numbers and their mean; `free` is 1 for a sample of more.
fn variance(numbers: &[f64], free: usize) -> Option<f64> {
    let degrees = numbers.len().checked_sub(free).filter(|d| *d > 0)?;
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let squares = numbers.iter().map(|x| (x - mean) * (x - mean));
    Some(squares.sum::<f64>() / degrees as f64)
}

/// The number at a share of the way from the first to the last, on the line between its neighbours.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

fn sorted<'a>(values: &[&'a Value]) -> Vec<&'a Value> {
    let mut values = values.to_vec();
    values.sort_by(|a, b| match (a, b) {
        (Value::F64(a), Value::F64(b)) => a.total_cmp(b),
        (Value::Str(a), Value::Str(b)) => a.cmp(b),
        _ => unreachable!("one channel, one kind"),
    });
    values
}

/// The answer, by entity (empty unless asked for) and then bucket (0 without SAMPLE BY).
pub fn aggregate(contents: &Contents, q: &StreamAggregate) -> Vec<Answered> {
    let contents = contents.clone().since(q.floor).of_entities(&q.entities);
    let mut series: BTreeMap<String, BTreeMap<i64, Group>> = BTreeMap::new();
    for (entity, rows) in &contents.entities {
        let name = if q.by_entity { entity.as_str() } else { "" };
        for (&ts, cells) in rows.iter().filter(|(ts, _)| q.range.contains(**ts)) {
            let columns: Vec<ColumnId> = cells.keys().copied().collect();
            for row in coalesced(cells, &columns) {
                let cells = columns.iter().zip(row);
                let row: BTreeMap<ColumnId, Value> =
                    cells.filter_map(|(c, v)| Some((*c, v?))).collect();
                if !passes(q, &row) {
                    continue;
                }
                let bucket = q.sample.map_or(0, |s| bucket_start(s.interval, ts));
                let groups = series.entry(name.to_string()).or_default();
                groups.entry(bucket).or_default().rows.push((ts, row));
            }
        }
    }
    // A bucket in which no aggregate has anything is absent, and so is an entity without any bucket.
    for groups in series.values_mut() {
        groups.retain(|_, g| q.aggregates.iter().any(|a| g.has(a)));
    }
    series.retain(|_, groups| !groups.is_empty());
    let fill = q.sample.and_then(|s| Some((s, s.fill?)));
    // All together is one series, also of nothing; and without buckets it is one row.
    if !q.by_entity && (q.sample.is_none() || fill.is_some()) {
        series.entry(String::new()).or_default();
    }
    if !q.by_entity && q.sample.is_none() {
        let groups = series.entry(String::new()).or_default();
        groups.entry(0).or_default();
    }
    let mut out = Vec::new();
    for (entity, groups) in series {
        match fill {
            None => {
                for (bucket, group) in groups {
                    let cells = q.aggregates.iter().map(|a| group.answer(a)).collect();
                    out.push((entity.clone(), bucket, cells));
                }
            }
            Some((sample, fill)) => out.extend(filled(&entity, &groups, q, sample, fill)),
        }
    }
    out
}

/// Whether a stored row counts.
fn passes(q: &StreamAggregate, row: &BTreeMap<ColumnId, Value>) -> bool {
    q.filter.as_ref().is_none_or(|filter| {
        let cell = |c: &(ColumnId, Kind)| row.get(&c.0).cloned().unwrap_or_default();
        let cells: Vec<Value> = filter.channels.iter().map(cell).collect();
        truth(&filter.predicate, &cells) == Some(true)
    })
}

/// Every bucket of the range, with what FILL puts where an aggregate has nothing.
fn filled(
    entity: &str,
    groups: &BTreeMap<i64, Group>,
    q: &StreamAggregate,
    sample: SampleBy,
    fill: BucketFill,
) -> Vec<Answered> {
    let mut starts = Vec::new();
    if !q.range.is_empty() {
        let mut start = bucket_start(sample.interval, q.range.from);
        while start <= q.range.to {
            starts.push(start);
            start = next_start(sample.interval, start);
        }
    }
    let column = |a: &Aggregate| -> Vec<Value> {
        let own: Vec<Value> = starts
            .iter()
            .map(|s| groups.get(s).map_or(Value::Null, |g| g.answer(a)))
            .collect();
        let is_text = a.func != AggregateFn::Count && a.column.is_some_and(|(_, k)| k == Kind::Str);
        (0..own.len())
            .map(|i| match (&own[i], fill) {
                (Value::Null, BucketFill::Null) => Value::Null,
                (Value::Null, BucketFill::Prev) => {
                    before(&own, i).map_or(Value::Null, |b| b.1.clone())
                }
                (Value::Null, BucketFill::Number(_)) if is_text => Value::Null,
                (Value::Null, BucketFill::Number(x)) => Value::F64(x),
                (Value::Null, BucketFill::Linear) => match (before(&own, i), after(&own, i)) {
                    (Some((i0, Value::F64(a))), Some((i1, Value::F64(b)))) => {
                        Value::F64(a + (b - a) * (i - i0) as f64 / (i1 - i0) as f64)
                    }
                    _ => Value::Null,
                },
                (value, _) => value.clone(),
            })
            .collect()
    };
    let columns: Vec<Vec<Value>> = q.aggregates.iter().map(column).collect();
    let row = |i: usize| columns.iter().map(|c| c[i].clone()).collect();
    let rows = starts.iter().enumerate();
    rows.map(|(i, &start)| (entity.to_string(), start, row(i)))
        .collect()
}

fn before(cells: &[Value], i: usize) -> Option<(usize, &Value)> {
    (0..i)
        .rev()
        .find(|&k| !cells[k].is_null())
        .map(|k| (k, &cells[k]))
}

fn after(cells: &[Value], i: usize) -> Option<(usize, &Value)> {
    (i..cells.len())
        .find(|&k| !cells[k].is_null())
        .map(|k| (k, &cells[k]))
}
