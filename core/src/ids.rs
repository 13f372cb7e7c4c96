//! Numbers that must not be mixed up, each with its range.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A table, for as long as its database lives. From 1; never used again after DROP.
    TableId(u32)
}
id! {
    /// A column of one table. User columns count from [`ColumnId::FIRST_USER`] and are never used again
    /// within the table; smaller numbers are the engine's own columns.
    ColumnId(u32)
}
id! {
    /// A shard of one database, from 0. The number of shards is fixed when the database is created.
    ShardId(u16)
}
id! {
    /// A segment file of one shard, from 1, never used again.
    SegmentId(u64)
}
id! {
    /// A record's place in one shard's log, from 1, without gaps. 0 means "before every record".
    Lsn(u64)
}
id! {
    /// A write's number in its table (`x_rev`), from 1, strictly increasing in allocation order, never
    /// used again; at most 2^53 so that every client can hold it. 0 means "before every write".
    Rev(u64)
}

impl ColumnId {
    /// The entity of a timeseries row (string).
    pub const ENTITY: ColumnId = ColumnId(0);
    /// The row's time, Unix ms (i64).
    pub const TS: ColumnId = ColumnId(1);
    /// The key of a keyed row (for rows tables the xid's 16 bytes).
    pub const KEY: ColumnId = ColumnId(2);
    /// The version's x_rev (i64).
    pub const REV: ColumnId = ColumnId(3);
    /// The tombstone flag: of keyed rows (i64, 0 or 1); of entities of MUTABLE tables (f64, 1).
    pub const DELETED: ColumnId = ColumnId(4);
    /// Where a version stands in the data section, for the x_rev order (i64).
    pub const PLACE: ColumnId = ColumnId(5);
    /// The mark of the oldest stored version of a key (i64, 0 or 1).
    pub const FIRST: ColumnId = ColumnId(6);
    /// In the x_rev order: the x_rev of the next newer version of the same key in the same segment; 0: none (i64).
    pub const NEXT: ColumnId = ColumnId(7);
    /// The first number a declared column may have.
    pub const FIRST_USER: ColumnId = ColumnId(64);
}

impl Rev {
    /// The largest x_rev that every client (JavaScript's too) holds exactly.
    pub const MAX: Rev = Rev(1 << 53);
}
