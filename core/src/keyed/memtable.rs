//! Versions in memory, by key and by x_rev. Nothing is ever taken out of a memtable, so a reader that notes
//! how many writes it has seen reads one picture for as long as it likes.

use super::Version;
use crate::ids::{Lsn, Rev};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

/// A version and the moment it came.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The version.
    pub version: Rc<Version>,
    /// Its place in the order of arrival; a reader sees those below its bound.
    pub seq: u64,
}

/// What a map entry costs beside the version: two tree slots, a key, an `Rc`'s counts.
const ENTRY_BYTES: usize = 136;

/// See the module.
#[derive(Debug, Default)]
pub struct Memtable {
    /// Versions of each key, oldest first.
    by_key: BTreeMap<Box<[u8]>, Vec<Entry>>,
    by_rev: BTreeMap<Rev, Entry>,
    seq: u64,
    bytes: usize,
    /// Versions marked `first`.
    first: u64,
    /// Tombstones.
    deleted: u64,
    oldest: Option<Lsn>,
    newest: Lsn,
}

impl Memtable {
    /// Adds a version; one that is there already changes nothing.
    pub fn insert(&mut self, version: Rc<Version>, lsn: Lsn) {
        self.oldest = Some(self.oldest.map_or(lsn, |o| o.min(lsn)));
        self.newest = self.newest.max(lsn);
        if self.by_rev.contains_key(&version.rev) {
            return;
        }
        let entry = Entry {
            version: version.clone(),
            seq: self.seq,
        };
        self.seq += 1;
        self.bytes += version.memory_bytes() + ENTRY_BYTES;
        self.first += u64::from(version.first);
        self.deleted += u64::from(version.deleted);
        self.by_rev.insert(version.rev, entry.clone());
        let list = self.by_key.entry(version.key.clone()).or_default();
        let at = list.partition_point(|e| e.version.rev < version.rev);
        list.insert(at, entry);
    }
    /// The newest version of a key, among all that came.
    pub fn newest_of(&self, key: &[u8]) -> Option<&Rc<Version>> {
        self.by_key.get(key)?.last().map(|e| &e.version)
    }
    /// The versions of a key that a reader sees, newest first.
    pub fn versions(&self, key: &[u8], seen: u64) -> impl Iterator<Item = &Rc<Version>> {
        let list = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        list.iter()
            .rev()
            .filter(move |e| e.seq < seen)
            .map(|e| &e.version)
    }
    /// Up to `n` keys after `after` with the versions that a reader sees, newest first.
    pub fn keys_after(&self, after: Option<&[u8]>, n: usize, seen: u64) -> Vec<Rc<Version>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut out = Vec::new();
        for (_, list) in self
            .by_key
            .range::<[u8], _>((from, Bound::Unbounded))
            .take(n)
        {
            out.extend(
                list.iter()
                    .rev()
                    .filter(|e| e.seq < seen)
                    .map(|e| e.version.clone()),
            );
        }
        out
    }
    /// The last of the keys that [`Memtable::keys_after`] looked at, also when a reader sees none of its versions.
    pub fn last_key_of(&self, after: Option<&[u8]>, n: usize) -> Option<Box<[u8]>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_key
            .range::<[u8], _>((from, Bound::Unbounded))
            .take(n)
            .last()
            .map(|(k, _)| k.clone())
    }
    /// Up to `n` versions with x_rev above `after`, ascending. The second answer is where to go on; `None`: the end.
    pub fn revs_after(&self, after: Rev, n: usize, seen: u64) -> (Vec<Rc<Version>>, Option<Rev>) {
        let mut last = None;
        let mut out = Vec::new();
        let range = self
            .by_rev
            .range((Bound::Excluded(after), Bound::Unbounded));
        for (rev, entry) in range.take(n) {
            last = Some(*rev);
            if entry.seq < seen {
                out.push(entry.version.clone());
            }
        }
        (out, last)
    }
    /// How many writes came: a reader's bound.
    pub fn seen(&self) -> u64 {
        self.seq
    }
    /// Versions in it.
    pub fn len(&self) -> usize {
        self.by_rev.len()
    }
    /// Whether nothing came.
    pub fn is_empty(&self) -> bool {
        self.by_rev.is_empty()
    }
    /// Bytes held, for the memory budget.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }
    /// Versions marked `first`, and tombstones.
    pub fn counts(&self) -> (u64, u64) {
        (self.first, self.deleted)
    }
    /// The first and the last log record in it.
    pub fn lsns(&self) -> (Option<Lsn>, Lsn) {
        (self.oldest, self.newest)
    }
    /// The highest x_rev in it.
    pub fn max_rev(&self) -> Rev {
        self.by_rev.last_key_value().map_or(Rev(0), |(r, _)| *r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    fn put(m: &mut Memtable, key: &[u8], rev: u64) {
        let version = Version {
            key: key.into(),
            rev: Rev(rev),
            deleted: false,
            first: rev < 3,
            values: vec![(crate::ids::ColumnId(64), Value::F64(rev as f64))],
        };
        m.insert(Rc::new(version), Lsn(rev));
    }

    #[test]
    fn a_reader_keeps_its_picture() {
        let mut m = Memtable::default();
        put(&mut m, b"a", 1);
        put(&mut m, b"b", 2);
        let seen = m.seen();
        put(&mut m, b"a", 3);
        put(&mut m, b"c", 4);
        put(&mut m, b"a", 3);
        let revs = |list: Vec<Rc<Version>>| list.iter().map(|v| v.rev.0).collect::<Vec<_>>();
        assert_eq!(revs(m.keys_after(None, 9, seen)), [1, 2]);
        assert_eq!(revs(m.keys_after(None, 9, m.seen())), [3, 1, 2, 4]);
        assert_eq!(revs(m.revs_after(Rev(1), 9, m.seen()).0), [2, 3, 4]);
        assert_eq!(m.newest_of(b"a").map(|v| v.rev.0), Some(3));
        assert_eq!(m.len(), 4);
        assert_eq!(m.counts(), (2, 0));
        assert_eq!(m.lsns(), (Some(Lsn(1)), Lsn(4)));
    }
}
