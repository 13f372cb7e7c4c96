//! What a read of a rows table would look at, by footers alone.

use super::snapshot::KeyedSnapshot;
use super::{BY_KEY, BY_REV};
use strandline_core::profile::ScanCounters;
use strandline_core::routing::hash64;
use strandline_core::scan::{KeyedFilter, KeyedScan};

impl KeyedSnapshot {
    /// Of a read. Blocks are those of the rows; a feed's are those of the order by x_rev.
    pub fn explain(&self, scan: &KeyedScan) -> ScanCounters {
        let section = if scan.feed.is_some() { BY_REV } else { BY_KEY };
        let mut counters = ScanCounters {
            shards: 1,
            segments_total: self.segments.len() as u64,
            runs: self.mems.len() as u64,
            ..ScanCounters::default()
        };
        for segment in &self.segments {
            let blocks = segment.blocks(section);
            counters.blocks_total += blocks.len() as u64;
            let visited = match (&scan.feed, &scan.filter) {
                (Some(feed), _) => {
                    let from = blocks.partition_point(|b| b.range.1 <= feed.after.0 as i64);
                    let rest = &blocks[from..];
                    rest.partition_point(|b| b.range.0 as u64 <= feed.until.0)
                }
                (None, Some(KeyedFilter::Nothing)) => 0,
                // The footers have the count.
                (None, None) if scan.count => 0,
                (None, Some(KeyedFilter::XidEq(xid))) => {
                    let key = xid.to_bytes();
                    let may = segment.may_contain(hash64(&key));
                    let at = blocks.partition_point(|b| b.last_key[..] < key[..]);
                    let there = blocks.get(at).is_some_and(|b| b.first_key[..] <= key[..]);
                    usize::from(may && there)
                }
                (None, _) => blocks.len(),
            };
            counters.blocks_visited += visited as u64;
            counters.segments_visited += u64::from(visited > 0);
        }
        counters
    }
}
