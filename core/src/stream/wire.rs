//! How a [`StreamBatch`] stands in a log record: columns end to end, little-endian, so that writing one is a
//! few copies. Narrow widths are taken where all cells fit, because the log's bandwidth bounds ingest.
//!
//! ```text
//! u8  version = 1
//! u32 entities, then strings (u32 end offset each, bytes)
//! u32 rows
//! u8  width of entity indexes (0 when there is one entity, else 1, 2, 4), rows × that
//! u8  time form: 0 = i64 each; 1 = i64 base, then u32 above it each
//! u32 columns, each: u32 id (from 64; or 4, number: tombstones), u8 kind (0 number, 1 text), u8 all rows?, u32 cells,
//!     [u32 row of each cell, unless all rows]
//!     numbers: u8 form (0 f64, 1 i32, 2 i16), cells × that      text: strings
//! ```
//! The record's own checksum guards the bytes; decoding still checks every bound and index.

use super::batch::{BatchCells, BatchColumn, StreamBatch};
use crate::error::{Error, Result};
use crate::ids::ColumnId;
use crate::routing::hash64;
use crate::value::StrVec;

const VERSION: u8 = 1;

/// Appends the batch to `out`.
pub fn encode_batch(batch: &StreamBatch, out: &mut Vec<u8>) {
    out.push(VERSION);
    put_u32(out, batch.entities.len());
    put_strings(out, &batch.entities);
    put_u32(out, batch.rows());
    let index = &batch.entity_of_row;
    match batch.entities.len() {
        0 | 1 => out.push(0),
        2..=256 => {
            out.push(1);
            out.extend(index.iter().map(|&i| i as u8));
        }
        257..=65_536 => {
            out.push(2);
            put_all(out, index, |i| (i as u16).to_le_bytes());
        }
        _ => {
            out.push(4);
            put_all(out, index, u32::to_le_bytes);
        }
    }
    let low = batch.ts.iter().copied().min().unwrap_or(0);
    let high = batch.ts.iter().copied().max().unwrap_or(0);
    if high.abs_diff(low) <= u64::from(u32::MAX) {
        out.push(1);
        out.extend_from_slice(&low.to_le_bytes());
        put_all(out, &batch.ts, |t| {
            (t.wrapping_sub(low) as u32).to_le_bytes()
        });
    } else {
        out.push(0);
        put_all(out, &batch.ts, i64::to_le_bytes);
    }
    put_u32(out, batch.columns.len());
    for c in &batch.columns {
        out.extend_from_slice(&c.id.0.to_le_bytes());
        out.push(matches!(c.cells, BatchCells::Str(_)) as u8);
        out.push(c.rows.is_none() as u8);
        put_u32(out, c.cells.len());
        if let Some(rows) = &c.rows {
            put_all(out, rows, u32::to_le_bytes);
        }
        match &c.cells {
            BatchCells::F64(v) => put_numbers(out, v),
            BatchCells::Str(v) => put_strings(out, v),
        }
    }
}

/// Reads what [`encode_batch`] wrote.
///
/// # Errors
/// `XX001` when the bytes are not such a batch.
pub fn decode_batch(bytes: &[u8]) -> Result<StreamBatch> {
    Input { bytes }
        .batch()
        .ok_or_else(|| Error::corrupted("a log record of a timeseries batch does not decode"))
}

fn put_u32(out: &mut Vec<u8>, n: usize) {
    out.extend_from_slice(&(n as u32).to_le_bytes());
}

fn put_all<T: Copy, const N: usize>(out: &mut Vec<u8>, items: &[T], bytes: impl Fn(T) -> [u8; N]) {
    let start = out.len();
    out.resize(start + items.len() * N, 0);
    for (slot, &item) in out[start..].chunks_exact_mut(N).zip(items) {
        slot.copy_from_slice(&bytes(item));
    }
}

fn put_strings(out: &mut Vec<u8>, v: &StrVec) {
    let v = v.packed();
    put_all(out, &v.offsets()[1..], u32::to_le_bytes);
    out.extend_from_slice(v.bytes());
}

fn put_numbers(out: &mut Vec<u8>, v: &[f64]) {
    // Bits are compared, so -0.0 keeps its sign.
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
    // One look at the first cell spares fractions the full pass.
    let whole = v.first().is_some_and(|&x| same(f64::from(x as i32), x));
    if whole && v.iter().all(|&x| same(f64::from(x as i16), x)) {
        out.push(2);
        put_all(out, v, |x| (x as i16).to_le_bytes());
    } else if whole && v.iter().all(|&x| same(f64::from(x as i32), x)) {
        out.push(1);
        put_all(out, v, |x| (x as i32).to_le_bytes());
    } else {
        out.push(0);
        put_all(out, v, f64::to_le_bytes);
    }
}

struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    fn batch(&mut self) -> Option<StreamBatch> {
        if self.byte()? != VERSION {
            return None;
        }
        let entity_count = self.u32()?;
        let entities = self.strings(entity_count)?;
        let rows = self.u32()?;
        let entity_of_row: Vec<u32> = match self.byte()? {
            0 if rows <= u32::MAX as usize && self.bytes.len() >= rows => vec![0; rows],
            1 => self.all(rows, |b: [u8; 1]| u32::from(b[0]))?,
            2 => self.all(rows, |b| u32::from(u16::from_le_bytes(b)))?,
            4 => self.all(rows, u32::from_le_bytes)?,
            _ => return None,
        };
        if entity_of_row.iter().any(|&i| i as usize >= entity_count) {
            return None;
        }
        let ts = match self.byte()? {
            0 => self.all(rows, i64::from_le_bytes)?,
            1 => {
                let low = i64::from_le_bytes(self.array()?);
                self.all(rows, |b| low.wrapping_add(i64::from(u32::from_le_bytes(b))))?
            }
            _ => return None,
        };
        let column_count = self.u32()?;
        let mut columns: Vec<BatchColumn> = Vec::new();
        for _ in 0..column_count {
            let column = self.column(rows)?;
            columns.push(column);
        }
        let mut ids: Vec<ColumnId> = columns.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        let once = ids.windows(2).all(|w| w[0] != w[1]);
        if !once || !self.bytes.is_empty() {
            return None;
        }
        let entity_hashes = (0..entities.len())
            .map(|i| hash64(entities.get_bytes(i)))
            .collect();
        Some(StreamBatch {
            entities,
            entity_hashes,
            entity_of_row,
            ts,
            columns,
        })
    }

    fn column(&mut self, rows: usize) -> Option<BatchColumn> {
        let id = ColumnId(u32::from_le_bytes(self.array()?));
        let kind = self.byte()?;
        // Of the engine's columns only the tombstones of a MUTABLE table are stored as a channel is.
        if id < ColumnId::FIRST_USER && (id != ColumnId::DELETED || kind != 0) {
            return None;
        }
        let all_rows = self.byte()?;
        let cells = self.u32()?;
        let list = match all_rows {
            1 if cells == rows => None,
            0 => {
                let list = self.all(cells, u32::from_le_bytes)?;
                let rising = list.windows(2).all(|w| w[0] < w[1]);
                if !rising || list.last().is_some_and(|&r| r as usize >= rows) {
                    return None;
                }
                Some(list)
            }
            _ => return None,
        };
        let cells = match kind {
            0 => BatchCells::F64(self.numbers(cells)?),
            1 => BatchCells::Str(self.strings(cells)?),
            _ => return None,
        };
        Some(BatchColumn {
            id,
            rows: list,
            cells,
        })
    }

    fn numbers(&mut self, n: usize) -> Option<Vec<f64>> {
        match self.byte()? {
            0 => {
                let v = self.all(n, f64::from_le_bytes)?;
                v.iter().all(|x| x.is_finite()).then_some(v)
            }
            1 => self.all(n, |b| f64::from(i32::from_le_bytes(b))),
            2 => self.all(n, |b| f64::from(i16::from_le_bytes(b))),
            _ => None,
        }
    }

    fn strings(&mut self, n: usize) -> Option<StrVec> {
        let mut offsets = vec![0u32];
        offsets.extend(self.all(n, u32::from_le_bytes)?);
        let total = *offsets.last()? as usize;
        let bytes = self.take(total)?.to_vec();
        let text = std::str::from_utf8(&bytes).ok()?;
        if !offsets.iter().all(|&o| text.is_char_boundary(o as usize)) {
            return None;
        }
        StrVec::from_parts(offsets, bytes)
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn u32(&mut self) -> Option<usize> {
        self.array().map(|b| u32::from_le_bytes(b) as usize)
    }

    fn all<T, const N: usize>(&mut self, n: usize, item: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
        let bytes = self.take(n.checked_mul(N)?)?;
        Some(
            bytes
                .chunks_exact(N)
                .map(|c| {
                    let mut a = [0; N];
                    a.copy_from_slice(c);
                    item(a)
                })
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::batch::StreamBatchBuilder;
    use crate::value::Kind;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![
            (-300i32..300).prop_map(f64::from),
            any::<i32>().prop_map(f64::from),
            Just(-0.0),
            any::<f64>().prop_filter("finite", |x| x.is_finite()),
        ]
    }

    prop_compose! {
        fn batches()(rows in prop::collection::vec(
            (0u8..5, prop_oneof![0i64..1000, any::<i64>()], prop::option::of(number()), prop::option::of("[a-zä]{0,5}"), number()), 0..40
        ), dense in any::<bool>()) -> StreamBatch {
            let mut b = StreamBatchBuilder::default();
            for (e, ts, x, s, y) in rows {
                let name = format!("é{e}");
                b.begin_row(&name, hash64(name.as_bytes()), ts);
                if let Some(x) = x { let slot = b.slot(ColumnId(64), Kind::F64); b.push_f64(slot, x); }
                if let Some(s) = s { let slot = b.slot(ColumnId(65), Kind::Str); b.push_str(slot, &s); }
                if dense { let slot = b.slot(ColumnId(66), Kind::F64); b.push_f64(slot, y); }
            }
            b.finish()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn what_is_written_is_read(batch in batches()) {
            let mut bytes = Vec::new();
            encode_batch(&batch, &mut bytes);
            let back = decode_batch(&bytes).unwrap();
            prop_assert_eq!(&back, &batch);
            let bits = |b: &StreamBatch| -> Vec<Vec<u64>> {
                b.columns.iter().map(|c| match &c.cells {
                    BatchCells::F64(v) => v.iter().map(|x| x.to_bits()).collect(),
                    BatchCells::Str(_) => Vec::new(),
                }).collect()
            };
            prop_assert_eq!(bits(&back), bits(&batch));
        }

        #[test]
        fn damage_is_an_error_or_a_valid_batch(batch in batches(), at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            encode_batch(&batch, &mut bytes);
            prop_assert!(decode_batch(&bytes[..cut.index(bytes.len())]).is_err());
            let i = at.index(bytes.len());
            bytes[i] ^= 1 << bit;
            if let Ok(b) = decode_batch(&bytes) {
                for c in &b.columns {
                    prop_assert!(c.rows.as_ref().is_none_or(|r| r.iter().all(|&r| (r as usize) < b.rows())));
                }
            }
        }
    }

    #[test]
    fn of_the_engines_columns_only_tombstones_are_taken() {
        for id in 0..64 {
            for kind in [Kind::F64, Kind::Str] {
                let mut b = StreamBatchBuilder::default();
                b.begin_row("e", hash64(b"e"), 7);
                let slot = b.slot(ColumnId(id), kind);
                match kind {
                    Kind::F64 => b.push_f64(slot, 1.0),
                    Kind::Str => b.push_str(slot, "1"),
                }
                let mut bytes = Vec::new();
                encode_batch(&b.finish(), &mut bytes);
                let tombstone = ColumnId(id) == ColumnId::DELETED && kind == Kind::F64;
                assert_eq!(decode_batch(&bytes).is_ok(), tombstone, "{id} {kind:?}");
            }
        }
    }

    #[test]
    fn many_entities_take_wider_indexes() {
        let mut b = StreamBatchBuilder::default();
        let slot = b.slot(ColumnId(64), Kind::F64);
        for i in 0..70_000u32 {
            let name = format!("e{}", i % 66_000);
            b.begin_row(&name, hash64(name.as_bytes()), 5);
            b.push_f64(slot, 1.0);
        }
        let batch = b.finish();
        let mut bytes = Vec::new();
        encode_batch(&batch, &mut bytes);
        assert_eq!(decode_batch(&bytes).unwrap(), batch);
    }
}
