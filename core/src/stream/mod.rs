//! Timeseries: batches on their way in, memtable, merge, fill, buckets. Pure: reading and writing files is
//! the shard's part.
//!
//! Rows of a stream are ordered by (entity, ts, arrival). Fragments with the same (entity, ts) coalesce
//! channel by channel: the k-th arrival of a channel at that (entity, ts) stands in the k-th row of that
//! (entity, ts). Hence coalescing loses nothing and may be repeated at every level (run, flush, merge),
//! as long as sources are taken in their order of arrival.

pub mod answer;
mod arrange;
pub mod batch;
pub mod bucket;
pub mod cells;
pub mod dictionary;
pub mod fill;
pub mod memtable;
pub mod merge;
pub mod quantile;
pub mod select;
pub mod states;
pub mod tails;
pub mod wire;
