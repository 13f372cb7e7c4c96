//! Every kind of column comes back bit for bit, and no bytes make a decoder panic.

use super::*;
use crate::value::StrVec;
use proptest::collection::vec;
use proptest::prelude::*;

const EFFORTS: [Effort; 2] = [Effort::Flush, Effort::Merge];

/// Encodes and decodes; the bytes it took.
fn round_trip(data: &BlockData, presence: &Presence, rows: usize, effort: Effort) -> usize {
    let mut bytes = vec![0xEE; 3]; // encode appends
    encode(data, presence, rows, effort, &mut bytes).unwrap();
    let chunk = &bytes[3..];
    let (got_presence, got) = decode(chunk, rows).unwrap();
    match presence {
        Presence::Some(bits) if bits.count_ones() == rows => {
            assert_eq!(got_presence, Presence::All)
        }
        _ => assert_eq!(&got_presence, presence),
    }
    match (data, &got) {
        // By bits: NaN and -0.0 count.
        (BlockData::F64(a), BlockData::F64(b)) => {
            assert_eq!(
                a.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
                b.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
            )
        }
        _ => assert_eq!(data, &got),
    }
    chunk.len()
}

fn both(data: BlockData) -> usize {
    let rows = data.len();
    EFFORTS.map(|e| round_trip(&data, &Presence::All, rows, e))[0]
}

fn walk(n: usize, seed: u64) -> impl Iterator<Item = f64> {
    let mut state = seed;
    let mut value = 50.0f64;
    (0..n).map(move |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        value = (value + (state >> 40) as f64 / (1 << 23) as f64 - 1.0).clamp(0.0, 100.0);
        value
    })
}

#[test]
fn floats_of_every_sort() {
    both(BlockData::F64(vec![]));
    assert!(both(BlockData::F64(vec![7.25; 4096])) < 12);
    both(BlockData::F64(vec![
        0.0,
        -0.0,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
        1e308,
        -1e308,
        f64::MAX,
        f64::MIN,
        9_007_199_254_740_992.0,
        -9_007_199_254_740_993.0,
        0.1 + 0.2,
        1e15 + 0.5,
        2.5e15,
    ]));
    both(BlockData::F64(vec![
        f64::NAN,
        1.0,
        f64::from_bits(0x7FF0_0000_0000_0001),
    ]));
    both(BlockData::F64(vec![f64::INFINITY, 1.0, f64::NEG_INFINITY]));
    let whole = both(BlockData::F64(walk(4096, 1).map(f64::floor).collect()));
    assert!(whole < 4096 * 2 / 5, "{whole} bytes for 4096 whole numbers");
    let cents: Vec<f64> = walk(4096, 2).map(|v| (v * 100.0).round() / 100.0).collect();
    let cents_len = both(BlockData::F64(cents.clone()));
    assert!(cents_len < 4096 * 3 / 2, "{cents_len} bytes for 4096 cents");
    // A few values that are no such decimals do not spoil the rest.
    let mut spoilt = cents;
    for at in (5..4096).step_by(97) {
        spoilt[at] = if at % 2 == 0 { -0.0 } else { 1.0 / 3.0 };
    }
    let spoilt_len = both(BlockData::F64(spoilt));
    assert!(
        spoilt_len < 4096 * 5 / 2,
        "{spoilt_len} bytes with exceptions"
    );
    both(BlockData::F64(walk(4096, 3).collect()));
    let singles = both(BlockData::F64(
        walk(4096, 4).map(|v| v as f32 as f64).collect(),
    ));
    assert!(singles < 4096 * 7 / 2, "{singles} bytes for 4096 singles");
    both(BlockData::F64(
        (0..4096).map(|i| (i as f64 / 300.0).sin() * 1e9).collect(),
    ));
    // The first decimals show only late.
    both(BlockData::F64(
        (0..4096)
            .map(|i| {
                if i < 2000 {
                    i as f64
                } else {
                    i as f64 / 1000.0
                }
            })
            .collect(),
    ));
    for power in 0..9 {
        both(BlockData::F64(
            (0..999)
                .map(|i| (i * 7919 - 3_000_000) as f64 / 10f64.powi(power))
                .collect(),
        ));
    }
}

#[test]
fn whole_numbers_of_every_sort() {
    assert!(
        both(BlockData::I64(
            (0..4096).map(|i| 1_767_225_600_000 + i * 10_000).collect()
        )) < 16
    );
    both(BlockData::I64(vec![i64::MIN, i64::MAX, 0, -1, i64::MIN, 1]));
    both(BlockData::I64(vec![i64::MAX, i64::MIN]));
    // The times of a hundred entities in one block.
    let many = both(BlockData::I64(
        (0..4096)
            .map(|i| 1_767_225_600_000 + i % 41 * 10_000)
            .collect(),
    ));
    assert!(
        many < 100,
        "{many} bytes for the times of a hundred entities"
    );
    for width in 0..64 {
        let mask = (1u64 << width) | ((1u64 << width) - 1);
        let numbers = (0..777u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask) as i64);
        both(BlockData::I64(numbers.collect()));
    }
}

/// What differs in how symbols see it: gaps, outliers, few distinct, skewed, smooth, and counts around the
/// lengths of groups and turns.
#[test]
fn symbols_of_every_sort() {
    let noise = |i: usize| (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    type Kind = (&'static str, fn(usize, u64) -> i64, f64);
    // With the most bytes that a number may take in a full block.
    let kinds: [Kind; 9] = [
        ("even", |_, r| (r % 16) as i64, 0.52),
        (
            "skewed",
            |_, r| (r % 1024).leading_zeros() as i64 - 54,
            0.27,
        ),
        ("mostly one", |_, r| (r % 200 == 0) as i64, 0.03),
        ("gaps", |_, r| (r % 7) as i64 * 1_000_003, 0.37),
        ("far apart", |_, r| ((r % 5) << 61) as i64, 0.33),
        (
            "outliers",
            |i, r| {
                if i % 100 == 7 {
                    (r << 20) as i64
                } else {
                    (r % 64) as i64
                }
            },
            0.95,
        ),
        ("wide", |_, r| (r << 20) as i64 >> 9, 7.0),
        ("smooth", |i, _| (i * i) as i64 / 3, 0.3),
        ("walk", |i, r| i as i64 * 1000 + (r % 32) as i64, 0.85),
    ];
    for (name, number, most) in kinds {
        for n in [
            0, 1, 2, 3, 63, 64, 65, 71, 255, 256, 257, 511, 513, 1000, 4096, 65_536,
        ] {
            let numbers: Vec<i64> = (0..n).map(|i| number(i, noise(i))).collect();
            let whole = both(BlockData::I64(numbers.clone()));
            both(BlockData::F64(numbers.iter().map(|&v| v as f64).collect()));
            let bits = numbers.iter().map(|&v| f64::from_bits(v as u64));
            both(BlockData::F64(bits.collect()));
            if n == 4096 {
                let each = whole as f64 / n as f64;
                assert!(each < most, "{name}: {each} bytes each");
            }
        }
    }
}

/// Earlier versions packed with pco.
#[test]
fn what_earlier_versions_wrote_is_read() {
    use pco::standalone::simple_compress;
    use pco::{ChunkConfig, DeltaSpec, ModeSpec};
    for delta in [
        DeltaSpec::NoOp,
        DeltaSpec::TryConsecutive(1),
        DeltaSpec::TryConsecutive(2),
    ] {
        let config = ChunkConfig::default()
            .with_mode_spec(ModeSpec::Classic)
            .with_delta_spec(delta);
        let doubles: Vec<f64> = (0..700).map(|i| (i as f64 / 9.0).sin()).collect();
        let singles: Vec<f32> = doubles.iter().map(|&v| v as f32).collect();
        let whole: Vec<i64> = (0..700).map(|i| i * i % 1013 - 40).collect();
        let widened: Vec<f64> = singles.iter().map(|&v| v.into()).collect();
        let cents: Vec<f64> = whole.iter().map(|&i| i as f64 / 100.0).collect();
        let mut packed = Vec::new();
        put_prefixed(&simple_compress(&whole, &config).unwrap(), &mut packed);
        for (head, file, data) in [
            (
                vec![KIND_F64, 2],
                simple_compress(&doubles, &config).unwrap(),
                BlockData::F64(doubles),
            ),
            (
                vec![KIND_F64, 4],
                simple_compress(&singles, &config).unwrap(),
                BlockData::F64(widened),
            ),
            (
                vec![KIND_I64, 4],
                simple_compress(&whole, &config).unwrap(),
                BlockData::I64(whole.clone()),
            ),
            (
                vec![KIND_F64, 1, 2, 0, 4],
                simple_compress(&whole, &config).unwrap(),
                BlockData::F64(cents),
            ),
        ] {
            let mut chunk = head;
            put_prefixed(&file, &mut chunk);
            assert_eq!(decode(&chunk, 700), Ok((Presence::All, data)));
        }
    }
}

#[test]
fn text_of_every_sort() {
    both(BlockData::Str(StrVec::new()));
    assert!(both(BlockData::Str((0..4096).map(|_| "on").collect())) < 8);
    both(BlockData::Str(["", "", "x"].into_iter().collect()));
    let runs = both(BlockData::Str(
        (0..4096).map(|i| ["a", "b"][i / 1000 % 2]).collect(),
    ));
    assert!(runs < 64, "{runs} bytes for five runs");
    let codes = both(BlockData::Str(
        (0..4096).map(|i| ["eins", "zwei", "drei"][i % 3]).collect(),
    ));
    assert!(codes < 4096 / 3, "{codes} bytes for three words");
    let names: Vec<String> = (0..4096).map(|i| format!("sensor-{i:06}")).collect();
    let distinct = both(BlockData::Str(names.iter().map(String::as_str).collect()));
    assert!(distinct < 4096 * 6, "{distinct} bytes for 4096 names");
    let mut keys = StrVec::new();
    for i in 0..4096u64 {
        // Each ms starts at a random number.
        let start = (i / 1000 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1;
        let xid = crate::xid::Xid::new(1_767_225_600_000 + i / 1000, start + i, 3);
        keys.push_bytes(&xid.to_bytes());
    }
    let keys_len = both(BlockData::Str(keys));
    assert!(keys_len < 200, "{keys_len} bytes for 4096 xids");
    both(BlockData::StrRuns {
        names: ["a", "b", "c"].into_iter().collect(),
        counts: vec![1, 4000, 7],
    });
}

/// A dictionary from a block behaves as the strings that it stands for, whatever is done with it.
#[test]
fn dictionaries_are_strings() {
    let words = ["on", "", "off", "größe"];
    for (words, run) in [(1, 1), (2, 1), (4, 1), (4, 100)] {
        let texts: Vec<&str> = (0..1000)
            .map(|i| ["on", "", "off", "größe"][i / run % words])
            .collect();
        let plain: StrVec = texts.iter().copied().collect();
        let mut chunk = Vec::new();
        let data = BlockData::Str(plain.clone());
        encode(&data, &Presence::All, 1000, Effort::Flush, &mut chunk).unwrap();
        let Ok((_, BlockData::Str(mut read))) = decode(&chunk, 1000) else {
            panic!("text comes back as text");
        };
        assert_eq!(read.dictionary().map(|d| d.0), Some(words));
        assert!(read.memory_bytes() < 5_000, "{}", read.memory_bytes());
        assert_eq!(read, plain);
        assert_eq!(plain, read);
        assert_eq!(read.iter().collect::<Vec<_>>(), texts);
        assert_eq!(read.packed().bytes(), plain.bytes());
        assert_eq!(read.packed().offsets(), plain.offsets());
        let tests = std::cell::Cell::new(0);
        let passes = read.passes(|t| {
            tests.set(tests.get() + 1);
            t == b"off"
        });
        assert!((0..1000).all(|i| passes.at(i) == (texts[i] == "off")));
        assert_eq!(tests.get(), words);
        let passes = plain.passes(|t| t == b"off");
        assert!((0..1000).all(|i| passes.at(i) == (texts[i] == "off")));
        for effort in EFFORTS {
            round_trip(&BlockData::Str(read.clone()), &Presence::All, 1000, effort);
        }
        read.push("more");
        assert_eq!(
            (read.len(), read.get(1000), read.get(2)),
            (1001, "more", texts[2])
        );
        assert_ne!(read, plain);
        read.replace_last("last");
        assert_eq!(read.get(1000), "last");
        read.clear();
        assert!(read.is_empty() && read.dictionary().is_none());
    }
    let entries: StrVec = words.into_iter().collect();
    assert!(StrVec::from_dictionary(entries, vec![0, 4]).is_none());
}

#[test]
fn what_does_not_fit_is_refused() {
    let out = &mut Vec::new();
    let one = BlockData::I64(vec![1]);
    assert!(encode(&one, &Presence::All, 2, Effort::Flush, out).is_err());
    assert!(encode(&one, &Presence::Some(Bitmap::new(3)), 2, Effort::Flush, out).is_err());
    let many = BlockData::I64(vec![1; MAX_BLOCK_ROWS + 1]);
    assert!(
        encode(
            &many,
            &Presence::All,
            MAX_BLOCK_ROWS + 1,
            Effort::Flush,
            out
        )
        .is_err()
    );
    assert!(decode(&[], 1).is_err());
    assert!(
        decode(&[KIND_I64, 0, 2, 9], 1).is_err(),
        "bytes behind the end"
    );
}

/// Any double, with a liking for decimals and for the odd ones.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-10_000i64..10_000, 0i32..5).prop_map(|(i, k)| i as f64 / 10f64.powi(k)),
        1 => any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |v| v.is_finite()),
        1 => prop::sample::select(vec![0.0, -0.0, 1e308, -1e308, 5e-324, 1e-7, 123_456.789]),
    ]
}

fn any_data() -> impl Strategy<Value = BlockData> {
    let text = || prop_oneof!["[a-c]{0,2}", "\\PC{0,12}", "[0-9a-f]{16}"];
    prop_oneof![
        vec(any_number(), 0..600).prop_map(BlockData::F64),
        vec((0i64..100).prop_map(|v| v as f64), 0..600).prop_map(BlockData::F64),
        vec(any::<i64>(), 0..600).prop_map(BlockData::I64),
        // Symbols: two humps and a rare outlier.
        vec(
            prop_oneof![
                8 => 0i64..20,
                4 => 5_000i64..5_300,
                1 => any::<i64>(),
            ],
            64..900,
        )
        .prop_map(BlockData::I64),
        (any::<i64>(), vec(-20i64..2000, 0..600)).prop_map(|(first, steps)| {
            BlockData::I64(
                steps
                    .iter()
                    .scan(first, |at, &s| {
                        *at = at.wrapping_add(s);
                        Some(*at)
                    })
                    .collect(),
            )
        }),
        vec(text(), 0..300).prop_map(|v| BlockData::Str(v.iter().map(String::as_str).collect())),
        vec((text(), 1u32..50), 1..100).prop_map(|runs| BlockData::StrRuns {
            names: runs.iter().map(|(s, _)| s.as_str()).collect(),
            counts: runs.iter().map(|(_, c)| *c).collect(),
        }),
    ]
}

/// Rows without a cell, put between the cells.
fn spread(cells: usize, gaps: &[u8]) -> (Presence, usize) {
    let mut rows = Vec::new();
    let mut row = 0;
    for cell in 0..cells {
        row += gaps
            .get(cell % gaps.len().max(1))
            .map_or(0, |&g| g as usize);
        rows.push(row);
        row += 1;
    }
    let mut bits = Bitmap::new(row + gaps.len());
    rows.iter().for_each(|&row| bits.set(row));
    let rows = bits.len();
    (Presence::Some(bits), rows)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_column_comes_back(
        data in any_data(),
        gaps in vec(prop_oneof![3 => Just(0u8), 1 => 0u8..9], 0..40),
        merge: bool,
    ) {
        let effort = EFFORTS[merge as usize];
        round_trip(&data, &Presence::All, data.len(), effort);
        let (presence, rows) = spread(data.len(), &gaps);
        round_trip(&data, &presence, rows, effort);
    }

    #[test]
    fn damaged_chunks_do_not_panic(
        data in any_data(),
        flips in vec((any::<prop::sample::Index>(), 0u8..8), 1..4),
        cut in any::<prop::sample::Index>(),
        rows_off in -2i64..3,
        merge: bool,
    ) {
        let mut bytes = Vec::new();
        encode(&data, &Presence::All, data.len(), EFFORTS[merge as usize], &mut bytes).unwrap();
        let _ = decode(&bytes[..cut.index(bytes.len())], data.len());
        let _ = decode(&bytes, (data.len() as i64 + rows_off).max(0) as usize);
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            // Right or wrong values: the CRC decides that. Here only: no panic, and no more cells than rows.
            if let Ok((_, got)) = decode(&bytes, data.len()) {
                prop_assert!(got.len() <= data.len());
            }
        }
    }

    #[test]
    fn noise_does_not_panic(
        head in prop::sample::select(vec![1u8, 2, 3, 4, 0x11, 0x22, 0x23]),
        tag in 0u8..9,
        noise in vec(any::<u8>(), 0..300),
        rows in 0usize..5000,
    ) {
        let mut bytes = vec![head, tag];
        bytes.extend(&noise);
        let _ = decode(&bytes, rows);
        // Symbols, with a head that a writer could have made.
        let mut bytes = vec![KIND_I64, 6, tag % 3];
        bytes.extend(vec![2; tag as usize % 3]);
        bytes.extend([noise.first().map_or(0, |b| b % 64), 8, tag, 0, 0x16]);
        bytes.extend(noise);
        let _ = decode(&bytes, rows);
    }
}
