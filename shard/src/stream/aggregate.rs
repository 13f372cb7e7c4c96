//! Aggregates over stored samples. Samples need no putting together: each source adds its own, blocks that
//! lie whole inside range and bucket by their statistics. Only `count(*)` must know which fragments are one
//! row; see `count`.

use super::StreamTable;
use super::keys::only_entity;
use super::source::{Reader, load, run_rows};
use crate::segment::Segment;
use strandline_core::error::Result;
use strandline_core::ids::ColumnId;
use strandline_core::routing::hash64;
use strandline_core::scan::{StreamAggregate, TsRange};
use strandline_core::stream::bucket::{Aggregator, PartialAggregates};
use strandline_core::value::Kind;

impl StreamTable {
    /// This shard's part of an aggregate query.
    ///
    /// # Errors
    /// `54000` for too many buckets, `XX001` for a damaged block, I/O errors.
    pub async fn aggregate(&self, query: &StreamAggregate) -> Result<PartialAggregates> {
        let mut agg = Aggregator::new(query, &self.cx.limits);
        let range = query.range;
        if range.is_empty() {
            return Ok(agg.finish());
        }
        let entities = match &query.entities {
            // Sources are gone through one by one: no order of entities is needed.
            strandline_core::scan::Entities::All => super::EntityList::All(Default::default()),
            some => self.entity_list(some).await,
        };
        let channels = agg.channels().to_vec();
        let copied = (!agg.counts_rows()).then_some(&channels[..]);
        let snapshot = self.snapshot(&entities, range, copied);
        if !channels.is_empty() {
            let mut reader = Reader::new(snapshot.clone(), channels);
            if entities.is_all() {
                self.all_samples(&mut agg, &reader, range).await?;
            } else {
                for n in 0..entities.len() {
                    let Some(e) = self.entity_ref(&entities, n) else {
                        continue;
                    };
                    let number = agg.entity(&e.name, e.hash);
                    for r in &mut reader.readers {
                        let segment = r.segment.clone();
                        let (from, to) = segment.info().range;
                        if to < range.from || from > range.to || !segment.may_contain(e.hash) {
                            continue;
                        }
                        for block in r.blocks_of(&e.name, range) {
                            block_samples(&mut agg, &segment, block, Some(&e.name), range).await?;
                            self.env.breathe().await;
                        }
                    }
                    for (run, rows) in reader.memory_rows(e.id) {
                        let unit = &reader.units[run];
                        let rows = unit.clip(rows, range);
                        agg.add(number, &unit.ts()[rows.clone()], rows.start, &unit.views())?;
                    }
                    self.env.breathe().await;
                }
            }
        }
        if agg.counts_rows() {
            self.count_rows(&mut agg, &snapshot, &entities, range)
                .await?;
        }
        Ok(agg.finish())
    }

    async fn all_samples(
        &self,
        agg: &mut Aggregator,
        reader: &Reader,
        range: TsRange,
    ) -> Result<()> {
        for r in &reader.readers {
            let segment = &r.segment;
            for (block, meta) in segment.blocks(0).iter().enumerate() {
                if meta.range.1 < range.from || meta.range.0 > range.to {
                    continue;
                }
                block_samples(agg, segment, block, None, range).await?;
                if block % 64 == 0 {
                    self.env.breathe().await;
                }
            }
        }
        let edges = (0..agg.channels().len()).any(|c| agg.wants_edges(c));
        for (run, unit) in reader.snapshot.runs.iter().zip(&reader.units) {
            let views = unit.views();
            let r = run.range();
            let whole = range.contains(r.from) && range.contains(r.to);
            if whole && !edges && !agg.by_entity() && agg.same_bucket(r.from, r.to) {
                // All of it goes into one group, where the order of rows does not matter.
                let entity = agg.entity(b"", 0);
                agg.add_unordered(entity, r.from, unit.ts(), &views)?;
                self.env.breathe().await;
                continue;
            }
            let mut rows_done = 0;
            for (id, rows) in run.entities() {
                let number = self.number(agg, id);
                let rows = unit.clip(rows, range);
                if !rows.is_empty() {
                    agg.add(number, &unit.ts()[rows.clone()], rows.start, &views)?;
                }
                rows_done += rows.len() + 8;
                if rows_done > 4096 {
                    rows_done = 0;
                    self.env.breathe().await;
                }
            }
        }
        Ok(())
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

/// Adds the samples of one block: of one entity, or of all.
async fn block_samples(
    agg: &mut Aggregator,
    segment: &Segment,
    block: usize,
    only: Option<&[u8]>,
    range: TsRange,
) -> Result<()> {
    let meta = &segment.blocks(0)[block];
    let single = only_entity(meta);
    let inside = range.contains(meta.range.0)
        && range.contains(meta.range.1)
        && agg.same_bucket(meta.range.0, meta.range.1);
    // All rows of the block go into one group.
    let one_group = inside && (single.is_some() || (only.is_none() && !agg.by_entity()));
    let channels = agg.channels().to_vec();
    let mut unread: Vec<(ColumnId, Kind)> = Vec::new();
    let mut places = Vec::new();
    for (c, &(id, kind)) in channels.iter().enumerate() {
        let Some(chunk) = meta.chunk(id) else {
            continue;
        };
        let edges = chunk.edges_ts.filter(|_| single.is_some());
        let enough = !agg.wants_values(c)
            || (kind == Kind::F64
                && chunk.stats.is_some()
                && (!agg.wants_edges(c) || edges.is_some()));
        if one_group && enough {
            let name = single.unwrap_or(b"");
            let number = agg.entity(name, hash64(name));
            let count = u64::from(chunk.count);
            agg.add_stats(number, meta.range.0, c, count, chunk.stats.as_ref(), edges)?;
        } else {
            unread.push((id, kind));
            places.push(c);
        }
    }
    if unread.is_empty() {
        return Ok(());
    }
    let unit = load(segment, block, &unread).await?;
    let mut views = vec![None; channels.len()];
    for (view, c) in unit.views().into_iter().zip(places) {
        views[c] = view;
    }
    match (only.or(single), unit.entity_runs()) {
        (Some(name), _) => {
            let number = agg.entity(name, hash64(name));
            let rows = unit.clip(unit.rows_of(name), range);
            agg.add(number, &unit.ts()[rows.clone()], rows.start, &views)
        }
        (None, Some((names, ends))) => {
            for n in 0..names.len() {
                let rows = unit.clip(run_rows(ends, n), range);
                if rows.is_empty() {
                    continue;
                }
                let name = names.get_bytes(n);
                // Without groups by entity the name does not matter, and hashing it would be most of the work.
                let hash = if agg.by_entity() { hash64(name) } else { 0 };
                let number = agg.entity(name, hash);
                agg.add(number, &unit.ts()[rows.clone()], rows.start, &views)?;
            }
            Ok(())
        }
        (None, None) => Ok(()),
    }
}
