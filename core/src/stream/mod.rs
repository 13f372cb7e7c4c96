//! Timeseries: batches on their way in, memtable, merge, fill, buckets.

pub mod batch;
