//! Names of entities, each once, and a dense number for each: everything in memory speaks of numbers.
//!
//! Built for tens of millions of entities of a table and shard: names stand end to end in 1 MiB pieces (no
//! doubling copy, no allocation per name), one packed word says where, and the index is cut into 256 small
//! tables, so that growing never stalls an ingest for longer than a 256th of the whole. And for thousands of
//! tables of a few entities each: the index is one table until there are [`WHOLE`] of them.

use crate::routing::hash64;
use hashbrown::HashTable;

const PIECE: usize = 1 << 20;
const PARTS: usize = 256;
/// Entities up to which the index is one table: cutting it then takes some hundred microseconds.
const WHOLE: usize = 4096;
/// Places from which on their list grows by an eighth at a time: a mebibyte.
const LARGE: usize = 128 << 10;

/// The dictionary of one table on one shard.
#[derive(Debug)]
pub struct Dictionary {
    pieces: Vec<Vec<u8>>,
    /// Piece (23 bits), start (24 bits), length (17 bits).
    places: Vec<u64>,
    index: Vec<HashTable<u32>>,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self::new()
    }
}

impl Dictionary {
    /// Empty.
    pub fn new() -> Self {
        Dictionary {
            pieces: Vec::new(),
            places: Vec::new(),
            index: vec![HashTable::new()],
        }
    }

    /// Entities in it; their numbers are `0..len()`.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The name of a number below [`Dictionary::len`].
    pub fn name(&self, id: u32) -> &[u8] {
        bytes_at(&self.pieces, self.places[id as usize])
    }

    /// The number of a name whose [`hash64`] is `hash`.
    pub fn get(&self, name: &[u8], hash: u64) -> Option<u32> {
        let (part, key) = self.part(hash);
        self.index[part]
            .find(key, |&id| self.name(id) == name)
            .copied()
    }

    /// The number of a name, given now when it is new. Names are shorter than 128 KiB.
    pub fn intern(&mut self, name: &[u8], hash: u64) -> u32 {
        if let Some(id) = self.get(name, hash) {
            return id;
        }
        let id = self.places.len() as u32;
        if self
            .pieces
            .last()
            .is_none_or(|p| p.len() + name.len() > PIECE)
        {
            // The first piece grows as needed, so that a small table stays small.
            let first = if self.pieces.is_empty() { 0 } else { PIECE };
            self.pieces.push(Vec::with_capacity(first));
        }
        let piece = self.pieces.len() - 1;
        let start = self.pieces[piece].len();
        self.pieces[piece].extend_from_slice(name);
        // An eighth more, not twice as much: half of the room would mostly stand empty. Moving that much is
        // the kernel's work, which moves pages.
        if self.places.len() == self.places.capacity() && self.places.len() > LARGE {
            self.places.reserve_exact(self.places.len() / 8);
        }
        self.places
            .push((piece as u64) << 41 | (start as u64) << 17 | name.len() as u64);
        if self.index.len() == 1 && self.places.len() > WHOLE {
            self.index = (0..PARTS).map(|_| HashTable::new()).collect();
            for id in 0..id {
                self.index_name(id, hash64(self.name(id)));
            }
        }
        self.index_name(id, hash);
        id
    }

    fn index_name(&mut self, id: u32, hash: u64) {
        let (part, key) = self.part(hash);
        let (pieces, places) = (&self.pieces, &self.places);
        self.index[part].insert_unique(key, id, |&id| {
            spread(hash64(bytes_at(pieces, places[id as usize]))).1
        });
    }

    /// The table of the index that a hash belongs to, and the hash within it.
    fn part(&self, hash: u64) -> (usize, u64) {
        let (part, key) = spread(hash);
        (part & (self.index.len() - 1), key)
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        // A table's entry takes 5 bytes (number and control byte) at 7/8 load.
        let parts = self.index.len() * size_of::<HashTable<u32>>();
        let index: usize = self.index.iter().map(|t| t.capacity() * 8 / 7 * 5).sum();
        let names = match self.pieces.len() {
            0 => 0,
            1 => self.pieces[0].capacity(),
            n => n * PIECE,
        };
        names + self.places.capacity() * 8 + parts + index
    }
}

fn bytes_at(pieces: &[Vec<u8>], place: u64) -> &[u8] {
    let (piece, start, len) = (
        (place >> 41) as usize,
        (place >> 17 & 0xFF_FFFF) as usize,
        (place & 0x1_FFFF) as usize,
    );
    &pieces[piece][start..start + len]
}

/// Which part, and the hash within it. Routing has used up the low bits (`hash mod shards`), so the tables,
/// which take theirs from the bottom and the top, get others there.
fn spread(hash: u64) -> (usize, u64) {
    (((hash >> 40) & 0xFF) as usize, hash.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_dense_numbers_once() {
        let mut d = Dictionary::new();
        let name = |i: u32| format!("{i}-{}", "x".repeat((i % 40) as usize)).into_bytes();
        for round in 0..2 {
            for i in 0..100_000u32 {
                let n = name(i);
                assert_eq!(d.intern(&n, hash64(&n)), i, "round {round}");
            }
        }
        assert_eq!(d.len(), 100_000);
        for i in (0..100_000).step_by(7) {
            assert_eq!(d.name(i), name(i));
            assert_eq!(d.get(&name(i), hash64(&name(i))), Some(i));
        }
        assert_eq!(d.get(b"no", hash64(b"no")), None);
        let long = vec![b'y'; 65_536];
        let id = d.intern(&long, hash64(&long));
        assert_eq!(d.name(id), long);
    }

    #[test]
    fn an_entity_costs_little() {
        // At every moment: right after something has grown, most of the room stands empty.
        let mut d = Dictionary::new();
        for i in 0..600_000u32 {
            let n = format!("device-{i:012}");
            d.intern(n.as_bytes(), hash64(n.as_bytes()));
            if i >= 200_000 && i % 1_000 == 0 {
                let per = d.memory_bytes() as f64 / f64::from(i + 1);
                assert!(per < 19.0 + 23.0, "{per} bytes for a name of 19, of {i}");
            }
        }
    }

    #[test]
    fn a_table_of_few_entities_costs_little() {
        let mut d = Dictionary::new();
        for i in 0..20u32 {
            let n = format!("device-{i}");
            d.intern(n.as_bytes(), hash64(n.as_bytes()));
        }
        assert!(d.memory_bytes() < 1_500, "{} bytes", d.memory_bytes());
    }
}
