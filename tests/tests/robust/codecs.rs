//! Chunks: one column of one block. Their checksum stands in the footer, so here the decoder is alone with
//! the bytes.

use crate::alloc::peak_bytes;
use crate::fuzz::{Outcome, Target, size};
use strandline_core::codec::{Effort, MAX_BLOCK_ROWS, decode, encode};
use strandline_core::format::block::{Bitmap, BlockData, Presence};
use strandline_core::format::decoded::DecodedColumn;
use strandline_core::value::StrVec;
use strandline_tests::sim::world::Rng;

/// What `pco` needs to unpack a handful of numbers.
const PCO_TABLES: usize = 512 << 10;

/// An input: the number of rows, then the chunk.
fn input(rows: usize, chunk: &[u8]) -> Vec<u8> {
    [&(rows as u32).to_le_bytes(), chunk].concat()
}

/// Cells of many shapes, for every encoding that there is.
pub fn samples(rng: &Rng, n: usize) -> Vec<BlockData> {
    let up = |step: i64| {
        (0..n as i64)
            .map(|i| 1_700_000_000_000 + i * step)
            .collect()
    };
    let mut out = vec![
        BlockData::F64(vec![2.5; n]),
        BlockData::F64((0..n).map(|_| rng.below(200) as f64).collect()),
        BlockData::F64(
            (0..n)
                .map(|_| rng.below(9_999) as f64 / 100.0 - 20.0)
                .collect(),
        ),
        BlockData::F64(
            (0..n)
                .map(|i| if i % 40 == 7 { -0.0 } else { i as f64 / 10.0 })
                .collect(),
        ),
        BlockData::F64((0..n).map(|i| (i as f64 / 7.0).sin()).collect()),
        BlockData::F64((0..n).map(|i| f64::from((i as f32 / 7.0).cos())).collect()),
        BlockData::F64((0..n).map(|_| f64::from_bits(rng.next() >> 2)).collect()),
        BlockData::I64(up(0)),
        BlockData::I64(up(1000)),
        BlockData::I64(
            (0..n as i64)
                .map(|i| i * 100 + rng.below(50) as i64)
                .collect(),
        ),
        BlockData::I64((0..n).map(|_| rng.next() as i64).collect()),
        BlockData::I64(
            (0..n)
                .map(|i| (i % 37) as i64 * 1000 + (i / 37) as i64 * 7)
                .collect(),
        ),
        BlockData::I64((0..n).map(|_| (rng.below(1 << 20) * 4096) as i64).collect()),
        // Symbols beside each other, far apart, of differences, of differences of differences, with an outlier.
        BlockData::I64(
            (0..n)
                .map(|_| rng.below(64).min(rng.below(64)) as i64)
                .collect(),
        ),
        BlockData::I64((0..n).map(|_| (rng.below(5) << 61) as i64).collect()),
        BlockData::I64(
            (0..n as i64)
                .map(|i| i * 1_000_000 + (rng.below(100) + rng.below(100)) as i64)
                .collect(),
        ),
        BlockData::I64((0..n as i64).map(|i| i * i + rng.below(9) as i64).collect()),
        BlockData::I64(
            (0..n)
                .map(|i| {
                    if i % 90 == 50 {
                        rng.next() as i64
                    } else {
                        rng.below(40) as i64
                    }
                })
                .collect(),
        ),
        BlockData::F64((0..n).map(|_| rng.below(9) as f64 * 1.150_779).collect()),
        BlockData::Str((0..n).map(|_| "same").collect()),
        BlockData::Str(
            (0..n)
                .map(|i| ["on", "off", "unknown", ""][i * i % 4])
                .collect(),
        ),
        BlockData::Str((0..n).map(|i| ["a", "b", "c"][i / 30 % 3]).collect()),
    ];
    let (mut texts, mut keys) = (StrVec::new(), StrVec::new());
    for i in 0..n {
        texts.push(&format!(
            "entry {} of {}: {}",
            rng.below(1000),
            i,
            "ü".repeat(rng.below(9) as usize)
        ));
        let key = (0x019F_31DB_0000_0000u128 + (i / 50) as u128) << 64 | (i as u128) << 16;
        keys.push_bytes(&key.to_be_bytes());
    }
    out.extend([BlockData::Str(texts), BlockData::Str(keys)]);
    if n > 0 {
        let names: StrVec = (0..n.div_ceil(9))
            .map(|i| ["veh-a", "veh-b"][i % 2])
            .collect();
        let mut counts = vec![9; names.len()];
        counts[names.len() - 1] = (n - 9 * (names.len() - 1)) as u32;
        out.push(BlockData::StrRuns { names, counts });
    }
    out
}

fn corpus() -> Vec<Vec<u8>> {
    let rng = Rng::new(11);
    let mut out = Vec::new();
    for n in [0, 1, 2, 60, 300, 700] {
        for data in samples(&rng, n) {
            let rows = n + n / 3;
            let mut bits = Bitmap::new(rows);
            // Every fourth row is absent, or a stretch of them is.
            let spread = |row: &usize| if n % 100 == 0 { *row < n } else { row % 4 != 3 };
            (0..rows)
                .filter(spread)
                .take(n)
                .for_each(|row| bits.set(row));
            let sparse = bits.count_ones() == n && n > 0;
            for effort in [Effort::Flush, Effort::Merge] {
                for (presence, rows) in [(Presence::All, n), (Presence::Some(bits.clone()), rows)] {
                    if presence != Presence::All && !sparse {
                        continue;
                    }
                    let mut chunk = Vec::new();
                    encode(&data, &presence, rows, effort, &mut chunk).expect("a sample");
                    out.push(input(rows, &chunk));
                }
            }
        }
    }
    out.extend(earlier());
    out.sort();
    out.dedup();
    out
}

/// Chunks that earlier versions wrote, with pco.
fn earlier() -> Vec<Vec<u8>> {
    use pco::standalone::simple_compress;
    let chunk = |head: &[u8], packed: Vec<u8>| {
        let mut chunk = head.to_vec();
        chunk.extend([packed.len() as u8 & 0x7F | 0x80, (packed.len() >> 7) as u8]);
        chunk.extend(packed);
        input(300, &chunk)
    };
    let whole: Vec<i64> = (0..300).map(|i| i * i % 1013).collect();
    let doubles: Vec<f64> = (0..300).map(|i| (i as f64 / 7.0).sin()).collect();
    let singles: Vec<f32> = doubles.iter().map(|&v| v as f32).collect();
    let mut out = Vec::new();
    for delta in [pco::DeltaSpec::NoOp, pco::DeltaSpec::TryConsecutive(1)] {
        let config = pco::ChunkConfig::default()
            .with_mode_spec(pco::ModeSpec::Classic)
            .with_delta_spec(delta);
        let pack = "a fixed chunk packs";
        out.push(chunk(
            &[1, 2],
            simple_compress(&doubles, &config).expect(pack),
        ));
        out.push(chunk(
            &[1, 4],
            simple_compress(&singles, &config).expect(pack),
        ));
        out.push(chunk(
            &[2, 4],
            simple_compress(&whole, &config).expect(pack),
        ));
    }
    out
}

/// Bits, so that NaN equals itself and -0.0 is not 0.0.
fn bits(data: &BlockData) -> Vec<u64> {
    match data {
        BlockData::F64(v) => v.iter().map(|x| x.to_bits()).collect(),
        _ => Vec::new(),
    }
}

fn same(a: &BlockData, b: &BlockData) -> bool {
    match (a, b) {
        (BlockData::F64(_), BlockData::F64(_)) => bits(a) == bits(b),
        _ => a == b,
    }
}

fn run(input: &[u8]) -> Outcome {
    let Some((rows, chunk)) = input.split_first_chunk::<4>() else {
        return Outcome::of("no rows");
    };
    let rows = u32::from_le_bytes(*rows) as usize % (MAX_BLOCK_ROWS + 2);
    let (decoded, held) = peak_bytes(|| decode(chunk, rows));
    // A chunk may say "this text, 4096 times": what it expands to is bounded by its rows. The tables of one
    // pco chunk may be as large as for many.
    let expanded = rows * (48 + chunk.len()) + PCO_TABLES;
    assert!(
        held <= 4 * expanded,
        "{held} bytes for {rows} rows of {} bytes",
        chunk.len()
    );
    let (presence, data) = match decoded {
        Ok(decoded) => decoded,
        Err(e) => return Outcome::error(e).with_bytes(held),
    };
    let cells = match &presence {
        Presence::All => rows,
        Presence::Some(bits) => {
            assert_eq!(bits.len(), rows);
            bits.count_ones()
        }
    };
    assert_eq!(data.len(), cells);
    let column = DecodedColumn::new(presence.clone(), data.clone());
    for row in [0, 1, rows / 2, rows.wrapping_sub(1), rows] {
        let cell = column.cell_of(row).is_some_and(|c| c < cells);
        let seen = column.f64_at(row).is_some()
            || column.i64_at(row).is_some()
            || column.bytes_at(row).is_some();
        assert_eq!(cell, seen, "row {row} of {rows}");
        let _ = column.str_at(row);
    }
    // What was read can be written and read again, unless runs of names are not those of a writer.
    for effort in [Effort::Flush, Effort::Merge] {
        let mut chunk = Vec::new();
        encode(&data, &presence, rows, effort, &mut chunk).expect("what was decoded fits");
        let (again, data_again) = decode(&chunk, rows).expect("what was encoded is decoded");
        let full = |p: &Presence| match p {
            Presence::Some(bits) if bits.count_ones() == rows => Presence::All,
            p => p.clone(),
        };
        assert_eq!(full(&again), full(&presence));
        assert!(same(&data_again, &data), "{effort:?}");
    }
    let kind = std::mem::discriminant(&data);
    let heads = chunk.get(..2).map(<[u8]>::to_vec);
    Outcome::of((kind, heads, size(rows), size(cells))).with_bytes(16 * expanded + (16 << 20))
}

#[test]
fn codecs() {
    Target {
        name: "codecs",
        corpus: corpus(),
        tokens: &[],
        mend: None,
        memory: (4 * PCO_TABLES, 8),
        run: &run,
    }
    .fuzz();
}

/// Fuzzing found it: 257 bytes that claim a window of 128 MiB for looking back, which `pco` reserved.
#[test]
fn a_window_that_is_only_claimed_is_not_reserved() {
    let input = include_bytes!("inputs/pco-window.bin");
    let (decoded, held) = peak_bytes(|| decode(&input[4..], 80));
    assert!(decoded.is_err());
    assert!(held < 16 << 10, "{held} bytes");
}
