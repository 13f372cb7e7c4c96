//! `count(*)`: rows after fragments of one (entity, ts) are put together. Within one source they are
//! already, so a source counts by its block statistics, unless another one has rows of the same entity at
//! overlapping times: those entities are merged and counted exactly.

use super::keys::{only_entity, split_key};
use super::snapshot::Snapshot;
use super::source::{Reader, Unit, load, run_rows, window_slices, window_views};
use super::{EntityList, EntityRef, StreamTable, all_live, ts_with_cells};
use crate::segment::Segment;
use hashbrown::{HashMap, HashSet};
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::routing::hash64;
use strandline_core::scan::TsRange;
use strandline_core::stream::bucket::Aggregator;
use strandline_core::stream::memtable::Run;
use strandline_core::stream::merge::{CellRef, EntityMerge};

/// Entities whose rows stand in several sources at overlapping times, and for each what is known of it.
#[derive(Default)]
struct Overlaps {
    /// Smallest and largest ts over the sources so far. Only ever looked up by key.
    seen: HashMap<u32, (i64, i64)>,
    found: HashSet<u32>,
}

impl Overlaps {
    fn note(&mut self, id: u32, first: i64, last: i64) {
        let seen = self.seen.entry(id).or_insert((i64::MAX, i64::MIN));
        if first <= seen.1 && seen.0 <= last {
            self.found.insert(id);
        }
        *seen = (seen.0.min(first), seen.1.max(last));
    }
}

impl StreamTable {
    /// Adds the rows of a range to `count(*)`.
    pub(super) async fn count_rows(
        &self,
        agg: &mut Aggregator,
        snapshot: &Snapshot,
        entities: &EntityList,
        range: TsRange,
    ) -> Result<()> {
        if let EntityList::In(_) = entities {
            for n in 0..entities.len() {
                if let Some(e) = self.entity_ref(entities, n) {
                    self.count_entity(agg, snapshot, &e, range).await?;
                }
            }
            return Ok(());
        }
        // Sources whose times overlap, directly or through others, are looked at together.
        let ranges = snapshot.ranges();
        let mut order: Vec<usize> = (0..ranges.len())
            .filter(|&i| !ranges[i].intersect(range).is_empty())
            .collect();
        order.sort_by_key(|&i| ranges[i].from);
        let mut start = 0;
        while start < order.len() {
            let (mut end, mut to) = (start, i64::MIN);
            while end < order.len() && (end == start || ranges[order[end]].from <= to) {
                to = to.max(ranges[order[end]].to);
                end += 1;
            }
            let mut together = order[start..end].to_vec();
            together.sort_unstable();
            self.count_sources(agg, snapshot.only(&together), range)
                .await?;
            start = end;
        }
        Ok(())
    }

    async fn count_sources(
        &self,
        agg: &mut Aggregator,
        snapshot: Snapshot,
        range: TsRange,
    ) -> Result<()> {
        let mut overlaps = Overlaps::default();
        if snapshot.segments.len() + snapshot.runs.len() > 1 {
            for segment in snapshot.segments.iter() {
                self.note_segment(&mut overlaps, segment).await?;
            }
            for run in &snapshot.runs {
                let ts = Unit::of_run(run, &[]);
                for (id, rows) in run.entities() {
                    overlaps.note(id, ts.ts()[rows.start], ts.ts()[rows.end - 1]);
                }
                self.env.breathe().await;
            }
        }
        let apart = &overlaps.found;
        for segment in snapshot.segments.iter() {
            for (block, meta) in segment.blocks(0).iter().enumerate() {
                if meta.range.1 >= range.from && meta.range.0 <= range.to {
                    self.count_block(agg, &snapshot, segment, block, None, apart, range)
                        .await?;
                }
                if block % 64 == 0 {
                    self.env.breathe().await;
                }
            }
        }
        for run in &snapshot.runs {
            self.count_run(agg, &snapshot, run, apart, range)?;
            self.env.breathe().await;
        }
        if apart.is_empty() {
            return Ok(());
        }
        let mut ids: Vec<u32> = apart.iter().copied().collect();
        ids.sort_unstable();
        self.sort_by_name(&mut ids).await;
        let list = EntityList::All(Rc::new(ids));
        let channels = snapshot.live_channels();
        let mut reader = Reader::new(snapshot, channels);
        reader.index(&self.env).await;
        for n in 0..list.len() {
            if let Some(e) = self.entity_ref(&list, n) {
                self.count_merged(agg, &mut reader, &e, range).await?;
            }
        }
        Ok(())
    }

    async fn note_segment(&self, overlaps: &mut Overlaps, segment: &Segment) -> Result<()> {
        let mut current: Option<(Vec<u8>, i64, i64)> = None;
        let mut note = |name: &[u8], first: i64, last: i64| match &mut current {
            Some((known, _, to)) if known == name => *to = last,
            _ => {
                let before = current.replace((name.to_vec(), first, last));
                self.note_entity(overlaps, before);
            }
        };
        for (block, meta) in segment.blocks(0).iter().enumerate() {
            if let Some(name) = only_entity(meta) {
                note(
                    name,
                    split_key(&meta.first_key).1,
                    split_key(&meta.last_key).1,
                );
            } else {
                let unit = load(segment, block, &[]).await?;
                if let Some((names, ends)) = unit.entity_runs() {
                    for n in 0..names.len() {
                        let rows = run_rows(ends, n);
                        if !rows.is_empty() {
                            let (first, last) = (unit.ts()[rows.start], unit.ts()[rows.end - 1]);
                            note(names.get_bytes(n), first, last);
                        }
                    }
                }
            }
            self.env.breathe().await;
        }
        self.note_entity(overlaps, current);
        Ok(())
    }

    fn note_entity(&self, overlaps: &mut Overlaps, entity: Option<(Vec<u8>, i64, i64)>) {
        if let Some((name, first, last)) = entity
            && let Some(id) = self.state.borrow().dictionary.get(&name, hash64(&name))
        {
            overlaps.note(id, first, last);
        }
    }

    /// Counts the rows of one block, of one entity or of all but those in `apart`.
    #[allow(clippy::too_many_arguments)] // each says where to look; a struct would only rename them
    async fn count_block(
        &self,
        agg: &mut Aggregator,
        snapshot: &Snapshot,
        segment: &Segment,
        block: usize,
        only: Option<&[u8]>,
        apart: &HashSet<u32>,
        range: TsRange,
    ) -> Result<()> {
        let meta = &segment.blocks(0)[block];
        let is_apart = |name: &[u8]| {
            let id = || self.state.borrow().dictionary.get(name, hash64(name));
            !apart.is_empty() && id().is_some_and(|id| apart.contains(&id))
        };
        let single = only_entity(meta);
        if single.is_some_and(is_apart) {
            return Ok(());
        }
        let live = all_live(snapshot, meta.chunks.iter().map(|c| c.id));
        let inside = range.contains(meta.range.0)
            && range.contains(meta.range.1)
            && agg.same_bucket(meta.range.0, meta.range.1);
        let one_group =
            single.is_some() || (only.is_none() && !agg.by_entity() && apart.is_empty());
        if live && inside && one_group {
            let name = single.unwrap_or(b"");
            let number = agg.entity(name, hash64(name));
            return agg.add_rows(number, meta.range.0, u64::from(meta.rows));
        }
        let channels = if live {
            Vec::new()
        } else {
            snapshot.live_channels()
        };
        let unit = load(segment, block, &channels).await?;
        let views = unit.views();
        let mut add = |name: &[u8], rows: std::ops::Range<usize>| {
            let rows = unit.clip(rows, range);
            if rows.is_empty() {
                return Ok(());
            }
            let number = agg.entity(name, hash64(name));
            if live {
                agg.add_row_times(number, &unit.ts()[rows])
            } else {
                agg.add_row_times(number, &ts_with_cells(unit.ts(), rows, &views))
            }
        };
        match (only.or(single), unit.entity_runs()) {
            (Some(name), _) => add(name, unit.rows_of(name)),
            (None, Some((names, ends))) => {
                for n in 0..names.len() {
                    let name = names.get_bytes(n);
                    if !is_apart(name) {
                        add(name, run_rows(ends, n))?;
                    }
                }
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn count_run(
        &self,
        agg: &mut Aggregator,
        snapshot: &Snapshot,
        run: &Run,
        apart: &HashSet<u32>,
        range: TsRange,
    ) -> Result<()> {
        let live = all_live(snapshot, run.channels());
        let r = run.range();
        let inside =
            range.contains(r.from) && range.contains(r.to) && agg.same_bucket(r.from, r.to);
        if live && inside && !agg.by_entity() && apart.is_empty() {
            let number = agg.entity(b"", 0);
            return agg.add_rows(number, r.from, run.rows() as u64);
        }
        let channels = if live {
            Vec::new()
        } else {
            snapshot.live_channels()
        };
        let unit = Unit::of_run(run, &channels);
        let views = unit.views();
        for (id, rows) in run.entities() {
            let rows = unit.clip(rows, range);
            if rows.is_empty() || apart.contains(&id) {
                continue;
            }
            let number = self.number(agg, id);
            if live {
                agg.add_row_times(number, &unit.ts()[rows])?;
            } else {
                agg.add_row_times(number, &ts_with_cells(unit.ts(), rows, &views))?;
            }
        }
        Ok(())
    }

    /// Rows of one entity: by statistics when its sources follow each other in time, else merged.
    async fn count_entity(
        &self,
        agg: &mut Aggregator,
        snapshot: &Snapshot,
        e: &EntityRef,
        range: TsRange,
    ) -> Result<()> {
        let mut reader = Reader::new(snapshot.clone(), snapshot.live_channels());
        let mut spans: Vec<(i64, i64)> = Vec::new();
        let mut blocks = Vec::new();
        for (n, r) in reader.readers.iter_mut().enumerate() {
            let (from, to) = r.segment.info().range;
            if to < range.from || from > range.to || !r.segment.may_contain(e.hash) {
                continue;
            }
            let found = r.blocks_of(&e.name, range);
            let metas = &r.segment.blocks(0)[found.clone()];
            let (Some(first), Some(last)) = (metas.first(), metas.last()) else {
                continue;
            };
            // Of a block that begins or ends with another entity only the block's own range is known.
            let key_ts = |key: &[u8], other: i64| {
                let (name, ts) = split_key(key);
                if name == &e.name[..] { ts } else { other }
            };
            spans.push((
                key_ts(&first.first_key, first.range.0),
                key_ts(&last.last_key, last.range.1),
            ));
            blocks.push((n, found));
        }
        let memory = reader.memory_rows(e.id);
        for (run, rows) in &memory {
            let ts = &reader.units[*run].ts()[rows.clone()];
            spans.push((ts[0], ts[ts.len() - 1]));
        }
        spans.sort_unstable();
        if spans.windows(2).any(|w| w[1].0 <= w[0].1) {
            return self.count_merged(agg, &mut reader, e, range).await;
        }
        let none = HashSet::new();
        for (n, found) in blocks {
            let segment = reader.readers[n].segment.clone();
            for block in found {
                self.count_block(agg, snapshot, &segment, block, Some(&e.name), &none, range)
                    .await?;
                self.env.breathe().await;
            }
        }
        for (run, rows) in memory {
            let unit = &reader.units[run];
            let rows = unit.clip(rows, range);
            let number = agg.entity(&e.name, e.hash);
            agg.add_row_times(number, &ts_with_cells(unit.ts(), rows, &unit.views()))?;
        }
        Ok(())
    }

    async fn count_merged(
        &self,
        agg: &mut Aggregator,
        reader: &mut Reader,
        e: &EntityRef,
        range: TsRange,
    ) -> Result<()> {
        let channels = reader.channels.len();
        let mut cells = vec![CellRef::NONE; channels];
        let mut windows = reader.entity(&e.name, None, Some(e.id), range);
        let mut times = Vec::new();
        while let Some(window) = windows.next_window(reader).await? {
            let views = window_views(&window);
            let slices = window_slices(&window, &views);
            let mut merge = EntityMerge::new(&slices, channels);
            times.clear();
            while let Some(ts) = merge.next_row(&mut cells) {
                times.push(ts);
            }
            let number = agg.entity(&e.name, e.hash);
            agg.add_row_times(number, &times)?;
            self.env.breathe().await;
        }
        Ok(())
    }
}
