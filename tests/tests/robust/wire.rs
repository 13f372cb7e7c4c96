//! The two kinds of log records. Their checksum is the frame's, so here the decoders are alone with the
//! bytes.

use crate::alloc::peak_bytes;
use crate::fuzz::{Outcome, Target, size};
use strandline_core::ids::{ColumnId, Rev};
use strandline_core::keyed::Version;
use strandline_core::keyed::wire::{decode_versions, encode_versions};
use strandline_core::routing::hash64;
use strandline_core::stream::batch::{BatchCells, StreamBatch, StreamBatchBuilder};
use strandline_core::stream::wire::{decode_batch, encode_batch};
use strandline_core::value::{Kind, Value};
use strandline_tests::sim::world::Rng;

/// Versions as writers make them.
pub fn versions(rng: &Rng, n: usize) -> Vec<Version> {
    let one = |i: usize| {
        let values = (64..70).filter(|_| rng.below(3) > 0).map(|column| {
            let value = match column % 2 {
                0 => Value::F64(rng.below(1000) as f64 / 8.0),
                _ => Value::str(format!("text {}", rng.below(50))),
            };
            (ColumnId(column), value)
        });
        Version {
            key: Box::new((rng.next() as u128).to_be_bytes()),
            rev: Rev(1 + i as u64),
            deleted: rng.one_in(5),
            first: rng.one_in(2),
            values: values.collect(),
        }
    };
    (0..n).map(one).collect()
}

/// A batch as line protocol makes it.
pub fn batch(rng: &Rng, rows: usize, entities: u64, wide: bool) -> StreamBatch {
    let mut b = StreamBatchBuilder::default();
    for i in 0..rows as i64 {
        let name = format!("veh-{}", rng.below(entities));
        let ts = 1_700_000_000_000 + i * if wide { 1 << 40 } else { 1000 };
        b.begin_row(&name, hash64(name.as_bytes()), ts);
        let slot = b.slot(ColumnId(64), Kind::F64);
        b.push_f64(slot, rng.below(100) as f64);
        if rng.one_in(2) {
            let slot = b.slot(ColumnId(65), Kind::F64);
            b.push_f64(slot, rng.below(100_000) as f64 / 7.0);
        }
        if rng.one_in(3) {
            let slot = b.slot(ColumnId(66), Kind::Str);
            b.push_str(slot, ["on", "off", "größe"][rng.below(3) as usize]);
        }
    }
    b.finish()
}

/// What a DELETE of an entity writes.
fn tombstone(entity: &str, ts: i64) -> StreamBatch {
    let mut b = StreamBatchBuilder::default();
    b.begin_row(entity, hash64(entity.as_bytes()), ts);
    let slot = b.slot(ColumnId::DELETED, Kind::F64);
    b.push_f64(slot, 1.0);
    b.finish()
}

fn keyed(input: &[u8]) -> Outcome {
    let (decoded, held) = peak_bytes(|| decode_versions(input));
    assert!(
        held <= 10 * input.len() + 1024,
        "{held} bytes for {}",
        input.len()
    );
    let versions = match decoded {
        Ok(versions) => versions,
        Err(e) => return Outcome::error(e),
    };
    let mut bytes = Vec::new();
    encode_versions(&versions, &mut bytes);
    assert_eq!(bytes, input, "there are two ways to write these versions");
    Outcome::of((size(versions.len()), versions.iter().any(|v| v.deleted)))
}

fn stream(input: &[u8]) -> Outcome {
    let (decoded, held) = peak_bytes(|| decode_batch(input));
    assert!(
        held <= 16 * input.len() + 1024,
        "{held} bytes for {}",
        input.len()
    );
    let batch = match decoded {
        Ok(batch) => batch,
        Err(e) => return Outcome::error(e),
    };
    check(&batch);
    let mut bytes = Vec::new();
    encode_batch(&batch, &mut bytes);
    let again = decode_batch(&bytes).expect("what was encoded is decoded");
    check(&again);
    assert_eq!(again, batch);
    let shape: Vec<_> = batch
        .columns
        .iter()
        .map(|c| (c.cells.kind(), c.rows.is_some()))
        .collect();
    Outcome::of((size(batch.rows()), size(batch.entities.len()), shape))
}

/// What the memtable relies on.
fn check(batch: &StreamBatch) {
    let rows = batch.rows();
    assert_eq!(batch.entity_of_row.len(), rows);
    assert_eq!(batch.entity_hashes.len(), batch.entities.len());
    assert!(
        batch
            .entity_of_row
            .iter()
            .all(|&e| (e as usize) < batch.entities.len())
    );
    for column in &batch.columns {
        let tombstones = column.id == ColumnId::DELETED && column.cells.kind() == Kind::F64;
        assert!(column.id >= ColumnId::FIRST_USER || tombstones);
        match &column.rows {
            None => assert_eq!(column.cells.len(), rows),
            Some(list) => {
                assert_eq!(column.cells.len(), list.len());
                assert!(list.windows(2).all(|w| w[0] < w[1]));
                assert!(list.iter().all(|&r| (r as usize) < rows));
            }
        }
        match &column.cells {
            BatchCells::F64(v) => assert!(v.iter().all(|x| x.is_finite())),
            BatchCells::Str(v) => {
                assert!((0..v.len()).all(|i| std::str::from_utf8(v.get_bytes(i)).is_ok()))
            }
        }
    }
}

#[test]
fn records_of_row_versions() {
    let rng = Rng::new(5);
    let encoded = |n| {
        let mut bytes = Vec::new();
        encode_versions(&versions(&rng, n), &mut bytes);
        bytes
    };
    Target {
        name: "keyed records",
        corpus: [0, 1, 1, 2, 5, 40].map(encoded).into(),
        tokens: &[],
        mend: None,
        memory: (16 << 10, 24),
        run: &keyed,
    }
    .fuzz();
}

#[test]
fn records_of_batches() {
    let rng = Rng::new(6);
    let shapes = [
        (0, 1, false),
        (1, 1, false),
        (3, 1, true),
        (20, 5, false),
        (50, 20, true),
        (400, 300, false),
    ];
    Target {
        name: "stream records",
        corpus: (shapes.iter())
            .map(|&(rows, entities, wide)| batch(&rng, rows, entities, wide))
            .chain([tombstone("veh-1", 1_700_000_000_000)])
            .map(|batch| {
                let mut bytes = Vec::new();
                encode_batch(&batch, &mut bytes);
                bytes
            })
            .collect(),
        tokens: &[],
        mend: None,
        memory: (16 << 10, 64),
        run: &stream,
    }
    .fuzz();
}
