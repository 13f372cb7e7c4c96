//! A bloom filter over hashes that the caller makes: is this entity or key perhaps in this segment?
//!
//! Split blocks as in Parquet: one 32-byte block per hash, one bit in each of its eight words. About one
//! per cent of absent keys pass at ten bits per key.

/// Bits per key that is added.
pub const BITS_PER_KEY: usize = 10;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 32;

const SALT: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// The filter. Without any block it lets everything pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bloom {
    blocks: Vec<[u32; 8]>,
}

impl Bloom {
    /// For about `keys` keys; none: the filter that knows nothing is there.
    pub fn with_keys(keys: usize) -> Self {
        let blocks = (keys * BITS_PER_KEY).div_ceil(BLOCK_BYTES * 8).max(1);
        Bloom {
            blocks: vec![[0; 8]; blocks],
        }
    }
    /// From its bytes; `None` when they are not whole blocks.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        let (blocks, odd) = words.as_chunks::<8>();
        (rest.is_empty() && odd.is_empty()).then(|| Bloom {
            blocks: blocks.iter().map(|b| b.map(u32::from_le_bytes)).collect(),
        })
    }
    /// Its bytes, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.blocks
            .iter()
            .flatten()
            .flat_map(|w| w.to_le_bytes())
            .collect()
    }
    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }
    /// Adds a key's hash.
    pub fn add(&mut self, hash: u64) {
        let (block, mask) = place(hash, self.blocks.len());
        if let Some(b) = self.blocks.get_mut(block) {
            b.iter_mut().zip(mask).for_each(|(w, m)| *w |= m);
        }
    }
    /// False: the key was never added. True: it was, or one in a hundred it was not.
    pub fn may_contain(&self, hash: u64) -> bool {
        let (block, mask) = place(hash, self.blocks.len());
        self.blocks
            .get(block)
            .is_none_or(|b| b.iter().zip(mask).all(|(w, m)| w & m != 0))
    }
    /// Halves it as long as that leaves at least the bits that `keys` keys need, so that a filter made for
    /// too many keys does not waste room.
    pub fn shrink_to(&mut self, keys: usize) {
        let needed = (keys * BITS_PER_KEY).div_ceil(BLOCK_BYTES * 8).max(1);
        // A block's place is a fraction of the whole: places 2i and 2i + 1 become place i.
        while self.blocks.len().is_multiple_of(2) && self.blocks.len() / 2 >= needed {
            self.blocks = self
                .blocks
                .chunks(2)
                .map(|pair| std::array::from_fn(|w| pair.iter().fold(0, |bits, b| bits | b[w])))
                .collect();
        }
    }
    /// As [`Bloom::with_keys`], with a number of blocks that [`Bloom::shrink_to`] can halve often.
    pub fn with_at_most(keys: usize) -> Self {
        let blocks = (keys * BITS_PER_KEY).div_ceil(BLOCK_BYTES * 8).max(1);
        // An eighth more at most, for a factor of two in each of the halvings.
        let unit = (blocks / 8).max(1).next_power_of_two();
        Bloom {
            blocks: vec![[0; 8]; blocks.next_multiple_of(unit)],
        }
    }
}

/// The block and the bit in each of its words. The hash also routes keys to shards: mixed again, so that
/// what the keys of one shard share does not crowd a few blocks.
fn place(hash: u64, blocks: usize) -> (usize, [u32; 8]) {
    let h = (hash ^ (hash >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let h = h ^ (h >> 32);
    let h = h.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let block = (((h >> 32) as u128 * blocks as u128) >> 32) as usize;
    let low = h as u32;
    (block, SALT.map(|salt| 1 << (low.wrapping_mul(salt) >> 27)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::hash64;

    fn hash(i: u64) -> u64 {
        hash64(&i.to_le_bytes())
    }

    fn false_positives(b: &Bloom) -> usize {
        (1_000_000..1_100_000)
            .filter(|&i| b.may_contain(hash(i)))
            .count()
    }

    #[test]
    fn finds_what_was_added_and_little_else() {
        let mut b = Bloom::with_keys(20_000);
        (0..20_000).for_each(|i| b.add(hash(i)));
        assert!((0..20_000).all(|i| b.may_contain(hash(i))));
        assert!(false_positives(&b) < 2_000, "{}", false_positives(&b));
        assert_eq!(Bloom::from_bytes(&b.to_bytes()), Some(b.clone()));
        assert_eq!(Bloom::from_bytes(&b.to_bytes()[1..]), None);
    }

    #[test]
    fn an_empty_one_lets_everything_pass_and_one_for_no_keys_nothing() {
        assert!(Bloom::default().may_contain(7));
        assert!(!Bloom::with_keys(0).may_contain(7));
    }

    #[test]
    fn shrinks_without_forgetting() {
        for keys in [1usize, 300, 20_000] {
            let mut b = Bloom::with_at_most(1_000_000);
            (0..keys as u64).for_each(|i| b.add(hash(i)));
            b.shrink_to(keys);
            assert!((0..keys as u64).all(|i| b.may_contain(hash(i))));
            let ideal = Bloom::with_keys(keys).memory_bytes();
            assert!(
                b.memory_bytes() <= ideal.max(16 * BLOCK_BYTES) * 2,
                "{keys}"
            );
            assert!(
                false_positives(&b) < 2_000,
                "{keys}: {}",
                false_positives(&b)
            );
        }
    }
}
