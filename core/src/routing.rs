//! Which shard a key lives on. The hash is frozen: stored data stands where it says.

use crate::ids::ShardId;
use crate::xid::Xid;

/// XXH3-64 with seed 0 (xxHash 0.8 specification). Frozen; test vectors below.
pub fn hash64(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The shard of a hash.
pub fn shard_of_hash(hash: u64, shards: u16) -> ShardId {
    ShardId((hash % u64::from(shards)) as u16)
}

/// The shard of an entity of a timeseries table.
pub fn shard_of_entity(entity: &str, shards: u16) -> ShardId {
    shard_of_hash(hash64(entity.as_bytes()), shards)
}

/// The shard of a row: by the first 96 bits of its xid (ms and the upper 48 bits of the sequence), so that
/// the 65,536 ids of one run stay together and a multi-row INSERT is one log record.
pub fn shard_of_xid(xid: Xid, shards: u16) -> ShardId {
    shard_of_hash(hash64(&xid.to_bytes()[..12]), shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_frozen() {
        // XXH3-64, seed 0, of the empty input: the value in xxHash's own test vectors.
        assert_eq!(hash64(b""), 0x2D06_8005_38D3_94C2);
        assert_eq!(
            shard_of_hash(hash64(b""), 7).0,
            (0x2D06_8005_38D3_94C2u64 % 7) as u16
        );
    }

    #[test]
    fn a_run_of_xids_shares_a_shard() {
        for seq in [0u64, 65_535, 1 << 40, u64::MAX] {
            let base = Xid::new(1_700_000_000_000, seq & !0xFFFF, 0);
            let last = Xid::new(1_700_000_000_000, seq | 0xFFFF, 0);
            assert_eq!(shard_of_xid(base, 16), shard_of_xid(last, 16));
        }
    }
}
