//! Aggregates over stored samples.
//!
//! Samples of one channel need no putting together: each source adds its own. What is about whole rows
//! (`count(*)`, a condition on other channels, DEDUP) does: there `overlap` says which blocks and runs stand
//! alone, and the rest is merged first. Either way a block answers by its statistics when it lies whole
//! inside range, bucket and condition, and else gives what is read of it column by column.

use super::keys::only_entity;
use super::overlap::Alone;
use super::snapshot::{Snapshot, live_channels};
use super::source::{Reader, Unit, load, run_rows, sort_slowly};
use super::{EntityList, EntityRef, StreamTable, all_live, ts_with_cells};
use crate::segment::Segment;
use hashbrown::HashSet;
use std::ops::Range;
use strandline_core::error::Result;
use strandline_core::format::block::BlockMeta;
use strandline_core::ids::{ColumnId, SegmentId};
use strandline_core::routing::hash64;
use strandline_core::scan::{Entities, RowFilter, StreamAggregate, TsRange};
use strandline_core::stream::bucket::{Aggregator, PartialAggregates};
use strandline_core::stream::cells::ColView;
use strandline_core::stream::fill::{cell_at, evaluate};
use strandline_core::stream::memtable::Run;
use strandline_core::stream::merge::{CellRef, SliceRef};
use strandline_core::stream::select::{Selector, Verdict, verdict};
use strandline_core::value::Kind;

/// Numbers that are sorted without a break.
const SORT_AT_ONCE: usize = 4096;

/// What has to be done with a block.
pub(super) enum Step {
    /// Nothing: no row of it passes.
    RuledOut,
    /// Statistics answer all of it.
    Statistics,
    /// Some of it is read.
    Read {
        /// Its rows have to be asked the condition.
        select: bool,
        /// Which of the aggregator's channels are read; statistics answer the others.
        unread: Vec<usize>,
        /// Its rows have to be counted by their times.
        count: bool,
    },
}

/// One aggregate query on its way over the sources of a shard.
pub(super) struct Pass<'q> {
    agg: Aggregator,
    filter: Option<&'q RowFilter>,
    selector: Option<Selector>,
    range: TsRange,
    /// What is read of rows that are merged: the channels of the aggregates, then those of the condition, then
    /// all others if rows count that have no cell of either. Each once.
    channels: Vec<(ColumnId, Kind)>,
    /// Where the channels of the condition stand among them.
    filter_at: Vec<usize>,
    /// A row counts although it has no cell of a channel that is named.
    any_row: bool,
    /// Blocks that were looked at; those of several entities are, once for each that is asked for.
    seen: HashSet<(SegmentId, usize)>,
}

impl<'q> Pass<'q> {
    pub(super) fn new(
        agg: Aggregator,
        query: &'q StreamAggregate,
        live: &[(ColumnId, Kind)],
    ) -> Self {
        let filter = query.filter.as_ref();
        let any_row = agg.counts_rows() && filter.is_none_or(|f| f.predicate.holds_of_nulls());
        let mut channels = agg.channels().to_vec();
        let mut place = |c: (ColumnId, Kind)| {
            channels
                .iter()
                .position(|known| *known == c)
                .unwrap_or_else(|| {
                    channels.push(c);
                    channels.len() - 1
                })
        };
        let named = filter.map_or(&[][..], |f| &f.channels);
        let filter_at = named.iter().map(|&c| place(c)).collect();
        if any_row {
            live.iter().for_each(|&c| {
                place(c);
            });
        }
        Pass {
            agg,
            selector: filter.map(Selector::new),
            filter,
            range: query.range.since(query.floor),
            channels,
            filter_at,
            any_row,
            seen: HashSet::new(),
        }
    }

    /// Whether rows, not samples alone, decide the answer: then they must be whole before they are looked at.
    fn needs_rows(&self, dedup: bool) -> bool {
        // Each sample of one channel is in one row, whatever else that row has.
        let one_channel = self.channels.len() == 1 && !self.any_row;
        dedup || self.any_row || (self.filter.is_some() && !one_channel)
    }

    fn inside(&self, from: i64, to: i64) -> bool {
        self.range.contains(from) && self.range.contains(to) && self.agg.same_bucket(from, to)
    }

    /// What has to be done with a block, of which one entity's rows are wanted or all.
    pub(super) fn step(&self, meta: &BlockMeta, live: bool, only: bool) -> Step {
        let verdict = self.filter.map_or(Verdict::Always, |f| verdict(f, meta));
        if verdict == Verdict::Never {
            return Step::RuledOut;
        }
        let select = verdict == Verdict::Open;
        let single = only_entity(meta).is_some();
        // All rows of the block go into one group.
        let one_group =
            self.inside(meta.range.0, meta.range.1) && (single || (!only && !self.agg.by_entity()));
        let mut unread = Vec::new();
        for (c, &(id, kind)) in self.agg.channels().iter().enumerate() {
            let Some(chunk) = meta.chunk(id) else {
                continue;
            };
            let wants = self.agg.wants(c);
            let edges = chunk.edges_ts.filter(|_| single);
            let constant = chunk.stats.is_some_and(|s| s.min == s.max);
            let enough = !wants.values
                || (kind == Kind::F64
                    && chunk.stats.is_some()
                    && (!wants.edges || edges.is_some())
                    && !(wants.exact || wants.approx)
                    && (!wants.moments || constant));
            if select || !one_group || !enough {
                unread.push(c);
            }
        }
        let count = self.agg.counts_rows() && (select || !one_group || (self.any_row && !live));
        if unread.is_empty() && !count {
            Step::Statistics
        } else {
            Step::Read {
                select,
                unread,
                count,
            }
        }
    }

    /// Adds the rows of one block: of one entity, or of all.
    async fn block(
        &mut self,
        snapshot: &Snapshot,
        segment: &Segment,
        block: usize,
        only: Option<&EntityRef>,
    ) -> Result<()> {
        let meta = &segment.blocks(0)[block];
        let live = all_live(snapshot, meta.chunks.iter().map(|c| c.id));
        let step = self.step(meta, live, only.is_some());
        let counters = self.agg.counters();
        match step {
            Step::RuledOut => counters.blocks_ruled_out += 1,
            Step::Statistics => counters.blocks_from_statistics += 1,
            Step::Read { .. } => {
                counters.blocks_decoded += 1;
                counters.rows_read += u64::from(meta.rows);
            }
        }
        if !matches!(step, Step::RuledOut) {
            self.seen.insert((segment.id(), block));
        }
        match step {
            Step::RuledOut => Ok(()),
            Step::Statistics => self.statistics(meta, &[], true),
            Step::Read {
                select,
                unread,
                count,
            } => {
                if !select {
                    self.statistics(meta, &unread, self.agg.counts_rows() && !count)?;
                }
                self.read_block(
                    snapshot,
                    segment,
                    block,
                    only,
                    (select, live),
                    (unread, count),
                )
                .await
            }
        }
    }

    /// Adds what statistics say of a block whose rows go into one group, but of the `unread` channels.
    fn statistics(&mut self, meta: &BlockMeta, unread: &[usize], count: bool) -> Result<()> {
        let single = only_entity(meta);
        let mut number = None;
        for c in 0..self.agg.channels().len() {
            let Some(chunk) = meta.chunk(self.agg.channels()[c].0) else {
                continue;
            };
            if unread.contains(&c) {
                continue;
            }
            let number = self.group_of(&mut number, single);
            let edges = chunk.edges_ts.filter(|_| single.is_some());
            let rows = u64::from(chunk.count);
            let stats = chunk.stats.as_ref();
            self.agg
                .add_stats(number, meta.range.0, c, rows, stats, edges)?;
        }
        if count && self.agg.counts_rows() {
            let number = self.group_of(&mut number, single);
            self.agg
                .add_rows(number, meta.range.0, u64::from(meta.rows))?;
        }
        Ok(())
    }

    fn group_of(&mut self, known: &mut Option<u32>, single: Option<&[u8]>) -> u32 {
        *known.get_or_insert_with(|| {
            let name = single.unwrap_or(b"");
            let hash = if self.agg.by_entity() {
                hash64(name)
            } else {
                0
            };
            self.agg.entity(name, hash)
        })
    }

    async fn read_block(
        &mut self,
        snapshot: &Snapshot,
        segment: &Segment,
        block: usize,
        only: Option<&EntityRef>,
        (select, live): (bool, bool),
        (unread, count): (Vec<usize>, bool),
    ) -> Result<()> {
        let meta = &segment.blocks(0)[block];
        let own = self.agg.channels();
        let mut wanted: Vec<(ColumnId, Kind)> = unread.iter().map(|&c| own[c]).collect();
        let named = self
            .filter
            .filter(|_| select)
            .map_or(&[][..], |f| &f.channels);
        wanted.extend(named);
        let check_present = count && self.any_row && !live;
        let own_and_named = wanted.len();
        if check_present {
            wanted.extend(snapshot.live_channels());
        }
        let unit = load(segment, block, &wanted).await?;
        let all = unit.views();
        let mut views = vec![None; own.len()];
        for (&c, view) in unread.iter().zip(&all) {
            views[c] = *view;
        }
        let single = only.map(|e| &e.name[..]).or(only_entity(meta));
        let rows = match single {
            Some(name) => unit.clip(unit.rows_of(name), self.range),
            None => 0..unit.ts().len(),
        };
        let part = UnitPart {
            unit: &unit,
            views: &views,
            named: &all[unread.len()..own_and_named],
            // Of any channel that the table still has; empty: every row counts.
            present: if check_present {
                &all[own_and_named..]
            } else {
                &[]
            },
            select,
            count,
        };
        let by_entity = self.agg.by_entity();
        match (single, unit.entity_runs()) {
            (Some(name), _) => {
                let number = self
                    .agg
                    .entity(name, if by_entity { hash64(name) } else { 0 });
                self.ordered(&part, rows.clone(), std::iter::once((number, rows)))
            }
            (None, Some((names, ends))) => {
                let edges = (0..views.len()).any(|c| self.agg.wants(c).edges);
                if !by_entity && !edges && self.inside(meta.range.0, meta.range.1) {
                    return self.unordered(&part, meta.range.0);
                }
                let mut numbers = Vec::with_capacity(names.len());
                for n in 0..names.len() {
                    let rows = unit.clip(run_rows(ends, n), self.range);
                    if !rows.is_empty() {
                        // Without groups by entity the name does not matter, and hashing it would be most of
                        // the work.
                        let name = names.get_bytes(n);
                        let hash = if by_entity { hash64(name) } else { 0 };
                        numbers.push((self.agg.entity(name, hash), rows));
                    }
                }
                self.ordered(&part, rows, numbers.into_iter())
            }
            (None, None) => Ok(()),
        }
    }

    /// Adds rows of entities, each of which is in order of ts. `rows` holds all of them.
    fn ordered(
        &mut self,
        part: &UnitPart<'_>,
        rows: Range<usize>,
        entities: impl Iterator<Item = (u32, Range<usize>)>,
    ) -> Result<()> {
        let ts = part.unit.ts();
        if let (true, Some(selector)) = (part.select, &mut self.selector) {
            let mut selected = selector.select(rows.clone(), part.named);
            if !part.present.is_empty() {
                selected = selector.retain_present(rows, part.present);
            }
            for (number, rows) in entities {
                self.agg
                    .add_selected(number, ts, rows, part.views, &selected)?;
            }
            return Ok(());
        }
        for (number, rows) in entities {
            self.agg
                .add(number, &ts[rows.clone()], rows.start, part.views)?;
            if part.count {
                if part.present.is_empty() {
                    self.agg.add_row_times(number, &ts[rows])?;
                } else {
                    let times = ts_with_cells(ts, rows, part.present);
                    self.agg.add_row_times(number, &times)?;
                }
            }
        }
        Ok(())
    }

    /// Adds all rows of a unit, which go into the group of `any_ts`, where their order does not matter.
    fn unordered(&mut self, part: &UnitPart<'_>, any_ts: i64) -> Result<()> {
        let ts = part.unit.ts();
        let entity = self.agg.entity(b"", 0);
        if let (true, Some(selector)) = (part.select, &mut self.selector) {
            let mut selected = selector.select(0..ts.len(), part.named);
            if !part.present.is_empty() {
                selected = selector.retain_present(0..ts.len(), part.present);
            }
            return (self.agg).add_selected_unordered(entity, any_ts, ts, part.views, &selected);
        }
        self.agg.add_unordered(entity, any_ts, ts, part.views)?;
        if part.count {
            let rows = if part.present.is_empty() {
                ts.len()
            } else {
                ts_with_cells(ts, 0..ts.len(), part.present).len()
            };
            self.agg.add_rows(entity, any_ts, rows as u64)?;
        }
        Ok(())
    }

    /// Adds rows of a run: those of one entity, or of all.
    fn run(
        &mut self,
        table: &StreamTable,
        snapshot: &Snapshot,
        run: &Run,
        unit: &Unit,
        only: Option<(&EntityRef, Range<usize>)>,
    ) -> Result<()> {
        let all = unit.views();
        let own = self.agg.channels().len();
        let named: Vec<Option<ColView<'_>>> = self.filter_at.iter().map(|&at| all[at]).collect();
        let count = self.agg.counts_rows();
        let live = !self.any_row || all_live(snapshot, run.channels());
        let part = UnitPart {
            unit,
            views: &all[..own],
            named: &named,
            present: if live { &[] } else { &all },
            select: self.filter.is_some(),
            count,
        };
        if let Some((e, rows)) = only {
            let number = self.agg.entity(&e.name, e.hash);
            let rows = unit.clip(rows, self.range);
            self.agg.counters().rows_read += rows.len() as u64;
            return self.ordered(&part, rows.clone(), std::iter::once((number, rows)));
        }
        let r = run.range();
        self.agg.counters().rows_read += run.rows() as u64;
        let edges = (0..own).any(|c| self.agg.wants(c).edges);
        if !edges && !self.agg.by_entity() && self.inside(r.from, r.to) {
            if part.select {
                return self.unordered(&part, r.from);
            }
            // A channel of which the run's statistics say all is not looked at.
            let mut views = part.views.to_vec();
            for c in (0..own).filter(|&c| all[c].is_some()) {
                if self.agg.wants(c).each_sample() {
                    continue;
                }
                let Some((count, stats)) = run.stats(self.agg.channels()[c].0) else {
                    continue;
                };
                let entity = self.agg.entity(b"", 0);
                (self.agg).add_stats(entity, r.from, c, count, Some(&stats), None)?;
                views[c] = None;
            }
            let part = UnitPart {
                views: &views,
                ..part
            };
            return self.unordered(&part, r.from);
        }
        let mut entities = Vec::with_capacity(run.entity_count());
        for (id, rows) in run.entities() {
            let rows = unit.clip(rows, self.range);
            if !rows.is_empty() {
                entities.push((table.number(&mut self.agg, id), rows));
            }
        }
        self.ordered(&part, 0..run.rows(), entities.into_iter())
    }

    /// Adds the rows of one entity that stand in several sources.
    async fn merged(
        &mut self,
        table: &StreamTable,
        reader: &mut Reader,
        e: &EntityRef,
        range: TsRange,
    ) -> Result<()> {
        let range = range.intersect(self.range);
        if range.is_empty() {
            return Ok(());
        }
        let own = self.agg.channels().len();
        let count = self.agg.counts_rows();
        let number = self.agg.entity(&e.name, e.hash);
        let agg = &mut self.agg;
        agg.counters().merged_stretches += 1;
        let (filter, at) = (self.filter, &self.filter_at);
        let mut keep = |_: i64, cells: &[CellRef], slices: &[SliceRef<'_>]| {
            filter.is_none_or(|f| {
                let cell = |c: usize| cell_at(slices, at[c], cells[at[c]]);
                evaluate(&f.predicate, &cell) == Some(true)
            })
        };
        let mut out = |ts: &[i64], views: &[Option<ColView<'_>>]| {
            agg.counters().rows_read += ts.len() as u64;
            agg.add(number, ts, 0, &views[..own])?;
            if count {
                agg.add_row_times(number, ts)?;
            }
            Ok(())
        };
        table
            .merged_rows(reader, e, range, &mut keep, &mut out)
            .await
    }
}

/// Columns of a unit, and what is to be done with its rows.
struct UnitPart<'u> {
    unit: &'u Unit,
    /// The aggregator's channels.
    views: &'u [Option<ColView<'u>>],
    /// The condition's channels.
    named: &'u [Option<ColView<'u>>],
    /// Only rows with a cell in one of these are rows of the table; empty: all are.
    present: &'u [Option<ColView<'u>>],
    select: bool,
    count: bool,
}

impl StreamTable {
    /// This shard's part of an aggregate query.
    ///
    /// # Errors
    /// `54000` for too many buckets, or too many numbers of an exact percentile; `XX001` for a damaged block,
    /// I/O errors.
    pub async fn aggregate(&self, query: &StreamAggregate) -> Result<PartialAggregates> {
        let agg = Aggregator::new(query, &self.cx.limits);
        if self.is_mutable() {
            return self.aggregate_state(query, agg).await;
        }
        let range = query.range.since(query.floor);
        if range.is_empty() {
            return Ok(agg.finish());
        }
        self.check_damage(&query.entities, range)?;
        let entities = match &query.entities {
            // Sources are gone through one by one: no order of entities is needed.
            Entities::All => EntityList::All(Default::default()),
            some => self.entity_list(some).await,
        };
        let def = self.def();
        let mut pass = Pass::new(agg, query, &live_channels(&def));
        // A row of dropped channels is none: where every row counts, they must be seen.
        let copied = (!pass.any_row).then_some(&pass.channels[..]);
        let snapshot = self.snapshot(&entities, range, copied);
        *pass.agg.counters() = snapshot.counters();
        let rows = pass.needs_rows(def.options.dedup);
        let mut reader = Reader::new(snapshot.clone(), pass.channels.clone());
        match (entities.is_all(), rows) {
            (true, false) => self.all_samples(&mut pass, &reader).await?,
            (true, true) => self.all_rows(&mut pass, &mut reader).await?,
            (false, rows) => {
                for n in 0..entities.len() {
                    if let Some(e) = self.entity_ref(&entities, n) {
                        if rows {
                            self.entity_rows(&mut pass, &mut reader, &e).await?;
                        } else {
                            self.entity_samples(&mut pass, &mut reader, &e).await?;
                        }
                        self.env.breathe().await;
                    }
                }
            }
        }
        // What the merge has read stands with the reader.
        pass.seen.extend(reader.seen());
        let segments: HashSet<SegmentId> = pass.seen.iter().map(|s| s.0).collect();
        let counters = pass.agg.counters();
        counters.blocks_visited = pass.seen.len() as u64;
        counters.segments_visited = segments.len() as u64;
        counters.blocks_decoded += reader.counters().blocks_decoded;
        let mut done = pass.agg.finish();
        self.sort_samples(&mut done).await;
        Ok(done)
    }

    async fn all_samples(&self, pass: &mut Pass<'_>, reader: &Reader) -> Result<()> {
        let snapshot = &reader.snapshot;
        for segment in snapshot.segments.iter() {
            self.all_blocks(pass, snapshot, segment, &|_| true).await?;
        }
        for (run, unit) in snapshot.runs.iter().zip(&reader.units) {
            pass.run(self, snapshot, run, unit, None)?;
            self.env.breathe().await;
        }
        Ok(())
    }

    async fn all_rows(&self, pass: &mut Pass<'_>, reader: &mut Reader) -> Result<()> {
        let snapshot = reader.snapshot.clone();
        let overlap = self.overlap_of_all(&snapshot, pass.range).await?;
        for (n, segment) in snapshot.segments.iter().enumerate() {
            self.all_blocks(pass, &snapshot, segment, &|b| overlap.block_alone(n, b))
                .await?;
        }
        for (n, run) in snapshot.runs.iter().enumerate() {
            if overlap.run_alone(n) {
                pass.run(self, &snapshot, run, &reader.units[n], None)?;
                self.env.breathe().await;
            }
        }
        if overlap.is_empty() {
            return Ok(());
        }
        reader.index(&self.env).await;
        for (id, ranges) in overlap.merged() {
            let Some(e) = self.entity_of(*id) else {
                continue;
            };
            for &range in ranges {
                pass.merged(self, reader, &e, range).await?;
            }
        }
        Ok(())
    }

    async fn all_blocks(
        &self,
        pass: &mut Pass<'_>,
        snapshot: &Snapshot,
        segment: &Segment,
        alone: &dyn Fn(usize) -> bool,
    ) -> Result<()> {
        for (block, meta) in segment.blocks(0).iter().enumerate() {
            let within = meta.range.1 >= pass.range.from && meta.range.0 <= pass.range.to;
            if within && alone(block) {
                pass.block(snapshot, segment, block, None).await?;
            }
            // Some blocks are read and decoded: eight of them take about as long as a time slice.
            if block % 8 == 0 {
                self.env.breathe().await;
            }
        }
        Ok(())
    }

    async fn entity_samples(
        &self,
        pass: &mut Pass<'_>,
        reader: &mut Reader,
        e: &EntityRef,
    ) -> Result<()> {
        let snapshot = reader.snapshot.clone();
        for r in &mut reader.readers {
            let segment = r.segment.clone();
            let (from, to) = segment.info().range;
            if to < pass.range.from || from > pass.range.to || !segment.may_contain(e.hash) {
                continue;
            }
            for block in r.blocks_of(&e.name, pass.range) {
                pass.block(&snapshot, &segment, block, Some(e)).await?;
                self.env.breathe().await;
            }
        }
        for (n, rows) in reader.memory_rows(e.id) {
            let run = &snapshot.runs[n];
            pass.run(self, &snapshot, run, &reader.units[n], Some((e, rows)))?;
        }
        Ok(())
    }

    async fn entity_rows(
        &self,
        pass: &mut Pass<'_>,
        reader: &mut Reader,
        e: &EntityRef,
    ) -> Result<()> {
        let snapshot = reader.snapshot.clone();
        let overlap = self
            .overlap_of_entity(reader, e, Some(e.hash), pass.range)
            .await?;
        for alone in overlap.alone {
            match alone {
                Alone::Block { segment, block } => {
                    let segment = &snapshot.segments[segment];
                    pass.block(&snapshot, segment, block, Some(e)).await?;
                    self.env.breathe().await;
                }
                Alone::Run { run, rows } => {
                    let unit = &reader.units[run];
                    pass.run(self, &snapshot, &snapshot.runs[run], unit, Some((e, rows)))?;
                }
            }
        }
        for range in overlap.merged {
            pass.merged(self, reader, e, range).await?;
        }
        Ok(())
    }

    /// Percentiles look for ranks among sorted numbers.
    pub(super) async fn sort_samples(&self, done: &mut PartialAggregates) {
        let mut since = 0;
        for part in done.unsorted() {
            if part.len() > SORT_AT_ONCE {
                sort_slowly(&self.env, part, f64::total_cmp).await;
                continue;
            }
            part.sort_unstable_by(f64::total_cmp);
            since += part.len() + 1;
            if since > SORT_AT_ONCE {
                since = 0;
                self.env.breathe().await;
            }
        }
    }

    /// The aggregator's number of an entity of the dictionary.
    pub(super) fn number(&self, agg: &mut Aggregator, id: u32) -> u32 {
        if !agg.by_entity() {
            return agg.entity(b"", 0);
        }
        let state = self.state.borrow();
        let name = state.dictionary.name(id);
        agg.entity(name, hash64(name))
    }
}
