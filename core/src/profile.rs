//! What a read looked at, counted as it goes and summed over the shards: the figures of EXPLAIN.

/// Figures of one read. EXPLAIN fills those that footers and lists tell without reading data; the run
/// itself fills all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCounters {
    /// Shards that were asked.
    pub shards: u64,
    /// Segments of the table on those shards.
    pub segments_total: u64,
    /// Segments that were looked into: their times overlap the range, and their filter did not rule the
    /// entities out.
    pub segments_visited: u64,
    /// Blocks of all segments of the table on those shards.
    pub blocks_total: u64,
    /// Blocks that could hold rows asked for, by entity, time and statistics.
    pub blocks_visited: u64,
    /// Of those, blocks that were answered by their statistics alone.
    pub blocks_from_statistics: u64,
    /// Of those, blocks that were decoded; one that is read twice counts twice.
    pub blocks_decoded: u64,
    /// Blocks that could not hold a row that passes the condition, by their statistics.
    pub blocks_ruled_out: u64,
    /// Sorted runs of the memtables, of which every one is in the snapshot.
    pub runs: u64,
    /// Rows of the runs and of the blocks that were decoded.
    pub rows_read: u64,
    /// Entities answered from the newest samples that are kept in memory.
    pub tails: u64,
    /// Stretches of time of single entities whose rows stood in several sources and were merged.
    pub merged_stretches: u64,
}

impl ScanCounters {
    /// Adds those of another pass over the same shard.
    pub fn add_pass(&mut self, other: &ScanCounters) {
        let before = *self;
        self.add(other);
        self.shards = before.shards.max(other.shards);
        self.segments_total = before.segments_total.max(other.segments_total);
        self.blocks_total = before.blocks_total.max(other.blocks_total);
        self.runs = before.runs.max(other.runs);
    }

    /// Adds those of another shard.
    pub fn add(&mut self, other: &ScanCounters) {
        let ScanCounters {
            shards,
            segments_total,
            segments_visited,
            blocks_total,
            blocks_visited,
            blocks_from_statistics,
            blocks_decoded,
            blocks_ruled_out,
            runs,
            rows_read,
            tails,
            merged_stretches,
        } = *other;
        self.shards += shards;
        self.segments_total += segments_total;
        self.segments_visited += segments_visited;
        self.blocks_total += blocks_total;
        self.blocks_visited += blocks_visited;
        self.blocks_from_statistics += blocks_from_statistics;
        self.blocks_decoded += blocks_decoded;
        self.blocks_ruled_out += blocks_ruled_out;
        self.runs += runs;
        self.rows_read += rows_read;
        self.tails += tails;
        self.merged_stretches += merged_stretches;
    }
}
