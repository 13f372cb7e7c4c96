//! The answer of an aggregate on its way out: the buckets that FILL makes, and what stands in them.

use crate::error::{Error, Result, SqlState};
use crate::limits::Limits;
use crate::scan::{AggregateFn, BucketFill, SampleBy, StreamAggregate};
use crate::time::Interval;
use crate::value::{Batch, Cell, Column, ColumnBuilder, ColumnData, StrVec};

/// More names or text than this are no answer, whatever `result_bytes` says: one buffer must hold a column.
pub(super) const TEXT_BYTES_MAX: u64 = 1 << 31;

pub(super) fn most_text(limits: &Limits) -> usize {
    limits.result_bytes.min(TEXT_BYTES_MAX) as usize
}

pub(super) fn too_much_text(limits: &Limits) -> Error {
    limits.exceeded(
        "result_bytes",
        SqlState::ProgramLimitExceeded,
        "the names and texts of the buckets are too long together",
    )
}

pub(super) fn too_much_state(limits: &Limits) -> Error {
    limits.exceeded(
        "result_bytes",
        SqlState::ProgramLimitExceeded,
        "the buckets and their aggregates take too much memory",
    )
}

/// What a column of the answer holds.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Shown {
    Whole,
    Number,
    Text,
}

/// Puts `count` cells into `builder`: the known ones at their places, the others by the policy.
pub(super) fn fill_column(
    builder: &mut ColumnBuilder,
    known: &[(usize, Cell<'_>)],
    count: usize,
    fill: BucketFill,
    shown: Shown,
    room: &mut Room,
) {
    let mut next = 0;
    // A filled-in number goes into text not at all; among fractions counts are numbers too.
    let mut push = |cell: Cell<'_>| {
        builder.push(match (cell, shown) {
            (Cell::F64(x), Shown::Whole) => Cell::I64(x.round() as i64),
            (Cell::I64(n), Shown::Number) => Cell::F64(n as f64),
            (Cell::F64(_), Shown::Text) => Cell::Null,
            (cell, _) => room.cell(cell),
        });
    };
    for i in 0..count {
        if let Some((_, cell)) = known.get(next).filter(|(at, _)| *at == i) {
            push(*cell);
            next += 1;
            continue;
        }
        let before = next.checked_sub(1).map(|b| known[b]);
        push(match fill {
            BucketFill::Null => Cell::Null,
            BucketFill::Prev => before.map_or(Cell::Null, |b| b.1),
            BucketFill::Number(x) => Cell::F64(x),
            BucketFill::Linear => match (before, known.get(next)) {
                (Some((i0, a)), Some(&(i1, b))) => {
                    let share = (i - i0) as f64 / (i1 - i0) as f64;
                    match (a, b) {
                        (Cell::F64(a), Cell::F64(b)) => Cell::F64(a + (b - a) * share),
                        (Cell::I64(a), Cell::I64(b)) => {
                            Cell::F64(a as f64 + (b - a) as f64 * share)
                        }
                        _ => Cell::Null,
                    }
                }
                _ => Cell::Null,
            },
        });
    }
}

/// The buckets that FILL makes.
pub(super) struct Buckets {
    /// The number of the first.
    first: i64,
    interval: Interval,
    pub count: usize,
}

impl Buckets {
    pub fn start(&self, i: usize) -> i64 {
        self.interval.start(self.first.saturating_add(i as i64))
    }
    pub fn number(&self, start: i64) -> usize {
        self.interval.bucket(start).abs_diff(self.first) as usize
    }
}

pub(super) fn fill_buckets(
    query: &StreamAggregate,
    sample: &SampleBy,
    series: usize,
    limits: &Limits,
) -> Result<Buckets> {
    let interval = sample.interval;
    let (first, last) = (
        interval.bucket(query.range.from),
        interval.bucket(query.range.to),
    );
    let each = if query.range.is_empty() {
        0
    } else {
        last.abs_diff(first).saturating_add(1)
    };
    let all = u128::from(each) * series.max(1) as u128;
    if all > u128::from(limits.buckets) {
        return Err(limits.exceeded(
            "buckets",
            SqlState::ProgramLimitExceeded,
            format!("SAMPLE BY with FILL would make {all} buckets"),
        ));
    }
    let row = (query.aggregates.len() + 1) * size_of::<f64>();
    if all * row as u128 > u128::from(limits.result_bytes) {
        return Err(too_much_state(limits));
    }
    Ok(Buckets {
        first,
        interval,
        count: each as usize,
    })
}

/// Columns of the answer on their way.
pub(super) struct Answer {
    entity: Option<StrVec>,
    ts: Option<Vec<i64>>,
    pub aggregates: Vec<ColumnBuilder>,
    rows: usize,
    pub room: Room,
}

/// What is left for names and texts. Past it they are left out, and there is no answer.
pub(super) struct Room {
    left: usize,
    over: bool,
}

impl Room {
    pub fn take(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) if !self.over => self.left = left,
            _ => self.over = true,
        }
        !self.over
    }
    pub fn cell<'a>(&mut self, cell: Cell<'a>) -> Cell<'a> {
        match cell {
            Cell::Str(text) if !self.take(text.len()) => Cell::Null,
            cell => cell,
        }
    }
}

impl Answer {
    pub fn new(query: &StreamAggregate, most_text: usize) -> Self {
        let fill = query.sample.and_then(|s| s.fill);
        let fractions = fill.is_some_and(BucketFill::makes_fractions);
        let aggregates = query.aggregates.iter().map(|a| match (a.func, a.column) {
            (AggregateFn::Count, _) | (_, None) if fractions => ColumnBuilder::f64(),
            (AggregateFn::Count, _) | (_, None) => ColumnBuilder::i64(),
            (_, Some((_, kind))) => ColumnBuilder::of(kind),
        });
        Answer {
            entity: query.by_entity.then(StrVec::new),
            ts: query.sample.map(|_| Vec::new()),
            aggregates: aggregates.collect(),
            rows: 0,
            room: Room {
                left: most_text,
                over: false,
            },
        }
    }
    pub fn key(&mut self, entity: &[u8], bucket: i64) {
        if let Some(names) = &mut self.entity {
            let fits = self.room.take(entity.len());
            names.push_bytes(if fits { entity } else { b"" });
        }
        if let Some(ts) = &mut self.ts {
            ts.push(bucket);
        }
        self.rows += 1;
    }
    /// `None`: names and texts are too long.
    pub fn batch(self) -> Option<Batch> {
        if self.room.over {
            return None;
        }
        let mut columns = Vec::new();
        columns.extend(self.entity.map(|e| Column::full(ColumnData::Str(e))));
        columns.extend(self.ts.map(|t| Column::full(ColumnData::I64(t))));
        columns.extend(self.aggregates.into_iter().map(ColumnBuilder::finish));
        Some(Batch {
            rows: self.rows,
            columns,
        })
    }
}
