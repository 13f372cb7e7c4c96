//! Keys of stream blocks: entity, a NUL (which no name contains), and ts so that bytes sort as numbers do.

use strandline_core::format::block::BlockMeta;

/// Puts the key of a row into `out`.
pub fn write_key(entity: &[u8], ts: i64, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(entity);
    out.push(0);
    out.extend_from_slice(&(ts as u64 ^ 1 << 63).to_be_bytes());
}

/// Entity and ts of a key. A key too short to be one (damage that a checksum missed) is all entity.
pub fn split_key(key: &[u8]) -> (&[u8], i64) {
    let split = key.len().checked_sub(9).map(|at| key.split_at(at));
    match split {
        Some((entity, rest)) => {
            let mut ts = [0; 8];
            ts.copy_from_slice(&rest[1..]);
            (entity, (u64::from_be_bytes(ts) ^ 1 << 63) as i64)
        }
        None => (key, 0),
    }
}

/// The entity that all rows of the block belong to, if it is one.
pub fn only_entity(block: &BlockMeta) -> Option<&[u8]> {
    let first = split_key(&block.first_key).0;
    (first == split_key(&block.last_key).0).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sort_as_rows_do() {
        let rows = [
            ("a", i64::MIN),
            ("a", -1),
            ("a", 0),
            ("a", 1),
            ("a", i64::MAX),
            ("a\u{1}", 0),
            ("ab", i64::MIN),
            ("b", 5),
        ];
        let keys: Vec<Vec<u8>> = rows
            .iter()
            .map(|(e, ts)| {
                let mut k = Vec::new();
                write_key(e.as_bytes(), *ts, &mut k);
                assert_eq!(split_key(&k), (e.as_bytes(), *ts));
                k
            })
            .collect();
        assert!(keys.is_sorted());
        assert_eq!(split_key(b"short"), (&b"short"[..], 0));
    }
}
