//! Aggregates by (entity, bucket): partial states that shards fill and the gatherer merges, then fills and
//! shows. Over stored samples only; a held value is never counted.
//!
//! A group exists once one of the aggregates has something in it: a sample of its channel, or a row for
//! `count(*)`. So a bucket without any is absent, as a read of those channels would have no row there.

use super::cells::ColView;
use crate::error::{Error, Result, SqlState};
use crate::format::block::{BlockData, ChunkStats};
use crate::ids::ColumnId;
use crate::limits::Limits;
use crate::routing::hash64;
use crate::scan::{AggregateFn, BucketFill, SampleBy, StreamAggregate};
use crate::time::Interval;
use crate::value::{Batch, Cell, Column, ColumnBuilder, ColumnData, Kind, StrVec};
use hashbrown::HashTable;

/// Samples of a number channel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbers {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    first: (i64, f64),
    last: (i64, f64),
}

impl Numbers {
    const EMPTY: Numbers = Numbers {
        count: 0,
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        first: (i64::MAX, 0.0),
        last: (i64::MIN, 0.0),
    };

    /// Adds what came later; of equal ts the earlier arrival is first, the later one last.
    fn add(&mut self, other: &Numbers) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        if other.first.0 < self.first.0 {
            self.first = other.first;
        }
        if other.last.0 >= self.last.0 {
            self.last = other.last;
        }
    }
}

/// Samples of a text channel.
#[derive(Clone, Debug, Default, PartialEq)]
struct Texts {
    count: u64,
    min: Box<str>,
    max: Box<str>,
    first: (i64, Box<str>),
    last: (i64, Box<str>),
}

impl Texts {
    fn bytes(&self) -> usize {
        self.min.len() + self.max.len() + self.first.1.len() + self.last.1.len()
    }

    fn add_one(&mut self, ts: i64, text: &str) {
        if self.count == 0 {
            *self = Texts {
                count: 1,
                min: text.into(),
                max: text.into(),
                first: (ts, text.into()),
                last: (ts, text.into()),
            };
            return;
        }
        self.count += 1;
        if text < &*self.min {
            self.min = text.into();
        }
        if text > &*self.max {
            self.max = text.into();
        }
        if ts < self.first.0 {
            self.first = (ts, text.into());
        }
        if ts >= self.last.0 {
            self.last = (ts, text.into());
        }
    }

    fn add(&mut self, other: Texts) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other;
            return;
        }
        self.count += other.count;
        if other.min < self.min {
            self.min = other.min;
        }
        if other.max > self.max {
            self.max = other.max;
        }
        if other.first.0 < self.first.0 {
            self.first = other.first;
        }
        if other.last.0 >= self.last.0 {
            self.last = other.last;
        }
    }
}

#[derive(Clone, Debug)]
enum States {
    Numbers(Vec<Numbers>),
    Texts(Vec<Texts>),
}

/// States of all groups of one shard, or of several.
#[derive(Clone, Debug, Default)]
pub struct PartialAggregates {
    /// Names of entities; one empty name when groups are not by entity.
    entities: StrVec,
    entity_index: HashTable<u32>,
    /// (entity, bucket start) of each group.
    groups: Vec<(u32, i64)>,
    group_index: HashTable<u32>,
    rows: Vec<u64>,
    columns: Vec<(ColumnId, States)>,
    /// Bytes of the names, and of what the text channels hold.
    text_bytes: usize,
    /// The shards' names or texts are together more than an answer may hold: some are left out.
    too_large: bool,
}

/// More names or text than this are no answer, whatever `result_bytes` says: one buffer must hold a column.
const TEXT_BYTES_MAX: u64 = 1 << 31;

fn most_text(limits: &Limits) -> usize {
    limits.result_bytes.min(TEXT_BYTES_MAX) as usize
}

fn too_much_text(limits: &Limits) -> Error {
    limits.exceeded(
        "result_bytes",
        SqlState::ProgramLimitExceeded,
        "the names and texts of the buckets are too long together",
    )
}

fn too_much_state(limits: &Limits) -> Error {
    limits.exceeded(
        "result_bytes",
        SqlState::ProgramLimitExceeded,
        "the buckets and their aggregates take too much memory",
    )
}

fn group_hash(group: (u32, i64)) -> u64 {
    // Multiplicative mixing of two small numbers; nothing depends on its order.
    (group.1 as u64 ^ u64::from(group.0).rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl PartialAggregates {
    fn new(columns: &[(ColumnId, Kind)]) -> Self {
        let columns = columns.iter().map(|&(id, kind)| {
            let states = match kind {
                Kind::F64 => States::Numbers(Vec::new()),
                Kind::Str => States::Texts(Vec::new()),
            };
            (id, states)
        });
        PartialAggregates {
            columns: columns.collect(),
            ..PartialAggregates::default()
        }
    }

    fn entity(&mut self, name: &[u8], hash: u64) -> u32 {
        let names = &self.entities;
        if let Some(&e) = self
            .entity_index
            .find(hash, |&e| names.get_bytes(e as usize) == name)
        {
            return e;
        }
        let e = self.entities.len() as u32;
        self.entities.push_bytes(name);
        self.text_bytes += name.len();
        let names = &self.entities;
        self.entity_index
            .insert_unique(hash, e, |&e| hash64(names.get_bytes(e as usize)));
        e
    }

    /// Bytes of one group, without its texts.
    fn group_bytes(&self) -> u64 {
        let states = self.columns.iter().map(|(_, states)| match states {
            States::Numbers(_) => size_of::<Numbers>(),
            States::Texts(_) => size_of::<Texts>(),
        });
        let key = size_of::<(u32, i64)>() + size_of::<u32>() + size_of::<u64>();
        (key + states.sum::<usize>()) as u64
    }

    fn group(&mut self, group: (u32, i64)) -> usize {
        let groups = &self.groups;
        let hash = group_hash(group);
        if let Some(&g) = self
            .group_index
            .find(hash, |&g| groups[g as usize] == group)
        {
            return g as usize;
        }
        let g = self.groups.len();
        self.groups.push(group);
        let groups = &self.groups;
        self.group_index
            .insert_unique(hash, g as u32, |&g| group_hash(groups[g as usize]));
        self.rows.push(0);
        for (_, states) in &mut self.columns {
            match states {
                States::Numbers(v) => v.push(Numbers::EMPTY),
                States::Texts(v) => v.push(Texts::default()),
            }
        }
        g
    }

    /// Adds the states of another shard, which holds other entities. [`PartialAggregates::finish`] refuses
    /// what is too large together.
    pub fn merge(&mut self, other: PartialAggregates) {
        if self.groups.is_empty() {
            *self = other;
            return;
        }
        if (self.text_bytes + other.text_bytes) as u64 > TEXT_BYTES_MAX || other.too_large {
            self.too_large = true;
            return;
        }
        // The names are counted once more as they come.
        self.text_bytes += other.text_bytes - other.entities.bytes().len();
        let entities: Vec<u32> = (0..other.entities.len())
            .map(|e| {
                let name = other.entities.get_bytes(e);
                self.entity(name, hash64(name))
            })
            .collect();
        let places: Vec<usize> = other
            .groups
            .iter()
            .map(|&(e, bucket)| self.group((entities[e as usize], bucket)))
            .collect();
        for (&g, rows) in places.iter().zip(&other.rows) {
            self.rows[g] += rows;
        }
        for ((_, mine), (_, theirs)) in self.columns.iter_mut().zip(other.columns) {
            match (mine, theirs) {
                (States::Numbers(a), States::Numbers(b)) => places
                    .iter()
                    .zip(b)
                    .for_each(|(&g, state)| a[g].add(&state)),
                (States::Texts(a), States::Texts(b)) => {
                    places.iter().zip(b).for_each(|(&g, state)| a[g].add(state));
                }
                _ => {}
            }
        }
    }

    /// Groups so far.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    fn cell(&self, group: usize, func: AggregateFn, column: Option<ColumnId>) -> Cell<'_> {
        let Some(id) = column else {
            return Cell::I64(self.rows[group] as i64);
        };
        let states = self.columns.iter().find(|c| c.0 == id).map(|c| &c.1);
        match states {
            Some(States::Numbers(v)) => {
                let s = &v[group];
                match func {
                    AggregateFn::Count => Cell::I64(s.count as i64),
                    _ if s.count == 0 => Cell::Null,
                    AggregateFn::Sum => Cell::F64(s.sum),
                    AggregateFn::Avg => Cell::F64(s.sum / s.count as f64),
                    AggregateFn::Min => Cell::F64(s.min),
                    AggregateFn::Max => Cell::F64(s.max),
                    AggregateFn::First => Cell::F64(s.first.1),
                    AggregateFn::Last => Cell::F64(s.last.1),
                }
            }
            Some(States::Texts(v)) => {
                let s = &v[group];
                match func {
                    AggregateFn::Count => Cell::I64(s.count as i64),
                    _ if s.count == 0 => Cell::Null,
                    AggregateFn::Min => Cell::Str(&s.min),
                    AggregateFn::Max => Cell::Str(&s.max),
                    AggregateFn::First => Cell::Str(&s.first.1),
                    AggregateFn::Last => Cell::Str(&s.last.1),
                    AggregateFn::Sum | AggregateFn::Avg => Cell::Null,
                }
            }
            None if func == AggregateFn::Count => Cell::I64(0),
            None => Cell::Null,
        }
    }

    /// The answer: columns entity (if `by_entity`), ts (if `sample`), then one per aggregate; sorted by
    /// (entity, bucket). `FILL` puts values into buckets that have none: where a group is absent, and where
    /// it is there but the aggregate is NULL.
    ///
    /// # Errors
    /// `54000` when FILL would make more than `limits.buckets` rows or `limits.result_bytes` of them, before
    /// they are made; and when the names and texts of the answer are over `limits.result_bytes`.
    pub fn finish(self, query: &StreamAggregate, limits: &Limits) -> Result<Batch> {
        if self.too_large {
            return Err(too_much_text(limits));
        }
        let mut order: Vec<u32> = (0..self.groups.len() as u32).collect();
        order.sort_unstable_by_key(|&g| {
            let (e, bucket) = self.groups[g as usize];
            (self.entities.get_bytes(e as usize), bucket)
        });
        let fill = query.sample.and_then(|s| Some((s, s.fill?)));
        let series: Vec<&[u32]> = order
            .chunk_by(|&a, &b| self.groups[a as usize].0 == self.groups[b as usize].0)
            .collect();
        let mut out = Answer::new(query, most_text(limits));
        match fill {
            Some((sample, fill)) => {
                let buckets = fill_buckets(query, &sample, series.len(), limits)?;
                for groups in &series {
                    self.filled_series(query, groups, &buckets, fill, &mut out);
                }
                if series.is_empty() && !query.by_entity {
                    self.filled_series(query, &[], &buckets, fill, &mut out);
                }
            }
            None => {
                for &g in &order {
                    let (e, bucket) = self.groups[g as usize];
                    out.key(self.entities.get_bytes(e as usize), bucket);
                    for (builder, a) in out.aggregates.iter_mut().zip(&query.aggregates) {
                        let cell = self.cell(g as usize, a.func, a.column.map(|c| c.0));
                        builder.push(out.room.cell(cell));
                    }
                }
                if order.is_empty() && !query.by_entity && query.sample.is_none() {
                    out.key(b"", 0);
                    for (builder, a) in out.aggregates.iter_mut().zip(&query.aggregates) {
                        match a.func {
                            AggregateFn::Count => builder.push(Cell::I64(0)),
                            _ => builder.push_null(),
                        }
                    }
                }
            }
        }
        out.batch().ok_or_else(|| too_much_text(limits))
    }

    fn filled_series(
        &self,
        query: &StreamAggregate,
        groups: &[u32],
        buckets: &Buckets,
        fill: BucketFill,
        out: &mut Answer,
    ) {
        let name = groups.first().map_or(&b""[..], |&g| {
            self.entities.get_bytes(self.groups[g as usize].0 as usize)
        });
        (0..buckets.count).for_each(|i| out.key(name, buckets.start(i)));
        for (builder, a) in out.aggregates.iter_mut().zip(&query.aggregates) {
            let column = a.column.map(|c| c.0);
            let known: Vec<(usize, Cell<'_>)> = groups
                .iter()
                .map(|&g| {
                    let at = buckets.number(self.groups[g as usize].1);
                    (at, self.cell(g as usize, a.func, column))
                })
                .filter(|(at, cell)| *cell != Cell::Null && *at < buckets.count)
                .collect();
            let shown = match (a.func, a.column) {
                (AggregateFn::Count, _) | (_, None) if fill.makes_fractions() => Shown::Number,
                (AggregateFn::Count, _) | (_, None) => Shown::Whole,
                (_, Some((_, Kind::F64))) => Shown::Number,
                (_, Some((_, Kind::Str))) => Shown::Text,
            };
            fill_column(builder, &known, buckets.count, fill, shown, &mut out.room);
        }
    }
}

/// What a column of the answer holds.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Whole,
    Number,
    Text,
}

/// Puts `count` cells into `builder`: the known ones at their places, the others by the policy.
fn fill_column(
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
struct Buckets {
    /// The number of the first.
    first: i64,
    interval: Interval,
    count: usize,
}

impl Buckets {
    fn start(&self, i: usize) -> i64 {
        self.interval.start(self.first.saturating_add(i as i64))
    }
    fn number(&self, start: i64) -> usize {
        self.interval.bucket(start).abs_diff(self.first) as usize
    }
}

fn fill_buckets(
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
struct Answer {
    entity: Option<StrVec>,
    ts: Option<Vec<i64>>,
    aggregates: Vec<ColumnBuilder>,
    rows: usize,
    room: Room,
}

/// What is left for names and texts. Past it they are left out, and there is no answer.
struct Room {
    left: usize,
    over: bool,
}

impl Room {
    fn take(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) if !self.over => self.left = left,
            _ => self.over = true,
        }
        !self.over
    }
    fn cell<'a>(&mut self, cell: Cell<'a>) -> Cell<'a> {
        match cell {
            Cell::Str(text) if !self.take(text.len()) => Cell::Null,
            cell => cell,
        }
    }
}

impl Answer {
    fn new(query: &StreamAggregate, most_text: usize) -> Self {
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
    fn key(&mut self, entity: &[u8], bucket: i64) {
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
    fn batch(self) -> Option<Batch> {
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

/// What a shard computes for a query: each channel once, whatever the number of aggregates over it.
#[derive(Debug)]
pub struct Aggregator {
    partial: PartialAggregates,
    channels: Vec<(ColumnId, Kind)>,
    /// `first` or `last` of the channel is asked for.
    edges: Vec<bool>,
    /// More than its count is asked for.
    values: Vec<bool>,
    count_rows: bool,
    by_entity: bool,
    interval: Option<Interval>,
    /// The bucket of everything while there is no interval.
    only_bucket: i64,
    last_group: Option<((u32, i64), usize)>,
    most_groups: usize,
    /// Groups whose states fit.
    most_held: usize,
    most_text: usize,
    limits_error: Limits,
}

impl Aggregator {
    /// For one shard's part of a query.
    pub fn new(query: &StreamAggregate, limits: &Limits) -> Self {
        let mut channels: Vec<(ColumnId, Kind)> =
            query.aggregates.iter().filter_map(|a| a.column).collect();
        channels.sort_by_key(|c| c.0);
        channels.dedup_by_key(|c| c.0);
        let asks = |id: ColumnId, f: &dyn Fn(AggregateFn) -> bool| {
            query
                .aggregates
                .iter()
                .any(|a| a.column.is_some_and(|c| c.0 == id) && f(a.func))
        };
        use AggregateFn as F;
        let edges = |f| matches!(f, F::First | F::Last);
        let values = |f| f != F::Count;
        let partial = PartialAggregates::new(&channels);
        let held = limits.result_bytes / partial.group_bytes();
        Aggregator {
            most_held: usize::try_from(held).unwrap_or(usize::MAX),
            partial,
            edges: channels.iter().map(|c| asks(c.0, &edges)).collect(),
            values: channels.iter().map(|c| asks(c.0, &values)).collect(),
            count_rows: query.aggregates.iter().any(|a| a.column.is_none()),
            by_entity: query.by_entity,
            interval: query.sample.map(|s| s.interval),
            only_bucket: 0,
            last_group: None,
            most_groups: usize::try_from(limits.buckets).unwrap_or(usize::MAX),
            most_text: most_text(limits),
            limits_error: limits.clone(),
            channels,
        }
    }

    /// The channels to feed, in order of number; views are given in this order.
    pub fn channels(&self) -> &[(ColumnId, Kind)] {
        &self.channels
    }
    /// Whether `count(*)` is asked for.
    pub fn counts_rows(&self) -> bool {
        self.count_rows
    }
    /// Whether groups are by entity.
    pub fn by_entity(&self) -> bool {
        self.by_entity
    }
    /// Whether `first` or `last` of a channel is asked for.
    pub fn wants_edges(&self, channel: usize) -> bool {
        self.edges[channel]
    }
    /// Whether more than the count of a channel is asked for.
    pub fn wants_values(&self, channel: usize) -> bool {
        self.values[channel]
    }
    /// Whether both times fall into one bucket.
    pub fn same_bucket(&self, a: i64, b: i64) -> bool {
        self.bucket(a) == self.bucket(b)
    }
    fn bucket(&self, ts: i64) -> i64 {
        self.interval.map_or(self.only_bucket, |i| i.floor(ts))
    }

    /// The number under which an entity's samples are given; `hash` is [`hash64`] of the name.
    pub fn entity(&mut self, name: &[u8], hash: u64) -> u32 {
        if self.by_entity {
            self.partial.entity(name, hash)
        } else {
            if self.partial.entities.is_empty() {
                self.partial.entity(b"", hash64(b""));
            }
            0
        }
    }

    fn group(&mut self, entity: u32, bucket: i64) -> Result<usize> {
        let key = (entity, bucket);
        if let Some((last, g)) = self.last_group
            && last == key
        {
            return Ok(g);
        }
        if self.partial.text_bytes > self.most_text {
            return Err(too_much_text(&self.limits_error));
        }
        let g = self.partial.group(key);
        if g >= self.most_groups {
            return Err(self.limits_error.exceeded(
                "buckets",
                SqlState::ProgramLimitExceeded,
                "SAMPLE BY makes too many buckets",
            ));
        }
        if g >= self.most_held {
            return Err(too_much_state(&self.limits_error));
        }
        self.last_group = Some((key, g));
        Ok(g)
    }

    /// Adds samples of rows `base..base + ts.len()` of the views. `ts` ascends. Sources are given in order
    /// of arrival.
    ///
    /// # Errors
    /// `54000` for too many groups.
    pub fn add(
        &mut self,
        entity: u32,
        ts: &[i64],
        base: usize,
        views: &[Option<ColView<'_>>],
    ) -> Result<()> {
        let mut start = 0;
        while start < ts.len() {
            let bucket = self.bucket(ts[start]);
            let end = start + self.bucket_rows(&ts[start..], bucket);
            for (c, view) in views.iter().enumerate() {
                let Some(view) = view else { continue };
                let cells = view.rank(base + start)..view.rank(base + end);
                if cells.is_empty() {
                    continue;
                }
                let g = self.group(entity, bucket)?;
                let rows = base + start..base + end;
                let edges = |wanted: bool| {
                    let first = wanted.then(|| view.first_row(rows.clone())).flatten();
                    let last = wanted.then(|| view.last_row(rows.clone())).flatten();
                    (
                        first.map_or(i64::MAX, |r| ts[r - base]),
                        last.map_or(i64::MIN, |r| ts[r - base]),
                    )
                };
                match (&mut self.partial.columns[c].1, view.data()) {
                    (States::Numbers(states), BlockData::F64(v)) => {
                        let edges = edges(self.edges[c]);
                        let v = &v[cells];
                        let mut new = reduce(v);
                        new.first = (edges.0, v[0]);
                        new.last = (edges.1, v[v.len() - 1]);
                        states[g].add(&new);
                    }
                    (States::Texts(states), BlockData::Str(v)) => {
                        if self.values[c] {
                            let mut row = rows.start;
                            let before = states[g].bytes();
                            for i in cells {
                                row = view.first_row(row..rows.end).unwrap_or(row);
                                states[g].add_one(ts[row - base], v.get(i));
                                row += 1;
                            }
                            let bytes = self.partial.text_bytes + states[g].bytes();
                            self.partial.text_bytes = bytes - before;
                        } else {
                            states[g].count += cells.len() as u64;
                        }
                    }
                    _ => {}
                }
            }
            start = end;
        }
        Ok(())
    }

    /// As [`Aggregator::add`] for whole columns of rows in any order that all lie in the bucket of `any_ts`,
    /// where neither `first` nor `last` is asked for.
    ///
    /// # Errors
    /// `54000` for too many groups.
    pub fn add_unordered(
        &mut self,
        entity: u32,
        any_ts: i64,
        ts: &[i64],
        views: &[Option<ColView<'_>>],
    ) -> Result<()> {
        let interval = self.interval.take();
        let bucket = interval.map_or(0, |i| i.floor(any_ts));
        let place = std::mem::replace(&mut self.only_bucket, bucket);
        let done = self.add(entity, ts, 0, views);
        self.only_bucket = place;
        self.interval = interval;
        done
    }

    /// Rows of `ts` (which ascends) that fall into the bucket of the first.
    fn bucket_rows(&self, ts: &[i64], bucket: i64) -> usize {
        let Some(interval) = self.interval else {
            return ts.len();
        };
        let Some(end) = interval.next(bucket) else {
            return ts.len();
        };
        if ts[ts.len() - 1] < end {
            return ts.len();
        }
        // Buckets are mostly much shorter than what is left: double first, then halve.
        let mut high = 1;
        while high < ts.len() && ts[high] < end {
            high *= 2;
        }
        let low = high / 2;
        low + ts[low..high.min(ts.len())].partition_point(|&t| t < end)
    }

    /// Adds a channel's samples that all lie in the bucket of `ts`, by their statistics. `edges` are the ts
    /// of the first and the last of them, where asked for.
    ///
    /// # Errors
    /// `54000` for too many groups.
    pub fn add_stats(
        &mut self,
        entity: u32,
        ts: i64,
        channel: usize,
        count: u64,
        stats: Option<&ChunkStats>,
        edges: Option<(i64, i64)>,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let g = self.group(entity, self.bucket(ts))?;
        match (&mut self.partial.columns[channel].1, stats) {
            (States::Numbers(states), Some(s)) => states[g].add(&Numbers {
                count,
                sum: s.sum,
                min: s.min,
                max: s.max,
                first: (edges.map_or(i64::MAX, |e| e.0), s.first),
                last: (edges.map_or(i64::MIN, |e| e.1), s.last),
            }),
            (States::Numbers(states), None) => states[g].count += count,
            (States::Texts(states), _) => states[g].count += count,
        }
        Ok(())
    }

    /// Adds rows to `count(*)`, all in the bucket of `ts`.
    ///
    /// # Errors
    /// `54000` for too many groups.
    pub fn add_rows(&mut self, entity: u32, ts: i64, rows: u64) -> Result<()> {
        if rows > 0 {
            let g = self.group(entity, self.bucket(ts))?;
            self.partial.rows[g] += rows;
        }
        Ok(())
    }

    /// Adds one row to `count(*)` for each of `ts`, which ascends.
    ///
    /// # Errors
    /// `54000` for too many groups.
    pub fn add_row_times(&mut self, entity: u32, ts: &[i64]) -> Result<()> {
        let mut start = 0;
        while start < ts.len() {
            let n = self.bucket_rows(&ts[start..], self.bucket(ts[start]));
            self.add_rows(entity, ts[start], n as u64)?;
            start += n;
        }
        Ok(())
    }

    /// What the gatherer merges.
    pub fn finish(self) -> PartialAggregates {
        self.partial
    }
}

/// Count, sum, min and max of at least one number, in eight lanes so that the compiler uses vectors.
fn reduce(v: &[f64]) -> Numbers {
    const LANES: usize = 8;
    let mut out = Numbers {
        count: v.len() as u64,
        ..Numbers::EMPTY
    };
    let (mut sum, mut min, mut max) = (
        [0.0f64; LANES],
        [f64::INFINITY; LANES],
        [f64::NEG_INFINITY; LANES],
    );
    let chunks = v.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..LANES {
            sum[i] += chunk[i];
            min[i] = if chunk[i] < min[i] { chunk[i] } else { min[i] };
            max[i] = if chunk[i] > max[i] { chunk[i] } else { max[i] };
        }
    }
    for i in 0..LANES {
        out.sum += sum[i];
        out.min = out.min.min(min[i]);
        out.max = out.max.max(max[i]);
    }
    for &x in rest {
        out.sum += x;
        out.min = out.min.min(x);
        out.max = out.max.max(x);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableId;
    use crate::scan::{Aggregate, Entities, TsRange};

    /// The average of `channels` channels by the second.
    fn query(channels: u32, fill: Option<BucketFill>) -> StreamAggregate {
        let average = |c| Aggregate {
            func: AggregateFn::Avg,
            column: Some((ColumnId(c), Kind::F64)),
        };
        StreamAggregate {
            table: TableId(1),
            entities: Entities::All,
            range: TsRange {
                from: 0,
                to: 99_999,
            },
            aggregates: (0..channels).map(average).collect(),
            sample: Some(SampleBy {
                interval: Interval::Ms(1000),
                fill,
            }),
            by_entity: false,
        }
    }

    #[test]
    fn wide_buckets_are_bounded() {
        let limits = Limits {
            result_bytes: 100_000,
            ..Limits::default()
        };
        // 100 buckets, of which each channel takes 8 bytes in the answer and a state in the shard.
        for (channels, filled, held) in [(5, true, true), (50, true, false), (200, false, false)] {
            let filled_query = query(channels, Some(BucketFill::Null));
            let answer = Aggregator::new(&filled_query, &limits)
                .finish()
                .finish(&filled_query, &limits);
            match answer {
                Ok(batch) => assert!(filled && batch.rows == 100, "{channels}"),
                Err(e) => assert!(!filled && e.message().contains("result_bytes"), "{e}"),
            }
            let mut agg = Aggregator::new(&query(channels, None), &limits);
            let entity = agg.entity(b"", 0);
            let added = (0..100).try_for_each(|s| agg.add_rows(entity, s * 1000, 1));
            match added {
                Ok(()) => assert!(held, "{channels}"),
                Err(e) => assert!(!held && e.message().contains("result_bytes"), "{e}"),
            }
        }
    }
}
