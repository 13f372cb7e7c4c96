//! Rows tables: versions of rows, which of them counts, and the feed.

use crate::ids::{ColumnId, Rev};
use crate::value::Value;

/// One version of a row: its full image. A tombstone keeps the values the row had last.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The key; for rows tables the 16 bytes of the xid, big-endian.
    pub key: Box<[u8]>,
    /// The write that made it.
    pub rev: Rev,
    /// A tombstone.
    pub deleted: bool,
    /// What is not NULL, in order of column number.
    pub values: Vec<(ColumnId, Value)>,
}

impl Version {
    /// The value of a column; NULL when it has none.
    pub fn value(&self, column: ColumnId) -> &Value {
        static NULL: Value = Value::Null;
        self.values
            .binary_search_by_key(&column, |(c, _)| *c)
            .map_or(&NULL, |i| &self.values[i].1)
    }
    /// Bytes held, for the memory budget.
    pub fn memory_bytes(&self) -> usize {
        std::mem::size_of::<Version>()
            + self.key.len()
            + self
                .values
                .iter()
                .map(|(_, v)| 8 + v.memory_bytes())
                .sum::<usize>()
    }
}
