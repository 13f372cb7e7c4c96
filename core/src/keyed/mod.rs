//! Rows tables: versions of rows, which of them counts, and the feed.
//!
//! | module | holds |
//! |---|---|
//! | [`wire`] | versions in log records |
//! | [`layout`] | what a scan answers, in which order |
//! | [`memtable`] | versions in memory |

use crate::ids::{ColumnId, Rev};
use crate::value::Value;
use std::rc::Rc;

pub mod layout;
pub mod memtable;
pub mod wire;

pub use layout::ScanLayout;

/// One version of a row: its full image. A tombstone keeps the values the row had last.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The key; for rows tables the 16 bytes of the xid, big-endian.
    pub key: Box<[u8]>,
    /// The write that made it.
    pub rev: Rev,
    /// A tombstone.
    pub deleted: bool,
    /// The oldest version of its key that is still stored. Over everything stored, the number of these is the
    /// number of keys, and the number of tombstones is that of the deleted ones: `count(*)` reads no row.
    pub first: bool,
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
    /// Bytes of its text.
    pub fn text_bytes(&self) -> usize {
        let len = |v: &Value| if let Value::Str(s) = v { s.len() } else { 0 };
        self.values.iter().map(|(_, v)| len(v)).sum()
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

/// The image after an UPDATE: `set` over `values`, NULL taking a value away.
pub fn with_values(
    values: &[(ColumnId, Value)],
    set: &[(ColumnId, Value)],
) -> Vec<(ColumnId, Value)> {
    let mut image: Vec<(ColumnId, Value)> = values
        .iter()
        .filter(|(c, _)| set.iter().all(|(s, _)| s != c))
        .cloned()
        .collect();
    // A column named twice in SET is refused before; were it not, the later would stand.
    for (i, (column, value)) in set.iter().enumerate() {
        if !value.is_null() && set[i + 1..].iter().all(|(c, _)| c != column) {
            image.push((*column, value.clone()));
        }
    }
    image.sort_by_key(|(c, _)| *c);
    image
}

/// Which versions of one key a flush or merge keeps, newest first: all above the watermark, and the newest
/// at or below it. The `first` mark of those that go is handed to the oldest that stays. Answers whether any
/// went. Versions are only copied, where others hold them, to be marked.
pub fn resolve(versions: &mut Vec<Rc<Version>>, watermark: Rev) -> bool {
    let above = versions.iter().take_while(|v| v.rev > watermark).count();
    let keep = (above + 1).min(versions.len());
    let first = versions[keep..].iter().any(|v| v.first);
    let dropped = keep < versions.len();
    versions.truncate(keep);
    if first
        && let Some(oldest) = versions.last_mut()
        && !oldest.first
    {
        Rc::make_mut(oldest).first = true;
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(rev: u64, first: bool) -> Rc<Version> {
        Rc::new(Version {
            key: Box::new(*b"k"),
            rev: Rev(rev),
            deleted: false,
            first,
            values: Vec::new(),
        })
    }

    #[test]
    fn what_a_reader_at_the_watermark_sees_stays() {
        for watermark in 0..12 {
            let mut list = vec![
                version(9, false),
                version(7, false),
                version(4, false),
                version(2, true),
            ];
            let before: Vec<u64> = list.iter().map(|v| v.rev.0).collect();
            resolve(&mut list, Rev(watermark));
            let after: Vec<u64> = list.iter().map(|v| v.rev.0).collect();
            for w in watermark..12 {
                let newest = |l: &[u64]| l.iter().copied().find(|&r| r <= w);
                assert_eq!(
                    newest(&before),
                    newest(&after),
                    "watermark {watermark}, reader {w}"
                );
            }
            assert_eq!(list.iter().filter(|v| v.first).count(), 1);
        }
    }

    #[test]
    fn update_is_partial_and_null_takes_away() {
        let (a, b, c) = (ColumnId(64), ColumnId(65), ColumnId(66));
        let old = [(a, Value::F64(1.0)), (b, Value::F64(2.0))];
        let new = with_values(&old, &[(c, Value::F64(3.0)), (a, Value::Null)]);
        assert_eq!(new, vec![(b, Value::F64(2.0)), (c, Value::F64(3.0))]);
    }
}
