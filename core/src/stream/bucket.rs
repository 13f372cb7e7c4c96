//! Aggregates by (entity, bucket): partial states that shards fill and the gatherer merges, then fills and
//! shows. Over stored samples only; a held value is never counted.
//!
//! A group exists once one of the aggregates has something in it: a sample of its channel, or a row for
//! `count(*)`. So a bucket without any is absent, as a read of those channels would have no row there.

use super::answer::{
    Answer, Buckets, Shown, TEXT_BYTES_MAX, fill_buckets, fill_column, most_text, too_much_state,
    too_much_text,
};
use super::cells::ColView;
use super::select::Selection;
use super::states::{Moments, NumberStates, Numbers, States, Texts, Wants};
use crate::error::{Error, Result, SqlState};
use crate::format::block::{BlockData, ChunkStats};
use crate::ids::ColumnId;
use crate::limits::Limits;
use crate::profile::ScanCounters;
use crate::routing::hash64;
use crate::scan::{AggregateFn, BucketFill, StreamAggregate};
use crate::time::Interval;
use crate::value::{Batch, Cell, ColumnData, Kind, StrVec};
use hashbrown::HashTable;
use std::ops::Range;

/// A channel that is aggregated.
#[derive(Clone, Copy, Debug)]
struct Channel {
    id: ColumnId,
    kind: Kind,
    wants: Wants,
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
    /// Which of them keep every number.
    exact: Vec<bool>,
    /// Bytes of the names, and of what the text channels hold.
    text_bytes: usize,
    /// Bytes of the numbers that percentiles keep.
    sample_bytes: usize,
    /// What the shards looked at.
    pub counters: ScanCounters,
    /// The shards' names or texts are together more than an answer may hold: some are left out.
    too_large: bool,
}

fn group_hash(group: (u32, i64)) -> u64 {
    // Multiplicative mixing of two small numbers; nothing depends on its order.
    (group.1 as u64 ^ u64::from(group.0).rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl PartialAggregates {
    fn new(channels: &[Channel]) -> Self {
        let columns = channels.iter().map(|c| {
            let states = match c.kind {
                Kind::F64 => States::Numbers(NumberStates::new(c.wants)),
                Kind::Str => States::Texts(Vec::new()),
            };
            (c.id, states)
        });
        PartialAggregates {
            columns: columns.collect(),
            exact: channels.iter().map(|c| c.wants.exact).collect(),
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
            States::Numbers(n) => n.group_bytes(),
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
        for ((_, states), &exact) in self.columns.iter_mut().zip(&self.exact) {
            match states {
                States::Numbers(v) => v.push_empty(exact),
                States::Texts(v) => v.push(Texts::default()),
            }
        }
        g
    }

    /// Makes room for so many more groups.
    fn reserve(&mut self, more: usize) {
        self.groups.reserve(more);
        self.rows.reserve(more);
        let groups = &self.groups;
        self.group_index
            .reserve(more, |&g| group_hash(groups[g as usize]));
    }

    /// Adds the states of another shard, which holds other entities. [`PartialAggregates::finish`] refuses
    /// what is too large together.
    pub fn merge(&mut self, mut other: PartialAggregates) {
        if self.groups.is_empty() {
            other.counters.add(&self.counters);
            other.too_large |= self.too_large;
            *self = other;
            return;
        }
        self.counters.add(&other.counters);
        if (self.text_bytes + other.text_bytes) as u64 > TEXT_BYTES_MAX || other.too_large {
            self.too_large = true;
            return;
        }
        // The names are counted once more as they come.
        self.text_bytes += other.text_bytes - other.entities.bytes().len();
        self.sample_bytes += other.sample_bytes;
        let entities: Vec<u32> = (0..other.entities.len())
            .map(|e| {
                let name = other.entities.get_bytes(e);
                self.entity(name, hash64(name))
            })
            .collect();
        self.reserve(other.groups.len());
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
                (States::Numbers(a), States::Numbers(b)) => {
                    for (&g, state) in places.iter().zip(b.plain) {
                        a.plain[g].add(&state);
                    }
                    if let (Some(a), Some(b)) = (&mut a.moments, b.moments) {
                        places.iter().zip(b).for_each(|(&g, m)| a[g].add(&m));
                    }
                    if let (Some(a), Some(b)) = (&mut a.samples, b.samples) {
                        places.iter().zip(b).for_each(|(&g, s)| a[g].add(s));
                    }
                }
                (States::Texts(a), States::Texts(b)) => {
                    places.iter().zip(b).for_each(|(&g, state)| a[g].add(state));
                }
                _ => {}
            }
        }
    }

    /// The numbers of exact percentiles, which must be sorted before [`PartialAggregates::finish`].
    pub fn unsorted(&mut self) -> impl Iterator<Item = &mut Vec<f64>> {
        self.columns
            .iter_mut()
            .filter_map(|(_, states)| match states {
                States::Numbers(n) => n.samples.as_mut(),
                States::Texts(_) => None,
            })
            .flatten()
            .flat_map(|s| s.parts_mut())
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
                let s = &v.plain[group];
                let moment = |sample: bool, root: bool| {
                    let m = v.moments.as_ref().map(|m| &m[group]);
                    let variance = m.and_then(|m| m.variance(sample));
                    variance.map_or(Cell::Null, |v| Cell::F64(if root { v.sqrt() } else { v }))
                };
                match func {
                    AggregateFn::Count => Cell::I64(s.count as i64),
                    _ if s.count == 0 => Cell::Null,
                    AggregateFn::Sum => Cell::F64(s.sum),
                    AggregateFn::Avg => Cell::F64(s.sum / s.count as f64),
                    AggregateFn::Min => Cell::F64(s.min),
                    AggregateFn::Max => Cell::F64(s.max),
                    AggregateFn::First => Cell::F64(s.first.1),
                    AggregateFn::Last => Cell::F64(s.last.1),
                    AggregateFn::StddevSamp => moment(true, true),
                    AggregateFn::StddevPop => moment(false, true),
                    AggregateFn::VarSamp => moment(true, false),
                    AggregateFn::VarPop => moment(false, false),
                    AggregateFn::Percentile(q) | AggregateFn::ApproxPercentile(q) => {
                        let samples = v.samples.as_ref().map(|s| &s[group]);
                        samples
                            .and_then(|s| s.percentile(q))
                            .map_or(Cell::Null, Cell::F64)
                    }
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
                    // Of numbers alone.
                    _ => Cell::Null,
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
    /// `22003` when a sum or a variance is past the range of f64; `54000` when FILL would make more than `limits.buckets` rows or `limits.result_bytes` of them, before
    /// they are made; and when the names and texts of the answer are over `limits.result_bytes`.
    pub fn finish(self, query: &StreamAggregate, limits: &Limits) -> Result<Batch> {
        if self.too_large {
            return Err(too_much_text(limits));
        }
        if self.sample_bytes as u64 > limits.result_bytes {
            return Err(too_many_samples(limits));
        }
        // Each name is compared for its own place, not for those of all its buckets.
        let mut by_name: Vec<u32> = (0..self.entities.len() as u32).collect();
        by_name.sort_unstable_by_key(|&e| self.entities.get_bytes(e as usize));
        let mut places = vec![0_u32; by_name.len()];
        for (place, &e) in by_name.iter().enumerate() {
            places[e as usize] = place as u32;
        }
        let mut order: Vec<u32> = (0..self.groups.len() as u32).collect();
        order.sort_unstable_by_key(|&g| {
            let (e, bucket) = self.groups[g as usize];
            (places[e as usize], bucket)
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
        let batch = out.batch().ok_or_else(|| too_much_text(limits))?;
        let keys = batch.columns.len() - query.aggregates.len();
        for (column, a) in batch.columns[keys..].iter().zip(&query.aggregates) {
            if let ColumnData::F64(numbers) = &column.data
                && !numbers.iter().all(|x| x.is_finite())
            {
                return Err(Error::new(
                    SqlState::NumericOutOfRange,
                    format!("the result of {:?} is out of range of DOUBLE", a.func),
                )
                .hint("sums and squares of numbers near 1.8e308 have no place in it"));
            }
        }
        Ok(batch)
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

fn too_many_samples(limits: &Limits) -> Error {
    let e = limits.exceeded(
        "result_bytes",
        SqlState::ProgramLimitExceeded,
        "an exact percentile keeps every number, and they are too many",
    );
    let hint = e.hint_text().unwrap_or_default().to_owned();
    e.hint(format!(
        "approx_percentile_cont(column, share) needs little memory; or {hint}"
    ))
}

/// What a shard computes for a query: each channel once, whatever the number of aggregates over it.
#[derive(Debug)]
pub struct Aggregator {
    partial: PartialAggregates,
    channels: Vec<(ColumnId, Kind)>,
    wants: Vec<Wants>,
    count_rows: bool,
    by_entity: bool,
    interval: Option<Interval>,
    /// The bucket of everything while there is no interval.
    only_bucket: i64,
    last_group: Option<((u32, i64), usize)>,
    most_groups: usize,
    /// Groups whose states fit.
    most_held: usize,
    group_bytes: u64,
    most_text: usize,
    limits: Limits,
    /// Numbers that pass, on their way to a state.
    picked: Vec<f64>,
}

impl Aggregator {
    /// For one shard's part of a query.
    pub fn new(query: &StreamAggregate, limits: &Limits) -> Self {
        let mut ids: Vec<(ColumnId, Kind)> =
            query.aggregates.iter().filter_map(|a| a.column).collect();
        ids.sort_by_key(|c| c.0);
        ids.dedup_by_key(|c| c.0);
        let channels: Vec<Channel> = ids
            .iter()
            .map(|&(id, kind)| {
                let of = query.aggregates.iter();
                let funcs = of.filter(|a| a.column.is_some_and(|c| c.0 == id));
                let mut wants = Wants::default();
                for a in funcs {
                    wants.values |= a.func != AggregateFn::Count;
                    wants.edges |= matches!(a.func, AggregateFn::First | AggregateFn::Last);
                    wants.moments |= a.func.is_moment();
                    wants.exact |= matches!(a.func, AggregateFn::Percentile(_));
                    wants.approx |= matches!(a.func, AggregateFn::ApproxPercentile(_));
                }
                Channel { id, kind, wants }
            })
            .collect();
        let partial = PartialAggregates::new(&channels);
        let group_bytes = partial.group_bytes();
        let held = limits.result_bytes / group_bytes;
        Aggregator {
            most_held: usize::try_from(held).unwrap_or(usize::MAX),
            group_bytes,
            partial,
            wants: channels.iter().map(|c| c.wants).collect(),
            count_rows: query.aggregates.iter().any(|a| a.column.is_none()),
            by_entity: query.by_entity,
            interval: query.sample.map(|s| s.interval),
            only_bucket: 0,
            last_group: None,
            most_groups: usize::try_from(limits.buckets).unwrap_or(usize::MAX),
            most_text: most_text(limits),
            limits: limits.clone(),
            channels: ids,
            picked: Vec::new(),
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
    /// What of a channel is asked for.
    pub fn wants(&self, channel: usize) -> Wants {
        self.wants[channel]
    }
    /// Whether `first` or `last` of a channel is asked for.
    pub fn wants_edges(&self, channel: usize) -> bool {
        self.wants[channel].edges
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
            return Err(too_much_text(&self.limits));
        }
        let g = self.partial.group(key);
        if g >= self.most_groups {
            return Err(self.limits.exceeded(
                "buckets",
                SqlState::ProgramLimitExceeded,
                "SAMPLE BY makes too many buckets",
            ));
        }
        if g >= self.most_held {
            return Err(too_much_state(&self.limits));
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
                        let edges = edges(self.wants[c].edges);
                        let grown = states.add_slice(g, &v[cells], edges);
                        self.grown(grown)?;
                    }
                    (States::Texts(states), BlockData::Str(v)) => {
                        if self.wants[c].values {
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
        self.in_one_bucket(any_ts, |agg| agg.add(entity, ts, 0, views))
    }

    /// As [`Aggregator::add`], of the rows that are selected alone; `count(*)` counts them too. `ts` and the
    /// views are those of the whole unit.
    ///
    /// # Errors
    /// `54000` for too many groups.
    pub fn add_selected(
        &mut self,
        entity: u32,
        ts: &[i64],
        rows: Range<usize>,
        views: &[Option<ColView<'_>>],
        selected: &Selection<'_>,
    ) -> Result<()> {
        let mut start = rows.start;
        while start < rows.end {
            let bucket = self.bucket(ts[start]);
            let end = start + self.bucket_rows(&ts[start..rows.end], bucket);
            let passed = selected.count(start..end);
            if passed > 0 {
                if self.count_rows {
                    let g = self.group(entity, bucket)?;
                    self.partial.rows[g] += passed as u64;
                }
                for (c, view) in views.iter().enumerate() {
                    if let Some(view) = view {
                        self.add_picked((entity, bucket), c, ts, start..end, view, selected)?;
                    }
                }
            }
            start = end;
        }
        Ok(())
    }

    fn add_picked(
        &mut self,
        group: (u32, i64),
        c: usize,
        ts: &[i64],
        rows: Range<usize>,
        view: &ColView<'_>,
        selected: &Selection<'_>,
    ) -> Result<()> {
        match view.data() {
            BlockData::F64(v) => {
                let mut picked = std::mem::take(&mut self.picked);
                picked.clear();
                let edges = selected.pick(rows, view, v, &mut picked);
                if let Some((first, last)) = edges {
                    let g = self.group(group.0, group.1)?;
                    if let States::Numbers(states) = &mut self.partial.columns[c].1 {
                        let grown = states.add_slice(g, &picked, (ts[first], ts[last]));
                        self.grown(grown)?;
                    }
                }
                self.picked = picked;
            }
            BlockData::Str(v) => {
                let mut g = None;
                for row in selected.rows(rows) {
                    let Some(i) = view.index(row) else { continue };
                    let g = match g {
                        Some(g) => g,
                        None => *g.insert(self.group(group.0, group.1)?),
                    };
                    if let States::Texts(states) = &mut self.partial.columns[c].1 {
                        if self.wants[c].values {
                            let before = states[g].bytes();
                            states[g].add_one(ts[row], v.get(i));
                            let bytes = self.partial.text_bytes + states[g].bytes();
                            self.partial.text_bytes = bytes - before;
                        } else {
                            states[g].count += 1;
                        }
                    }
                }
            }
            BlockData::I64(_) | BlockData::StrRuns { .. } => {}
        }
        Ok(())
    }

    /// As [`Aggregator::add_selected`] for rows in any order that all lie in the bucket of `any_ts`, where
    /// neither `first` nor `last` is asked for.
    ///
    /// # Errors
    /// `54000` for too many groups.
    pub fn add_selected_unordered(
        &mut self,
        entity: u32,
        any_ts: i64,
        ts: &[i64],
        views: &[Option<ColView<'_>>],
        selected: &Selection<'_>,
    ) -> Result<()> {
        self.in_one_bucket(any_ts, |agg| {
            agg.add_selected(entity, ts, 0..ts.len(), views, selected)
        })
    }

    /// Notes that percentiles hold so many bytes more.
    fn grown(&mut self, bytes: usize) -> Result<()> {
        if bytes > 0 {
            self.partial.sample_bytes += bytes;
            let groups = self.partial.groups.len() as u64 * self.group_bytes;
            if self.partial.sample_bytes as u64 + groups > self.limits.result_bytes {
                return Err(too_many_samples(&self.limits));
            }
        }
        Ok(())
    }

    fn in_one_bucket<T>(&mut self, any_ts: i64, f: impl FnOnce(&mut Self) -> T) -> T {
        let interval = self.interval.take();
        let bucket = interval.map_or(0, |i| i.floor(any_ts));
        let place = std::mem::replace(&mut self.only_bucket, bucket);
        let done = f(self);
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
            (States::Numbers(states), Some(s)) => {
                states.plain[g].add(&Numbers {
                    count,
                    sum: s.sum,
                    min: s.min,
                    max: s.max,
                    first: (edges.map_or(i64::MAX, |e| e.0), s.first),
                    last: (edges.map_or(i64::MIN, |e| e.1), s.last),
                });
                // Asked only of chunks that repeat one number.
                if let Some(m) = &mut states.moments {
                    m[g].add(&Moments::constant(s.min, count));
                }
            }
            (States::Numbers(states), None) => states.plain[g].count += count,
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

    /// What was looked at so far.
    pub fn counters(&mut self) -> &mut ScanCounters {
        &mut self.partial.counters
    }

    /// What the gatherer merges.
    pub fn finish(self) -> PartialAggregates {
        self.partial
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableId;
    use crate::scan::{Aggregate, Entities, SampleBy, TsRange};

    /// The average of `channels` channels by the second.
    fn query(channels: u32, fill: Option<BucketFill>) -> StreamAggregate {
        let average = |c| Aggregate {
            func: AggregateFn::Avg,
            column: Some((ColumnId(c), Kind::F64)),
        };
        StreamAggregate {
            floor: i64::MIN,
            filter: None,
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
