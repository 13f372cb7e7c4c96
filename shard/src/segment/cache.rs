//! Decoded columns of blocks, kept while the byte budget allows. One per executor, shared by its shards.
//!
//! CLOCK: a hand goes round the entries, takes away the mark of those used since its last visit, and
//! removes those without. A column that one large scan brings in and nobody asks for again goes at the
//! hand's first visit.

use hashbrown::HashMap;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use strandline_core::format::decoded::DecodedColumn;
use strandline_core::ids::ColumnId;

/// Which column of which block. Segments of several shards share one cache, so a segment is known by the
/// number that [`BlockCache::register`] gave it, not by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) segment: u64,
    /// Among all blocks of the segment.
    pub(super) block: u32,
    pub(super) column: ColumnId,
}

struct Entry {
    key: Key,
    column: Rc<DecodedColumn>,
    bytes: usize,
    used: Cell<bool>,
}

#[derive(Default)]
struct Inner {
    places: HashMap<Key, usize>,
    /// Without gaps; a removed entry's place is taken by the last one.
    entries: Vec<Entry>,
    hand: usize,
    used_bytes: usize,
}

/// The cache. Bytes count what an entry holds; a reader that still has an evicted column keeps it alive
/// outside the budget.
pub struct BlockCache {
    inner: RefCell<Inner>,
    budget_bytes: Cell<usize>,
    next_segment: Cell<u64>,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

/// What an entry costs beside its column: its place in the table and in the list.
const ENTRY_BYTES: usize = 2 * std::mem::size_of::<Entry>();

impl BlockCache {
    /// Empty. A budget of 0 caches nothing.
    pub fn new(budget_bytes: usize) -> Rc<Self> {
        Rc::new(BlockCache {
            inner: RefCell::default(),
            budget_bytes: Cell::new(budget_bytes),
            next_segment: Cell::new(0),
            hits: Cell::new(0),
            misses: Cell::new(0),
        })
    }
    /// Bytes held.
    pub fn used_bytes(&self) -> usize {
        self.inner.borrow().used_bytes
    }
    /// Changes the budget; evicts at once what is over it.
    pub fn set_budget(&self, budget_bytes: usize) {
        self.budget_bytes.set(budget_bytes);
        self.inner.borrow_mut().evict(budget_bytes);
    }
    /// Columns found and not found since the start.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }
    /// A number for an opened segment.
    pub(super) fn register(&self) -> u64 {
        let segment = self.next_segment.get();
        self.next_segment.set(segment + 1);
        segment
    }
    pub(super) fn get(&self, key: &Key) -> Option<Rc<DecodedColumn>> {
        let inner = self.inner.borrow();
        let found = inner
            .places
            .get(key)
            .and_then(|&place| inner.entries.get(place));
        match found {
            Some(entry) => {
                entry.used.set(true);
                self.hits.set(self.hits.get() + 1);
                Some(entry.column.clone())
            }
            None => {
                self.misses.set(self.misses.get() + 1);
                None
            }
        }
    }
    /// Adds a column, evicting others; one larger than the whole budget is not kept.
    pub(super) fn put(&self, key: Key, column: Rc<DecodedColumn>) {
        let bytes = column.memory_bytes() + ENTRY_BYTES;
        let budget = self.budget_bytes.get();
        if bytes > budget {
            return;
        }
        let mut inner = self.inner.borrow_mut();
        inner.remove_key(&key);
        inner.evict(budget - bytes);
        let place = inner.entries.len();
        inner.places.insert(key, place);
        inner.entries.push(Entry {
            key,
            column,
            bytes,
            used: Cell::new(false),
        });
        inner.used_bytes += bytes;
    }
}

impl Inner {
    fn evict(&mut self, most: usize) {
        while self.used_bytes > most && !self.entries.is_empty() {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            if !self.entries[self.hand].used.replace(false) {
                self.remove(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }
    fn remove_key(&mut self, key: &Key) {
        if let Some(&place) = self.places.get(key) {
            self.remove(place);
        }
    }
    fn remove(&mut self, place: usize) {
        let gone = self.entries.swap_remove(place);
        self.places.remove(&gone.key);
        self.used_bytes -= gone.bytes;
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.key, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use strandline_core::format::block::{BlockData, Presence};

    fn key(n: u32) -> Key {
        Key {
            segment: (n % 3) as u64,
            block: n,
            column: ColumnId(64),
        }
    }
    fn column(n: u32) -> Rc<DecodedColumn> {
        let cells = vec![n as i64; 1 + (n % 50) as usize];
        Rc::new(DecodedColumn::new(Presence::All, BlockData::I64(cells)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn stays_within_its_budget_and_never_mixes_columns_up(
            steps in proptest::collection::vec((0u32..60, any::<bool>()), 1..400),
            budget in 0usize..20_000,
        ) {
            let cache = BlockCache::new(budget);
            for (n, put) in steps {
                if put {
                    cache.put(key(n), column(n));
                } else if let Some(got) = cache.get(&key(n)) {
                    prop_assert_eq!(got, column(n));
                }
                prop_assert!(cache.used_bytes() <= budget);
                let inner = cache.inner.borrow();
                let held: usize = inner.entries.iter().map(|e| e.bytes).sum();
                prop_assert_eq!(held, inner.used_bytes);
                prop_assert_eq!(inner.places.len(), inner.entries.len());
                for (place, e) in inner.entries.iter().enumerate() {
                    prop_assert_eq!(inner.places.get(&e.key), Some(&place));
                }
            }
            cache.set_budget(0);
            prop_assert_eq!(cache.used_bytes(), 0);
        }
    }

    #[test]
    fn what_is_used_outlives_what_is_only_passed_by() {
        let cache = BlockCache::new(50 * 1024);
        cache.put(key(7), column(7));
        for n in 100..2000 {
            assert!(cache.get(&key(7)).is_some(), "evicted before {n}");
            cache.put(key(n), column(n));
        }
        assert!(cache.get(&key(100)).is_none());
        let (hits, misses) = cache.hits_and_misses();
        assert_eq!((hits, misses), (1900, 1));
    }
}
