//! A shard's manifest: which segments are part of which table, and how much of the log they make needless.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strandline_core::ids::{Lsn, SegmentId, ShardId, TableId};

/// The kind that seals it.
pub const KIND: &str = "manifest";
/// Its name in the shard's directory.
pub const NAME: &str = "manifest";
/// The kind that seals a [`Fence`].
pub const FENCE_KIND: &str = "fence";
/// Its name in the shard's directory.
pub const FENCE_NAME: &str = "fence";

/// What a shard has in segments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Tables with segments, or with a flush behind them.
    pub tables: BTreeMap<TableId, TableManifest>,
    /// The number of the next segment: never used before, not even by a file that was lost.
    pub next_segment: u64,
    /// Every xid this shard ever held is at or below this one (32 hex digits; purged rows count).
    pub max_xid: String,
    /// The log's records at or below it are needless.
    pub log_after: Lsn,
    /// The log has a list of its files, without which it is damaged. A snapshot's log has none.
    #[serde(default)]
    pub log_listed: bool,
    /// The number of the file of edits that belongs to it; see [`crate::manifest_file`]. 0: there is none.
    #[serde(default)]
    pub edits: u64,
    /// Log records that never happened: from the first number to before the second. See [`Fence`].
    pub void: Vec<(Lsn, Lsn)>,
}

/// One table's part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableManifest {
    /// The table's records at or below it are in segments.
    pub flushed: Lsn,
    /// Its segments, oldest first.
    pub segments: Vec<SegmentId>,
}

impl Manifest {
    /// Whether a log record is void.
    pub fn is_void(&self, lsn: Lsn) -> bool {
        self.void.iter().any(|&(from, to)| from <= lsn && lsn < to)
    }
}

/// Written when a commit failed and its writers were told so: whatever of it the disk holds all the same, a
/// later start must not bring it back, because readers have gone past its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fence {
    /// Records from here on are void.
    pub from: Lsn,
}

/// A shard's directory.
pub fn shard_dir(shard: ShardId) -> String {
    format!("shard-{:04}", shard.0)
}
/// Its log.
pub fn log_dir(shard: ShardId) -> String {
    format!("shard-{:04}/log", shard.0)
}
/// Its segments.
pub fn segment_dir(shard: ShardId) -> String {
    format!("shard-{:04}/seg", shard.0)
}
