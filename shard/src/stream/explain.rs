//! What a read would look at, by footers and lists of sources alone. Where sources overlap in time, rows may
//! turn out to have to be merged: only the run itself tells.

use super::aggregate::{Pass, Step};
use super::snapshot::{Snapshot, live_channels};
use super::source::Reader;
use super::{EntityList, StreamTable, all_live};
use strandline_core::profile::ScanCounters;
use strandline_core::scan::{Entities, LatestScan, StreamAggregate, StreamScan, TsRange};
use strandline_core::stream::bucket::Aggregator;

impl StreamTable {
    /// Of a scan.
    pub async fn explain_scan(&self, scan: &StreamScan) -> ScanCounters {
        if self.is_mutable() {
            return self.explain_tails(&scan.entities).await;
        }
        self.explain_blocks(&scan.entities, scan.range.since(scan.floor))
            .await
    }

    /// Of the device shadow.
    pub async fn explain_latest(&self, scan: &LatestScan) -> ScanCounters {
        let known = scan.until == i64::MAX && self.tails_hold() && self.tails_know(&scan.channels);
        if self.is_mutable() || known {
            return self.explain_tails(&scan.entities).await;
        }
        let range = TsRange {
            from: scan.from.max(scan.floor),
            to: scan.until,
        };
        self.explain_blocks(&scan.entities, range).await
    }

    async fn explain_tails(&self, entities: &Entities) -> ScanCounters {
        let tails = match entities {
            Entities::All => self.entities(),
            some => self.entity_list(some).await.len(),
        };
        ScanCounters {
            shards: 1,
            tails: tails as u64,
            ..ScanCounters::default()
        }
    }

    async fn explain_blocks(&self, entities: &Entities, range: TsRange) -> ScanCounters {
        let mut reader = self.explain_reader(entities, range).await;
        if range.is_empty() {
            return reader.0.counters();
        }
        self.each_block(&mut reader, range, &mut |_, _, _, _| {})
            .await;
        reader.0.counters()
    }

    /// Of an aggregate.
    pub async fn explain_aggregate(&self, query: &StreamAggregate) -> ScanCounters {
        if self.is_mutable() {
            return self.explain_tails(&query.entities).await;
        }
        let range = query.range.since(query.floor);
        let agg = Aggregator::new(query, &self.cx.limits);
        let pass = Pass::new(agg, query, &live_channels(&self.def()));
        let mut reader = self.explain_reader(&query.entities, range).await;
        let (mut ruled_out, mut statistics) = (0, 0);
        if !range.is_empty() {
            self.each_block(&mut reader, range, &mut |snapshot, segment, block, only| {
                let meta = &snapshot.segments[segment].blocks(0)[block];
                let live = all_live(snapshot, meta.chunks.iter().map(|c| c.id));
                match pass.step(meta, live, only) {
                    Step::RuledOut => ruled_out += 1,
                    Step::Statistics => statistics += 1,
                    Step::Read { .. } => {}
                }
            })
            .await;
        }
        let mut counters = reader.0.counters();
        counters.blocks_ruled_out = ruled_out;
        counters.blocks_from_statistics = statistics;
        counters.blocks_visited = counters.blocks_visited.saturating_sub(ruled_out);
        counters
    }

    async fn explain_reader(&self, entities: &Entities, range: TsRange) -> (Reader, EntityList) {
        let list = match entities {
            Entities::All => EntityList::All(Default::default()),
            some => self.entity_list(some).await,
        };
        let snapshot = self.snapshot(&list, range, Some(&[]));
        (Reader::new(snapshot, Vec::new()), list)
    }

    /// Calls `f` with every block that may hold rows of the read, each once: its segment, its number, and
    /// whether the rows of single entities are looked for in it.
    async fn each_block(
        &self,
        (reader, entities): &mut (Reader, EntityList),
        range: TsRange,
        f: &mut dyn FnMut(&Snapshot, usize, usize, bool),
    ) {
        let snapshot = reader.snapshot.clone();
        for n in 0..reader.readers.len() {
            let segment = snapshot.segments[n].clone();
            let (from, to) = segment.info().range;
            if to < range.from || from > range.to {
                continue;
            }
            if entities.is_all() {
                for (block, meta) in segment.blocks(0).iter().enumerate() {
                    if meta.range.1 >= range.from && meta.range.0 <= range.to {
                        reader.readers[n].visit(block..block + 1);
                        f(&snapshot, n, block, false);
                    }
                    if block % 256 == 0 {
                        self.env.breathe().await;
                    }
                }
                continue;
            }
            let mut found = Vec::new();
            for e in 0..entities.len() {
                if let Some(e) = self.entity_ref(entities, e)
                    && segment.may_contain(e.hash)
                {
                    found.extend(reader.readers[n].blocks_of(&e.name, range));
                }
                if e % 256 == 0 {
                    self.env.breathe().await;
                }
            }
            found.sort_unstable();
            found.dedup();
            for block in found {
                reader.readers[n].visit(block..block + 1);
                f(&snapshot, n, block, true);
            }
        }
    }
}
