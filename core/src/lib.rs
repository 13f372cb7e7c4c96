//! Strandline's runtime-free heart: ids, values, catalog, codecs, formats, version resolution, fill and
//! bucket logic, the x_rev ledger and the cross-core queue. Nothing here opens a file, reads a clock or
//! starts a task: it takes those through the traits of [`io`].
//!
//! # Map
//! | module | holds |
//! |---|---|
//! | [`error`] | errors with SQLSTATE |
//! | [`limits`] | every limit with its name, default and reason |
//! | [`ids`], [`xid`], [`time`], [`value`] | numbers, ids, time, cells and batches |
//! | [`schema`], [`schema_change`] | tables and columns as the catalog knows them; what ALTER changes |
//! | [`scan`], [`like`] | what a shard can be asked; patterns |
//! | [`profile`] | what a read looked at, for EXPLAIN |
//! | [`routing`] | which shard a key lives on (frozen) |
//! | [`io`] | the seam to files, clock, randomness and tasks |
//! | [`sync`] | the switch between std's and loom's atomics |
//! | [`revision`] | x_rev and xid allocation, the ledger, the watermark |
//! | [`queue`] | rings between cores |
//! | [`codec`], [`format`] | how columns, blocks, segments, logs and manifests look on disk |
//! | [`stream`] | timeseries: batches, memtable, merge, fill, buckets |
//! | [`keyed`] | rows tables: versions, resolution, the feed |
//!
//! Change a format: also its byte table in `docs/format.md`, its version, and a new fixture under
//! `tests/fixtures`. Change a limit: nothing else; `limits` is the only place.

#![deny(missing_docs)]

pub mod codec;
pub mod error;
pub mod format;
pub mod ids;
pub mod io;
pub mod keyed;
pub mod like;
pub mod limits;
pub mod profile;
pub mod queue;
pub mod revision;
pub mod routing;
pub mod scan;
pub mod schema;
pub mod schema_change;
pub mod stream;
pub mod sync;
pub mod time;
pub mod value;
pub mod xid;

pub use error::{Error, Result, SqlState};
