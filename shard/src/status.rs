//! What a shard says of itself, for `$sys` and `/metrics`.

use crate::api::{SegmentStatus, ShardStatus};
use crate::worker::{Shard, Store};

impl Shard {
    /// For `$sys.shards`.
    pub fn status(&self) -> ShardStatus {
        let tables = self.tables.borrow();
        let segments: Vec<_> = tables.values().flat_map(Store::segments).collect();
        let (active, frozen) = self.memtable_bytes();
        let wal = self.wal.stats();
        let us = &wal.commit_us;
        ShardStatus {
            shard: self.id,
            executor: self.executor,
            write_refusal: self.wal.failed().map(|e| e.message().to_string()),
            commits: wal.commits,
            records: wal.records,
            log_written_bytes: wal.bytes,
            log_bytes: self.wal.live_bytes(),
            commit_us: [
                us.len(),
                (us.mean() * us.len() as f64) as u64,
                us.value_at_quantile(0.5),
                us.value_at_quantile(0.99),
                us.max(),
            ],
            stream_rows: self.counters.stream_rows.get(),
            keyed_versions: self.counters.keyed_versions.get(),
            memtable_bytes: (active + frozen) as u64,
            tail_bytes: self.tail_bytes() as u64,
            name_bytes: self.name_bytes() as u64,
            tails_given_up: (tables.values())
                .map(|s| match s {
                    Store::Stream(t) => t.tails_given_up() as u64,
                    Store::Keyed(_) => 0,
                })
                .sum(),
            cache_bytes: self.cache.used_bytes() as u64,
            entities: tables
                .values()
                .map(|s| {
                    if let Store::Stream(t) = s {
                        t.entities() as u64
                    } else {
                        0
                    }
                })
                .sum(),
            damaged_segments: segments.iter().filter(|s| s.damage().is_some()).count() as u64
                + tables
                    .values()
                    .map(|s| s.damaged().segments().len() as u64)
                    .sum::<u64>(),
            segments: segments.len() as u64,
            segment_bytes: segments.iter().map(|s| s.bytes()).sum(),
            flushes: self.counters.flushes.get(),
            merges: self.counters.merges.get(),
            merge_debt_bytes: self.debt_bytes.get(),
            flushed_bytes: self.counters.flushed_bytes.get(),
            merge_read_bytes: self.counters.merge_read_bytes.get(),
            merge_written_bytes: self.counters.merge_written_bytes.get(),
            blocks_encoded: self.counters.blocks_encoded.get(),
            blocks_copied: self.counters.blocks_copied.get(),
            expired_segments: self.counters.expired_segments.get(),
            expired_bytes: self.counters.expired_bytes.get(),
            held_segments: self.trash.held.get(),
            writes_slowed: self.counters.writes_slowed.get(),
            slowed_us: self.counters.slowed_us.get(),
            slow_down_us: self.debt().delay().as_micros() as u64,
            writers_waiting: self.writers_waiting() as u64,
            messages: self.counters.messages.get(),
        }
    }

    /// For `$sys.segments`.
    pub fn segment_status(&self) -> Vec<SegmentStatus> {
        let tables = self.tables.borrow();
        let mut all = Vec::new();
        for (&table, store) in tables.iter() {
            all.extend(store.damaged().segments().iter().map(|d| SegmentStatus {
                shard: self.id,
                segment: d.id,
                table,
                rows: 0,
                bytes: d.bytes,
                blocks: 0,
                range: (0, 0),
                damage: Some(d.error.message().to_string()),
                unreadable: true,
                level: 0,
                bucket_days: None,
            }));
            for segment in store.segments() {
                let info = segment.info();
                all.push(SegmentStatus {
                    shard: self.id,
                    segment: segment.id(),
                    table,
                    rows: info.rows,
                    bytes: segment.bytes(),
                    blocks: segment.blocks(0).len() as u64,
                    range: info.range,
                    bucket_days: match store {
                        Store::Stream(t) => t.bucket_of(&segment).map(|b| b.days()),
                        Store::Keyed(_) => None,
                    },
                    damage: segment.damage().map(|e| e.message().to_string()),
                    unreadable: false,
                    level: (info.flushes.1 - info.flushes.0).min(u64::from(u32::MAX)) as u32,
                });
            }
        }
        all
    }
}
