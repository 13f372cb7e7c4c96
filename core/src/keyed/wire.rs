//! Versions in log records: little-endian, each with its length in it, so that a reader needs no schema.
//!
//! ```text
//! u32 count, then for each version:
//!   u8  flags: 1 deleted, 2 first
//!   u64 x_rev
//!   u16 key bytes, key
//!   u32 values, then for each: u32 column, u8 kind (0 f64, 1 text), f64 bits | u32 bytes, text
//! ```

use super::Version;
use crate::error::{Error, Result};
use crate::ids::{ColumnId, Rev};
use crate::value::Value;
use std::borrow::Borrow;

const DELETED: u8 = 1;
const FIRST: u8 = 2;
const KIND_F64: u8 = 0;
const KIND_STR: u8 = 1;
/// A version without key and values, and a value of empty text: they bound what a count makes us reserve.
const VERSION_BYTES_MIN: usize = 15;
const VALUE_BYTES_MIN: usize = 9;

/// Appends versions.
pub fn encode_versions(versions: &[impl Borrow<Version>], out: &mut Vec<u8>) {
    out.extend_from_slice(&(versions.len() as u32).to_le_bytes());
    for version in versions {
        let v: &Version = version.borrow();
        out.push(if v.deleted { DELETED } else { 0 } | if v.first { FIRST } else { 0 });
        out.extend_from_slice(&v.rev.0.to_le_bytes());
        out.extend_from_slice(&(v.key.len() as u16).to_le_bytes());
        out.extend_from_slice(&v.key);
        out.extend_from_slice(&(v.values.len() as u32).to_le_bytes());
        for (column, value) in &v.values {
            out.extend_from_slice(&column.0.to_le_bytes());
            match value {
                Value::Str(s) => {
                    out.push(KIND_STR);
                    out.extend_from_slice(&(s.len() as u32).to_le_bytes());
                    out.extend_from_slice(s.as_bytes());
                }
                Value::F64(x) => {
                    out.push(KIND_F64);
                    out.extend_from_slice(&x.to_bits().to_le_bytes());
                }
                Value::Null => unreachable!("NULL is the absence of the column"),
            }
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(short)?;
        self.0 = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or_else(short)?;
        self.0 = rest;
        Ok(*head)
    }
}

fn short() -> Error {
    Error::corrupted("a log record of row versions ends too early")
}

/// Reads what [`encode_versions`] wrote. Never allocates more than the input's size warrants.
pub fn decode_versions(bytes: &[u8]) -> Result<Vec<Version>> {
    let mut r = Reader(bytes);
    let count = u32::from_le_bytes(r.array()?);
    let mut versions = Vec::with_capacity((count as usize).min(bytes.len() / VERSION_BYTES_MIN));
    for _ in 0..count {
        let [flags] = r.array()?;
        if flags & !(DELETED | FIRST) != 0 {
            return Err(Error::corrupted(
                "a log record holds a row version with flags of no known meaning",
            ));
        }
        let rev = Rev(u64::from_le_bytes(r.array()?));
        let len = u16::from_le_bytes(r.array()?) as usize;
        let key: Box<[u8]> = r.take(len)?.into();
        let n = u32::from_le_bytes(r.array()?) as usize;
        let mut values = Vec::with_capacity(n.min(r.0.len() / VALUE_BYTES_MIN));
        for _ in 0..n {
            let column = ColumnId(u32::from_le_bytes(r.array()?));
            let value = match r.array()? {
                [KIND_F64] => {
                    let x = f64::from_bits(u64::from_le_bytes(r.array()?));
                    if !x.is_finite() {
                        return Err(Error::corrupted(
                            "a log record holds a number that is not finite",
                        ));
                    }
                    Value::F64(x)
                }
                [KIND_STR] => {
                    let len = u32::from_le_bytes(r.array()?) as usize;
                    let text = std::str::from_utf8(r.take(len)?).map_err(|_| {
                        Error::corrupted("a log record holds text that is not UTF-8")
                    })?;
                    Value::str(text)
                }
                _ => {
                    return Err(Error::corrupted(
                        "a log record holds a value of no known kind",
                    ));
                }
            };
            if values.last().is_some_and(|(last, _)| *last >= column) {
                return Err(Error::corrupted(
                    "a log record holds its columns out of order",
                ));
            }
            values.push((column, value));
        }
        versions.push(Version {
            key,
            rev,
            deleted: flags & DELETED != 0,
            first: flags & FIRST != 0,
            values,
        });
    }
    if !r.0.is_empty() {
        return Err(Error::corrupted(
            "a log record of row versions goes on after its end",
        ));
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn versions() -> impl Strategy<Value = Vec<Version>> {
        let value = prop_oneof![
            any::<f64>()
                .prop_filter("finite", |x| x.is_finite())
                .prop_map(Value::F64),
            ".{0,20}".prop_map(|s: String| Value::str(s)),
        ];
        let values = proptest::collection::btree_map(64u32..80, value, 0..6).prop_map(|m| {
            m.into_iter()
                .map(|(c, v)| (ColumnId(c), v))
                .collect::<Vec<_>>()
        });
        let one = (
            proptest::collection::vec(any::<u8>(), 0..20),
            any::<u64>(),
            any::<bool>(),
            any::<bool>(),
            values,
        )
            .prop_map(|(key, rev, deleted, first, values)| Version {
                key: key.into(),
                rev: Rev(rev),
                deleted,
                first,
                values,
            });
        proptest::collection::vec(one, 0..8)
    }

    proptest! {
        #[test]
        fn round_trip(list in versions()) {
            let mut bytes = Vec::new();
            encode_versions(&list, &mut bytes);
            prop_assert_eq!(decode_versions(&bytes).unwrap(), list);
            for cut in 0..bytes.len() {
                prop_assert!(decode_versions(&bytes[..cut]).is_err());
            }
        }

        /// There is one way to write versions, so that no changed bit passes for another version.
        #[test]
        fn what_is_read_is_what_was_written(list in versions(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = Vec::new();
            encode_versions(&list, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(list) = decode_versions(&bytes) {
                let mut again = Vec::new();
                encode_versions(&list, &mut again);
                prop_assert_eq!(again, bytes);
            }
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_versions(&bytes);
        }
    }
}
